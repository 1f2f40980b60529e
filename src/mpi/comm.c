// SPDX-License-Identifier: MIT
// comm.c: the sum of a tensor over devices of several ranks: each rank is told to add up with the others (sum.c), and nothing
// comes here.

#include "mpi/remote.h"

#include <stdatomic.h>

struct comm {
    uint32_t number;
    size_t n;
    struct mpi_device *devices[];
};

// A rank's table of groups is as long as the largest number, so numbers that are given back are taken again.
static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t numbers_taken       = 1; // bit i: number i; 0 is the programs'

static uint32_t number_take(void) {
    pthread_mutex_lock(&numbers_lock);
    const uint32_t number = ~numbers_taken != 0 ? (uint32_t) __builtin_ctzll(~numbers_taken) : 0;
    numbers_taken |= (uint64_t) 1 << number;
    pthread_mutex_unlock(&numbers_lock);
    return number;
}

void mpi_comm_free(void *comm) {
    struct comm *c = comm;
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        struct mpi_remote *r = c->devices[i]->remote;
        if (!mpi_mail_is_lost(r->mail, r->rank)) {
            (void) !mpi_remote_send(r, MPI_GROUP_FREE, c->number, (uint64_t[3]){0}, NULL, 0);
        }
    }
    pthread_mutex_lock(&numbers_lock);
    numbers_taken &= ~((uint64_t) 1 << c->number);
    pthread_mutex_unlock(&numbers_lock);
    shim_free(c);
}

// Devices of as many ranks: two of one rank cannot wait for each other there.
static bool can_join(ggml_backend_t *backends, size_t n) {
    bool ok = backends != NULL && n > 0;
    for (size_t i = 0; ok && i < n; i++) {
        ok = mpi_backend_is(backends[i]);
        for (size_t j = 0; ok && j < i; j++) {
            ok = ((struct mpi_device *) backends[i]->device->context)->remote !=
                 ((struct mpi_device *) backends[j]->device->context)->remote;
        }
    }
    return ok;
}

void *mpi_comm_init(ggml_backend_t *backends, size_t n) {
    const uint32_t number = can_join(backends, n) ? number_take() : 0;
    struct comm *c        = number > 0 ? shim_calloc(1, sizeof *c + n * sizeof c->devices[0]) : NULL;
    uint32_t *ranks       = c != NULL ? shim_malloc(n * sizeof *ranks) : NULL;
    bool ok               = ranks != NULL;
    if (c != NULL) {
        c->number = number;
        c->n      = n;
    }
    for (size_t i = 0; c != NULL && i < n; i++) {
        c->devices[i] = backends[i]->device->context;
        if (ok) {
            ranks[i] = (uint32_t) c->devices[i]->remote->rank;
        }
    }
    for (size_t i = 0; ok && i < n; i++) {
        ok = mpi_remote_send(c->devices[i]->remote, MPI_GROUP_NEW, number, (uint64_t[3]){0}, ranks, n * sizeof *ranks) ==
             GGML_STATUS_SUCCESS;
    }
    shim_free(ranks);
    if (!ok) {
        mpi_comm_free(c);
        return NULL;
    }
    return c;
}

bool mpi_comm_allreduce(void *comm, struct ggml_tensor **tensors) {
    struct comm *c = comm;
    uint32_t buffer;
    uint64_t offset;
    bool ok = c != NULL && tensors != NULL && tensors[0] != NULL;
    for (size_t i = 0; ok && i < c->n; i++) {
        const struct ggml_tensor *t = tensors[i];
        ok = t != NULL && t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && ggml_are_same_shape(t, tensors[0]) &&
             mpi_tensor_device(t, &buffer, &offset) == c->devices[i];
    }
    for (size_t i = 0; ok && i < c->n; i++) {
        const bool is_zero = (tensors[i]->flags & GGML_TENSOR_FLAG_COMPUTE) == 0;
        mpi_tensor_device(tensors[i], &buffer, &offset);
        const uint64_t abc[3] = {buffer, offset, 2 * (uint64_t) ggml_nelements(tensors[i]) + is_zero};
        ok = mpi_remote_send(c->devices[i]->remote, MPI_GROUP_SUM, c->number, abc, NULL, 0) == GGML_STATUS_SUCCESS;
        if (!ok) {
            mpi_remote_keep(c->devices[i]->remote, "a sum could not be asked for");
        }
    }
    return ok;
}

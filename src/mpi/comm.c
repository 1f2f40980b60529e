// SPDX-License-Identifier: MIT
// comm.c: sums of a tensor over devices of several ranks. The ranks of the devices form a group, which computes the sum (sum.c).
// At most one of the devices belongs to this rank, and the memory of this device must be host memory. If no device belongs to
// this rank, no data passes through this rank.

#include "mpi/message_queue.h"
#include "mpi/remote.h"

struct comm {
    uint32_t number;              // number of the group in commands to workers; group.number is the serial number of its parts
    struct mpi_group group;       // me -1: none of the devices belongs to this rank
    struct mpi_device *devices[]; // [group.n] NULL: device of this rank
};

// Group numbers are reused, because a worker's table of groups is as long as the largest number. Parts instead carry a serial
// number that is never reused, so that messages of a failed sum are not taken for messages of another group.
static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_id_pool numbers;
static uint32_t n_serials; // last serial number given out; 0 is the serial number of mpi_world.programs

static bool id_take(struct comm *c) {
    pthread_mutex_lock(&numbers_lock);
    const bool ok = mpi_id_pool_take(&numbers, &c->number);
    c->group.number = ++n_serials;
    pthread_mutex_unlock(&numbers_lock);
    return ok;
}

static void id_give_back(const struct comm *c) {
    pthread_mutex_lock(&numbers_lock);
    mpi_id_pool_give_back(&numbers, c->number);
    pthread_mutex_unlock(&numbers_lock);
}

static void comm_release(struct comm *c) {
    shim_free(c->group.ranks);
    shim_free(c);
}

void mpi_comm_free(void *comm) {
    struct comm *c = comm;
    if (c == NULL) {
        return;
    }
    for (int i = 0; i < c->group.n; i++) {
        struct mpi_remote *r = c->devices[i] != NULL ? c->devices[i]->remote : NULL;
        if (r != NULL && !mpi_queue_is_lost(r->queue, r->rank)) {
            (void) !mpi_remote_send(r, &(struct mpi_head){.kind = MPI_GROUP_FREE, .id = c->number}, NULL, 0);
        }
    }
    id_give_back(c);
    comm_release(c);
}

static struct mpi_device *device_of(ggml_backend_t backend) {
    return mpi_backend_is(backend) ? backend->device->context : NULL;
}

static bool is_host(ggml_backend_t backend) {
    return backend != NULL && backend->device != NULL && ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(backend->device));
}

// Returns true if the backends can form a group. Each must belong to a different rank, because two devices of one rank cannot
// wait for each other.
static bool can_join(ggml_backend_t *backends, size_t n) {
    bool ok = backends != NULL && n > 0 && n <= INT32_MAX, has_other = false;
    for (size_t i = 0; ok && i < n; i++) {
        const struct mpi_device *d = device_of(backends[i]);
        has_other = has_other || d != NULL;
        ok = d != NULL || is_host(backends[i]);
        for (size_t j = 0; ok && j < i; j++) {
            const struct mpi_device *e = device_of(backends[j]);
            ok = (d != NULL ? d->remote : NULL) != (e != NULL ? e->remote : NULL);
        }
    }
    return ok && has_other;
}

// Returns NULL if out of memory.
static struct comm *comm_new(ggml_backend_t *backends, size_t n) {
    struct comm *c = shim_calloc(1, sizeof *c + n * sizeof c->devices[0]);
    if (c == NULL) {
        return NULL;
    }
    c->group = (struct mpi_group){.n = (int) n, .me = -1, .ranks = shim_malloc(n * sizeof c->group.ranks[0])};
    for (size_t i = 0; i < n; i++) {
        c->devices[i] = device_of(backends[i]);
        if (c->devices[i] != NULL) {
            c->group.queue = c->devices[i]->remote->queue;
        }
    }
    if (c->group.ranks == NULL || !id_take(c)) {
        comm_release(c);
        return NULL;
    }
    for (int i = 0; i < c->group.n; i++) {
        c->group.ranks[i] = c->devices[i] != NULL ? c->devices[i]->remote->rank : c->group.queue->transport.rank;
        if (c->devices[i] == NULL) {
            c->group.me = i;
        }
    }
    return c;
}

void *mpi_comm_init(ggml_backend_t *backends, size_t n) {
    struct comm *c = can_join(backends, n) ? comm_new(backends, n) : NULL;
    bool ok = c != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok = c->devices[i] == NULL ||
             mpi_remote_send(c->devices[i]->remote, &(struct mpi_head){MPI_GROUP_NEW, c->number, c->group.number, 0, 0},
                 c->group.ranks, n * sizeof c->group.ranks[0]) == GGML_STATUS_SUCCESS;
    }
    if (!ok) {
        mpi_comm_free(c);
        return NULL;
    }
    return c;
}

static bool can_sum(const struct comm *c, struct ggml_tensor **tensors) {
    bool ok = c != NULL && tensors != NULL && tensors[0] != NULL;
    for (int i = 0; ok && i < c->group.n; i++) {
        const struct ggml_tensor *t = tensors[i];
        ok = t != NULL && t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && ggml_are_same_shape(t, tensors[0]) &&
             (c->devices[i] != NULL ? mpi_tensor_place(t, 0).dev == c->devices[i] : t->data != NULL);
    }
    return ok;
}

// Returns true if the part was not computed; such a part counts as 0.
static bool is_zero(const struct ggml_tensor *t) {
    return (t->flags & GGML_TENSOR_FLAG_COMPUTE) == 0;
}

// Adds this rank's part. On failure the caller must not retry, because other ranks may already have replaced their parts by the
// sum. A failure is stored for each rank, so that its next compute or synchronize fails.
static bool sum_here(struct comm *c, struct ggml_tensor *t) {
    if (is_zero(t)) {
        memset(t->data, 0, ggml_nbytes(t));
    }
    const bool ok = mpi_group_sum(&c->group, t->data, (size_t) ggml_nelements(t));
    for (int i = 0; !ok && i < c->group.n; i++) {
        if (c->devices[i] != NULL) {
            mpi_remote_defer_error(c->devices[i]->remote, "a sum of %lld elements failed", (long long) ggml_nelements(t));
        }
    }
    return ok;
}

bool mpi_comm_ask(void *comm, struct ggml_tensor **tensors) {
    struct comm *c = comm;
    if (!can_sum(c, tensors)) {
        return false;
    }
    for (int i = 0; i < c->group.n; i++) {
        if (c->devices[i] == NULL) {
            continue;
        }
        const struct mpi_place at = mpi_tensor_place(tensors[i], 0);
        const uint64_t n = 2 * (uint64_t) ggml_nelements(tensors[i]) + is_zero(tensors[i]);
        const struct mpi_head head = {MPI_GROUP_SUM, c->number, at.buffer, at.offset, n};
        if (mpi_remote_send(c->devices[i]->remote, &head, NULL, 0) != GGML_STATUS_SUCCESS) {
            mpi_remote_defer_error(c->devices[i]->remote, "cannot request a sum");
        }
    }
    return true;
}

bool mpi_comm_join(void *comm, struct ggml_tensor **tensors) {
    struct comm *c = comm;
    return c->group.me < 0 || sum_here(c, tensors[c->group.me]);
}

bool mpi_comm_allreduce(void *comm, struct ggml_tensor **tensors) {
    return mpi_comm_ask(comm, tensors) && mpi_comm_join(comm, tensors);
}

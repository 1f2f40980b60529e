// SPDX-License-Identifier: MIT
// mpi_loop.h: an MPI transport whose ranks are threads of one process, so that sanitizers and fuzzers can check them. Each rank
// has an inbox of messages. One lock guards all inboxes. Sending appends to the inbox immediately.
#pragma once

#include "mpi/transport.h"

#include "base/shim/shim.h"

#include <pthread.h>

struct queued {
    struct mpi_message message;
    struct queued *next;
};

struct inbox {
    struct queued *first, **end;
};

struct mpi_loop {
    pthread_mutex_t lock;
    int n;
    struct inbox inboxes[];
};

// Returns NULL if out of memory.
static struct mpi_loop *mpi_loop_new(int n_ranks) {
    struct mpi_loop *loop = shim_calloc(1, sizeof *loop + (size_t) n_ranks * sizeof loop->inboxes[0]);
    if (loop == NULL) {
        return NULL;
    }
    pthread_mutex_init(&loop->lock, NULL);
    loop->n = n_ranks;
    for (int i = 0; i < n_ranks; i++) {
        loop->inboxes[i].end = &loop->inboxes[i].first;
    }
    return loop;
}

// All transports must be closed before.
static void mpi_loop_free(struct mpi_loop *loop) {
    for (int i = 0; loop != NULL && i < loop->n; i++) {
        for (struct queued *q = loop->inboxes[i].first, *next; q != NULL; q = next) {
            next = q->next;
            shim_free(q->message.bytes);
            shim_free(q);
        }
    }
    if (loop != NULL) {
        pthread_mutex_destroy(&loop->lock);
    }
    shim_free(loop);
}

static bool loop_send(struct mpi_transport *t, int to, void *bytes, size_t size) {
    struct mpi_loop *loop = t->context;
    struct queued *q = shim_malloc(sizeof *q);
    if (q == NULL) {
        return false;
    }
    *q = (struct queued){.message = {.from = t->rank, .size = size, .bytes = bytes}};
    pthread_mutex_lock(&loop->lock);
    *loop->inboxes[to].end = q;
    loop->inboxes[to].end = &q->next;
    pthread_mutex_unlock(&loop->lock);
    return true;
}

static size_t loop_unsent(struct mpi_transport *t, int to) {
    (void) t;
    (void) to;
    return 0;
}

static bool loop_receive(struct mpi_transport *t, struct mpi_message *out) {
    struct mpi_loop *loop = t->context;
    struct inbox *box = &loop->inboxes[t->rank];
    pthread_mutex_lock(&loop->lock);
    struct queued *q = box->first;
    if (q != NULL) {
        box->first = q->next;
        if (box->first == NULL) {
            box->end = &box->first;
        }
        *out = q->message;
    }
    pthread_mutex_unlock(&loop->lock);
    shim_free(q);
    return q != NULL;
}

static void loop_close(struct mpi_transport *t, bool all) {
    (void) t;
    (void) all;
}

// The caller has set alloc and release.
static bool mpi_loop_open(struct mpi_loop *loop, int rank, struct mpi_transport *t) {
    t->rank = rank;
    t->size = loop->n;
    t->context = loop;
    t->send = loop_send;
    t->unsent = loop_unsent;
    t->receive = loop_receive;
    t->close = loop_close;
    return true;
}

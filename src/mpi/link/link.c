// SPDX-License-Identifier: MIT
// link.c: the transport over MPI. It uses only MPI calls that return immediately, so a dying rank does not block other ranks.
// The memory of an incomplete message is never freed or reused, because MPI may still access it.
// All messages use MPI_COMM_WORLD and one tag. A program that uses MPI itself must not use this tag.

#include "mpi/transport.h"

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TAG 21097
#define SETTLE_MS 5000 // milliseconds that link_close waits for the last messages

struct sending {
    MPI_Request request;
    void *bytes;
    size_t size;
    int to;
};

struct receiving {
    MPI_Request request;
    struct mpi_message message;
    int error; // if message.bytes is NULL: the MPI error, or MPI_SUCCESS if memory ran out
};

// Both lists are in the order in which their messages began.
struct link {
    struct sending *out;
    struct receiving *in;
    size_t n_out, n_out_cap, n_in, n_in_cap;
    size_t *unsent; // [size] bytes
    bool is_ours;   // this library called MPI_Init
    char why[MPI_MAX_ERROR_STRING];
};

static const char *error_text(struct link *l, int error) {
    int n = 0;
    if (error == MPI_SUCCESS) {
        return NULL;
    }
    if (MPI_Error_string(error, l->why, &n) != MPI_SUCCESS || n <= 0) {
        snprintf(l->why, sizeof l->why, "error %d of MPI", error);
    }
    return l->why;
}

// ---- SIGPIPE is blocked during MPI calls. MPI writes to sockets that other ranks may have closed, and the program must not get
// the resulting signal ----

struct sigpipe_state {
    sigset_t before;
    bool was_pending;
};

static struct sigpipe_state sigpipe_block(void) {
    struct sigpipe_state h;
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    h.was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &h.before);
    return h;
}

static void sigpipe_unblock(const struct sigpipe_state *h) {
    const struct timespec now = {0};
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    if (!h->was_pending && sigismember(&pending, SIGPIPE) == 1) {
        sigtimedwait(&pipe, NULL, &now);
    }
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
}

// ---- MPI installs handlers for crash signals to print a stack. With Open MPI 4.1, a thread that crashes within malloc never
// returns from the handler, and its process looks alive to the others. A rank that crashes must end, so the previous handlers are
// restored ----

static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
#define N_CRASHES (sizeof crashes / sizeof crashes[0])

static void crashes_get(struct sigaction before[N_CRASHES]) {
    for (size_t i = 0; i < N_CRASHES; i++) {
        sigaction(crashes[i], NULL, &before[i]);
    }
}

static void crashes_set(const struct sigaction before[N_CRASHES]) {
    for (size_t i = 0; i < N_CRASHES; i++) {
        sigaction(crashes[i], &before[i], NULL);
    }
}

// ---- messages ----

#define RECEIVING_MAX 8 // messages that are received concurrently

static bool list_grow(struct mpi_transport *t, void **list, size_t *n_cap, size_t n, size_t elem_size) {
    if (n < *n_cap) {
        return true;
    }
    const size_t n_new = 2 * *n_cap + 64;
    void *grown = t->alloc(n_new * elem_size);
    if (grown == NULL) {
        return false;
    }
    if (n > 0) {
        memcpy(grown, *list, n * elem_size);
    }
    t->release(*list);
    *list = grown;
    *n_cap = n_new;
    return true;
}

static void sent_reap(struct mpi_transport *t) {
    struct link *l = t->context;
    size_t n = 0;
    for (size_t i = 0; i < l->n_out; i++) {
        int done = 0;
        if (MPI_Test(&l->out[i].request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            done = 0; // the rank is gone, which message_queue.c detects; MPI keeps the bytes
        }
        if (done) {
            l->unsent[l->out[i].to] -= l->out[i].size;
            t->release(l->out[i].bytes);
        } else {
            l->out[n++] = l->out[i];
        }
    }
    l->n_out = n;
}

static bool begin_send(struct mpi_transport *t, int to, void *bytes, size_t size) {
    struct link *l = t->context;
    t->why = size > (size_t) 1 << 30 ? "it is too large for MPI" : NULL;
    if (t->why != NULL || !list_grow(t, (void **) &l->out, &l->n_out_cap, l->n_out, sizeof l->out[0])) {
        return false;
    }
    struct sending *s = &l->out[l->n_out];
    *s = (struct sending){.bytes = bytes, .size = size, .to = to};
    t->why = error_text(l, MPI_Isend(bytes, (int) size, MPI_BYTE, to, TAG, MPI_COMM_WORLD, &s->request));
    if (t->why != NULL) {
        return false;
    }
    l->n_out++;
    l->unsent[to] += size;
    sent_reap(t);
    return true;
}

static bool link_send(struct mpi_transport *t, int to, void *bytes, size_t size) {
    const struct sigpipe_state h = sigpipe_block();
    const bool ok = begin_send(t, to, bytes, size);
    sigpipe_unblock(&h);
    return ok;
}

static size_t link_unsent(struct mpi_transport *t, int to) {
    const struct sigpipe_state h = sigpipe_block();
    sent_reap(t);
    sigpipe_unblock(&h);
    return ((struct link *) t->context)->unsent[to];
}

// Begins to receive the next message of a rank. from may be MPI_ANY_SOURCE. Returns false if there is no message.
static bool receive_begin(struct mpi_transport *t, int from) {
    struct link *l = t->context;
    int found = 0, size = 0;
    MPI_Message message;
    MPI_Status status;
    if (!list_grow(t, (void **) &l->in, &l->n_in_cap, l->n_in, sizeof l->in[0]) ||
        MPI_Improbe(from, TAG, MPI_COMM_WORLD, &found, &message, &status) != MPI_SUCCESS || !found) {
        return false;
    }
    MPI_Get_count(&status, MPI_BYTE, &size);
    struct receiving *r = &l->in[l->n_in];
    *r = (struct receiving){.message = {.from = status.MPI_SOURCE, .size = size > 0 ? (size_t) size : 0}};
    r->message.bytes = t->alloc(r->message.size > 0 ? r->message.size : 1);
    // If memory runs out, the message is passed on without bytes.
    // A smaller buffer is not used, because Open MPI 4.1 would then write out of bounds over TCP.
    r->error = r->message.bytes != NULL ? MPI_Imrecv(r->message.bytes, size, MPI_BYTE, &message, &r->request) : MPI_SUCCESS;
    if (r->message.bytes == NULL || r->error != MPI_SUCCESS) {
        t->release(r->message.bytes);
        r->message.bytes = NULL;
        r->request = MPI_REQUEST_NULL; // MPI_Test reports it as complete
    }
    l->n_in++;
    return true;
}

static bool is_receiving(const struct link *l, int from) {
    size_t i = 0;
    while (i < l->n_in && l->in[i].message.from != from) {
        i++;
    }
    return i < l->n_in;
}

// Begins to receive up to RECEIVING_MAX messages, and in any case one message of each rank, so that a rank that stops in the
// middle of a message does not block the others.
static void receives_begin(struct mpi_transport *t) {
    struct link *l = t->context;
    while (l->n_in < RECEIVING_MAX) {
        if (!receive_begin(t, MPI_ANY_SOURCE)) {
            return;
        }
    }
    for (int i = 0; i < t->size; i++) {
        if (!is_receiving(l, i)) {
            receive_begin(t, i);
        }
    }
}

static bool message_next(struct mpi_transport *t, struct mpi_message *out) {
    struct link *l = t->context;
    receives_begin(t);
    for (size_t i = 0; i < l->n_in; i++) {
        bool is_first = true;
        int done = 0;
        for (size_t j = 0; is_first && j < i; j++) {
            is_first = l->in[j].message.from != l->in[i].message.from;
        }
        const int error = is_first ? MPI_Test(&l->in[i].request, &done, MPI_STATUS_IGNORE) : MPI_SUCCESS;
        if (error != MPI_SUCCESS) {
            l->in[i].error = error;
            l->in[i].message.bytes = NULL; // MPI keeps the bytes
        } else if (!done) {
            continue;
        }
        *out = l->in[i].message;
        t->why = error_text(l, l->in[i].error);
        l->n_in--;
        memmove(&l->in[i], &l->in[i + 1], (l->n_in - i) * sizeof l->in[0]);
        return true;
    }
    return false;
}

static bool link_receive(struct mpi_transport *t, struct mpi_message *out) {
    const struct sigpipe_state h = sigpipe_block();
    const bool found = message_next(t, out);
    sigpipe_unblock(&h);
    return found;
}

// Completes the messages in both directions. Returns false after SETTLE_MS.
static bool link_settle(struct mpi_transport *t) {
    const struct timespec pause = {.tv_nsec = 1000000};
    struct link *l = t->context;
    for (int i = 0; i < SETTLE_MS; i++) {
        struct mpi_message message;
        while (link_receive(t, &message)) {
            t->release(message.bytes);
        }
        link_unsent(t, t->rank);
        if (l->n_out == 0 && l->n_in == 0) {
            return true;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

// in_order: all ranks close, so MPI_Finalize may be called.
static void link_close(struct mpi_transport *t, bool in_order) {
    struct link *l = t->context;
    if (!in_order || !link_settle(t)) {
        return; // MPI may still write to this memory
    }
    if (l->is_ours) {
        MPI_Finalize();
    }
    t->release(l->out);
    t->release(l->in);
    t->release(l->unsent);
    t->release(l);
}

__attribute__((visibility("default"))) bool berth_mpi_link_open(struct mpi_transport *t, char *why, size_t why_size);

bool berth_mpi_link_open(struct mpi_transport *t, char *why, size_t why_size) {
    int is_up = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&is_up);
    struct sigaction before[N_CRASHES];
    const struct sigpipe_state h = sigpipe_block(); // threads that MPI starts inherit the mask
    crashes_get(before);
    const bool started = is_up || MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) == MPI_SUCCESS;
    crashes_set(before);
    sigpipe_unblock(&h);
    if (!started) {
        snprintf(why, why_size, "MPI_Init_thread failed");
        return false;
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED) {
        snprintf(why, why_size, "MPI was initialized with thread level %d; level %d is required", level, MPI_THREAD_SERIALIZED);
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t->size);
    struct link *l = t->alloc(sizeof *l);
    size_t *unsent = t->alloc((size_t) t->size * sizeof *unsent);
    if (l == NULL || unsent == NULL) {
        t->release(l);
        t->release(unsent);
        snprintf(why, why_size, "out of memory");
        return false;
    }
    memset(unsent, 0, (size_t) t->size * sizeof *unsent);
    *l = (struct link){.unsent = unsent, .is_ours = !is_up};
    t->context = l;
    t->send = link_send;
    t->unsent = link_unsent;
    t->receive = link_receive;
    t->close = link_close;
    return true;
}

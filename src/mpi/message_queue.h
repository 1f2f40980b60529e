// SPDX-License-Identifier: MIT
// queue.h: messages with a head, who is still there, and waiting that ends: a rank that has been silent for too long, or whose
// process is gone, is lost, and whoever waits for it is told so. Any thread of a rank.
//
//     heard from within timeout --silence, end of process, broken message, no step done--> lost, for good, with a reason
//
// The lock is never held while a thread is in the transport, one at a time: MPI may not come back. The others see that, and lose
// all ranks after timeout; the one within can only be ended with its process (world.c).
//
// A worker's signs of life say how many steps it has done: ops that were computed, looks for mail. One that lives and does none,
// in an op that never ends, is lost as well.
#pragma once

#include "base/shim/shim.h"
#include "berth-mpi.h"
#include "mpi/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MPI_SECOND ((int64_t) 1000000000)

// Nanoseconds of a clock that only goes on.
static inline int64_t mpi_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * MPI_SECOND + now.tv_nsec;
}

#define MPI_WIRE_VERSION 4
#define MPI_PIECE ((size_t) 256 << 10)       // bytes of data in a message at most
#define MPI_MESSAGE_MAX ((size_t) 256 << 20) // of a message: a graph may be long
#define MPI_KEPT_MAX ((size_t) 256 << 20)    // received that nobody has asked for yet, where somebody waits for what is behind

enum mpi_kind {
    MPI_HELLO = 1, // who I am: world.c
    MPI_ALIVE,     // a: steps done, b: whether they are counted
    MPI_BYE,       // nothing comes after this
    MPI_ANSWER,    // to the command with that id: worker to program
    MPI_PART,      // of a sum or broadcast: sum.c
    MPI_TENSOR,    // a piece of a copy from worker to worker; a: bytes that come behind it
    MPI_COMMAND,   // this and all above: program to worker, wire.h
};

struct mpi_head {
    uint32_t kind;
    uint32_t id;
    uint64_t a, b, c; // by kind
};

// What was received: bytes begins with the head.
struct mpi_queue_item {
    struct mpi_queue_item *next;
    struct mpi_message message;
};

struct mpi_peer {
    char host[64];
    int pid;        // 0: not on this machine, or not known
    bool has_hello; // it may be told that we are alive
    bool is_lost;
    bool has_left;        // it said so
    bool has_gap;         // one of its messages could not be kept: it is lost, and nothing behind that is what is asked for
    char why[192];        // it is lost
    int64_t heard, asked; // when last heard of; when its process was last looked at
    int64_t told;         // when it last had a sign of life from here
    uint64_t n_steps;     // that it had done when it last told so
    int64_t moved, stuck; // when it told of those first; that, if it told of no more since, else 0
};

struct mpi_queue {
    struct mpi_transport t;
    pthread_mutex_t lock;
    struct mpi_queue_item *first, **end;
    size_t kept_size;       // bytes of those
    struct mpi_peer *peers; // [t.size]
    int64_t timeout, stall;
    atomic_uint_fast64_t n_steps; // done by this rank
    bool counts_steps;            // it is a worker: whoever does them says so, waiting does by itself
    int64_t polled;               // when
    int64_t emptied;              // when there was nothing left to take in; what we leave there is nobody's silence
    bool has_parted;              // they have had the last word; what comes is thrown away, but for theirs
    bool is_closed;               // there is no transport any more, and all others are lost
    bool is_inside;               // a thread is in the transport, without the lock
    int n_outside;                // threads that wait for it
    pthread_cond_t came_out;      // it did
    uint64_t n_entered, n_noted;  // times that one went in; those when it was last looked at
    int64_t noted, inside_for;    // when that was; how long the one within has been seen there
    struct berth_mpi_traffic traffic;
};

// Nanoseconds of silence after which a rank is lost: BERTH_MPI_TIMEOUT, in seconds, or 10 of them.
int64_t mpi_queue_timeout(void);
// The transport becomes the mail's.
bool mpi_queue_init(struct mpi_queue *m, const struct mpi_transport *t) BERTH_MUST_USE;
// The transport's end, all: in order, since nobody was lost. Nothing is sent or received any more; who is lost can still be
// asked.
void mpi_queue_close(struct mpi_queue *m, bool all);
void mpi_queue_fini(struct mpi_queue *m, bool all); // closes, and frees

static inline const struct mpi_head *mpi_head_of(const struct mpi_queue_item *item) {
    return item->message.bytes;
}
static inline const void *mpi_body_of(const struct mpi_queue_item *item, size_t *size) {
    *size = item->message.size - sizeof(struct mpi_head);
    return (const char *) item->message.bytes + sizeof(struct mpi_head);
}
void mpi_item_free(struct mpi_queue_item *item);

// Copies the bytes. Waits while too much is on its way to that rank. FAILED: it is lost; ALLOC_FAILED. Both with an error.
enum ggml_status mpi_queue_send(
    struct mpi_queue *m, int to, const struct mpi_head *head, const void *body, size_t body_size) BERTH_MUST_USE;
// The first of that rank, kind and id, once it is here. NULL: the rank is lost, with an error.
struct mpi_queue_item *mpi_queue_take(struct mpi_queue *m, int from, uint32_t kind, uint32_t id) BERTH_MUST_USE;
// The next command of that rank; NULL, without an error: it is lost or has left.
struct mpi_queue_item *mpi_queue_command(struct mpi_queue *m, int from) BERTH_MUST_USE;
// The first word of that rank; NULL, without an error: it is lost.
struct mpi_queue_item *mpi_queue_hello(struct mpi_queue *m, int from) BERTH_MUST_USE;
// What a thread of its own does now and then: takes in what has come, sends signs of life.
void mpi_queue_progress(struct mpi_queue *m);
// Tells all that live that nothing comes after this.
void mpi_queue_bye(struct mpi_queue *m);
bool mpi_queue_is_lost(struct mpi_queue *m, int rank);
bool mpi_queue_has_left(struct mpi_queue *m, int rank); // it said so
int64_t mpi_queue_inside_for(struct mpi_queue *m);      // nanoseconds that a thread has not come back from the transport
bool mpi_pid_is_gone(int pid);                          // of a process of this machine
// For good; the first reason stays.
void mpi_queue_lose(struct mpi_queue *m, int rank, const char *fmt, ...) BERTH_PRINTF(3, 4);
// Says that it is lost, and why, as the last error. Returns GGML_STATUS_FAILED.
enum ggml_status mpi_queue_report_lost(struct mpi_queue *m, int rank, const char *what);
// Why, or "".
void mpi_queue_why(struct mpi_queue *m, int rank, char *why, size_t size);
void mpi_queue_traffic(struct mpi_queue *m, struct berth_mpi_traffic *out);

// ---- groups of ranks (sum.c): sums, broadcasts, barriers. Each member calls the same, in the same order. ----

struct mpi_group {
    struct mpi_queue *queue;
    uint32_t number; // the same at all members, another for each group
    int n, me;       // members, and which of them this rank is
    int *ranks;      // [n]
    uint64_t n_done; // calls so far
};

bool mpi_group_sum(struct mpi_group *g, float *data, size_t n) BERTH_MUST_USE;
bool mpi_group_broadcast(struct mpi_group *g, void *data, size_t size, int root) BERTH_MUST_USE;
// In place of a call that this member cannot make: the others' fail, too.
void mpi_group_fail(struct mpi_group *g);
bool mpi_group_barrier(struct mpi_group *g) BERTH_MUST_USE;

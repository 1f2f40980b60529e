// SPDX-License-Identifier: MIT
// message_queue.h: messages between ranks, detection of lost ranks, and waits that always end.
// Any thread of a rank may use the queue.
// A rank is lost if it is silent for too long, its process has ended, it sent a broken message, or it is stuck.
// A lost rank stays lost, with a reason. Threads that wait for a lost rank get an error.
//
// Only one thread is in the transport at a time. This thread does not hold the lock of the queue, because an MPI call may never
// return. If the call does not return within the timeout, all ranks are lost. The blocked thread ends with its process (world.c).
//
// A worker counts its steps: computed ops, and polls while it waits. Its keep-alive messages contain this number. If the number
// does not change for BERTH_MPI_STALL seconds, the worker is stuck and counts as lost.
#pragma once

#include "base/shim/shim.h"
#include "berth-mpi.h"
#include "mpi/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MPI_SECOND ((int64_t) 1000000000)

static inline int64_t mpi_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * MPI_SECOND + now.tv_nsec;
}

#define MPI_WIRE_VERSION 4
#define MPI_PIECE ((size_t) 256 << 10)       // largest amount of data in one message, bytes
#define MPI_MESSAGE_MAX ((size_t) 256 << 20) // largest message, bytes; a graph may be long
// A thread that waits for a message also receives messages that no thread has requested yet. It stops receiving while the queue
// holds this number of bytes. If the queue stays full for too long, the rank that the thread waits for is lost.
#define MPI_KEPT_MAX ((size_t) 256 << 20)

enum mpi_kind {
    MPI_HELLO = 1, // first message of a rank (world.c)
    MPI_ALIVE,     // keep-alive message; a: number of steps done; b: 1 if the sender counts steps
    MPI_BYE,       // the last message of a rank
    MPI_ANSWER,    // worker to program: answer to the command with the same id
    MPI_PART,      // data of a sum, broadcast or barrier (sum.c)
    MPI_TENSOR,    // piece of a copy between workers; a: number of bytes in later pieces
    MPI_COMMAND,   // this and all larger values: program to worker (wire.h)
};

struct mpi_head {
    uint32_t kind;
    uint32_t id;
    uint64_t a, b, c; // the meaning depends on kind: see above and wire.h
};

struct mpi_queue_item {
    struct mpi_queue_item *next;
    struct mpi_message message;
};

struct mpi_peer {
    char host[64];
    int pid;        // 0: not on this machine, or unknown
    bool has_hello; // its hello message has arrived, so this rank sends it keep-alive messages
    bool is_lost;
    bool has_left;         // it has sent MPI_BYE
    bool has_gap;          // one of its messages could not be received, so its later messages are dropped
    char why[192];         // reason why it is lost
    int64_t last_heard;    // time of its last message
    int64_t pid_checked;   // time of the last check whether its process exists
    int64_t alive_sent;    // time of the last keep-alive message to it
    uint64_t n_steps;      // number of steps in its last keep-alive message
    int64_t steps_changed; // time when n_steps last changed; 0: never
    int64_t stuck_since;   // 0: n_steps changed in its last keep-alive message. Otherwise equal to steps_changed
};

struct mpi_queue {
    struct mpi_transport transport;
    pthread_mutex_t lock;
    struct mpi_queue_item *first, **end;
    size_t kept_size;              // bytes of the queued messages
    struct mpi_peer *peers;        // [transport.size]
    int64_t timeout, stall;        // nanoseconds after which a rank is lost: without a message; without a new step
    atomic_uint_fast64_t n_steps;  // number of steps that this rank has done
    bool counts_steps;             // worker: keep-alive messages report n_steps
    int64_t polled;                // time of the last poll
    int64_t drained;               // last time when the transport had no unread messages
    bool has_sent_bye;             // this rank has sent MPI_BYE, so it drops all messages except MPI_BYE
    bool is_closed;                // the transport is closed, and all other ranks are lost
    bool is_in_transport;          // a thread is in the transport, without the lock
    int n_waiting;                 // threads that wait for the transport
    pthread_cond_t transport_left; // signalled when the thread leaves the transport
    uint64_t n_entered;            // how often a thread has entered the transport
    uint64_t n_entered_checked;    // value of n_entered at the last check of the transport
    int64_t checked;               // time of the last check of the transport
    int64_t inside_ns;             // time that the current thread has spent in the transport
    struct berth_mpi_traffic traffic;
};

// Returns the nanoseconds of silence after which a rank is lost: BERTH_MPI_TIMEOUT in seconds, default 10.
int64_t mpi_queue_timeout(void);
// Takes ownership of the transport.
bool mpi_queue_init(struct mpi_queue *m, const struct mpi_transport *t) BERTH_MUST_USE;
// Nothing is sent or received afterwards. Functions that ask whether a rank is lost still work.
// in_order: all ranks have left and none was lost, so MPI can be finalized.
void mpi_queue_close(struct mpi_queue *m, bool in_order);
void mpi_queue_fini(struct mpi_queue *m, bool in_order); // closes and frees

static inline const struct mpi_head *mpi_head_of(const struct mpi_queue_item *item) {
    return item->message.bytes;
}
static inline const void *mpi_body_of(const struct mpi_queue_item *item, size_t *size) {
    *size = item->message.size - sizeof(struct mpi_head);
    return (const char *) item->message.bytes + sizeof(struct mpi_head);
}
void mpi_item_free(struct mpi_queue_item *item);

// Sends a message; head and body are copied. Waits while too many bytes to the rank are unsent. Returns FAILED with an error if
// the rank is lost, and ALLOC_FAILED with an error if out of memory.
enum ggml_status mpi_queue_send(
    struct mpi_queue *m, int to, const struct mpi_head *head, const void *body, size_t body_size) BERTH_MUST_USE;
// Waits for a message of this kind and id. If the rank is lost, returns NULL with an error.
struct mpi_queue_item *mpi_queue_take(struct mpi_queue *m, int from, uint32_t kind, uint32_t id) BERTH_MUST_USE;
// Waits for a command. If the rank is lost or has left, returns NULL without an error.
struct mpi_queue_item *mpi_queue_command(struct mpi_queue *m, int from) BERTH_MUST_USE;
// Waits for the hello message. If the rank is lost, returns NULL without an error.
struct mpi_queue_item *mpi_queue_hello(struct mpi_queue *m, int from) BERTH_MUST_USE;
// Receives messages and sends keep-alive messages. A separate thread calls this function periodically.
void mpi_queue_progress(struct mpi_queue *m);
void mpi_queue_bye(struct mpi_queue *m);
bool mpi_queue_is_lost(struct mpi_queue *m, int rank);
bool mpi_queue_has_left(struct mpi_queue *m, int rank); // it has sent MPI_BYE
int64_t mpi_queue_inside_ns(struct mpi_queue *m);       // for how many nanoseconds a thread has been in the transport
bool mpi_pid_is_gone(int pid);                          // for a process of this machine
// Marks the rank as lost. Only the first reason is kept.
void mpi_queue_lose(struct mpi_queue *m, int rank, const char *fmt, ...) BERTH_PRINTF(3, 4);
// Sets the last error to the reason. `what`: why the rank was needed. Returns GGML_STATUS_FAILED.
enum ggml_status mpi_queue_report_lost(struct mpi_queue *m, int rank, const char *what);
// Writes the reason why the rank is lost to `why`; "" if it is not lost.
void mpi_queue_why(struct mpi_queue *m, int rank, char *why, size_t size);
void mpi_queue_traffic(struct mpi_queue *m, struct berth_mpi_traffic *out);

// ---- groups of ranks (sum.c): sums, broadcasts, barriers. All members make the same calls in the same order. ----

struct mpi_group {
    struct mpi_queue *queue;
    uint32_t number; // the same at all members, different for each group
    int n, me;       // number of members; index of this rank among them
    int *ranks;      // [n]
    uint64_t n_done; // number of calls so far
};

bool mpi_group_sum(struct mpi_group *g, float *data, size_t n) BERTH_MUST_USE;
bool mpi_group_broadcast(struct mpi_group *g, void *data, size_t size, int root) BERTH_MUST_USE;
// Counts as this member's next call. The call of the other members then fails instead of waiting for this member.
void mpi_group_fail(struct mpi_group *g);
bool mpi_group_barrier(struct mpi_group *g) BERTH_MUST_USE;

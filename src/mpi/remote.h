// SPDX-License-Identifier: MIT
// remote.h: the program's side: ranks that serve, and their devices as ggml's.
//
// Calls that return nothing and fail are kept at their rank: the next compute or synchronize of one of its backends tells.
#pragma once

#include "mpi/wire.h"
#include "mpi/world.h"

#include <string.h>

// Names for what is at another rank, whose tables are as long as the largest: numbers that are given back are taken again, the
// smallest first. As many as there is memory for.
struct mpi_id_pool {
    bool *taken; // [n]
    size_t n;
};

// False: out of memory.
static inline bool mpi_id_pool_take(struct mpi_id_pool *s, uint32_t *number) {
    size_t i = 0;
    while (i < s->n && s->taken[i]) {
        i++;
    }
    if (i == s->n) {
        const size_t n = 2 * s->n + 16;
        bool *grown = shim_calloc(n, sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        if (s->n > 0) {
            memcpy(grown, s->taken, s->n * sizeof *grown);
        }
        shim_free(s->taken);
        s->taken = grown;
        s->n = n;
    }
    s->taken[i] = true;
    *number = (uint32_t) i;
    return true;
}

static inline void mpi_id_pool_give_back(struct mpi_id_pool *s, uint32_t number) {
    s->taken[number] = false;
}

struct mpi_cached_graph {
    uint64_t hash, last_run;
    struct mpi_wire_tensor *tensors; // as they were sent; NULL: the number is free
    size_t n;
    uint32_t device;
};

struct mpi_graph_cache {
    struct mpi_cached_graph *graphs; // [n] by number
    size_t n, size;                  // bytes of their tensors
    size_t next;                     // behind the one that was run last
    uint64_t n_runs;
};

#define MPI_FAILURE_SIZE 256 // bytes of a text

struct mpi_remote {
    struct mpi_queue *queue;
    int rank;
    _Atomic uint64_t n_sent; // that a sync waits for, and ...
    _Atomic uint64_t n_done; // ... so many of them are known to be done
    pthread_mutex_t lock;    // of what follows
    uint32_t n_tickets;
    struct mpi_id_pool buffers;
    struct mpi_graph_cache graph_cache;
    struct mpi_wire_graph writing;
    char failure[MPI_FAILURE_SIZE]; // kept; "": none
};

struct mpi_supports_op_cache; // answers to questions about ops, device.c

struct mpi_device {
    struct ggml_backend_device ggml;
    struct ggml_backend_buffer_type buft;
    struct mpi_remote *remote;
    uint32_t index; // at its rank
    struct mpi_device_info info;
    char name[96], description[256];
    pthread_mutex_t ask_lock;            // of what follows: one question about ops at a time
    struct mpi_supports_op_cache *asked; // a hash table, at most half full
    size_t n_asked, n_asked_cap;
    struct mpi_wire_graph asking;
};

// ---- ranks (remote.c) ----

uint32_t mpi_remote_ticket(struct mpi_remote *r);
enum ggml_status mpi_remote_send(struct mpi_remote *r, const struct mpi_head *head, const void *body, size_t size) BERTH_MUST_USE;
// Sends, and takes the answer with the ticket. NULL with an error.
struct mpi_queue_item *mpi_remote_ask(
    struct mpi_remote *r, uint32_t ticket, const struct mpi_head *head, const void *body, size_t size) BERTH_MUST_USE;
// Takes an answer of that many bytes, which comes in pieces; data NULL: nobody wants it. What does not come is zeros, and kept.
void mpi_remote_take(struct mpi_remote *r, uint32_t ticket, void *data, size_t size);
// The last `left` of `size` bytes, at data, become zeros: a failure that is kept.
void mpi_remote_unread(struct mpi_remote *r, void *data, size_t left, size_t size);
// Keeps the last failure's text for the next call that can tell; the first stays.
void mpi_remote_defer_error(struct mpi_remote *r, const char *fmt, ...) BERTH_PRINTF(2, 3);
// It, and forgets it; "": none.
void mpi_remote_failure(struct mpi_remote *r, char text[MPI_FAILURE_SIZE]);
// Tells and forgets it: FAILED; SUCCESS if there is none.
enum ggml_status mpi_remote_report(struct mpi_remote *r) BERTH_MUST_USE;
// All that was sent has been done: what failed there is kept.
void mpi_remote_sync(struct mpi_remote *r);
bool mpi_remote_init(struct mpi_remote *r, struct mpi_queue *queue, int rank);
void mpi_remote_fini(struct mpi_remote *r);

// ---- graphs that a rank knows (remote.c), under its lock ----

// The number of the graph in r->writing at that rank; it is sent if it is new.
enum ggml_status mpi_graph_cache_number(struct mpi_remote *r, uint32_t device, uint32_t *number) BERTH_MUST_USE;
void mpi_graph_cache_forget(struct mpi_graph_cache *graph_cache);
void mpi_graph_cache_fini(struct mpi_graph_cache *graph_cache);

// ---- devices (device.c), buffers (buffer.c), backends (backend.c), sums (comm.c) ----

void mpi_device_init(
    struct mpi_device *d, struct mpi_remote *r, const struct mpi_device_info *info, uint32_t index, const char *host);
void mpi_device_fini(struct mpi_device *d);
// Whether the device takes the op, and how many bytes its result needs there.
bool mpi_device_ask(struct mpi_device *d, const struct ggml_tensor *op, size_t *size);
ggml_backend_event_t mpi_event_new(ggml_backend_dev_t dev);
void mpi_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event);
void mpi_event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event);

void mpi_buft_init(struct mpi_device *d);
// Memory of another rank; dev NULL: it is none.
struct mpi_place {
    struct mpi_device *dev;
    uint32_t buffer;
    uint64_t offset;
};
// That of a tensor, so many bytes behind its first.
struct mpi_place mpi_tensor_place(const struct ggml_tensor *t, size_t offset);
void mpi_buffer_write(const struct mpi_place *to, const void *bytes, size_t size, bool is_weight);
// Bytes that could not be had are 0.
void mpi_buffer_read(const struct mpi_place *from, void *bytes, size_t size);
// Between two tensors of other ranks, of one size, without passing through here. False: not possible.
bool mpi_buffer_copy(const struct ggml_tensor *src, struct ggml_tensor *dst);

ggml_backend_t mpi_backend_new(struct mpi_device *d);
bool mpi_backend_is(ggml_backend_t backend);

void *mpi_comm_init(ggml_backend_t *backends, size_t n);
void mpi_comm_free(void *comm);
bool mpi_comm_allreduce(void *comm, struct ggml_tensor **tensors);
// Its two halves: what the other ranks are asked for, false: they cannot, and nothing was; and this rank's part, which they wait
// for.
bool mpi_comm_ask(void *comm, struct ggml_tensor **tensors);
bool mpi_comm_join(void *comm, struct ggml_tensor **tensors);

// ---- the registry entry "MPI" (reg.c) ----

extern struct ggml_backend_reg mpi_reg;

// The devices that workers serve to this rank, and the ranks they are of (one for each rank of the world). False with an error.
bool mpi_devices_list(
    struct mpi_world *w, struct mpi_remote **remotes, struct mpi_device **devices, size_t *n_devices) BERTH_MUST_USE;

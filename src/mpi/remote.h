// SPDX-License-Identifier: MIT
// remote.h: the program's side: ranks that serve devices, and these devices as ggml devices.
// If a function that returns void fails, the failure is stored with its rank. The next compute or synchronize reports it.
#pragma once

#include "mpi/wire.h"
#include "mpi/world.h"

#include <string.h>

// Numbers that name objects at another rank, such as buffers. The other rank has a table that is as long as the largest number,
// so the smallest free number is used.
struct mpi_id_pool {
    bool *taken; // [n] number is in use
    size_t n;
};

// Returns false if out of memory.
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
    struct mpi_wire_tensor *tensors; // [n] the tensors as sent; NULL: the number is free
    size_t n;
    uint32_t device;
};

struct mpi_graph_cache {
    struct mpi_cached_graph *graphs; // [n] by number
    size_t n, size;                  // length of graphs; bytes of the tensors of all graphs
    size_t next;                     // index after the graph that ran last
    uint64_t n_runs;
};

#define MPI_FAILURE_SIZE 256 // bytes of the text

struct mpi_remote {
    struct mpi_queue *queue;
    int rank;
    _Atomic uint64_t n_sent; // number of sent commands for which a sync must wait
    _Atomic uint64_t n_done; // number of these commands that are known to be done
    pthread_mutex_t lock;    // protects the fields below
    uint32_t n_tickets;      // last ticket (id of a request and its answer)
    struct mpi_id_pool buffers;
    struct mpi_graph_cache graph_cache;
    struct mpi_wire_graph writing;  // graph that is being sent
    char failure[MPI_FAILURE_SIZE]; // stored failure; "": none
};

struct mpi_op_answer; // an answer to a supports_op query (device.c)

struct mpi_device {
    struct ggml_backend_device ggml;
    struct ggml_backend_buffer_type buft;
    struct mpi_remote *remote;
    uint32_t index; // index of the device at its rank
    struct mpi_device_info info;
    char name[96], description[256];
    pthread_mutex_t ask_lock;      // protects the fields below; held during a query
    struct mpi_op_answer *answers; // hash table of earlier answers, at most half full
    size_t n_answers, n_answers_cap;
    struct mpi_wire_graph query; // op that is being queried
};

// ---- ranks (remote.c) ----

uint32_t mpi_remote_ticket(struct mpi_remote *r);
enum ggml_status mpi_remote_send(struct mpi_remote *r, const struct mpi_head *head, const void *body, size_t size) BERTH_MUST_USE;
// Sends a request and waits for the answer with this ticket. On failure returns NULL with an error.
struct mpi_queue_item *mpi_remote_ask(
    struct mpi_remote *r, uint32_t ticket, const struct mpi_head *head, const void *body, size_t size) BERTH_MUST_USE;
// Waits for an answer of `size` bytes, which comes in pieces. data NULL: the bytes are dropped. Missing bytes become 0, and the
// failure is stored.
void mpi_remote_take(struct mpi_remote *r, uint32_t ticket, void *data, size_t size);
// The last `left` of `size` bytes, at data, did not arrive: sets them to 0 and stores the failure.
void mpi_remote_unread(struct mpi_remote *r, void *data, size_t left, size_t size);
// Stores a failure. Only the first failure is stored.
void mpi_remote_defer_error(struct mpi_remote *r, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Moves the stored failure to text; "" if there was none.
void mpi_remote_failure(struct mpi_remote *r, char text[MPI_FAILURE_SIZE]);
// Reports the stored failure, or that the rank is lost, as the last error. Returns SUCCESS if there is nothing to report. The
// stored failure is removed.
enum ggml_status mpi_remote_report(struct mpi_remote *r) BERTH_MUST_USE;
// Waits until the rank has executed all commands that were sent so far. A failure at the rank is stored.
void mpi_remote_sync(struct mpi_remote *r);
bool mpi_remote_init(struct mpi_remote *r, struct mpi_queue *queue, int rank);
void mpi_remote_fini(struct mpi_remote *r);

// ---- cache of sent graphs (remote.c); the caller holds the rank's lock ----

// Returns in *number the number that the graph in r->writing has at the rank. If the rank does not have the graph, it is sent
// first.
enum ggml_status mpi_graph_cache_number(struct mpi_remote *r, uint32_t device, uint32_t *number) BERTH_MUST_USE;
void mpi_graph_cache_forget(struct mpi_graph_cache *graph_cache);
void mpi_graph_cache_fini(struct mpi_graph_cache *graph_cache);

// ---- devices (device.c), buffers (buffer.c), backends (backend.c), sums (comm.c) ----

void mpi_device_init(
    struct mpi_device *d, struct mpi_remote *r, const struct mpi_device_info *info, uint32_t index, const char *host);
void mpi_device_fini(struct mpi_device *d);
// Returns true if the device supports the op. *size receives the bytes that the device allocates for the result. The answer comes
// from the cache or from the worker.
bool mpi_device_ask(struct mpi_device *d, const struct ggml_tensor *op, size_t *size);
ggml_backend_event_t mpi_event_new(ggml_backend_dev_t dev);
void mpi_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event);
void mpi_event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event);

void mpi_buft_init(struct mpi_device *d);
// A position in the memory of another rank. dev NULL: the memory does not belong to an MPI device.
struct mpi_place {
    struct mpi_device *dev;
    uint32_t buffer;
    uint64_t offset;
};
struct mpi_place mpi_tensor_place(const struct ggml_tensor *t, size_t offset);
void mpi_buffer_write(const struct mpi_place *to, const void *bytes, size_t size, bool is_weight);
// Bytes that cannot be read become 0.
void mpi_buffer_read(const struct mpi_place *from, void *bytes, size_t size);
// Requests a copy within or between workers; the bytes do not pass through this rank. Returns false if the copy is not possible.
bool mpi_buffer_copy(const struct ggml_tensor *src, struct ggml_tensor *dst);

ggml_backend_t mpi_backend_new(struct mpi_device *d);
bool mpi_backend_is(ggml_backend_t backend);

void *mpi_comm_init(ggml_backend_t *backends, size_t n);
void mpi_comm_free(void *comm);
bool mpi_comm_allreduce(void *comm, struct ggml_tensor **tensors);
// mpi_comm_allreduce in two calls. mpi_comm_ask sends the request to the other ranks; if the sum is not possible, it sends
// nothing and returns false. mpi_comm_join adds this rank's part, for which the other ranks wait.
bool mpi_comm_ask(void *comm, struct ggml_tensor **tensors);
bool mpi_comm_join(void *comm, struct ggml_tensor **tensors);

// ---- the registry entry "MPI" (reg.c) ----

extern struct ggml_backend_reg mpi_reg;

// Lists the devices of all workers. *remotes gets one entry per rank of the world. On failure returns false with an error.
bool mpi_devices_list(
    struct mpi_world *w, struct mpi_remote **remotes, struct mpi_device **devices, size_t *n_devices) BERTH_MUST_USE;

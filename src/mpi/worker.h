// SPDX-License-Identifier: MIT
// worker.h: a rank that serves its devices. One thread executes the commands in the order of arrival.
// Commands are not trusted: only memory inside the program's buffers is accessed.
#pragma once

#include "mpi/wire.h"
#include "mpi/world.h"

struct mpi_worker_device {
    ggml_backend_dev_t dev;
    ggml_backend_t backend;
    size_t used, limit; // used: bytes of all buffers on the device; limit: largest value of used
};

struct mpi_worker_graph {
    struct ggml_context *ctx; // NULL: there is no graph with this number
    struct ggml_cgraph *graph;
    uint32_t device;
};

struct mpi_worker {
    struct mpi_queue *queue;
    int program_rank; // the rank that is served
    struct mpi_worker_device *devices;
    size_t n_devices;
    struct mpi_wire_buffer *buffers; // by number
    struct mpi_worker_graph *graphs;
    struct mpi_group *groups; // ranks NULL: there is no group with this number
    size_t n_buffers, n_graphs, n_groups;
    char failure[256]; // first failure of a command without an answer; "": none
    void *piece;       // MPI_PIECE bytes for transfers
    const char *cache; // folder or NULL
    struct {           // contents that MPI_SET_CACHED did not find in the cache, and that the program is therefore sending
        uint8_t hash[16];
        uint32_t buffer;
        uint64_t offset, size;
        bool is_open; // the program is still sending these contents
    } cache_miss;
};

// On failure returns false with an error.
bool mpi_worker_init(
    struct mpi_worker *w, struct mpi_queue *queue, int program_rank, const struct berth_mpi_serve_params *params) BERTH_MUST_USE;
void mpi_worker_fini(struct mpi_worker *w);
// Executes a command. The message may be invalid.
void mpi_worker_do(struct mpi_worker *w, const struct mpi_queue_item *item);
// Stores a failure, which the answer to the next MPI_SYNC reports. Only the first failure is stored.
void mpi_worker_fail(struct mpi_worker *w, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- data (worker_data.c) ----

// Returns the buffer with this number. If the range is not inside the buffer, calls mpi_worker_fail and returns NULL.
ggml_backend_buffer_t mpi_worker_bytes(struct mpi_worker *w, uint32_t buffer, uint64_t offset, uint64_t size);
void mpi_worker_write(ggml_backend_buffer_t buffer, uint64_t offset, const void *bytes, size_t size);
void mpi_worker_read(ggml_backend_buffer_t buffer, uint64_t offset, void *bytes, size_t size);
void mpi_worker_set(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_set_cached(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_memset(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_get(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_copy(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_copy_out(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_copy_in(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_signal(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_await(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);
void mpi_worker_sum(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size);

// ---- cache of weights (content_cache.c) ----

// Reads the cached contents. Returns true only if the file has this size and hash.
bool mpi_cache_read(const char *folder, const uint8_t hash[16], void *bytes, size_t size);
// Writes the file atomically. A full disk is not an error.
void mpi_cache_write(const char *folder, const uint8_t hash[16], const void *bytes, size_t size);

// ---- functions of `berth worker` (worker.c) ----

// Returns NULL if out of memory.
struct mpi_device_info *mpi_serve_infos(const struct berth_mpi_serve_params *params);
// Serves until the program leaves or is lost. On failure returns false with an error.
bool mpi_serve_world(struct mpi_world *world, const struct berth_mpi_serve_params *params);
bool mpi_serve(const struct berth_mpi_serve_params *params);

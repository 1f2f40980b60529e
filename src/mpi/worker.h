// SPDX-License-Identifier: MIT
// worker.h: a rank that serves its devices. One thread does commands in the order in which they come; whatever they say, nothing
// outside the buffers that the program asked for is read or written.
#pragma once

#include "mpi/wire.h"
#include "mpi/world.h"

struct mpi_worker_device {
    ggml_backend_dev_t dev;
    ggml_backend_t backend;
    size_t used, limit; // bytes of buffers, and how many there may be at most
};

struct mpi_worker_graph {
    struct ggml_context *ctx; // NULL: there is none of this number
    struct ggml_cgraph *graph;
    uint32_t device;
};

struct mpi_worker {
    struct mpi_queue *queue;
    int program; // the rank that is served
    struct mpi_worker_device *devices;
    size_t n_devices;
    struct mpi_wire_buffer *buffers; // by number
    struct mpi_worker_graph *graphs;
    struct mpi_group *groups; // ranks NULL: there is none of this number
    size_t n_buffers, n_graphs, n_groups;
    char failure[256]; // of a command that has no answer; "": none
    void *piece;       // MPI_PIECE bytes on their way
    const char *cache; // folder or NULL
    struct {           // what is not in the cache yet and is coming: SET_KNOWN missed it
        uint8_t hash[16];
        uint32_t buffer;
        uint64_t offset, size;
        bool is_open;
    } coming;
};

// Opens the devices. False with an error.
bool mpi_worker_init(
    struct mpi_worker *w, struct mpi_queue *queue, int program, const struct berth_mpi_serve_params *params) BERTH_MUST_USE;
void mpi_worker_fini(struct mpi_worker *w);
// One command, or what claims to be one.
void mpi_worker_do(struct mpi_worker *w, const struct mpi_queue_item *item);
// Keeps the text unless there is one already.
void mpi_worker_fail(struct mpi_worker *w, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- bytes (worker_data.c) ----

// The buffer, if these bytes are in it; NULL after mpi_worker_fail.
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

// ---- the cache of weights (content_cache.c) ----

// Fills the bytes from the folder: only if the file has that many and they have that hash.
bool mpi_cache_read(const char *folder, const uint8_t hash[16], void *bytes, size_t size);
// Appears whole or not at all; a folder that is full is no failure.
void mpi_cache_write(const char *folder, const uint8_t hash[16], const void *bytes, size_t size);

// ---- what `berth worker` runs (worker.c) ----

// Infos of the devices, as the program is to know them; NULL: out of memory.
struct mpi_device_info *mpi_serve_infos(const struct berth_mpi_serve_params *params);
// Serves the world's program until it leaves or is lost. False with an error.
bool mpi_serve_world(struct mpi_world *world, const struct berth_mpi_serve_params *params);
// All of it, in the process's own world.
bool mpi_serve(const struct berth_mpi_serve_params *params);

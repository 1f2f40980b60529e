// SPDX-License-Identifier: MIT
// fuzz_mpi.c: passes the input to a worker (berth worker) as a sequence of messages, each preceded by its length. The worker reads
// them and runs their commands. Buffers are small, so that commands often access memory outside of them, which must be refused.
// All inputs use the same worker, emptied before each, because opening its device would take most of the time.

#include "fuzz/fuzz.h"

#include "mpi/worker.h"
#include "support/mpi_loop.h"

#include "ggml-cpu.h"

#include <string.h>

// Returns whether a command waits for another rank. There is no other rank, so it would wait forever.
static bool waits(uint32_t kind) {
    return kind == MPI_COPY_IN || kind == MPI_AWAIT || kind == MPI_GROUP_SUM;
}

static void command(struct mpi_worker *w, const uint8_t *bytes, size_t size) {
    struct mpi_queue_item item = {.message = {.size = size, .bytes = malloc(size)}}; // exact size: sanitizers detect overreads
    struct mpi_head head;
    memcpy(item.message.bytes, bytes, size);
    memcpy(&head, bytes, sizeof head);
    head.kind = head.kind < 256 ? MPI_COMMAND + head.kind % (MPI_COMMAND_END - MPI_COMMAND + 1) : head.kind;
    // Makes ids either small or too large. Ids in between would make the worker's tables long and each input slow.
    head.id = head.id < 1 << 12 ? head.id % 32 : head.id | (uint32_t) 1 << 20;
    memcpy(item.message.bytes, &head, sizeof head);
    if (!waits(head.kind)) {
        mpi_worker_do(w, &item);
    }
    free(item.message.bytes);
}

static void command_of(struct mpi_worker *w, uint32_t kind, size_t id, uint64_t b) {
    const struct mpi_head head = {.kind = kind - MPI_COMMAND, .id = (uint32_t) id, .b = b};
    command(w, (const uint8_t *) &head, sizeof head);
}

// Frees all objects, so that the worker is as after mpi_worker_init.
static void worker_empty(struct mpi_worker *w) {
    for (size_t i = 0; i < w->n_graphs; i++) {
        command_of(w, MPI_GRAPH_FREE, i, 0);
    }
    for (size_t i = 0; i < w->n_groups; i++) {
        command_of(w, MPI_GROUP_FREE, i, 0);
    }
    for (size_t i = 0; i < w->n_buffers; i++) {
        if (w->buffers[i].buffer != NULL) {
            command_of(w, MPI_BUFFER_FREE, i, 0);
        }
    }
    expect(w->devices[0].used == 0, "memory is in use, but there is no buffer");
    shim_free(w->graphs);
    shim_free(w->groups);
    shim_free(w->buffers);
    w->graphs = NULL;
    w->groups = NULL;
    w->buffers = NULL;
    w->n_buffers = w->n_graphs = w->n_groups = 0;
    w->failure[0] = '\0';
    memset(&w->cache_miss, 0, sizeof w->cache_miss);
}

static void commands_do(struct mpi_worker *w, const uint8_t *data, size_t size) {
    command_of(w, MPI_BUFFER_NEW, 0, 4096);
    for (size_t at = 0; at + 2 <= size;) {
        const size_t want = (size_t) data[at] | (size_t) data[at + 1] << 8, rest = size - at - 2;
        const size_t n = want < rest ? want : rest;
        if (n >= sizeof(struct mpi_head)) {
            command(w, data + at + 2, n);
        }
        at += 2 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct mpi_queue queue; // the worker keeps its address
    static struct mpi_worker w;
    struct mpi_transport t = {.alloc = shim_malloc, .release = shim_free};
    struct mpi_loop *loop = mpi_loop_new(2);
    expect(loop != NULL && mpi_loop_open(loop, 1, &t) && mpi_queue_init(&queue, &t), "cannot open the message queue");
    if (w.queue == NULL) {
        ggml_backend_dev_t cpu = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        struct berth_mpi_serve_params params = {.devices = &cpu, .n_devices = 1, .n_threads = 1, .memory_limit = 1 << 16};
        ggml_log_set(quiet, NULL);
        expect(mpi_worker_init(&w, &queue, 0, &params), "cannot start the worker");
    }
    commands_do(&w, data, size);
    worker_empty(&w);
    mpi_queue_fini(&queue, true);
    mpi_loop_free(loop);
    return 0;
}

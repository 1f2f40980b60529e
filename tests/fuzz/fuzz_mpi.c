// SPDX-License-Identifier: MIT
// fuzz_mpi.c: a worker's reader of messages, and all that it does with them: the input is a row of commands, each with its length
// before it. Buffers are small, so that what is outside of them is soon reached.

#include "fuzz/fuzz.h"

#include "mpi/loop.h"
#include "mpi/worker.h"

#include "ggml-cpu.h"

#include <string.h>

// What waits for another rank, which there is none of, would wait for ever.
static bool waits(uint32_t kind) {
    return kind == MPI_COPY_IN || kind == MPI_AWAIT || kind == MPI_GROUP_SUM;
}

static void command(struct mpi_worker *w, const uint8_t *bytes, size_t size) {
    struct mpi_mail_item item = {.letter = {.size = size, .bytes = malloc(size)}}; // its own end, which sanitizers watch
    struct mpi_head head;
    memcpy(item.letter.bytes, bytes, size);
    memcpy(&head, bytes, sizeof head);
    head.kind = head.kind < 256 ? MPI_COMMAND + head.kind % (MPI_COMMAND_END - MPI_COMMAND + 1) : head.kind;
    memcpy(item.letter.bytes, &head, sizeof head);
    if (!waits(head.kind)) {
        mpi_worker_do(w, &item);
    }
    free(item.letter.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct mpi_transport t = {.alloc = shim_malloc, .release = shim_free};
    struct mpi_mail mail;
    struct mpi_worker w;
    ggml_backend_dev_t cpu               = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    struct berth_mpi_serve_params params = {.devices = &cpu, .n_devices = 1, .n_threads = 1, .memory_limit = 1 << 16};
    struct mpi_loop *loop                = mpi_loop_new(2);
    ggml_log_set(quiet, NULL);
    if (loop == NULL || !mpi_loop_open(loop, 1, &t) || !mpi_mail_init(&mail, &t)) {
        abort();
    }
    if (mpi_worker_init(&w, &mail, 0, &params)) {
        const struct mpi_head first = {.kind = MPI_BUFFER_NEW - MPI_COMMAND, .b = 4096};
        command(&w, (const uint8_t *) &first, sizeof first);
        for (size_t at = 0; at + 2 <= size;) {
            const size_t want = (size_t) data[at] | (size_t) data[at + 1] << 8, rest = size - at - 2;
            const size_t n = want < rest ? want : rest;
            if (n >= sizeof(struct mpi_head)) {
                command(&w, data + at + 2, n);
            }
            at += 2 + n;
        }
        mpi_worker_fini(&w);
    }
    mpi_mail_fini(&mail, true);
    mpi_loop_free(loop);
    return 0;
}

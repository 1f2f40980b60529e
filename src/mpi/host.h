// SPDX-License-Identifier: MIT
// host.h: memory, errors, log and clock of this library. On Berth's libggml-base they are its allocator and its last error; on
// another ggml base, which has no berth_ symbols, libc and ggml's log take their place. Nothing else of src/base is linked to.
#pragma once

#include "base/base.h"

void *mpi_malloc(size_t size) BERTH_MUST_USE; // NULL for size 0 too
void *mpi_calloc(size_t n, size_t size) BERTH_MUST_USE;
void mpi_free(void *p);

// One line to ggml's log.
void mpi_log(enum ggml_log_level level, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Keeps the text as the last error where there is one, logs it, returns status.
enum ggml_status mpi_error(enum ggml_status status, const char *fmt, ...) BERTH_PRINTF(2, 3);

// Nanoseconds of a clock that only goes on.
int64_t mpi_now(void);
#define MPI_SECOND ((int64_t) 1000000000)

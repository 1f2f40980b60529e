// SPDX-License-Identifier: MIT
// host.c: berth_ symbols are taken weakly, see host.h. Both halves of a pair come from the same library, so memory never crosses.

#include "mpi/host.h"

#include <stdlib.h>
#include <time.h>

#pragma weak berth_malloc
#pragma weak berth_calloc
#pragma weak berth_free
#pragma weak berth_set_error

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

void *mpi_malloc(size_t size) {
    return berth_malloc != NULL ? berth_malloc(size) : size > 0 ? malloc(size) : NULL;
}

void *mpi_calloc(size_t n, size_t size) {
    return berth_calloc != NULL ? berth_calloc(n, size) : n > 0 && size > 0 ? calloc(n, size) : NULL;
}

void mpi_free(void *p) {
    (berth_free != NULL ? berth_free : free)(p);
}

void mpi_log(enum ggml_log_level level, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ggml_log_internal(level, "%s\n", text);
}

enum ggml_status mpi_error(enum ggml_status status, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (berth_set_error != NULL) {
        berth_set_error("%s", text);
    }
    mpi_log(GGML_LOG_LEVEL_ERROR, "%s", text);
    return status;
}

int64_t mpi_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * MPI_SECOND + now.tv_nsec;
}

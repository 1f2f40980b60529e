// SPDX-License-Identifier: MIT
// host.h: the clock of this library; memory, errors and log are those of base/shim.
#pragma once

#include "base/shim/shim.h"

#include <time.h>

#define MPI_SECOND ((int64_t) 1000000000)

// Nanoseconds of a clock that only goes on.
static inline int64_t mpi_now(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * MPI_SECOND + now.tv_nsec;
}

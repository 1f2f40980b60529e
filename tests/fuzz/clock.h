// SPDX-License-Identifier: MIT
// clock.h: replaces the clock of the program by one that jumps forward by one second when it is read for the n-th time, as if the
// machine were busy. The input chooses n. So it depends only on the input whether a fuzz target reaches its time limit, and every
// run is reproducible.
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int clock_readings_left; // readings until the clock jumps; below 1: it does not jump
static atomic_int clock_jumped;        // number of jumps so far

// Makes the clock jump at the n-th reading from now on; 0: not at all.
static inline void clock_jump_at(int n) {
    atomic_store(&clock_readings_left, n);
}

// Replaces libc's function in the whole program.
int clock_gettime(clockid_t id, struct timespec *at) {
    const long code = syscall(SYS_clock_gettime, id, at);
    if (id == CLOCK_MONOTONIC) {
        if (atomic_load(&clock_readings_left) > 0 && atomic_fetch_sub(&clock_readings_left, 1) == 1) {
            atomic_fetch_add(&clock_jumped, 1);
        }
        at->tv_sec += atomic_load(&clock_jumped);
    }
    return (int) code;
}

// Returns a hash of the input, below limit. Unlike a number that is read from the input, it does not change the meaning of
// existing corpus files.
static inline int clock_input_hash(const uint8_t *data, size_t size, uint32_t limit) {
    uint32_t mix = 2166136261u;
    for (size_t i = 0; i < size; i++) {
        mix = (mix ^ data[i]) * 16777619u;
    }
    return (int) (mix % limit);
}

// SPDX-License-Identifier: MIT
// clock.h: a machine that is busy with something else: at one look at the clock a second has passed. What a target does where
// time runs out depends on its bytes alone then, and comes again.
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int clock_looks; // until time jumps; below 1: it does not
static atomic_int clock_jumped;

// At the n-th look from now on; 0: not at all.
static inline void clock_jump_at(int n) {
    atomic_store(&clock_looks, n);
}

// In place of libc's, for all that the program is made of.
int clock_gettime(clockid_t id, struct timespec *at) {
    const long code = syscall(SYS_clock_gettime, id, at);
    if (id == CLOCK_MONOTONIC) {
        if (atomic_load(&clock_looks) > 0 && atomic_fetch_sub(&clock_looks, 1) == 1) {
            atomic_fetch_add(&clock_jumped, 1);
        }
        at->tv_sec += atomic_load(&clock_jumped);
    }
    return (int) code;
}

// Of the bytes, so that inputs which were found before mean what they did.
static inline int clock_number(const uint8_t *data, size_t size, uint32_t limit) {
    uint32_t mix = 2166136261u;
    for (size_t i = 0; i < size; i++) {
        mix = (mix ^ data[i]) * 16777619u;
    }
    return (int) (mix % limit);
}

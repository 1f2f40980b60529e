// SPDX-License-Identifier: MIT
// futex.h: sleeping until a word changes, waking the sleepers, and pausing in spin loops.
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#ifdef __linux__
#    include <sys/syscall.h>
#    include <unistd.h>

// Numbers of the kernel, whose headers are not part of a C library. musl comes without them.
enum { PARK_FUTEX_WAIT_PRIVATE = 128, PARK_FUTEX_WAKE_PRIVATE = 129 };
#elif defined(_WIN32)
#    include "base/windows/posix.h"
#endif

// Sleeps until park_wake_all(word). Returns without sleeping if *word is not `value`. It may also wake up spuriously.
static inline void park_wait(atomic_uint *word, unsigned value) {
#ifdef __linux__
    syscall(SYS_futex, (void *) word, PARK_FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#elif defined(_WIN32)
    posix_wait_on(word, value);
#else
    if (atomic_load(word) == value) {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
#endif
}

static inline void park_wake_all(atomic_uint *word) {
#ifdef __linux__
    syscall(SYS_futex, (void *) word, PARK_FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#elif defined(_WIN32)
    posix_wake_all(word);
#else
    (void) word;
#endif
}

static inline void park_relax(void) {
#if defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static inline int64_t park_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

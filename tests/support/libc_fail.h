// SPDX-License-Identifier: MIT
// libc_fail.h: replaces libc's allocator in a test program, so that all allocations or the n-th one can be made to fail. For one file
// per program.
#pragma once

#include "berth.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define LIBC_FAIL_UNUSED __attribute__((unused))     // with a sanitizer, or in a test that needs only a part of this file
LIBC_FAIL_UNUSED static atomic_bool must_fail;       // all allocations fail
LIBC_FAIL_UNUSED static atomic_int_fast64_t n_asked; // allocations that failed
static atomic_int_fast64_t n_left;  // libc_fail_at: allocations until the one that fails; 0: it has failed, or none is to fail
static atomic_int_fast64_t n_alive; // blocks that are not freed
// The allocations of this thread neither fail nor count for libc_fail_at.
LIBC_FAIL_UNUSED static _Thread_local bool is_excepted;

// A sanitizer replaces libc's allocator. Then only Berth's allocations are watched.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

static bool is_last(void) {
    int_fast64_t n = is_excepted ? 0 : atomic_load(&n_left);
    while (n > 0 && !atomic_compare_exchange_weak(&n_left, &n, n - 1)) {
    }
    return n == 1;
}

static bool refuses(void) {
    if (atomic_load(&must_fail) || is_last()) {
        atomic_fetch_add(&n_asked, 1);
        errno = ENOMEM;
        return true;
    }
    return false;
}

static void *block_count(void *p) {
    atomic_fetch_add(&n_alive, p != NULL);
    return p;
}

#    pragma GCC visibility push(default)
void *malloc(size_t size) {
    return refuses() ? NULL : block_count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size) {
    return refuses() ? NULL : block_count(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size) {
    if (p == NULL) {
        return malloc(size);
    }
    return refuses() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size) {
    return refuses() ? NULL : block_count(__libc_memalign(align, size));
}

int posix_memalign(void **p, size_t align, size_t size) {
    *p = refuses() ? NULL : block_count(__libc_memalign(align, size));
    return *p != NULL ? 0 : ENOMEM;
}

void free(void *p) {
    atomic_fetch_sub(&n_alive, p != NULL);
    __libc_free(p);
}
#    pragma GCC visibility pop
#endif

// Returns the number of blocks that are not freed; with a sanitizer, which finds leaks itself, 0.
static inline int64_t libc_alive(void) {
    return atomic_load(&n_alive);
}

// Makes the n-th allocation of the threads that are not excepted fail, with a sanitizer the n-th of Berth's; 0: none. Returns whether
// the one of the last call has not failed.
static inline bool libc_fail_at(int64_t n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    // The failed allocation is not counted, so one that may have been reached is taken as reached.
    const bool is_open = berth_alloc_made() + 1 < atomic_exchange(&n_left, n);
    berth_alloc_watch(n > 0);
    berth_alloc_fail_at(n);
    return is_open;
#else
    return atomic_exchange(&n_left, n) > 0;
#endif
}

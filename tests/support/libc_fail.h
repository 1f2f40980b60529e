// SPDX-License-Identifier: MIT
// libc_fail.h: replaces libc's allocator in a test program, so that all allocations can be made to fail. For one file per program.
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static atomic_bool must_fail;       // all allocations fail
static atomic_int_fast64_t n_asked; // allocations that failed

// A sanitizer replaces libc's allocator. Then only Berth's allocations are watched.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

static bool refuses(void) {
    if (atomic_load(&must_fail)) {
        atomic_fetch_add(&n_asked, 1);
        errno = ENOMEM;
        return true;
    }
    return false;
}

#    pragma GCC visibility push(default)
void *malloc(size_t size) {
    return refuses() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
    return refuses() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size) {
    return refuses() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size) {
    return refuses() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size) {
    *p = refuses() ? NULL : __libc_memalign(align, size);
    return *p != NULL ? 0 : ENOMEM;
}
#    pragma GCC visibility pop
#endif

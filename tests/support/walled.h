// SPDX-License-Identifier: MIT
// walled.h: memory that ends directly before an inaccessible page, so that an access beyond its end causes a fault.
#pragma once

#include "support/check.h"

#include <string.h>
#include <sys/mman.h>

#define WALL 65536 // bytes; no machine has larger pages

static inline size_t walled_mapping_size(size_t size) {
    return (size + WALL - 1) / WALL * WALL + WALL;
}

// The memory ends at the inaccessible page, so the address is aligned only as far as size is. It is filled with 0xff, which is
// NaN in every float type.
static inline void *walled(size_t size) {
    const size_t all = walled_mapping_size(size);
    char *base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    memset(base, 0xff, all - WALL);
    assert_int_equal(mprotect(base + all - WALL, WALL, PROT_NONE), 0);
    return base + all - WALL - size;
}

static inline void walled_free(void *at, size_t size) {
    munmap((char *) at + size + WALL - walled_mapping_size(size), walled_mapping_size(size));
}

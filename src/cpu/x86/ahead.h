// SPDX-License-Identifier: MIT
// ahead.h: prefetches memory that will be read soon. The hardware prefetcher does not read far enough ahead and stops at the end
// of a page.
#pragma once

#include <immintrin.h>
#include <stddef.h>

#define AHEAD 4096 // prefetch distance; best of 1024 to 8192

// Prefetches `size` bytes, `distance` bytes after `at`. A prefetch of an unmapped address is harmless.
static inline __attribute__((always_inline)) void prefetch_by(const void *at, size_t distance, size_t size) {
    for (size_t i = 0; i < size; i += 64) {
        _mm_prefetch((const char *) at + distance + i, _MM_HINT_T0);
    }
}

static inline __attribute__((always_inline)) void prefetch_ahead(const void *at, size_t size) {
    prefetch_by(at, AHEAD, size);
}

// prefetch_far prefetches the cache lines of n floats, FAR_BYTES after x. It is used for long rows that are read or written
// sequentially. For rows larger than the caches this saves a fifth of the time, because hardware prefetching stops at every page.
// Kernels with too little arithmetic to hide the cost of prefetching use it only for rows of at least FAR_LENGTH elements.
#define FAR_BYTES 2048
#define FAR_LENGTH 65536

static inline __attribute__((always_inline)) void prefetch_far(const float *x, int n) {
    for (int i = 0; i < n; i += 16) {
        _mm_prefetch((const char *) (x + i) + FAR_BYTES, _MM_HINT_T0);
    }
}

// SPDX-License-Identifier: MIT
// ahead.h: asks for memory that is read soon. Weights are read straight through and once, from memory: the machine runs ahead of
// that by itself, but too little, and not past the end of a page.
#pragma once

#include <immintrin.h>
#include <stddef.h>

#define AHEAD 4096 // bytes; 1024 to 8192 were tried

// The lines of `size` bytes, AHEAD of `at`. An address that is nobody's does no harm.
static inline __attribute__((always_inline)) void fetch_ahead(const void *at, size_t size) {
    for (size_t i = 0; i < size; i += 64) {
        _mm_prefetch((const char *) at + AHEAD + i, _MM_HINT_T0);
    }
}

// The same for n floats of long rows, source or result, which are read or written straight through: beyond the caches the
// machine's own prefetching, which ends with every page, leaves a fifth of the time. Rows of so many elements are taken for long
// where the work is too little to hide it.
#define FAR_BYTES 2048
#define FAR_LENGTH 65536

static inline __attribute__((always_inline)) void fetch_far(const float *x, int n) {
    for (int i = 0; i < n; i += 16) {
        _mm_prefetch((const char *) (x + i) + FAR_BYTES, _MM_HINT_T0);
    }
}

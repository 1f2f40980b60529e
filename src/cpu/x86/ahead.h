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

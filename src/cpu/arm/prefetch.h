// SPDX-License-Identifier: MIT
// prefetch.h: what is to come, for kernels that read two rows at once: the hardware foresees one run through memory, not two that
// begin anew with every pair of rows.
#pragma once

#include <stddef.h>

#define PREFETCH_LINE 64
#define PREFETCH_FAR 16384 // bytes from the first row of a pair to what is fetched for later

// The next `size` bytes of a pair of rows, bx bytes apart, are being read, half of them at a: fetches its like of the next pair's
// second row into the first cache, and what lies at `far` into the second.
static inline __attribute__((always_inline)) void prefetch_pair(const char *a, size_t bx, const char *far, const size_t size) {
    for (size_t i = 0; i < size / 2; i += PREFETCH_LINE) {
        __builtin_prefetch(a + 3 * bx + i, 0, 3);
    }
    for (size_t i = 0; i < size; i += PREFETCH_LINE) {
        __builtin_prefetch(far + i, 0, 2);
    }
}

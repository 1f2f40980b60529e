// SPDX-License-Identifier: MIT
// sort.h: the keys that rows are sorted by: an element's float as an unsigned number of the same order above, its index below.
// Keys sort without looking at the row again, no two are the same, and equal elements keep their order. NaN counts as larger than
// every number.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Larger floats have larger keys; both zeros have the same. flip: all bits set for the largest first, else none.
static inline uint32_t sort_float_key(float f, uint32_t flip) {
    int32_t u;
    f += 0.0f; // -0 becomes 0
    memcpy(&u, &f, sizeof u);
    const uint32_t key = (uint32_t) u ^ ((uint32_t) (u >> 31) | 0x80000000u);
    return (f != f ? UINT32_MAX : key) ^ flip;
}

static inline uint64_t sort_key(float f, int64_t i, uint32_t flip) {
    return (uint64_t) sort_float_key(f, flip) << 32 | (uint64_t) i;
}

// The indices of n keys in order into out; spare has as much room.
void cpu_sort_long(const float *x, int64_t n, uint32_t flip, int32_t *out, int32_t *spare); // sort_long.c

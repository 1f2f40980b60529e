// SPDX-License-Identifier: MIT
// min.h: minima and maxima by type. Each is the expression `a < b ? a : b` or `a > b ? a : b`, so the result is b if `a` is NaN.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BERTH_MIN_MAX(suffix, type) \
    static inline type min_##suffix(type a, type b) { \
        return a < b ? a : b; \
    } \
    static inline type max_##suffix(type a, type b) { \
        return a > b ? a : b; \
    }

BERTH_MIN_MAX(int, int)
BERTH_MIN_MAX(i32, int32_t)
BERTH_MIN_MAX(i64, int64_t)
BERTH_MIN_MAX(u32, uint32_t)
BERTH_MIN_MAX(u64, uint64_t)
BERTH_MIN_MAX(size, size_t)
BERTH_MIN_MAX(f32, float)
BERTH_MIN_MAX(f64, double)

#undef BERTH_MIN_MAX

static inline int64_t clamp_i64(int64_t x, int64_t low, int64_t high) {
    return min_i64(max_i64(x, low), high);
}

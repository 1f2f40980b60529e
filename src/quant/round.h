// SPDX-License-Identifier: MIT
// round.h: conversion of float to integer without undefined behaviour. berth_trunc_* and berth_round_* saturate, and NaN becomes
// 0, as in the instructions of AArch64. Some formats, such as q8_0, compute the scale of a block directly, without a search
// among several scales. So on every machine they write the bytes that the reference writes on AArch64, even for rows that
// are not finite.
#pragma once

#include "base/base.h"
#include "base/min.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/vec.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__aarch64__)
#    include <arm_neon.h>
#endif

#if defined(__aarch64__)
// berth_trunc_i32 rounds toward zero. berth_round_i32 rounds to nearest, ties away from zero. Some compilers implement
// vcvts_s32_f32 as a plain cast, so berth_trunc_i32 uses a vector.
static inline int32_t berth_trunc_i32(float v) {
    return vget_lane_s32(vcvt_s32_f32(vdup_n_f32(v)), 0);
}

static inline int32_t berth_round_i32(float v) {
    return vcvtas_s32_f32(v);
}
#else
static inline int32_t berth_trunc_i32(float v) {
    if (v >= 0x1p31f) {
        return INT32_MAX;
    }
    if (v < -0x1p31f) {
        return INT32_MIN;
    }
    return v != v ? 0 : (int32_t) v;
}

static inline int32_t berth_round_i32(float v) {
    return berth_trunc_i32(roundf(v));
}
#endif

// Rounds to nearest even. If |v| >= 2^22, the result is wrong, but equals the reference's.
static inline int32_t berth_rint_wrapped(float v) {
    return (int32_t) (berth_float_bits(v + 0x1.8p23f) & 0x7fffff) - 0x400000;
}

static inline int32_t berth_clamp_i32(int32_t v, int32_t lo, int32_t hi) {
    return max_i32(min_i32(v, hi), lo);
}

static inline v4i berth_trunc_4(v4f v) {
#if defined(__aarch64__)
    return (v4i) vcvtq_s32_f32((float32x4_t) v);
#elif defined(__SSE2__)
    // If a value does not fit, the instruction returns INT32_MIN. The code corrects large positive values and NaN.
    return ((v4i) _mm_cvttps_epi32((__m128) v) ^ (v >= v4_all(0x1p31f))) & (v == v);
#else
    return (v4i){berth_trunc_i32(v[0]), berth_trunc_i32(v[1]), berth_trunc_i32(v[2]), berth_trunc_i32(v[3])};
#endif
}

static inline v4i berth_round_4(v4f v) {
#if defined(__aarch64__)
    return (v4i) vcvtaq_s32_f32((float32x4_t) v);
#elif defined(__SSE2__)
    // Floats of 2^23 and more have no fraction.
    const v4i cut = berth_trunc_4(v);
    const v4f rest = v - __builtin_convertvector(cut, v4f);
    const v4i small = v4_abs(v) < v4_all(0x1p23f);
    return cut - (small & (rest >= v4_all(0.5f))) + (small & (rest <= v4_all(-0.5f)));
#else
    return (v4i){berth_round_i32(v[0]), berth_round_i32(v[1]), berth_round_i32(v[2]), berth_round_i32(v[3])};
#endif
}

// Returns a * b + c, rounded once or twice (BERTH_MAD_IS_FUSED).
static inline float berth_mad(float a, float b, float c) {
    return BERTH_MAD_IS_FUSED ? fmaf(a, b, c) : a * b + c;
}

// Returns the largest magnitude of n elements, n a multiple of 4. If an element is NaN, only the elements after the last NaN
// count, as in the reference. If the last element is NaN, returns NaN.
static inline float berth_amax(const float *x, int n) {
    int from = n;
    float lo, hi;
    if (v4_range(x, n, &lo, &hi)) {
        return fabsf(hi > -lo ? hi : lo);
    }
    while (x[from - 1] == x[from - 1]) {
        from--;
    }
    float amax = from == n ? x[n - 1] : 0.0f;
    for (; from < n; from++) {
        amax = max_f32(amax, fabsf(x[from]));
    }
    return amax;
}

// Returns the bytes of nrows rows. If the row length is not a multiple of the block size, returns 0 and sets the last error.
static inline size_t berth_rows_size(const char *what, int64_t nrows, int64_t n_per_row, int64_t qk, size_t block_size) {
    size_t size;
    if (nrows < 0 || n_per_row < 0 || n_per_row % qk != 0) {
        (void) berth_fail(GGML_STATUS_FAILED, "%s: cannot quantise %lld rows of %lld elements: a block has %lld", what,
            (long long) nrows, (long long) n_per_row, (long long) qk);
        return 0;
    }
    if (!berth_mul_ok((size_t) (n_per_row / qk), block_size, &size) || !berth_mul_ok(size, (size_t) nrows, &size)) {
        (void) berth_fail(GGML_STATUS_FAILED, "%s: %lld rows of %lld elements exceed the address space", what, (long long) nrows,
            (long long) n_per_row);
        return 0;
    }
    return size;
}

// Defines quantize_X for a format that ignores the importance matrix: all rows are converted as one long row.
#define BERTH_QUANTIZE_PLAIN(name, block) \
    size_t quantize_##name( \
        const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix) { \
        (void) imatrix; \
        const size_t size = berth_rows_size(__func__, nrows, n_per_row, block, sizeof(block_##name)); \
        if (size > 0) { \
            quantize_row_##name##_ref(src, dst, nrows *n_per_row); \
        } \
        return size; \
    }

// Defines quantize_X with quantize_blocks_X(x, y, n_blocks, w). w: NULL, or one weight per element of the row.
#define BERTH_QUANTIZE_WEIGHTED(name, block) \
    size_t quantize_##name( \
        const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix) { \
        const size_t size = berth_rows_size(__func__, nrows, n_per_row, block, sizeof(block_##name)); \
        block_##name *y = dst; \
        for (int64_t i = 0; size > 0 && i < nrows; i++) { \
            quantize_blocks_##name(src + i * n_per_row, y + i * (n_per_row / (block)), n_per_row / (block), imatrix); \
        } \
        return size; \
    }

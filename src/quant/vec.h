// SPDX-License-Identifier: MIT
// vec.h: vectors of four floats. The order of additions does not depend on the machine, so sums are equal on every machine.
#pragma once

#include "base/min.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__aarch64__)
#    include <arm_neon.h>
#elif defined(__SSE2__)
#    include <emmintrin.h>
#endif

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

static inline v4f v4_load(const float *p) {
    v4f v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void v4_store(float *p, v4f v) {
    memcpy(p, &v, sizeof(v));
}

static inline v4f v4_all(float f) {
    return (v4f){f, f, f, f};
}

static inline v4f v4_select(v4i mask, v4f a, v4f b) {
    return (v4f) ((mask & (v4i) a) | (~mask & (v4i) b));
}

// No operand may be NaN.
static inline v4f v4_min(v4f a, v4f b) {
#if defined(__aarch64__)
    return (v4f) vminq_f32((float32x4_t) a, (float32x4_t) b);
#elif defined(__SSE2__)
    return (v4f) _mm_min_ps((__m128) a, (__m128) b);
#else
    return v4_select(a < b, a, b);
#endif
}

// No operand may be NaN. On Arm, fmaxf takes half as long as comparison and select.
static inline float berth_larger(float a, float b) {
#if defined(__aarch64__)
    return fmaxf(a, b);
#else
    return a > b ? a : b;
#endif
}

static inline float inverse_or_0(float v) {
    return v != 0.0f ? 1.0f / v : 0.0f;
}

static inline v4f v4_max(v4f a, v4f b) {
#if defined(__aarch64__)
    return (v4f) vmaxq_f32((float32x4_t) a, (float32x4_t) b);
#elif defined(__SSE2__)
    return (v4f) _mm_max_ps((__m128) a, (__m128) b);
#else
    return v4_select(a > b, a, b);
#endif
}

static inline float v4_sum(v4f v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}

// No lane may be NaN.
static inline float v4_highest(v4f v) {
#if defined(__aarch64__)
    return vmaxvq_f32((float32x4_t) v);
#else
    const v4f pair = v4_max(v, (v4f){v[2], v[3], v[0], v[1]});
    return v4_max(pair, (v4f){pair[1], pair[0], pair[3], pair[2]})[0];
#endif
}

static inline int v4_any(v4i v) {
#if defined(__aarch64__)
    return vmaxvq_u32((uint32x4_t) v) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i) v) != 0;
#else
    return (v[0] | v[1] | v[2] | v[3]) != 0;
#endif
}

// Smallest index[k] of the lanes k in which the mask is true. At least one lane must be true.
static inline int v4_first(v4i mask, v4i index) {
    const v4i i = (mask & index) | (~mask & INT32_MAX);
#if defined(__aarch64__)
    return vminvq_s32((int32x4_t) i);
#else
    const int a = min_int(i[0], i[1]);
    const int b = min_int(i[2], i[3]);
    return min_int(a, b);
#endif
}

// Rounds to nearest even; |v| < 2^22.
static inline v4f v4_round(v4f v) {
#if defined(__aarch64__)
    return (v4f) vrndnq_f32((float32x4_t) v);
#else
    const v4f magic = v4_all(0x1.8p23f);
    return (v + magic) - magic;
#endif
}

static inline v4f v4_abs(v4f v) {
    return (v4f) ((v4i) v & 0x7fffffff);
}

// Returns the largest magnitude of n elements, n a multiple of 4. NaN is ignored.
static inline float v4_largest(const float *x, int n) {
    v4f m = v4_all(0.0f);
    for (int j = 0; j < n; j += 4) {
        const v4f a = v4_abs(v4_load(x + j));
        m = v4_select(a > m, a, m);
    }
    return v4_highest(m);
}

// Computes the smallest and the largest of n elements, n a multiple of 4. If an element is NaN, returns 0. A result of zero may
// have either sign.
static inline int v4_range(const float *x, int n, float *lo, float *hi) {
    v4f low = v4_load(x);
    v4f high = low;
    v4i nan = low != low;
    for (int j = 4; j < n; j += 4) {
        const v4f v = v4_load(x + j);
        low = v4_min(low, v);
        high = v4_max(high, v);
#if !defined(__aarch64__)
        nan |= v != v;
#endif
    }
    // On Arm, v4_max keeps NaN, so `high` shows a NaN of any iteration.
    nan |= high != high;
    *lo = -v4_highest(-low);
    *hi = v4_highest(high);
    return !v4_any(nan);
}

// The lanes must hold integers that fit into int32_t.
static inline v4i v4_int(v4f v) {
    return __builtin_convertvector(v, v4i);
}

// Stores the low bytes of n lanes; n: a multiple of 16.
static inline void v4_store_bytes(const v4i *v, int n, uint8_t *out) {
    for (int j = 0; j < n / 4; j += 4) {
#if defined(__aarch64__)
        const int16x8_t a = vcombine_s16(vmovn_s32((int32x4_t) v[j]), vmovn_s32((int32x4_t) v[j + 1]));
        const int16x8_t b = vcombine_s16(vmovn_s32((int32x4_t) v[j + 2]), vmovn_s32((int32x4_t) v[j + 3]));
        vst1q_u8(out + 4 * j, vcombine_u8(vmovn_u16((uint16x8_t) a), vmovn_u16((uint16x8_t) b)));
#elif defined(__SSE2__)
        const __m128i a = _mm_packs_epi32((__m128i) (v[j] & 0xff), (__m128i) (v[j + 1] & 0xff));
        const __m128i b = _mm_packs_epi32((__m128i) (v[j + 2] & 0xff), (__m128i) (v[j + 3] & 0xff));
        _mm_storeu_si128((__m128i *) (void *) (out + 4 * j), _mm_packus_epi16(a, b));
#else
        for (int k = 0; k < 16; k++) {
            out[4 * j + k] = (uint8_t) v[j + k / 4][k % 4];
        }
#endif
    }
}

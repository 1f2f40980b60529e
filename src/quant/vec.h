// SPDX-License-Identifier: MIT
// vec.h: four floats at a time, for the searches. The lanes are fixed by the source, so sums come out alike on every machine.
#pragma once

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

// Neither takes NaN.
static inline v4f v4_min(v4f a, v4f b) {
#if defined(__aarch64__)
    return (v4f) vminq_f32((float32x4_t) a, (float32x4_t) b);
#elif defined(__SSE2__)
    return (v4f) _mm_min_ps((__m128) a, (__m128) b);
#else
    return v4_select(a < b, a, b);
#endif
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

// To nearest even; |v| < 2^22.
static inline v4f v4_round(v4f v) {
#if defined(__aarch64__)
    return (v4f) vrndnq_f32((float32x4_t) v);
#else
    const v4f magic = v4_all(0x1.8p23f);
    return (v + magic) - magic;
#endif
}

// SPDX-License-Identifier: MIT
// floats.h: elements of f32, f16 and bf16 rows as floats, eight and one at a time. Needs AVX2 and F16C.
#pragma once

#include "quant/half.h"

#include <immintrin.h>

#define FLOATS_INLINE static inline __attribute__((always_inline))

FLOATS_INLINE __m256 load_f32(const float *x) {
    return _mm256_loadu_ps(x);
}
FLOATS_INLINE __m256 load_f16(const uint16_t *x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *) x));
}
FLOATS_INLINE __m256 load_bf16(const uint16_t *x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *) x)), 16));
}

FLOATS_INLINE float one_f32(const float *x) {
    return *x;
}
FLOATS_INLINE float one_f16(const uint16_t *x) {
    return _cvtsh_ss(*x);
}
FLOATS_INLINE float one_bf16(const uint16_t *x) {
    return berth_bf16_to_float(*x);
}

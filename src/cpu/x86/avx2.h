// SPDX-License-Identifier: MIT
// avx2.h: what the kernels of the avx2 tier share.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define AVX2_INLINE static inline __attribute__((always_inline))

AVX2_INLINE float sum_f32(__m256 v) {
    const __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 b = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

AVX2_INLINE float max_f32(__m256 v) {
    const __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 b = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

AVX2_INLINE __m256 abs_f32(__m256 v) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

AVX2_INLINE float half_f32(uint16_t h) {
    return _cvtsh_ss(h);
}

AVX2_INLINE __m256i load_256(const void *at) {
    return _mm256_loadu_si256(at);
}

AVX2_INLINE __m128i load_128(const void *at) {
    return _mm_loadu_si128(at);
}

// 16 bytes of two nibbles each: the low ones, then the high ones.
AVX2_INLINE __m256i nibbles(const void *at) {
    const __m128i q = load_128(at);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(q, 4), q), _mm256_set1_epi8(15));
}

// Products of 32 bytes, x as the sign of its own moved to y, in pairs: 16 bits hold the sum of two unless both are 128 * 128.
AVX2_INLINE __m256i pairs_signed(__m256i x, __m256i y) {
    return _mm256_maddubs_epi16(_mm256_sign_epi8(x, x), _mm256_sign_epi8(y, x));
}

// Sums of two pairs.
AVX2_INLINE __m256i quads(__m256i pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// SPDX-License-Identifier: MIT
// floats.h: V, the widest vector of floats of a tier, and functions that load elements of f32, f16 and bf16 rows as floats:
// load_* load eight, v_* a vector V, one_* one. Requires AVX2 and F16C.
#pragma once

#include "quant/half.h"

#include <immintrin.h>

#define FLOATS_INLINE static inline __attribute__((always_inline))

// V_SOME is the type of a mask that selects lanes. V_LOAD_SOME sets the lanes that are not selected to 0. V_POWER_2(z) returns
// 2^k; the low bits of z hold k + 127. V_WHERE_NOT_0(v, weight) sets the lanes of v whose weight is 0 to 0.
#ifdef __AVX512F__
#    define V __m512
#    define V_LANES 16
#    define V_PS(op) _mm512_##op##_ps
#    define V_POWER_2(bits) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(bits), 23))
#    define V_WHERE_NOT_0(v, weight) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(weight, _mm512_setzero_ps(), _CMP_NEQ_UQ), v)
#    define V_SOME __mmask16
#    define V_LOAD_SOME(x, some) _mm512_maskz_loadu_ps(some, x)
#    define V_STORE_SOME _mm512_mask_storeu_ps
#else
#    define V __m256
#    define V_LANES 8
#    define V_PS(op) _mm256_##op##_ps
#    define V_POWER_2(bits) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(bits), 23))
#    define V_WHERE_NOT_0(v, weight) _mm256_and_ps(v, _mm256_cmp_ps(weight, _mm256_setzero_ps(), _CMP_NEQ_UQ))
#    define V_SOME __m256i
#    define V_LOAD_SOME _mm256_maskload_ps
#    define V_STORE_SOME _mm256_maskstore_ps
#endif
#define V_LOAD V_PS(loadu)
#define V_STORE V_PS(storeu)
#define V_ALL V_PS(set1)
#define V_FMA V_PS(fmadd)

FLOATS_INLINE __m256 load_f32(const float *x) {
    return _mm256_loadu_ps(x);
}
FLOATS_INLINE __m256 load_f16(const uint16_t *x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *) x));
}
FLOATS_INLINE __m256 load_bf16(const uint16_t *x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *) x)), 16));
}

// sums_across4: lane i of the result is the sum of all lanes of a[i].
#ifdef __AVX512F__
// Adds pairs of lanes. In the result, sums of a and of b alternate.
FLOATS_INLINE __m512 fold(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

FLOATS_INLINE __m128 sums_across4(const __m512 *a) {
    const __m512d ab = _mm512_castps_pd(fold(a[0], a[1])), cd = _mm512_castps_pd(fold(a[2], a[3]));
    const __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    const __m512 two = _mm512_add_ps(all, _mm512_shuffle_f32x4(all, all, 0x4e));
    return _mm512_castps512_ps128(_mm512_add_ps(two, _mm512_shuffle_f32x4(two, two, 0xb1)));
}
#else
FLOATS_INLINE __m128 sums_across4(const __m256 *a) {
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}
#endif

// v_<type> load a vector of V_LANES elements.
#ifdef __AVX512F__
FLOATS_INLINE __m512 v_f32(const float *x) {
    return _mm512_loadu_ps(x);
}
FLOATS_INLINE __m512 v_f16(const uint16_t *x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *) x));
}
FLOATS_INLINE __m512 v_bf16(const uint16_t *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *) x)), 16));
}
#else
#    define v_f32 load_f32
#    define v_f16 load_f16
#    define v_bf16 load_bf16
#endif

FLOATS_INLINE float one_f32(const float *x) {
    return *x;
}
FLOATS_INLINE float one_f16(const uint16_t *x) {
    return _cvtsh_ss(*x);
}
FLOATS_INLINE float one_bf16(const uint16_t *x) {
    return berth_bf16_to_float(*x);
}

// SPDX-License-Identifier: MIT
// sse.h: emulates 32-byte vectors by two 16-byte vectors, for processors without AVX2. The tiers sse42 and avx include this file
// before the files of avx2. The tier sse42 emulates all vectors, the tier avx only integer vectors. This file defines only the
// intrinsics that the files of avx2 use. An emulated multiply-add rounds twice. Requires SSE4.2.
#pragma once

#include "quant/half.h"

#include <immintrin.h>
#include <string.h>

#define SSE_INLINE static inline __attribute__((always_inline, unused))

typedef struct {
    __m128i lo, hi;
} sse_ints;

// ---- the same operation on both 16-byte vectors ----

#define SSE_1(name, half) \
    SSE_INLINE sse_ints sse_##name(sse_ints a) { \
        return (sse_ints){half(a.lo), half(a.hi)}; \
    }
#define SSE_2(name, type, half) \
    SSE_INLINE type sse_##name(type a, type b) { \
        return (type){half(a.lo, b.lo), half(a.hi, b.hi)}; \
    }
#define SSE_3(name, type, half) \
    SSE_INLINE type sse_##name(type a, type b, type c) { \
        return (type){half(a.lo, b.lo, c.lo), half(a.hi, b.hi, c.hi)}; \
    }
#define SSE_SHIFT(name, half) \
    SSE_INLINE sse_ints sse_##name(sse_ints a, const int n) { \
        return (sse_ints){half(a.lo, n), half(a.hi, n)}; \
    }
#define SSE_ALL(name, type, element, half) \
    SSE_INLINE type sse_##name(element v) { \
        return (type){half(v), half(v)}; \
    }

SSE_2(add_epi8, sse_ints, _mm_add_epi8)
SSE_2(add_epi16, sse_ints, _mm_add_epi16)
SSE_2(add_epi32, sse_ints, _mm_add_epi32)
SSE_2(add_epi64, sse_ints, _mm_add_epi64)
SSE_2(sub_epi8, sse_ints, _mm_sub_epi8)
SSE_2(sub_epi16, sse_ints, _mm_sub_epi16)
SSE_2(sub_epi32, sse_ints, _mm_sub_epi32)
SSE_2(and_si256, sse_ints, _mm_and_si128)
SSE_2(andnot_si256, sse_ints, _mm_andnot_si128)
SSE_2(or_si256, sse_ints, _mm_or_si128)
SSE_2(cmpeq_epi8, sse_ints, _mm_cmpeq_epi8)
SSE_2(cmpgt_epi32, sse_ints, _mm_cmpgt_epi32)
SSE_2(cmpgt_epi8, sse_ints, _mm_cmpgt_epi8)
SSE_2(max_epi32, sse_ints, _mm_max_epi32)
SSE_2(madd_epi16, sse_ints, _mm_madd_epi16)
SSE_2(maddubs_epi16, sse_ints, _mm_maddubs_epi16)
SSE_2(sign_epi8, sse_ints, _mm_sign_epi8)
SSE_2(shuffle_epi8, sse_ints, _mm_shuffle_epi8)
SSE_2(packs_epi16, sse_ints, _mm_packs_epi16)
SSE_2(packs_epi32, sse_ints, _mm_packs_epi32)
SSE_2(hadd_epi32, sse_ints, _mm_hadd_epi32)
SSE_2(unpacklo_epi32, sse_ints, _mm_unpacklo_epi32)
SSE_2(unpackhi_epi32, sse_ints, _mm_unpackhi_epi32)
SSE_2(unpacklo_epi64, sse_ints, _mm_unpacklo_epi64)
SSE_2(unpackhi_epi64, sse_ints, _mm_unpackhi_epi64)
SSE_1(abs_epi8, _mm_abs_epi8)
SSE_SHIFT(slli_epi16, _mm_slli_epi16)
SSE_SHIFT(slli_epi32, _mm_slli_epi32)
SSE_SHIFT(slli_epi64, _mm_slli_epi64)
SSE_SHIFT(srli_epi16, _mm_srli_epi16)
SSE_SHIFT(srli_epi32, _mm_srli_epi32)
SSE_SHIFT(srai_epi16, _mm_srai_epi16)
SSE_SHIFT(srai_epi32, _mm_srai_epi32)
SSE_3(blendv_epi8, sse_ints, _mm_blendv_epi8)
SSE_ALL(set1_epi8, sse_ints, char, _mm_set1_epi8)
SSE_ALL(set1_epi16, sse_ints, short, _mm_set1_epi16)
SSE_ALL(set1_epi32, sse_ints, int, _mm_set1_epi32)
SSE_ALL(set1_epi64x, sse_ints, long long, _mm_set1_epi64x)
SSE_ALL(broadcastsi128_si256, sse_ints, __m128i, )

#define sse_setzero_si256() ((sse_ints){_mm_setzero_si128(), _mm_setzero_si128()})
#define sse_setr_epi32(a, b, c, d, e, f, g, h) ((sse_ints){_mm_setr_epi32(a, b, c, d), _mm_setr_epi32(e, f, g, h)})
#define sse_setr_epi64x(a, b, c, d) ((sse_ints){_mm_set_epi64x(b, a), _mm_set_epi64x(d, c)})
#define sse_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) \
    ((sse_ints){_mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p), _mm_setr_epi8(__VA_ARGS__)})
#define sse_set_m128i(upper, lower) ((sse_ints){lower, upper})

SSE_INLINE sse_ints sse_loadu_si256(const void *at) {
    return (sse_ints){_mm_loadu_si128(at), _mm_loadu_si128((const __m128i *) at + 1)};
}
SSE_INLINE void sse_storeu_si256(void *at, sse_ints v) {
    _mm_storeu_si128(at, v.lo);
    _mm_storeu_si128((__m128i *) at + 1, v.hi);
}

// ---- access to one 16-byte vector ----

#define sse_castsi128_si256(v) ((sse_ints){v, v})
#define sse_castsi256_si128(v) ((v).lo)
#define sse_extracti128_si256(v, one) ((v).hi)
#define sse_inserti128_si256(v, upper, one) ((sse_ints){(v).lo, upper})
#define sse_extract_epi32(v, i) _mm_cvtsi128_si32((i) == 0 ? (v).lo : (v).hi) // i is 0 or 4

// 0x20: the lower parts of a and b; 0x31: the upper parts.
SSE_INLINE sse_ints sse_permute2x128_si256(sse_ints a, sse_ints b, const int which) {
    return which == 0x20 ? (sse_ints){a.lo, b.lo} : (sse_ints){a.hi, b.hi};
}

// Indices are constants, so the loops compile to moves.
SSE_INLINE __m128i sse_lanes4(sse_ints v, __m128i which) {
    int32_t from[8], at[4], to[4];
    sse_storeu_si256(from, v);
    _mm_storeu_si128((void *) at, which);
    for (int i = 0; i < 4; i++) {
        to[i] = from[at[i] & 7];
    }
    return _mm_loadu_si128((const void *) to);
}
SSE_INLINE sse_ints sse_permutevar8x32_epi32(sse_ints v, sse_ints which) {
#ifdef __clang__
    return (sse_ints){sse_lanes4(v, which.lo), sse_lanes4(v, which.hi)};
#else
    typedef int four __attribute__((vector_size(16)));
    const four a = (four) v.lo, b = (four) v.hi;
    return (sse_ints){(__m128i) __builtin_shuffle(a, b, (four) which.lo), (__m128i) __builtin_shuffle(a, b, (four) which.hi)};
#endif
}

// ---- wider elements ----

#define SSE_WIDEN(name, half, step) \
    SSE_INLINE sse_ints sse_##name(__m128i v) { \
        return (sse_ints){half(v), half(_mm_srli_si128(v, step))}; \
    }
SSE_WIDEN(cvtepi8_epi16, _mm_cvtepi8_epi16, 8)
SSE_WIDEN(cvtepi8_epi32, _mm_cvtepi8_epi32, 4)
SSE_WIDEN(cvtepu8_epi32, _mm_cvtepu8_epi32, 4)
SSE_WIDEN(cvtepu16_epi32, _mm_cvtepu16_epi32, 8)

// v << n per lane, as v * 2^n, for n < 31.
SSE_INLINE __m128i sse_sllv4(__m128i v, __m128i n) {
    const __m128i power = _mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23);
    return _mm_mullo_epi32(v, _mm_cvttps_epi32(_mm_castsi128_ps(power)));
}
SSE_INLINE sse_ints sse_sllv_epi32(sse_ints v, sse_ints n) {
    return (sse_ints){sse_sllv4(v.lo, n.lo), sse_sllv4(v.hi, n.hi)};
}

// ---- floats ----

#ifndef __AVX__
#    include "cpu/x86/sse_floats.h"
#else
typedef __m256 sse_floats;
typedef __m256d sse_doubles;
typedef __m256i sse_m256i;

#    define SSE_FLOATS(lower, upper) _mm256_insertf128_ps(_mm256_castps128_ps256(lower), upper, 1)
#    define SSE_LOWER(v) _mm256_castps256_ps128(v)
#    define SSE_UPPER(v) _mm256_extractf128_ps(v, 1)

SSE_INLINE sse_m256i sse_join(sse_ints v) {
    return _mm256_insertf128_si256(_mm256_castsi128_si256(v.lo), v.hi, 1);
}
SSE_INLINE sse_ints sse_split(sse_m256i v) {
    return (sse_ints){_mm256_castsi256_si128(v), _mm256_extractf128_si256(v, 1)};
}

#    define sse_add_ps _mm256_add_ps
#    define sse_sub_ps _mm256_sub_ps
#    define sse_mul_ps _mm256_mul_ps
#    define sse_add_pd _mm256_add_pd
#    define sse_sub_pd _mm256_sub_pd
#    define sse_mul_pd _mm256_mul_pd
#    define sse_loadu_ps _mm256_loadu_ps

SSE_INLINE sse_floats sse_cvtepi32_ps(sse_ints v) {
    return _mm256_cvtepi32_ps(sse_join(v));
}
SSE_INLINE sse_ints sse_cvtps_epi32(sse_floats v) {
    return sse_split(_mm256_cvtps_epi32(v));
}
SSE_INLINE sse_ints sse_castps_si256(sse_floats v) {
    return sse_split(_mm256_castps_si256(v));
}
SSE_INLINE sse_ints sse_castpd_si256(sse_doubles v) {
    return sse_split(_mm256_castpd_si256(v));
}
SSE_INLINE sse_floats sse_castsi256_ps(sse_ints v) {
    return _mm256_castsi256_ps(sse_join(v));
}
SSE_INLINE sse_doubles sse_castsi256_pd(sse_ints v) {
    return _mm256_castsi256_pd(sse_join(v));
}
SSE_INLINE sse_floats sse_maskload_ps(const float *at, sse_ints mask) {
    return _mm256_maskload_ps(at, sse_join(mask));
}
SSE_INLINE void sse_maskstore_ps(float *at, sse_ints mask, sse_floats v) {
    _mm256_maskstore_ps(at, sse_join(mask), v);
}
#endif

SSE_INLINE sse_floats sse_fmadd_ps(sse_floats a, sse_floats b, sse_floats c) {
    return sse_add_ps(sse_mul_ps(a, b), c);
}
SSE_INLINE sse_floats sse_fnmadd_ps(sse_floats a, sse_floats b, sse_floats c) {
    return sse_sub_ps(c, sse_mul_ps(a, b));
}
SSE_INLINE sse_doubles sse_fmadd_pd(sse_doubles a, sse_doubles b, sse_doubles c) {
    return sse_add_pd(sse_mul_pd(a, b), c);
}
SSE_INLINE sse_doubles sse_fnmadd_pd(sse_doubles a, sse_doubles b, sse_doubles c) {
    return sse_sub_pd(c, sse_mul_pd(a, b));
}
SSE_INLINE sse_floats sse_permutevar8x32_ps(sse_floats v, sse_ints which) {
    return sse_castsi256_ps(sse_permutevar8x32_epi32(sse_castps_si256(v), which));
}

// ---- f16 ----

// Same results as half.h.
SSE_INLINE sse_floats sse_cvtph_ps(__m128i h) {
    const __m128i mag = _mm_and_si128(h, _mm_set1_epi16(0x7fff)), sign = _mm_xor_si128(h, mag), zero = _mm_setzero_si128();
    const __m128i special = _mm_subs_epu16(_mm_sub_epi16(mag, _mm_set1_epi16(0x400)), _mm_set1_epi16(0x77ff));
    if (__builtin_expect(!_mm_testz_si128(special, special), 0)) {
        uint16_t from[8];
        float to[8];
        _mm_storeu_si128((void *) from, h);
        for (int i = 0; i < 8; i++) {
            to[i] = berth_half_to_float(from[i]);
        }
        return sse_loadu_ps(to);
    }
    const __m128i up = _mm_set1_epi32(112 << 23);
    const __m128i lo = _mm_add_epi32(_mm_slli_epi32(_mm_unpacklo_epi16(mag, zero), 13), up);
    const __m128i hi = _mm_add_epi32(_mm_slli_epi32(_mm_unpackhi_epi16(mag, zero), 13), up);
    return SSE_FLOATS(_mm_castsi128_ps(_mm_or_si128(lo, _mm_unpacklo_epi16(zero, sign))),
        _mm_castsi128_ps(_mm_or_si128(hi, _mm_unpackhi_epi16(zero, sign))));
}

SSE_INLINE __m128i sse_tof16_4(__m128 v) {
    const __m128i bits = _mm_castps_si128(v), mag = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
    const __m128i sign = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(0x8000));
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(mag, 13), _mm_set1_epi32(1));
    const __m128i normal = _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(mag, odd), _mm_set1_epi32(0x0fff - (112 << 23))), 13);
    const __m128i small =
        _mm_sub_epi32(_mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(mag), _mm_set1_ps(0.5f))), _mm_set1_epi32(0x3f000000));
    const __m128i finite = _mm_blendv_epi8(normal, small, _mm_cmpgt_epi32(_mm_set1_epi32(0x38800000), mag));
    const __m128i large = _mm_blendv_epi8(finite, _mm_set1_epi32(0x7c00), _mm_cmpgt_epi32(mag, _mm_set1_epi32(0x477fefff)));
    const __m128i all = _mm_blendv_epi8(large, _mm_set1_epi32(0x7e00), _mm_cmpgt_epi32(mag, _mm_set1_epi32(0x7f800000)));
    return _mm_or_si128(all, sign);
}
SSE_INLINE __m128i sse_cvtps_ph(sse_floats v, const int nearest) {
    (void) nearest;
    return _mm_packus_epi32(sse_tof16_4(SSE_LOWER(v)), sse_tof16_4(SSE_UPPER(v)));
}

// ---- the names of the intrinsics ----

// Some compilers define these intrinsics as macros.
#undef _mm256_cvtps_ph
#undef _mm256_extract_epi32
#undef _mm256_extracti128_si256
#undef _mm256_inserti128_si256
#undef _mm256_blend_epi16
#undef _mm256_permute2x128_si256
#undef _cvtss_sh

#define __m256i sse_ints
#define _mm256_abs_epi8 sse_abs_epi8
#define _mm256_add_epi16 sse_add_epi16
#define _mm256_add_epi32 sse_add_epi32
#define _mm256_add_epi64 sse_add_epi64
#define _mm256_add_epi8 sse_add_epi8
#define _mm256_and_si256 sse_and_si256
#define _mm256_andnot_si256 sse_andnot_si256
// `which` must be a constant, also without optimisation.
#define _mm256_blend_epi16(a, b, which) \
    ((sse_ints){_mm_blend_epi16((a).lo, (b).lo, which), _mm_blend_epi16((a).hi, (b).hi, which)})
#define _mm256_blendv_epi8 sse_blendv_epi8
#define _mm256_broadcastsi128_si256 sse_broadcastsi128_si256
#define _mm256_castpd_si256 sse_castpd_si256
#define _mm256_castps_si256 sse_castps_si256
#define _mm256_castsi128_si256 sse_castsi128_si256
#define _mm256_castsi256_pd sse_castsi256_pd
#define _mm256_castsi256_ps sse_castsi256_ps
#define _mm256_castsi256_si128 sse_castsi256_si128
#define _mm256_cmpeq_epi8 sse_cmpeq_epi8
#define _mm256_cmpgt_epi32 sse_cmpgt_epi32
#define _mm256_cmpgt_epi8 sse_cmpgt_epi8
#define _mm256_cvtepi32_ps sse_cvtepi32_ps
#define _mm256_cvtepi8_epi16 sse_cvtepi8_epi16
#define _mm256_cvtepi8_epi32 sse_cvtepi8_epi32
#define _mm256_cvtepu16_epi32 sse_cvtepu16_epi32
#define _mm256_cvtepu8_epi32 sse_cvtepu8_epi32
#define _mm256_cvtph_ps sse_cvtph_ps
#define _mm256_cvtps_epi32 sse_cvtps_epi32
#define _mm256_cvtps_ph sse_cvtps_ph
#define _mm256_extract_epi32 sse_extract_epi32
#define _mm256_extracti128_si256 sse_extracti128_si256
#define _mm256_fmadd_pd sse_fmadd_pd
#define _mm256_fmadd_ps sse_fmadd_ps
#define _mm256_fnmadd_pd sse_fnmadd_pd
#define _mm256_fnmadd_ps sse_fnmadd_ps
#define _mm256_hadd_epi32 sse_hadd_epi32
#define _mm256_inserti128_si256 sse_inserti128_si256
#define _mm256_loadu_si256 sse_loadu_si256
#define _mm256_madd_epi16 sse_madd_epi16
#define _mm256_maddubs_epi16 sse_maddubs_epi16
#define _mm256_maskload_ps sse_maskload_ps
#define _mm256_maskstore_ps sse_maskstore_ps
#define _mm256_max_epi32 sse_max_epi32
#define _mm256_or_si256 sse_or_si256
#define _mm256_packs_epi16 sse_packs_epi16
#define _mm256_packs_epi32 sse_packs_epi32
#define _mm256_permute2x128_si256 sse_permute2x128_si256
#define _mm256_permutevar8x32_epi32 sse_permutevar8x32_epi32
#define _mm256_permutevar8x32_ps sse_permutevar8x32_ps
#define _mm256_set1_epi16 sse_set1_epi16
#define _mm256_set1_epi32 sse_set1_epi32
#define _mm256_set1_epi64x sse_set1_epi64x
#define _mm256_set1_epi8 sse_set1_epi8
#define _mm256_set_m128i sse_set_m128i
#define _mm256_setr_epi32 sse_setr_epi32
#define _mm256_setr_epi64x sse_setr_epi64x
#define _mm256_setr_epi8 sse_setr_epi8
#define _mm256_setzero_si256 sse_setzero_si256
#define _mm256_shuffle_epi8 sse_shuffle_epi8
#define _mm256_sign_epi8 sse_sign_epi8
#define _mm256_slli_epi16 sse_slli_epi16
#define _mm256_slli_epi32 sse_slli_epi32
#define _mm256_slli_epi64 sse_slli_epi64
#define _mm256_sllv_epi32 sse_sllv_epi32
#define _mm256_srai_epi16 sse_srai_epi16
#define _mm256_srai_epi32 sse_srai_epi32
#define _mm256_srli_epi16 sse_srli_epi16
#define _mm256_srli_epi32 sse_srli_epi32
#define _mm256_storeu_si256 sse_storeu_si256
#define _mm256_sub_epi16 sse_sub_epi16
#define _mm256_sub_epi32 sse_sub_epi32
#define _mm256_sub_epi8 sse_sub_epi8
#define _mm256_unpackhi_epi32 sse_unpackhi_epi32
#define _mm256_unpackhi_epi64 sse_unpackhi_epi64
#define _mm256_unpacklo_epi32 sse_unpacklo_epi32
#define _mm256_unpacklo_epi64 sse_unpacklo_epi64
#define _cvtsh_ss berth_half_to_float
#define _cvtss_sh(v, nearest) berth_float_to_half(v)

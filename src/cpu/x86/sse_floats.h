// SPDX-License-Identifier: MIT
// sse_floats.h: emulates vectors of eight floats and of four doubles by two 16-byte vectors, for processors without AVX (sse.h).
// Requires SSE4.2.
#pragma once

typedef struct {
    __m128 lo, hi;
} sse_floats;
typedef struct {
    __m128d lo, hi;
} sse_doubles;

#define SSE_FLOATS(lower, upper) ((sse_floats){lower, upper})
#define SSE_LOWER(v) ((v).lo)
#define SSE_UPPER(v) ((v).hi)

#define SSE_TO(name, type, from, half) \
    SSE_INLINE type sse_##name(from a) { \
        return (type){half(a.lo), half(a.hi)}; \
    }

SSE_2(add_ps, sse_floats, _mm_add_ps)
SSE_2(sub_ps, sse_floats, _mm_sub_ps)
SSE_2(mul_ps, sse_floats, _mm_mul_ps)
SSE_2(div_ps, sse_floats, _mm_div_ps)
SSE_2(min_ps, sse_floats, _mm_min_ps)
SSE_2(max_ps, sse_floats, _mm_max_ps)
SSE_2(and_ps, sse_floats, _mm_and_ps)
SSE_2(andnot_ps, sse_floats, _mm_andnot_ps)
SSE_2(xor_ps, sse_floats, _mm_xor_ps)
SSE_2(hadd_ps, sse_floats, _mm_hadd_ps)
SSE_2(unpacklo_ps, sse_floats, _mm_unpacklo_ps)
SSE_2(unpackhi_ps, sse_floats, _mm_unpackhi_ps)
SSE_3(blendv_ps, sse_floats, _mm_blendv_ps)

SSE_2(add_pd, sse_doubles, _mm_add_pd)
SSE_2(sub_pd, sse_doubles, _mm_sub_pd)
SSE_2(mul_pd, sse_doubles, _mm_mul_pd)
SSE_2(and_pd, sse_doubles, _mm_and_pd)
SSE_2(xor_pd, sse_doubles, _mm_xor_pd)
SSE_2(unpacklo_pd, sse_doubles, _mm_unpacklo_pd)
SSE_2(unpackhi_pd, sse_doubles, _mm_unpackhi_pd)
SSE_3(blendv_pd, sse_doubles, _mm_blendv_pd)

SSE_TO(cvtepi32_ps, sse_floats, sse_ints, _mm_cvtepi32_ps)
SSE_TO(cvtps_epi32, sse_ints, sse_floats, _mm_cvtps_epi32)
SSE_TO(castps_pd, sse_doubles, sse_floats, _mm_castps_pd)
SSE_TO(castpd_ps, sse_floats, sse_doubles, _mm_castpd_ps)
SSE_TO(castps_si256, sse_ints, sse_floats, _mm_castps_si128)
SSE_TO(castpd_si256, sse_ints, sse_doubles, _mm_castpd_si128)
SSE_TO(castsi256_ps, sse_floats, sse_ints, _mm_castsi128_ps)
SSE_TO(castsi256_pd, sse_doubles, sse_ints, _mm_castsi128_pd)
SSE_ALL(set1_ps, sse_floats, float, _mm_set1_ps)
SSE_ALL(set1_pd, sse_doubles, double, _mm_set1_pd)

#define sse_setzero_ps() ((sse_floats){_mm_setzero_ps(), _mm_setzero_ps()})
#define sse_setzero_pd() ((sse_doubles){_mm_setzero_pd(), _mm_setzero_pd()})
#define sse_castps256_ps128(v) ((v).lo)
#define sse_castpd256_pd128(v) ((v).lo)
#define sse_extractf128_ps(v, one) ((v).hi)
#define sse_extractf128_pd(v, one) ((v).hi)
#define sse_permute_ps(v, order) ((sse_floats){_mm_shuffle_ps((v).lo, (v).lo, order), _mm_shuffle_ps((v).hi, (v).hi, order)})

#define sse_shuffle_ps(a, b, order) ((sse_floats){_mm_shuffle_ps((a).lo, (b).lo, order), _mm_shuffle_ps((a).hi, (b).hi, order)})

// 0x20: the lower parts of a and b; 0x31: the upper parts.
SSE_INLINE sse_floats sse_permute2f128_ps(sse_floats a, sse_floats b, const int which) {
    return which == 0x20 ? (sse_floats){a.lo, b.lo} : (sse_floats){a.hi, b.hi};
}

// ---- loads and stores ----

SSE_INLINE sse_floats sse_loadu_ps(const float *at) {
    return (sse_floats){_mm_loadu_ps(at), _mm_loadu_ps(at + 4)};
}
SSE_INLINE sse_floats sse_broadcast_ss(const float *at) {
    return sse_set1_ps(*at);
}
SSE_INLINE void sse_storeu_ps(float *at, sse_floats v) {
    _mm_storeu_ps(at, v.lo);
    _mm_storeu_ps(at + 4, v.hi);
}
SSE_INLINE void sse_storeu_pd(double *at, sse_doubles v) {
    _mm_storeu_pd(at, v.lo);
    _mm_storeu_pd(at + 2, v.hi);
}

// After a load, lanes outside the mask are 0. Memory outside the mask is not accessed.
SSE_INLINE __m128 sse_maskload4(const float *at, __m128i mask) {
    float v[4] = {0};
    const int lanes = _mm_movemask_ps(_mm_castsi128_ps(mask));
    for (int i = 0; i < 4; i++) {
        if ((lanes >> i & 1) != 0) {
            v[i] = at[i];
        }
    }
    return _mm_loadu_ps(v);
}
SSE_INLINE void sse_maskstore4(float *at, __m128i mask, __m128 from) {
    float v[4];
    const int lanes = _mm_movemask_ps(_mm_castsi128_ps(mask));
    _mm_storeu_ps(v, from);
    for (int i = 0; i < 4; i++) {
        if ((lanes >> i & 1) != 0) {
            at[i] = v[i];
        }
    }
}
SSE_INLINE sse_floats sse_maskload_ps(const float *at, sse_ints mask) {
    return (sse_floats){sse_maskload4(at, mask.lo), sse_maskload4(at + 4, mask.hi)};
}
SSE_INLINE void sse_maskstore_ps(float *at, sse_ints mask, sse_floats v) {
    sse_maskstore4(at, mask.lo, v.lo);
    sse_maskstore4(at + 4, mask.hi, v.hi);
}

// ---- doubles, comparisons ----

SSE_INLINE sse_doubles sse_cvtps_pd(__m128 v) {
    return (sse_doubles){_mm_cvtps_pd(v), _mm_cvtps_pd(_mm_movehl_ps(v, v))};
}
SSE_INLINE __m128 sse_cvtpd_ps(sse_doubles v) {
    return _mm_movelh_ps(_mm_cvtpd_ps(v.lo), _mm_cvtpd_ps(v.hi));
}

SSE_INLINE __m128 sse_cmp4(__m128 a, __m128 b, const int how) {
    switch (how) {
        case _CMP_EQ_OQ: return _mm_cmpeq_ps(a, b);
        case _CMP_NEQ_UQ: return _mm_cmpneq_ps(a, b);
        case _CMP_LE_OQ: return _mm_cmple_ps(a, b);
        case _CMP_GE_OQ: return _mm_cmpge_ps(a, b);
        default: return _mm_cmpnlt_ps(a, b); // _CMP_NLT_UQ
    }
}
SSE_INLINE sse_floats sse_cmp_ps(sse_floats a, sse_floats b, const int how) {
    return (sse_floats){sse_cmp4(a.lo, b.lo, how), sse_cmp4(a.hi, b.hi, how)};
}
SSE_INLINE int sse_movemask_ps(sse_floats v) {
    return _mm_movemask_ps(v.lo) | _mm_movemask_ps(v.hi) << 4;
}

// ---- the names of the intrinsics ----

// Some compilers define these intrinsics as macros.
#undef _mm256_cmp_ps
#undef _mm256_extractf128_pd
#undef _mm256_extractf128_ps
#undef _mm256_permute2f128_ps
#undef _mm256_permute_ps
#undef _mm256_shuffle_ps
#undef _mm_cmp_ps

#define __m256 sse_floats
#define __m256d sse_doubles
#define _mm256_add_pd sse_add_pd
#define _mm256_add_ps sse_add_ps
#define _mm256_and_pd sse_and_pd
#define _mm256_and_ps sse_and_ps
#define _mm256_andnot_ps sse_andnot_ps
#define _mm256_blendv_pd sse_blendv_pd
#define _mm256_blendv_ps sse_blendv_ps
#define _mm256_broadcast_ss sse_broadcast_ss
#define _mm256_castpd256_pd128 sse_castpd256_pd128
#define _mm256_castpd_ps sse_castpd_ps
#define _mm256_castps256_ps128 sse_castps256_ps128
#define _mm256_castps_pd sse_castps_pd
#define _mm256_cmp_ps sse_cmp_ps
#define _mm256_cvtpd_ps sse_cvtpd_ps
#define _mm256_cvtps_pd sse_cvtps_pd
#define _mm256_div_ps sse_div_ps
#define _mm256_extractf128_pd sse_extractf128_pd
#define _mm256_extractf128_ps sse_extractf128_ps
#define _mm256_hadd_ps sse_hadd_ps
#define _mm256_loadu_ps sse_loadu_ps
#define _mm256_max_ps sse_max_ps
#define _mm256_min_ps sse_min_ps
#define _mm256_movemask_ps sse_movemask_ps
#define _mm256_mul_pd sse_mul_pd
#define _mm256_mul_ps sse_mul_ps
#define _mm256_permute2f128_ps sse_permute2f128_ps
#define _mm256_permute_ps sse_permute_ps
#define _mm256_set1_pd sse_set1_pd
#define _mm256_set1_ps sse_set1_ps
#define _mm256_setzero_pd sse_setzero_pd
#define _mm256_setzero_ps sse_setzero_ps
#define _mm256_shuffle_ps sse_shuffle_ps
#define _mm256_storeu_pd sse_storeu_pd
#define _mm256_storeu_ps sse_storeu_ps
#define _mm256_sub_pd sse_sub_pd
#define _mm256_sub_ps sse_sub_ps
#define _mm256_unpackhi_pd sse_unpackhi_pd
#define _mm256_unpackhi_ps sse_unpackhi_ps
#define _mm256_unpacklo_pd sse_unpacklo_pd
#define _mm256_unpacklo_ps sse_unpacklo_ps
#define _mm256_xor_pd sse_xor_pd
#define _mm256_xor_ps sse_xor_ps
#define _mm_maskload_ps sse_maskload4
#define _mm_maskstore_ps sse_maskstore4
#define _mm_cmp_ps sse_cmp4

// SPDX-License-Identifier: MIT
// widen__avx2.c: converts quantised rows to floats, for embeddings and for the values of attention, in all tiers that have vectors of
// their own width. It executes the same operations in the same order as the portable functions, without fused multiply-adds, so the
// results are bit-identical.

#include "cpu/kernels.h"
#include "cpu/x86/unpack.h"

// widen16 stores 16 bytes times scale; widen16_plus adds `plus` to each product.
#ifdef __AVX512F__
UNPACK_INLINE void widen16(float *y, __m128i bytes, float scale) {
    _mm512_storeu_ps(y, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_set1_ps(scale)));
}

UNPACK_INLINE void widen16_plus(float *y, __m128i bytes, float scale, float plus) {
    const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_set1_ps(scale));
    _mm512_storeu_ps(y, _mm512_add_ps(v, _mm512_set1_ps(plus)));
}
#else
UNPACK_INLINE void widen16(float *y, __m128i bytes, float scale) {
    const __m256 s = _mm256_set1_ps(scale);
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), s));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))), s));
}

UNPACK_INLINE void widen16_plus(float *y, __m128i bytes, float scale, float plus) {
    const __m256 s = _mm256_set1_ps(scale), p = _mm256_set1_ps(plus);
    const __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    const __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
    _mm256_storeu_ps(y, _mm256_add_ps(_mm256_mul_ps(a, s), p));
    _mm256_storeu_ps(y + 8, _mm256_add_ps(_mm256_mul_ps(b, s), p));
}
#endif

UNPACK_INLINE __m128i vector_half(__m256i v, const int which) {
    return which == 0 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
}

// ---- blocks of 32 ----

// Loads the bytes while it widens them: shuffles of a loaded vector would take longer than the stores.
static void q8_0_to_f32(const void *restrict vx, float *restrict y, int64_t n) {
    const block_q8_0 *x = vx;
    for (int64_t i = 0; i < n / 32; i++, y += 32) {
        const float d = scale_q8_0(&x[i]);
#ifdef __AVX512F__
        widen16(y, _mm_loadu_si128((const void *) x[i].qs), d);
        widen16(y + 16, _mm_loadu_si128((const void *) (x[i].qs + 16)), d);
#else
        for (int j = 0; j < 32; j += 8) {
            const __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *) (x[i].qs + j)));
            _mm256_storeu_ps(y + j, _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(d)));
        }
#endif
    }
}

#define WIDEN_32(type) \
    static void type##_to_f32(const void *restrict vx, float *restrict y, int64_t n) { \
        const block_##type *x = vx; \
        for (int64_t i = 0; i < n / 32; i++, y += 32) { \
            const __m256i v = unpack_##type(&x[i]); \
            const float d = scale_##type(&x[i]); \
            widen16(y, vector_half(v, 0), d); \
            widen16(y + 16, vector_half(v, 1), d); \
        } \
    }
WIDEN_32(q4_0)
WIDEN_32(q5_0)
WIDEN_32(iq4_nl)
WIDEN_32(mxfp4)

#define WIDEN_32_MIN(type) \
    static void type##_to_f32(const void *restrict vx, float *restrict y, int64_t n) { \
        const block_##type *x = vx; \
        for (int64_t i = 0; i < n / 32; i++, y += 32) { \
            const __m256i v = unpack_##type(&x[i]); \
            const float d = f16_as_float(&x[i].d), m = f16_as_float(&x[i].m); \
            widen16_plus(y, vector_half(v, 0), d, m); \
            widen16_plus(y + 16, vector_half(v, 1), d, m); \
        } \
    }
WIDEN_32_MIN(q4_1)
WIDEN_32_MIN(q5_1)

// ---- blocks of 256 ----

// RUN_OF returns the number of the run (R elements with a common scale) that contains element 16 * j.
#define RUN_OF(j, R) ((R) == 16 ? (j) : (j) / 2)
#define WIDEN_256(type, R, offset) \
    static void type##_to_f32(const void *restrict vx, float *restrict y, int64_t n) { \
        const block_##type *x = vx; \
        for (int64_t i = 0; i < n / QK_K; i++, y += QK_K) { \
            __m256i v[8]; \
            int8_t scales[16]; \
            unpack_##type(&x[i], v); \
            _mm_storeu_si128((void *) scales, scales_##type(&x[i])); \
            const float d = f16_as_float(&x[i].d); \
            for (int j = 0; j < 16; j++) { \
                const __m128i bytes = _mm_sub_epi8(vector_half(v[j / 2], j % 2), _mm_set1_epi8(offset)); \
                widen16(y + 16 * j, bytes, d * (float) scales[RUN_OF(j, R)]); \
            } \
        } \
    }
WIDEN_256(q3_K, 16, 4)
WIDEN_256(q6_K, 16, 32)
WIDEN_256(iq4_xs, 32, 0)

#define WIDEN_256_MIN(type, R) \
    static void type##_to_f32(const void *restrict vx, float *restrict y, int64_t n) { \
        const block_##type *x = vx; \
        for (int64_t i = 0; i < n / QK_K; i++, y += QK_K) { \
            __m256i v[8]; \
            int8_t scales[16], mins[16]; \
            unpack_##type(&x[i], v); \
            _mm_storeu_si128((void *) scales, scales_##type(&x[i])); \
            _mm_storeu_si128((void *) mins, mins_##type(&x[i])); \
            const float d = f16_as_float(&x[i].d), dmin = f16_as_float(&x[i].dmin); \
            for (int j = 0; j < 16; j++) { \
                const int r = RUN_OF(j, R); \
                widen16_plus(y + 16 * j, vector_half(v[j / 2], j % 2), d * (float) scales[r], -(dmin * (float) mins[r])); \
            } \
        } \
    }
WIDEN_256_MIN(q4_K, 32)
WIDEN_256_MIN(q5_K, 32)
WIDEN_256_MIN(q2_K, 16)

void CPU_TIER_FILL(widen)(struct cpu_kernels *k) {
#define ROW(TYPE, type) k->to_float[GGML_TYPE_##TYPE] = type##_to_f32;
    EACH_UNPACKED(ROW)
#undef ROW
}

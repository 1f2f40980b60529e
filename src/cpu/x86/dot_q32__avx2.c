// SPDX-License-Identifier: MIT
// dot_q32__avx2.c: dot products of the formats with blocks of 32: a block is one vector of bytes. Sums of integers are exact
// within a block; blocks add up in eight floats.

#include "cpu/x86/avx2.h"
#include "cpu/x86/tiers.h"

#include "quant/blocks.h"
#include "quant/half.h"

#include <string.h>

// ---- 32 signed bytes of a block, in the order of the row ----

AVX2_INLINE __m256i unpack_q8_0(const block_q8_0 *b) {
    return load_256(b->qs);
}

AVX2_INLINE __m256i unpack_q4_0(const block_q4_0 *b) {
    return _mm256_sub_epi8(nibbles(b->qs), _mm256_set1_epi8(8));
}

AVX2_INLINE __m256i unpack_q4_1(const block_q4_1 *b) {
    return nibbles(b->qs);
}

// 32 bits as bytes: all ones where the bit is set.
AVX2_INLINE __m256i bits32(const uint8_t *four) {
    int32_t bits;
    memcpy(&bits, four, sizeof bits);
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each   = _mm256_set1_epi64x((long long) 0x8040201008040201u);
    const __m256i bytes  = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, each), each);
}

AVX2_INLINE __m256i unpack_q5_0(const block_q5_0 *b) {
    return _mm256_or_si256(nibbles(b->qs), _mm256_andnot_si256(bits32(b->qh), _mm256_set1_epi8((char) 0xf0)));
}

AVX2_INLINE __m256i unpack_q5_1(const block_q5_1 *b) {
    return _mm256_or_si256(nibbles(b->qs), _mm256_and_si256(bits32(b->qh), _mm256_set1_epi8(0x10)));
}

AVX2_INLINE __m256i unpack_iq4_nl(const block_iq4_nl *b) {
    const __m128i values = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), nibbles(b->qs));
}

AVX2_INLINE __m256i unpack_mxfp4(const block_mxfp4 *b) { // doubled
    const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), nibbles(b->qs));
}

#define SCALE_OF_HALF(type) \
    AVX2_INLINE float scale_##type(const block_##type *b) { \
        return half_f32(b->d); \
    }
SCALE_OF_HALF(q8_0)
SCALE_OF_HALF(q4_0)
SCALE_OF_HALF(q4_1)
SCALE_OF_HALF(q5_0)
SCALE_OF_HALF(q5_1)
SCALE_OF_HALF(iq4_nl)

// 2^(e - 128), half of what e stands for; the two least are subnormal.
AVX2_INLINE float scale_mxfp4(const block_mxfp4 *b) {
    return berth_bits_float(b->e < 2 ? 0x00200000u << b->e : (uint32_t) (b->e - 1) << 23);
}

// ---- rows ----

#define DOT_Q32(type) \
    static void vec_dot_##type##__avx2( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const block_##type *x = vx; \
        const block_q8_0 *y   = vy; \
        __m256 sum            = _mm256_setzero_ps(); \
        for (int i = 0; i < n / 32; i++) { \
            const __m256i dots = quads(pairs_signed(unpack_##type(&x[i]), load_256(y[i].qs))); \
            const __m256 d     = _mm256_set1_ps(scale_##type(&x[i]) * half_f32(y[i].d)); \
            sum                = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), d, sum); \
        } \
        *s = sum_f32(sum); \
    }
DOT_Q32(q8_0)
DOT_Q32(q4_0)
DOT_Q32(q5_0)
DOT_Q32(iq4_nl)
DOT_Q32(mxfp4)

// Minima go with the block sums that q8_1 brings.
#define DOT_Q32_MIN(type) \
    static void vec_dot_##type##__avx2( \
        int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        const block_##type *x = vx; \
        const block_q8_1 *y   = vy; \
        __m256 sum            = _mm256_setzero_ps(); \
        float mins            = 0.0f; \
        for (int i = 0; i < n / 32; i++) { \
            const __m256i dots = quads(_mm256_maddubs_epi16(unpack_##type(&x[i]), load_256(y[i].qs))); \
            const __m256 d     = _mm256_set1_ps(scale_##type(&x[i]) * half_f32(y[i].d)); \
            sum                = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), d, sum); \
            mins += half_f32(x[i].m) * half_f32(y[i].s); \
        } \
        *s = sum_f32(sum) + mins; \
    }
DOT_Q32_MIN(q4_1)
DOT_Q32_MIN(q5_1)

void cpu_tier_avx2_q32(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q8_0].vec_dot   = vec_dot_q8_0__avx2;
    k->traits[GGML_TYPE_Q4_0].vec_dot   = vec_dot_q4_0__avx2;
    k->traits[GGML_TYPE_Q5_0].vec_dot   = vec_dot_q5_0__avx2;
    k->traits[GGML_TYPE_IQ4_NL].vec_dot = vec_dot_iq4_nl__avx2;
    k->traits[GGML_TYPE_MXFP4].vec_dot  = vec_dot_mxfp4__avx2;
    k->traits[GGML_TYPE_Q4_1].vec_dot   = vec_dot_q4_1__avx2;
    k->traits[GGML_TYPE_Q5_1].vec_dot   = vec_dot_q5_1__avx2;
}

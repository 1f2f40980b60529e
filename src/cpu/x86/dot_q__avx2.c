// SPDX-License-Identifier: MIT
// dot_q__avx2.c: dot products of quantised rows, 32 bytes at a time. VPMADDUBSW multiplies unsigned with signed bytes and adds
// two neighbouring products in 16 bits, which must not overflow. If the bytes of x are signed, it multiplies the magnitudes of x
// with y times the signs of x. Blocks of 256 are computed in integers: VPMADDWD multiplies the 16-bit sums with the scale of
// their run (16 or 32 elements with a common scale) and adds pairs of these products in 32 bits.

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/unpack.h"

// ---- blocks of 32 ----

UNPACK_INLINE __m256i pairs_signed(__m256i x, __m256i y) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x));
}

UNPACK_INLINE __m256 quads(__m256i pairs) {
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#define DOT_32(type) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_0 *y = vy; \
        __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0; \
        int i = 0; \
        for (; i + 2 <= n / 32; i += 2) { \
            const __m256 a = quads(pairs_signed(unpack_##type(&x[i]), load32(y[i].qs))); \
            const __m256 b = quads(pairs_signed(unpack_##type(&x[i + 1]), load32(y[i + 1].qs))); \
            sum0 = _mm256_fmadd_ps(a, _mm256_set1_ps(scale_##type(&x[i]) * f16_as_float(&y[i].d)), sum0); \
            sum1 = _mm256_fmadd_ps(b, _mm256_set1_ps(scale_##type(&x[i + 1]) * f16_as_float(&y[i + 1].d)), sum1); \
        } \
        if (i < n / 32) { \
            const __m256 a = quads(pairs_signed(unpack_##type(&x[i]), load32(y[i].qs))); \
            sum0 = _mm256_fmadd_ps(a, _mm256_set1_ps(scale_##type(&x[i]) * f16_as_float(&y[i].d)), sum0); \
        } \
        *s = sum8(_mm256_add_ps(sum0, sum1)); \
    }
DOT_32(q8_0)
DOT_32(q4_0)
DOT_32(q5_0)
DOT_32(iq4_nl)
DOT_32(mxfp4)

#define DOT_32_MIN(type) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_1 *y = vy; \
        __m256 sum = _mm256_setzero_ps(); \
        float mins = 0.0f; \
        for (int i = 0; i < n / 32; i++) { \
            const __m256 a = quads(_mm256_maddubs_epi16(unpack_##type(&x[i]), load32(y[i].qs))); \
            sum = _mm256_fmadd_ps(a, _mm256_set1_ps(f16_as_float(&x[i].d) * f16_as_float(&y[i].d)), sum); \
            mins += f16_as_float(&x[i].m) * f16_as_float(&y[i].s); \
        } \
        *s = sum8(sum) + mins; \
    }
DOT_32_MIN(q4_1)
DOT_32_MIN(q5_1)

// ---- blocks of 256 ----

// words_16 returns the scales of 16 runs as 16-bit words: even runs in the lower 128 bits, odd runs in the upper 128 bits. A
// vector of 32 bytes of x has the same layout: an even run in the lower 128 bits, the next run in the upper 128 bits. words_8
// returns the scales of 8 runs of 32 elements, the same in both halves.
UNPACK_INLINE __m256i words_16(__m128i scales) {
    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
}

UNPACK_INLINE __m256i words_8(__m128i scales) {
    return _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(scales));
}

// Adds up scale times dot product over the 8 vectors of a block. Returns 8 partial sums.
UNPACK_INLINE __m256i dot_256(const __m256i *v, __m256i words, const int8_t *y, const bool is_signed) {
    __m256i sum = _mm256_setzero_si256(), which = _mm256_set1_epi16(0x0100);
    for (int j = 0; j < 8; j++) {
        const __m256i q = load32(y + 32 * j);
        const __m256i p = is_signed ? pairs_signed(v[j], q) : _mm256_maddubs_epi16(v[j], q);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(p, _mm256_shuffle_epi8(words, which)));
        which = _mm256_add_epi8(which, _mm256_set1_epi8(2));
    }
    return sum;
}

// A q8_K block stores 16 sums of 16 elements each (bsums). dot_sums multiplies each of them with its factor, adds the products in
// pairs and returns 8 sums. `twice` repeats each of 8 factors.
UNPACK_INLINE __m256i dot_sums(__m128i factors, const int16_t *bsums) {
    return _mm256_madd_epi16(_mm256_cvtepi8_epi16(factors), load32(bsums));
}

UNPACK_INLINE __m128i twice(__m128i v) {
    return _mm_unpacklo_epi8(v, v);
}

#define DOT_256(type, n_words, is_signed, add_min_or_offset) \
    static void vec_dot_##type##__avx2(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_K *y = vy; \
        __m256 sum = _mm256_setzero_ps(); \
        for (int i = 0; i < n / QK_K; i++) { \
            __m256i v[8]; \
            prefetch_ahead(&x[i], sizeof x[i]); \
            unpack_##type(&x[i], v); \
            const __m128i scales = scales_##type(&x[i]); \
            __m256i dot = dot_256(v, words_##n_words(scales), y[i].qs, is_signed); \
            add_min_or_offset(type); \
            sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(f16_as_float(&x[i].d) * y[i].d), sum); \
        } \
        *s = sum8(sum); \
    }
#define NOTHING(type)
#define OFFSET(shift) dot = _mm256_sub_epi32(dot, _mm256_slli_epi32(dot_sums(scales, y[i].bsums), shift))
#define OFFSET_4(type) OFFSET(2)
#define OFFSET_32(type) OFFSET(5)
#define MIN(mins) \
    sum = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(dot_sums(mins, y[i].bsums)), _mm256_set1_ps(f16_as_float(&x[i].dmin) * y[i].d), sum)
#define MIN_8(type) MIN(twice(mins_##type(&x[i])))
#define MIN_16(type) MIN(mins_##type(&x[i]))
DOT_256(q4_K, 8, false, MIN_8)
DOT_256(q5_K, 8, false, MIN_8)
DOT_256(q2_K, 16, false, MIN_16)
DOT_256(q3_K, 16, false, OFFSET_4)
DOT_256(q6_K, 16, false, OFFSET_32)
DOT_256(iq4_xs, 8, true, NOTHING)

void CPU_TIER_FILL(dot_q)(struct cpu_kernels *k) {
#define ROW(TYPE, type) k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type##__avx2;
    EACH_UNPACKED(ROW)
#undef ROW
}

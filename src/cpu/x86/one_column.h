// SPDX-License-Identifier: MIT
// one_column.h: products of a unit of a row (lanes.h) with one column, in the order of the row: with one column, moving runs to lanes
// costs more than it saves. Tiers with AVX-512 use it for IQ_FORMATS and, with VNNI, for q5_0 and q5_1. VPMADDUBSW multiplies unsigned with
// signed bytes and adds two neighbouring products in 16 bits, which must not overflow. If the bytes of x are signed, it multiplies
// the magnitudes of x with y times the signs of x.
#pragma once

#include "cpu/x86/lanes.h"

UNPACK_INLINE __m256i pairs_signed(__m256i x, __m256i y) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x));
}

UNPACK_INLINE __m256i widened(__m256i pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// ---- blocks of 256 ----

// Blocks of 256 are computed in integers: VPMADDWD multiplies the 16-bit sums with the scale of their run (16 or 32 elements with a
// common scale) and adds pairs of these products in 32 bits.
//
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

// Defines add_<type>, which adds the product of a block to the sums. qs, bsums and d are the parts of the column's q8_K block.
#define ADD_256(type, n_words, is_signed, add_min_or_offset) \
    UNPACK_INLINE __m256 add_##type(__m256 sum, const block_##type *x, const int8_t *qs, const int16_t *bsums, float d) { \
        __m256i v[8]; \
        (void) bsums; \
        unpack_##type(x, v); \
        const __m128i scales = scales_##type(x); \
        __m256i dot = dot_256(v, words_##n_words(scales), qs, is_signed); \
        add_min_or_offset(type); \
        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_set1_ps(d_##type(x) * d), sum); \
    }
#define NOTHING(type)
#define OFFSET(factors, shift) dot = _mm256_sub_epi32(dot, _mm256_slli_epi32(dot_sums(factors, bsums), shift))
#define OFFSET_4(type) OFFSET(scales, 2)
#define OFFSET_32(type) OFFSET(scales, 5)
#define OFFSET_8_64(type) OFFSET(twice(scales), 6) // 8 runs, offset 64
#define OFFSET_16_64(type) OFFSET(scales, 6)
#define OFFSET_8_16(type) OFFSET(twice(scales), 4)
#define OFFSET_16_16(type) OFFSET(scales, 4)
#define MIN(mins) \
    sum = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(dot_sums(mins, bsums)), _mm256_set1_ps(f16_as_float(&x->dmin) * d), sum)
#define MIN_8(type) MIN(twice(mins_##type(x)))
#define MIN_16(type) MIN(mins_##type(x))
ADD_256(q4_K, 8, false, MIN_8)
ADD_256(q5_K, 8, false, MIN_8)
ADD_256(q2_K, 16, false, MIN_16)
ADD_256(q3_K, 16, false, OFFSET_4)
ADD_256(q6_K, 16, false, OFFSET_32)
ADD_256(iq4_xs, 8, true, NOTHING)
#define ADD_CODEBOOK(TYPE, type, n_runs, offset) ADD_256(type, n_runs, false, OFFSET_##n_runs##_##offset)
CODEBOOK_FORMATS(ADD_CODEBOOK)
#undef MIN
#undef OFFSET

// All runs have the same scale, so the products of a block are added in 16 bits. The bytes are too large by 1.
#define ADD_TERNARY(type) \
    UNPACK_INLINE __m256 add_##type(__m256 sum, const block_##type *x, const int8_t *qs, const int16_t *bsums, float d) { \
        __m256i v[8], p = _mm256_sub_epi16(_mm256_setzero_si256(), load32(bsums)); \
        unpack_##type(x, v); \
        for (int j = 0; j < 8; j++) { \
            p = _mm256_add_epi16(p, _mm256_maddubs_epi16(v[j], load32(qs + 32 * j))); \
        } \
        return _mm256_fmadd_ps(_mm256_cvtepi32_ps(widened(p)), _mm256_set1_ps(d_##type(x) * d), sum); \
    }
ADD_TERNARY(tq1_0)
ADD_TERNARY(tq2_0)

// ---- 8 blocks of 32 ----

// A pair is two blocks of nibbles, one in each half of a vector. The column has the same order: the first 16 bytes of both blocks,
// then the last 16 bytes. split_<type> stores the bytes of a pair, which have the offset that lanes_<type> uses.
#define SPLIT(type, then) \
    UNPACK_INLINE void split_##type(__m256i v[2], const block_##type *b) { \
        const __m256i q = both(b[0].qs, b[1].qs); \
        v[0] = low4(q); \
        v[1] = BITS_AT(q, 4, 15); \
        then; \
    }

UNPACK_INLINE void or_fifth_bits(__m256i v[2], const uint8_t *even, const uint8_t *odd) {
    int32_t a, b;
    memcpy(&a, even, sizeof a);
    memcpy(&b, odd, sizeof b);
    const __m256i h = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_cvtsi32_si128(a)), _mm_cvtsi32_si128(b), 1);
    const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    const __m256i mask = _mm256_set1_epi64x((long long) 0x8040201008040201);
    for (int i = 0; i < 2; i++) {
        const __m256i at = _mm256_add_epi8(which, _mm256_set1_epi8((char) (2 * i)));
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(h, at), mask), mask);
        v[i] = _mm256_or_si256(v[i], _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
    }
}

UNPACK_INLINE void by_table(__m256i v[2], const int8_t *table) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *) table));
    v[0] = _mm256_shuffle_epi8(t, v[0]);
    v[1] = _mm256_shuffle_epi8(t, v[1]);
}

SPLIT(q4_0, (void) 0)
SPLIT(q4_1, (void) 0)
SPLIT(q5_0, or_fifth_bits(v, b[0].qh, b[1].qh))
SPLIT(q5_1, or_fifth_bits(v, b[0].qh, b[1].qh))
SPLIT(iq4_nl, by_table(v, table_iq4))
SPLIT(mxfp4, by_table(v, table_mxfp4_plus_12))

// Defines add_<type>, which adds the products of 8 blocks to the sums. d: the products of the scales of x and of the column. qs: the
// bytes of the column.
#define ADD_PAIRS(type, is_signed) \
    UNPACK_INLINE __m256 add_##type(__m256 sum, const block_##type *x, const int8_t *qs, __m256 d) { \
        __m256i at = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1); \
        _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) { \
            const __m256i y0 = load32(qs + 64 * j), y1 = load32(qs + 64 * j + 32); \
            __m256i v[2], dot; \
            split_##type(v, x + 2 * j); \
            if (is_signed) { \
                dot = _mm256_add_epi32(widened(pairs_signed(v[0], y0)), widened(pairs_signed(v[1], y1))); \
            } else { \
                dot = widened(_mm256_add_epi16(_mm256_maddubs_epi16(v[0], y0), _mm256_maddubs_epi16(v[1], y1))); \
            } \
            sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_permutevar8x32_ps(d, at), sum); \
            at = _mm256_add_epi32(at, _mm256_set1_epi32(2)); \
        } \
        return sum; \
    }
ADD_PAIRS(q4_0, false)
ADD_PAIRS(q4_1, false)
ADD_PAIRS(mxfp4, false)
ADD_PAIRS(iq4_nl, true)
#ifndef __AVX512VNNI__
ADD_PAIRS(q5_0, false)
ADD_PAIRS(q5_1, false)
#else
UNPACK_INLINE uint64_t two_words(const uint8_t *first, const uint8_t *second) {
    return u32_at(first) | (uint64_t) u32_at(second) << 32;
}

// Adds the products of 16 blocks. A vector holds the first or the last 16 elements of four blocks.
#    define IN_FOUR(l) ((l) / 4)
#    define ADD_FIVE(type) \
        UNPACK_INLINE __m512 add_##type(__m512 sum, const block_##type *x, const int8_t *qs, __m512 d) { \
            _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++, x += 4, qs += 128) { \
                const __m512i q = pieces(x->qs, sizeof *x), v[2] = {LOW4(q), HIGH4(q)}; \
                const uint64_t h0 = two_words(x[0].qh, x[1].qh), h1 = two_words(x[2].qh, x[3].qh); \
                __m512i dot = _mm512_setzero_si512(); \
                _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) { \
                    const uint64_t which = 0x0000ffff0000ffffull << 16 * i; \
                    const uint64_t fifth = _pext_u64(h0, which) | _pext_u64(h1, which) << 32; \
                    const __m512i five = _mm512_mask_add_epi8(v[i], fifth, v[i], BYTE_ALL(16)); \
                    dot = _mm512_dpbusd_epi32(dot, five, VI_LOAD(qs + 64 * i)); \
                } \
                const __m512 scales = _mm512_permutexvar_ps(quad_index(EACH_LANE(IN_FOUR), 4 * j), d); \
                sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scales, sum); \
            } \
            return sum; \
        }
ADD_FIVE(q5_0)
ADD_FIVE(q5_1)
#endif

UNPACK_INLINE __m256 add_q8_0(__m256 sum, const block_q8_0 *x, const int8_t *qs, __m256 d) {
    float scale[8];
    _mm256_storeu_ps(scale, d);
    _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) {
        const __m256i dot = widened(pairs_signed(load32(x[j].qs), load32(qs + 32 * j)));
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_broadcast_ss(&scale[j]), sum);
    }
    return sum;
}

// SPDX-License-Identifier: MIT
// gemv_k.h: products of rows in blocks of 256 elements with a few columns, 64 bytes at a time. A run is 16 or 32 elements with a
// common scale. A block is computed in integers: VPMADDUBSW adds two products in 16 bits; add_words multiplies with the scales. A
// row is unpacked once for all columns.
//
// The 64 bytes of an unpacked vector are not adjacent in the row. The column has the same order: an `order` table lists the 16
// units of 16 elements of a block.
#pragma once

#include "cpu/x86/by_rows.h"

UNPACK_INLINE __m512i add_words(__m512i sum, __m512i a, __m512i b) {
#ifdef __AVX512VNNI__
    return _mm512_dpwssd_epi32(sum, a, b);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

struct y_256 {
    float d;
    int16_t sums[16]; // sums of the elements of each run, placed by enum sums; multiplied with the minima or the offset
    int8_t qs[QK_K];
};

static const uint8_t order_nibbles[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};  // q4_K, q5_K
static const uint8_t order_plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};    // q6_K
static const uint8_t order_pairs[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};    // q2_K, q3_K
static const uint8_t order_low_high[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}; // iq4_xs

// ---- the column ----

// 16 runs of 16 elements, or 8 runs of 32 elements in the first or last 8 words.
enum sums { SUMS_16, SUMS_32_FIRST, SUMS_32_LAST };

UNPACK_INLINE void pack(CPU_TABLE, int64_t n, struct y_256 *to, const float *y, const uint8_t *order, const enum sums sums) {
    for (int64_t i = 0; i < n / QK_K; i++, to++) {
        block_q8_K b;
        k->traits[GGML_TYPE_Q8_K].from_float(y + i * QK_K, &b, QK_K);
        memset(to, 0, sizeof *to);
        to->d = b.d;
        for (int u = 0; u < 16; u++) {
            const int first = sums == SUMS_32_LAST ? 8 : 0;
            const int at = sums == SUMS_16 ? u : first + u / 2;
            memcpy(to->qs + 16 * u, b.qs + 16 * order[u], 16);
            to->sums[at] = (int16_t) (to->sums[at] + b.bsums[u]);
        }
    }
}

#define PACK(name, order, sums) \
    static void pack_##name(CPU_TABLE, int64_t n, void *panel, const float *y) { \
        pack(k, n, panel, y, order, sums); \
    }
PACK(nibbles, order_nibbles, SUMS_32_LAST)
PACK(plain, order_plain, SUMS_16)
PACK(pairs, order_pairs, SUMS_16)
PACK(low_high, order_low_high, SUMS_32_FIRST)

// ---- the rows ----

UNPACK_INLINE __m512i load64(const void *at) {
    return _mm512_loadu_si512(at);
}

UNPACK_INLINE __m512i and64(__m512i v, int mask) {
    return _mm512_and_si512(v, _mm512_set1_epi8((char) mask));
}

UNPACK_INLINE __m512i or_bits(__m512i v, __m512i bits, int mask) {
    return _mm512_ternarylogic_epi32(v, bits, _mm512_set1_epi8((char) mask), 0xf8);
}

// Load 32 bytes to both halves of a vector; shift the halves by `low` and `high` bits. Shifts are of 32-bit lanes, so the caller
// masks foreign bits.
UNPACK_INLINE __m512i twice_right(const uint8_t *at, int low, int high) {
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi32(low), _mm256_set1_epi32(high), 1);
    return _mm512_srlv_epi32(_mm512_broadcast_i64x4(load32(at)), by);
}
UNPACK_INLINE __m512i twice_left(const uint8_t *at, int low, int high) {
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi32(low), _mm256_set1_epi32(high), 1);
    return _mm512_sllv_epi32(_mm512_broadcast_i64x4(load32(at)), by);
}

UNPACK_INLINE void unpack64_q4_K(const block_q4_K *b, __m512i *v) {
    for (int j = 0; j < 2; j++) {
        const __m512i q = load64(b->qs + 64 * j);
        v[2 * j] = and64(q, 15);
        v[2 * j + 1] = and64(_mm512_srli_epi16(q, 4), 15);
    }
}

UNPACK_INLINE void unpack64_q5_K(const block_q5_K *b, __m512i *v) {
    const __m512i h = twice_right(b->qh, 0, 2), q0 = load64(b->qs), q1 = load64(b->qs + 64);
    v[0] = or_bits(and64(q0, 15), _mm512_slli_epi16(h, 4), 0x10);
    v[1] = or_bits(and64(_mm512_srli_epi16(q0, 4), 15), _mm512_slli_epi16(h, 3), 0x10);
    v[2] = or_bits(and64(q1, 15), h, 0x10);
    v[3] = or_bits(and64(_mm512_srli_epi16(q1, 4), 15), _mm512_srli_epi16(h, 1), 0x10);
}

UNPACK_INLINE void unpack64_q6_K(const block_q6_K *b, __m512i *v) {
    for (int j = 0; j < 2; j++) {
        const __m512i q = load64(b->ql + 64 * j);
        v[2 * j] = or_bits(and64(q, 15), twice_left(b->qh + 32 * j, 4, 2), 0x30);
        v[2 * j + 1] = or_bits(and64(_mm512_srli_epi16(q, 4), 15), twice_right(b->qh + 32 * j, 0, 2), 0x30);
    }
}

UNPACK_INLINE void unpack64_q2_K(const block_q2_K *b, __m512i *v) {
    const __m512i q = load64(b->qs);
    v[0] = and64(q, 3);
    v[1] = and64(_mm512_srli_epi16(q, 2), 3);
    v[2] = and64(_mm512_srli_epi16(q, 4), 3);
    v[3] = and64(_mm512_srli_epi16(q, 6), 3);
}

UNPACK_INLINE void unpack64_q3_K(const block_q3_K *b, __m512i *v) {
    const __m512i h = twice_right(b->hmask, 0, 4), q = load64(b->qs);
    v[0] = or_bits(and64(q, 3), _mm512_slli_epi16(h, 2), 4);
    v[1] = or_bits(and64(_mm512_srli_epi16(q, 2), 3), _mm512_slli_epi16(h, 1), 4);
    v[2] = or_bits(and64(_mm512_srli_epi16(q, 4), 3), h, 4);
    v[3] = or_bits(and64(_mm512_srli_epi16(q, 6), 3), _mm512_srli_epi16(h, 1), 4);
}

UNPACK_INLINE void unpack64_iq4_xs(const block_iq4_xs *b, __m512i *v) {
    const __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *) table_iq4));
    for (int j = 0; j < 2; j++) {
        const __m512i q = load64(b->qs + 64 * j);
        v[2 * j] = _mm512_shuffle_epi8(table, and64(q, 15));
        v[2 * j + 1] = _mm512_shuffle_epi8(table, and64(_mm512_srli_epi16(q, 4), 15));
    }
}

// 8 scales, then 8 minima (q4_K, q5_K).
UNPACK_INLINE __m256i words_6bit(const uint8_t *from) {
    const __m128i raw = _mm_loadu_si128((const void *) from); // 12 bytes are used
    const __m128i each = _mm_shuffle_epi8(raw, _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11));
    const __m128i above = _mm_shuffle_epi8(raw, _mm_setr_epi8(-1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7));
    const __m128i low = _mm_and_si128(
        _mm_srlv_epi32(each, _mm_setr_epi32(0, 0, 0, 4)), _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(above, 2), _mm_set1_epi8(0x30));
    return _mm256_cvtepu8_epi16(_mm_or_si128(low, high));
}

#define WORDS_6BIT(b) words_6bit((b)->scales)
#define WORDS(type) _mm256_cvtepi8_epi16(scales_##type(b))

// Indices of the scales of the 16-bit sums of vector j. run: elements of a run.
UNPACK_INLINE __m512i scale_indices(const uint8_t *order, int j, const int run) {
    uint16_t which[32];
    for (int i = 0; i < 32; i++) {
        which[i] = (uint16_t) (order[4 * j + i / 8] * 16 / run);
    }
    return load64(which);
}

UNPACK_INLINE __m512i products(__m512i v, __m512i y, const bool is_signed) {
    if (is_signed) { // VPMADDUBSW requires unsigned v
        y = _mm512_mask_sub_epi8(y, _mm512_movepi8_mask(v), _mm512_setzero_si512(), y);
        v = _mm512_abs_epi8(v);
    }
    return _mm512_maddubs_epi16(v, y);
}

#define GEMV(type, order, run, words_of, is_signed, add_min_or_offset) \
    UNPACK_INLINE void rows_##type( \
        int64_t n, float *const *s, const void *vx, size_t bx, int nx, const void *const *vy, const int ny) { \
        __m512i at[4]; \
        for (int j = 0; j < 4; j++) { \
            at[j] = scale_indices(order, j, run); \
        } \
        for (int r = 0; r < nx; r++) { \
            const block_##type *b = (const void *) ((const char *) vx + (size_t) r * bx); \
            __m512 sum[COLS]; \
            __m256 mins[COLS]; \
            EACH_COL(c) { \
                sum[c] = _mm512_setzero_ps(); \
                mins[c] = _mm256_setzero_ps(); \
            } \
            for (int64_t i = 0; i < n / QK_K; i++, b++) { \
                prefetch_ahead(b, sizeof *b); \
                __m512i v[4], scale[4]; \
                unpack64_##type(b, v); \
                const __m256i words = words_of; \
                for (int j = 0; j < 4; j++) { \
                    scale[j] = _mm512_permutexvar_epi16(at[j], _mm512_castsi256_si512(words)); \
                } \
                EACH_COL(c) { \
                    const struct y_256 *y = (const struct y_256 *) vy[c] + i; \
                    __m512i dot = _mm512_setzero_si512(); \
                    for (int j = 0; j < 4; j++) { \
                        dot = add_words(dot, products(v[j], load64(y->qs + 64 * j), is_signed), scale[j]); \
                    } \
                    add_min_or_offset; \
                    sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(f16_as_float(&b->d) * y->d), sum[c]); \
                } \
            } \
            EACH_COL(c) { \
                s[c][r] = _mm512_reduce_add_ps(sum[c]) - sum8(mins[c]); \
            } \
        } \
    } \
    GEMV_BY_ROWS(type)
#define NOTHING (void) 0
#define OFFSET(shift) \
    dot = _mm512_sub_epi32(dot, _mm512_zextsi256_si512(_mm256_slli_epi32(_mm256_madd_epi16(words, load32(y->sums)), shift)))
#define MINS(words) \
    mins[c] = _mm256_fmadd_ps( \
        _mm256_cvtepi32_ps(_mm256_madd_epi16(words, load32(y->sums))), _mm256_set1_ps(f16_as_float(&b->dmin) * y->d), mins[c])
GEMV(q4_K, order_nibbles, 32, WORDS_6BIT(b), false, MINS(words))
GEMV(q5_K, order_nibbles, 32, WORDS_6BIT(b), false, MINS(words))
GEMV(q2_K, order_pairs, 16, WORDS(q2_K), false, MINS(_mm256_cvtepi8_epi16(mins_q2_K(b))))
GEMV(q3_K, order_pairs, 16, WORDS(q3_K), false, OFFSET(2))
GEMV(q6_K, order_plain, 16, WORDS(q6_K), false, OFFSET(5))
GEMV(iq4_xs, order_low_high, 32, WORDS(iq4_xs), true, NOTHING)

void CPU_TIER_FILL(gemv_k)(struct cpu_kernels *k) {
#define ROW(TYPE, type, y) GEMV_ROW(TYPE, type, y, QK_K, y_256)
    ROW(Q4_K, q4_K, nibbles)
    ROW(Q5_K, q5_K, nibbles)
    ROW(Q2_K, q2_K, pairs)
    ROW(Q3_K, q3_K, pairs)
    ROW(Q6_K, q6_K, plain)
    ROW(IQ4_XS, iq4_xs, low_high)
#undef ROW
#ifndef __AVX512VNNI__
    // gemm_q__avx512.c pads columns to a multiple of four. With fewer columns than min_cols, gemm_q__avx512.c is slower.
    k->gemm[GGML_TYPE_Q2_K].min_cols = 7;
    k->gemm[GGML_TYPE_Q4_K].min_cols = 7;
    k->gemm[GGML_TYPE_Q3_K].min_cols = 6;
    k->gemm[GGML_TYPE_Q6_K].min_cols = 8;
    k->gemm[GGML_TYPE_IQ4_XS].min_cols = 13;
#endif
}

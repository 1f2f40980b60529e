// SPDX-License-Identifier: MIT
// gemv_q__avx512.c: products of rows of q8_0 and iq4_nl with a few columns for AVX-512 without VNNI. The magnitudes of a row are
// multiplied with the column (column_q.h) times the signs of the row. Other formats with blocks of 32 keep the kernels of
// gemv_q__avx2.c: fewer ports execute 512-bit instructions.

#include "cpu/x86/by_rows.h"
#include "cpu/x86/column_q.h"

static const uint8_t order[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
PACK_OFFSET(plain, 0, order)
// Units of four blocks: low nibbles first, then high nibbles.
static const uint8_t order_low_high[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
PACK_OFFSET(fours, 0, order_low_high)

// 32 sums of two products, in 16 bits.
UNPACK_INLINE __m512i products(__m512i magnitude, __mmask64 is_negative, __m512i y) {
    return _mm512_maddubs_epi16(magnitude, _mm512_mask_sub_epi8(y, is_negative, _mm512_setzero_si512(), y));
}

UNPACK_INLINE __m512i widened(__m512i pairs) {
    return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

UNPACK_INLINE void add_q8_0(__m512 *sum, const block_q8_0 *x, const struct y_group *const *y, const int ny) {
    const __m256 scales = SCALES_F16(x);
    __m512 d[COLS];
    EACH_COL(c) {
        d[c] = _mm512_castps256_ps512(_mm256_mul_ps(scales, _mm256_loadu_ps(y[c]->scale)));
    }
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
        const __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(load32(x[2 * j].qs)), load32(x[2 * j + 1].qs), 1);
        const __mmask64 is_negative = _mm512_movepi8_mask(v);
        const __m512i magnitude = _mm512_abs_epi8(v), even = _mm512_set1_epi32(2 * j);
        const __m512i block = _mm512_mask_add_epi32(even, 0xff00, even, _mm512_set1_epi32(1)); // the block of each lane
        EACH_COL(c) {
            const __m512i dot = widened(products(magnitude, is_negative, _mm512_loadu_si512(y[c]->qs + 64 * j)));
            sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(block, d[c]), sum[c]);
        }
    }
}

// In table_iq4, entries below 8 are negative.
UNPACK_INLINE void add_iq4_nl(__m512 *sum, const block_iq4_nl *x, const struct y_group *const *y, const int ny) {
    const __m512i table = _mm512_broadcast_i32x4(_mm_abs_epi8(_mm_loadu_si128((const void *) table_iq4)));
    const __m512i low = _mm512_set1_epi8(15);
    const __m256 scales = SCALES_F16(x);
    __m512 d[COLS];
    EACH_COL(c) {
        d[c] = _mm512_castps256_ps512(_mm256_mul_ps(scales, _mm256_loadu_ps(y[c]->scale)));
    }
    _Pragma("GCC unroll 2") for (int j = 0; j < 2; j++, x += 4) {
        const __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(both(x[0].qs, x[1].qs)), both(x[2].qs, x[3].qs), 1);
        const __m512i a = _mm512_shuffle_epi8(table, _mm512_and_si512(q, low));
        const __m512i b = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(q, 4), low));
        const __mmask64 a_is_negative = _mm512_testn_epi8_mask(q, _mm512_set1_epi8(8));
        const __mmask64 b_is_negative = _mm512_testn_epi8_mask(q, _mm512_set1_epi8((char) 0x80));
        const __m512i block =
            _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), _mm512_set1_epi32(4 * j));
        EACH_COL(c) {
            const __m512i p = products(a, a_is_negative, _mm512_loadu_si512(y[c]->qs + 128 * j));
            const __m512i r = products(b, b_is_negative, _mm512_loadu_si512(y[c]->qs + 128 * j + 64));
            const __m512i dot = _mm512_add_epi32(widened(p), widened(r));
            sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(block, d[c]), sum[c]);
        }
    }
}

#define Y_BLOCKS y_group
#define SUMS __m512 sum[COLS]
#define SUMS_ZERO(c) sum[c] = _mm512_setzero_ps()
#define SUMS_ADD(type, x) add_##type(sum, x, y, ny)
#define SUMS_END(c) _mm512_reduce_add_ps(sum[c])
ROWS_32(q8_0)
ROWS_32(iq4_nl)

void cpu_tier_avx512_gemv_q(struct cpu_kernels *k) {
    GEMV_ROW(Q8_0, q8_0, plain, GROUP, y_group)
    GEMV_ROW(IQ4_NL, iq4_nl, fours, GROUP, y_group)
    // gemm_q__avx512.c pads columns to a multiple of four. With fewer columns than min_cols, gemm_q__avx512.c is slower.
    k->gemm[GGML_TYPE_Q8_0].min_cols = 11;
    k->gemm[GGML_TYPE_IQ4_NL].min_cols = 11;
}

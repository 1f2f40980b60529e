// SPDX-License-Identifier: MIT
// gemm_q__avx2.c: products of quantised rows with many columns, in tiles of 8 rows by 4 columns. A vector holds four bytes of
// each of 8 rows. So each lane is the sum of one row, and the scales of 8 rows have the same layout.
//
// Elements of at most 6 bits are unsigned. Two sums of VPMADDUBSW can be added in 16 bits. Elements of 8 bits stay signed
// (OFFSET_8BIT is 0): their magnitudes are multiplied with the column times their signs.

#define MR 8
#ifndef NR // smaller in the tiers sse42 and avx (sse.h)
#    define NR 4
#endif
#define OFFSET_8BIT 0

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q.h"

UNPACK_INLINE __m256i pairs(__m256i x, __m256i y, const bool is_signed) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x)) : _mm256_maddubs_epi16(x, y);
}

UNPACK_INLINE void run_multiply(
    __m256i t[NR][VECS], const char *x, const char *y, const int R, const bool has_min, const bool is_signed, const int n_cols) {
    (void) has_min;
    const __m256i ones = _mm256_set1_epi16(1);
    int n_pairs = R / 8;
    __asm__("" : "+r"(n_pairs)); // prevents unrolling: sums would not fit in registers
    for (int j = 0; j < n_pairs; j++, x += 2 * 4 * MR, y += 2 * 4 * NR) {
        const __m256i x0 = load32(x), x1 = load32(x + 4 * MR);
        EACH_COLUMN(c) {
            const __m256i p0 = pairs(x0, quad_at(y + 4 * c), is_signed), p1 = pairs(x1, quad_at(y + 4 * (NR + c)), is_signed);
            if (is_signed) {
                t[c][0] = _mm256_add_epi32(t[c][0], _mm256_madd_epi16(p0, ones));
                t[c][0] = _mm256_add_epi32(t[c][0], _mm256_madd_epi16(p1, ones));
            } else {
                t[c][0] = _mm256_add_epi32(t[c][0], _mm256_madd_epi16(_mm256_add_epi16(p0, p1), ones));
            }
        }
    }
}

GEMM_Q_TIER(CPU_TIER_FILL(gemm_q))

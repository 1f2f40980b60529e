// SPDX-License-Identifier: MIT
// gemm_q__avx512.c: products of quantised rows with many columns, in tiles of 32 rows by 4 columns, for AVX-512 without VNNI. A
// vector holds four bytes of each of 16 rows.
//
// Elements of at most 6 bits are unsigned. Sums of 8 products of 5-bit elements, or of 4 products of 6-bit elements, fit in 16
// bits. Elements of 8 bits stay signed (OFFSET_8BIT is 0): their magnitudes are multiplied with the column times their signs.

#define MR 32
#define NR 4
#define OFFSET_8BIT 0

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q.h"

UNPACK_INLINE __m512i widened(__m512i sum, __m512i pairs) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

// Four signed bytes of each row.
UNPACK_INLINE void add_signed(__m512i t[NR][VECS], const char *xb, const char *yb, const int n_cols) {
    __m512i x[2];
    __mmask64 is_negative[2];
    EACH_VEC(v) {
        const __m512i q = _mm512_loadu_si512(xb + 64 * v);
        is_negative[v] = _mm512_movepi8_mask(q);
        x[v] = _mm512_abs_epi8(q);
    }
    EACH_COLUMN(c) {
        const __m512i y = quad_at(yb + 4 * c);
        EACH_VEC(v) {
            const __m512i signs = _mm512_mask_sub_epi8(y, is_negative[v], _mm512_setzero_si512(), y);
            t[c][v] = widened(t[c][v], _mm512_maddubs_epi16(x[v], signs));
        }
    }
}

// n_quads * 4 unsigned bytes of each row. Products are added in 16 bits first.
UNPACK_INLINE void add_unsigned(__m512i t[NR][VECS], const char *xb, const char *yb, const int n_quads, const int n_cols) {
    __m512i p[NR][VECS];
    _Pragma("GCC unroll 4") for (int j = 0; j < n_quads; j++) {
        const __m512i x[2] = {_mm512_loadu_si512(xb + 4 * MR * j), _mm512_loadu_si512(xb + 4 * MR * j + 64)};
        EACH_COLUMN(c) {
            const __m512i y = quad_at(yb + 4 * (NR * j + c));
            EACH_VEC(v) {
                const __m512i two = _mm512_maddubs_epi16(x[v], y);
                p[c][v] = j == 0 ? two : _mm512_add_epi16(p[c][v], two);
            }
        }
    }
    EACH_COLUMN(c) {
        EACH_VEC(v) {
            t[c][v] = widened(t[c][v], p[c][v]);
        }
    }
}

UNPACK_INLINE void run_multiply(
    __m512i t[NR][VECS], const char *x, const char *y, const int R, const bool has_min, const bool is_signed, const int n_cols) {
    const int n_unsigned = R == 16 && !has_min ? 2 : 4; // q6_K has 6 bits; q3_K shares its kernel
    const int n_quads = is_signed ? 1 : n_unsigned;
    for (int j = 0; j < R / 4; j += n_quads, x += 4 * MR * n_quads, y += 4 * NR * n_quads) {
        if (is_signed) {
            add_signed(t, x, y, n_cols);
        } else {
            add_unsigned(t, x, y, n_quads, n_cols);
        }
    }
}

GEMM_Q_TIER(cpu_tier_avx512_gemm_q)

// SPDX-License-Identifier: MIT
// gemm_q__avx512.c: products of quantised rows with many columns, 32 rows times 4 columns, without VNNI: a vector holds four
// bytes of each of 16 rows, which meet four bytes of a column, the same for all.
//
// Unsigned bytes of 5 bits times bytes: sums of 8 products fit into 16 bits, of 6 bits those of 4, before they are widened.
// Bytes of 8 bits stay signed (panel_q.h: offset 0) and are multiplied by magnitude, with their signs given to the column.

#define MR 32
#define NR 4
#define MIN_COLS 4
#define MIN_COLS_256 5 // gemv_k.h takes four at once
#define OFFSET_8BIT 0

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q.h"

UNPACK_INLINE __m512i widened(__m512i sum, __m512i pairs) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

// Four bytes of every row and column, 8 bits each.
UNPACK_INLINE void add_signed(__m512i t[NR][VECS], const char *xb, const char *yb) {
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

// n_quads times four bytes, which are added up in 16 bits.
UNPACK_INLINE void add_unsigned(__m512i t[NR][VECS], const char *xb, const char *yb, const int n_quads) {
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
    __m512i t[NR][VECS], const char *x, const char *y, const int R, const bool has_min, const bool is_signed) {
    const int n_unsigned = R == 16 && !has_min ? 2 : 4; // q6_K alone has 6 bits
    const int n_quads = is_signed ? 1 : n_unsigned;
    for (int j = 0; j < R / 4; j += n_quads, x += 4 * MR * n_quads, y += 4 * NR * n_quads) {
        if (is_signed) {
            add_signed(t, x, y);
        } else {
            add_unsigned(t, x, y, n_quads);
        }
    }
}

GEMM_Q_TIER(cpu_tier_avx512_gemm_q)

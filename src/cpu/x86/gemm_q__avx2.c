// SPDX-License-Identifier: MIT
// gemm_q__avx2.c: products of quantised rows with many columns, 8 rows times 4 columns: a vector holds four bytes of each row,
// which meet four bytes of a column, the same for all. So sums need not be added across a vector, and scales lie as sums do.
//
// Unsigned bytes of 6 bits times bytes: two products of pairs fit into 16 bits, and two vectors go into one widening.
// Bytes of 8 bits stay signed (panel_q.h: offset 0) and are multiplied by magnitude, with their signs given to the column.

#define MR 8
#ifndef NR // fewer where vectors are two registers
#    define NR 4
#endif
#define MIN_COLS 4
#define OFFSET_8BIT 0

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q.h"

UNPACK_INLINE __m256i pairs(__m256i x, __m256i y, const bool is_signed) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x)) : _mm256_maddubs_epi16(x, y);
}

UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_signed) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 sum[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        sum[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        const char *xb = x + 4 * (1 + has_min) * MR, *yb = y + 4 * 2 * NR;
        __m256i t[NR];
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            t[c] = has_min || is_signed ? _mm256_setzero_si256() : quad_at(y + 4 * c);
        }
        int n_pairs = R / 8;
        __asm__("" : "+r"(n_pairs)); // unrolled, the sums of a run no longer fit into the registers
        for (int j = 0; j < n_pairs; j++, xb += 2 * 4 * MR, yb += 2 * 4 * NR) {
            const __m256i x0 = load32(xb), x1 = load32(xb + 4 * MR);
            _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
                const __m256i p0 = pairs(x0, quad_at(yb + 4 * c), is_signed),
                              p1 = pairs(x1, quad_at(yb + 4 * (NR + c)), is_signed);
                if (is_signed) {
                    t[c] = _mm256_add_epi32(t[c], _mm256_madd_epi16(p0, ones));
                    t[c] = _mm256_add_epi32(t[c], _mm256_madd_epi16(p1, ones));
                } else {
                    t[c] = _mm256_add_epi32(t[c], _mm256_madd_epi16(_mm256_add_epi16(p0, p1), ones));
                }
            }
        }
        add_run(sum, t, x, y, has_min);
    }
    put_sums(s, ld_s, sum, nx, ny);
}

GEMM_Q_TIER(CPU_TIER_FILL(gemm_q))

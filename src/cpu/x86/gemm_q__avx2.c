// SPDX-License-Identifier: MIT
// gemm_q__avx2.c: products of quantised rows with many columns, 8 rows times 4 columns: a vector holds four bytes of each row,
// which meet four bytes of a column, the same for all. So sums need not be added across a vector, and scales lie as sums do.
//
// Unsigned bytes of 6 bits times bytes: two products of pairs fit into 16 bits, and two vectors go into one widening.
// Bytes of 8 bits stay signed (panel_q.h: offset 0) and are multiplied by magnitude, with their signs given to the column.

#define MR 8
#define NR 4
#define MIN_COLS 4
#define OFFSET_8BIT 0

#include "cpu/x86/panel_q.h"

UNPACK_INLINE __m256i quad_at(const char *at) {
    int32_t v;
    memcpy(&v, at, sizeof v);
    return _mm256_set1_epi32(v);
}

UNPACK_INLINE __m256 float_at(const char *at) {
    float v;
    memcpy(&v, at, sizeof v);
    return _mm256_set1_ps(v);
}

UNPACK_INLINE __m256i pairs(__m256i x, __m256i y, const bool is_signed) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x)) : _mm256_maddubs_epi16(x, y);
}

UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_signed) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 sum[NR];
    for (int c = 0; c < NR; c++) {
        sum[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        const char *xb = x + 4 * (1 + has_min) * MR, *yb = y + 4 * 2 * NR;
        __m256i t[NR];
        for (int c = 0; c < NR; c++) {
            t[c] = has_min || is_signed ? _mm256_setzero_si256() : quad_at(y + 4 * c);
        }
        int n_pairs = R / 8;
        __asm__("" : "+r"(n_pairs)); // unrolled, the sums of a run no longer fit into the registers
        for (int j = 0; j < n_pairs; j++, xb += 2 * 4 * MR, yb += 2 * 4 * NR) {
            const __m256i x0 = load32(xb), x1 = load32(xb + 4 * MR);
            for (int c = 0; c < NR; c++) {
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
        const __m256 scale = _mm256_loadu_ps((const float *) (const void *) x);
        for (int c = 0; c < NR; c++) {
            sum[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t[c]), _mm256_mul_ps(scale, float_at(y + 4 * (NR + c))), sum[c]);
            if (has_min) {
                sum[c] = _mm256_fmadd_ps(_mm256_loadu_ps((const float *) (const void *) x + MR), float_at(y + 4 * c), sum[c]);
            }
        }
    }
    float tile[NR][MR];
    for (int c = 0; c < NR; c++) {
        _mm256_storeu_ps(tile[c], sum[c]);
    }
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

#define RUN(how, R, has_min, is_signed) \
    static void run_##how(int64_t n, float *s, int64_t ld_s, const void *x, int nx, const void *y, int ny) { \
        product(n, s, ld_s, x, nx, y, ny, R, has_min, is_signed); \
    }
RUN(8bit, 32, false, true)
RUN(32, 32, false, false)
RUN(32_min, 32, true, false)
RUN(16, 16, false, false)
RUN(16_min, 16, true, false)

void cpu_tier_avx2_gemm_q(struct cpu_kernels *k) {
    gemm_q_fill(k, run_8bit, run_32, run_32_min, run_16, run_16_min);
}

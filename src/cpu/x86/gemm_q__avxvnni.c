// SPDX-License-Identifier: MIT
// gemm_q__avxvnni.c: products of quantised rows with many columns, 8 rows times 6 columns, as gemm_q__vnni.c does them, with the
// vectors of machines without AVX-512.

#define MR 8
#define NR 6
#define MIN_COLS 4
#define OFFSET_8BIT 128

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q.h"

UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_8bit) {
    (void) is_8bit; // all bytes are unsigned here
    __m256 sum[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        sum[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        const char *xb = x + 4 * (1 + has_min) * MR, *yb = y + 4 * 2 * NR;
        __m256i t[NR];
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            t[c] = has_min ? _mm256_setzero_si256() : quad_at(y + 4 * c);
        }
        for (int j = 0; j < R / 4; j++, xb += 4 * MR, yb += 4 * NR) {
            const __m256i x0 = load32(xb);
            _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
                t[c] = _mm256_dpbusd_avx_epi32(t[c], x0, quad_at(yb + 4 * c));
            }
        }
        add_run(sum, t, x, y, has_min);
    }
    put_sums(s, ld_s, sum, nx, ny);
}

GEMM_Q_TIER(cpu_tier_avxvnni_gemm_q)

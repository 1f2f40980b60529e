// SPDX-License-Identifier: MIT
// gemm_f__sse42.c: gemm_f__avx2.c with vectors of 16 bytes: 8 rows times 6 columns, so that the sums stay in registers.

#include "cpu/x86/sse.h"

#define MR 8
#define NR 6
#define MIN_COLS_F32 10
#define MIN_COLS_F16 3 // halves are widened one by one: once for all columns
#define MIN_COLS_BF16 20

#include "cpu/x86/panel_f.h"

static void panels_run(int64_t n, float *s, int64_t ld_s, const void *panel_x, int nx, const void *panel_y, int ny) {
    const float *x = panel_x, *y = panel_y;
    __m256 a[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        a[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i++, x += MR, y += NR) {
        const __m256 v = _mm256_loadu_ps(x);
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            a[c] = _mm256_fmadd_ps(v, _mm256_broadcast_ss(y + c), a[c]);
        }
    }
    float tile[NR][MR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        _mm256_storeu_ps(tile[c], a[c]);
    }
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

void cpu_tier_sse42_gemm_f(struct cpu_kernels *k) {
    panels_fill(k, panels_run);
}

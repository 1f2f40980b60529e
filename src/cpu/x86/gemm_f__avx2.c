// SPDX-License-Identifier: MIT
// gemm_f__avx2.c: products of rows of floats, halves and bfloat16 with many columns: 16 rows times 6 columns, element by element
// of all of them. Twelve sums stay in registers; two loads of rows and six of columns feed twelve multiply-adds.

#define MR 16
#define NR 6
#define MIN_COLS_F32 10
#ifndef MIN_COLS_F16 // fewer where halves are widened one by one: once for all columns
#    define MIN_COLS_F16 20
#endif
#define MIN_COLS_BF16 20

#include "cpu/x86/panel_f.h"

#include <string.h>

static void panels_run(int64_t n, float *s, int64_t ld_s, const void *panel_x, int nx, const void *panel_y, int ny) {
    const float *x = panel_x, *y = panel_y;
    __m256 a[NR], b[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        a[c] = b[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i++, x += MR, y += NR) {
        const __m256 x0 = _mm256_loadu_ps(x), x1 = _mm256_loadu_ps(x + 8);
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            const __m256 v = _mm256_broadcast_ss(y + c);
            a[c] = _mm256_fmadd_ps(x0, v, a[c]);
            b[c] = _mm256_fmadd_ps(x1, v, b[c]);
        }
    }
    float tile[NR][MR];
    const bool whole = nx == MR && ny == NR;
    float *to = whole ? s : tile[0];
    const int64_t ld = whole ? ld_s : MR;
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        _mm256_storeu_ps(to + c * ld, a[c]);
        _mm256_storeu_ps(to + c * ld + 8, b[c]);
    }
    for (int c = 0; c < ny && !whole; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

void CPU_TIER_FILL(gemm_f)(struct cpu_kernels *k) {
    panels_fill(k, panels_run);
}

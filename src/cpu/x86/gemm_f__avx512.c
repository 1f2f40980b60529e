// SPDX-License-Identifier: MIT
// gemm_f__avx512.c: products of rows of floats, halves and bfloat16 with many columns: 32 rows times 12 columns, element by
// element of all of them. Twenty-four sums stay in registers.

#define MR 32
#define NR 12
#define MIN_COLS_F32 24
#define MIN_COLS_F16 40
#define MIN_COLS_BF16 40

#include "cpu/x86/panel_f.h"

#include <string.h>

static void panels_run(int64_t n, float *s, int64_t ld_s, const void *panel_x, int nx, const void *panel_y, int ny) {
    const float *x = panel_x, *y = panel_y;
    __m512 a[NR], b[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        a[c] = b[c] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < n; i++, x += MR, y += NR) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            const __m512 v = _mm512_set1_ps(y[c]);
            a[c] = _mm512_fmadd_ps(x0, v, a[c]);
            b[c] = _mm512_fmadd_ps(x1, v, b[c]);
        }
    }
    float tile[NR][MR];
    const bool whole = nx == MR && ny == NR;
    float *to = whole ? s : tile[0];
    const int64_t ld = whole ? ld_s : MR;
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        _mm512_storeu_ps(to + c * ld, a[c]);
        _mm512_storeu_ps(to + c * ld + 16, b[c]);
    }
    for (int c = 0; c < ny && !whole; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

void cpu_tier_avx512_gemm_f(struct cpu_kernels *k) {
    panels_fill(k, panels_run);
}

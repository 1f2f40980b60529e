// SPDX-License-Identifier: MIT
// gemm_q__avxvnni.c: products of quantised rows with many columns, 8 rows times 6 columns, as gemm_q__vnni.c does them, with the
// vectors of machines without AVX-512.

#define MR 8
#define NR 6
#define MIN_COLS 4
#define OFFSET_8BIT 128

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

UNPACK_INLINE void product(
    int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R, const bool has_min) {
    __m256 sum[NR];
    for (int c = 0; c < NR; c++) {
        sum[c] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        const char *xb = x + 4 * (1 + has_min) * MR, *yb = y + 4 * 2 * NR;
        __m256i t[NR];
        for (int c = 0; c < NR; c++) {
            t[c] = has_min ? _mm256_setzero_si256() : quad_at(y + 4 * c);
        }
        for (int j = 0; j < R / 4; j++, xb += 4 * MR, yb += 4 * NR) {
            const __m256i x0 = load32(xb);
            for (int c = 0; c < NR; c++) {
                t[c] = _mm256_dpbusd_avx_epi32(t[c], x0, quad_at(yb + 4 * c));
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

#define RUN(how, R, has_min) \
    static void run_##how(int64_t n, float *s, int64_t ld_s, const void *x, int nx, const void *y, int ny) { \
        product(n, s, ld_s, x, nx, y, ny, R, has_min); \
    }
RUN(8bit, 32, false)
RUN(32, 32, false)
RUN(32_min, 32, true)
RUN(16, 16, false)
RUN(16_min, 16, true)

void cpu_tier_avxvnni_gemm(struct cpu_kernels *k) {
    gemm_q_fill(k, run_8bit, run_32, run_32_min, run_16, run_16_min);
}

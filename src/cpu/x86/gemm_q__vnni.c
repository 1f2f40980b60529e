// SPDX-License-Identifier: MIT
// gemm_q__vnni.c: products of quantised rows with many columns, 32 rows times 6 columns: a vector holds four bytes of each of 16
// rows, which meet four bytes of a column, the same for all, in one instruction that multiplies and adds. Twelve sums of
// integers are enough to hide its latency (5 cycles, two a cycle).

#define MR 32
#define NR 6
#define MIN_COLS 4
#define OFFSET_8BIT 128

#include "cpu/x86/panel_q.h"

UNPACK_INLINE __m512i quad_at(const char *at) {
    int32_t v;
    memcpy(&v, at, sizeof v);
    return _mm512_set1_epi32(v);
}

UNPACK_INLINE __m512 float_at(const char *at) {
    float v;
    memcpy(&v, at, sizeof v);
    return _mm512_set1_ps(v);
}

UNPACK_INLINE __m512 floats_at(const char *at) {
    return _mm512_loadu_ps((const void *) at);
}

UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_8bit) {
    (void) is_8bit; // all bytes are unsigned here
    __m512 sum0[NR], sum1[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        sum0[c] = sum1[c] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        const char *xb = x + 4 * (1 + has_min) * MR, *yb = y + 4 * 2 * NR;
        __m512i t0[NR], t1[NR];
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            t0[c] = t1[c] = has_min ? _mm512_setzero_si512() : quad_at(y + 4 * c);
        }
        for (int j = 0; j < R / 4; j++, xb += 4 * MR, yb += 4 * NR) {
            const __m512i x0 = _mm512_loadu_si512(xb), x1 = _mm512_loadu_si512(xb + 64);
            _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
                const __m512i q = quad_at(yb + 4 * c);
                t0[c]           = _mm512_dpbusd_epi32(t0[c], x0, q);
                t1[c]           = _mm512_dpbusd_epi32(t1[c], x1, q);
            }
        }
        _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
            const __m512 d = float_at(y + 4 * (NR + c));
            sum0[c]        = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t0[c]), _mm512_mul_ps(floats_at(x), d), sum0[c]);
            sum1[c]        = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t1[c]), _mm512_mul_ps(floats_at(x + 64), d), sum1[c]);
            if (has_min) {
                const __m512 first = float_at(y + 4 * c);
                sum0[c]            = _mm512_fmadd_ps(floats_at(x + 4 * MR), first, sum0[c]);
                sum1[c]            = _mm512_fmadd_ps(floats_at(x + 4 * MR + 64), first, sum1[c]);
            }
        }
    }
    float tile[NR][MR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        _mm512_storeu_ps(tile[c], sum0[c]);
        _mm512_storeu_ps(tile[c] + 16, sum1[c]);
    }
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}

GEMM_Q_TIER(cpu_tier_vnni_gemm)

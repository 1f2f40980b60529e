// SPDX-License-Identifier: MIT
// gemv_f16__fhm.c: one or two columns times f16 rows, two rows at a time (streams.h). Loads limit the speed, and each load of a
// column serves both rows. FMLAL with a factor of 1 adds f16 sums of eight products to f32 sums, on any pipe. Adding every
// product in f32 would be exact, but takes 20% longer if the rows are in the last-level cache.

#include "cpu/arm/gemv_f16.h"
#include "cpu/arm/streams.h"
#include "cpu/kernels.h"

#include <stddef.h>
#include <string.h>

#define MAX_COLS 2 // columns per pass

// 8 f16 sums of four products each.
static inline __attribute__((always_inline)) float16x8_t product4(const uint16_t *x, const float16x8_t *y) {
    const float16x8_t t = vfmaq_f16(vmulq_f16(f16_at(x), y[0]), f16_at(x + 8), y[1]);
    return vfmaq_f16(vfmaq_f16(t, f16_at(x + 16), y[2]), f16_at(x + 24), y[3]);
}

static inline __attribute__((always_inline)) void add64(float32x4_t *sum, const uint16_t *x, const float16x8_t *y) {
    const float16x8_t one = vdupq_n_f16(1), t = vaddq_f16(product4(x, y), product4(x + 32, y + 4));
    sum[0] = vfmlalq_low_f16(sum[0], t, one);
    sum[1] = vfmlalq_high_f16(sum[1], t, one);
}

static inline __attribute__((always_inline)) void add64_cols(float32x4_t (*sum_a)[2], float32x4_t (*sum_b)[2], const uint16_t *a,
    const uint16_t *b, const struct segment *const *y, int64_t i, const int nc) {
    for (int c = 0; c < nc; c++) {
        float16x8_t v[8];
        for (int j = 0; j < 8; j++) {
            v[j] = f16_at(y[c]->y + i + 8 * j);
        }
        add64(sum_a[c], a, v);
        add64(sum_b[c], b, v);
    }
}

// m: elements in the segment.
static inline __attribute__((always_inline)) void segment2(int64_t m, const uint16_t *a, const uint16_t *b,
    const struct segment *const *y, const int nc, float32x4_t *all_a, float32x4_t *all_b) {
    const float32x4_t zero = vdupq_n_f32(0.0f);
    float32x4_t sum_a[MAX_COLS][2] = {{zero, zero}, {zero, zero}}, sum_b[MAX_COLS][2] = {{zero, zero}, {zero, zero}};
    int64_t i = 0;
    for (; i + 64 <= m; i += 64) {
        add64_cols(sum_a, sum_b, a + i, b + i, y, i, nc);
    }
    if (i < m) {
        uint16_t rest_a[64] = {0}, rest_b[64] = {0};
        memcpy(rest_a, a + i, (size_t) (m - i) * sizeof *a);
        memcpy(rest_b, b + i, (size_t) (m - i) * sizeof *b);
        add64_cols(sum_a, sum_b, rest_a, rest_b, y, i, nc);
    }
    for (int c = 0; c < nc; c++) {
        all_a[c] = vfmaq_n_f32(all_a[c], vaddq_f32(sum_a[c][0], sum_a[c][1]), y[c]->unscale);
        all_b[c] = vfmaq_n_f32(all_b[c], vaddq_f32(sum_b[c][0], sum_b[c][1]), y[c]->unscale);
    }
}

// nc: 1 or MAX_COLS.
static inline __attribute__((always_inline)) void rows2(int64_t n, const uint16_t *a, const uint16_t *b, const struct segment *y0,
    const struct segment *y1, const int nc, float *s_a, float *s_b) {
    float32x4_t all_a[MAX_COLS] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)}, all_b[MAX_COLS] = {all_a[0], all_a[0]};
    for (; n >= STEP; n -= STEP, a += STEP, b += STEP, y0++, y1++) { // constant length, so that the loop is unrolled
        segment2(STEP, a, b, (const struct segment *const[MAX_COLS]){y0, y1}, nc, all_a, all_b);
    }
    if (n > 0) {
        segment2(n, a, b, (const struct segment *const[MAX_COLS]){y0, y1}, nc, all_a, all_b);
    }
    for (int c = 0; c < nc; c++) {
        s_a[c] = vaddvq_f32(all_a[c]);
        s_b[c] = vaddvq_f32(all_b[c]);
    }
}

static inline float finite_or_recomputed(float s, int64_t n, const char *x, const struct segment *y) {
    return isfinite(s) ? s : row_recompute_f32(n, (const void *) x, y);
}

static void gemv__fhm(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) {
    for (struct streams at = streams(s, x, bx, nx); streams_have(&at); streams_next(&at)) {
        float a, b;
        rows2(n, (const void *) at.a, (const void *) at.b, y, y, 1, &a, &b);
        *at.s_a = finite_or_recomputed(a, n, at.a, y);
        *at.s_b = finite_or_recomputed(b, n, at.b, y);
    }
}

static void gemv_cols__fhm(int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny) {
    for (struct streams at = streams(s[0], x, bx, nx); streams_have(&at); streams_next(&at)) {
        const ptrdiff_t r_a = at.s_a - s[0], r_b = at.s_b - s[0];
        for (int c = 0, nc; c < ny; c += nc) {
            float a[MAX_COLS], b[MAX_COLS];
            nc = ny - c < MAX_COLS ? 1 : MAX_COLS;
            if (nc == 1) {
                rows2(n, (const void *) at.a, (const void *) at.b, y[c], y[c], 1, a, b);
            } else {
                rows2(n, (const void *) at.a, (const void *) at.b, y[c], y[c + 1], MAX_COLS, a, b);
            }
            for (int j = 0; j < nc; j++) {
                s[c + j][r_a] = finite_or_recomputed(a[j], n, at.a, y[c + j]);
                s[c + j][r_b] = finite_or_recomputed(b[j], n, at.b, y[c + j]);
            }
        }
    }
}

void cpu_tier_fhm_gemv_f16(struct cpu_kernels *k) {
    k->gemv[GGML_TYPE_F16].run = gemv__fhm;
    k->gemv[GGML_TYPE_F16].run_cols = gemv_cols__fhm;
}

// SPDX-License-Identifier: MIT
// tile__neon.c: 4 by 4 dot products of f32 or f16 rows at once. Each vector that is loaded is used four times, where a single dot
// product uses it once: 16 multiply-adds for 8 loads, in 24 of the 32 registers. Tiles that are not full take the single kernel.

#include "cpu/arm/tiers.h"

#include <arm_neon.h>
#include <stddef.h>

#define MR 4
#define NR 4

static inline float32x4_t load_f32(const char *row, int64_t i) {
    return vld1q_f32((const float *) (const void *) row + i);
}

static inline float32x4_t load_f16(const char *row, int64_t i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *) (const void *) row + i)));
}

static inline float one_f32(const char *row, int64_t i) {
    return ((const float *) (const void *) row)[i];
}

static inline float one_f16(const char *row, int64_t i) {
    const uint16x4_t h = vdup_n_u16(((const uint16_t *) (const void *) row)[i]);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(h)), 0);
}

#define ROW_OF_FOUR(r) \
    a##r##0 = vfmaq_f32(a##r##0, x##r, y0); \
    a##r##1 = vfmaq_f32(a##r##1, x##r, y1); \
    a##r##2 = vfmaq_f32(a##r##2, x##r, y2); \
    a##r##3 = vfmaq_f32(a##r##3, x##r, y3);
#define ZEROS(r) float32x4_t a##r##0 = vdupq_n_f32(0), a##r##1 = a##r##0, a##r##2 = a##r##0, a##r##3 = a##r##0;
// the four sums of one row of y, side by side as they lie in the result
#define STORE(c) vst1q_f32(s + c * ld_s, vpaddq_f32(vpaddq_f32(a0##c, a1##c), vpaddq_f32(a2##c, a3##c)));

#define TILE(name, load, one) \
    static void name##_full(int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, const char *y, size_t by) { \
        const char *px1 = x + bx, *px2 = px1 + bx, *px3 = px2 + bx; \
        const char *py1 = y + by, *py2 = py1 + by, *py3 = py2 + by; \
        ZEROS(0) ZEROS(1) ZEROS(2) ZEROS(3) int64_t i = 0; \
        for (; i + 4 <= n; i += 4) { \
            const float32x4_t x0 = load(x, i), x1 = load(px1, i), x2 = load(px2, i), x3 = load(px3, i); \
            const float32x4_t y0 = load(y, i), y1 = load(py1, i), y2 = load(py2, i), y3 = load(py3, i); \
            ROW_OF_FOUR(0) ROW_OF_FOUR(1) ROW_OF_FOUR(2) ROW_OF_FOUR(3) \
        } \
        STORE(0) STORE(1) STORE(2) STORE(3) for (; i < n; i++) { \
            for (int c = 0; c < NR; c++) { \
                for (int r = 0; r < MR; r++) { \
                    s[r + c * ld_s] += one(x + (size_t) r * bx, i) * one(y + (size_t) c * by, i); \
                } \
            } \
        } \
    }
TILE(tile_f32, load_f32, one_f32)
TILE(tile_f16, load_f16, one_f16)

static ggml_vec_dot_t dot_f32, dot_f16; // the single kernels, set once by cpu_tier_neon_tile

static void tile_rest(
    ggml_vec_dot_t dot, int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, int nx, const char *y, size_t by, int ny) {
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            dot((int) n, s + r + c * ld_s, 0, x + (size_t) r * bx, 0, y + (size_t) c * by, 0, 1);
        }
    }
}

static void tile_f32__neon(
    int64_t n, float *s, int64_t ld_s, const void *x, size_t bx, int nx, const void *y, size_t by, int ny) {
    if (nx == MR && ny == NR) {
        tile_f32_full(n, s, ld_s, x, bx, y, by);
    } else {
        tile_rest(dot_f32, n, s, ld_s, x, bx, nx, y, by, ny);
    }
}

static void tile_f16__neon(
    int64_t n, float *s, int64_t ld_s, const void *x, size_t bx, int nx, const void *y, size_t by, int ny) {
    if (nx == MR && ny == NR) {
        tile_f16_full(n, s, ld_s, x, bx, y, by);
    } else {
        tile_rest(dot_f16, n, s, ld_s, x, bx, nx, y, by, ny);
    }
}

void cpu_tier_neon_tile(struct cpu_kernels *k) {
    dot_f32                = k->traits[GGML_TYPE_F32].vec_dot;
    dot_f16                = k->traits[GGML_TYPE_F16].vec_dot;
    k->tile[GGML_TYPE_F32] = (struct cpu_tile){tile_f32__neon, MR, NR};
    k->tile[GGML_TYPE_F16] = (struct cpu_tile){tile_f16__neon, MR, NR};
}

// SPDX-License-Identifier: MIT
// dot__neon.c: dot products of f32 and f16 rows. f16 values are converted to f32 first. Eight accumulators hide the latency: 4
// cycles, two multiply-adds per cycle.

#include "base/min.h"
#include "cpu/kernels.h"

#include <arm_neon.h>
#include <stddef.h>

static float sum_f32x8(const float32x4_t *a) {
    const float32x4_t s0 = vaddq_f32(vaddq_f32(a[0], a[1]), vaddq_f32(a[2], a[3]));
    const float32x4_t s1 = vaddq_f32(vaddq_f32(a[4], a[5]), vaddq_f32(a[6], a[7]));
    return vaddvq_f32(vaddq_f32(s0, s1));
}

static inline float32x4_t load_f32(const float *x) {
    return vld1q_f32(x);
}

static inline float32x4_t load_f16(const uint16_t *x) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}

static inline float one_f32(const float *x) {
    return *x;
}

static inline float one_f16(const uint16_t *x) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(*x))), 0);
}

#define DOT(type, element) \
    static void vec_dot_##type##__neon(CPU_DOT_ARGS) { \
        const element *x = vx, *y = vy; \
        float32x4_t a[8]; \
        for (int j = 0; j < 8; j++) { \
            a[j] = vdupq_n_f32(0.0f); \
        } \
        int i = 0; \
        for (; i + 32 <= n; i += 32) { \
            for (int j = 0; j < 8; j++) { \
                a[j] = vfmaq_f32(a[j], load_##type(x + i + 4 * j), load_##type(y + i + 4 * j)); \
            } \
        } \
        float sum = sum_f32x8(a); \
        for (; i < n; i++) { \
            sum += one_##type(x + i) * one_##type(y + i); \
        } \
        *s = sum; \
    }
DOT(f32, float)
DOT(f16, uint16_t)

static void f16_from_f32__neon(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    }
    for (; i < n; i++) {
        y[i] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x[i]))), 0);
    }
}

static void f16_to_f32__neon(const void *restrict vx, float *restrict y, int64_t n) {
    const uint16_t *x = vx;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, load_f16(x + i));
    }
    for (; i < n; i++) {
        y[i] = one_f16(x + i);
    }
}

// ---- tiles ----

// A full tile is 4 by 4 dot products: 8 loads feed 16 multiply-adds, in 24 of the 32 registers. Tiles of f32 with fewer columns use
// fewer registers. Other tiles are computed by single dot products.
#define MR 4
#define NR 4
#define UNROLL _Pragma("GCC unroll 4")

// Rows of x are bx bytes apart, rows of y by bytes. nc: rows of y.
#define TILE(type, element) \
    static inline __attribute__((always_inline)) void tile_##type##_cols( \
        int64_t n, float *s, int64_t ld_s, const void *vx, size_t bx, const void *vy, size_t by, const int nc) { \
        const element *x[MR], *y[NR]; \
        float32x4_t a[MR][NR], v[NR]; \
        UNROLL for (int r = 0; r < MR; r++) { \
            x[r] = (const void *) ((const char *) vx + (size_t) r * bx); \
            UNROLL for (int c = 0; c < nc; c++) { \
                a[r][c] = vdupq_n_f32(0.0f); \
            } \
        } \
        UNROLL for (int c = 0; c < nc; c++) { \
            y[c] = (const void *) ((const char *) vy + (size_t) c * by); \
        } \
        int64_t i = 0; \
        for (; i + 4 <= n; i += 4) { \
            UNROLL for (int c = 0; c < nc; c++) { \
                v[c] = load_##type(y[c] + i); \
            } \
            UNROLL for (int r = 0; r < MR; r++) { \
                const float32x4_t u = load_##type(x[r] + i); \
                UNROLL for (int c = 0; c < nc; c++) { \
                    a[r][c] = vfmaq_f32(a[r][c], u, v[c]); \
                } \
            } \
        } \
        UNROLL for (int c = 0; c < nc; c++) { \
            vst1q_f32(s + c * ld_s, vpaddq_f32(vpaddq_f32(a[0][c], a[1][c]), vpaddq_f32(a[2][c], a[3][c]))); \
        } \
        for (; i < n; i++) { \
            for (int c = 0; c < nc; c++) { \
                for (int r = 0; r < MR; r++) { \
                    s[r + c * ld_s] += one_##type(x[r] + i) * one_##type(y[c] + i); \
                } \
            } \
        } \
    } \
    static void tile_##type##_full(int64_t n, float *s, int64_t ld_s, const void *vx, size_t bx, const void *vy, size_t by) { \
        tile_##type##_cols(n, s, ld_s, vx, bx, vy, by, NR); \
    }
TILE(f32, float)
TILE(f16, uint16_t)

static void tile_f32__neon(CPU_TILE_ARGS) {
    if (nx < MR) {
        cpu_tile_by_dot(vec_dot_f32__neon, n, s, ld_s, vx, bx, nx, vy, by, ny);
        return;
    }
    switch (ny) {
        case 1: tile_f32_cols(n, s, ld_s, vx, bx, vy, by, 1); break;
        case 2: tile_f32_cols(n, s, ld_s, vx, bx, vy, by, 2); break;
        case 3: tile_f32_cols(n, s, ld_s, vx, bx, vy, by, 3); break;
        default: tile_f32_full(n, s, ld_s, vx, bx, vy, by); break;
    }
}

// The large f16 tile converts each element to f32 once and multiplies it with all rows of the other operand. Converting four f16
// values takes as long as four multiply-adds.
#define WIDE_MR 32
#define WIDE_NR 16
#define CHUNK 256

static void row_widen(float *to, const char *row, int64_t i, int64_t n) {
    const uint16_t *x = (const uint16_t *) (const void *) row + i;
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        const uint16x8_t h = vld1q_u16(x + j);
        vst1q_f32(to + j, vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))));
        vst1q_f32(to + j + 4, vcvt_high_f32_f16(vreinterpretq_f16_u16(h)));
    }
    for (; j < n; j++) {
        to[j] = one_f16(x + j);
    }
}

// Multiplies elements i to i + n - 1 of nx and ny rows, multiples of 4. If i is 0, stores the sums in s, otherwise adds them to
// s.
static void tile_f16_wide(
    int64_t i, int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, int nx, const char *y, size_t by, int ny) {
    float xs[MR][CHUNK], ys[WIDE_NR][CHUNK];
    const size_t row = sizeof xs[0];
    for (int c = 0; c < ny; c++) {
        row_widen(ys[c], y + (size_t) c * by, i, n);
    }
    for (int r = 0; r < nx; r += MR) {
        for (int j = 0; j < MR; j++) {
            row_widen(xs[j], x + (size_t) (r + j) * bx, i, n);
        }
        for (int c = 0; c < ny; c += NR) {
            float partial[NR * MR];
            if (i == 0) {
                tile_f32_full(n, s + r + c * ld_s, ld_s, xs, row, ys[c], row);
                continue;
            }
            tile_f32_full(n, partial, MR, xs, row, ys[c], row);
            for (int j = 0; j < NR; j++) {
                float *to = s + r + (c + j) * ld_s;
                vst1q_f32(to, vaddq_f32(vld1q_f32(to), vld1q_f32(partial + j * MR)));
            }
        }
    }
}

static void tile_f16__neon(CPU_TILE_ARGS) {
    const char *x = vx, *y = vy;
    const int nx4 = nx / MR * MR, ny4 = ny / NR * NR;
    if (ny4 == NR) { // for NR rows of y, storing converted elements costs more time than it saves
        for (int r = 0; r < nx4; r += MR) {
            tile_f16_full(n, s + r, ld_s, x + (size_t) r * bx, bx, y, by);
        }
    } else if (nx4 > 0 && ny4 > 0) {
        for (int64_t i = 0; i < n; i += CHUNK) {
            tile_f16_wide(i, min_i64(n - i, CHUNK), s, ld_s, x, bx, nx4, y, by, ny4);
        }
    }
    const int done = ny4 > 0 ? nx4 : 0; // number of rows of x that are multiplied with the first ny4 rows of y
    cpu_tile_by_dot(vec_dot_f16__neon, n, s + done, ld_s, x + (size_t) done * bx, bx, nx - done, y, by, ny);
    cpu_tile_by_dot(vec_dot_f16__neon, n, s + ny4 * ld_s, ld_s, x, bx, done, y + (size_t) ny4 * by, by, ny - ny4);
}

void cpu_tier_neon_dot(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_F32].vec_dot = vec_dot_f32__neon;
    k->traits[GGML_TYPE_F16].vec_dot = vec_dot_f16__neon;
    k->traits[GGML_TYPE_F16].from_float = f16_from_f32__neon;
    k->to_float[GGML_TYPE_F16] = f16_to_f32__neon;
    k->tile[GGML_TYPE_F32] = (struct cpu_tile){tile_f32__neon, MR, NR};
    k->tile[GGML_TYPE_F16] = (struct cpu_tile){tile_f16__neon, WIDE_MR, WIDE_NR};
}

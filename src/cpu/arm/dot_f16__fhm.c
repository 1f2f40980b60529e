// SPDX-License-Identifier: MIT
// dot_f16__fhm.c: dot products of f16 rows with FMLAL, which multiplies f16 values and adds to f32 without rounding the product.
// The result is as exact as converting to f32 first, but needs no conversion. A full tile is 4 rows of x with 4 rows of y.

#include "cpu/kernels.h"

#include <arm_neon.h>
#include <stddef.h>

static float16x8_t f16_at(const uint16_t *at) {
    return vreinterpretq_f16_u16(vld1q_u16(at));
}

static float one_f16(const uint16_t *h) {
    return (float) vget_lane_f16(vreinterpret_f16_u16(vdup_n_u16(*h)), 0);
}

// Memory limits the speed, so rows are processed one at a time, which reads memory sequentially.
static void vec_dot_f16__fhm(CPU_DOT_ARGS) {
    const uint16_t *x = vx, *y = vy;
    float32x4_t a0 = vdupq_n_f32(0.0f), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        const float16x8_t x0 = f16_at(x + i), x1 = f16_at(x + i + 8), x2 = f16_at(x + i + 16), x3 = f16_at(x + i + 24);
        const float16x8_t y0 = f16_at(y + i), y1 = f16_at(y + i + 8), y2 = f16_at(y + i + 16), y3 = f16_at(y + i + 24);
        a0 = vfmlalq_low_f16(a0, x0, y0);
        a1 = vfmlalq_high_f16(a1, x0, y0);
        a2 = vfmlalq_low_f16(a2, x1, y1);
        a3 = vfmlalq_high_f16(a3, x1, y1);
        a4 = vfmlalq_low_f16(a4, x2, y2);
        a5 = vfmlalq_high_f16(a5, x2, y2);
        a6 = vfmlalq_low_f16(a6, x3, y3);
        a7 = vfmlalq_high_f16(a7, x3, y3);
    }
    float sum =
        vaddvq_f32(vaddq_f32(vaddq_f32(vaddq_f32(a0, a1), vaddq_f32(a2, a3)), vaddq_f32(vaddq_f32(a4, a5), vaddq_f32(a6, a7))));
    for (; i < n; i++) {
        sum += one_f16(x + i) * one_f16(y + i);
    }
    *s = sum;
}

#define TILE(X) \
    X(0, 0) \
    X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3) X(2, 0) X(2, 1) X(2, 2) X(2, 3) X(3, 0) X(3, 1) X(3, 2) X(3, 3)
#define ZERO(r, c) float32x4_t a##r##c = vdupq_n_f32(0.0f);
#define LOW(r, c) a##r##c = vfmlalq_low_f16(a##r##c, x##r, y##c);
#define HIGH(r, c) a##r##c = vfmlalq_high_f16(a##r##c, x##r, y##c);
#define STORE(c) vst1q_f32(s + c * ld_s, vpaddq_f32(vpaddq_f32(a0##c, a1##c), vpaddq_f32(a2##c, a3##c)));

static void tile_full(int64_t n, float *s, int64_t ld_s, const uint16_t *x, size_t dx, const uint16_t *y, size_t dy) {
    TILE(ZERO)
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float16x8_t x0 = f16_at(x + i), x1 = f16_at(x + dx + i), x2 = f16_at(x + 2 * dx + i), x3 = f16_at(x + 3 * dx + i);
        const float16x8_t y0 = f16_at(y + i), y1 = f16_at(y + dy + i), y2 = f16_at(y + 2 * dy + i), y3 = f16_at(y + 3 * dy + i);
        TILE(LOW)
        TILE(HIGH)
    }
    STORE(0)
    STORE(1)
    STORE(2)
    STORE(3)
    for (; i < n; i++) {
        for (int c = 0; c < 4; c++) {
            for (int r = 0; r < 4; r++) {
                s[r + c * ld_s] += one_f16(x + (size_t) r * dx + i) * one_f16(y + (size_t) c * dy + i);
            }
        }
    }
}

static void tile_f16__fhm(CPU_TILE_ARGS) {
    if (nx == 4 && ny == 4 && (bx | by) % sizeof(uint16_t) == 0) {
        tile_full(n, s, ld_s, vx, bx / sizeof(uint16_t), vy, by / sizeof(uint16_t));
    } else {
        cpu_tile_by_dot(vec_dot_f16__fhm, n, s, ld_s, vx, bx, nx, vy, by, ny);
    }
}

void cpu_tier_fhm_dot_f16(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_F16].vec_dot = vec_dot_f16__fhm;
    k->tile[GGML_TYPE_F16] = (struct cpu_tile){tile_f16__fhm, 4, 4};
}

// SPDX-License-Identifier: MIT
// dot__neon.c: dot products of f32 and f16 with 128-bit vectors and fused multiply-add; halves are widened before they are
// multiplied. Eight accumulators hide the latency of the multiply-add (4 cycles, two a cycle on current cores).

#include "cpu/arm/tiers.h"

#include <arm_neon.h>
#include <stddef.h>

static float sum_f32x8(const float32x4_t *a) {
    const float32x4_t s0 = vaddq_f32(vaddq_f32(a[0], a[1]), vaddq_f32(a[2], a[3]));
    const float32x4_t s1 = vaddq_f32(vaddq_f32(a[4], a[5]), vaddq_f32(a[6], a[7]));
    return vaddvq_f32(vaddq_f32(s0, s1));
}

void cpu_vec_dot_f32__neon(
    int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) {
    (void) bs, (void) bx, (void) by, (void) nrc;
    const float *x = vx, *y = vy;
    float32x4_t a[8];
    for (int j = 0; j < 8; j++) {
        a[j] = vdupq_n_f32(0.0f);
    }
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 8; j++) {
            a[j] = vfmaq_f32(a[j], vld1q_f32(x + i + 4 * j), vld1q_f32(y + i + 4 * j));
        }
    }
    float sum = sum_f32x8(a);
    for (; i < n; i++) {
        sum += x[i] * y[i];
    }
    *s = sum;
}

static float32x4_t widen_f16(const uint16_t *x) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}

void cpu_vec_dot_f16__neon(
    int n, float *restrict s, size_t bs, const void *restrict vx, size_t bx, const void *restrict vy, size_t by, int nrc) {
    (void) bs, (void) bx, (void) by, (void) nrc;
    const uint16_t *x = vx, *y = vy;
    float32x4_t a[8];
    for (int j = 0; j < 8; j++) {
        a[j] = vdupq_n_f32(0.0f);
    }
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 8; j++) {
            a[j] = vfmaq_f32(a[j], widen_f16(x + i + 4 * j), widen_f16(y + i + 4 * j));
        }
    }
    float sum = sum_f32x8(a);
    for (; i < n; i++) {
        uint16_t u[4] = {x[i], y[i], 0, 0};
        const float32x4_t v = widen_f16(u);
        sum += vgetq_lane_f32(v, 0) * vgetq_lane_f32(v, 1);
    }
    *s = sum;
}

static void half_from_f32__neon(const float *restrict x, void *restrict vy, int64_t n) {
    uint16_t *y = vy;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    }
    for (; i < n; i++) {
        y[i] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x[i]))), 0);
    }
}

static void half_to_f32__neon(const void *restrict vx, float *restrict y, int64_t n) {
    const uint16_t *x = vx;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, widen_f16(x + i));
    }
    for (; i < n; i++) {
        y[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x[i]))), 0);
    }
}

void cpu_tier_neon(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_F32].vec_dot = cpu_vec_dot_f32__neon;
    k->traits[GGML_TYPE_F16].vec_dot = cpu_vec_dot_f16__neon;
    k->traits[GGML_TYPE_F16].from_float = half_from_f32__neon;
    k->to_float[GGML_TYPE_F16] = half_to_f32__neon;
    cpu_tier_neon_tile(k);
    cpu_tier_neon_gemm(k);
    cpu_tier_neon_quantize(k);
    cpu_tier_neon_vec(k);
    cpu_tier_neon_widen(k);
    cpu_tier_neon_q32(k);
    cpu_tier_neon_k(k);
    cpu_tier_neon_gemv_f(k);
    cpu_tier_neon_gemv_q32(k);
    cpu_tier_neon_gemv_k(k);
}

// SPDX-License-Identifier: MIT
// quantize.h: 32 floats as bytes, for the formats that activations take (quantize__neon.c) and for columns (gemv_q32__dotprod.c).
#pragma once

#include <arm_neon.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline float largest(const float32x4_t *v, int n) {
    float32x4_t max = vabsq_f32(v[0]);
    for (int j = 1; j < n; j++) {
        max = vmaxq_f32(max, vabsq_f32(v[j])); // a NaN stays
    }
    return vmaxvq_f32(max);
}

static inline int8x16_t narrow(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vcombine_s8(vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))), vmovn_s16(vcombine_s16(vmovn_s32(c), vmovn_s32(d))));
}

// 32 floats to bytes and the float one of them stands for; false if they are not finite or too small to divide by.
static inline __attribute__((always_inline)) bool bytes32(const float *x, int8x16_t *lo, int8x16_t *hi, float *d) {
    float32x4_t v[8];
    for (int j = 0; j < 8; j++) {
        v[j] = vld1q_f32(x + 4 * j);
    }
    const float max = largest(v, 8);
    *d              = max / 127.0f;
    if (!(max >= 0x1p-100f && max < INFINITY)) {
        return false;
    }
    const float inverse = 1.0f / *d;
    int32x4_t q[8];
    for (int j = 0; j < 8; j++) {
        q[j] = vcvtnq_s32_f32(vmulq_n_f32(v[j], inverse));
    }
    *lo = narrow(q[0], q[1], q[2], q[3]);
    *hi = narrow(q[4], q[5], q[6], q[7]);
    return true;
}

// Rounds to the nearest as quant/half.h does; f is no NaN.
static inline uint16_t half_of(float f) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(f))), 0);
}

static inline float rounded_to_half(float f) {
    return vgetq_lane_f32(vcvt_f32_f16(vcvt_f16_f32(vdupq_n_f32(f))), 0);
}

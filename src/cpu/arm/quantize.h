// SPDX-License-Identifier: MIT
// quantize.h: quantises floats to q8_0, q8_1 and q8_K, the formats of activations. For finite floats, the results are
// bit-identical to the portable functions (ukr/convert.c). Blocks with other values are passed to src/quant.
#pragma once

#include "base/min.h"
#include "quant/quants.h"

#include <arm_neon.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline float lanes_largest(const float32x4_t *v, int n) {
    float32x4_t max = vabsq_f32(v[0]);
    for (int j = 1; j < n; j++) {
        max = vmaxq_f32(max, vabsq_f32(v[j])); // NaN stays NaN
    }
    return vmaxvq_f32(max);
}

static inline int8x16_t ints_narrow(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vcombine_s8(vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))), vmovn_s16(vcombine_s16(vmovn_s32(c), vmovn_s32(d))));
}

static inline int8x16_t low_bytes(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d) {
    return vreinterpretq_s8_u8(vuzp1q_u8(vuzp1q_u8(a, b), vuzp1q_u8(c, d)));
}

// Quantises 32 floats to 32 bytes: x[i] is about *d times byte i. lo gets the first 16 bytes, hi the last 16 bytes. If a float is
// not finite, or the largest magnitude is less than BERTH_Q8_MAX_LEAST, returns false and does not set lo and hi.
static inline __attribute__((always_inline)) bool bytes32(const float *x, int8x16_t *lo, int8x16_t *hi, float *d) {
    float32x4_t v[8];
    for (int j = 0; j < 8; j++) {
        v[j] = vld1q_f32(x + 4 * j);
    }
    const float max = lanes_largest(v, 8);
    *d = max / 127.0f;
    if (!(max >= BERTH_Q8_MAX_LEAST && max < INFINITY)) {
        return false;
    }
    // Adding a large float rounds to nearest even and leaves the integer in the low byte. The addition takes a cycle of any pipe.
    // On a Neoverse N1, a conversion takes two cycles of one pipe, and narrowing one more.
    const float inverse = 1.0f / *d;
    uint8x16_t q[8];
    for (int j = 0; j < 8; j++) {
        q[j] = vreinterpretq_u8_f32(vaddq_f32(vmulq_n_f32(v[j], inverse), vdupq_n_f32(0x1.8p23f)));
    }
    *lo = low_bytes(q[0], q[1], q[2], q[3]);
    *hi = low_bytes(q[4], q[5], q[6], q[7]);
    return true;
}

// Rounds to nearest, as quant/half.h does. f must not be NaN.
static inline uint16_t f16_from_float(float f) {
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(f))), 0);
}

static inline float rounded_to_f16(float f) {
    return vgetq_lane_f32(vcvt_f32_f16(vcvt_f16_f32(vdupq_n_f32(f))), 0);
}

static inline void block_q8_0_of(const float *x, block_q8_0 *y) {
    int8x16_t lo, hi;
    float d;
    if (!bytes32(x, &lo, &hi, &d)) {
        quantize_row_q8_0_ref(x, y, 32);
        return;
    }
    y->d = f16_from_float(d);
    vst1q_s8(y->qs, lo);
    vst1q_s8(y->qs + 16, hi);
}

static inline void block_q8_1_of(const float *x, block_q8_1 *y) {
    int8x16_t lo, hi;
    float d;
    if (!bytes32(x, &lo, &hi, &d)) {
        quantize_row_q8_1_ref(x, y, 32);
        return;
    }
    y->d = f16_from_float(d);
    y->s = f16_from_float((float) vaddlvq_s16(vaddq_s16(vpaddlq_s8(lo), vpaddlq_s8(hi))) * d);
    vst1q_s8(y->qs, lo);
    vst1q_s8(y->qs + 16, hi);
}

// Returns the element farthest from zero, with its sign. If max equals -min, returns the element that comes first in the row.
static inline float row_extreme(const float *x, float max, float min) {
    if (max != -min) {
        return max > -min ? max : min;
    }
    while (fabsf(*x) != max) {
        x++;
    }
    return *x;
}

// One horizontal sum per vector.
static inline int16x8_t sums_of_8(const int8x16_t *v) {
    int16x8_t s[8];
    for (int j = 0; j < 8; j++) {
        s[j] = vpaddlq_s8(v[j]);
    }
    const int16x8_t lo = vpaddq_s16(vpaddq_s16(s[0], s[1]), vpaddq_s16(s[2], s[3]));
    return vpaddq_s16(lo, vpaddq_s16(vpaddq_s16(s[4], s[5]), vpaddq_s16(s[6], s[7])));
}

static inline void block_q8_K_of(const float *x, block_q8_K *y) {
    float32x4_t max[4], min[4];
    for (int u = 0; u < 4; u++) {
        max[u] = min[u] = vld1q_f32(x + 4 * u);
    }
    for (int j = 16; j < QK_K; j += 16) {
        for (int u = 0; u < 4; u++) { // NaN stays NaN
            const float32x4_t v = vld1q_f32(x + j + 4 * u);
            max[u] = vmaxq_f32(max[u], v);
            min[u] = vminq_f32(min[u], v);
        }
    }
    const float most = vmaxvq_f32(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3])));
    const float least = vminvq_f32(vminq_f32(vminq_f32(min[0], min[1]), vminq_f32(min[2], min[3])));
    const float amax = max_f32(most, -least);
    if (!(amax >= BERTH_Q8_MAX_LEAST && most < INFINITY && least > -INFINITY)) {
        quantize_row_q8_K_ref(x, y, QK_K);
        return;
    }
    const float inverse = -127.0f / row_extreme(x, most, least);
    for (int j = 0; j < QK_K; j += 128) {
        int8x16_t bytes[8];
        for (int v = 0; v < 8; v++) {
            int32x4_t q[4];
            for (int u = 0; u < 4; u++) {
                q[u] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + j + 16 * v + 4 * u), inverse));
                q[u] = vminq_s32(q[u], vdupq_n_s32(127));
            }
            bytes[v] = ints_narrow(q[0], q[1], q[2], q[3]);
            vst1q_s8(y->qs + j + 16 * v, bytes[v]);
        }
        vst1q_s16(y->bsums + j / 16, sums_of_8(bytes));
    }
    y->d = 1 / inverse;
}

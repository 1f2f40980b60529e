// SPDX-License-Identifier: MIT
// f16_columns.h: columns of floats as halves that are multiplied and added as halves, of the fp16 tier. A power of two, which costs no
// digit, brings the largest of them close to a limit, where neither small products vanish nor sums of a few overflow.
#pragma once

#include "base/min.h"

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

static inline float16x8_t f16_at(const uint16_t *at) {
    return vreinterpretq_f16_u16(vld1q_u16(at));
}

// The power of two that brings max below largest, itself one; 1 if there is nothing to scale.
static inline float scale_for(float max, float largest) {
    if (!(max > 0.0f && max < INFINITY)) {
        return 1.0f;
    }
    int e;
    frexpf(max, &e); // max < 2^e
    return ldexpf(largest, e < -90 ? 90 : -e);
}

// Four at a time: one after the other they would wait for each other.
static inline float column_max(int64_t n, const float *y) {
    float32x4_t max[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 4; j++) {
            max[j] = vmaxq_f32(max[j], vabsq_f32(vld1q_f32(y + i + 4 * j)));
        }
    }
    float m = vmaxvq_f32(vmaxq_f32(vmaxq_f32(max[0], max[1]), vmaxq_f32(max[2], max[3])));
    for (; i < n; i++) {
        m = max_f32(fabsf(y[i]), m);
    }
    return m;
}

static inline uint16x8_t halves_of(const float *y, float scale) {
    return vreinterpretq_u16_f16(
        vcombine_f16(vcvt_f16_f32(vmulq_n_f32(vld1q_f32(y), scale)), vcvt_f16_f32(vmulq_n_f32(vld1q_f32(y + 4), scale))));
}

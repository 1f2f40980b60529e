// SPDX-License-Identifier: MIT
// f16_columns.h: converts columns of floats to f16 for the fp16 and fhm tiers. Each column is scaled by a power of two. So small
// products do not underflow, and sums of a few products do not overflow.
#pragma once

#include "base/min.h"

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

static inline float16x8_t f16_at(const uint16_t *at) {
    return vreinterpretq_f16_u16(vld1q_u16(at));
}

// Returns the power of two that scales max to below `largest`, a power of two. If max is 0 or not finite, returns 1.
static inline float scale_for(float max, float largest) {
    if (!(max > 0.0f && max < INFINITY)) {
        return 1.0f;
    }
    int e;
    frexpf(max, &e); // max < 2^e
    return ldexpf(largest, e < -90 ? 90 : -e);
}

// Four independent maxima hide the latency of vmaxq_f32.
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

static inline uint16x8_t f16x8_from_f32(const float *y, float scale) {
    return vreinterpretq_u16_f16(
        vcombine_f16(vcvt_f16_f32(vmulq_n_f32(vld1q_f32(y), scale)), vcvt_f16_f32(vmulq_n_f32(vld1q_f32(y + 4), scale))));
}

// SPDX-License-Identifier: MIT
// gemv_f16.h: a packed column for f16 rows. The column is a list of segments of STEP scaled f16 values, padded with zeros. If the
// sum of a row is not finite, the row is recomputed in f32.
#pragma once

#include "cpu/arm/f16_columns.h"

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

#define STEP 256

struct segment {
    float unscale, pad[3]; // unscale: 1 / scale of the segment; pad: aligns y to 16 bytes
    uint16_t y[STEP];
};

static float row_recompute_f32(int64_t n, const uint16_t *x, const struct segment *y) {
    float sum = 0.0f;
    for (; n > 0; n -= STEP, x += STEP, y++) {
        float part = 0.0f;
        for (int64_t i = 0; i < n && i < STEP; i++) {
            const float32x4_t v = vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t){x[i], y->y[i], 0, 0}));
            part = fmaf(vgetq_lane_f32(v, 0), vgetq_lane_f32(v, 1) * y->unscale, part);
        }
        sum += part;
    }
    return sum;
}

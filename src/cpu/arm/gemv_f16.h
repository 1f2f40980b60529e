// SPDX-License-Identifier: MIT
// gemv_f16.h: the form of a column that is multiplied with rows of halves as they lie. It comes in runs of STEP elements: {what
// their sums are to be multiplied with} {STEP halves, zeros after its end}. A row whose products are too much for a half has sums
// that are not finite: it is multiplied again as floats.
#pragma once

#include "cpu/arm/f16_columns.h"

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

#define STEP 256

struct run {
    float back, pad[3]; // aligned as vectors are
    uint16_t y[STEP];
};

static float row_as_floats(int64_t n, const uint16_t *x, const struct run *y) {
    float sum = 0.0f;
    for (; n > 0; n -= STEP, x += STEP, y++) {
        float part = 0.0f;
        for (int64_t i = 0; i < n && i < STEP; i++) {
            const float32x4_t v = vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t){x[i], y->y[i], 0, 0}));
            part = fmaf(vgetq_lane_f32(v, 0), vgetq_lane_f32(v, 1) * y->back, part);
        }
        sum += part;
    }
    return sum;
}

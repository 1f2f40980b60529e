// SPDX-License-Identifier: MIT
// floats.h: elements of rows of floats and of halves, as floats: four from the i-th on, and one.
#pragma once

#include "cpu/arm/unpack.h"

UNPACK_INLINE float32x4_t four_f32(const float *x, int64_t i) {
    return vld1q_f32(x + i);
}
UNPACK_INLINE float one_f32(const float *x, int64_t i) {
    return x[i];
}
UNPACK_INLINE float32x4_t four_f16(const uint16_t *x, int64_t i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i)));
}
UNPACK_INLINE float one_f16(const uint16_t *x, int64_t i) {
    return half_at(x + i);
}

// SPDX-License-Identifier: MIT
// sdot.h: the dot product of four bytes a lane, where the processor has no instruction for it: four products of eight bits, added
// up in 16 bits first. Two of them fit there as long as one side has no -128, which activations never have.
#pragma once

#include <arm_neon.h>

#ifndef __ARM_FEATURE_DOTPROD
static inline __attribute__((always_inline)) int32x4_t sdot_by_products(int32x4_t sum, int8x16_t x, int8x16_t y) {
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#    define vdotq_s32 sdot_by_products // arm_neon.h has one that cannot be used
#endif

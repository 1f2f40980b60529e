// SPDX-License-Identifier: MIT
// unpack_low_bit.h: unpacks q1_0, q2_0 and nvfp4, formats with blocks of 128 or 64 elements that are multiplied with q8_0.
// cell_<type>(block, j) returns elements 32 j to 32 j + 31 of a block as signed bytes.
#pragma once

#include "cpu/arm/unpack_iq.h"

UNPACK_INLINE struct q32 cell_q1_0(const block_q1_0 *b, int j) {
    const uint8x16_t bits = four_bytes(b->qs + 4 * j), one = vdupq_n_u8(1);
    return (struct q32){s8(vornq_u8(one, bit_masks(bits, 0))), s8(vornq_u8(one, bit_masks(bits, 2)))};
}

UNPACK_INLINE struct q32 cell_q2_0(const block_q2_0 *b, int j) {
    const uint8x16_t lo = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, hi = vaddq_u8(lo, vdupq_n_u8(4));
    const int8x16_t shift = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    const uint8x16_t q = vcombine_u8(vld1_u8(b->qs + 8 * j), vdup_n_u8(0)), three = vdupq_n_u8(3), one = vdupq_n_u8(1);
    return (struct q32){s8(vsubq_u8(vandq_u8(vshlq_u8(vqtbl1q_u8(q, lo), shift), three), one)),
        s8(vsubq_u8(vandq_u8(vshlq_u8(vqtbl1q_u8(q, hi), shift), three), one))};
}

// Each group of 16 elements has a scale. Its low nibbles are elements 0 to 7, its high nibbles 8 to 15.
UNPACK_INLINE struct q32 cell_nvfp4(const block_nvfp4 *b, int j) {
    const struct q32 q = q32_table(table_mxfp4, vld1q_u8(b->qs + 16 * j));
    const int64x2_t lo = vreinterpretq_s64_s8(q.lo), hi = vreinterpretq_s64_s8(q.hi);
    return (struct q32){vreinterpretq_s8_s64(vzip1q_s64(lo, hi)), vreinterpretq_s8_s64(vzip2q_s64(lo, hi))};
}

// The scales of the four groups, divided by NVFP4_FACTOR. A scale is an unsigned float of 4 bits of exponent and 3 of mantissa. As
// the upper bits of a float it is too small by 2^120; subnormal scales become subnormal floats. It should be half as large, because
// table_mxfp4 holds twice the values. The scale 0x7f counts as 0.
#define NVFP4_FACTOR 0x1p119f
UNPACK_INLINE float32x4_t small_scales_nvfp4(const block_nvfp4 *b) {
    const uint8x8_t s = vreinterpret_u8_u32(vdup_n_u32(u32_at(b->d))), is_nan = vceq_u8(s, vdup_n_u8(0x7f));
    const uint16x8_t wide = vshll_n_u8(vand_u8(vbic_u8(s, is_nan), vdup_n_u8(0x7f)), 5);
    return vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(wide), 15));
}
UNPACK_INLINE float32x4_t scales_nvfp4(const block_nvfp4 *b) {
    return vmulq_n_f32(small_scales_nvfp4(b), NVFP4_FACTOR);
}

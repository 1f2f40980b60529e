// SPDX-License-Identifier: MIT
// dot_256.h: dot products of the formats with blocks of 256 elements. A run is 16 or 32 elements with a common scale. The
// arithmetic within a block is exact. Minima and offsets are multiplied with the sums of 16 elements (bsums) that q8_K stores.
//
// For one column (kernels.h: cpu_gemv), pack_q8_K writes struct y256. Its padding aligns all loads, because an unaligned load
// takes as long as two loads.
#pragma once

#include "cpu/arm/quantize.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

struct y256 {
    int8_t qs[256];
    int16_t bsums[16];
    int32_t minus_sum[4]; // together, minus the sum of qs
    float d, pad[3];
};

// A block of y, as block_q8_K or struct y256.
struct y_at {
    const int8_t *qs;
    const int16_t *bsums;
};

// One horizontal sum per lane.
UNPACK_INLINE int32x4_t sums_across4(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

UNPACK_INLINE int32x4_t dot16(int8x16_t x, const int8_t *y) {
    return vdotq_s32(vdupq_n_s32(0), x, vld1q_s8(y));
}

UNPACK_INLINE int32x4_t dot32(const int8x16_t *x, const int8_t *y) {
    return vdotq_s32(dot16(x[0], y), x[1], vld1q_s8(y + 16));
}

// Four partial sums of scale * dot product, over 8 runs of 32 elements.
UNPACK_INLINE int32x4_t dot_runs32(const int8x16_t *v, int16x8_t scales, const struct y_at *y) {
    const int8_t *q = y->qs;
    const int32x4_t a = sums_across4(dot32(v, q), dot32(v + 2, q + 32), dot32(v + 4, q + 64), dot32(v + 6, q + 96));
    const int32x4_t b =
        sums_across4(dot32(v + 8, q + 128), dot32(v + 10, q + 160), dot32(v + 12, q + 192), dot32(v + 14, q + 224));
    return vmlaq_s32(vmulq_s32(a, vmovl_s16(vget_low_s16(scales))), b, vmovl_high_s16(scales));
}

// Four partial sums of scale * dot product, over 16 runs of 16 elements.
UNPACK_INLINE int32x4_t dot_runs16(const int8x16_t *v, int16x8_t s0, int16x8_t s1, const struct y_at *y) {
    const int8_t *q = y->qs;
    int32x4_t sum = vmulq_s32(
        sums_across4(dot16(v[0], q), dot16(v[1], q + 16), dot16(v[2], q + 32), dot16(v[3], q + 48)), vmovl_s16(vget_low_s16(s0)));
    sum = vmlaq_s32(sum, sums_across4(dot16(v[4], q + 64), dot16(v[5], q + 80), dot16(v[6], q + 96), dot16(v[7], q + 112)),
        vmovl_high_s16(s0));
    sum = vmlaq_s32(sum, sums_across4(dot16(v[8], q + 128), dot16(v[9], q + 144), dot16(v[10], q + 160), dot16(v[11], q + 176)),
        vmovl_s16(vget_low_s16(s1)));
    return vmlaq_s32(sum,
        sums_across4(dot16(v[12], q + 192), dot16(v[13], q + 208), dot16(v[14], q + 224), dot16(v[15], q + 240)),
        vmovl_high_s16(s1));
}

// Four partial sums of factor * sum of y: dot_sums16 for 16 runs, dot_sums8 for 8 runs of 32 elements.
UNPACK_INLINE int32x4_t dot_sums16(int16x8_t f0, int16x8_t f1, const struct y_at *y) {
    const int16x8_t b0 = vld1q_s16(y->bsums), b1 = vld1q_s16(y->bsums + 8);
    const int32x4_t lo = vmlal_s16(vmull_s16(vget_low_s16(f0), vget_low_s16(b0)), vget_low_s16(f1), vget_low_s16(b1));
    return vmlal_high_s16(vmlal_high_s16(lo, f0, b0), f1, b1);
}

UNPACK_INLINE int32x4_t dot_sums8(int16x8_t f, const struct y_at *y) {
    const int16x8_t b = vpaddq_s16(vld1q_s16(y->bsums), vld1q_s16(y->bsums + 8));
    return vmlal_high_s16(vmull_s16(vget_low_s16(f), vget_low_s16(b)), f, b);
}

static void pack_q8_K(CPU_TABLE, int64_t n, void *panel, const float *y) {
    struct y256 *to = panel;
    for (int64_t i = 0; i < n / QK_K; i++) {
        block_q8_K b;
        block_q8_K_of(y + i * QK_K, &b);
        memcpy(to[i].qs, b.qs, sizeof b.qs);
        memcpy(to[i].bsums, b.bsums, sizeof b.bsums);
        to[i].d = b.d;
        const int16x8_t sums = vaddq_s16(vld1q_s16(b.bsums), vld1q_s16(b.bsums + 8));
        vst1q_s32(to[i].minus_sum, vnegq_s32(vpaddlq_s16(sums)));
    }
}

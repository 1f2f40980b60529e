// SPDX-License-Identifier: MIT
// dot_q32.h: dot products of the formats with blocks of 32 elements. One instruction converts the integer sums of four blocks.
#pragma once

#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#include <math.h>

// One horizontal sum per lane.
UNPACK_INLINE int32x4_t sums_across4(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

UNPACK_INLINE int32x4_t dot32(struct q32 x, const int8_t *y) {
    return vdotq_s32(vdotq_s32(zeros(), x.lo, vld1q_s8(y)), x.hi, vld1q_s8(y + 16));
}

#define SUM_Q8_1(block) (&(block)->s)
#define SUM_NONE(block) (&(block)->d)
#define NO_MIN(a) 0.0f
#define NO_MINS(a, b, c, d) vdupq_n_f32(0.0f)
// has_min: y is q8_1, which contains block sums; otherwise y is q8_0.
#define DOT_Q32(type, ytype, has_min, min_of, mins_of, sum_of) \
    static float row_##type(int64_t n, const block_##type *x, const block_##ytype *y) { \
        float32x4_t sums = vdupq_n_f32(0.0f); \
        int64_t i = 0; \
        for (; i + 4 <= n / 32; i += 4) { \
            const int32x4_t dots = \
                sums_across4(dot32(unpack_##type(&x[i]), y[i].qs), dot32(unpack_##type(&x[i + 1]), y[i + 1].qs), \
                    dot32(unpack_##type(&x[i + 2]), y[i + 2].qs), dot32(unpack_##type(&x[i + 3]), y[i + 3].qs)); \
            const float32x4_t dx = scales_##type(&x[i], &x[i + 1], &x[i + 2], &x[i + 3]); \
            const float32x4_t dy = f16x4_as_floats(&y[i].d, &y[i + 1].d, &y[i + 2].d, &y[i + 3].d); \
            sums = vfmaq_f32(sums, vcvtq_f32_s32(dots), vmulq_f32(dx, dy)); \
            if (has_min) { \
                const float32x4_t sy = f16x4_as_floats(sum_of(&y[i]), sum_of(&y[i + 1]), sum_of(&y[i + 2]), sum_of(&y[i + 3])); \
                sums = vfmaq_f32(sums, mins_of(&x[i], &x[i + 1], &x[i + 2], &x[i + 3]), sy); \
            } \
        } \
        float sum = vaddvq_f32(sums); \
        for (; i < n / 32; i++) { \
            const int32_t dot = vaddvq_s32(dot32(unpack_##type(&x[i]), y[i].qs)); \
            sum = fmaf((float) dot, scale_##type(&x[i]) * f16_as_float(&y[i].d), sum); \
            if (has_min) { \
                sum = fmaf(min_of(&x[i]), f16_as_float(sum_of(&y[i])), sum); \
            } \
        } \
        return sum; \
    } \
    static void vec_dot_##type(CPU_DOT_ARGS) { \
        *s = row_##type(n, vx, vy); \
    }

DOT_Q32(q8_0, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(q4_0, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(q5_0, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(iq4_nl, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(mxfp4, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(q4_1, q8_1, 1, min_q4_1, mins_q4_1, SUM_Q8_1)
DOT_Q32(q5_1, q8_1, 1, min_q5_1, mins_q5_1, SUM_Q8_1)

void CPU_TIER_FILL(dot_q32)(struct cpu_kernels *k) {
    k->traits[GGML_TYPE_Q8_0].vec_dot = vec_dot_q8_0;
    k->traits[GGML_TYPE_Q4_0].vec_dot = vec_dot_q4_0;
    k->traits[GGML_TYPE_Q5_0].vec_dot = vec_dot_q5_0;
    k->traits[GGML_TYPE_IQ4_NL].vec_dot = vec_dot_iq4_nl;
    k->traits[GGML_TYPE_MXFP4].vec_dot = vec_dot_mxfp4;
    k->traits[GGML_TYPE_Q4_1].vec_dot = vec_dot_q4_1;
    k->traits[GGML_TYPE_Q5_1].vec_dot = vec_dot_q5_1;
}

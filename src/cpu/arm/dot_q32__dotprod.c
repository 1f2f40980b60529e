// SPDX-License-Identifier: MIT
// dot_q32__dotprod.c: dot products of the formats with blocks of 32, four rows at a time: rows share the loads of y, and one
// conversion to float serves four sums. Sums of integers are exact, and each row adds its blocks in the same order by the same
// instructions whether it comes alone or with others.

#include "cpu/arm/tiers.h"
#include "cpu/arm/unpack.h"

#include <math.h>

// The sums of four vectors, side by side.
UNPACK_INLINE int32x4_t sums_of(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

UNPACK_INLINE int32x4_t dot32(struct q32 x, int8x16_t y0, int8x16_t y1) {
    return vdotq_s32(vdotq_s32(vdupq_n_s32(0), x.lo, y0), x.hi, y1);
}

#define NO_MIN(a) 0.0f
#define NO_MINS(a, b, c, d) vdupq_n_f32(0.0f)
// has_min: y is q8_1 and brings its block sums; else q8_0.
#define DOT_Q32(type, ytype, has_min, min_of, mins_of) \
    static void rows4_##type##__dotprod(int64_t n, float *s, const block_##type *x0, const block_##type *x1, \
        const block_##type *x2, const block_##type *x3, const block_##ytype *y) { \
        float32x4_t sum = vdupq_n_f32(0.0f); \
        for (int64_t i = 0; i < n / 32; i++) { \
            const int8x16_t y0 = vld1q_s8(y[i].qs), y1 = vld1q_s8(y[i].qs + 16); \
            const int32x4_t dots = sums_of(dot32(unpack_##type(&x0[i]), y0, y1), dot32(unpack_##type(&x1[i]), y0, y1), \
                dot32(unpack_##type(&x2[i]), y0, y1), dot32(unpack_##type(&x3[i]), y0, y1)); \
            const float32x4_t d  = scales_##type(&x0[i], &x1[i], &x2[i], &x3[i]); \
            sum                  = vfmaq_f32(sum, vcvtq_f32_s32(dots), vmulq_n_f32(d, half_at(&y[i].d))); \
            if (has_min) { \
                const float32x4_t m = mins_of(&x0[i], &x1[i], &x2[i], &x3[i]); \
                sum                 = vfmaq_n_f32(sum, m, half_at((const uint16_t *) &y[i] + 1)); \
            } \
        } \
        vst1q_f32(s, sum); \
    } \
    static float row_##type##__dotprod(int64_t n, const block_##type *x, const block_##ytype *y) { \
        float sum = 0.0f; \
        for (int64_t i = 0; i < n / 32; i++) { \
            const int32_t dot = vaddvq_s32(dot32(unpack_##type(&x[i]), vld1q_s8(y[i].qs), vld1q_s8(y[i].qs + 16))); \
            sum               = fmaf((float) dot, scale_##type(&x[i]) * half_at(&y[i].d), sum); \
            if (has_min) { \
                sum = fmaf(min_of(&x[i]), half_at((const uint16_t *) &y[i] + 1), sum); \
            } \
        } \
        return sum; \
    } \
    static void vec_dot_##type##__dotprod( \
        int n, float *restrict s, size_t bs, const void *restrict x, size_t bx, const void *restrict y, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        *s = row_##type##__dotprod(n, x, y); \
    } \
    static void tile_##type##__dotprod( \
        int64_t n, float *s, int64_t ld_s, const void *x, size_t bx, int nx, const void *y, size_t by, int ny) { \
        (void) ld_s, (void) by, (void) ny; \
        const char *at = x; \
        if (nx == 4) { \
            rows4_##type##__dotprod(n, s, (const void *) at, (const void *) (at + bx), (const void *) (at + 2 * bx), \
                (const void *) (at + 3 * bx), y); \
            return; \
        } \
        for (int i = 0; i < nx; i++) { \
            s[i] = row_##type##__dotprod(n, (const void *) (at + (size_t) i * bx), y); \
        } \
    }

DOT_Q32(q8_0, q8_0, 0, NO_MIN, NO_MINS)
DOT_Q32(q4_0, q8_0, 0, NO_MIN, NO_MINS)
DOT_Q32(q5_0, q8_0, 0, NO_MIN, NO_MINS)
DOT_Q32(iq4_nl, q8_0, 0, NO_MIN, NO_MINS)
DOT_Q32(mxfp4, q8_0, 0, NO_MIN, NO_MINS)
DOT_Q32(q4_1, q8_1, 1, min_q4_1, mins_q4_1)
DOT_Q32(q5_1, q8_1, 1, min_q5_1, mins_q5_1)

void cpu_tier_dotprod_q32(struct cpu_kernels *k) {
#define ROW(TYPE, type) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type##__dotprod; \
    k->tile[GGML_TYPE_##TYPE]           = (struct cpu_tile){tile_##type##__dotprod, 4, 1};
    ROW(Q8_0, q8_0)
    ROW(Q4_0, q4_0)
    ROW(Q5_0, q5_0)
    ROW(IQ4_NL, iq4_nl)
    ROW(MXFP4, mxfp4)
    ROW(Q4_1, q4_1)
    ROW(Q5_1, q5_1)
#undef ROW
}

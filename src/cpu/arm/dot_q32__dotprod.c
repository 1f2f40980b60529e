// SPDX-License-Identifier: MIT
// dot_q32__dotprod.c: dot products of the formats with blocks of 32, four blocks of a row at a time, so that one conversion to
// float serves four sums of integers. One row after the other: running straight through memory is worth more than sharing the
// loads of y among rows.
//
// A column of its own (kernels.h:cpu_gemv) comes as groups of four blocks, aligned, since a load that is not costs two:
//   [4 scales] [4 sums]? [128 bytes]

#include "cpu/arm/tiers.h"
#include "cpu/arm/unpack.h"

#include "quant/quants.h"

#include <math.h>

static ggml_from_float_t to_q8_0, to_q8_1; // set once by cpu_tier_dotprod_q32

// The sums of four vectors, side by side.
UNPACK_INLINE int32x4_t sums_of(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}

UNPACK_INLINE int32x4_t dot32(struct q32 x, const int8_t *y) {
    return vdotq_s32(vdotq_s32(zeros(), x.lo, vld1q_s8(y)), x.hi, vld1q_s8(y + 16));
}

#define SUM_Q8_1(block) (&(block)->s)
#define SUM_NONE(block) (&(block)->d)
#define NO_MIN(a) 0.0f
#define NO_MINS(a, b, c, d) vdupq_n_f32(0.0f)
// has_min: y is q8_1 and brings its block sums; else q8_0.
#define DOT_Q32(type, ytype, has_min, min_of, mins_of, sum_of) \
    static float row_##type(int64_t n, const block_##type *x, const block_##ytype *y) { \
        float32x4_t sums = vdupq_n_f32(0.0f); \
        int64_t i        = 0; \
        for (; i + 4 <= n / 32; i += 4) { \
            const int32x4_t dots = sums_of(dot32(unpack_##type(&x[i]), y[i].qs), dot32(unpack_##type(&x[i + 1]), y[i + 1].qs), \
                dot32(unpack_##type(&x[i + 2]), y[i + 2].qs), dot32(unpack_##type(&x[i + 3]), y[i + 3].qs)); \
            const float32x4_t dx = scales_##type(&x[i], &x[i + 1], &x[i + 2], &x[i + 3]); \
            const float32x4_t dy = halves_at(&y[i].d, &y[i + 1].d, &y[i + 2].d, &y[i + 3].d); \
            sums                 = vfmaq_f32(sums, vcvtq_f32_s32(dots), vmulq_f32(dx, dy)); \
            if (has_min) { \
                const float32x4_t sy = halves_at(sum_of(&y[i]), sum_of(&y[i + 1]), sum_of(&y[i + 2]), sum_of(&y[i + 3])); \
                sums                 = vfmaq_f32(sums, mins_of(&x[i], &x[i + 1], &x[i + 2], &x[i + 3]), sy); \
            } \
        } \
        float sum = vaddvq_f32(sums); \
        for (; i < n / 32; i++) { \
            const int32_t dot = vaddvq_s32(dot32(unpack_##type(&x[i]), y[i].qs)); \
            sum               = fmaf((float) dot, scale_##type(&x[i]) * half_at(&y[i].d), sum); \
            if (has_min) { \
                sum = fmaf(min_of(&x[i]), half_at(sum_of(&y[i])), sum); \
            } \
        } \
        return sum; \
    } \
    static void vec_dot_##type##__dotprod( \
        int n, float *restrict s, size_t bs, const void *restrict x, size_t bx, const void *restrict y, size_t by, int nrc) { \
        (void) bs, (void) bx, (void) by, (void) nrc; \
        *s = row_##type(n, x, y); \
    } \
    static void gemv_##type##__dotprod(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const char *y         = vy; \
            float32x4_t sums      = vdupq_n_f32(0.0f); \
            int64_t i             = 0; \
            for (; i + 4 <= n / 32; i += 4, x += 4, y += GROUP(has_min)) { \
                const int8_t *q      = (const int8_t *) y + HEAD(has_min); \
                const int32x4_t dots = sums_of(dot32(unpack_##type(&x[0]), q), dot32(unpack_##type(&x[1]), q + 32), \
                    dot32(unpack_##type(&x[2]), q + 64), dot32(unpack_##type(&x[3]), q + 96)); \
                const float32x4_t dx = scales_##type(&x[0], &x[1], &x[2], &x[3]); \
                sums                 = vfmaq_f32(sums, vcvtq_f32_s32(dots), vmulq_f32(dx, f32_at(y))); \
                if (has_min) { \
                    sums = vfmaq_f32(sums, mins_of(&x[0], &x[1], &x[2], &x[3]), f32_at(y + 16)); \
                } \
            } \
            float sum = vaddvq_f32(sums); \
            for (int j = 0; i < n / 32; i++, j++) { \
                const int32_t dot = vaddvq_s32(dot32(unpack_##type(&x[j]), (const int8_t *) y + HEAD(has_min) + 32 * j)); \
                sum               = fmaf((float) dot, scale_##type(&x[j]) * vgetq_lane_f32(f32_at(y + 4 * j), 0), sum); \
                if (has_min) { \
                    sum = fmaf(min_of(&x[j]), vgetq_lane_f32(f32_at(y + 16 + 4 * j), 0), sum); \
                } \
            } \
            s[r] = sum; \
        } \
    }

#define HEAD(has_min) (16 + 16 * (has_min))
#define GROUP(has_min) (HEAD(has_min) + 128)

UNPACK_INLINE float32x4_t f32_at(const char *at) {
    return vld1q_f32((const float *) (const void *) at);
}

DOT_Q32(q8_0, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(q4_0, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(q5_0, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(iq4_nl, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(mxfp4, q8_0, 0, NO_MIN, NO_MINS, SUM_NONE)
DOT_Q32(q4_1, q8_1, 1, min_q4_1, mins_q4_1, SUM_Q8_1)
DOT_Q32(q5_1, q8_1, 1, min_q5_1, mins_q5_1, SUM_Q8_1)

static void pack_q8_0__dotprod(int64_t n, void *panel, const float *y) {
    char *to = panel;
    for (int64_t i = 0; i < n; i += 128, to += GROUP(0)) {
        const int m = n - i < 128 ? (int) (n - i) : 128;
        block_q8_0 b[4];
        to_q8_0(y + i, b, m);
        for (int j = 0; j < m / 32; j++) {
            const float d = half_at(&b[j].d);
            memcpy(to + 4 * j, &d, sizeof d);
            memcpy(to + HEAD(0) + 32 * j, b[j].qs, 32);
        }
    }
}

static void pack_q8_1__dotprod(int64_t n, void *panel, const float *y) {
    char *to = panel;
    for (int64_t i = 0; i < n; i += 128, to += GROUP(1)) {
        const int m = n - i < 128 ? (int) (n - i) : 128;
        block_q8_1 b[4];
        to_q8_1(y + i, b, m);
        for (int j = 0; j < m / 32; j++) {
            const float d = half_at(&b[j].d), sum = half_at(&b[j].s);
            memcpy(to + 4 * j, &d, sizeof d);
            memcpy(to + 16 + 4 * j, &sum, sizeof sum);
            memcpy(to + HEAD(1) + 32 * j, b[j].qs, 32);
        }
    }
}

void cpu_tier_dotprod_q32(struct cpu_kernels *k) {
    to_q8_0 = k->traits[GGML_TYPE_Q8_0].from_float;
    to_q8_1 = k->traits[GGML_TYPE_Q8_1].from_float;
#define ROW(TYPE, type, y, has_min) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type##__dotprod; \
    k->gemv[GGML_TYPE_##TYPE]           = (struct cpu_gemv){pack_##y##__dotprod, gemv_##type##__dotprod, 128, GROUP(has_min)};
    ROW(Q8_0, q8_0, q8_0, 0)
    ROW(Q4_0, q4_0, q8_0, 0)
    ROW(Q5_0, q5_0, q8_0, 0)
    ROW(IQ4_NL, iq4_nl, q8_0, 0)
    ROW(MXFP4, mxfp4, q8_0, 0)
    ROW(Q4_1, q4_1, q8_1, 1)
    ROW(Q5_1, q5_1, q8_1, 1)
#undef ROW
}

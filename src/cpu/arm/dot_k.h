// SPDX-License-Identifier: MIT
// dot_k.h: dot products of the k-quants and of iq4_xs (dot_256.h). gemv_k.h has the one-column kernels of q4_K and q5_K.
#pragma once

#include "cpu/arm/dot_256.h"

UNPACK_INLINE int16x8_t s16_u8(uint8x8_t v) {
    return vreinterpretq_s16_u16(vmovl_u8(v));
}

// ---- dot products of one block ----
// block_<type>_dot returns a sum that the caller multiplies with d. *min: a sum that the caller multiplies with -dmin. Each sum
// is a vector of four partial sums.

UNPACK_INLINE int32x4_t block_q4_K_dot(const block_q4_K *x, const struct y_at *y, int32x4_t *min) {
    int8x16_t v[16];
    uint8x8_t scales, mins;
    unpack_q4_K(x, v);
    scales_6bit(x->scales, &scales, &mins);
    *min = dot_sums8(s16_u8(mins), y);
    return dot_runs32(v, s16_u8(scales), y);
}

UNPACK_INLINE int32x4_t block_q5_K_dot(const block_q5_K *x, const struct y_at *y, int32x4_t *min) {
    int8x16_t v[16];
    uint8x8_t scales, mins;
    unpack_q5_K(x, v);
    scales_6bit(x->scales, &scales, &mins);
    *min = dot_sums8(s16_u8(mins), y);
    return dot_runs32(v, s16_u8(scales), y);
}

UNPACK_INLINE int32x4_t block_q2_K_dot(const block_q2_K *x, const struct y_at *y, int32x4_t *min) {
    int8x16_t v[16];
    unpack_q2_K(x, v);
    const uint8x16_t both = vld1q_u8(x->scales), mins = vshrq_n_u8(both, 4), scales = low4(both);
    *min = dot_sums16(s16_u8(vget_low_u8(mins)), s16_u8(vget_high_u8(mins)), y);
    return dot_runs16(v, s16_u8(vget_low_u8(scales)), s16_u8(vget_high_u8(scales)), y);
}

UNPACK_INLINE int32x4_t block_q3_K_dot(const block_q3_K *x, const struct y_at *y, int32x4_t *min) {
    (void) min;
    int8x16_t v[16];
    unpack_q3_K(x, v);
    const int8x16_t scales = scales_q3_K(x->scales);
    const int16x8_t s0 = vmovl_s8(vget_low_s8(scales)), s1 = vmovl_high_s8(scales);
    return vsubq_s32(dot_runs16(v, s0, s1, y), vshlq_n_s32(dot_sums16(s0, s1, y), 2));
}

UNPACK_INLINE int32x4_t block_q6_K_dot(const block_q6_K *x, const struct y_at *y, int32x4_t *min) {
    (void) min;
    int8x16_t v[16];
    unpack_q6_K(x, v);
    const int8x16_t scales = vld1q_s8(x->scales);
    const int16x8_t s0 = vmovl_s8(vget_low_s8(scales)), s1 = vmovl_high_s8(scales);
    return vsubq_s32(dot_runs16(v, s0, s1, y), vshlq_n_s32(dot_sums16(s0, s1, y), 5));
}

UNPACK_INLINE int32x4_t block_iq4_xs_dot(const block_iq4_xs *x, const struct y_at *y, int32x4_t *min) {
    (void) min;
    int8x16_t v[16];
    unpack_iq4_xs(x, v);
    return dot_runs32(v, vmovl_s8(scales_iq4_xs(x)), y);
}

// ---- rows ----

#define DMIN(block) (&(block)->dmin)
#define NO_MIN(block) (&(block)->d)
#define DOT_K(type, has_min, min_of) \
    UNPACK_INLINE float32x4_t add_##type( \
        float32x4_t sums, const block_##type *x, const int8_t *qs, const int16_t *bsums, float d) { \
        const struct y_at y = {qs, bsums}; \
        int32x4_t m = vdupq_n_s32(0); \
        const int32x4_t dots = block_##type##_dot(x, &y, &m); \
        sums = vfmaq_n_f32(sums, vcvtq_f32_s32(dots), f16_as_float(&x->d) * d); \
        return has_min ? vfmaq_n_f32(sums, vcvtq_f32_s32(m), -f16_as_float(min_of(x)) * d) : sums; \
    } \
    static void vec_dot_##type(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_K *y = vy; \
        float32x4_t sums = vdupq_n_f32(0.0f); \
        for (int i = 0; i < n / QK_K; i++) { \
            sums = add_##type(sums, &x[i], y[i].qs, y[i].bsums, y[i].d); \
        } \
        *s = vaddvq_f32(sums); \
    }
// The four partial sums of a block are added before they are scaled. So the bits of a result are those of gemm_q__*.c.
#define GEMV_K(type) \
    static void gemv_##type(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const struct y256 *y = vy; \
            int32x4_t none; \
            float sum = 0.0f; \
            for (int64_t i = 0; i < n / QK_K; i++) { \
                const int32x4_t dots = block_##type##_dot(&x[i], &(struct y_at){y[i].qs, y[i].bsums}, &none); \
                sum = __builtin_fmaf((float) vaddvq_s32(dots), f16_as_float(&x[i].d) * y[i].d, sum); \
            } \
            s[r] = sum; \
        } \
    }
// With minima, that would take longer.
#define GEMV_K_MIN(type) \
    static void gemv_##type(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const struct y256 *y = vy; \
            float32x4_t sums = vdupq_n_f32(0.0f); \
            for (int64_t i = 0; i < n / QK_K; i++) { \
                sums = add_##type(sums, &x[i], y[i].qs, y[i].bsums, y[i].d); \
            } \
            s[r] = vaddvq_f32(sums); \
        } \
    }

DOT_K(q4_K, 1, DMIN)
DOT_K(q5_K, 1, DMIN)
DOT_K(q2_K, 1, DMIN)
DOT_K(q3_K, 0, NO_MIN)
DOT_K(q6_K, 0, NO_MIN)
DOT_K(iq4_xs, 0, NO_MIN)

GEMV_K_MIN(q2_K)
GEMV_K(q3_K)
GEMV_K(q6_K)
GEMV_K(iq4_xs)

void CPU_TIER_FILL(dot_k)(struct cpu_kernels *k) {
#define ROW(TYPE, type, invariant) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type; \
    k->gemv[GGML_TYPE_##TYPE] = (struct cpu_gemv){ \
        .pack_y = pack_q8_K, .run = gemv_##type, .step = QK_K, .y_size = sizeof(struct y256), .run_invariant = invariant};
    ROW(Q2_K, q2_K, NULL)
    ROW(Q3_K, q3_K, gemv_q3_K)
    ROW(Q6_K, q6_K, gemv_q6_K)
    ROW(IQ4_XS, iq4_xs, gemv_iq4_xs)
#undef ROW
    k->traits[GGML_TYPE_Q4_K].vec_dot = vec_dot_q4_K;
    k->traits[GGML_TYPE_Q5_K].vec_dot = vec_dot_q5_K;
}

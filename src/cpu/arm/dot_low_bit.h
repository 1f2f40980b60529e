// SPDX-License-Identifier: MIT
// dot_low_bit.h: dot products of q1_0, q2_0 and nvfp4 with q8_0. For one column (kernels.h: cpu_gemv), the elements of the column
// are stored in the order in which a mask and a shift extract those of a row. Lane i of the sums then belongs to the i-th quarter of
// a block, so that sums need no folding.
#pragma once

#include "cpu/arm/quantize.h"
#include "cpu/arm/unpack_low_bit.h"
#include "cpu/kernels.h"

// ---- rows of q8_0 ----

UNPACK_INLINE int32x4_t dot_lo(struct q32 q, const block_q8_0 *y) {
    return vdotq_s32(zeros(), q.lo, vld1q_s8(y->qs));
}
UNPACK_INLINE int32x4_t dot_hi(struct q32 q, const block_q8_0 *y, int32x4_t sum) {
    return vdotq_s32(sum, q.hi, vld1q_s8(y->qs + 16));
}

#define DOT_LOW_BIT(type, n_cells) \
    static void vec_dot_##type(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_0 *y = vy; \
        float32x4_t sums = vdupq_n_f32(0.0f); \
        for (int i = 0; i < n / (32 * (n_cells)); i++) { \
            const float d = f16_as_float(&x[i].d); \
            for (int j = 0; j < (n_cells); j++, y++) { \
                const struct q32 q = cell_##type(&x[i], j); \
                sums = vfmaq_n_f32(sums, vcvtq_f32_s32(dot_hi(q, y, dot_lo(q, y))), d * f16_as_float(&y->d)); \
            } \
        } \
        *s = vaddvq_f32(sums); \
    }
DOT_LOW_BIT(q1_0, 4)
DOT_LOW_BIT(q2_0, 2)

static void vec_dot_nvfp4(CPU_DOT_ARGS) {
    const block_nvfp4 *x = vx;
    const block_q8_0 *y = vy;
    float32x4_t sums = vdupq_n_f32(0.0f);
    for (int i = 0; i < n / QK_NVFP4; i++, y += 2) {
        const float32x4_t d = scales_nvfp4(&x[i]);
        const struct q32 a = cell_nvfp4(&x[i], 0), b = cell_nvfp4(&x[i], 1);
        const int32x4_t zero = vdupq_n_s32(0);
        const int32x4_t dots =
            vpaddq_s32(vpaddq_s32(dot_lo(a, y), dot_hi(a, y, zero)), vpaddq_s32(dot_lo(b, y + 1), dot_hi(b, y + 1, zero)));
        const float d0 = f16_as_float(&y[0].d), d1 = f16_as_float(&y[1].d);
        sums = vfmaq_f32(sums, vcvtq_f32_s32(dots), vmulq_f32(d, (float32x4_t){d0, d0, d1, d1}));
    }
    *s = vaddvq_f32(sums);
}

// ---- one column ----

// 64 elements of a column, or 128 for q1_0. Lane i of d and sums belongs to quarter i.
#define NVFP4_Y_FACTOR 0x1p110f // a part of NVFP4_FACTOR with which the largest scale of a column stays finite
struct y64 {
    int8_t qs[4][16];
    float d[4];            // nvfp4: times NVFP4_Y_FACTOR
    int32_t minus_sums[4]; // for q2_0
};
struct y128 {
    int8_t qs[8][16];                 // element 8 j + k in qs[k][j]
    float minus_2d[4], minus_sums[4]; // -2 d; -d times the sum
};

static void pack_q1_0(CPU_TABLE, int64_t n, void *panel, const float *y) {
    struct y128 *to = panel;
    for (int64_t i = 0; i < n / 128; i++, to++) {
        int8_t qs[128];
        for (int j = 0; j < 4; j++) {
            block_q8_0 b;
            block_q8_0_of(y + i * 128 + j * 32, &b);
            const float d = f16_as_float(&b.d);
            memcpy(qs + 32 * j, b.qs, sizeof b.qs);
            to->minus_2d[j] = -2.0f * d;
            to->minus_sums[j] = -d * (float) (vaddlvq_s8(vld1q_s8(b.qs)) + vaddlvq_s8(vld1q_s8(b.qs + 16)));
        }
        const int8x16x4_t a = vld4q_s8(qs), b = vld4q_s8(qs + 64); // element 4 j + k in val[k][j]
        for (int k = 0; k < 4; k++) {
            vst1q_s8(to->qs[k], vuzp1q_s8(a.val[k], b.val[k]));
            vst1q_s8(to->qs[k + 4], vuzp2q_s8(a.val[k], b.val[k]));
        }
    }
}

// is_nvfp4: qs[2 j] holds the first 8 elements of the groups 2 j and 2 j + 1, qs[2 j + 1] the last 8. Otherwise, qs[k][j] holds
// element 4 j + k.
UNPACK_INLINE void pack_64(int64_t n, struct y64 *to, const float *y, const bool is_nvfp4) {
    for (int64_t i = 0; i < n / 64; i++, to++) {
        int8_t qs[64];
        for (int j = 0; j < 2; j++) {
            block_q8_0 b;
            block_q8_0_of(y + i * 64 + j * 32, &b);
            memcpy(qs + 32 * j, b.qs, sizeof b.qs);
            const int8x16_t v[2] = {vld1q_s8(b.qs), vld1q_s8(b.qs + 16)};
            for (int k = 0; k < 2; k++) {
                to->d[2 * j + k] = f16_as_float(&b.d) * (is_nvfp4 ? NVFP4_Y_FACTOR : 1.0f);
                to->minus_sums[2 * j + k] = -vaddlvq_s8(v[k]);
                if (is_nvfp4) {
                    vst1_s8(to->qs[2 * j] + 8 * k, vget_low_s8(v[k]));
                    vst1_s8(to->qs[2 * j + 1] + 8 * k, vget_high_s8(v[k]));
                }
            }
        }
        if (!is_nvfp4) {
            const int8x16x4_t v = vld4q_s8(qs);
            for (int k = 0; k < 4; k++) {
                vst1q_s8(to->qs[k], v.val[k]);
            }
        }
    }
}
static void pack_q2_0(CPU_TABLE, int64_t n, void *panel, const float *y) {
    pack_64(n, panel, y, false);
}
static void pack_nvfp4(CPU_TABLE, int64_t n, void *panel, const float *y) {
    pack_64(n, panel, y, true);
}

// ---- the product of a block ----
// row_<type> unpacks a block to v and returns its scales. add_<type> adds its product with a part of a column.

// A set bit counts as 1, a clear bit as -1: twice the sum over set bits, minus the sum over all. A mask is -1 for a set bit.
UNPACK_INLINE float32x4_t row_q1_0(const block_q1_0 *x, int8x16_t *v) {
    const uint8x16_t q = vld1q_u8(x->qs);
    for (int k = 0; k < 8; k++) {
        v[k] = s8(vtstq_u8(q, vdupq_n_u8((uint8_t) (1 << k))));
    }
    return vdupq_n_f32(f16_as_float(&x->d));
}
UNPACK_INLINE float32x4_t add_q1_0(float32x4_t sums, const int8x16_t *v, float32x4_t d, const struct y128 *y) {
    int32x4_t dots = zeros();
    for (int k = 0; k < 8; k++) {
        dots = vdotq_s32(dots, v[k], vld1q_s8(y->qs[k]));
    }
    return vfmaq_f32(sums, vfmaq_f32(vld1q_f32(y->minus_sums), vcvtq_f32_s32(dots), vld1q_f32(y->minus_2d)), d);
}

UNPACK_INLINE float32x4_t row_q2_0(const block_q2_0 *x, int8x16_t *v) {
    const uint8x16_t q = vld1q_u8(x->qs), three = vdupq_n_u8(3);
    v[0] = s8(vandq_u8(q, three));
    v[1] = s8(vandq_u8(vshrq_n_u8(q, 2), three));
    v[2] = s8(vandq_u8(vshrq_n_u8(q, 4), three));
    v[3] = s8(vshrq_n_u8(q, 6));
    return vdupq_n_f32(f16_as_float(&x->d));
}
UNPACK_INLINE float32x4_t add_q2_0(float32x4_t sums, const int8x16_t *v, float32x4_t d, const struct y64 *y) {
    int32x4_t dots = vld1q_s32(y->minus_sums);
    for (int k = 0; k < 4; k++) {
        dots = vdotq_s32(dots, v[k], vld1q_s8(y->qs[k]));
    }
    return vfmaq_f32(sums, vcvtq_f32_s32(dots), vmulq_f32(vld1q_f32(y->d), d));
}

UNPACK_INLINE float32x4_t row_nvfp4(const block_nvfp4 *x, int8x16_t *v) {
    const struct q32 a = q32_table(table_mxfp4, vld1q_u8(x->qs)), b = q32_table(table_mxfp4, vld1q_u8(x->qs + 16));
    v[0] = a.lo;
    v[1] = a.hi;
    v[2] = b.lo;
    v[3] = b.hi;
    return small_scales_nvfp4(x);
}
UNPACK_INLINE float32x4_t add_nvfp4(float32x4_t sums, const int8x16_t *v, float32x4_t d, const struct y64 *y) {
    const int32x4_t lo = vdotq_s32(vdotq_s32(zeros(), v[0], vld1q_s8(y->qs[0])), v[1], vld1q_s8(y->qs[1]));
    const int32x4_t hi = vdotq_s32(vdotq_s32(zeros(), v[2], vld1q_s8(y->qs[2])), v[3], vld1q_s8(y->qs[3]));
    return vfmaq_f32(sums, vcvtq_f32_s32(vpaddq_s32(lo, hi)), vmulq_f32(vld1q_f32(y->d), d));
}

#define GEMV_LOW_BIT(type, n_block, y_type, factor) \
    static void gemv_##type(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const struct y_type *y = vy; \
            float32x4_t sums = vdupq_n_f32(0.0f); \
            for (int64_t i = 0; i < n / (n_block); i++) { \
                int8x16_t v[(n_block) / 16]; \
                const float32x4_t d = row_##type(&x[i], v); \
                sums = add_##type(sums, v, d, &y[i]); \
            } \
            s[r] = vaddvq_f32(sums) * (factor); \
        } \
    } \
    static void gemv_cols_##type(int64_t n, float *const *s, const void *vx, size_t bx, int nx, const void *const *y, int ny) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            float32x4_t sums[CPU_GEMV_COLS]; \
            memset(sums, 0, sizeof sums); \
            for (int64_t i = 0; i < n / (n_block); i++) { \
                int8x16_t v[(n_block) / 16]; \
                const float32x4_t d = row_##type(&x[i], v); \
                for (int c = 0; c < ny; c++) { \
                    sums[c] = add_##type(sums[c], v, d, (const struct y_type *) y[c] + i); \
                } \
            } \
            for (int c = 0; c < ny; c++) { \
                s[c][r] = vaddvq_f32(sums[c]) * (factor); \
            } \
        } \
    }
GEMV_LOW_BIT(q1_0, 128, y128, 1.0f)
GEMV_LOW_BIT(q2_0, 64, y64, 1.0f)
GEMV_LOW_BIT(nvfp4, 64, y64, NVFP4_FACTOR / NVFP4_Y_FACTOR)

void CPU_TIER_FILL(dot_low_bit)(struct cpu_kernels *k) {
#define ROW(TYPE, type, n_block, y_type) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type; \
    k->gemv[GGML_TYPE_##TYPE] = (struct cpu_gemv){.pack_y = pack_##type, \
        .run = gemv_##type, \
        .run_cols = gemv_cols_##type, \
        .step = n_block, \
        .y_size = sizeof(struct y_type)};
    ROW(Q1_0, q1_0, 128, y128)
    ROW(Q2_0, q2_0, 64, y64)
    ROW(NVFP4, nvfp4, 64, y64)
#undef ROW
}

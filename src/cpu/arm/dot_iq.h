// SPDX-License-Identifier: MIT
// dot_iq.h: dot products of the formats of unpack_iq.h (dot_256.h). A cell is multiplied as soon as it is unpacked.
#pragma once

#include "cpu/arm/dot_256.h"
#include "cpu/arm/unpack_iq.h"

UNPACK_INLINE int32x4_t cell_dot(struct q32 q, const int8_t *y) {
    return vdotq_s32(vdotq_s32(zeros(), q.lo, vld1q_s8(y)), q.hi, vld1q_s8(y + 16));
}
UNPACK_INLINE int32x4_t two_cells_dots(struct q32 a, struct q32 b, const int8_t *y) {
    return sums_across4(vdotq_s32(zeros(), a.lo, vld1q_s8(y)), vdotq_s32(zeros(), a.hi, vld1q_s8(y + 16)),
        vdotq_s32(zeros(), b.lo, vld1q_s8(y + 32)), vdotq_s32(zeros(), b.hi, vld1q_s8(y + 48)));
}

// Adds scale * dot product of the runs of four cells. scale: one number per run.
UNPACK_INLINE int32x4_t add_cells(int32x4_t sum, const struct q32 *q, const int32x4_t *scale, const int8_t *y, const int n_runs) {
    if (n_runs == 8) {
        const int32x4_t dots =
            sums_across4(cell_dot(q[0], y), cell_dot(q[1], y + 32), cell_dot(q[2], y + 64), cell_dot(q[3], y + 96));
        return vmlaq_s32(sum, dots, scale[0]);
    }
    return vmlaq_s32(vmlaq_s32(sum, two_cells_dots(q[0], q[1], y), scale[0]), two_cells_dots(q[2], q[3], y + 64), scale[1]);
}

// Defines q and scale: four cells, from cell 4 h on, and the scales of their runs.
#define FOUR_CELLS(type, n_runs, h) \
    const struct q32 q[4] = {cell_##type(&x[i], 4 * (h)), cell_##type(&x[i], 4 * (h) + 1), cell_##type(&x[i], 4 * (h) + 2), \
        cell_##type(&x[i], 4 * (h) + 3)}; \
    const int16x8_t s16 = (n_runs) == 8 || (h) == 0 ? vmovl_s8(vget_low_s8(scales)) : vmovl_high_s8(scales); \
    const int32x4_t low = vmovl_s16(vget_low_s16(s16)), high = vmovl_high_s16(s16); \
    const int32x4_t scale[2] = {(n_runs) == 8 && (h) == 1 ? high : low, high};

#define DOT_IQ(TYPE, type, n_runs) \
    UNPACK_INLINE int32x4_t dots_##type(const block_##type *x, const int8_t *y) { \
        const int i = 0; \
        const int8x16_t scales = scales_##type(x); \
        int32x4_t dots = vdupq_n_s32(0); \
        { \
            FOUR_CELLS(type, n_runs, 0) \
            dots = add_cells(dots, q, scale, y, n_runs); \
        } \
        { \
            FOUR_CELLS(type, n_runs, 1) \
            dots = add_cells(dots, q, scale, y + 128, n_runs); \
        } \
        return dots; \
    } \
    static void vec_dot_##type(CPU_DOT_ARGS) { \
        const block_##type *x = vx; \
        const block_q8_K *y = vy; \
        float32x4_t sums = vdupq_n_f32(0.0f); \
        for (int i = 0; i < n / QK_K; i++) { \
            sums = vfmaq_n_f32(sums, vcvtq_f32_s32(dots_##type(&x[i], y[i].qs)), d_##type(&x[i]) * y[i].d); \
        } \
        *s = vaddvq_f32(sums); \
    }
IQ_FORMATS(DOT_IQ)

#define GEMV_COLS(TYPE, type, n_runs) \
    static void gemv_cols_##type(int64_t n, float *const *s, const void *vx, size_t bx, int nx, const void *const *vy, int ny) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            float32x4_t sums[CPU_GEMV_COLS]; \
            memset(sums, 0, sizeof sums); \
            for (int64_t i = 0; i < n / QK_K; i++) { \
                const int8x16_t scales = scales_##type(&x[i]); \
                const float d = d_##type(&x[i]); \
                int32x4_t dots[CPU_GEMV_COLS]; \
                { \
                    FOUR_CELLS(type, n_runs, 0) \
                    for (int c = 0; c < ny; c++) { \
                        dots[c] = add_cells(zeros(), q, scale, ((const struct y256 *) vy[c])[i].qs, n_runs); \
                    } \
                } \
                FOUR_CELLS(type, n_runs, 1) \
                for (int c = 0; c < ny; c++) { \
                    const struct y256 *y = (const struct y256 *) vy[c] + i; \
                    const int32x4_t all = add_cells(dots[c], q, scale, y->qs + 128, n_runs); \
                    sums[c] = vfmaq_n_f32(sums[c], vcvtq_f32_s32(all), d * y->d); \
                } \
            } \
            for (int c = 0; c < ny; c++) { \
                s[c][r] = vaddvq_f32(sums[c]); \
            } \
        } \
    }
CODEBOOK_FORMATS(GEMV_COLS)

// ---- a ternary block with a block of a packed column ----
// Trits are 0 to 2. The sum of the column is subtracted once per block: the sums start with it.

// The bits of a trit are not shifted down. The sums a1 and a2 are 4 and 16 times too large.
UNPACK_INLINE int32x4_t trits_tq2_0(const block_tq2_0 *x, const int8_t *y, int32x4_t a0) {
    const uint8x16_t m0 = vdupq_n_u8(0x03), m1 = vdupq_n_u8(0x0c), m2 = vdupq_n_u8(0x30);
    int32x4_t a1 = zeros(), a2 = zeros(), a3 = zeros();
    for (int j = 0; j < 4; j++) {
        const uint8x16_t q = vld1q_u8(x->qs + 16 * j);
        const int8_t *at = y + j / 2 * 128 + j % 2 * 16;
        a0 = vdotq_s32(a0, s8(vandq_u8(q, m0)), vld1q_s8(at));
        a1 = vdotq_s32(a1, s8(vandq_u8(q, m1)), vld1q_s8(at + 32));
        a2 = vdotq_s32(a2, s8(vandq_u8(q, m2)), vld1q_s8(at + 64));
        a3 = vdotq_s32(a3, s8(vshrq_n_u8(q, 6)), vld1q_s8(at + 96));
    }
    return vsraq_n_s32(vsraq_n_s32(vaddq_s32(a0, a3), a1, 2), a2, 4);
}

// Two trits of a fraction f (low_bit.c) are the digits of 9 f / 256. Tables separate them.
UNPACK_INLINE int32x4_t trits_tq1_0(const block_tq1_0 *x, const int8_t *y, int32x4_t sum) {
    const int8x16_t first = {0, 0, 0, 1, 1, 1, 2, 2, 2}, second = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    const uint8x16_t powers = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    for (int j = 0; j < 3; j++) {
        const int step = j < 2 ? 32 : 16; // elements between the trits of a byte
        const int8_t *at = y + (j < 2 ? 16 * j : 160);
        uint8x16_t f = vld1q_u8(x->qs + 16 * j);
        for (int r = 0; r < 4; r += 2) {
            const uint8x16_t two = vshrq_n_u8(vhaddq_u8(f, vshrq_n_u8(f, 3)), 4);
            sum = vdotq_s32(sum, vqtbl1q_s8(first, two), vld1q_s8(at + r * step));
            sum = vdotq_s32(sum, vqtbl1q_s8(second, two), vld1q_s8(at + (r + 1) * step));
            f = vaddq_u8(f, vshlq_n_u8(f, 3));
        }
        sum = vdotq_s32(sum, first_trit(f), vld1q_s8(at + 4 * step));
    }
    return vdotq_s32(sum, first_trit(vmulq_u8(four_bytes(x->qh), powers)), vld1q_s8(y + 240));
}

// ---- one column ----
// The four partial sums of a block are added before they are scaled. So the bits of a result are those of gemm_q__*.c.

#define GEMV(type, dots_of) \
    static void gemv_##type(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const struct y256 *y = vy; \
            float sum = 0.0f; \
            for (int64_t i = 0; i < n / QK_K; i++) { \
                sum = __builtin_fmaf((float) vaddvq_s32(dots_of), d_##type(&x[i]) * y[i].d, sum); \
            } \
            s[r] = sum; \
        } \
    }
#define GEMV_CODEBOOK(TYPE, type, n_runs) GEMV(type, dots_##type(&x[i], y[i].qs))
#define GEMV_TERNARY(TYPE, type, n_runs) GEMV(type, trits_##type(&x[i], y[i].qs, vld1q_s32(y[i].minus_sum)))
CODEBOOK_FORMATS(GEMV_CODEBOOK)
TERNARY_FORMATS(GEMV_TERNARY)

void CPU_TIER_FILL(dot_iq)(struct cpu_kernels *k) {
#define ROW(TYPE, type, n_runs) \
    k->traits[GGML_TYPE_##TYPE].vec_dot = vec_dot_##type; \
    k->gemv[GGML_TYPE_##TYPE] = (struct cpu_gemv){ \
        .pack_y = pack_q8_K, .run = gemv_##type, .step = QK_K, .y_size = sizeof(struct y256), .run_invariant = gemv_##type};
#define COLS(TYPE, type, n_runs) k->gemv[GGML_TYPE_##TYPE].run_cols = gemv_cols_##type;
    cpu_codebooks_init();
    IQ_FORMATS(ROW)
    CODEBOOK_FORMATS(COLS)
#undef ROW
}

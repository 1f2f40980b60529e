// SPDX-License-Identifier: MIT
// panel_q.h: packs quantised rows (x) and float columns (y) into panels, for products with many columns (gemm_q__*.c). Rows are
// unpacked once for all columns. Elements are bytes, in the order in which the tier multiplies them.
//
// A panel consists of lines. A line of x has 16 bytes for each group of GROUP rows: STEP bytes or one number of each row. A line
// of y has STEP bytes or one number of each column. Run: 16 or 32 elements with a common scale. The lines of a block ([..]?: only
// for formats with minima):
//   blocks of 32:  x: [scale] [minimum]? [bytes: LINES(32) lines]
//                  y: [scale] [sum]? [bytes: LINES(32) lines]
//   blocks of 256: x: [d] [scales as int32: a line per run] [minima as float: a line per run]? [bytes: LINES(256) lines]
//                  y: [d] [sums as float: a line per run]? [bytes: LINES(256) lines]
// Missing rows and columns are copies of the first one. Their results are not stored.
//
// The including file defines MR, NR and GROUP, and these functions for the layout of numbers within a line:
//   x_lines4(to, v)      stores four numbers v[r] of each row r of a group; number j goes to line j
//   x_bytes(to, v)       stores 16 bytes v[r] of each row r of a group in LINES(16) lines
//   y_number(line, c, v) stores a number v of column c
#pragma once

#include "cpu/arm/quantize.h"
#include "cpu/arm/unpack.h"
#include "cpu/kernels.h"

#define AHEAD 512                // bytes: prefetch distance within a row
#define STEP (16 / GROUP)        // bytes of each row or column in a line
#define LINES(n) ((n) / STEP)    // lines of n elements
#define X_LINE (MR / GROUP * 16) // bytes of a line of x
#define Y_LINE (NR * STEP)       // bytes of a line of y

UNPACK_INLINE void x_lines4(char *to, const int32x4_t *v);
UNPACK_INLINE void x_bytes(char *to, const int8x16_t *v);
UNPACK_INLINE void y_number(char *line, int c, float v);

// ---- helpers for the products ----

UNPACK_INLINE float32x4_t f32_at(const char *at) {
    return vld1q_f32((const float *) (const void *) at);
}

UNPACK_INLINE int8x16_t s8_at(const char *at) {
    return vld1q_s8((const int8_t *) (const void *) at);
}

UNPACK_INLINE int32x4_t s32_at(const char *at) {
    return vld1q_s32((const int32_t *) (const void *) at);
}

UNPACK_INLINE void store_tile(float tile[NR][MR], float *s, int64_t ld_s, int nx, int ny) {
    for (int c = 0; c < ny; c++) {
        if (nx == MR) { // constant size, so that the copy is inlined
            memcpy(s + c * ld_s, tile[c], sizeof tile[c]);
        } else {
            memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
        }
    }
}

// ---- panels of y ----

UNPACK_INLINE void y_bytes(char *to, int c, const int8_t *q) {
    for (int j = 0; j < LINES(32); j++) {
        memcpy(to + j * Y_LINE + c * STEP, q + j * STEP, STEP);
    }
}

static void pack_y_q8_0(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to = panel;
        for (int64_t i = 0; i < n; i += 32, to += (1 + LINES(32)) * Y_LINE) {
            block_q8_0 b;
            block_q8_0_of(from + i, &b);
            y_number(to, c, f16_as_float(&b.d));
            y_bytes(to + Y_LINE, c, b.qs);
        }
    }
}

static void pack_y_q8_1(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to = panel;
        for (int64_t i = 0; i < n; i += 32, to += (2 + LINES(32)) * Y_LINE) {
            block_q8_1 b;
            block_q8_1_of(from + i, &b);
            y_number(to, c, f16_as_float(&b.d));
            y_number(to + Y_LINE, c, f16_as_float(&b.s));
            y_bytes(to + 2 * Y_LINE, c, b.qs);
        }
    }
}

// n_sums: runs with sums in the panel: 0, 8 or 16.
UNPACK_INLINE void pack_y_q8_K(int64_t n, char *panel, const float *const *y, int ny, const int n_sums) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to = panel;
        for (int64_t i = 0; i < n; i += QK_K, to += (1 + n_sums + LINES(QK_K)) * Y_LINE) {
            block_q8_K b;
            block_q8_K_of(from + i, &b);
            y_number(to, c, b.d);
            for (int r = 0; r < n_sums; r++) {
                const int sum = n_sums == 16 ? b.bsums[r] : b.bsums[2 * r] + b.bsums[2 * r + 1];
                y_number(to + (1 + r) * Y_LINE, c, b.d * (float) sum);
            }
            for (int j = 0; j < 8; j++) {
                y_bytes(to + (1 + n_sums + LINES(32) * j) * Y_LINE, c, b.qs + 32 * j);
            }
        }
    }
}

static void pack_y_k(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    pack_y_q8_K(n, panel, y, ny, 0);
}
static void pack_y_k8_min(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    pack_y_q8_K(n, panel, y, ny, 8);
}
static void pack_y_k16_min(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    pack_y_q8_K(n, panel, y, ny, 16);
}

// ---- panels of x ----

// Stores the scales of 8 runs of a group in 8 lines.
UNPACK_INLINE void x_scales8(char *to, const int8x8_t *scales) {
    int32x4_t lo[GROUP], hi[GROUP];
    for (int r = 0; r < GROUP; r++) {
        const int16x8_t v = vmovl_s8(scales[r]);
        lo[r] = vmovl_s16(vget_low_s16(v));
        hi[r] = vmovl_high_s16(v);
    }
    x_lines4(to, lo);
    x_lines4(to + 4 * X_LINE, hi);
}

// Stores the minima of 8 runs in 8 lines, times -dmin, so that the kernel adds them.
UNPACK_INLINE void x_mins8(char *to, const int8x8_t *mins, const float *dmin) {
    int32x4_t lo[GROUP], hi[GROUP];
    for (int r = 0; r < GROUP; r++) {
        const int16x8_t v = vmovl_s8(mins[r]);
        lo[r] = vreinterpretq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), -dmin[r]));
        hi[r] = vreinterpretq_s32_f32(vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(v)), -dmin[r]));
    }
    x_lines4(to, lo);
    x_lines4(to + 4 * X_LINE, hi);
}

#define X_NUMBERS(line, of, row) vst1q_f32((float *) (void *) (line), of((row)[0], (row)[1], (row)[GROUP - 2], (row)[GROUP - 1]))

#define ROWS_OF(type) \
    const block_##type *row[GROUP]; \
    for (int r = 0; r < GROUP; r++) { \
        row[r] = (const void *) ((const char *) x + (g * GROUP + r < nx ? (size_t) (g * GROUP + r) * bx : 0)); \
    }
#define NEXT_BLOCKS \
    for (int r = 0; r < GROUP; r++) { \
        for (size_t line = 0; line < sizeof *row[r]; line += 64) { \
            __builtin_prefetch((const char *) row[r] + AHEAD + line, 0, 3); \
        } \
        row[r]++; \
    }

#define PACK_32(type, has_min, mins_of) \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        for (int g = 0; g < MR / GROUP; g++) { \
            ROWS_OF(type) \
            char *to = (char *) panel + g * 16; \
            for (int64_t i = 0; i < n / 32; i++, to += (1 + has_min + LINES(32)) * X_LINE) { \
                int8x16_t lo[GROUP], hi[GROUP]; \
                for (int r = 0; r < GROUP; r++) { \
                    const struct q32 q = unpack_##type(row[r]); \
                    lo[r] = q.lo; \
                    hi[r] = q.hi; \
                } \
                X_NUMBERS(to, scales_##type, row); \
                if (has_min) { \
                    X_NUMBERS(to + X_LINE, mins_of, row); \
                } \
                x_bytes(to + (1 + has_min) * X_LINE, lo); \
                x_bytes(to + (1 + has_min + LINES(16)) * X_LINE, hi); \
                NEXT_BLOCKS \
            } \
        } \
    }
#define NO_MINS(a, b, c, d) vdupq_n_f32(0.0f)
PACK_32(q8_0, 0, NO_MINS)
PACK_32(q4_0, 0, NO_MINS)
PACK_32(q5_0, 0, NO_MINS)
PACK_32(iq4_nl, 0, NO_MINS)
PACK_32(mxfp4, 0, NO_MINS)
PACK_32(q4_1, 1, mins_q4_1)
PACK_32(q5_1, 1, mins_q5_1)

#define HEADS_6BIT(type) \
    UNPACK_INLINE void heads_##type(char *to, const block_##type *const *row) { \
        int8x8_t scales[GROUP], mins[GROUP]; \
        float dmin[GROUP]; \
        for (int r = 0; r < GROUP; r++) { \
            uint8x8_t s, m; \
            scales_6bit(row[r]->scales, &s, &m); \
            scales[r] = vreinterpret_s8_u8(s); \
            mins[r] = vreinterpret_s8_u8(m); \
            dmin[r] = f16_as_float(&row[r]->dmin); \
        } \
        x_scales8(to, scales); \
        x_mins8(to + 8 * X_LINE, mins, dmin); \
    }
HEADS_6BIT(q4_K)
HEADS_6BIT(q5_K)

UNPACK_INLINE void split_low_high(const int8x16_t *v, int8x8_t *lo, int8x8_t *hi) {
    for (int r = 0; r < GROUP; r++) {
        lo[r] = vget_low_s8(v[r]);
        hi[r] = vget_high_s8(v[r]);
    }
}
UNPACK_INLINE void heads_16(char *to, const int8x16_t *scales) {
    int8x8_t lo[GROUP], hi[GROUP];
    split_low_high(scales, lo, hi);
    x_scales8(to, lo);
    x_scales8(to + 8 * X_LINE, hi);
}
UNPACK_INLINE void heads_q2_K(char *to, const block_q2_K *const *row) {
    int8x16_t scales[GROUP], mins[GROUP];
    int8x8_t lo[GROUP], hi[GROUP];
    float dmin[GROUP];
    for (int r = 0; r < GROUP; r++) {
        const uint8x16_t both = vld1q_u8(row[r]->scales);
        scales[r] = s8(low4(both));
        mins[r] = s8(vshrq_n_u8(both, 4));
        dmin[r] = f16_as_float(&row[r]->dmin);
    }
    heads_16(to, scales);
    split_low_high(mins, lo, hi);
    x_mins8(to + 16 * X_LINE, lo, dmin);
    x_mins8(to + 24 * X_LINE, hi, dmin);
}
UNPACK_INLINE void heads_q3_K(char *to, const block_q3_K *const *row) {
    int8x16_t scales[GROUP];
    for (int r = 0; r < GROUP; r++) {
        scales[r] = scales_q3_K(row[r]->scales);
    }
    heads_16(to, scales);
}
UNPACK_INLINE void heads_q6_K(char *to, const block_q6_K *const *row) {
    int8x16_t scales[GROUP];
    for (int r = 0; r < GROUP; r++) {
        scales[r] = vld1q_s8(row[r]->scales);
    }
    heads_16(to, scales);
}
UNPACK_INLINE void heads_iq4_xs(char *to, const block_iq4_xs *const *row) {
    int8x8_t scales[GROUP];
    for (int r = 0; r < GROUP; r++) {
        scales[r] = scales_iq4_xs(row[r]);
    }
    x_scales8(to, scales);
}

// Defines pack_x_<type>. n_head: lines of scales and minima. offset: subtracted from every element.
#define D_OF(a, b, c, d0) f16x4_as_floats(&(a)->d, &(b)->d, &(c)->d, &(d0)->d)
#define PACK_256(type, n_head, offset) \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        for (int g = 0; g < MR / GROUP; g++) { \
            ROWS_OF(type) \
            char *to = (char *) panel + g * 16; \
            for (int64_t i = 0; i < n / QK_K; i++, to += (1 + (n_head) + LINES(QK_K)) * X_LINE) { \
                int8x16_t v[GROUP][16], same[GROUP]; \
                for (int r = 0; r < GROUP; r++) { \
                    unpack_##type(row[r], v[r]); \
                } \
                X_NUMBERS(to, D_OF, row); \
                heads_##type(to + X_LINE, row); \
                for (int j = 0; j < 16; j++) { \
                    for (int r = 0; r < GROUP; r++) { \
                        same[r] = vsubq_s8(v[r][j], vdupq_n_s8(offset)); \
                    } \
                    x_bytes(to + (1 + (n_head) + LINES(16) * j) * X_LINE, same); \
                } \
                NEXT_BLOCKS \
            } \
        } \
    }
PACK_256(q4_K, 16, 0)
PACK_256(q5_K, 16, 0)
PACK_256(q2_K, 32, 0)
PACK_256(q3_K, 16, 4)
PACK_256(q6_K, 16, 32)
PACK_256(iq4_xs, 8, 0)

// ---- a tier ----

// The including file must define run_32(n, s, ld_s, x, nx, y, ny, has_min) for blocks of 32 and run_256(..., n_runs, has_min) for
// blocks of 256.
#define GEMM_Q_RUN(name, call, ...) \
    static void run_##name(CPU_GEMM_ARGS) { \
        call(n, s, ld_s, vx, nx, vy, ny, __VA_ARGS__); \
    }
#define GEMM_Q_ROW(TYPE, type, y, run, n_step, x_head, y_head) \
    k->gemm[GGML_TYPE_##TYPE] = (struct cpu_gemm){pack_x_##type, pack_y_##y, run_##run, MR, NR, MIN_COLS, n_step, \
        ((x_head) + LINES(n_step)) * X_LINE, ((y_head) + LINES(n_step)) * Y_LINE, 0, 0, {NULL, 0, 0}};
#define GEMM_Q_TIER(filler) \
    GEMM_Q_RUN(q32, run_32, false) \
    GEMM_Q_RUN(q32_min, run_32, true) \
    GEMM_Q_RUN(k8, run_256, 8, false) \
    GEMM_Q_RUN(k8_min, run_256, 8, true) \
    GEMM_Q_RUN(k16, run_256, 16, false) \
    GEMM_Q_RUN(k16_min, run_256, 16, true) \
    filler(struct cpu_kernels *k) { \
        GEMM_Q_ROW(Q8_0, q8_0, q8_0, q32, 32, 1, 1) \
        GEMM_Q_ROW(Q4_0, q4_0, q8_0, q32, 32, 1, 1) \
        GEMM_Q_ROW(Q5_0, q5_0, q8_0, q32, 32, 1, 1) \
        GEMM_Q_ROW(IQ4_NL, iq4_nl, q8_0, q32, 32, 1, 1) \
        GEMM_Q_ROW(MXFP4, mxfp4, q8_0, q32, 32, 1, 1) \
        GEMM_Q_ROW(Q4_1, q4_1, q8_1, q32_min, 32, 2, 2) \
        GEMM_Q_ROW(Q5_1, q5_1, q8_1, q32_min, 32, 2, 2) \
        GEMM_Q_ROW(Q4_K, q4_K, k8_min, k8_min, 256, 17, 9) \
        GEMM_Q_ROW(Q5_K, q5_K, k8_min, k8_min, 256, 17, 9) \
        GEMM_Q_ROW(IQ4_XS, iq4_xs, k, k8, 256, 9, 1) \
        GEMM_Q_ROW(Q3_K, q3_K, k, k16, 256, 17, 1) \
        GEMM_Q_ROW(Q6_K, q6_K, k, k16, 256, 17, 1) \
        GEMM_Q_ROW(Q2_K, q2_K, k16_min, k16_min, 256, 33, 17) \
    }

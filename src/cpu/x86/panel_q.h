// SPDX-License-Identifier: MIT
// panel_q.h: packs quantised rows (x) and float columns (y) into panels, for products with many columns. The including file
// defines MR (rows of a panel, a multiple of 8), NR (columns) and OFFSET_8BIT (the offset of 8-bit elements).
//
// A run is R elements (32 or 16) of a row with a common scale. A quad is four bytes, which one instruction lane multiplies.
//   x: [scale: MR floats] [minimum: MR floats]? [bytes: R / 4 times {a quad of each row}]
//   y: [initial: NR] [scale: NR floats]         [bytes: R / 4 times {a quad of each column}]
// Bytes of x are unsigned: value + offset. Without minima, `initial` is the integer -offset * sum of the column's bytes in the
// run. With minima, the offset is 0, and `initial` is the float scale * sum of the column's bytes. Missing rows and columns are
// copies of the first one. Their results are not stored.
#pragma once

#include "cpu/kernels.h"
#include "cpu/x86/unpack_iq.h"

// With fewer columns, gemv_q.h, which multiplies all columns in one pass, is faster than packing rows. It takes longer per column of
// blocks of 256 with runs of 32 elements, because it divides these runs in two.
#define MIN_COLS_16 (CPU_GEMV_COLS + 1) // blocks of 256 with runs of 16 elements
#define MIN_COLS_32 13                  // blocks of 256 with runs of 32 elements
#ifndef MIN_COLS
#    define MIN_COLS (CPU_GEMV_COLS + 1) // blocks of 32
#endif
#define X_RUN(R, has_min) (MR * ((R) + 4 + 4 * (has_min)))
#define Y_RUN(R) (NR * ((R) + 8))
#ifndef Y_QUAD // byte offset of quad j of column c in a run
#    define Y_QUAD(j, c, R) (4 * ((2 + (j)) * NR + (c)))
#endif

UNPACK_INLINE void store_float(char *to, float v) {
    memcpy(to, &v, sizeof v);
}

UNPACK_INLINE void store_int(char *to, int32_t v) {
    memcpy(to, &v, sizeof v);
}

// ---- y ----

UNPACK_INLINE void y_run(char *to, int c, const int8_t *q, float d, const int R) {
    store_float(to + 4 * (NR + c), d);
    for (int j = 0; j < R / 4; j++) {
        memcpy(to + Y_QUAD(j, c, R), q + 4 * j, 4);
    }
}

// n_across: the argument of transpose_quads.
#define PACK_Y_Q8_0(name, R, n_across, offset) \
    static void pack_y_##name(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) { \
        for (int c = 0; c < NR; c++) { \
            const float *from = y[c < ny ? c : 0]; \
            char *to = panel; \
            for (int64_t i = 0; i < n; i += 256) { \
                const int m = n - i < 256 ? (int) (n - i) : 256; \
                block_q8_0 b[8]; \
                k->traits[GGML_TYPE_Q8_0].from_float(from + i, b, m); \
                for (int j = 0; j < m / 32; j++) { \
                    transpose_quads(b[j].qs, n_across); \
                    for (int at = 0; at < 32; at += (R), to += Y_RUN(R)) { \
                        store_int(to + 4 * c, -(offset) * ((R) == 32 ? sum_bytes(b[j].qs) : sum_16(b[j].qs + at))); \
                        y_run(to, c, b[j].qs + at, f16_as_float(&b[j].d), R); \
                    } \
                } \
            } \
        } \
    }

static void pack_y_q8_1(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        char *to = panel;
        for (int64_t i = 0; i < n; i += 256) {
            const int m = n - i < 256 ? (int) (n - i) : 256;
            block_q8_1 b[8];
            k->traits[GGML_TYPE_Q8_1].from_float(from + i, b, m);
            for (int j = 0; j < m / 32; j++, to += Y_RUN(32)) {
                store_float(to + 4 * c, f16_as_float(&b[j].s));
                y_run(to, c, b[j].qs, f16_as_float(&b[j].d), 32);
            }
        }
    }
}

#define PACK_Y_Q8_K(name, R, offset, has_min) \
    static void pack_y_##name(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) { \
        for (int c = 0; c < NR; c++) { \
            const float *from = y[c < ny ? c : 0]; \
            char *to = panel; \
            for (int64_t i = 0; i < n; i += QK_K) { \
                block_q8_K b; \
                k->traits[GGML_TYPE_Q8_K].from_float(from + i, &b, QK_K); \
                for (int j = 0; j < QK_K / (R); j++, to += Y_RUN(R)) { \
                    const int sum = (R) == 16 ? b.bsums[j] : b.bsums[2 * j % 16] + b.bsums[(2 * j + 1) % 16]; \
                    if (has_min) { \
                        store_float(to + 4 * c, b.d * (float) sum); \
                    } else { \
                        store_int(to + 4 * c, -(offset) *sum); \
                    } \
                    y_run(to, c, b.qs + (R) *j, b.d, R); \
                } \
            } \
        } \
    }

// ---- x ----

#include "cpu/x86/pack_x.h"

// ---- the table ----

PACK_Y_Q8_0(offset_8bit, 32, 1, OFFSET_8BIT)
PACK_Y_Q8_0(offset_8, 32, 1, 8)
PACK_Y_Q8_0(offset_16, 32, 1, 16)
PACK_Y_Q8_0(offset_12, 32, 1, 12)
PACK_Y_Q8_0(offset_12_16, 16, 1, 12)
PACK_Y_Q8_0(offset_1_by_4, 32, 4, 1)
PACK_Y_Q8_0(offset_1_by_8, 32, 8, 1)
PACK_Y_Q8_K(k_offset_8bit, 32, OFFSET_8BIT, false)
PACK_Y_Q8_K(k_offset_8bit_16, 16, OFFSET_8BIT, false)
PACK_Y_Q8_K(k_offset_1, 32, 1, false)
PACK_Y_Q8_K(k_offset_16_32, 32, 16, false)
PACK_Y_Q8_K(k_offset_16_16, 16, 16, false)
PACK_Y_Q8_K(k_offset_4, 16, 4, false)
PACK_Y_Q8_K(k_offset_32, 16, 32, false)
PACK_Y_Q8_K(k_min_32, 32, 0, true)
PACK_Y_Q8_K(k_min_16, 16, 0, true)

typedef void (*panels_run_t)(CPU_GEMM_ARGS);

// run_8bit, run_8bit_16: formats of 7 and 8 bits, runs of 32 and 16. run_32, run_16: formats of at most 6 bits. _min: formats with
// minima.
struct panel_runs {
    panels_run_t run_8bit, run_8bit_16, run_32, run_32_min, run_16, run_16_min;
};

static void gemm_q_fill(struct cpu_kernels *k, const struct panel_runs *runs) {
#define ROW(TYPE, type, y, how, R, n_step, has_min) \
    k->gemm[GGML_TYPE_##TYPE] = \
        (struct cpu_gemm){pack_x_##type, pack_y_##y, runs->run_##how, MR, NR, (n_step) < QK_K ? MIN_COLS : MIN_COLS_##R, n_step, \
            (n_step) / (R) *X_RUN(R, has_min), (n_step) / (R) *Y_RUN(R), 0, 0, {NULL, 0, 0, 0}};
    ROW(Q8_0, q8_0, offset_8bit, 8bit, 32, 32, 0)
    ROW(IQ4_NL, iq4_nl, offset_8bit, 8bit, 32, 32, 0)
    ROW(Q4_0, q4_0, offset_8, 32, 32, 32, 0)
    ROW(Q5_0, q5_0, offset_16, 32, 32, 32, 0)
    ROW(MXFP4, mxfp4, offset_12, 32, 32, 32, 0)
    ROW(Q4_1, q4_1, q8_1, 32_min, 32, 32, 1)
    ROW(Q5_1, q5_1, q8_1, 32_min, 32, 32, 1)
    ROW(Q4_K, q4_K, k_min_32, 32_min, 32, 256, 1)
    ROW(Q5_K, q5_K, k_min_32, 32_min, 32, 256, 1)
    ROW(IQ4_XS, iq4_xs, k_offset_8bit, 8bit, 32, 256, 0)
    ROW(Q2_K, q2_K, k_min_16, 16_min, 16, 256, 1)
    ROW(Q3_K, q3_K, k_offset_4, 16, 16, 256, 0)
    ROW(Q6_K, q6_K, k_offset_32, 16, 16, 256, 0)
    ROW(IQ2_XXS, iq2_xxs, k_offset_8bit, 8bit, 32, 256, 0)
    ROW(IQ3_XXS, iq3_xxs, k_offset_8bit, 8bit, 32, 256, 0)
    ROW(IQ2_XS, iq2_xs, k_offset_8bit_16, 8bit_16, 16, 256, 0)
    ROW(IQ2_S, iq2_s, k_offset_8bit_16, 8bit_16, 16, 256, 0)
    ROW(IQ3_S, iq3_s, k_offset_16_32, 32, 32, 256, 0)
    ROW(IQ1_S, iq1_s, k_offset_16_32, 32, 32, 256, 0)
    ROW(IQ1_M, iq1_m, k_offset_16_16, 16, 16, 256, 0)
    ROW(TQ1_0, tq1_0, k_offset_1, 32, 32, 256, 0)
    ROW(TQ2_0, tq2_0, k_offset_1, 32, 32, 256, 0)
    ROW(Q1_0, q1_0, offset_1_by_8, 32, 32, 128, 0)
    ROW(Q2_0, q2_0, offset_1_by_4, 32, 32, 64, 0)
    ROW(NVFP4, nvfp4, offset_12_16, 16, 16, 64, 0)
#undef ROW
}

// ---- a tier ----

// The including file must define product(n, s, ld_s, vx, nx, vy, ny, R, has_min, is_8bit). R: elements of a run. is_8bit: the
// elements have 8 bits.
#define GEMM_Q_RUN(how, R, has_min, is_8bit) \
    static void run_##how(CPU_GEMM_ARGS) { \
        product(n, s, ld_s, vx, nx, vy, ny, R, has_min, is_8bit); \
    }
#define GEMM_Q_TIER(filler) \
    GEMM_Q_RUN(8bit, 32, false, true) \
    GEMM_Q_RUN(8bit_16, 16, false, true) \
    GEMM_Q_RUN(32, 32, false, false) \
    GEMM_Q_RUN(32_min, 32, true, false) \
    GEMM_Q_RUN(16, 16, false, false) \
    GEMM_Q_RUN(16_min, 16, true, false) \
    void filler(struct cpu_kernels *k) { \
        const struct panel_runs runs = {run_8bit, run_8bit_16, run_32, run_32_min, run_16, run_16_min}; \
        gemm_q_fill(k, &runs); \
    }

// SPDX-License-Identifier: MIT
// gemm_f16.h: the product of panels of halves that gemm_f16__fp16.c packs. A tier includes it, says how sums in halves are added
// to floats, add(float *to, float16x8_t v), and makes its function by GEMM_F16_RUN.
#pragma once

#include "cpu/arm/halves.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define MR 16
#define NR 8
#define STEP 8   // elements that panels have whole steps of
#define SUM 3    // steps that are added up in registers, and ...
#define CHUNK 24 // ... as halves: sums of sums, since a long sum rounds more

// n steps of all rows with all columns, added to `part`. Sums of row r, of all columns side by side, are in vector 20 + r, those
// of row 8 + r in vector 10 + r; elements of 8 rows are in vectors 0 to 7, then those of the other 8, and those of columns where
// there is room. Whole, since compilers need two instructions to multiply by a lane, copy zeros instead of making them, which
// takes no turn in a pipe, and run out of registers when they unroll.

// clang-format off
#define EIGHT ".irp r, 0, 1, 2, 3, 4, 5, 6, 7\n\t"
#define MULTIPLY(sums, k, y) EIGHT "fmla v" #sums "\\r\\().8h, v" #y ".8h, v\\r\\().h[" #k "]\n\t.endr\n\t"
#define EIGHT_ELEMENTS(sums) \
    MULTIPLY(sums, 0, 8) MULTIPLY(sums, 1, 9) MULTIPLY(sums, 2, 18) MULTIPLY(sums, 3, 19) \
    MULTIPLY(sums, 4, 28) MULTIPLY(sums, 5, 29) MULTIPLY(sums, 6, 30) MULTIPLY(sums, 7, 31)
#define LOAD(a, b, from, off) "ldp q" #a ", q" #b ", [%[" #from "], #" #off "]\n\t"
#define PUT(a, b, x0, x1, off) \
    "ldp q" #x0 ", q" #x1 ", [%[part], #" #off "]\n\t" \
    "fadd v" #a ".8h, v" #a ".8h, v" #x0 ".8h\n\t" \
    "fadd v" #b ".8h, v" #b ".8h, v" #x1 ".8h\n\t" \
    "stp q" #a ", q" #b ", [%[part], #" #off "]\n\t"

static inline __attribute__((always_inline)) void add_steps(
    float16_t part[MR][NR], const uint16_t *x, const uint16_t *y, int64_t n) {
    __asm__ volatile(
        EIGHT "movi v2\\r\\().4s, #0\n\tmovi v1\\r\\().4s, #0\n\t.endr\n\t"
        "1:\n\t"
        LOAD(0, 1, x, 0) LOAD(8, 9, y, 0) LOAD(2, 3, x, 32) LOAD(4, 5, x, 64) LOAD(6, 7, x, 96)
        LOAD(18, 19, y, 32) LOAD(28, 29, y, 64) LOAD(30, 31, y, 96)
        EIGHT_ELEMENTS(2)
        LOAD(0, 1, x, 128) LOAD(2, 3, x, 160) LOAD(4, 5, x, 192) LOAD(6, 7, x, 224)
        EIGHT_ELEMENTS(1)
        "add %[x], %[x], #256\n\t"
        "add %[y], %[y], #128\n\t"
        "subs %[n], %[n], #1\n\t"
        "b.ne 1b\n\t"
        PUT(20, 21, 0, 1, 0) PUT(22, 23, 2, 3, 32) PUT(24, 25, 4, 5, 64) PUT(26, 27, 6, 7, 96)
        PUT(10, 11, 0, 1, 128) PUT(12, 13, 2, 3, 160) PUT(14, 15, 4, 5, 192) PUT(16, 17, 6, 7, 224)
        : [x] "+r"(x), [y] "+r"(y), [n] "+r"(n)
        : [part] "r"(part)
        : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
          "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
// clang-format on

static inline float float_of(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

// Sums of products that no half can hold: again, as floats.
static __attribute__((noinline, unused)) void tile_as_floats(
    int64_t n, float tile[MR][NR], const uint16_t *x, const uint16_t *y) {
    memset(tile, 0, sizeof(float) * NR * MR);
    for (int64_t i = 0; i < n; i++, y += NR) {
        for (int r = 0; r < MR; r++) {
            const float v = float_of(x[i / 8 * 8 * MR + r * 8 + i % 8]);
            for (int c = 0; c < NR; c++) {
                tile[r][c] = fmaf(v, float_of(y[c]), tile[r][c]);
            }
        }
    }
}

#define GEMM_F16_RUN(name) \
    static void name(int64_t n, float *s, int64_t ld_s, const void *panel_x, int nx, const void *panel_y, int ny) { \
        const float *back = panel_y; \
        const uint16_t *x = panel_x, *y = (const void *) (back + NR); \
        float tile[MR][NR] = {{0}}; \
        for (int64_t left = (n + STEP - 1) / STEP; left > 0; left -= CHUNK) { \
            float16_t part[MR][NR] = {{0}}; \
            for (int64_t i = 0; i < CHUNK && i < left; i += SUM, x += SUM * STEP * MR, y += SUM * STEP * NR) { \
                add_steps(part, x, y, left - i < SUM ? left - i : SUM); \
            } \
            for (int r = 0; r < MR; r++) { \
                add(tile[r], vld1q_f16(part[r])); \
            } \
        } \
        float32x4_t none = vdupq_n_f32(0.0f); /* 0 if all are finite, else NaN */ \
        for (int r = 0; r < MR; r++) { \
            none = vfmaq_n_f32(vfmaq_n_f32(none, vld1q_f32(tile[r]), 0.0f), vld1q_f32(tile[r] + 4), 0.0f); \
        } \
        if (vaddvq_f32(none) != 0.0f) { \
            tile_as_floats(n, tile, panel_x, (const void *) (back + NR)); \
        } \
        for (int c = 0; c < ny; c++) { \
            for (int r = 0; r < nx; r++) { \
                s[r + c * ld_s] = tile[r][c] * back[c]; \
            } \
        } \
    }

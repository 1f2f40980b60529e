// SPDX-License-Identifier: MIT
// gemm_f16.h: the product of panels of halves that gemm_f16__fp16.c packs. A tier includes it, says how sums in halves are added
// to floats, add(float *to, float16x8_t v), and makes its function by GEMM_F16_RUN.
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define MR 16
#define NR 8
#define CHUNK 32

static inline float16x8_t f16_at(const uint16_t *at) {
    return vreinterpretq_f16_u16(vld1q_u16(at));
}

// As vfmaq_laneq_f16, which gcc 12 makes into two instructions. The lane has to be in one of the first 16 registers.
#define FMLA(sum, x, y, lane) __asm__("fmla %0.8h, %1.8h, %2.h[" #lane "]" : "+w"(sum) : "w"(x), "x"(y))

#define COLUMNS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ZERO(c) float16x8_t a##c = vdupq_n_f16(0), b##c = a##c;
#define STEP(c) \
    FMLA(a##c, x0, yv, c); \
    FMLA(b##c, x1, yv, c);
#define FLUSH(c) \
    add(tile[c], a##c); \
    add(tile[c] + 8, b##c);

#define GEMM_F16_RUN(name) \
    static void name(int64_t n, float *s, int64_t ld_s, const void *panel_x, int nx, const void *panel_y, int ny) { \
        const float *back_x = panel_x, *back_y = panel_y; \
        const uint16_t *x = (const void *) (back_x + MR), *y = (const void *) (back_y + NR); \
        float tile[NR][MR] = {{0}}; \
        for (int64_t i = 0; i < n; i += CHUNK) { \
            COLUMNS(ZERO) \
            for (int j = 0; j < CHUNK; j++, x += MR, y += NR) { \
                const float16x8_t x0 = f16_at(x), x1 = f16_at(x + 8), yv = f16_at(y); \
                COLUMNS(STEP) \
            } \
            __asm__ volatile("" : : "r"(tile) : "memory"); /* the floats stay in memory, the halves in registers */ \
            COLUMNS(FLUSH) \
        } \
        for (int c = 0; c < ny; c++) { \
            for (int r = 0; r < MR; r++) { \
                tile[c][r] = tile[c][r] * back_x[r] * back_y[c]; /* their product may be more than a float can hold */ \
            } \
            memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float)); \
        } \
    }

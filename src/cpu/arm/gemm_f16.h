// SPDX-License-Identifier: MIT
// gemm_f16.h: products of f16 rows with many columns: packing panels and storing tiles. The including file defines the rows (MR)
// and columns (NR) of a tile, multiples of 8.
//
// Elements are multiplied and added in f16. Two measures keep sums of long rows exact enough:
//   - Each column is scaled by a power of two, so that its largest element is between 4 and 8.
//   - An f16 sum covers only some elements and is then added to an f32 sum.
// If a sum is not finite, the tile is recomputed in f32.
// The error is a tenth of the error of adding complete rows in f16.
//
// Panel of x: 8 elements of each row, then the next 8 elements of each row.
// Panel of y: the float 1 / scale of each column, then element 0 of each column, element 1 of each column, and so on.
// Both panels are padded with zeros to a multiple of STEP elements.
#pragma once

#include "base/min.h"
#include "cpu/arm/f16_columns.h"
#include "cpu/kernels.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define STEP 8          // panels are padded to multiples of STEP elements
#define LARGEST 8.0f    // limit of the scaled elements of a column
#define PACK_AHEAD 1024 // prefetch distance in bytes

// ---- panels ----

static void rows_transpose(uint16x8_t v[8]) {
    uint16x8_t a[8];
    uint32x4_t b[8];
    for (int j = 0; j < 4; j++) {
        a[2 * j] = vtrn1q_u16(v[2 * j], v[2 * j + 1]);
        a[2 * j + 1] = vtrn2q_u16(v[2 * j], v[2 * j + 1]);
    }
    for (int j = 0; j < 2; j++) {
        for (int u = 0; u < 2; u++) {
            const uint32x4_t lo = vreinterpretq_u32_u16(a[4 * j + u]), hi = vreinterpretq_u32_u16(a[4 * j + 2 + u]);
            b[4 * j + u] = vtrn1q_u32(lo, hi);
            b[4 * j + 2 + u] = vtrn2q_u32(lo, hi);
        }
    }
    for (int j = 0; j < 4; j++) {
        const uint64x2_t lo = vreinterpretq_u64_u32(b[j]), hi = vreinterpretq_u64_u32(b[j + 4]);
        v[j] = vreinterpretq_u16_u64(vtrn1q_u64(lo, hi));
        v[j + 4] = vreinterpretq_u16_u64(vtrn2q_u64(lo, hi));
    }
}

// Missing rows are copies of the first row. Their results are not stored.
static void pack_x(int64_t n, void *panel, const void *x, size_t bx, int nx) {
    for (int h = 0; h < MR; h += 4) { // four rows fill a cache line of the panel
        uint16_t *to = (uint16_t *) panel + h * 8;
        const uint16_t *rows[4];
        for (int r = 0; r < 4; r++) {
            rows[r] = (const void *) ((const char *) x + (h + r < nx ? (size_t) (h + r) * bx : 0));
        }
        int64_t i = 0;
        for (; i + 32 <= n; i += 32, to += 32 * MR) {
            for (int r = 0; r < 4; r++) {
                __builtin_prefetch((const char *) (rows[r] + i) + PACK_AHEAD, 0, 3);
                for (int j = 0; j < 4; j++) {
                    vst1q_u16(to + j * 8 * MR + r * 8, vld1q_u16(rows[r] + i + 8 * j));
                }
            }
        }
        for (int64_t end = (n + STEP - 1) / STEP * STEP; i < end; i += 8, to += 8 * MR) {
            for (int r = 0; r < 4; r++) {
                uint16_t v[8] = {0};
                if (i < n) {
                    memcpy(v, rows[r] + i, (size_t) min_i64(n - i, 8) * sizeof *v);
                }
                memcpy(to + r * 8, v, sizeof v);
            }
        }
    }
}

static void pack_y(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    float *unscale = panel, scale[NR];
    const float *rows[NR];
    for (int c = 0; c < NR; c++) {
        rows[c] = y[c < ny ? c : 0];
        scale[c] = scale_for(column_max(n, rows[c]), LARGEST);
        unscale[c] = 1.0f / scale[c];
    }
    uint16_t *to = (uint16_t *) (void *) (unscale + NR);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, to += 8 * NR) {
        for (int h = 0; h < NR; h += 8) {
            uint16x8_t v[8];
            for (int c = 0; c < 8; c++) {
                v[c] = f16x8_from_f32(rows[h + c] + i, scale[h + c]);
            }
            rows_transpose(v);
            for (int j = 0; j < 8; j++) {
                vst1q_u16(to + j * NR + h, v[j]);
            }
        }
    }
    for (int64_t end = (n + STEP - 1) / STEP * STEP; i < end; i++, to += NR) {
        if (i >= n) {
            memset(to, 0, NR * sizeof *to);
            continue;
        }
        for (int c = 0; c < NR; c++) {
            const float16_t v = (float16_t) (rows[c][i] * scale[c]);
            memcpy(to + c, &v, sizeof v);
        }
    }
}

// ---- tiles ----

static inline float float_of(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

// In elements. row: distance between rows. step: distance between groups of eight elements of a row.
struct x_layout {
    const uint16_t *x;
    size_t row, step;
};

// Called after an f16 sum overflowed.
static __attribute__((noinline)) void tile_recompute_f32(
    int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const uint16_t *y) {
    memset(tile, 0, sizeof(float) * NR * (size_t) n_rows);
    for (int64_t i = 0; i < n; i++, y += NR) {
        for (int r = 0; r < n_rows; r++) {
            const float v = float_of(at->x[(size_t) (i / 8) * at->step + (size_t) r * at->row + (size_t) (i % 8)]);
            for (int c = 0; c < NR; c++) {
                tile[r][c] = fmaf(v, float_of(y[c]), tile[r][c]);
            }
        }
    }
}

static inline void tile_store(int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const float *panel_y, float *s,
    int64_t ld_s, int nx, int ny) {
    float32x4_t nan_check = vdupq_n_f32(0.0f); // NaN: an element is not finite
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < NR; c += 4) {
            nan_check = vfmaq_n_f32(nan_check, vld1q_f32(tile[r] + c), 0.0f);
        }
    }
    if (vaddvq_f32(nan_check) != 0.0f) {
        tile_recompute_f32(n, tile, n_rows, at, (const void *) (panel_y + NR));
    }
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            s[r + c * ld_s] = tile[r][c] * panel_y[c];
        }
    }
}

// `run` is for panels, `rows` for unpacked rows. Below min_cols, other kernels are faster.
static inline struct cpu_gemm gemm_f16(void (*run)(CPU_GEMM_ARGS), int min_cols, struct cpu_gemm_rows rows) {
    return (struct cpu_gemm){.pack_x = pack_x,
        .pack_y = pack_y,
        .run = run,
        .mr = MR,
        .nr = NR,
        .min_cols = min_cols,
        .step = STEP,
        .x_size = STEP * MR * sizeof(uint16_t),
        .y_size = STEP * NR * sizeof(uint16_t),
        .y_head = NR * sizeof(float),
        .rows = rows};
}

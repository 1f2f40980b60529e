// SPDX-License-Identifier: MIT
// gemm_f16.h: what products of rows of halves with many columns have in common, whatever the shape of their tiles: panels, and
// what becomes of a tile that is added up. Who includes it says before how many rows (MR) and columns (NR) a tile has, both
// multiples of 8.
//
// Products are multiplied and added in halves, eight at a time. Halves would lose digits and overflow over a long row, so
//   - every column is scaled by a power of two, which costs no digit, to a largest element between 4 and 8;
//   - short sums of products, which then stay below 2^16 unless a row has elements far above 8, are added up in floats. Where
//     sums are not finite, the tile is computed again as floats.
// What is left of the error is that of rounding products and short sums to 11 bits: a tenth of what adding up whole rows in
// halves gives. A panel: [of y: what the sums are to be multiplied with: a float a column] [of x: 8 elements of each row; of y:
// an element of each column; and zeros up to a whole step]
#pragma once

#include "base/min.h"
#include "cpu/arm/f16_columns.h"
#include "cpu/kernels.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define STEP 8 // elements that panels have whole steps of
#define LARGEST 8.0f
#define PACK_AHEAD 1024 // bytes of a row asked for before they are packed

// ---- panels ----

// 8 rows of 8 halves, element by element.
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

// Eight elements of each row, then the next eight. Rows that are missing are copies of the first; what they give is not stored.
static void pack_x(int64_t n, void *panel, const void *x, size_t bx, int nx) {
    for (int h = 0; h < MR; h += 4) { // four rows are a line of the cache of the panel
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
    float *back = panel, scale[NR];
    const float *rows[NR];
    for (int c = 0; c < NR; c++) {
        rows[c] = y[c < ny ? c : 0];
        scale[c] = scale_for(column_max(n, rows[c]), LARGEST);
        back[c] = 1.0f / scale[c];
    }
    uint16_t *to = (uint16_t *) (void *) (back + NR);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, to += 8 * NR) {
        for (int h = 0; h < NR; h += 8) {
            uint16x8_t v[8];
            for (int c = 0; c < 8; c++) {
                v[c] = halves_of(rows[h + c] + i, scale[h + c]);
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

// Where rows are, in elements: from row to row, and from eight of them to the next eight.
struct place {
    const uint16_t *x;
    size_t row, step;
};

// Sums of products that no half can hold: again, as floats.
static __attribute__((noinline)) void tile_as_floats(
    int64_t n, float (*tile)[NR], int n_rows, const struct place *at, const uint16_t *y) {
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

// A tile that is added up goes to s.
static inline void tile_put(int64_t n, float (*tile)[NR], int n_rows, const struct place *at, const float *panel_y, float *s,
    int64_t ld_s, int nx, int ny) {
    float32x4_t none = vdupq_n_f32(0.0f); // 0 if all are finite, else NaN
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < NR; c += 4) {
            none = vfmaq_n_f32(none, vld1q_f32(tile[r] + c), 0.0f);
        }
    }
    if (vaddvq_f32(none) != 0.0f) {
        tile_as_floats(n, tile, n_rows, at, (const void *) (panel_y + NR));
    }
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            s[r + c * ld_s] = tile[r][c] * panel_y[c];
        }
    }
}

// Panels multiplied by run, or rows as they lie; fewer than min_cols columns are faster another way.
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

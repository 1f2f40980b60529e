// SPDX-License-Identifier: MIT
// gemm_f16.h: products of f16 rows with several columns: packing panels and storing tiles. The including file defines the rows (MR)
// and columns (NR) of a tile, multiples of 8.
//
// Elements are multiplied and added in f16. Two measures keep sums of long rows exact enough:
//   - Each column is scaled by a power of two, so that its largest element is between 4 and 8.
//   - An f16 sum covers only some elements and is then added to an f32 sum.
// If a sum is not finite, it is recomputed in f32.
// The error is a tenth of the error of adding complete rows in f16.
//
// Panel of x: 8 elements of each row, then the next 8 elements of each row.
// Panel of y: the head (struct y_head), then element 0 of each column, element 1 of each column, and so on. A vector is one element
// of 8 columns. If that would leave many lanes unused, the panel holds one column after the other, and a vector is 8 elements of a
// column. The two layouts add in different orders. So batch invariance requires that all panels are by column.
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

struct y_head {
    float unscale[NR]; // 1 / scale of each column
    int is_by_column;
};
#define Y_HEAD ((sizeof(struct y_head) + 15) / 16 * 16) // bytes

// With 4 rows and 4 columns at a time, a vector per column costs as much as a vector of 8 used lanes.
static inline bool is_by_column(const struct cpu_kernels *k, int ny) {
    return k->is_invariant || ny <= 6 || (ny > 8 && ny <= NR - 4);
}
static inline const uint16_t *y_elements(const void *panel) {
    return (const void *) ((const char *) panel + Y_HEAD);
}
static inline int64_t padded(int64_t n) {
    return (n + STEP - 1) / STEP * STEP;
}

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

static void pack_y_by_column(int64_t n, uint16_t *to, const float *const *y, const float *scale, int ny) {
    for (int c = 0; c < ny; c++) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8, to += 8) {
            vst1q_u16(to, f16x8_from_f32(y[c] + i, scale[c]));
        }
        if (i < n) {
            float rest[8] = {0};
            memcpy(rest, y[c] + i, (size_t) (n - i) * sizeof *rest);
            vst1q_u16(to, f16x8_from_f32(rest, scale[c]));
            to += 8;
        }
    }
}

static void pack_y(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    struct y_head *head = panel;
    float scale[NR];
    const float *rows[NR];
    for (int c = 0; c < NR; c++) {
        rows[c] = y[c < ny ? c : 0];
        scale[c] = c < ny ? scale_for(column_max(n, rows[c]), LARGEST) : scale[0];
        head->unscale[c] = 1.0f / scale[c];
    }
    uint16_t *to = (void *) ((char *) panel + Y_HEAD);
    head->is_by_column = is_by_column(k, ny);
    if (head->is_by_column) {
        pack_y_by_column(n, to, rows, scale, ny);
        return;
    }
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

// Called after an f16 sum overflowed. Recomputes the elements that are not finite. The others keep their bits, so that a column does
// not depend on the other columns of its panel.
static __attribute__((noinline)) void tile_recompute_f32(
    int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const struct y_head *head, int ny) {
    const uint16_t *y = y_elements(head);
    const int64_t column = head->is_by_column ? padded(n) : 1, element = head->is_by_column ? 1 : NR;
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < ny; c++) {
            if (tile[r][c] * 0.0f == 0.0f) {
                continue;
            }
            tile[r][c] = 0.0f;
            for (int64_t i = 0; i < n; i++) {
                const float v = float_of(at->x[(size_t) (i / 8) * at->step + (size_t) r * at->row + (size_t) (i % 8)]);
                tile[r][c] = fmaf(v, float_of(y[c * column + i * element]), tile[r][c]);
            }
        }
    }
}

static inline void tile_store(int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const struct y_head *head,
    float *s, int64_t ld_s, int nx, int ny) {
    float32x4_t nan_check = vdupq_n_f32(0.0f); // NaN: an element is not finite
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < NR; c += 4) {
            nan_check = vfmaq_n_f32(nan_check, vld1q_f32(tile[r] + c), 0.0f);
        }
    }
    if (vaddvq_f32(nan_check) != 0.0f) {
        tile_recompute_f32(n, tile, n_rows, at, head, ny);
    }
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            s[r + c * ld_s] = tile[r][c] * head->unscale[c];
        }
    }
}

// ---- panels by column: 4 rows by nc columns at a time ----
// Each f16 sum has FEW_SUM / 8 products. The lanes of four sums are added and converted together. The number of columns does not
// change the result. More rows at a time would compete for the same sets of the L1 cache.

#define FEW_ROWS 4
#define FEW_COLS 4
#define FEW_SUM 128   // elements of a row per f16 sum
#define FEW_AHEAD 512 // prefetch distance in bytes
#define UNROLL _Pragma("GCC unroll 16")

// Adds the products of n elements of four rows with nc columns, which are `column` elements apart. Lane i % 4 of sum[i / 4] is for
// row i / nc and column i % nc.
static inline __attribute__((always_inline)) void few_add(
    float32x4_t *sum, const uint16_t *const *x, size_t step, const uint16_t *y, int64_t column, int64_t n, const int nc) {
    float16x8_t t[FEW_ROWS * FEW_COLS], v[FEW_COLS];
    UNROLL for (int i = 0; i < FEW_ROWS * nc; i++) {
        t[i] = vreinterpretq_f16_s32(vdupq_n_s32(0));
    }
    size_t at = 0;
    for (int64_t i = 0; i < n; i += 8, at += step) {
        UNROLL for (int c = 0; c < nc; c++) {
            v[c] = f16_at(y + c * column + i);
        }
        UNROLL for (int r = 0; r < FEW_ROWS; r++) {
            const float16x8_t u = f16_at(x[r] + at);
            UNROLL for (int c = 0; c < nc; c++) {
                t[r * nc + c] = vfmaq_f16(t[r * nc + c], u, v[c]);
            }
        }
    }
    UNROLL for (int i = 0; i < FEW_ROWS * nc; i += 4) {
        const float16x8_t all = vpaddq_f16(vpaddq_f16(t[i], t[i + 1]), vpaddq_f16(t[i + 2], t[i + 3]));
        sum[i / 4] = vaddq_f32(sum[i / 4], vpaddq_f32(vcvt_f32_f16(vget_low_f16(all)), vcvt_high_f32_f16(all)));
    }
}

// s[r * NR + c]: row r, column c.
static inline __attribute__((always_inline)) void few_rows(
    int64_t n, float *s, const struct x_layout *at, const uint16_t *y, const int nc) {
    const uint16_t *x[FEW_ROWS];
    const int64_t column = padded(n);
    float32x4_t sum[FEW_COLS];
    UNROLL for (int c = 0; c < nc; c++) {
        sum[c] = vdupq_n_f32(0.0f);
    }
    UNROLL for (int r = 0; r < FEW_ROWS; r++) {
        x[r] = at->x + (size_t) r * at->row;
    }
    for (int64_t i = 0; i < column; i += FEW_SUM) {
        UNROLL for (int r = 0; r < FEW_ROWS; r++) {
            for (size_t line = 0; line < FEW_SUM * sizeof *y; line += 64) {
                __builtin_prefetch((const char *) x[r] + FEW_AHEAD + line, 0, 3);
            }
        }
        few_add(sum, x, at->step, y + i, column, min_i64(column - i, FEW_SUM), nc);
        UNROLL for (int r = 0; r < FEW_ROWS; r++) {
            x[r] += FEW_SUM / 8 * at->step;
        }
    }
    float out[FEW_ROWS * FEW_COLS];
    UNROLL for (int c = 0; c < nc; c++) {
        vst1q_f32(out + 4 * c, sum[c]);
    }
    for (int r = 0; r < FEW_ROWS; r++) {
        memcpy(s + r * NR, out + r * nc, (size_t) nc * sizeof *out);
    }
}

// Multiplies n_rows rows, a multiple of FEW_ROWS, with the ny columns of a panel. If the rows are unpacked, n is a multiple of 8.
static void few_run(int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const uint16_t *y, int ny) {
    const int n_parts = (ny + FEW_COLS - 1) / FEW_COLS, most = (ny + n_parts - 1) / n_parts;
    for (int r = 0; r < n_rows; r += FEW_ROWS) {
        const struct x_layout four = {at->x + (size_t) r * at->row, at->row, at->step};
        for (int c = 0, nc; c < ny; c += nc) {
            float *to = &tile[r][c];
            const uint16_t *columns = y + c * padded(n);
            nc = min_int(ny - c, most);
            switch (nc) {
                case 1: few_rows(n, to, &four, columns, 1); break;
                case 2: few_rows(n, to, &four, columns, 2); break;
                case 3: few_rows(n, to, &four, columns, 3); break;
                default: few_rows(n, to, &four, columns, 4); break;
            }
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
        .y_head = Y_HEAD,
        .rows = rows};
}

// SPDX-License-Identifier: MIT
// gemm_f16.h: products of f16 rows with several columns: packing panels and storing tiles. The including file defines the rows (MR)
// and columns (NR) of a tile, multiples of 8, and FEW_TO_F32 and FEW_TO_F32_HALF (see "panels by column").
//
// Elements are multiplied and added in f16. Two measures keep sums of long rows exact enough:
//   - Each column is scaled by a power of two, so that its largest element is between 4 and 8.
//   - An f16 sum covers only some elements and is then added to an f32 sum.
// If a sum is not finite, it is recomputed in f32.
// The error is a tenth of the error of adding complete rows in f16.
//
// A group is 8 elements of a row or of a column.
// Panel of x: a group of each row, then the next group of each row.
// Panel of y: the head (struct y_head), then element 0 of each column, element 1 of each column, and so on. A vector is one
// element of 8 columns. If that would leave many lanes unused, the panel is by column, and a vector is a group: the panel has
// chunks of CHUNK groups, a chunk has tiles of columns (few_cols), and a tile has a group of each of its columns, then the next
// group of each. The two layouts add in different orders. So batch invariance requires that all panels are by column.
// Both panels are padded with zeros to complete groups.
#pragma once

#include "base/min.h"
#include "cpu/arm/f16_columns.h"
#include "cpu/kernels.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define STEP 8          // elements of a group
#define CHUNK 176       // groups; a chunk of a tile and of its rows fits in the L1 cache
#define LARGEST 8.0f    // limit of the scaled elements of a column
#define PACK_AHEAD 1024 // prefetch distance in bytes
#define FEW_ROWS 4
#define FEW_COLS 6
#define FEW_SUM 16 // groups per f16 sum

// ---- panels ----

struct y_head {
    float unscale[NR]; // 1 / scale of each column
    int is_by_column;
};
#define Y_HEAD ((sizeof(struct y_head) + 15) / 16 * 16) // bytes

static inline bool is_by_column(const struct cpu_kernels *k, int ny) {
    return k->is_invariant || ny <= 6 || (ny > 8 && ny <= NR - 4);
}
static inline const uint16_t *y_elements(const void *panel) {
    return (const void *) ((const char *) panel + Y_HEAD);
}
static inline int64_t n_groups(int64_t n) {
    return (n + STEP - 1) / STEP;
}

// Panels by column: returns the columns of the tile that starts at column c of ny. Tiles have nearly equal numbers of columns.
static inline int few_cols(int c, int ny) {
    const int n_tiles = (ny - c + FEW_COLS - 1) / FEW_COLS;
    return (ny - c + n_tiles - 1) / n_tiles;
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
        for (int64_t end = n_groups(n) * STEP; i < end; i += 8, to += 8 * MR) {
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
    for (int64_t i0 = 0; i0 < n; i0 += CHUNK * STEP) {
        const int64_t end = min_i64(n, i0 + CHUNK * STEP);
        for (int c = 0, nc; c < ny; c += nc) {
            nc = few_cols(c, ny);
            for (int j = c; j < c + nc; j++) {
                uint16_t *group = to + (j - c) * STEP;
                int64_t i = i0;
                for (; i + STEP <= end; i += STEP, group += nc * STEP) {
                    vst1q_u16(group, f16x8_from_f32(y[j] + i, scale[j]));
                }
                if (i < end) {
                    float rest[STEP] = {0};
                    memcpy(rest, y[j] + i, (size_t) (end - i) * sizeof *rest);
                    vst1q_u16(group, f16x8_from_f32(rest, scale[j]));
                }
            }
            to += n_groups(end - i0) * nc * STEP;
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
        for (int h = 0; h < ny; h += 8) { // with few columns, the second half is not used
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
    for (int64_t end = n_groups(n) * STEP; i < end; i++, to += NR) {
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

// Returns the place of element i of column c in a panel by column.
static int64_t few_place(int64_t n, int64_t i, int c, int ny) {
    const int64_t first = i / STEP / CHUNK * CHUNK;
    int c0 = 0;
    while (c0 + few_cols(c0, ny) <= c) {
        c0 += few_cols(c0, ny);
    }
    const int64_t in_chunk = c0 * min_i64(n_groups(n) - first, CHUNK) + (i / STEP - first) * few_cols(c0, ny) + c - c0;
    return (first * ny + in_chunk) * STEP + i % STEP;
}

// Called after an f16 sum overflowed. Recomputes the elements that are not finite. The others keep their bits, so that a column
// does not depend on the other columns of its panel.
static __attribute__((noinline)) void tile_recompute_f32(
    int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const struct y_head *head, int ny) {
    const uint16_t *y = y_elements(head);
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < ny; c++) {
            if (tile[r][c] * 0.0f == 0.0f) {
                continue;
            }
            tile[r][c] = 0.0f;
            for (int64_t i = 0; i < n; i++) {
                const float v = float_of(at->x[(size_t) (i / 8) * at->step + (size_t) r * at->row + (size_t) (i % 8)]);
                const int64_t place = head->is_by_column ? few_place(n, i, c, ny) : i * NR + c;
                tile[r][c] = fmaf(v, float_of(y[place]), tile[r][c]);
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

// ---- panels by column ----
// A tile is 4 rows by 1 to FEW_COLS columns. Each row and column has one vector of f16 sums. So no lane is unused, and the
// number of columns does not change the result. Two loads and four multiply-adds start per cycle, so wide tiles are the fastest.
// Each f16 sum has FEW_SUM groups. Then the lanes of eight sums are added in f16, and the results are added to f32 sums.
//
// A pair h of columns (h is empty, 1 or 2) has its f16 sums in vectors h0 to h7: four rows with the first column, then with the
// second column. Vectors 8, 9, 18 and 19: rows. Vectors 28 and 29: columns. Assembly, because compilers run out of registers.

// clang-format off
#define FEW_MUL(op, h, x, a, b) \
    #op " v" #h #a ".8h, v" #x ".8h, v28.8h\n\t" #op " v" #h #b ".8h, v" #x ".8h, v29.8h\n\t"
#define FEW_MUL_HALF(op, h, x, a) #op " v" #h #a ".8h, v" #x ".8h, v28.8h\n\t"
#define FEW_PAIR(op, h) "ldp q28, q29, [%[y]], #32\n\t" \
    FEW_MUL(op, h, 8, 0, 4) FEW_MUL(op, h, 9, 1, 5) FEW_MUL(op, h, 18, 2, 6) FEW_MUL(op, h, 19, 3, 7)
#define FEW_ONE(op, h) "ldr q28, [%[y]], #16\n\t" \
    FEW_MUL_HALF(op, h, 8, 0) FEW_MUL_HALF(op, h, 9, 1) FEW_MUL_HALF(op, h, 18, 2) FEW_MUL_HALF(op, h, 19, 3)
#define FEW_X "ldr q8, [%[x0], %[off]]\n\tldr q9, [%[x1], %[off]]\n\tldr q18, [%[x2], %[off]]\n\tldr q19, [%[x3], %[off]]\n\t" \
    "add %[off], %[off], %[step]\n\tsubs %[n], %[n], #1\n\t"

// Lane i of vector h0 gets the sum of the lanes of vector hi. The three levels of all pairs alternate to hide the latency.
#define FEW_ADD(h, a, b) "faddp v" #h #a ".8h, v" #h #a ".8h, v" #h #b ".8h\n\t"
#define FEW_PAIR_1(h) FEW_ADD(h, 0, 1) FEW_ADD(h, 2, 3) FEW_ADD(h, 4, 5) FEW_ADD(h, 6, 7)
#define FEW_PAIR_2(h) FEW_ADD(h, 0, 2) FEW_ADD(h, 4, 6)
#define FEW_PAIR_3(h) FEW_ADD(h, 0, 4)
#define FEW_PAIR_PUT(h) "ldp q28, q29, [%[sum]]\n\t" FEW_TO_F32(h) "stp q28, q29, [%[sum]], #32\n\t"
#define FEW_ONE_1(h) FEW_ADD(h, 0, 1) FEW_ADD(h, 2, 3)
#define FEW_ONE_2(h) FEW_ADD(h, 0, 2)
#define FEW_ONE_3(h) FEW_ADD(h, 0, 0)
#define FEW_ONE_PUT(h) "ldr q28, [%[sum]]\n\t" FEW_TO_F32_HALF(h) "str q28, [%[sum]], #16\n\t"

// Applies macro FEW_PAIR##f to the pairs of nc columns, and FEW_ONE##f to the last column of an odd number.
#define FEW_EACH_1(f, ...) FEW_ONE##f(__VA_ARGS__)
#define FEW_EACH_2(f, ...) FEW_PAIR##f(__VA_ARGS__)
#define FEW_EACH_3(f, ...) FEW_PAIR##f(__VA_ARGS__) FEW_ONE##f(__VA_ARGS__ 1)
#define FEW_EACH_4(f, ...) FEW_PAIR##f(__VA_ARGS__) FEW_PAIR##f(__VA_ARGS__ 1)
#define FEW_EACH_5(f, ...) FEW_EACH_4(f, __VA_ARGS__) FEW_ONE##f(__VA_ARGS__ 2)
#define FEW_EACH_6(f, ...) FEW_EACH_4(f, __VA_ARGS__) FEW_PAIR##f(__VA_ARGS__ 2)

// Four rows of n groups. row: bytes between rows; step: bytes between groups.
struct few_rows {
    const char *x;
    size_t row, step;
    int64_t n;
};

// few_add_<columns> adds the products with the columns of a tile to sum[column][row].
#define FEW_ADD_COLUMNS(nc) \
    static void few_add_##nc(float (*sum)[FEW_ROWS], const struct few_rows *rows, const uint16_t *y) { \
        const char *x = rows->x; \
        size_t off = 0; \
        for (int64_t left = rows->n; left > 0; left -= FEW_SUM) { \
            float (*to)[FEW_ROWS] = sum; \
            int64_t n = min_i64(left, FEW_SUM); \
            __asm__ volatile( \
                FEW_X FEW_EACH_##nc(, fmul,) "b.eq 2f\n\t" \
                "1:\n\t" FEW_X FEW_EACH_##nc(, fmla,) "b.ne 1b\n\t" \
                "2:\n\t" FEW_EACH_##nc(_1,) FEW_EACH_##nc(_2,) FEW_EACH_##nc(_3,) "fmov v30.8h, #1.0\n\t" FEW_EACH_##nc(_PUT,) \
                : [y] "+r"(y), [n] "+r"(n), [off] "+r"(off), [sum] "+r"(to) \
                : [step] "r"(rows->step), [x0] "r"(x), [x1] "r"(x + rows->row), [x2] "r"(x + 2 * rows->row), \
                  [x3] "r"(x + 3 * rows->row) \
                : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
                  "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", \
                  "v31"); \
        } \
    }
FEW_ADD_COLUMNS(1)
FEW_ADD_COLUMNS(2)
FEW_ADD_COLUMNS(3)
FEW_ADD_COLUMNS(4)
FEW_ADD_COLUMNS(5)
FEW_ADD_COLUMNS(6)
// clang-format on

// Multiplies n_rows rows, a multiple of FEW_ROWS, with the ny columns of a panel. If the rows are unpacked, n is a multiple of 8.
static void few_run(int64_t n, float (*tile)[NR], int n_rows, const struct x_layout *at, const uint16_t *y, int ny) {
    static void (*const add[])(float(*)[FEW_ROWS], const struct few_rows *, const uint16_t *) = {
        few_add_1, few_add_2, few_add_3, few_add_4, few_add_5, few_add_6};
    float sum[MR / FEW_ROWS][NR][FEW_ROWS] = {{{0}}};
    for (int64_t i = 0; i < n_groups(n); i += CHUNK) {
        const int64_t m = min_i64(n_groups(n) - i, CHUNK);
        for (int r = 0; r < n_rows; r += FEW_ROWS) {
            const uint16_t *x = at->x + (size_t) r * at->row + (size_t) i * at->step, *columns = y + i * ny * STEP;
            const struct few_rows rows = {(const char *) x, at->row * sizeof *x, at->step * sizeof *x, m};
            for (int c = 0, nc; c < ny; c += nc) {
                nc = few_cols(c, ny);
                add[nc - 1](sum[r / FEW_ROWS] + c, &rows, columns);
                columns += m * nc * STEP;
            }
        }
    }
    for (int r = 0; r < n_rows; r++) {
        for (int c = 0; c < ny; c++) {
            tile[r][c] = sum[r / FEW_ROWS][c][r % FEW_ROWS];
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

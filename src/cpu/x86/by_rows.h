// SPDX-License-Identifier: MIT
// by_rows.h: macros for the gemv kernels (kernels.h: cpu_gemv) that unpack a row once for all columns.
#pragma once

#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/unpack.h"

#define COLS 4 // columns per pass
#define EACH_COL(c) _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++)

// Defines rows_<type>, gemv_<type> and gemv_cols_<type> for formats with blocks of 32 elements. The including file defines
// Y_BLOCKS (the struct of 8 blocks of a column), SUMS (declares the sums), SUMS_ZERO(c), SUMS_ADD(type, x) (adds 8 blocks of the
// row) and SUMS_END(c) (returns the result of column c).
#define ROWS_32(type) \
    UNPACK_INLINE void rows_##type( \
        int64_t n, float *const *s, const void *vx, size_t bx, int nx, const void *const *vy, const int ny) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const struct Y_BLOCKS *y[COLS]; \
            SUMS; \
            EACH_COL(c) { \
                y[c] = vy[c]; \
                SUMS_ZERO(c); \
            } \
            int64_t left = n / 32; \
            for (; left >= 8; left -= 8, x += 8) { \
                prefetch_ahead(x, 8 * sizeof *x); \
                SUMS_ADD(type, x); \
                EACH_COL(c) { \
                    y[c]++; \
                } \
            } \
            if (left > 0) { /* columns are padded with zeros */ \
                block_##type last[8] = {0}; \
                memcpy(last, x, (size_t) left * sizeof *x); \
                SUMS_ADD(type, last); \
            } \
            EACH_COL(c) { \
                s[c][r] = SUMS_END(c); \
            } \
        } \
    } \
    GEMV_BY_ROWS(type)

#define GEMV_ROW(TYPE, type, pack, n_step, y_blocks) \
    k->gemv[GGML_TYPE_##TYPE] = (struct cpu_gemv){.pack_y = pack_##pack, \
        .run = gemv_##type, \
        .run_cols = gemv_cols_##type, \
        .step = n_step, \
        .y_size = sizeof(struct y_blocks)};

// Defines gemv_<type> and gemv_cols_<type>. rows_<type> is inlined, so that ny, at most COLS, is a constant.
#define GEMV_BY_ROWS(type) \
    static void gemv_##type(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) { \
        rows_##type(n, &s, x, bx, nx, &y, 1); \
    } \
    static void gemv_cols_##type(int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny) { \
        for (int left = (ny + COLS - 1) / COLS; left > 0; left--) { /* equal passes: 5 columns are 3 + 2 */ \
            const int now = (ny + left - 1) / left; \
            if (now == 4) { \
                rows_##type(n, s, x, bx, nx, y, 4); \
            } else if (now == 3) { \
                rows_##type(n, s, x, bx, nx, y, 3); \
            } else if (now == 2) { \
                rows_##type(n, s, x, bx, nx, y, 2); \
            } else { \
                gemv_##type(n, s[0], x, bx, nx, y[0]); \
            } \
            s += now, y += now, ny -= now; \
        } \
    }

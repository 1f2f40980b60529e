// SPDX-License-Identifier: MIT
// by_rows.h: products of rows with one column and with several, for files that unpack a row once for all of them.
#pragma once

#include "cpu/kernels.h"

#define COLS 4 // at once
#define EACH_COL(c) _Pragma("GCC unroll 4") for (int c = 0; c < ny; c++)

// gemv_<type> and gemv_cols_<type> (kernels.h:cpu_gemv) from rows_<type>(n, s, x, bx, nx, y, ny), which is inlined and so knows
// ny, COLS at most, when it is compiled.
#define GEMV_BY_ROWS(type) \
    static void gemv_##type(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) { \
        rows_##type(n, &s, x, bx, nx, &y, 1); \
    } \
    static void gemv_cols_##type(int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny) { \
        for (int left = (ny + COLS - 1) / COLS; left > 0; left--) { /* as even as can be: 3 and 2, not 4 and 1 */ \
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

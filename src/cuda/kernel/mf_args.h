// SPDX-License-Identifier: MIT
// mf_args.h: what a product of floats with few columns is told; the driver in C and the kernel read the same struct.
#pragma once

#include <stdint.h>

enum { MF_THREADS = 512, MF_ROWS = 4, MF_COLS = 8 };

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k], n columns. Strides: bytes for w, floats for x and y. Rows and
// columns begin and end at multiples of 16 bytes.
struct mf_args {
    const char *w;
    const float *x;
    float *y;
    int64_t w_row, w_z2, w_z3;
    int64_t x_col, x_z2, x_z3;
    int64_t y_col, y_z2, y_z3;
    int m, k, n;
    int ne2, r2, r3; // z = i2 + i3 * ne2; weights are shared by r2 of dimension 2, r3 of dimension 3
    int w_const;     // w is not written by kernels of this graph
    int wait;        // launched so that the kernel ahead may still run
};
#ifndef __cplusplus
typedef struct mf_args mf_args;
#endif

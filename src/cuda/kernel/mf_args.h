// SPDX-License-Identifier: MIT
// mf_args.h: arguments of mf_f32, which multiplies f32 weights with few f32 columns.
#pragma once

#include <stdint.h>

enum { MF_THREADS = 512, MF_ROWS = 4, MF_COLS = 8 }; // threads per block; rows per turn (mf.cu); largest number of columns

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k]. Strides are in bytes for w, in floats for x and y. Rows and columns
// begin and end at multiples of 16 bytes.
struct mf_args {
    const char *w;
    const float *x;
    float *y;
    int64_t w_row, w_z2, w_z3;
    int64_t x_col, x_z2, x_z3;
    int64_t y_col, y_z2, y_z3;
    int m, k, n;
    int ne2, r2, r3; // z = i2 + i3 * ne2; weights repeat r2 and r3 times
    int w_const;     // no kernel of this graph writes w
    int wait;        // wait for the previous kernel before reading its results
};
#ifndef __cplusplus
typedef struct mf_args mf_args;
#endif

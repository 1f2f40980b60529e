// SPDX-License-Identifier: MIT
// mv_args.h: what products of one column are told; the driver in C and the kernel read the same struct.
#pragma once

#include <stdint.h>

enum { MV_WARPS = 16, MV_PARTS = 3, MV_NORM_MAX = 8192, MVB_BLOCKS = 2 }; // blocks: of mvb a multiprocessor
enum mv_glu { MV_GLU_NONE, MV_GLU_SWIGLU, MV_GLU_GEGLU };

// y[i][z][row] = sum over k of w[i][z][row][k] * x[z][k], for each of n_parts matrices with rows of the same type and length.
// Strides: bytes for w, floats for x and y.
// norm: x is brought to a root mean square of 1 first, and multiplied by the k floats of norm. n_parts 1, add: y = sum + add.
// n_parts 2, glu: y[0][row] = act(sum of part 0) * sum of part 1. All three without ids and with z = 0 alone.
struct mv_args {
    const char *w[MV_PARTS];
    float *y[MV_PARTS];
    int m[MV_PARTS]; // rows
    int n_parts;
    const float *x, *norm, *add;
    const int32_t *ids; // NULL, or the expert of each (token, slot) = z
    int64_t w_row, w_z2, w_z3;
    int64_t x_col, x_z2, x_z3;
    int64_t y_col, y_z2, y_z3;
    int64_t ids_row; // in elements
    float eps;
    int glu;
    int k;
    int ne2, r2, r3;       // z = i2 + i3 * ne2; weights are shared by r2 of dimension 2, r3 of dimension 3
    int n_used, n_experts; // slots of a token; experts there are
    int x_ne1;             // columns of x a token has: 1, or one a slot
    int n_turns, n_full;   // of mvb: all, and those of as many rows as a turn has at most; the rest have n_last
    int n_last;
    int n_stages; // steps of two rows in a warp's ring, 1 to 7
    int w_const;  // w is not written by kernels of this graph
    int wait;     // launched so that the kernel ahead may still run
};
#ifndef __cplusplus
typedef struct mv_args mv_args;
#endif

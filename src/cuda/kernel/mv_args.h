// SPDX-License-Identifier: MIT
// mv_args.h: arguments of products with one column. mv (mv.cuh) supports all types. mvb (mv_block.cuh) requires f32, f16 or bf16
// rows at multiples of 16 bytes. A turn is the rows that a warp (mv) or a block (mvb) computes at a time.
#pragma once

#include <stdint.h>

enum { MV_WARPS = 16, MV_PARTS = 3, MV_NORM_MAX = 8192, MVB_BLOCKS = 2 }; // MVB_BLOCKS: blocks of mvb per multiprocessor
enum mv_glu { MV_GLU_NONE, MV_GLU_SWIGLU, MV_GLU_GEGLU };

// y[i][z][row] = sum over k of w[i][z][row][k] * x[z][k], for each matrix (part) i. All parts have rows of the same type and
// length. Strides are in bytes for w, in floats for x and y.
// If norm is not NULL, x is replaced by x / rms(x) * norm. If add is not NULL, n_parts is 1 and y = sum + add. If glu is not
// MV_GLU_NONE, n_parts is 2 and y[0][row] = act(sum of part 0) * sum of part 1.
// norm and add require ids to be NULL and z to be 0. With ids, n_parts is 1, or 2 if glu is set, and the results of an expert that
// does not exist are zeros.
struct mv_args {
    const char *w[MV_PARTS];
    float *y[MV_PARTS];
    int m[MV_PARTS]; // rows per part
    int n_parts;
    const float *x, *norm, *add;
    const int32_t *ids; // NULL, or the expert of each (token, slot) pair; z is the index of the pair
    int64_t w_row, w_z2, w_z3;
    int64_t x_col, x_z2, x_z3;
    int64_t y_col, y_z2, y_z3;
    int64_t ids_row; // stride in elements
    float eps;
    int glu;
    int k;
    int ne2, r2, r3;       // z = i2 + i3 * ne2; weights repeat r2 and r3 times
    int n_used, n_experts; // slots per token; number of experts
    int x_ne1;             // columns of x per token: 1, or one per slot
    int n_turns, n_full;   // mvb: number of turns; number of turns of full size
    int n_last;            // mvb: rows of each of the remaining n_turns - n_full turns
    int n_stages;          // mv: stages of a warp's ring, 1 to 7
    int w_const;           // no kernel of this graph writes w
    int wait;              // wait for the previous kernel before reading its results
};
#ifndef __cplusplus
typedef struct mv_args mv_args;
#endif

// SPDX-License-Identifier: MIT
// mma_args.h: arguments of products with many columns, of the conversion of their columns into tiles, and of the sorting of
// columns by expert.
#pragma once

#include <stdint.h>

// Converts columns to f16 in tiles: [z][column / nt][k / 64][column % nt] rows of 128 bytes. k is padded to a multiple of 256. In
// each run of 16 elements, the even ones come before the odd ones. Pieces of 16 bytes are swizzled by the row (wgmma.cuh).
// scale[z][column] is the number by which a column was divided.
struct act_args {
    const char *x;
    uint16_t *tiles;
    float *scale;
    const int32_t *from;       // NULL, or [n]: column of x that becomes this column of the tiles (-1: none); z is then 0
    int64_t x_col, x_z2, x_z3; // byte strides
    int64_t from_z2;           // byte stride; with `from`: column c is at index (c % x_ne1, c / x_ne1) of x
    int x_ne1;
    int x_type;        // 0 f32, 1 f16, 2 bf16
    int k, n, nt, ne2; // n: columns of x; further columns of the tiles are zeros
    int bf;            // convert to bf16, without scaling
    int plain;         // no tiles and no scales: [column][k rounded up to a multiple of 8], elements in their own order; z is 0
    int flat;          // no tiles: contiguous columns, [z][column][k]
    int rest;          // only if flat: rounding residuals of the columns follow, [z][n + column][k]
    int wait;
};

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k].
struct mma_args {
    const char *w;
    const uint16_t *tiles;
    const float *scale;
    float *y;
    const int32_t *tile_expert; // NULL, or the expert of each tile of columns (-1: the tile is unused)
    const int32_t *to;          // NULL, or the offset in y of each column of the tiles (-1: the column is unused)
    int64_t w_row, w_z2, w_z3;  // byte strides
    int64_t y_col, y_z2, y_z3;  // strides in floats
    int64_t tiles_z;            // f16 elements per z
    int64_t scale_z;
    int m, k, n;
    int ne2, r2, r3;
    int n_tiles; // number of tiles of columns
    int wait;
};
#ifndef __cplusplus
typedef struct act_args act_args;
typedef struct mma_args mma_args;
#endif

#define MMID_EXPERTS 1024

// Sorts (token, slot) pairs by expert. Outputs: experts[tile], the expert of each tile of nt columns; from[column] and
// to[column], the column of x and the offset in y. -1: the tile or column is unused.
struct mmid_args {
    const int32_t *ids;
    int32_t *experts, *from, *to;
    int64_t ids_row, y_col, y_z2;
    int n_used, n_pairs, n_experts, x_ne1, nt, n_tiles;
    int wait;
};

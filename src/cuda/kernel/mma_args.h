// SPDX-License-Identifier: MIT
// mma_args.h: what a product of many columns is told, the tiles its columns come in, and how columns are sorted by expert.
#pragma once

#include <stdint.h>

// Columns as halves in tiles: [z][column / nt][k / 64][column % nt] rows of 128 bytes, k up to a multiple of 256, evens before
// odds in each run of 16, pieces of 16 bytes swapped by the row (wgmma.cuh). scale[z][column]: what a column was divided by.
struct act_args {
    const char *x;
    uint16_t *tiles;
    float *scale;
    const int32_t *from;       // NULL, or which column of x a column of the tiles is (-1: none); one z then
    int64_t x_col, x_z2, x_z3; // bytes
    int64_t from_z2;           // with from: column c is (c % x_ne1, c / x_ne1)
    int x_ne1;
    int x_type;        // 0 f32, 1 f16, 2 bf16
    int k, n, nt, ne2; // n: columns that exist; tiles are filled up with zeros
    int bf;            // bf16 in the tiles, not scaled
    int plain;         // no tiles and no scales: [column][k up to a multiple of 8] in its own order, one z
    int flat;          // no tiles: columns one after the other, [z][column][k], all of n
    int rest;          // flat: what rounding took off the columns follows, [z][n + column][k]
    int wait;
};

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k].
struct mma_args {
    const char *w;
    const uint16_t *tiles;
    const float *scale;
    float *y;
    const int32_t *tile_expert; // NULL, or the expert of each tile of columns (-1: no such tile)
    const int32_t *to;          // NULL, or where a column of the tiles goes: its offset in y, -1 for none
    int64_t w_row, w_z2, w_z3;  // bytes
    int64_t y_col, y_z2, y_z3;  // floats
    int64_t tiles_z;            // halves of a z
    int64_t scale_z;
    int m, k, n;
    int ne2, r2, r3;
    int n_tiles; // tiles of columns
    int wait;
};
#ifndef __cplusplus
typedef struct act_args act_args;
typedef struct mma_args mma_args;
#endif

#define MMID_EXPERTS 1024

// Sorting (token, slot) pairs by expert. Out: for each tile of nt columns its expert (-1: none), for each column which column of x it
// is and where in y it goes (-1: none).
struct mmid_args {
    const int32_t *ids;
    int32_t *experts, *from, *to;
    int64_t ids_row, y_col, y_z2;
    int n_used, n_pairs, n_experts, x_ne1, nt, n_tiles;
    int wait;
};

// SPDX-License-Identifier: MIT
// mma_args.h: arguments of products with many columns, of column conversion, and of sorting by expert.
#pragma once

#include "mv_args.h"

#include <stdint.h>

enum { ACT_THREADS = 1024 }; // most threads per block of act_tiles

// Arguments of act_tiles, which converts columns to f16. z: index of a product in a batch.
// Layout: [z][column / nt][k / 64][column % nt][64]. k is padded to a multiple of 256.
// In each run of 16 elements, the even elements come first. The 16-byte pieces of each 128 bytes are swizzled (wgmma.cuh).
// scale[z][column]: the divisor of a column.
struct act_args {
    const char *x;
    uint16_t *tiles;
    float *scale;
    const int32_t *from;       // NULL, or [n]: the (token, slot) pair of each column (-1: the column becomes zeros); z is 0
    int64_t x_col, x_z2, x_z3; // byte strides
    int64_t from_z2;           // with `from`: the column of pair p is at p % n_used % x_ne1 * x_col + p / n_used * from_z2
    // If norm is not NULL, x is replaced by x / rms(x) * norm; this requires x_type 0 and `from` to be NULL. If glu is not
    // MV_GLU_NONE, x is replaced by act(x) * x2; x2 has the type and the strides of x.
    const float *norm;
    const char *x2;
    float eps;
    int glu; // enum mv_glu: act
    int x_ne1, n_used;
    int x_type;        // 0 f32, 1 f16, 2 bf16
    int k, n, nt, ne2; // n: columns of x; nt: columns per tile; padding columns are zeros
    int bf;            // 1: convert to bf16 instead of f16, without scaling
    int plain;         // 1: contiguous columns, [column][k rounded up to 8], without tiles and scales; z is 0
    int flat;          // 1: contiguous columns, [z][column][k], without tiles
    int rest;          // 1, only if flat: rounding residuals follow the columns, [z][n + column][k]
    int wait;
};

// Arguments of mma90, mid90 and mid80: y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k].
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
    // mid90 and mid80 only
    int n_row_groups; // groups of four warps with different rows: 1, 2 or 4. The other groups compute other chunks of these rows.
    int n_stages;     // chunks in a ring, 2 to MID_STAGES
    int w_const;      // no kernel of this graph writes w
    // Further matrices of n_more products with the same columns; all matrices have rows of the same type and length. Requires
    // tile_expert to be NULL and z to be 0.
    const char *w_more[2];
    float *y_more[2];
    int64_t y_col_more[2];
    int m_more[2], n_more;
    const float *add; // NULL, or [column][row]: numbers to add to the results of the first matrix
    int64_t add_col;  // stride in floats
};
// MID_GROUPS: most groups of four warps in a block; mid90 always has as many. MID80_STEPS: stages of columns of mid80.
enum { MID_GROUPS = 4, MID_STAGES = 4, MID_PITCH = 68, MID_HEAD = 1024, MID80_STEPS = 3 };
#ifndef __cplusplus
typedef struct act_args act_args;
typedef struct mma_args mma_args;
#endif

#define MMID_EXPERTS 1024

// Arguments of mmid_sort, which sorts (token, slot) pairs by expert. Each pair becomes one column of the tiles.
// Outputs: experts[tile], the expert of a tile; from[column], the pair token * n_used + slot; to[i][column], the offset of the
// column in the result of product i. -1: the tile or the column is unused. A pair whose expert does not exist becomes a column of
// expert 0 with from = -1, so that its result is zeros.
struct mmid_args {
    const int32_t *ids;
    int32_t *experts, *from, *to[2]; // to[1]: NULL, or for the product that follows
    int64_t ids_row, y_col[2], y_z2[2];
    int n_used, n_pairs, n_experts, nt, n_tiles;
    int y_off;       // is added to all offsets to[0]
    int twin_expert; // 0, or: n_tiles more tiles follow, with the same columns, expert numbers larger by twin_expert, and
    int twin_y;      // offsets to[0] larger by twin_y
    int wait;
};

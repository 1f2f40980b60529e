// SPDX-License-Identifier: MIT
// mmv_args.h: arguments of products with few columns; the op driver in C and the kernel use the same struct.
#pragma once

#include <stdint.h>

// Warps per block: 16, or 8 if chunks are large. MMV_FIXED: bytes of shared memory of a block in addition to columns and rings,
// for sums of tiles and barriers.
enum { MMV_WARPS = 16, MMV_WARPS_LARGE = 8, MMV_TILES = 3 };
#define MMV_FIXED(warps) (MMV_TILES * (warps) *512 + 64)

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k]. Strides are in bytes for w and in floats for y. act.cu writes xh
// and scale. Column c is at xh + z * xh_z + c * xh_col. Its rounding residual is xh_rest columns further.
struct mmv_args {
    const char *w;
    const uint16_t *xh;
    const float *scale;
    float *y;
    int64_t w_row, w_z2, w_z3;
    int64_t y_col, y_z2, y_z3;
    int64_t xh_col, xh_z, xh_rest, scale_z;
    int m, k, n;
    int ne2, r2, r3;      // z = i2 + i3 * ne2; r2 indices of dimension 2 and r3 indices of dimension 3 share weights
    int k_part, n_stages; // chunks of the columns that fit into shared memory; chunks in a warp's ring, 2 to 7
    int w_fours;          // rows of w begin at multiples of 4 bytes
    int w_sixteens;       // rows of w begin at multiples of 16 bytes and are less than 2^26 bytes apart
    int w_const;          // no kernel of this graph writes w
    int wait;             // the previous kernel may still run: wait for it before its results are read
};
#ifndef __cplusplus
typedef struct mmv_args mmv_args;
#endif

// SPDX-License-Identifier: MIT
// mmv_args.h: arguments of products with few columns.
#pragma once

#include <stdint.h>

// MMV_WARPS: warps per block. MMV_WARPS_LARGE: warps per block if chunks are large or the GPU has little shared memory. Each warp
// has a ring of chunks in shared memory, so fewer warps leave more memory per ring. MMV_TILES: tiles whose sums are in shared
// memory at the same time. MMV_FIXED: bytes of shared memory for these sums and for barriers.
enum { MMV_WARPS = 16, MMV_WARPS_LARGE = 8, MMV_TILES = 3 };
#define MMV_FIXED(warps) (MMV_TILES * (warps) *512 + 64)

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k]. Strides are in bytes for w, in floats for y. Column c is at
// xh + z * xh_z + c * xh_col. The rounding residual of column c is at column c + xh_rest.
struct mmv_args {
    const char *w;
    const uint16_t *xh;
    const float *scale;
    float *y;
    int64_t w_row, w_z2, w_z3;
    int64_t y_col, y_z2, y_z3;
    int64_t xh_col, xh_z, xh_rest, scale_z;
    int m, k, n;
    int ne2, r2, r3; // z = i2 + i3 * ne2; weights repeat r2 and r3 times
    int k_part;      // chunks of the columns per part; a part fits into shared memory
    int n_stages;    // chunks in a warp's ring, 1 to 7
    int w_fours;     // rows of w begin at multiples of 4 bytes
    int w_sixteens;  // rows of w begin at multiples of 16 bytes and are less than 2^26 bytes apart
    int w_const;     // no kernel of this graph writes w
    int wait;        // wait for the previous kernel before reading its results
};
#ifndef __cplusplus
typedef struct mmv_args mmv_args;
#endif

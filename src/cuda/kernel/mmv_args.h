// SPDX-License-Identifier: MIT
// mmv_args.h: what a product of few columns is told; the driver in C and the kernel read the same struct.
#pragma once

#include <stdint.h>

// Warps of a block: 16, or 8 where chunks are large. Shared memory of a block beside columns and rings: sums of tiles, barriers.
enum { MMV_WARPS = 16, MMV_WARPS_LARGE = 8, MMV_TILES = 3 };
#define MMV_FIXED(warps) (MMV_TILES * (warps) *512 + 64)

// y[z][col][row] = sum over k of w[z][row][k] * x[z][col][k]. Strides: bytes for w, floats for y. xh and scale
// are made by act.cu; column c is at xh + z * xh_z + c * xh_col, what rounding took off it xh_rest columns further.
struct mmv_args {
    const char *w;
    const uint16_t *xh;
    const float *scale;
    float *y;
    int64_t w_row, w_z2, w_z3;
    int64_t y_col, y_z2, y_z3;
    int64_t xh_col, xh_z, xh_rest, scale_z;
    int m, k, n;
    int ne2, r2, r3;      // z = i2 + i3 * ne2; weights are shared by r2 of dimension 2, r3 of dimension 3
    int k_part, n_stages; // chunks of the columns that lie in shared memory; chunks in a warp's ring, 2 to 7
    int w_fours;          // rows begin at multiples of 4 bytes
    int w_sixteens;       // at multiples of 16, and less than 2^26 bytes apart
    int w_const;          // w is not written by kernels of this graph
    int wait;             // launched so that the kernel ahead may still run
};
#ifndef __cplusplus
typedef struct mmv_args mmv_args;
#endif

// SPDX-License-Identifier: MIT
// few_args.h: arguments of products with 2 to 16 columns on sm_90a (few90.cuh), and of the conversion of their columns (act_few.cu).
#pragma once

#include "cuda/kernel/tensor_map.h"
#include "mv_args.h"

#include <stdint.h>

// A tile is FEW_ROWS rows. A step is a part of the rows of a tile that one copy reads: FEW_CHUNKS chunks of each row. A chunk is
// 256 elements of a block format or 64 elements of dense weights. FEW_WARPS: warps that multiply.
// FEW_COPIERS: warps that copy. FEW_STAGES: largest number of steps in shared memory at the same time. FEW_STEPS: largest number of steps of the columns in shared memory.
// FEW_BATCH: tiles that a block processes at a time, if the columns do not fit into shared memory.
enum { FEW_ROWS = 16, FEW_CHUNKS = 8, FEW_WARPS = 16, FEW_COPIERS = 2, FEW_STAGES = 12, FEW_STEPS = 64, FEW_BATCH = 8 };
// FEW_HEAD: bytes of shared memory for barriers. FEW_FIXED: bytes for barriers and for the sums of tiles. FEW_PLACES: tiles whose
// sums are in shared memory at the same time; each place has a warp that adds the sums. nb: groups of 8 columns: 1 or 2.
enum { FEW_HEAD = 1024, FEW_PLACES = 2, FEW_THREADS = (FEW_WARPS + FEW_PLACES + FEW_COPIERS) * 32 };
#define FEW_FIXED(nb) (FEW_HEAD + FEW_PLACES * FEW_WARPS * 512 * (nb))

// Layout of the converted columns: one record per chunk. n: number of columns. With dense weights and residuals, n counts the
// residuals too.
//   block formats, columns in 8 bits. A sub is 32 elements, a run is half of a sub.
//     256 n bytes   [pair of subs][column][t < 4][sub of the pair][run][4]: elements 4t to 4t + 3 of a run
//     64 (n / 2)    [pair of subs][pair of columns][sub of the pair][column of the pair]: the scale of a sub, times 2^-24, as f32.
//                   n is rounded up to a multiple of 2
//     32 n bytes    [column][pair of subs][2][sub of the pair]: the sum of a sub, times its scale, as two bf16: the rounded sum
//                   and its residual
//   dense weights: 128 n bytes   [half][column][32] as f16 or bf16
// Dense columns of f16 weights are divided by a power of two, scale[column].
#define FEW_RECORD_8(n) (256 * (n) + ((n) + 1) / 2 * 64 + 32 * (n))
#define FEW_RECORD_16(n) (128 * (n))

// Arguments of act_few_8 and act_few_16. If norm is not NULL, x is replaced by x / rms(x) * norm.
struct act_few_args {
    const char *x;
    const float *norm;
    char *records;
    float *scale;  // dense weights only
    int64_t x_col; // byte stride
    float eps;
    int x_type; // 0 f32, 1 f16, 2 bf16
    int k, n;
    int bf;   // dense weights only: columns are converted to bf16 instead of f16
    int rest; // dense weights only: the rounding residuals follow the n columns
    int wait;
};

// y[i][col][row] = sum over k of w[i][row][k] * x[col][k], for each matrix i. All matrices have rows of the same type and length.
// Strides are in bytes for w, in floats for y and add. If add is not NULL, n_parts is 1 and y = sum + add. If glu is not
// MV_GLU_NONE, n_parts is 2 and y[0] = act(sum of matrix 0) * sum of matrix 1.
struct few_args {
    struct cuda_tensor_map maps[MV_PARTS]; // if has_maps: of the matrices. A box is 8 rows of a step
    const char *w[MV_PARTS];
    float *y[MV_PARTS];
    int m[MV_PARTS];
    int n_parts;
    const char *records;
    const float *scale, *add;
    int64_t w_row, y_col[MV_PARTS], add_col;
    int k, n;
    int rest; // dense weights only: the columns are followed by their rounding residuals
    // If x is not NULL: each block converts the columns x (f32) itself, after an optional norm; `records` is not used. Requires
    // block formats, and all columns in shared memory.
    const char *x;
    const float *norm;
    int64_t x_col; // byte stride
    float eps;
    int glu;        // enum mv_glu
    int n_tiles;    // of all matrices
    int part_steps; // steps of the columns that are in shared memory at the same time
    int n_stages;   // even
    int has_maps;   // rows are copied in boxes, not one by one
    int w_const;    // no kernel of this graph writes w
    int wait;
};
#ifndef __cplusplus
typedef struct act_few_args act_few_args;
typedef struct few_args few_args;
#endif

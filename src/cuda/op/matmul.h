// SPDX-License-Identifier: MIT
// matmul.h: the kernels of products for each type of weights.
#pragma once

#include "cuda/cuda.h"
#include "cuda/kernel/few_args.h"
#include "cuda/kernel/mf_args.h"
#include "cuda/kernel/mma_args.h"
#include "cuda/kernel/mmv_args.h"
#include "cuda/kernel/mv_args.h"
#include "gpu/op/op.h"

// Names of the kernels for one type of weights; NULL: no such kernel. mmv and mma read columns rounded to f16 or bf16.
//   mv              one column
//   mvb             one column; f32, f16 and bf16 rows that begin and end at multiples of 16 bytes
//   mmv, mmv_wide   up to 8 columns per block. mmv also multiplies the rounding residuals of the columns, mmv_wide does not.
//                   f32 has one kernel for both, with residuals. Quantised types have one kernel for both, without residuals.
//   mmv_8, ...      with 8 warps per block instead of 16
//   mma_N           tiles of N columns
//   mid             tiles of fewer columns; groups of warps share the elements of a row
#define CUDA_MID_TILES 4
#define CUDA_MID_MIN 8    // with at most this number of columns, mmv is faster than mid
#define CUDA_MID_MAX 128  // with more columns, mid90 is used only if mma90 would leave half of the multiprocessors without work
#define CUDA_DENSE_MAX 32 // with more columns, cuBLAS is faster than mid90 for f16 and bf16 (not measured for mid80)
struct cuda_mm_type {
    enum ggml_type type;
    const char *mv, *mmv, *mmv_wide, *mma_64, *mma_128, *mma_256;
    bool bf; // columns are converted to bf16 instead of f16
    const char *mvb, *mmv_8, *mmv_wide_8;
    const char *mid[CUDA_MID_TILES]; // tiles of 8, 16, 32 and 64 columns
    const char *few[2];              // sm_90a: up to 8 and up to 16 columns
};
const struct cuda_mm_type *cuda_mm_type(enum ggml_type type); // NULL: weights of this type are not supported

#define CUDA_FEW_MAX 16 // largest number of columns that few90 computes
#define CUDA_MM_FEW 4   // largest number of columns for which mmv also multiplies the rounding residuals
#define CUDA_MM_WIDE 16 // largest number of columns that mmv computes if mma90 or cuBLAS exist

// Columns of a product, converted for tensor cores, in the arena.
struct cuda_columns {
    int nt;              // columns per tile; 0: contiguous columns, no tiles
    bool is_mid;         // mid computes the tiles
    bool plain;          // the columns have the layout that cuBLAS reads: no tiles, no scales; nt is 1
    bool rest;           // the columns are followed by their rounding residuals (x minus the rounded x); requires nt 0
    int64_t n;           // number of columns, rounded up to whole tiles
    int64_t nz;          // number of products in the batch
    size_t columns_size; // bytes of the converted columns
    size_t size;         // columns_size plus the bytes of the scales; if plain, columns_size plus the work memory of cuBLAS
};
// Returns the layout of the n columns of k elements of each of nz products, in tiles of nt columns. nt 0: no tiles.
struct cuda_columns cuda_columns_of(const struct cuda_mm_type *t, int64_t k, int64_t n, int64_t nz, int nt);
// Returns the columns per tile for m rows and n columns; 0: mmv computes the product. *is_mid: mid computes the tiles, otherwise
// mma90. can_mid: the result of cuda_can_mid.
int cuda_mm_tile(const struct gpu_device *dev, const struct cuda_mm_type *t, int64_t m, int64_t n, bool can_mid, bool *is_mid);
// Returns whether mid can read the weights w: the type has a mid kernel, all rows begin at multiples of 16 bytes, they are less than
// 2^26 bytes apart, and there are not too many.
bool cuda_can_mid(const struct ggml_tensor *w);
// Returns the value of act_args.x_type for columns of type t.
static inline int cuda_column_type(enum ggml_type t) {
    if (t == GGML_TYPE_F32) {
        return 0;
    }
    return t == GGML_TYPE_F16 ? 1 : 2;
}
// Returns the threads per block of act_tiles for columns of k elements. With at most 16 elements per thread, each element is read
// once.
unsigned cuda_act_threads(int64_t k);
// Launches mid with tiles of nt columns: 8, 16, 32 or 64.
enum ggml_status cuda_mid_tiles(struct gpu_run *r, const struct cuda_mm_type *t, int nt, mma_args *a, int64_t nz) BERTH_MUST_USE;
enum ggml_status cuda_mm_tiles(
    struct gpu_run *r, const struct cuda_mm_type *t, int nt, const mma_args *a, int64_t nz) BERTH_MUST_USE;
// Returns whether a column of k elements fits into the shared memory of mv.
bool cuda_mv_fits(const struct gpu_device *dev, const struct cuda_mm_type *t, int64_t k);
// Returns whether a MUL_MAT has one f32 column that fits into the shared memory of mv.
bool cuda_is_vector(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op);
enum ggml_status cuda_mv(struct gpu_run *r, const struct cuda_mm_type *t, mv_args *a, int64_t nz) BERTH_MUST_USE;

// The columns of a product, and the op that is computed when they are converted: none, an RMS_NORM or a gate.
struct cuda_source {
    const struct ggml_tensor *x;
    const struct ggml_tensor *as; // the tensor whose columns are converted: x, or the result of the op
    const float *norm;            // NULL, or the weights of the norm
    float eps;
    enum mv_glu glu; // the columns are act(x) * x2
    const struct ggml_tensor *x2;
};

// ---- 2 to 16 columns on sm_90a (few.c) ----

// Returns whether few90 computes a MUL_MAT.
bool cuda_is_few(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op);
// Returns the bytes of the arena that suffice for up to n columns of k elements.
size_t cuda_few_work_size(const struct cuda_mm_type *t, int64_t k, int64_t n);
// Converts the columns and multiplies them with the matrices of a. Sets the fields of a that follow from the columns.
enum ggml_status cuda_few(
    struct gpu_run *r, const struct cuda_mm_type *t, few_args *a, const struct cuda_source *source) BERTH_MUST_USE;

// ---- 9 to 128 columns (matmul.c) ----

// Returns whether mid computes a MUL_MAT that is not a batch.
bool cuda_is_mid(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op);
// Converts the columns and multiplies them with the matrices of a. Sets the fields of a that follow from the columns and from `op`,
// the first product.
enum ggml_status cuda_mid(struct gpu_run *r, const struct cuda_mm_type *t, mma_args *a, const struct ggml_tensor *op,
    const struct cuda_source *source) BERTH_MUST_USE;

// SPDX-License-Identifier: MIT
// matmul.h: what products have in common: which kernels a type of weights has, and how they are launched.
#pragma once

#include "cuda/kernel/mf_args.h"
#include "cuda/kernel/mma_args.h"
#include "cuda/kernel/mmv_args.h"
#include "cuda/kernel/mv_args.h"
#include "cuda/op/op.h"

// Kernels by type. mv: one column, NULL if it has none. mvb: the same for dense rows at multiples of 16 bytes. mmv: up to 8
// columns, fine for at most 4 where it differs from wide; _8: with 8 warps. mma: by tile width, NULL where there is none.
struct cuda_mm_type {
    enum ggml_type type;
    const char *mv, *mmv, *mmv_wide, *mma_64, *mma_128, *mma_256;
    bool bf; // columns become bf16
    const char *mvb, *mmv_8, *mmv_wide_8;
};
const struct cuda_mm_type *cuda_mm_type(enum ggml_type type); // NULL: no product with such weights

#define CUDA_MM_FEW 4   // columns up to which what a half leaves out goes along
#define CUDA_MM_WIDE 16 // columns from which on tensor cores have enough to do for tiles of many rows

// Columns of a product made ready for tensor cores, in the arena.
struct cuda_columns {
    int nt;     // columns a tile; 0: flat
    bool plain; // for cuBLAS: nt is 1
    bool rest;  // flat: with what rounding took off
    int64_t n;  // columns, filled up to whole tiles
    int64_t nz; // products
    size_t halves_size, size;
};
struct cuda_columns cuda_columns_of(const struct cuda_mm_type *t, int64_t k, int64_t n, int64_t nz, int nt);
// Tiles' width for n columns; 0: mmv.
int cuda_mm_tile(const struct cuda_device *dev, const struct cuda_mm_type *t, int64_t n);
int cuda_column_type(enum ggml_type t); // x_type of struct act_args
enum ggml_status cuda_mm_tiles(
    struct cuda_run *r, const struct cuda_mm_type *t, int nt, const mma_args *a, int64_t nz) BERTH_MUST_USE;
// Whether mv has room for a column of k.
bool cuda_mv_fits(const struct cuda_device *dev, const struct cuda_mm_type *t, int64_t k);
// Whether a MUL_MAT has one column of floats that mv has room for.
bool cuda_is_vector(const struct cuda_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op);
enum ggml_status cuda_mv(struct cuda_run *r, const struct cuda_mm_type *t, mv_args *a, int64_t nz) BERTH_MUST_USE;

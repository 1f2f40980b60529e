// SPDX-License-Identifier: MIT
// blas.h: dense products by NVIDIA's cuBLAS, which is loaded with dlopen. Without the library, Berth's kernels compute them.
#pragma once

#include "cuda/cuda.h"

#define CUDA_BLAS_WORK ((size_t) 32 << 20) // bytes of device memory that cuBLAS works in

// y[col][row] = sum over k of w[row][k] * x[col][k]. Strides are in elements; y_col is the stride between columns of y. w and x
// have the same type: f32 (multiplied as TF32, with 10 mantissa bits), f16 or bf16.
struct cuda_gemm {
    enum ggml_type type;
    const void *w, *x;
    float *y;
    int64_t m, n, k, w_row, x_col, y_col;
    void *work; // CUDA_BLAS_WORK bytes
};

// Returns whether cuBLAS can be used on this device. The first call creates the handle, which allocates device memory, so that
// call must not be made during a compute.
bool cuda_blas_is_ready(const struct gpu_device *dev);
enum ggml_status cuda_blas_gemm(struct gpu_run *r, const struct cuda_gemm *g) BERTH_MUST_USE;

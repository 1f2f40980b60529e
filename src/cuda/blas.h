// SPDX-License-Identifier: MIT
// blas.h: dense products by NVIDIA's cuBLAS, where it is installed: on its home ground it is hard to beat. Taken with dlopen;
// without it our own kernels serve.
#pragma once

#include "cuda/cuda.h"

#define CUDA_BLAS_WORK ((size_t) 32 << 20) // bytes it wants to work in

// y[col][row] = sum over k of w[row][k] * x[col][k]: columns of y are y_col floats apart. w and x: f32 (multiplied with 10 bits
// of mantissa), f16 or bf16 alike; strides in elements.
struct cuda_gemm {
    enum ggml_type type;
    const void *w, *x;
    float *y;
    int64_t m, n, k, w_row, x_col, y_col;
    void *work; // CUDA_BLAS_WORK bytes
};

// Whether it is there and works on this device. Takes device memory when first asked: ask before a compute.
bool cuda_blas_is_ready(const struct cuda_device *dev);
enum ggml_status cuda_blas_gemm(struct cuda_run *r, const struct cuda_gemm *g) BERTH_MUST_USE;

// SPDX-License-Identifier: MIT
// mmv_dense.cu: products of few columns with f16, bf16 and f32 weights. The fine ones keep what rounding takes off the columns;
// from 5 columns on that would cost more than the weights.
#include "mmv.cuh"

MMV_KERNELS(f16, f16, 2)
MMV_KERNELS(bf16, bf16, 2)
MMV_KERNELS(f16_wide, f16, 1)
MMV_KERNELS(bf16_wide, bf16, 1)
MMV_KERNEL(f32, f32, 2, MMV_WARPS_LARGE)

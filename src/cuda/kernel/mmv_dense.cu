// SPDX-License-Identifier: MIT
// mmv_dense.cu: products with few columns for f16, bf16 and f32 weights. Kernels with XP = 2 (the argument after the weight type)
// also multiply the rounding residuals of the columns. The _wide kernels are for more than 4 columns. They omit the residuals,
// which would cost more than reading the weights.
#include "mmv.cuh"

MMV_KERNELS(f16, f16, 2)
MMV_KERNELS(bf16, bf16, 2)
MMV_KERNELS(f16_wide, f16, 1)
MMV_KERNELS(bf16_wide, bf16, 1)
MMV_KERNEL(f32, f32, 2, MMV_WARPS_LARGE)

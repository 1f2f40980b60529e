// SPDX-License-Identifier: MIT
// mmv_quant.cu: products with few columns for the common block formats.
#include "mmv.cuh"

MMV_KERNELS(q4_0, q4_0, 1)
MMV_KERNELS(q4_1, q4_1, 1)
MMV_KERNELS(q5_0, q5_0, 1)
MMV_KERNELS(q5_1, q5_1, 1)
MMV_KERNEL(q8_0, q8_0, 1, MMV_WARPS_LARGE)
MMV_KERNELS(q2_K, q2_K, 1)
MMV_KERNELS(q3_K, q3_K, 1)
MMV_KERNELS(q4_K, q4_K, 1)
MMV_KERNELS(q5_K, q5_K, 1)
MMV_KERNELS(q6_K, q6_K, 1)

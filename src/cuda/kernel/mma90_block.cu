// SPDX-License-Identifier: MIT
// mma90_block.cu: products with many columns on sm_90a, for types with blocks of 32 elements and with superblocks.
#include "mma90.cuh"

MMA90_KERNELS(q4_0, q4_0)
MMA90_KERNELS(q4_1, q4_1)
MMA90_KERNELS(q5_0, q5_0)
MMA90_KERNELS(q5_1, q5_1)
MMA90_KERNELS(q8_0, q8_0)
MMA90_KERNELS(q2_K, q2_K)
MMA90_KERNELS(q3_K, q3_K)
MMA90_KERNELS(q4_K, q4_K)
MMA90_KERNELS(q5_K, q5_K)
MMA90_KERNELS(q6_K, q6_K)

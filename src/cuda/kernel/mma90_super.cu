// SPDX-License-Identifier: MIT
// mma90_super.cu: products of many columns on sm_90a, superblocks.
#include "mma90.cuh"

MMA90_KERNEL(q2_K, q2_K, 64)
MMA90_KERNEL(q2_K, q2_K, 256)
MMA90_KERNEL(q3_K, q3_K, 64)
MMA90_KERNEL(q3_K, q3_K, 256)
MMA90_KERNEL(q4_K, q4_K, 64)
MMA90_KERNEL(q4_K, q4_K, 256)
MMA90_KERNEL(q5_K, q5_K, 64)
MMA90_KERNEL(q5_K, q5_K, 256)
MMA90_KERNEL(q6_K, q6_K, 64)
MMA90_KERNEL(q6_K, q6_K, 256)

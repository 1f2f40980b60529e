// SPDX-License-Identifier: MIT
// mma90_block.cu: products of many columns on sm_90a, the older block formats.
#include "mma90.cuh"

MMA90_KERNEL(q4_0, q4_0, 64)
MMA90_KERNEL(q4_0, q4_0, 256)
MMA90_KERNEL(q4_1, q4_1, 64)
MMA90_KERNEL(q4_1, q4_1, 256)
MMA90_KERNEL(q5_0, q5_0, 64)
MMA90_KERNEL(q5_0, q5_0, 256)
MMA90_KERNEL(q5_1, q5_1, 64)
MMA90_KERNEL(q5_1, q5_1, 256)
MMA90_KERNEL(q8_0, q8_0, 64)
MMA90_KERNEL(q8_0, q8_0, 256)

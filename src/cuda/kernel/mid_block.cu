// SPDX-License-Identifier: MIT
// mid_block.cu: products with tiles of 8 to 64 columns, for types with blocks of 32 elements.
#include "mid.cuh"

MID_KERNELS(q4_0, q4_0)
MID_KERNELS(q4_1, q4_1)
MID_KERNELS(q5_0, q5_0)
MID_KERNELS(q5_1, q5_1)
MID_KERNELS(q8_0, q8_0)

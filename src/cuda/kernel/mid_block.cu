// SPDX-License-Identifier: MIT
// mid90_block.cu: products with 2 to 64 columns per tile on sm_90a, for types with blocks of 32 elements.
#include "mid90.cuh"

MID90_KERNELS(q4_0, q4_0)
MID90_KERNELS(q4_1, q4_1)
MID90_KERNELS(q5_0, q5_0)
MID90_KERNELS(q5_1, q5_1)
MID90_KERNELS(q8_0, q8_0)

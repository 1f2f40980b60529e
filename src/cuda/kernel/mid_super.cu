// SPDX-License-Identifier: MIT
// mid90_super.cu: products with 2 to 64 columns per tile on sm_90a, for types with superblocks.
#include "mid90.cuh"

MID90_KERNELS(q2_K, q2_K)
MID90_KERNELS(q3_K, q3_K)
MID90_KERNELS(q4_K, q4_K)
MID90_KERNELS(q5_K, q5_K)
MID90_KERNELS(q6_K, q6_K)

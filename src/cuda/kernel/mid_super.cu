// SPDX-License-Identifier: MIT
// mid_super.cu: products with tiles of 8 to 64 columns, for types with superblocks.
#include "mid.cuh"

MID_KERNELS(q2_K, q2_K)
MID_KERNELS(q3_K, q3_K)
MID_KERNELS(q4_K, q4_K)
MID_KERNELS(q5_K, q5_K)
MID_KERNELS(q6_K, q6_K)

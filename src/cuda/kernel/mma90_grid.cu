// SPDX-License-Identifier: MIT
// mma90_grid.cu: products with many columns on sm_90a, for codebook types, ternary types and types with 1 or 2 bits.
#include "mma90.cuh"

MMA90_KERNEL(iq2_xxs, iq2_xxs, 128)
MMA90_KERNEL(iq2_xs, iq2_xs, 128)
MMA90_KERNEL(iq2_s, iq2_s, 128)
MMA90_KERNEL(iq3_xxs, iq3_xxs, 128)
MMA90_KERNEL(iq3_s, iq3_s, 128)
MMA90_KERNEL(iq1_s, iq1_s, 128)
MMA90_KERNEL(iq1_m, iq1_m, 128)
MMA90_KERNEL(q1_0, q1_0, 128)
MMA90_KERNEL(q2_0, q2_0, 128)
MMA90_KERNEL(tq1_0, tq1_0, 128)
MMA90_KERNEL(tq2_0, tq2_0, 128)

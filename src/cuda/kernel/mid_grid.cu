// SPDX-License-Identifier: MIT
// mid_grid.cu: products with tiles of 8 to 64 columns, for codebook types, ternary types and types with 1 or 2 bits.
#include "mid.cuh"

MID_KERNELS(iq2_xxs, iq2_xxs)
MID_KERNELS(iq2_xs, iq2_xs)
MID_KERNELS(iq2_s, iq2_s)
MID_KERNELS(iq3_xxs, iq3_xxs)
MID_KERNELS(iq3_s, iq3_s)
MID_KERNELS(iq1_s, iq1_s)
MID_KERNELS(iq1_m, iq1_m)
MID_KERNELS(q1_0, q1_0)
MID_KERNELS(q2_0, q2_0)
MID_KERNELS(tq1_0, tq1_0)
MID_KERNELS(tq2_0, tq2_0)

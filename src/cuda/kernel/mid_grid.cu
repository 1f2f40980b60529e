// SPDX-License-Identifier: MIT
// mid90_grid.cu: products with 2 to 64 columns per tile on sm_90a, for codebook types, ternary types and types with 1 or 2 bits.
#include "mid90.cuh"

MID90_KERNELS(iq2_xxs, iq2_xxs)
MID90_KERNELS(iq2_xs, iq2_xs)
MID90_KERNELS(iq2_s, iq2_s)
MID90_KERNELS(iq3_xxs, iq3_xxs)
MID90_KERNELS(iq3_s, iq3_s)
MID90_KERNELS(iq1_s, iq1_s)
MID90_KERNELS(iq1_m, iq1_m)
MID90_KERNELS(q1_0, q1_0)
MID90_KERNELS(q2_0, q2_0)
MID90_KERNELS(tq1_0, tq1_0)
MID90_KERNELS(tq2_0, tq2_0)

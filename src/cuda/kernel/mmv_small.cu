// SPDX-License-Identifier: MIT
// mmv_small.cu: products with few columns for types with tables of values, codebook types, and types with 1 or 2 bits.
#include "mmv.cuh"

MMV_KERNELS(iq4_nl, iq4_nl, 1)
MMV_KERNELS(iq4_xs, iq4_xs, 1)
MMV_KERNELS(mxfp4, mxfp4, 1)
MMV_KERNELS(nvfp4, nvfp4, 1)
MMV_KERNELS(iq2_xxs, iq2_xxs, 1)
MMV_KERNELS(iq2_xs, iq2_xs, 1)
MMV_KERNELS(iq2_s, iq2_s, 1)
MMV_KERNELS(iq3_xxs, iq3_xxs, 1)
MMV_KERNELS(iq3_s, iq3_s, 1)
MMV_KERNELS(iq1_s, iq1_s, 1)
MMV_KERNELS(iq1_m, iq1_m, 1)
MMV_KERNELS(q1_0, q1_0, 1)
MMV_KERNELS(q2_0, q2_0, 1)
MMV_KERNELS(tq1_0, tq1_0, 1)
MMV_KERNELS(tq2_0, tq2_0, 1)

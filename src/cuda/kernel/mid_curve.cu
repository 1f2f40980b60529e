// SPDX-License-Identifier: MIT
// mid_curve.cu: products with 2 to 64 columns per tile, for types whose nibbles index a table of values, and for dense weights.
#include "mid.cuh"

MID_KERNELS(iq4_nl, iq4_nl)
MID_KERNELS(iq4_xs, iq4_xs)
MID_KERNELS(mxfp4, mxfp4)
MID_KERNELS(nvfp4, nvfp4)
MID_KERNELS(f16, f16)
MID_KERNELS(bf16, bf16)

// SPDX-License-Identifier: MIT
// mid_curve.cu: products with tiles of 8 to 64 columns, for types whose nibbles index a table of values, and for dense weights.
#include "mid.cuh"

MID_KERNELS(iq4_nl, iq4_nl)
MID_KERNELS(iq4_xs, iq4_xs)
MID_KERNELS(mxfp4, mxfp4)
MID_KERNELS(nvfp4, nvfp4)
MID_KERNELS(f16, f16)
MID_KERNELS(bf16, bf16)

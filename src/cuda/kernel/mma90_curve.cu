// SPDX-License-Identifier: MIT
// mma90_curve.cu: products with many columns on sm_90a, for types whose nibbles index a table of values, and for dense weights.
#include "mma90.cuh"

MMA90_KERNELS(iq4_nl, iq4_nl)
MMA90_KERNELS(iq4_xs, iq4_xs)
MMA90_KERNELS(mxfp4, mxfp4)
MMA90_KERNELS(nvfp4, nvfp4)
MMA90_KERNELS(f16, f16_short)
MMA90_KERNELS(bf16, bf16_short)
MMA90_KERNELS(f32, f32_short)

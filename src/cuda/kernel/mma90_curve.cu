// SPDX-License-Identifier: MIT
// mma90_curve.cu: products of many columns on sm_90a: values by number, and dense weights.
#include "mma90.cuh"

MMA90_KERNEL(iq4_nl, iq4_nl, 64)
MMA90_KERNEL(iq4_nl, iq4_nl, 256)
MMA90_KERNEL(iq4_xs, iq4_xs, 64)
MMA90_KERNEL(iq4_xs, iq4_xs, 256)
MMA90_KERNEL(mxfp4, mxfp4, 64)
MMA90_KERNEL(mxfp4, mxfp4, 256)
MMA90_KERNEL(nvfp4, nvfp4, 64)
MMA90_KERNEL(nvfp4, nvfp4, 256)
MMA90_KERNEL(f16, f16_short, 64)
MMA90_KERNEL(f16, f16_short, 256)
MMA90_KERNEL(bf16, bf16_short, 64)
MMA90_KERNEL(bf16, bf16_short, 256)
MMA90_KERNEL(f32, f32_short, 64)
MMA90_KERNEL(f32, f32_short, 256)

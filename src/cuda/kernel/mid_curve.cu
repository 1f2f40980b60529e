// SPDX-License-Identifier: MIT
// mid90_curve.cu: products with 2 to 64 columns per tile on sm_90a, for types whose nibbles index a table of values, and for dense weights.
#include "mid90.cuh"

MID90_KERNELS(iq4_nl, iq4_nl)
MID90_KERNELS(iq4_xs, iq4_xs)
MID90_KERNELS(mxfp4, mxfp4)
MID90_KERNELS(nvfp4, nvfp4)
MID90_KERNELS(f16, f16)
MID90_KERNELS(bf16, bf16)

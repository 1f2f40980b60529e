// SPDX-License-Identifier: MIT
// attn_wide.cu: attention kernels for wide heads and for keys and values of any type (attn_wide.cuh).
#include "attn_wide.cuh"

extern "C" __global__ void __launch_bounds__(WIDE_WARPS * 32) attn_wide_f16(const __grid_constant__ attn_args a) {
    attn_wide<false>(a);
}
extern "C" __global__ void __launch_bounds__(WIDE_WARPS * 32) attn_wide_bf16(const __grid_constant__ attn_args a) {
    attn_wide<true>(a);
}

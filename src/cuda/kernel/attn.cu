// SPDX-License-Identifier: MIT
// attn.cu: attention for few queries (attn.cuh), and the reduction over its splits.
#include "attn_few.cuh"
#include "attn_wide.cuh"

#define ATTN_KERNEL(name, d, bf, direct, n_blocks) \
    extern "C" __global__ void __launch_bounds__(ATTN_WARPS * 32, n_blocks) attn_##name(const __grid_constant__ attn_args a) { \
        attn_split<d, bf, direct>(a); \
    }
ATTN_KERNEL(64, 64, false, true, 2)
ATTN_KERNEL(128, 128, false, true, 2)
ATTN_KERNEL(256, 256, false, true, 1)
ATTN_KERNEL(any_64, 64, false, false, 3)
ATTN_KERNEL(any_128, 128, false, false, 3)
ATTN_KERNEL(any_256, 256, false, false, 1)
ATTN_KERNEL(bf16_64, 64, true, false, 2)
ATTN_KERNEL(bf16_128, 128, true, false, 2)
ATTN_KERNEL(bf16_256, 256, true, false, 1)

#define FEW_KERNEL(name, source, d, warps, n_blocks) \
    extern "C" __global__ void __launch_bounds__(warps * 32, n_blocks) attn_##name(const __grid_constant__ attn_args a) { \
        attn_few<source<d>, d, warps>(a); \
    }
FEW_KERNEL(few_f16_64, few_halves, 64, 4, 4)
FEW_KERNEL(few_f16_128, few_halves, 128, 4, 3)
FEW_KERNEL(long_f16_64, few_halves, 64, 16, 1)
FEW_KERNEL(long_f16_128, few_halves, 128, 12, 1)
FEW_KERNEL(long_q8_0_64, few_q8_0, 64, 16, 1)
FEW_KERNEL(long_q8_0_128, few_q8_0, 128, 12, 1)

extern "C" __global__ void __launch_bounds__(WIDE_WARPS * 32) attn_wide_f16(const __grid_constant__ attn_args a) {
    attn_wide<false>(a);
}
extern "C" __global__ void __launch_bounds__(WIDE_WARPS * 32) attn_wide_bf16(const __grid_constant__ attn_args a) {
    attn_wide<true>(a);
}

enum { ATTN_AHEAD = 32 };

// A block a row of the result.
extern "C" __global__ void __launch_bounds__(128) attn_join(const __grid_constant__ attn_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    __shared__ float weight[ATTN_SPLITS], total;
    const int64_t row = blockIdx.x;
    const int head    = (int) (row % a.n_head);
    // Sums are on their way while the weights are worked out.
    float ahead[ATTN_AHEAD];
    const float *part = a.part + row * a.d_v + threadIdx.x;
#pragma unroll
    for (int s = 0; s < ATTN_AHEAD; s++) {
        ahead[s] = s < a.n_split && threadIdx.x < a.d_v ? part[s * (int64_t) a.n_rows * a.d_v] : 0.0f;
    }
    if (threadIdx.x < 32) {
        const float sink = a.sinks != NULL ? a.sinks[head] * LOG2_E : -INFINITY;
        float most = sink, sum = 0.0f;
        for (int s = threadIdx.x; s < a.n_split; s += 32) {
            most = fmaxf(most, a.limit[(s * (int64_t) a.n_rows + row) * 2]);
        }
        for (int i = 16; i > 0; i /= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
        }
        const float base = most == -INFINITY ? 0.0f : most;
        for (int s = threadIdx.x; s < a.n_split; s += 32) {
            const float2 at = *reinterpret_cast<const float2 *>(a.limit + (s * (int64_t) a.n_rows + row) * 2);
            weight[s]       = exp2f(at.x - base);
            sum += weight[s] * at.y;
        }
        for (int i = 16; i > 0; i /= 2) {
            sum += __shfl_xor_sync(~0u, sum, i);
        }
        if (threadIdx.x == 0) {
            sum += exp2f(sink - base);
            total = sum > 0.0f ? 1.0f / sum : 0.0f;
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < a.d_v; e += blockDim.x) {
        const bool first = e == threadIdx.x;
        float value      = 0.0f;
#pragma unroll
        for (int s = 0; s < ATTN_AHEAD && first; s++) {
            value += s < a.n_split ? weight[s] * ahead[s] : 0.0f;
        }
#pragma unroll 8
        for (int s = first ? ATTN_AHEAD : 0; s < a.n_split; s++) {
            value += weight[s] * a.part[(s * (int64_t) a.n_rows + row) * a.d_v + e];
        }
        a.y[row * a.d_v + e] = value * total;
    }
}

// SPDX-License-Identifier: MIT
// attn.cu: attention for few queries (attn.cuh), and the reduction over its splits.
#include "attn.cuh"

extern "C" __global__ void __launch_bounds__(128, 2) attn_64(const __grid_constant__ attn_args a) {
    attn_split<64>(a);
}
extern "C" __global__ void __launch_bounds__(128, 2) attn_128(const __grid_constant__ attn_args a) {
    attn_split<128>(a);
}
extern "C" __global__ void __launch_bounds__(128, 1) attn_256(const __grid_constant__ attn_args a) {
    attn_split<256>(a);
}

// A block a row of the result.
extern "C" __global__ void __launch_bounds__(128) attn_join(const __grid_constant__ attn_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    __shared__ float weight[ATTN_SPLITS], total;
    const int64_t row = blockIdx.x;
    const int head    = (int) (row % a.n_head);
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
        float value = 0.0f;
#pragma unroll 16
        for (int s = 0; s < a.n_split; s++) {
            value += weight[s] * a.part[(s * (int64_t) a.n_rows + row) * a.d_v + e];
        }
        a.y[row * a.d_v + e] = value * total;
    }
}

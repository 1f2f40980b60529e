// SPDX-License-Identifier: MIT
// attn.cu: attention kernels that split the keys (attn.cuh, attn_few.cuh), and attn_join, which combines splits.
#include "attn_few.cuh"

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

#define FEW_KERNEL(type, source, d, warps, n_blocks) \
    extern "C" __global__ void __launch_bounds__(warps * 32, n_blocks) \
        attn_few_##type##_##d##x##warps(const __grid_constant__ attn_args a) { \
        attn_few<source<d>, d, warps>(a); \
    }
FEW_KERNEL(f16, few_halves, 64, 16, 1)
FEW_KERNEL(f16, few_halves, 64, 8, 2)
FEW_KERNEL(f16, few_halves, 64, 4, 4)
FEW_KERNEL(f16, few_halves, 128, 12, 1)
FEW_KERNEL(f16, few_halves, 128, 6, 2)
FEW_KERNEL(f16, few_halves, 128, 4, 3)
FEW_KERNEL(f16, few_halves, 128, 3, 4)
FEW_KERNEL(q8_0, few_q8_0, 64, 16, 1)
FEW_KERNEL(q8_0, few_q8_0, 128, 12, 1)
FEW_KERNEL(blocks, few_blocks, 64, 16, 1)
FEW_KERNEL(blocks, few_blocks, 128, 12, 1)

enum { ATTN_AHEAD = 64, JOIN_WARPS = 4 };

// Weights of the splits of a row. base: the largest score of all splits. total: 1 / the sum of all weights. of() also writes the
// weights of the first ATTN_AHEAD splits. Each warp computes its own copy.
struct join_weights {
    float base, total;

    LANE static float2 part_limit(const attn_args &a, int64_t row, int s) {
        return *reinterpret_cast<const float2 *>(a.limit + (s * (int64_t) a.n_rows + row) * 2);
    }
    LANE void of(const attn_args &a, int64_t row, int lane, float *weight) {
        const float sink = a.sinks != NULL ? a.sinks[(int) row % a.n_head] * LOG2_E : -INFINITY;
        const float2 none = make_float2(-INFINITY, 0.0f);
        const float2 at[2] = {
            lane < a.n_split ? part_limit(a, row, lane) : none, lane + 32 < a.n_split ? part_limit(a, row, lane + 32) : none};
        float most = fmaxf(sink, fmaxf(at[0].x, at[1].x));
        for (int s = lane + ATTN_AHEAD; s < a.n_split; s += 32) {
            most = fmaxf(most, part_limit(a, row, s).x);
        }
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
        }
        base = most == -INFINITY ? 0.0f : most;
        weight[lane] = attn_exp2(at[0].x - base), weight[lane + 32] = attn_exp2(at[1].x - base);
        float sum = weight[lane] * at[0].y + weight[lane + 32] * at[1].y;
        for (int s = lane + ATTN_AHEAD; s < a.n_split; s += 32) {
            const float2 v = part_limit(a, row, s);
            sum += attn_exp2(v.x - base) * v.y;
        }
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            sum += __shfl_xor_sync(~0u, sum, i);
        }
        sum += attn_exp2(sink - base);
        total = sum > 0.0f ? 1.0f / sum : 0.0f;
        __syncwarp();
    }
};

// One block per row of the result.
extern "C" __global__ void __launch_bounds__(JOIN_WARPS * 32) attn_join(const __grid_constant__ attn_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    __shared__ float weights[JOIN_WARPS][ATTN_AHEAD];
    const int64_t row = blockIdx.x, all = (int64_t) a.n_rows * a.d_v;
    const int lane = threadIdx.x % 32;
    // Loaded before the weights are computed, so that both overlap.
    float ahead[ATTN_AHEAD];
    const float *part = a.part + row * a.d_v;
#pragma unroll
    for (int s = 0; s < ATTN_AHEAD; s++) {
        ahead[s] = s < a.n_split && threadIdx.x < a.d_v ? part[s * all + threadIdx.x] : 0.0f;
    }
    float *weight = weights[threadIdx.x / 32];
    join_weights w;
    w.of(a, row, lane, weight);
    for (int e = threadIdx.x; e < a.d_v; e += blockDim.x) {
        float value = 0.0f;
        if (e == threadIdx.x) {
#pragma unroll
            for (int s = 0; s < ATTN_AHEAD; s++) {
                value += weight[s] * ahead[s];
            }
        } else {
            for (int s = 0; s < min(a.n_split, (int) ATTN_AHEAD); s++) {
                value += weight[s] * part[s * all + e];
            }
        }
#pragma unroll 8
        for (int s = ATTN_AHEAD; s < a.n_split; s++) {
            value += attn_exp2(join_weights::part_limit(a, row, s).x - w.base) * part[s * all + e];
        }
        a.y[row * a.d_v + e] = value * w.total;
    }
}

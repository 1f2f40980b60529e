// SPDX-License-Identifier: MIT
// moe.cu: selects the experts of tokens, and adds the results of a token's experts.

#include "cuda/kernel/common.cuh"
#include "gpu/kernel/moe.h"

#define PER_LANE (ROUTER_EXPERTS / 32)

// One warp per token. Lane l holds the experts l + 32 j. The order of equal values, and of NaN, is that of ARGSORT: NaN first,
// then the smaller index.
KERNEL moe_router(const __grid_constant__ struct gpu_router_args g) {
    dep_begin();
    const int64_t t = (int64_t) blockIdx.x * blockDim.y + threadIdx.y;
    const int lane = threadIdx.x;
    if (t >= g.n_tokens) {
        return;
    }
    float v[PER_LANE], most = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int j = 0; j < PER_LANE; j++) {
        const int i = lane + 32 * j;
        v[j] = i < g.n_experts ? g.logits[t * g.n_experts + i] : -INFINITY;
        most = fmaxf(most, v[j]);
    }
    most = warp_max(most);
    uint32_t key[PER_LANE]; // of the probability, in the order of the values; 0: already selected, or no such expert
#pragma unroll
    for (int j = 0; j < PER_LANE; j++) {
        v[j] = expf(v[j] - most);
        sum += lane + 32 * j < g.n_experts ? v[j] : 0.0f;
    }
    sum = warp_sum(sum);
    const float scale = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < PER_LANE; j++) {
        v[j] *= scale;
        key[j] = lane + 32 * j < g.n_experts ? (v[j] == v[j] ? __float_as_uint(v[j]) + 1 : ~0u) : 0;
    }
    float total = 0.0f, mine = 0.0f; // mine: the weight of slot `lane` (n_used is at most 32)
    for (int slot = 0; slot < g.n_used; slot++) {
        uint64_t best = 0; // key, then the complement of the index
        float value = 0.0f;
#pragma unroll
        for (int j = 0; j < PER_LANE; j++) {
            const uint64_t k = (uint64_t) key[j] << 32 | (uint32_t) ~(lane + 32 * j);
            if (k > best) {
                best = k;
                value = v[j];
            }
        }
        const uint64_t here = best;
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) {
            const uint64_t other = __shfl_xor_sync(~0u, best, o);
            if (other > best) {
                best = other;
            }
        }
        const int id = (int) ~(uint32_t) best, from = id & 31;
        const float weight = __shfl_sync(~0u, value, from);
        if (here == best) {
#pragma unroll
            for (int j = 0; j < PER_LANE; j++) {
                if (lane + 32 * j == id) {
                    key[j] = 0;
                }
            }
        }
        total += weight;
        if (lane == slot) {
            mine = weight;
        }
        if (lane == 0) {
            g.ids[t * g.ids_row + slot] = id;
        }
    }
    if (g.norm) {
        mine /= fmaxf(fminf(total, g.hi), g.lo);
    }
    if (lane < g.n_used) {
        g.weights[t * g.n_used + lane] = mine;
    }
}

KERNEL moe_sum(const __grid_constant__ struct gpu_expert_sum_args g) {
    dep_begin();
    for (int64_t i = thread_index(); i < g.n / 4 * g.n_tokens; i += thread_count()) {
        const int64_t t = i / (g.n / 4), e = i % (g.n / 4);
        const float4 *x = (const float4 *) (g.x + t * g.n_used * g.n) + e;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int k = 0; k < g.n_used; k++) {
            const float w = g.w[t * g.n_used + k];
            const float4 v = x[k * (g.n / 4)];
            sum.x += v.x * w, sum.y += v.y * w, sum.z += v.z * w, sum.w += v.w * w;
        }
        ((float4 *) g.dst)[i] = sum;
    }
}

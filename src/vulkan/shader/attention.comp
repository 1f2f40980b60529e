#version 450
// SPDX-License-Identifier: MIT
// attention.comp: one workgroup computes one head of one query. It processes ATTN_THREADS keys at a time: each thread computes the
// score of one key; then each thread adds the weighted values of some elements of the result. The largest score so far is
// subtracted from the scores, and the sums are scaled when it grows.
//KERNEL attn_f32 -DTYPE=f32 -DTYPE_f32
//KERNEL attn_f16 -DTYPE=f16 -DTYPE_f16
//KERNEL attn_q8_0 -DTYPE=q8_0 -DTYPE_q8_0 -DQK=32u -DQB=34u
//KERNEL attn_q4_0 -DTYPE=q4_0 -DTYPE_q4_0 -DQK=32u -DQB=18u
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "weights.glsl"
#include "products.h"

ARGS(vulkan_attn_args)

#ifdef ALL_TYPES
#    define KEEP_LOOP [[dont_unroll]] // lavapipe takes minutes to compile many copies of a switch over all types
#    define key_at(row, i) row_element(row, g.k.type, int64_t(i))
#    define value_at(row, i) row_element(row, g.v.type, int64_t(i))
#else
#    define KEEP_LOOP
#    define key_at(row, i) weight_at(row, i, g.k.nb[0])
#    define value_at(row, i) weight_at(row, i, g.v.nb[0])
#endif

const int PER_THREAD = ATTN_DIM_MAX / ATTN_THREADS; // elements of the result per thread
shared float query[ATTN_DIM_MAX];
shared float scores[ATTN_THREADS];

float head_slope(int64_t head) {
    if (g.n_head_log2 == 0) {
        return 1.0;
    }
    return head < g.n_head_log2 ? pow_of(g.m0, float(head + 1)) : pow_of(g.m1, float(2 * (head - g.n_head_log2) + 1));
}

void main() {
    const uint t = gl_LocalInvocationID.x;
    const int64_t i_q = int64_t(gl_WorkGroupID.x), head = int64_t(gl_WorkGroupID.y), batch = int64_t(gl_WorkGroupID.z);
    const uint d_k = uint(g.k.ne[0]), d_v = uint(g.v.ne[0]);
    const int64_t n_kv = g.k.ne[1];
    const uint64_t q = at_indices(g.q, 0, i_q, head, batch);
    const uint64_t k = at_indices(g.k, 0, 0, head / (g.q.ne[2] / g.k.ne[2]), batch / (g.q.ne[3] / g.k.ne[3]));
    const uint64_t v = at_indices(g.v, 0, 0, head / (g.q.ne[2] / g.v.ne[2]), batch / (g.q.ne[3] / g.v.ne[3]));
    const bool has_mask = g.mask.p != 0;
    const uint64_t mask = has_mask ? at_indices(g.mask, 0, i_q, head % g.mask.ne[2], batch % g.mask.ne[3]) : q;
    const float slope = head_slope(head);
    for (uint i = t; i < d_k; i += uint(ATTN_THREADS)) {
        query[i] = load_f32(q + uint64_t(int64_t(i) * g.q.nb[0]));
    }
    barrier();
    float sums[PER_THREAD];
    for (int j = 0; j < PER_THREAD; j++) {
        sums[j] = 0.0;
    }
    float most = -INFINITY, total = 0.0;
    for (int64_t first = 0; first < n_kv; first += ATTN_THREADS) {
        const int64_t i = first + int64_t(t);
        float score = -INFINITY;
        if (i < n_kv) {
            const float m = has_mask ? half_to_float(load_u16(mask + uint64_t(i * g.mask.nb[0]))) : 0.0;
            if (m != -INFINITY) {
                const uint64_t row = k + uint64_t(i * g.k.nb[1]);
                float s = 0.0;
                KEEP_LOOP for (uint j = 0u; j < d_k; j++) {
                    s = fma(query[j], key_at(row, j), s);
                }
                s *= g.scale;
                if (g.softcap != 0.0) {
                    s = g.softcap * tanh_of(s);
                }
                score = s + slope * m;
            }
        }
        barrier(); // other threads may still read the scores of the last keys
        scores[t] = score;
        barrier();
        const int n = int(min(n_kv - first, int64_t(ATTN_THREADS)));
        float largest = most;
        for (int j = 0; j < n; j++) {
            largest = max_of(largest, scores[j]);
        }
        if (largest == -INFINITY) {
            continue; // all keys are hidden
        }
        const float shrink = exp_of(most - largest);
        most = largest;
        total *= shrink;
        for (int j = 0; j < PER_THREAD; j++) {
            sums[j] *= shrink;
        }
        for (int j = 0; j < n; j++) {
            if (scores[j] == -INFINITY) {
                continue;
            }
            const float p = exp_of(scores[j] - most);
            const uint64_t row = v + uint64_t((first + j) * g.v.nb[1]);
            total += p;
            KEEP_LOOP for (int e = 0; e < PER_THREAD; e++) {
                const uint at = t + uint(e * ATTN_THREADS);
                if (at < d_v) {
                    sums[e] = fma(p, value_at(row, at), sums[e]);
                }
            }
        }
    }
    if (g.sinks != 0) {
        const float sink = load_f32(g.sinks + uint64_t(head * 4)), largest = max_of(most, sink);
        const float shrink = exp_of(most - largest);
        total = total * shrink + exp_of(sink - largest);
        for (int j = 0; j < PER_THREAD; j++) {
            sums[j] *= shrink;
        }
    }
    const float scale = total > 0.0 ? 1.0 / total : (total == 0.0 ? 0.0 : total);
    const uint64_t y = at_indices(g.y, 0, head, i_q, batch);
    for (int e = 0; e < PER_THREAD; e++) {
        const uint at = t + uint(e * ATTN_THREADS);
        if (at < d_v) {
            store_f32(y + uint64_t(at * 4u), sums[e] * scale);
        }
    }
}

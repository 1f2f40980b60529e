#version 450
// SPDX-License-Identifier: MIT
// reduction.comp: reductions of rows or of a tensor to one number, and running sums. Reductions sum pairs of floats, running sums
// sum floats. The order of the additions does not depend on how workgroups are scheduled.
//KERNEL reduce_all
//KERNEL reduce_parts
//KERNEL reduce_rows
//KERNEL reduce_argmax
//KERNEL reduce_cumsum
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "pair.glsl"
#include "reduce.h"

ARGS(gpu_reduce_args)

#ifdef KERNEL_reduce_all
// Each workgroup sums a part; then reduce_parts sums the parts.
void main() {
    vec2 sum = vec2(0.0);
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.a);
        if (g.b.p != 0) {
            sum = pair_add(sum, load_i32(at_element(g.a, x)) == load_i32(at_element(g.b, x)) ? 1.0 : 0.0);
        } else {
            sum = pair_add(sum, load_number(at_element(g.a, x), g.a.type));
        }
    }
    sum = block_pair_sum(sum);
    if (thread_x() == 0u) {
        store_u64(g.parts + uint64_t(gl_WorkGroupID.x * 8u), floatBitsToUint(sum));
    }
}
#endif
#ifdef KERNEL_reduce_parts
void main() {
    vec2 sum = vec2(0.0);
    for (int i = int(thread_x()); i < g.n_parts; i += int(block_dim())) {
        sum = pair_sum(sum, uintBitsToFloat(load_u64(g.parts + uint64_t(i * 8))));
    }
    sum = block_pair_sum(sum);
    if (thread_x() == 0u) {
        if (g.dst.type == GGML_TYPE_I64) {
            const int64_t n = int64_t(sum.x) + int64_t(sum.y);
            store_u64(g.dst.p, uvec2(uint(n), uint(n >> 32)));
        } else {
            store_number(g.dst.p, g.dst.type, pair_value(sum));
        }
    }
}
#endif
#ifdef KERNEL_reduce_rows
void main() {
    const at4 r = row_of(g.a, int64_t(gl_WorkGroupID.x));
    const uint64_t row = at_element(g.a, r);
    vec2 sum = vec2(0.0);
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        sum = pair_add(sum, load_number(row + uint64_t(i * g.a.nb[0]), g.a.type));
    }
    sum = block_pair_sum(sum);
    if (thread_x() == 0u) {
        float v = pair_value(sum);
        if (g.what == GGML_OP_MEAN) {
            v /= float(g.n);
        }
        store_number(at_element(g.dst, r), g.dst.type, v);
    }
}
#endif
#ifdef KERNEL_reduce_argmax
// Finds the index of the largest element; of equal elements, the last. Elements before the last NaN do not count. One workgroup per
// row; each thread searches one stretch of consecutive elements.
shared float maxima[1024];
shared int places[1024];
shared bool resets[1024];
void main() {
    const int64_t ir = int64_t(gl_WorkGroupID.x);
    const uint64_t row = at_indices(g.a, 0, ir, 0, 0);
    const int64_t each = (g.n + block_dim() - 1) / block_dim(), begin = thread_x() * each, end = min(begin + each, g.n);
    float most = -INFINITY;
    int at = -1;
    bool reset = false;
    for (int64_t i = begin; i < end; i++) {
        const float x = load_number(row + uint64_t(i * g.a.nb[0]), g.a.type);
        const bool nan = is_nan(x);
        if (nan || is_nan(most) || x >= most) {
            most = x;
        }
        if (!nan && !is_nan(most) && most == x) {
            at = int(i);
        }
        reset = reset || nan;
    }
    maxima[thread_x()] = most;
    places[thread_x()] = at;
    resets[thread_x()] = reset;
    barrier();
    if (thread_x() != 0u) {
        return;
    }
    float best = -INFINITY;
    int place = 0;
    for (uint t = 0u; t < block_dim() && t * each < g.n; t++) {
        if (resets[t]) { // a NaN discards the results of earlier stretches
            best = maxima[t];
            if (places[t] >= 0) {
                place = places[t];
            }
            continue;
        }
        if (is_nan(best) || is_nan(maxima[t]) || maxima[t] >= best) {
            best = maxima[t];
            if (places[t] >= 0 && !is_nan(best)) {
                place = places[t];
            }
        }
    }
    at_i32(g.dst.p + uint64_t(ir * g.dst.nb[0])).v = place;
}
#endif
#ifdef KERNEL_reduce_cumsum
shared float sums[1024];
// One workgroup per row. Each turn, the threads compute the running sums of as many elements.
void main() {
    const at4 r = row_of(g.a, int64_t(gl_WorkGroupID.x));
    const uint64_t from = at_element(g.a, r), to = at_element(g.dst, r);
    const uint t = thread_x(), n_threads = block_dim();
    float before = 0.0;
    for (int64_t first = 0; first < g.n; first += n_threads) {
        const int64_t i = first + t;
        float v = i < g.n ? load_f32(from + uint64_t(i * g.a.nb[0])) : 0.0;
        for (uint o = 1u; o < n_threads; o *= 2u) {
            barrier();
            sums[t] = v;
            barrier();
            if (t >= o) {
                v += sums[t - o];
            }
        }
        barrier();
        sums[t] = v;
        barrier();
        if (i < g.n) {
            store_f32(to + uint64_t(i * g.dst.nb[0]), before + v);
        }
        before += sums[n_threads - 1u];
    }
}
#endif

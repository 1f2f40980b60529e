#version 450
// SPDX-License-Identifier: MIT
// norm.comp: norms and softmax over rows, one workgroup per row.
//KERNEL norm_any
//KERNEL norm_fours
//KERNEL group_norm
//KERNEL soft_max
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "reduce.glsl"
#include "norm.h"

float norm_scale(int what, float sum_sq, int64_t n, float eps) {
    if (what == GGML_OP_L2_NORM) {
        return 1.0 / max_of(sqrt(sum_sq), eps);
    }
    return 1.0 / sqrt(sum_sq / float(n) + eps);
}

#if defined(KERNEL_norm_any) || defined(KERNEL_norm_fours)
ARGS(gpu_norm_args)
#    define ROW_REPEAT(v) at_repeat(v, at4(0, r.i1, r.i2, r.i3))
void main() {
    const int64_t n = g.dst.ne[0];
    const at4 r = row_of(g.dst, int64_t(gl_WorkGroupID.x));
    const bool has_sum = g.b.p != 0, has_mul = g.mul.p != 0, has_add = g.add.p != 0;
    const uint64_t a = at_element(g.a, r), y = at_element(g.dst, r);
    const uint64_t b = has_sum ? ROW_REPEAT(g.b) : a, sum = has_sum ? at_element(g.sum, r) : y;
    float s = 0.0, s2 = 0.0;
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        float v = load_f32(a + uint64_t(i * g.a.nb[0]));
        if (has_sum) {
            v += load_f32(b + uint64_t(index_repeat(i, g.b.ne[0]) * g.b.nb[0]));
            store_f32(sum + uint64_t(i * g.sum.nb[0]), v);
        }
        s += v;
        s2 += v * v;
    }
    const uint64_t x = has_sum ? sum : a;
    const int64_t x_step = has_sum ? g.sum.nb[0] : g.a.nb[0];
    float mean = 0.0;
    if (g.what == GGML_OP_NORM) {
        mean = block_sum(s) / float(n);
        s2 = 0.0;
        for (int64_t i = thread_x(); i < n; i += block_dim()) {
            const float v = load_f32(x + uint64_t(i * x_step)) - mean;
            s2 += v * v;
        }
    }
    const float scale = norm_scale(g.what, block_sum(s2), n, g.eps);
    const uint64_t mul = has_mul ? ROW_REPEAT(g.mul) : a, add = has_add ? ROW_REPEAT(g.add) : a;
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        float v = (load_f32(x + uint64_t(i * x_step)) - mean) * scale;
        if (has_mul) {
            v *= load_f32(mul + uint64_t(index_repeat(i, g.mul.ne[0]) * g.mul.nb[0]));
        }
        if (has_add) {
            v += load_f32(add + uint64_t(index_repeat(i, g.add.ne[0]) * g.add.nb[0]));
        }
        store_f32(y + uint64_t(i * g.dst.nb[0]), v);
    }
}
#endif
#ifdef KERNEL_group_norm
ARGS(gpu_group_norm_args)
#    define ELEMENT(v, i) at_indices(v, (i) % ne0, (i) % plane / ne0, c0 + (i) / plane, i3)
void main() {
    const int64_t i3 = int64_t(gl_WorkGroupID.x) / g.n_groups, c0 = int64_t(gl_WorkGroupID.x) % g.n_groups * g.n_each;
    const int64_t c1 = min(c0 + g.n_each, g.dst.ne[2]);
    const int64_t ne0 = g.dst.ne[0], plane = ne0 * g.dst.ne[1], n = plane * (c1 - c0);
    if (c0 >= c1) {
        return;
    }
    float s = 0.0, s2 = 0.0;
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        s += load_f32(ELEMENT(g.a, i));
    }
    const float mean = block_sum(s) / float(n);
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        const float v = load_f32(ELEMENT(g.a, i)) - mean;
        s2 += v * v;
    }
    const float scale = 1.0 / sqrt(block_sum(s2) / float(n) + g.eps);
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        store_f32(ELEMENT(g.dst, i), (load_f32(ELEMENT(g.a, i)) - mean) * scale);
    }
}
#endif
#ifdef KERNEL_soft_max
ARGS(gpu_softmax_args)
float head_slope(int64_t head) {
    if (!(g.max_bias > 0.0)) {
        return 1.0;
    }
    return head < g.n_head_log2 ? pow_of(g.m0, float(head + 1)) : pow_of(g.m1, float(2 * (head - g.n_head_log2) + 1));
}
void main() {
    const int64_t n = g.dst.ne[0];
    const at4 r = row_of(g.dst, int64_t(gl_WorkGroupID.x));
    const uint64_t x = at_element(g.a, r), y = at_element(g.dst, r);
    const bool has_mask = g.mask.p != 0;
    const uint64_t m = has_mask ? at_indices(g.mask, 0, r.i1, r.i2 % g.mask.ne[2], r.i3 % g.mask.ne[3]) : x;
    const float slope = head_slope(r.i2), sink = g.sinks != 0 ? load_f32(g.sinks + uint64_t(r.i2 * g.sinks_nb)) : -INFINITY;
    float most = sink, sum = 0.0;
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        float v = load_f32(x + uint64_t(i * 4)) * g.scale;
        if (has_mask) {
            v += slope * load_number(m + uint64_t(i * g.mask.nb[0]), g.mask.type);
        }
        store_f32(y + uint64_t(i * 4), v);
        most = max_of(most, v);
    }
    most = block_max(most);
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        const float v = exp_of(load_f32(y + uint64_t(i * 4)) - most);
        store_f32(y + uint64_t(i * 4), v);
        sum += v;
    }
    sum = block_sum(sum);
    if (g.sinks != 0) {
        sum += exp_of(sink - most);
    }
    const float scale = 1.0 / sum;
    for (int64_t i = thread_x(); i < n; i += block_dim()) {
        store_f32(y + uint64_t(i * 4), load_f32(y + uint64_t(i * 4)) * scale);
    }
}
#endif

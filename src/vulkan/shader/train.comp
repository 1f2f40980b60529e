#version 450
// SPDX-License-Identifier: MIT
// train.comp: kernels for training: the loss, gradients, optimiser steps, and the outer product (gradient of a matrix product).
//KERNEL loss_rows
//KERNEL loss_sum
//KERNEL loss_back
//KERNEL rows_back
//KERNEL silu_back
//KERNEL repeat_back
//KERNEL get_rows_back
//KERNEL step_adamw
//KERNEL step_sgd
//KERNEL out_prod -DALL_TYPES
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "reduce.glsl"
#include "pair.glsl"
#ifdef ALL_TYPES
#    include "formats.glsl"
#endif

#if defined(KERNEL_step_adamw) || defined(KERNEL_step_sgd)
ARGS(gpu_step_args)
float hyperparameter(int i) {
    return load_f32(g.p + uint64_t(i * g.nb));
}
#else
ARGS(gpu_op_args)
#endif

#define row_at(v, ir) at_element(v, row_of(v, ir))
#define float_of(row, i) load_f32((row) + uint64_t((i) * 4))

#if defined(KERNEL_loss_rows) || defined(KERNEL_loss_back)
// x: the largest element of a row; y: the sum of exp(element - x)
vec2 max_and_sum(uint64_t row) {
    float most = -INFINITY;
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        most = max_of(most, float_of(row, i));
    }
    most = block_max(most);
    vec2 sum = vec2(0.0);
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        sum = pair_add(sum, exp_of(float_of(row, i) - most));
    }
    return vec2(most, pair_value(block_pair_sum(sum)));
}
#endif

#ifdef KERNEL_loss_rows
// One workgroup per row: sum over i of label[i] * log softmax(logits)[i]. g.a: logits; g.b: labels; g.n: elements per row.
void main() {
    const int64_t ir = int64_t(gl_WorkGroupID.x);
    const uint64_t x = row_at(g.a, ir), label = row_at(g.b, ir);
    const vec2 ms = max_and_sum(x);
    const float rest = ms.x + log_of(ms.y);
    vec2 sum = vec2(0.0);
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        sum = pair_add_product(sum, float_of(x, i) - rest, float_of(label, i));
    }
    sum = block_pair_sum(sum);
    if (thread_x() == 0u) {
        store_u64(g.parts + uint64_t(ir * 8), floatBitsToUint(sum));
    }
}
#endif
#ifdef KERNEL_loss_sum
// The loss is minus the mean of the sums of all rows. g.n: number of rows.
void main() {
    vec2 sum = vec2(0.0);
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        sum = pair_sum(sum, uintBitsToFloat(load_u64(g.parts + uint64_t(i * 8))));
    }
    sum = block_pair_sum(sum);
    if (thread_x() == 0u) {
        store_f32(g.dst.p, -pair_value(sum) / float(g.n));
    }
}
#endif
#ifdef KERNEL_loss_back
// One workgroup per row: (softmax(logits) - labels) * gradient / number of rows. g.a: gradient; g.b: logits; g.c: labels.
void main() {
    const int64_t ir = int64_t(gl_WorkGroupID.x);
    const uint64_t x = row_at(g.b, ir), label = row_at(g.c, ir), y = row_at(g.dst, ir);
    const float d = load_f32(g.a.p) / float(push.grid.x);
    const vec2 ms = max_and_sum(x);
    const float scale = 1.0 / ms.y;
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        store_f32(y + uint64_t(i * 4), (exp_of(float_of(x, i) - ms.x) * scale - float_of(label, i)) * d);
    }
}
#endif
#ifdef KERNEL_rows_back
// Gradients of softmax and RMS norm, one workgroup per row. g.a: incoming gradient. SOFT_MAX_BACK: g.b: result; g.f[0]: scale.
// RMS_NORM_BACK: g.b: source; g.f[0]: eps.
void main() {
    const int64_t ir = int64_t(gl_WorkGroupID.x);
    const uint64_t d = row_at(g.a, ir), x = row_at(g.b, ir), y = row_at(g.dst, ir);
    vec2 xd = vec2(0.0), xx = vec2(0.0);
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        const float v = load_number(x + uint64_t(i * g.b.nb[0]), g.b.type);
        xd = pair_add_product(xd, v, load_number(d + uint64_t(i * g.a.nb[0]), g.a.type));
        xx = pair_add_product(xx, v, v);
    }
    const float along_xd = pair_value(block_pair_sum(xd)), all_xx = pair_value(block_pair_sum(xx));
    const float along = -along_xd / (all_xx + g.f[0] * float(g.n)), scale = 1.0 / sqrt(all_xx / float(g.n) + g.f[0]);
    for (int64_t i = thread_x(); i < g.n; i += block_dim()) {
        const float v = load_number(x + uint64_t(i * g.b.nb[0]), g.b.type);
        const float e = load_number(d + uint64_t(i * g.a.nb[0]), g.a.type);
        const float r = g.what == GGML_OP_SOFT_MAX_BACK ? (e - along_xd) * v * g.f[0] : (e + v * along) * scale;
        store_number(y + uint64_t(i * g.dst.nb[0]), g.dst.type, r);
    }
}
#endif
#ifdef KERNEL_silu_back
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        const float v = load_number(at_element(g.b, x), g.b.type), s = 1.0 / (1.0 + exp_of(-v));
        store_number(at_element(g.dst, x), g.dst.type, load_number(at_element(g.a, x), g.a.type) * s * (1.0 + v * (1.0 - s)));
    }
}
#endif
#ifdef KERNEL_repeat_back
// Gradient of REPEAT: sums the elements of g.a that REPEAT copied from the same element.
void main() {
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        float sum = 0.0;
        for (int64_t i3 = x.i3; i3 < g.a.ne[3]; i3 += g.dst.ne[3]) {
            for (int64_t i2 = x.i2; i2 < g.a.ne[2]; i2 += g.dst.ne[2]) {
                for (int64_t i1 = x.i1; i1 < g.a.ne[1]; i1 += g.dst.ne[1]) {
                    for (int64_t i0 = x.i0; i0 < g.a.ne[0]; i0 += g.dst.ne[0]) {
                        sum += load_number(at_indices(g.a, i0, i1, i2, i3), g.a.type);
                    }
                }
            }
        }
        store_f32(at_element(g.dst, x), sum);
    }
}
#endif
#ifdef KERNEL_get_rows_back
// Row i of the result is the sum of the rows of g.a whose index in g.b is i. One thread per element, so that the order of the sum
// is fixed.
void main() {
    const int64_t n_ids = g.b.ne[0] * g.b.ne[1] * g.b.ne[2] * g.b.ne[3];
    for (int64_t i = thread_index(); i < g.n; i += thread_count()) {
        const at4 x = index_split(i, g.index, g.dst);
        float sum = 0.0;
        for (int64_t k = 0; k < n_ids && x.i2 == 0 && x.i3 == 0; k++) {
            const int id = load_i32(row_at(g.b, k / g.b.ne[0]) + uint64_t(k % g.b.ne[0] * g.b.nb[0]));
            if (id == x.i1) {
                sum += load_number(row_at(g.a, k) + uint64_t(x.i0 * g.a.nb[0]), g.a.type);
            }
        }
        store_f32(at_element(g.dst, x), sum);
    }
}
#endif
#ifdef KERNEL_step_adamw
// g.op.a: weights; g.op.b: gradient; g.op.c, g.op.d: moments. Hyperparameters: alpha, beta1, beta2, eps, weight decay, bias
// corrections of the two moments.
void main() {
    const float alpha = hyperparameter(0), beta1 = hyperparameter(1), beta2 = hyperparameter(2), eps = hyperparameter(3);
    const float keep = 1.0 - alpha * hyperparameter(4), bias1 = hyperparameter(5), bias2 = hyperparameter(6);
    for (int64_t i = thread_index(); i < g.op.n; i += thread_count()) {
        const at4 x = index_split(i, g.op.index, g.op.dst);
        const uint64_t w = at_element(g.op.a, x), pm = at_element(g.op.c, x), pv = at_element(g.op.d, x);
        const float d = load_f32(at_element(g.op.b, x));
        const float m = load_f32(pm) * beta1 + d * (1.0 - beta1), v = load_f32(pv) * beta2 + d * d * (1.0 - beta2);
        store_f32(pm, m);
        store_f32(pv, v);
        store_f32(w, load_f32(w) * keep - alpha * (m * bias1) / (sqrt(v * bias2) + eps));
    }
}
#endif
#ifdef KERNEL_step_sgd
// g.op.a: weights; g.op.b: gradient. Hyperparameters: alpha and weight decay.
void main() {
    const float alpha = hyperparameter(0), keep = 1.0 - alpha * hyperparameter(1);
    for (int64_t i = thread_index(); i < g.op.n; i += thread_count()) {
        const at4 x = index_split(i, g.op.index, g.op.dst);
        const uint64_t w = at_element(g.op.a, x);
        store_f32(w, load_f32(w) * keep - alpha * load_f32(at_element(g.op.b, x)));
    }
}
#endif
#ifdef KERNEL_out_prod
// result[i, j] = sum over k of a[i, k] b[j, k]. Each workgroup computes 16 x 16 elements.
shared float ta[16][17];
shared float tb[16][17];
void main() {
    const uint tx = gl_LocalInvocationID.x, ty = gl_LocalInvocationID.y;
    const int64_t i = int64_t(gl_WorkGroupID.x) * 16 + tx, j = int64_t(gl_WorkGroupID.y) * 16 + ty;
    const bool dense = g.a.type == GGML_TYPE_F32 || g.a.type == GGML_TYPE_F16 || g.a.type == GGML_TYPE_BF16;
    for (int64_t z = gl_WorkGroupID.z; z < g.dst.ne[2] * g.dst.ne[3]; z += push.grid.z) {
        const int64_t i2 = z % g.dst.ne[2], i3 = z / g.dst.ne[2];
        const int64_t a2 = i2 / (g.b.ne[2] / g.a.ne[2]), a3 = i3 / (g.b.ne[3] / g.a.ne[3]);
        float sum = 0.0;
        for (int64_t k0 = 0; k0 < g.a.ne[1]; k0 += 16) {
            const int64_t ka = k0 + ty, jb = int64_t(gl_WorkGroupID.y) * 16 + tx;
            barrier();
            float v = 0.0, w = 0.0;
            if (i < g.dst.ne[0] && ka < g.a.ne[1]) {
                if (dense) {
                    v = load_number(at_indices(g.a, i, ka, a2, a3), g.a.type);
                } else {
                    v = row_element(at_indices(g.a, 0, ka, a2, a3), g.a.type, i);
                }
            }
            if (jb < g.dst.ne[1] && ka < g.a.ne[1]) {
                w = load_f32(at_indices(g.b, jb, ka, i2, i3));
            }
            ta[ty][tx] = v;
            tb[ty][tx] = w;
            barrier();
            for (uint k = 0u; k < 16u; k++) {
                sum += ta[k][tx] * tb[k][ty];
            }
        }
        if (i < g.dst.ne[0] && j < g.dst.ne[1]) {
            store_f32(at_indices(g.dst, i, j, i2, i3), sum);
        }
    }
}
#endif

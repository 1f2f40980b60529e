// SPDX-License-Identifier: MIT
// grad_eltwise.c: gradients of ops_eltwise.c. Where a source was repeated, its gradient is the sum over the repetitions.

#include "core/grad.h"

// a times b, both of one shape, as f32: the type is the first one's.
static struct ggml_tensor *times(struct berth_grad *g, struct ggml_tensor *a, struct ggml_tensor *b) {
    return a->type == GGML_TYPE_F32 ? ggml_mul(g->ctx, a, b) : ggml_mul(g->ctx, b, a);
}

void berth_grad_dup(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
}

void berth_grad_add(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_fold(g, g->grad, g->node->src[1]));
    }
}

// The bias of an expert is summed over all rows that took it.
void berth_grad_add_id(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_wants(g, 1)) {
        struct ggml_tensor *ids = g->node->src[2], *grad = berth_grad_dense(g, g->grad);
        struct ggml_tensor *rows = ggml_reshape_2d(g->ctx, grad, grad->ne[0], ggml_nrows(grad));
        struct ggml_tensor *flat = ggml_reshape_1d(g->ctx, berth_grad_dense(g, ids), ggml_nelements(ids));
        berth_grad_put_add(g, 1, ggml_get_rows_back(g->ctx, rows, flat, g->node->src[1]));
    }
}

void berth_grad_add1(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, ggml_sum(g->ctx, g->grad));
    }
}

void berth_grad_acc(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_shape(g, ggml_cont(g->ctx, berth_grad_part(g)), g->node->src[1]));
    }
}

void berth_grad_sub(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_sub(g, 1, berth_grad_fold(g, g->grad, g->node->src[1]));
    }
}

void berth_grad_mul(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *b = g->node->src[1];
    if (berth_grad_wants(g, 0)) {
        berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, b));
    }
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_fold(g, times(g, a, g->grad), b));
    }
}

void berth_grad_div(struct berth_grad *g) {
    struct ggml_tensor *b = g->node->src[1];
    if (berth_grad_wants(g, 0)) {
        berth_grad_put_add(g, 0, ggml_div(g->ctx, g->grad, b));
    }
    if (berth_grad_wants(g, 1)) {
        struct ggml_tensor *all = ggml_mul(g->ctx, g->grad, ggml_div(g->ctx, g->node, b));
        berth_grad_put_sub(g, 1, berth_grad_fold(g, all, b));
    }
}

void berth_grad_sqr(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, times(g, g->node->src[0], g->grad), 2.0f));
}

void berth_grad_sqrt(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, ggml_div(g->ctx, g->grad, g->node), 0.5f));
}

void berth_grad_log(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_div(g->ctx, g->grad, g->node->src[0]));
}

void berth_grad_sin(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, ggml_cos(g->ctx, g->node->src[0])));
}

void berth_grad_cos(struct berth_grad *g) {
    berth_grad_put_sub(g, 0, ggml_mul(g->ctx, g->grad, ggml_sin(g->ctx, g->node->src[0])));
}

void berth_grad_scale(struct berth_grad *g) {
    const bool even = ggml_is_contiguous_1(g->grad) && g->grad->nb[0] == sizeof(float);
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, even ? g->grad : ggml_cont(g->ctx, g->grad), param_f32(g->node, 0)));
}

// 1 strictly within the bounds, 0 outside of them.
void berth_grad_clamp(struct berth_grad *g) {
    const float lo = param_f32(g->node, 0), hi = param_f32(g->node, 1);
    struct ggml_tensor *x = berth_grad_dense(g, g->node->src[0]);
    struct ggml_tensor *above = ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, 1.0f, -lo));
    struct ggml_tensor *below = ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, -1.0f, hi));
    berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, ggml_mul(g->ctx, above, below)));
}

void berth_grad_leaky_relu(struct berth_grad *g) {
    const float slope = param_f32(g->node, 0);
    struct ggml_tensor *step = ggml_step(g->ctx, berth_grad_dense(g, g->node->src[0]));
    berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, ggml_scale_bias(g->ctx, step, 1.0f - slope, slope)));
}

void berth_grad_tri(struct berth_grad *g) {
    const enum ggml_tri_type type = (enum ggml_tri_type) g->node->op_params[0];
    berth_grad_put_add(g, 0, ggml_tri(g->ctx, berth_grad_dense(g, g->grad), type));
}

// SPDX-License-Identifier: MIT
// grad_norm.c: gradients of ops_norm.c. All lead to RMS_NORM_BACK: norm(x) is rms_norm(x - mean(x)), and the length of a row its
// rms times the root of its elements.

#include "core/grad.h"

#include <math.h>

void berth_grad_rms_norm(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_rms_norm_back(g->ctx, g->grad, g->node->src[0], param_f32(g->node, 0)));
}

static struct ggml_tensor *less_mean(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_sub(g->ctx, t, ggml_mean(g->ctx, t));
}

static struct ggml_tensor *norm_back(struct berth_grad *g, struct ggml_tensor *grad, struct ggml_tensor *x, float eps) {
    return less_mean(g, ggml_rms_norm_back(g->ctx, grad, less_mean(g, x), eps));
}

void berth_grad_norm(struct berth_grad *g) {
    berth_grad_put_add(g, 0, norm_back(g, g->grad, g->node->src[0], param_f32(g->node, 0)));
}

// A group of channels is one row.
void berth_grad_group_norm(struct berth_grad *g) {
    struct ggml_tensor *x = g->node->src[0];
    const int32_t n_groups = g->node->op_params[0];
    if (n_groups <= 0 || x->ne[2] % n_groups != 0) {
        berth_grad_refuse(g, "%" PRId64 " channels in %d groups are not even", x->ne[2], n_groups);
        return;
    }
    const int64_t n = x->ne[0] * x->ne[1] * (x->ne[2] / n_groups);
    struct ggml_tensor *rows = ggml_reshape_3d(g->ctx, berth_grad_dense(g, x), n, n_groups, x->ne[3]);
    struct ggml_tensor *grads = ggml_reshape_3d(g->ctx, berth_grad_dense(g, g->grad), n, n_groups, x->ne[3]);
    berth_grad_put_add(g, 0, ggml_reshape(g->ctx, norm_back(g, grads, rows, param_f32(g->node, 1)), x));
}

// Rows shorter than eps are divided by eps, and by nothing that depends on them.
void berth_grad_l2_norm(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *x = g->node->src[0];
    const float eps = param_f32(g->node, 0);
    struct ggml_tensor *whole = ggml_scale(ctx, ggml_rms_norm_back(ctx, g->grad, x, 1e-30f), 1.0f / sqrtf((float) x->ne[0]));
    if (eps > 0.0f) {
        struct ggml_tensor *length = ggml_sqrt(ctx, ggml_sum_rows(ctx, ggml_sqr(ctx, x)));
        struct ggml_tensor *is_long = ggml_step(ctx, ggml_scale_bias(ctx, length, 1.0f, -eps));
        struct ggml_tensor *is_short = ggml_scale_bias(ctx, is_long, -1.0f / eps, 1.0f / eps);
        whole = ggml_add(ctx, ggml_mul(ctx, whole, is_long), ggml_mul(ctx, g->grad, is_short));
    }
    berth_grad_put_add(g, 0, whole);
}

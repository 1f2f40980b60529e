// SPDX-License-Identifier: MIT
// ops_norm.c: constructors of normalisations of rows or of groups of channels. Backends check types and shapes.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <math.h>

// All norms but group_norm have one parameter, eps.
static struct ggml_tensor *norm_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_op op, float eps, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), op, eps, a);
}

#define NORM(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a, float eps) { \
        return norm_new(ctx, __func__, a, op, eps, false); \
    } \
    struct ggml_tensor *ggml_##name##_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps) { \
        return norm_new(ctx, __func__, a, op, eps, true); \
    }

NORM(norm, GGML_OP_NORM)
NORM(rms_norm, GGML_OP_RMS_NORM)
NORM(l2_norm, GGML_OP_L2_NORM)

struct ggml_tensor *ggml_rms_norm_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float eps) {
    BERTH_SOURCES(ctx, a, b);
    return BERTH_OP_WITH(berth_like(ctx, __func__, a), GGML_OP_RMS_NORM_BACK, eps, a, b);
}

static struct ggml_tensor *group_norm_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, int n_groups, float eps, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    const struct {
        int32_t n_groups;
        float eps;
    } params = {n_groups, eps};
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_GROUP_NORM, params, a);
}

struct ggml_tensor *ggml_group_norm(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps) {
    return group_norm_new(ctx, __func__, a, n_groups, eps, false);
}

struct ggml_tensor *ggml_group_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps) {
    return group_norm_new(ctx, __func__, a, n_groups, eps, true);
}

// ---- gradients ----
// All gradients use RMS_NORM_BACK, because norm(x) = rms_norm(x - mean(x)), and l2 length = rms * sqrt(number of elements).

static void grad_rms_norm(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_rms_norm_back(g->ctx, g->grad, g->node->src[0], param_f32(g->node, 0)));
}

static struct ggml_tensor *subtract_mean(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_sub(g->ctx, t, ggml_mean(g->ctx, t));
}

static struct ggml_tensor *norm_back(struct berth_grad *g, struct ggml_tensor *grad, struct ggml_tensor *x, float eps) {
    return subtract_mean(g, ggml_rms_norm_back(g->ctx, grad, subtract_mean(g, x), eps));
}

static void grad_norm(struct berth_grad *g) {
    berth_grad_put_add(g, 0, norm_back(g, g->grad, g->node->src[0], param_f32(g->node, 0)));
}

static void grad_group_norm(struct berth_grad *g) {
    struct ggml_tensor *x = g->node->src[0];
    const int32_t n_groups = g->node->op_params[0];
    if (n_groups <= 0 || x->ne[2] % n_groups != 0) {
        berth_grad_refuse(g, "%" PRId64 " channels are not divisible into %d groups", x->ne[2], n_groups);
        return;
    }
    const int64_t n = x->ne[0] * x->ne[1] * (x->ne[2] / n_groups);
    struct ggml_tensor *rows = ggml_reshape_3d(g->ctx, berth_grad_dense(g, x), n, n_groups, x->ne[3]);
    struct ggml_tensor *grads = ggml_reshape_3d(g->ctx, berth_grad_dense(g, g->grad), n, n_groups, x->ne[3]);
    berth_grad_put_add(g, 0, ggml_reshape(g->ctx, norm_back(g, grads, rows, param_f32(g->node, 1)), x));
}

// If the l2 length of a row is less than eps, L2_NORM divides the row by eps, which is a constant.
static void grad_l2_norm(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *x = g->node->src[0];
    const float eps = param_f32(g->node, 0);
    struct ggml_tensor *grad_x = ggml_scale(ctx, ggml_rms_norm_back(ctx, g->grad, x, 1e-30f), 1.0f / sqrtf((float) x->ne[0]));
    if (eps > 0.0f) {
        struct ggml_tensor *length = ggml_sqrt(ctx, ggml_sum_rows(ctx, ggml_sqr(ctx, x)));
        struct ggml_tensor *is_long = ggml_step(ctx, ggml_scale_bias(ctx, length, 1.0f, -eps));
        struct ggml_tensor *short_factor = ggml_scale_bias(ctx, is_long, -1.0f / eps, 1.0f / eps);
        grad_x = ggml_add(ctx, ggml_mul(ctx, grad_x, is_long), ggml_mul(ctx, g->grad, short_factor));
    }
    berth_grad_put_add(g, 0, grad_x);
}

// ---- rows of the op table, and the samples that they name ----

ONE_WITH(norm, 1e-5f)
ONE_WITH(rms_norm, 1e-5f)
SAMPLE(rms_norm_back, ggml_rms_norm_back(c, sample_rows(c, a), sample_rows(c, a), 1e-5f))
SAMPLE(group_norm, ggml_group_norm(c, sample_shaped(c, a, N, 1, 4, 1), 2, 1e-5f))
ONE_WITH(l2_norm, 1e-5f)

// clang-format off
const struct berth_op_entry berth_ops_norm[] = {
    {GGML_OP_NORM, {"NORM", "norm(x)", .n_src = 1, .family = BERTH_OP_NORM, .split = BERTH_SPLIT_ROWS, .shape = berth_shape_as_source, .sample = sample_norm, .grad = grad_norm, .grad_src_mask = 1}},
    {GGML_OP_RMS_NORM, {"RMS_NORM", "rms_norm(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_NORM, .split = BERTH_SPLIT_ROWS, .shape = berth_shape_as_source, .sample = sample_rms_norm, .grad = grad_rms_norm, .grad_src_mask = 1}},
    {GGML_OP_RMS_NORM_BACK, {"RMS_NORM_BACK", "rms_norm_back(x)", .n_src = 2, .in_place = true, .family = BERTH_OP_TRAIN, .split = BERTH_SPLIT_ROWS, .sample = sample_rms_norm_back}},
    {GGML_OP_GROUP_NORM, {"GROUP_NORM", "group_norm(x)", .n_src = 1, .family = BERTH_OP_NORM, .sample = sample_group_norm, .grad = grad_group_norm, .grad_src_mask = 1}},
    {GGML_OP_L2_NORM, {"L2_NORM", "l2_norm(x)", .n_src = 1, .family = BERTH_OP_NORM, .split = BERTH_SPLIT_ROWS, .shape = berth_shape_as_source, .sample = sample_l2_norm, .grad = grad_l2_norm, .grad_src_mask = 1}},
    BERTH_OPS_END,
};
// clang-format on

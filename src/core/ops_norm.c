// SPDX-License-Identifier: MIT
// ops_norm.c: normalisation along rows or groups of channels. Any type and shape is taken; backends say what they run.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

// All but group_norm keep one float, eps.
static struct ggml_tensor *norm_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_op op, float eps, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    return berth_op_set(berth_like_or_view(ctx, func, a, inplace), op, &eps, sizeof eps, a, NULL, NULL);
}

struct ggml_tensor *ggml_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps) {
    return norm_new(ctx, __func__, a, GGML_OP_NORM, eps, false);
}

struct ggml_tensor *ggml_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps) {
    return norm_new(ctx, __func__, a, GGML_OP_NORM, eps, true);
}

struct ggml_tensor *ggml_rms_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps) {
    return norm_new(ctx, __func__, a, GGML_OP_RMS_NORM, eps, false);
}

struct ggml_tensor *ggml_rms_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps) {
    return norm_new(ctx, __func__, a, GGML_OP_RMS_NORM, eps, true);
}

struct ggml_tensor *ggml_rms_norm_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float eps) {
    BERTH_SOURCES(ctx, a, b);
    return berth_op_set(berth_like(ctx, __func__, a), GGML_OP_RMS_NORM_BACK, &eps, sizeof eps, a, b, NULL);
}

struct ggml_tensor *ggml_l2_norm(struct ggml_context *ctx, struct ggml_tensor *a, float eps) {
    return norm_new(ctx, __func__, a, GGML_OP_L2_NORM, eps, false);
}

struct ggml_tensor *ggml_l2_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float eps) {
    return norm_new(ctx, __func__, a, GGML_OP_L2_NORM, eps, true);
}

static struct ggml_tensor *group_norm_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, int n_groups, float eps, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    const struct {
        int32_t n_groups;
        float eps;
    } params = {n_groups, eps};
    return berth_op_set(berth_like_or_view(ctx, func, a, inplace), GGML_OP_GROUP_NORM, &params, sizeof params, a, NULL, NULL);
}

struct ggml_tensor *ggml_group_norm(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps) {
    return group_norm_new(ctx, __func__, a, n_groups, eps, false);
}

struct ggml_tensor *ggml_group_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups, float eps) {
    return group_norm_new(ctx, __func__, a, n_groups, eps, true);
}

// ---- rows ----

ONE_WITH(norm, 1e-5f)
ONE_WITH(rms_norm, 1e-5f)
SAMPLE(rms_norm_back, ggml_rms_norm_back(c, rows(c, a), rows(c, a), 1e-5f))
SAMPLE(group_norm, ggml_group_norm(c, shaped(c, a, N, 1, 4, 1), 2, 1e-5f))
ONE_WITH(l2_norm, 1e-5f)

// clang-format off
const struct berth_op_entry berth_ops_norm[] = {
    {GGML_OP_NORM, {"NORM", "norm(x)", .n_src = 1, .family = BERTH_OP_NORM, .sample = sample_norm, .grad = berth_grad_norm, .grad_srcs = 1}},
    {GGML_OP_RMS_NORM, {"RMS_NORM", "rms_norm(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_NORM, .sample = sample_rms_norm, .grad = berth_grad_rms_norm, .grad_srcs = 1}},
    {GGML_OP_RMS_NORM_BACK, {"RMS_NORM_BACK", "rms_norm_back(x)", .n_src = 2, .in_place = true, .family = BERTH_OP_TRAIN, .sample = sample_rms_norm_back}},
    {GGML_OP_GROUP_NORM, {"GROUP_NORM", "group_norm(x)", .n_src = 1, .family = BERTH_OP_NORM, .sample = sample_group_norm, .grad = berth_grad_group_norm, .grad_srcs = 1}},
    {GGML_OP_L2_NORM, {"L2_NORM", "l2_norm(x)", .n_src = 1, .family = BERTH_OP_NORM, .sample = sample_l2_norm, .grad = berth_grad_l2_norm, .grad_srcs = 1}},
    BERTH_OPS_END,
};
// clang-format on

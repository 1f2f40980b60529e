// SPDX-License-Identifier: MIT
// ops_train.c: constructors of training ops. Optimiser steps update their parameter in place.
// Hyperparameters are in a tensor, so that they can change between runs.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

struct ggml_tensor *ggml_cross_entropy_loss(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ggml_are_same_shape(a, b), "a is " BERTH_SHAPE ", b is " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
    const int64_t one = 1;
    return BERTH_OP(berth_tensor_new(ctx, __func__, a->type, 1, &one), GGML_OP_CROSS_ENTROPY_LOSS, a, b);
}

// a is the gradient of the loss.
struct ggml_tensor *ggml_cross_entropy_loss_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c) {
    BERTH_SOURCES(ctx, a, b, c);
    BERTH_REQUIRE(ctx, ggml_is_scalar(a), "a is " BERTH_SHAPE ", it must be one element", BERTH_NE(a));
    BERTH_REQUIRE(ctx, ggml_are_same_shape(b, c), "b is " BERTH_SHAPE ", c is " BERTH_SHAPE, BERTH_NE(b), BERTH_NE(c));
    return BERTH_OP(berth_like(ctx, __func__, b), GGML_OP_CROSS_ENTROPY_LOSS_BACK, a, b, c);
}

// Returns NULL if all rules hold.
static struct ggml_tensor *step_refuse(struct ggml_context *ctx, const char *func, const struct ggml_tensor *a,
    const struct ggml_tensor *grad, const struct ggml_tensor *params, int64_t n_params) {
    BERTH_REQUIRE_AS(ctx, func, (a->flags & GGML_TENSOR_FLAG_PARAM) != 0, "a (%.63s) is not marked as a parameter", a->name);
    BERTH_REQUIRE_AS(
        ctx, func, ggml_are_same_shape(a, grad), "a is " BERTH_SHAPE ", its gradient " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(grad));
    BERTH_REQUIRE_AS(ctx, func, params->type == GGML_TYPE_F32 && ggml_nelements(params) == n_params,
        "the optimiser's parameters are %s " BERTH_SHAPE ", must be %" PRId64 " of f32", ggml_type_name(params->type),
        BERTH_NE(params), n_params);
    return NULL;
}

// m and v are the running means of the gradient and of its square.
struct ggml_tensor *ggml_opt_step_adamw(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *grad,
    struct ggml_tensor *m, struct ggml_tensor *v, struct ggml_tensor *adamw_params) {
    BERTH_SOURCES(ctx, a, grad, m, v, adamw_params);
    struct ggml_tensor *bad = step_refuse(ctx, __func__, a, grad, adamw_params, 7);
    if (bad != NULL) {
        return bad;
    }
    BERTH_REQUIRE(ctx, ggml_are_same_shape(a, m) && ggml_are_same_shape(a, v),
        "a is " BERTH_SHAPE ", m " BERTH_SHAPE ", v " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(m), BERTH_NE(v));
    return BERTH_OP(ggml_view_tensor(ctx, a), GGML_OP_OPT_STEP_ADAMW, a, grad, m, v, adamw_params);
}

struct ggml_tensor *ggml_opt_step_sgd(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *grad, struct ggml_tensor *sgd_params) {
    BERTH_SOURCES(ctx, a, grad, sgd_params);
    struct ggml_tensor *bad = step_refuse(ctx, __func__, a, grad, sgd_params, 2);
    if (bad != NULL) {
        return bad;
    }
    return BERTH_OP(ggml_view_tensor(ctx, a), GGML_OP_OPT_STEP_SGD, a, grad, sgd_params);
}

// ---- gradients ----

static void grad_cross_entropy_loss(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_cross_entropy_loss_back(g->ctx, g->grad, g->node->src[0], g->node->src[1]));
}

// ---- rows of the op table, and the samples that they name ----

static struct ggml_tensor *sample_parameter(struct ggml_context *c, enum ggml_type type) {
    struct ggml_tensor *t = sample_rows(c, type);
    ggml_set_param(t);
    return t;
}
SAMPLE(flash_attn_back,
    ggml_flash_attn_back(c, sample_rows(c, F32), sample_rows(c, a), sample_rows(c, a), sample_rows(c, F32), false))
TWICE(cross_entropy_loss)
SAMPLE(cross_entropy_loss_back,
    ggml_cross_entropy_loss_back(c, sample_shaped(c, a, 1, 1, 1, 1), sample_rows(c, a), sample_rows(c, a)))
SAMPLE(opt_step_adamw, ggml_opt_step_adamw(c, sample_parameter(c, a), sample_rows(c, a), sample_rows(c, a), sample_rows(c, a),
                           sample_shaped(c, F32, 7, 1, 1, 1)))
SAMPLE(opt_step_sgd, ggml_opt_step_sgd(c, sample_parameter(c, a), sample_rows(c, a), sample_shaped(c, F32, 2, 1, 1, 1)))

// clang-format off
const struct berth_op_entry berth_ops_train[] = {
    {GGML_OP_FLASH_ATTN_BACK, {"FLASH_ATTN_BACK", "flash_attn_back(x)", .n_src = 4, .family = BERTH_OP_TRAIN, .sample = sample_flash_attn_back}},
    {GGML_OP_CROSS_ENTROPY_LOSS, {"CROSS_ENTROPY_LOSS", "cross_entropy_loss(x,y)", .n_src = 2, .family = BERTH_OP_TRAIN, .sample = sample_cross_entropy_loss, .grad = grad_cross_entropy_loss, .grad_src_mask = 1}},
    {GGML_OP_CROSS_ENTROPY_LOSS_BACK, {"CROSS_ENTROPY_LOSS_BACK", "cross_entropy_loss_back(x,y)", .n_src = 3, .family = BERTH_OP_TRAIN, .sample = sample_cross_entropy_loss_back}},
    {GGML_OP_OPT_STEP_ADAMW, {"OPT_STEP_ADAMW", "adamw(x)", .n_src = 5, .family = BERTH_OP_TRAIN, .updates = 1u << 2 | 1u << 3, .split = BERTH_SPLIT_STEP, .sample = sample_opt_step_adamw}},
    {GGML_OP_OPT_STEP_SGD, {"OPT_STEP_SGD", "sgd(x)", .n_src = 3, .family = BERTH_OP_TRAIN, .split = BERTH_SPLIT_STEP, .sample = sample_opt_step_sgd}},
    BERTH_OPS_END,
};
// clang-format on

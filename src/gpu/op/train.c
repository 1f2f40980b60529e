// SPDX-License-Identifier: MIT
// train.c: CROSS_ENTROPY_LOSS and its gradient, SILU_BACK, RMS_NORM_BACK, SOFT_MAX_BACK, GET_ROWS_BACK, REPEAT_BACK, OPT_STEP_*,
// OUT_PROD.

#include "gpu/op/op.h"

static struct gpu_dims block_per_row(int64_t n_rows, int64_t n) {
    unsigned block = 512;
    if (n <= 1024) {
        block = n <= 128 ? 32 : 128;
    }
    return gpu_grid(n_rows, 1, 1, block, 0);
}

static bool is_dense_f32(const struct ggml_tensor *t) {
    return t != NULL && t->type == GGML_TYPE_F32 && gpu_rows_are_dense(t) && ggml_nrows(t) <= INT32_MAX;
}

// ---- the loss ----

static bool loss_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return is_dense_f32(a) && is_dense_f32(b) && is_dense_f32(op) && ggml_are_same_shape(a, b) && ggml_is_scalar(op);
}

static size_t loss_work(GPU_DEV, const struct ggml_tensor *op) {
    return (size_t) ggml_nrows(op->src[0]) * sizeof(double);
}

static enum ggml_status loss_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    struct gpu_op_args g = gpu_op_args_of(op);
    g.n = a->ne[0];
    g.parts = gpu_work(r, loss_work(r->dev, op));
    if (g.parts == NULL) {
        return GGML_STATUS_FAILED;
    }
    const enum ggml_status status = gpu_launch(r, "loss_rows", block_per_row(ggml_nrows(a), a->ne[0]), &g);
    g.n = ggml_nrows(a);
    return status == GGML_STATUS_SUCCESS ? gpu_launch(r, "loss_sum", block_per_row(1, g.n), &g) : status;
}

static bool loss_back_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *d = op->src[0], *a = op->src[1], *b = op->src[2];
    return is_dense_f32(d) && is_dense_f32(a) && is_dense_f32(b) && is_dense_f32(op) && ggml_is_scalar(d) &&
           ggml_are_same_shape(a, b) && ggml_are_same_shape(a, op);
}

static enum ggml_status loss_back_run(struct gpu_run *r, struct ggml_tensor *op) {
    struct gpu_op_args g = gpu_op_args_of(op);
    g.n = op->ne[0];
    return gpu_launch(r, "loss_back", block_per_row(ggml_nrows(op), op->ne[0]), &g);
}

// ---- gradients of single ops ----

static bool back_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && gpu_is_float(a->type) && gpu_is_float(b->type) && gpu_is_float(op->type) &&
           ggml_are_same_shape(a, b) && ggml_are_same_shape(a, op) && ggml_nrows(op) <= INT32_MAX &&
           (op->op != GGML_OP_SOFT_MAX_BACK || param_f32(op, 1) == 0.0f);
}

static enum ggml_status rows_back_run(struct gpu_run *r, struct ggml_tensor *op) {
    struct gpu_op_args g = gpu_op_args_of(op);
    g.n = op->ne[0];
    return gpu_launch(r, "rows_back", block_per_row(ggml_nrows(op), op->ne[0]), &g);
}

static bool get_rows_back_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *ids = op->src[1];
    return a != NULL && ids != NULL && gpu_is_float(a->type) && ids->type == GGML_TYPE_I32 && is_dense_f32(op) &&
           a->ne[0] == op->ne[0] && ggml_nelements(ids) <= ggml_nrows(a);
}

static bool repeat_back_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && gpu_is_float(a->type) && is_dense_f32(op) && (ggml_nelements(a) == 0 || ggml_can_repeat(op, a));
}

// ---- optimisers: the result is a view of src[0], which is updated in place ----

static bool step_supports(GPU_DEV, const struct ggml_tensor *op) {
    const int n_moments = op->op == GGML_OP_OPT_STEP_ADAMW ? 2 : 0;
    for (int i = 0; i < 2 + n_moments; i++) {
        const struct ggml_tensor *t = op->src[i];
        if (t == NULL || t->type != GGML_TYPE_F32 || !ggml_are_same_shape(t, op)) {
            return false;
        }
    }
    const struct ggml_tensor *hyperparams = op->src[2 + n_moments];
    return op->type == GGML_TYPE_F32 && hyperparams != NULL && hyperparams->type == GGML_TYPE_F32 &&
           hyperparams->ne[0] == (n_moments > 0 ? 7 : 2) && ggml_nrows(hyperparams) == 1;
}

static enum ggml_status step_run(struct gpu_run *r, struct ggml_tensor *op) {
    const bool adamw = op->op == GGML_OP_OPT_STEP_ADAMW;
    const struct ggml_tensor *hyperparams = op->src[adamw ? 4 : 2];
    const struct gpu_step_args args = {.op = gpu_op_args_of(op), .p = hyperparams->data, .nb = (int64_t) hyperparams->nb[0]};
    return gpu_launch(r, adamw ? "step_adamw" : "step_sgd", gpu_dims_1d(r, args.op.n, 256), &args);
}

// ---- OUT_PROD ----

static bool out_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || b->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || !gpu_can_widen(a->type) ||
        (!gpu_is_float(a->type) && a->nb[0] != ggml_type_size(a->type))) {
        return false;
    }
    return a->ne[1] == b->ne[1] && a->ne[2] > 0 && a->ne[3] > 0 && b->ne[2] % a->ne[2] == 0 && b->ne[3] % a->ne[3] == 0 &&
           op->ne[0] == a->ne[0] && op->ne[1] == b->ne[0] && op->ne[2] == b->ne[2] && op->ne[3] == b->ne[3] &&
           (op->ne[1] + 15) / 16 <= 65535;
}

static enum ggml_status out_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_op_args g = gpu_op_args_of(op);
    const int64_t n_z = op->ne[2] * op->ne[3];
    const struct gpu_dims dims = {
        .grid = {(unsigned) ((op->ne[0] + 15) / 16), (unsigned) ((op->ne[1] + 15) / 16), (unsigned) min_i64(n_z, 65535)},
        .block = {16, 16},
        .overlap = true};
    return gpu_launch(r, "out_prod", dims, &g);
}

const struct gpu_op_entry gpu_ops_train[] = {
    {GGML_OP_CROSS_ENTROPY_LOSS, {.supports = loss_supports, .work_size = loss_work, .run = loss_run}},
    {GGML_OP_CROSS_ENTROPY_LOSS_BACK, {.supports = loss_back_supports, .run = loss_back_run}},
    {GGML_OP_SILU_BACK, {.supports = back_supports, .run = gpu_elementwise_run, .kernel = "silu_back"}},
    {GGML_OP_RMS_NORM_BACK, {.supports = back_supports, .run = rows_back_run}},
    {GGML_OP_SOFT_MAX_BACK, {.supports = back_supports, .run = rows_back_run}},
    {GGML_OP_GET_ROWS_BACK, {.supports = get_rows_back_supports,
                                .run = gpu_elementwise_run,
                                .kernel = "get_rows_back",
                                .empty_srcs = 1 << 0 | 1 << 1}},
    {GGML_OP_REPEAT_BACK,
        {.supports = repeat_back_supports, .run = gpu_elementwise_run, .kernel = "repeat_back", .empty_srcs = 1 << 0}},
    {GGML_OP_OPT_STEP_ADAMW, {.supports = step_supports, .run = step_run}},
    {GGML_OP_OPT_STEP_SGD, {.supports = step_supports, .run = step_run}},
    {GGML_OP_OUT_PROD, {.supports = out_supports, .run = out_run, .empty_srcs = 1 << 0 | 1 << 1}},
    GPU_OPS_END,
};

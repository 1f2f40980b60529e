// SPDX-License-Identifier: MIT
// grad_rows.c: gradients of ops_rows.c: rows picked and placed, diagonals, softmax, rows shifted and stretched.

#include "core/grad.h"

// ---- picking and placing rows ----

void berth_grad_get_rows(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0];
    if (!ggml_is_matrix(a)) {
        berth_grad_refuse(g, "rows of a " BERTH_SHAPE " tensor, only those of a matrix have one", BERTH_NE(a));
        return;
    }
    berth_grad_put_add(g, 0, ggml_get_rows_back(g->ctx, g->grad, g->node->src[1], a));
}

void berth_grad_get_rows_back(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_get_rows(g->ctx, g->grad, g->node->src[1]));
}

// Sources: rows, their places, what they are put into. Rows get their places' gradient, what they overwrite gets none there.
void berth_grad_set_rows(struct berth_grad *g) {
    struct ggml_tensor *rows = g->node->src[0], *ids = g->node->src[1];
    if (berth_grad_wants(g, 0)) {
        if (rows->ne[2] != ids->ne[1] || rows->ne[3] != ids->ne[2]) {
            berth_grad_refuse(
                g, "places " BERTH_SHAPE " are shared by batches of rows " BERTH_SHAPE, BERTH_NE(ids), BERTH_NE(rows));
            return;
        }
        struct ggml_tensor *narrow = ids->type == GGML_TYPE_I32 ? ids : ggml_cast(g->ctx, ids, GGML_TYPE_I32);
        berth_grad_put_add(g, 0, ggml_get_rows(g->ctx, g->grad, narrow));
    }
    if (berth_grad_wants(g, 2)) {
        struct ggml_tensor *none = ggml_fill(g->ctx, rows, 0.0f);
        berth_grad_put_add(g, 2, ggml_set_rows(g->ctx, ggml_cont(g->ctx, g->grad), none, ids));
    }
}

// ---- diagonals ----

void berth_grad_diag(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *grad = berth_grad_dense(g, g->grad);
    struct ggml_tensor *line =
        ggml_view_4d(g->ctx, grad, 1, a->ne[0], a->ne[2], a->ne[3], grad->nb[0] + grad->nb[1], grad->nb[2], grad->nb[3], 0);
    berth_grad_put_add(g, 0, berth_grad_shape(g, ggml_cont(g->ctx, line), a));
}

void berth_grad_diag_mask(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_diag_mask_zero(g->ctx, g->grad, g->node->op_params[0]));
}

// ---- softmax ----

struct ggml_tensor *berth_grad_of_sinks(
    struct berth_grad *g, struct ggml_tensor *y, struct ggml_tensor *grad, struct ggml_tensor *sinks) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *taken = berth_grad_one_minus(g, ggml_sum_rows(ctx, y));
    struct ggml_tensor *each = ggml_mul(ctx, taken, ggml_sum_rows(ctx, ggml_mul(ctx, y, grad)));
    struct ggml_tensor *heads = ggml_repeat_back(ctx, each, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, 1, y->ne[2]));
    return ggml_reshape(ctx, heads, sinks);
}

// y = exp(scale x + slope mask) / (sum of those + exp(sink)). A mask, its slopes (ALiBi) and a sink only shift what is summed: by
// x the gradient is the plain one. A sink takes 1 - sum(y) of each row.
void berth_grad_soft_max(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *y = g->node, *mask = y->src[1], *sinks = y->src[2];
    if (berth_grad_wants(g, 0)) {
        berth_grad_put_add(g, 0, ggml_soft_max_ext_back(ctx, g->grad, y, param_f32(y, 0), 0.0f));
    }
    if (berth_grad_wants(g, 1)) {
        if (param_f32(y, 1) != 0.0f || mask->ne[1] != y->ne[1]) {
            berth_grad_refuse(g, "the mask's gradient with slopes, or rows to spare, is not there");
            return;
        }
        struct ggml_tensor *all = ggml_soft_max_ext_back(ctx, g->grad, y, 1.0f, 0.0f);
        berth_grad_put_add(g, 1, berth_grad_fold(g, all, mask));
    }
    if (berth_grad_wants(g, 2)) {
        berth_grad_put_sub(g, 2, berth_grad_of_sinks(g, y, g->grad, sinks));
    }
}

// ---- shifting and stretching ----

void berth_grad_roll(struct berth_grad *g) {
    const int32_t *s = g->node->op_params;
    berth_grad_put_add(g, 0, ggml_roll(g->ctx, berth_grad_dense(g, g->grad), -s[0], -s[1], -s[2], -s[3]));
}

// What was added at the ends falls away.
void berth_grad_pad(struct berth_grad *g) {
    const struct ggml_tensor *a = g->node->src[0];
    const int32_t *sides = g->node->op_params;
    size_t offset = 0;
    bool cut = sides[2 * GGML_MAX_DIMS] != 0;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        cut = cut || sides[2 * i] < 0 || sides[2 * i + 1] < 0;
        offset += (size_t) sides[2 * i] * g->grad->nb[i];
    }
    if (cut) {
        berth_grad_refuse(g, "the op has no gradient rule where it cuts or goes round");
        return;
    }
    struct ggml_tensor *inside = ggml_view_4d(
        g->ctx, g->grad, a->ne[0], a->ne[1], a->ne[2], a->ne[3], g->grad->nb[1], g->grad->nb[2], g->grad->nb[3], offset);
    berth_grad_put_add(g, 0, ggml_cont(g->ctx, inside));
}

// Each pixel that was repeated gets the sum over its copies: the mean of a pool, times their number.
void berth_grad_upscale(struct berth_grad *g) {
    const struct ggml_tensor *a = g->node->src[0], *y = g->node;
    const bool whole = a->ne[0] > 0 && a->ne[1] > 0 && y->ne[0] % a->ne[0] == 0 && y->ne[1] % a->ne[1] == 0 &&
                       y->ne[2] == a->ne[2] && y->ne[3] == a->ne[3];
    if (y->op_params[0] != GGML_SCALE_MODE_NEAREST || !whole) {
        berth_grad_refuse(g, "the op has a gradient rule for the nearest pixel and whole factors only");
        return;
    }
    const int f0 = (int) (y->ne[0] / a->ne[0]), f1 = (int) (y->ne[1] / a->ne[1]);
    struct ggml_tensor *mean = ggml_pool_2d(g->ctx, berth_grad_dense(g, g->grad), GGML_OP_POOL_AVG, f0, f1, f0, f1, 0, 0);
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, mean, (float) f0 * (float) f1));
}

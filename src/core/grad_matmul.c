// SPDX-License-Identifier: MIT
// grad_matmul.c: gradients of ops_matmul.c. With c[i, j] = sum over k of a[k, i] b[k, j] and its gradient d[i, j]:
//     by a[k, i]: sum over j of b[k, j] d[i, j]          by b[k, j]: sum over i of a[k, i] d[i, j]
// both outer products (OUT_PROD), which take a quantised first source as it is.

#include "core/grad.h"

// A tensor that OUT_PROD and MUL_MAT take as their first source.
static struct ggml_tensor *straight(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_is_transposed(t) || t->nb[0] != ggml_type_size(t->type) ? ggml_cont(g->ctx, t) : t;
}

// Batches i2 and i3 of t belong to i2 / r2 and i3 / r3 of a: each run of r2, then of r3, is summed. REPEAT_BACK sums what lies a
// whole tensor apart, so that a run becomes the last dimension first.
struct ggml_tensor *berth_grad_fold_batches(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *a) {
    if (ggml_are_same_shape(t, a)) {
        return t;
    }
    const int64_t r2 = t->ne[2] / a->ne[2], r3 = t->ne[3] / a->ne[3];
    if (t->ne[3] == 1) {
        struct ggml_tensor *runs =
            ggml_view_4d(g->ctx, t, t->ne[0], t->ne[1], a->ne[2], r2, t->nb[1], t->nb[2] * (size_t) r2, t->nb[2], 0);
        return ggml_repeat_back(g->ctx, runs, a);
    }
    const int64_t n = t->ne[0] * t->ne[1];
    if (r2 > 1) {
        struct ggml_tensor *runs =
            ggml_view_4d(g->ctx, t, n, a->ne[2], t->ne[3], r2, t->nb[2] * (size_t) r2, t->nb[3], t->nb[2], 0);
        t = ggml_repeat_back(g->ctx, runs, ggml_new_tensor_3d(g->ctx, GGML_TYPE_F32, n, a->ne[2], t->ne[3]));
    }
    if (r3 > 1) {
        const size_t plane = (size_t) (n * a->ne[2]) * sizeof(float);
        struct ggml_tensor *runs = ggml_view_3d(g->ctx, t, n * a->ne[2], a->ne[3], r3, plane * (size_t) r3, plane, 0);
        t = ggml_repeat_back(g->ctx, runs, ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, n * a->ne[2], a->ne[3]));
    }
    return ggml_reshape(g->ctx, t, a);
}

void berth_grad_mul_mat(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *b = g->node->src[1];
    if (berth_grad_wants(g, 0)) {
        struct ggml_tensor *all = ggml_out_prod(g->ctx, straight(g, b), g->grad);
        berth_grad_put_add(g, 0, berth_grad_fold_batches(g, all, a));
    }
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, ggml_out_prod(g->ctx, a, ggml_transpose(g->ctx, g->grad)));
    }
}

// By expert e the outer product of tokens and gradients, both in the rows that chose it: what others chose is set to 0, so that
// the experts become batches of one product. That computes as much as if all tokens went through all experts.
static struct ggml_tensor *by_experts(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *as = g->node->src[0], *b = g->node->src[1], *ids = g->node->src[2], *d = berth_grad_dense(g, g->grad);
    const int64_t n_expert = as->ne[2], n_rows = d->ne[1] * d->ne[2];
    struct ggml_tensor *ones = ggml_fill(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n_expert), 1.0f);
    struct ggml_tensor *flat = ggml_reshape_1d(ctx, berth_grad_dense(g, ids), n_rows);
    struct ggml_tensor *chosen = ggml_get_rows(ctx, ggml_diag(ctx, ones), flat); // [expert, row]: 1 or 0
    chosen = ggml_cont(ctx, ggml_transpose(ctx, chosen));
    chosen = ggml_reshape_3d(ctx, chosen, 1, n_rows, n_expert);
    struct ggml_tensor *parts =
        ggml_mul(ctx, ggml_repeat_4d(ctx, ggml_reshape_2d(ctx, d, d->ne[0], n_rows), d->ne[0], n_rows, n_expert, 1), chosen);
    if (b->ne[1] != d->ne[1]) { // one token for all that it chose
        b = ggml_repeat_4d(ctx, b, b->ne[0], d->ne[1], d->ne[2], 1);
    }
    return ggml_out_prod(ctx, ggml_reshape_2d(ctx, berth_grad_dense(g, b), b->ne[0], n_rows), parts);
}

// Tokens go back through the transposed experts.
void berth_grad_mul_mat_id(struct berth_grad *g) {
    struct ggml_tensor *as = g->node->src[0], *b = g->node->src[1], *ids = g->node->src[2];
    if (berth_grad_wants(g, 0)) {
        berth_grad_put_add(g, 0, by_experts(g));
    }
    if (berth_grad_wants(g, 1)) {
        struct ggml_tensor *turned = ggml_is_quantized(as->type) ? ggml_cast(g->ctx, as, GGML_TYPE_F32) : as;
        turned = ggml_cont(g->ctx, ggml_transpose(g->ctx, turned));
        struct ggml_tensor *each = ggml_mul_mat_id(g->ctx, turned, berth_grad_dense(g, g->grad), ids);
        berth_grad_put_add(g, 1, berth_grad_fold(g, each, b));
    }
}

// With c[i, j] = sum over k of a[i, k] b[j, k]: by a[i, k]: sum over j of d[i, j] b[j, k]; by b[j, k]: sum over i of d[i, j] a[i,
// k].
void berth_grad_out_prod(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *b = g->node->src[1];
    if (berth_grad_wants(g, 0)) {
        struct ggml_tensor *turned = ggml_cont(g->ctx, ggml_transpose(g->ctx, g->grad));
        berth_grad_put_add(g, 0, berth_grad_fold_batches(g, ggml_mul_mat(g->ctx, turned, straight(g, b)), a));
    }
    if (berth_grad_wants(g, 1)) {
        if (a->ne[2] != b->ne[2] || a->ne[3] != b->ne[3]) {
            berth_grad_refuse(g, "the second source has more batches than the first one");
            return;
        }
        berth_grad_put_add(g, 1, ggml_mul_mat(g->ctx, straight(g, g->grad), straight(g, a)));
    }
}

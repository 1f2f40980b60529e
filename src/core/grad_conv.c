// SPDX-License-Identifier: MIT
// grad_conv.c: gradients of convolutions (ops_conv.c) and pools (ops_pool.c). A direct convolution goes back through columns:
// with c[k, p] the windows at positions p and w[k, o] the kernels, out[p, o] is their product, and both have the gradients of
// one.

#include "core/grad.h"

static struct ggml_tensor *columns_back(
    struct berth_grad *g, struct ggml_tensor *grad, struct ggml_tensor *kernel, struct ggml_tensor *data, bool is_2D) {
    const int32_t *p = g->node->op_params;
    return ggml_im2col_back(g->ctx, grad, kernel, data->ne, p[0], p[1], p[2], p[3], p[4], p[5], is_2D);
}

static struct ggml_tensor *columns(struct berth_grad *g, struct ggml_tensor *kernel, struct ggml_tensor *data) {
    const int32_t *p = g->node->op_params;
    return ggml_im2col(g->ctx, kernel, data, p[0], p[1], p[2], p[3], p[4], p[5], true, GGML_TYPE_F32);
}

// The kernel gives its shape alone.
void berth_grad_im2col(struct berth_grad *g) {
    berth_grad_put_add(
        g, 1, columns_back(g, berth_grad_dense(g, g->grad), g->node->src[0], g->node->src[1], g->node->op_params[6] != 0));
}

void berth_grad_conv_2d(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *w = g->node->src[0], *x = g->node->src[1], *y = g->node;
    const int64_t n_k = w->ne[0] * w->ne[1] * w->ne[2], n_p = y->ne[0] * y->ne[1] * y->ne[3];
    struct ggml_tensor *d = ggml_cont(ctx, ggml_permute(ctx, g->grad, 0, 1, 3, 2));
    d = ggml_reshape_2d(ctx, d, n_p, y->ne[2]);
    if (berth_grad_wants(g, 0)) {
        struct ggml_tensor *c = ggml_reshape_2d(ctx, columns(g, w, berth_grad_dense(g, x)), n_k, n_p);
        berth_grad_put_add(g, 0, ggml_reshape(ctx, ggml_out_prod(ctx, c, ggml_transpose(ctx, d)), w));
    }
    if (berth_grad_wants(g, 1)) {
        struct ggml_tensor *flat = ggml_reshape_2d(ctx, berth_grad_dense(g, w), n_k, w->ne[3]);
        struct ggml_tensor *c = ggml_reshape_4d(ctx, ggml_out_prod(ctx, flat, d), n_k, y->ne[0], y->ne[1], y->ne[3]);
        berth_grad_put_add(g, 1, columns_back(g, c, w, x, true));
    }
}

// Every channel has a kernel of its own: channels and pictures are batches of products.
void berth_grad_conv_2d_dw(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *w = g->node->src[0], *x = g->node->src[1], *y = g->node;
    const int64_t n_k = w->ne[0] * w->ne[1], n_p = y->ne[0] * y->ne[1], n_c = y->ne[2], n_b = y->ne[3];
    struct ggml_tensor *one = ggml_reshape_4d(ctx, berth_grad_dense(g, w), w->ne[0], w->ne[1], 1, n_c);
    struct ggml_tensor *d = berth_grad_dense(g, g->grad);
    if (berth_grad_wants(g, 0)) {
        struct ggml_tensor *flat = ggml_reshape_4d(ctx, berth_grad_dense(g, x), x->ne[0], x->ne[1], 1, n_c * n_b);
        struct ggml_tensor *c = ggml_reshape_4d(ctx, columns(g, one, flat), n_k, n_p, n_c, n_b);
        struct ggml_tensor *each = ggml_out_prod(ctx, c, ggml_reshape_4d(ctx, d, 1, n_p, n_c, n_b));
        struct ggml_tensor *sum = berth_grad_fold_batches(g, each, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n_k, 1, n_c));
        berth_grad_put_add(g, 0, ggml_reshape(ctx, sum, w));
    }
    if (berth_grad_wants(g, 1)) {
        struct ggml_tensor *flat = ggml_reshape_3d(ctx, one, n_k, 1, n_c);
        struct ggml_tensor *c = ggml_out_prod(ctx, flat, ggml_reshape_4d(ctx, d, n_p, 1, n_c, n_b));
        struct ggml_tensor *shape = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, x->ne[0], x->ne[1], 1, n_c * n_b);
        c = ggml_reshape_4d(ctx, c, n_k, y->ne[0], y->ne[1], n_c * n_b);
        berth_grad_put_add(g, 1, ggml_reshape(ctx, columns_back(g, c, one, shape, true), x));
    }
}

// ---- transposed ----

// A convolution turned round: by the data it is the convolution of what comes back with the same kernel, by the kernel that of a
// convolution whose data come back and whose result went in.
static void transposed_back(
    struct berth_grad *g, struct ggml_tensor *w, struct ggml_tensor *x, struct ggml_tensor *d, int stride) {
    struct ggml_context *ctx = g->ctx;
    if (berth_grad_wants(g, 0)) {
        const int64_t n_k = w->ne[0] * w->ne[1] * w->ne[2], n_p = x->ne[0] * x->ne[1] * x->ne[3];
        struct ggml_tensor *c = ggml_im2col(ctx, w, d, stride, stride, 0, 0, 1, 1, true, GGML_TYPE_F32);
        struct ggml_tensor *y = ggml_cont(ctx, ggml_permute(ctx, x, 0, 1, 3, 2));
        y = ggml_transpose(ctx, ggml_reshape_2d(ctx, y, n_p, x->ne[2]));
        struct ggml_tensor *sum = ggml_out_prod(ctx, ggml_reshape_2d(ctx, c, n_k, n_p), y);
        berth_grad_put_add(g, 0, ggml_reshape(ctx, sum, g->node->src[0]));
    }
    if (berth_grad_wants(g, 1)) {
        struct ggml_tensor *back = ggml_conv_2d_direct(ctx, w, d, stride, stride, 0, 0, 1, 1);
        berth_grad_put_add(g, 1, ggml_reshape(ctx, back, g->node->src[1]));
    }
}

void berth_grad_conv_transpose_2d(struct berth_grad *g) {
    struct ggml_tensor *w = berth_grad_dense(g, g->node->src[0]), *x = berth_grad_dense(g, g->node->src[1]);
    transposed_back(g, w, x, berth_grad_dense(g, g->grad), g->node->op_params[0]);
}

// Pictures one pixel high.
void berth_grad_conv_transpose_1d(struct berth_grad *g) {
    struct ggml_tensor *w = berth_grad_dense(g, g->node->src[0]), *x = berth_grad_dense(g, g->node->src[1]);
    struct ggml_tensor *d = berth_grad_dense(g, g->grad);
    w = ggml_reshape_4d(g->ctx, w, w->ne[0], 1, w->ne[1], w->ne[2]);
    x = ggml_reshape_4d(g->ctx, x, x->ne[0], 1, x->ne[1], 1);
    d = ggml_reshape_4d(g->ctx, d, d->ne[0], 1, d->ne[1], 1);
    transposed_back(g, w, x, d, g->node->op_params[0]);
}

// ---- pools ----

void berth_grad_pool_2d(struct berth_grad *g) {
    const int32_t *p = g->node->op_params;
    berth_grad_put_add(g, 0,
        ggml_pool_2d_back(g->ctx, berth_grad_dense(g, g->grad), g->node->src[0], (enum ggml_op_pool) p[0], p[1], p[2], p[3], p[4],
            (float) p[5], (float) p[6]));
}

// Pools of rows are pools of pictures one pixel high, but their means are over what of a window lies inside: that part of it is
// the mean of ones as pictures take it.
void berth_grad_pool_1d(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    const int32_t *p = g->node->op_params;
    struct ggml_tensor *x = g->node->src[0], *grad = berth_grad_dense(g, g->grad);
    if (p[0] == GGML_OP_POOL_AVG && p[3] != 0) {
        struct ggml_tensor *ones = ggml_fill(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, x->ne[0]), 1.0f);
        grad = ggml_div(ctx, grad, ggml_pool_2d(ctx, ones, GGML_OP_POOL_AVG, p[1], 1, p[2], 1, (float) p[3], 0.0f));
    }
    berth_grad_put_add(g, 0, ggml_pool_2d_back(ctx, grad, x, (enum ggml_op_pool) p[0], p[1], 1, p[2], 1, (float) p[3], 0.0f));
}

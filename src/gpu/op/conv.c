// SPDX-License-Identifier: MIT
// conv.c: ops with sliding windows over images: IM2COL*, COL2IM_1D, CONV_*, POOL_*; and UPSCALE.

#include "gpu/kernel/conv.h"

#include "gpu/op/op.h"

#define BLOCK 256
#define CONV_OUT 8 // equals CONV_OUT in kernel/conv.cu

// ---- im2col and convolutions ----

// q: n strides, n paddings, n dilations. Other dimensions get stride 1, padding 0 and dilation 1.
static void columns_set_steps(struct gpu_columns *c, const int32_t *q, int n) {
    for (int i = 0; i < 3; i++) {
        c->stride[i] = i < n ? q[i] : 1;
        c->pad[i] = i < n ? q[n + i] : 0;
        c->dil[i] = i < n ? q[2 * n + i] : 1;
    }
}

// The first n extents of k are the extents of a window.
static struct gpu_columns columns_over(
    const struct ggml_tensor *k, const struct ggml_tensor *b, int n, int64_t n_channels, int64_t n_batch) {
    struct gpu_columns c = {.n_channels = n_channels, .n_batch = n_batch, .nb_channel = (int64_t) b->nb[n == 3 ? 3 : n]};
    for (int i = 0; i < 3; i++) {
        c.k[i] = i < n ? k->ne[i] : 1;
        c.n[i] = i < n ? b->ne[i] : 1;
        c.nb[i] = i < n ? (int64_t) b->nb[i] : 0;
    }
    c.nb_batch = n == 3 ? (int64_t) b->nb[3] * n_channels : (int64_t) b->nb[n + 1];
    return c;
}

static struct gpu_columns columns_of(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    struct gpu_columns c;
    if (op->op == GGML_OP_IM2COL) {
        const int n = q[6] == 1 ? 2 : 1;
        c = columns_over(a, b, n, b->ne[n], b->ne[n + 1]);
        columns_set_steps(&c, n == 2 ? q : (const int32_t[]){q[0], q[2], q[4]}, n);
        memcpy(c.windows, (const int64_t[]){op->ne[1], n == 2 ? op->ne[2] : 1, 1}, sizeof c.windows);
        return c;
    }
    if (op->op == GGML_OP_CONV_2D) {
        c = columns_over(a, b, 2, b->ne[2], b->ne[3]);
        columns_set_steps(&c, q, 2);
        memcpy(c.windows, (const int64_t[]){op->ne[0], op->ne[1], 1}, sizeof c.windows);
        return c;
    }
    const int64_t n_channels = q[9] > 0 ? q[9] : 1;
    c = columns_over(a, b, 3, n_channels, op->op == GGML_OP_CONV_3D ? q[10] : b->ne[3] / n_channels);
    columns_set_steps(&c, q, 3);
    if (op->op == GGML_OP_CONV_3D) {
        memcpy(c.windows, (const int64_t[]){op->ne[0], op->ne[1], op->ne[2]}, sizeof c.windows);
    } else {
        memcpy(c.windows, (const int64_t[]){op->ne[1], op->ne[2], c.n_batch > 0 ? op->ne[3] / c.n_batch : 0}, sizeof c.windows);
    }
    return c;
}

static int64_t window_length(const struct gpu_columns *c) {
    return c->k[0] * c->k[1] * c->k[2] * c->n_channels;
}
static int64_t window_count(const struct gpu_columns *c) {
    return c->windows[0] * c->windows[1] * c->windows[2];
}

static bool im2col_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || !ggml_is_contiguous(op) || !gpu_is_float(op->type) ||
        (b->type != GGML_TYPE_F32 && b->type != op->type) ||
        (op->op == GGML_OP_IM2COL_3D && (param_i32(op, 9) <= 0 || b->ne[3] % param_i32(op, 9) != 0))) {
        return false;
    }
    const struct gpu_columns c = columns_of(op);
    return op->ne[0] == window_length(&c) && ggml_nrows(op) == window_count(&c) * c.n_batch;
}

static enum ggml_status im2col_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_conv_args g = {.c = columns_of(op),
        .data = op->src[1]->data,
        .dst = op->data,
        .data_type = (int32_t) op->src[1]->type,
        .type = (int32_t) op->type};
    return gpu_launch(r, "im2col", gpu_dims_1d(r, ggml_nelements(op), BLOCK), &g);
}

static bool conv_types_fit(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && (a->type == GGML_TYPE_F32 || a->type == GGML_TYPE_F16) && b->type == GGML_TYPE_F32 &&
           op->type == GGML_TYPE_F32;
}

static int64_t channels_out(const struct ggml_tensor *op) {
    return op->op == GGML_OP_CONV_2D ? op->ne[2] : param_i32(op, 11);
}

static bool conv_supports(GPU_DEV, const struct ggml_tensor *op) {
    if (!conv_types_fit(op) || !ggml_is_contiguous(op->src[0]) || !ggml_is_contiguous(op) ||
        (op->op == GGML_OP_CONV_3D && param_i32(op, 9) <= 0)) {
        return false;
    }
    const struct gpu_columns c = columns_of(op);
    const int64_t n_out = channels_out(op);
    return n_out > 0 && ggml_nelements(op->src[0]) == window_length(&c) * n_out &&
           ggml_nelements(op) == window_count(&c) * n_out * c.n_batch && c.n_batch <= 65535 && n_out <= 65535 * CONV_OUT &&
           (op->op != GGML_OP_CONV_3D || op->src[1]->ne[3] == c.n_channels * c.n_batch) &&
           (op->op != GGML_OP_CONV_2D || op->src[0]->ne[2] == op->src[1]->ne[2]);
}

static enum ggml_status conv_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_conv_args g = {
        .c = columns_of(op), .data = op->src[1]->data, .kernel = op->src[0]->data, .dst = op->data, .n_out = channels_out(op)};
    const struct gpu_dims dims =
        gpu_grid((window_count(&g.c) + 127) / 128, (g.n_out + CONV_OUT - 1) / CONV_OUT, g.c.n_batch, 128, 0);
    return gpu_launch(r, op->src[0]->type == GGML_TYPE_F16 ? "conv_f16" : "conv_f32", dims, &g);
}

static bool dw_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return conv_types_fit(op) && a->ne[2] == 1 && a->ne[3] == b->ne[2] && op->ne[2] == b->ne[2] && op->ne[3] == b->ne[3] &&
           param_i32(op, 0) > 0;
}

static bool transpose_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t s = param_i32(op, 0);
    if (!conv_types_fit(op) || !ggml_is_contiguous(op) || s <= 0) {
        return false;
    }
    if (op->op == GGML_OP_CONV_TRANSPOSE_1D) {
        return b->ne[1] == a->ne[2] && op->ne[0] == (b->ne[0] - 1) * s + a->ne[0] && op->ne[1] == a->ne[1] && op->ne[2] == 1 &&
               op->ne[3] == 1;
    }
    return b->ne[2] == a->ne[3] && op->ne[0] == (b->ne[0] - 1) * s + a->ne[0] && op->ne[1] == (b->ne[1] - 1) * s + a->ne[1] &&
           op->ne[2] == a->ne[2] && op->ne[3] == b->ne[3];
}

// ---- pooling ----

static bool pool_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t kind = param_i32(op, 0);
    if (a == NULL || !gpu_is_float(a->type) || op->type != GGML_TYPE_F32 ||
        (kind != GGML_OP_POOL_MAX && kind != GGML_OP_POOL_AVG) || a->ne[2] != op->ne[2] || a->ne[3] != op->ne[3]) {
        return false;
    }
    if (op->op == GGML_OP_POOL_2D_BACK) {
        return b != NULL && gpu_is_float(b->type) && ggml_are_same_shape(b, op);
    }
    return op->op == GGML_OP_POOL_2D || a->ne[1] == op->ne[1];
}

static enum ggml_status pool_run(struct gpu_run *r, struct ggml_tensor *op) {
    struct gpu_op_args g = gpu_op_args_of(op);
    const int32_t *q = op->op_params;
    if (op->op == GGML_OP_POOL_1D) {
        memcpy(g.p, (const int32_t[8]){q[0], q[1], 1, q[2], 1, q[3], 0, 1}, sizeof g.p);
    } else {
        memcpy(g.p, (const int32_t[8]){q[0], q[1], q[2], q[3], q[4], q[5], q[6], 0}, sizeof g.p);
    }
    return gpu_launch(r, op->op == GGML_OP_POOL_2D_BACK ? "pool_back" : "pool", gpu_dims_1d(r, g.n, BLOCK), &g);
}

// ---- sums of columns into images ----

static bool im2col_back_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const bool is_2d = param_i32(op, 6) == 1;
    return a != NULL && b != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 &&
           a->ne[0] == op->ne[is_2d ? 2 : 1] * b->ne[0] * (is_2d ? b->ne[1] : 1) && a->ne[is_2d ? 3 : 2] == op->ne[is_2d ? 3 : 2];
}

static bool col2im_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int32_t *q = op->op_params;
    return a != NULL && gpu_is_float(a->type) && op->type == a->type && q[0] > 0 && q[1] > 0 && a->ne[0] % q[1] == 0 &&
           op->ne[1] == q[1] && op->ne[2] == 1 && op->ne[3] == 1 && a->ne[2] == 1 && a->ne[3] == 1;
}

// ---- UPSCALE ----

static bool upscale_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int32_t mode = param_i32(op, 0) & 0xff;
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 &&
           (mode == GGML_SCALE_MODE_NEAREST || mode == GGML_SCALE_MODE_BILINEAR || mode == GGML_SCALE_MODE_BICUBIC);
}

static enum ggml_status upscale_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    struct gpu_op_args g = gpu_op_args_of(op);
    for (int i = 0; i < 4; i++) {
        g.f[i] = (float) op->ne[i] / (float) a->ne[i];
        if (i < 2 && (param_i32(op, 0) & GGML_SCALE_FLAG_ALIGN_CORNERS) != 0 && op->ne[i] > 1 && a->ne[i] > 1) {
            g.f[i] = (float) (op->ne[i] - 1) / (float) (a->ne[i] - 1);
        }
    }
    return gpu_launch(r, "upscale", gpu_dims_1d(r, g.n, BLOCK), &g);
}

const struct gpu_op_entry gpu_ops_conv[] = {
    {GGML_OP_IM2COL, {.supports = im2col_supports, .run = im2col_run}},
    {GGML_OP_IM2COL_3D, {.supports = im2col_supports, .run = im2col_run}},
    {GGML_OP_IM2COL_BACK, {.supports = im2col_back_supports, .run = gpu_elementwise_run, .kernel = "im2col_back"}},
    {GGML_OP_COL2IM_1D, {.supports = col2im_supports, .run = gpu_elementwise_run, .kernel = "col2im"}},
    {GGML_OP_CONV_2D, {.supports = conv_supports, .run = conv_run}},
    {GGML_OP_CONV_3D, {.supports = conv_supports, .run = conv_run}},
    {GGML_OP_CONV_2D_DW, {.supports = dw_supports, .run = gpu_elementwise_run, .kernel = "conv_dw"}},
    {GGML_OP_CONV_TRANSPOSE_1D, {.supports = transpose_supports, .run = gpu_elementwise_run, .kernel = "conv_transpose"}},
    {GGML_OP_CONV_TRANSPOSE_2D, {.supports = transpose_supports, .run = gpu_elementwise_run, .kernel = "conv_transpose"}},
    {GGML_OP_POOL_1D, {.supports = pool_supports, .run = pool_run}},
    {GGML_OP_POOL_2D, {.supports = pool_supports, .run = pool_run}},
    {GGML_OP_POOL_2D_BACK, {.supports = pool_supports, .run = pool_run}},
    {GGML_OP_UPSCALE, {.supports = upscale_supports, .run = upscale_run}},
    GPU_OPS_END,
};

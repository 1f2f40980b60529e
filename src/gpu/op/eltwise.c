// SPDX-License-Identifier: MIT
// eltwise.c: element-wise ops: one source, FILL, two sources (the second repeats to the shape of the first), and GLU.

#include "gpu/kernel/eltwise.h"

#include "gpu/op/op.h"

#define BLOCK 256

static bool map_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && gpu_is_float(a->type) && gpu_is_float(op->type) && ggml_are_same_shape(a, op);
}

static bool unary_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    return map_supports(dev, op) && param_i32(op, 0) >= 0 && param_i32(op, 0) < GGML_UNARY_OP_COUNT;
}

// what: the value of gpu_map_args.what. p: four parameters of the op.
static enum ggml_status map_launch(struct gpu_run *r, struct ggml_tensor *op, int32_t what, const float *p) {
    const struct ggml_tensor *a = op->src[0] != NULL ? op->src[0] : op;
    const int64_t n = ggml_nelements(op);
    struct gpu_map_args args = {.dst = gpu_view_of(op), .a = gpu_view_of(a), .index = gpu_index_of(op), .n = n, .what = what};
    memcpy(args.p, p, sizeof args.p);
    const bool dense = gpu_is_float4(op) && gpu_is_float4(a) && n % 4 == 0 && what != GPU_MAP(GGML_OP_FILL);
    return gpu_launch(r, dense ? "map_dense" : "map_any", gpu_dims_1d(r, dense ? n / 4 : n, BLOCK), &args);
}

static enum ggml_status unary_run(struct gpu_run *r, struct ggml_tensor *op) {
    const float p[4] = {param_f32(op, 1), param_f32(op, 2), param_f32(op, 3), param_f32(op, 4)};
    return map_launch(r, op, param_i32(op, 0), p);
}

static enum ggml_status map_run(struct gpu_run *r, struct ggml_tensor *op) {
    const float p[4] = {param_f32(op, 0), param_f32(op, 1), 0.0f, 0.0f};
    return map_launch(r, op, GPU_MAP(op->op), p);
}

static bool fill_supports(GPU_DEV, const struct ggml_tensor *op) {
    return gpu_is_float(op->type);
}

// ---- two sources ----

static bool binary_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && gpu_is_float(op->type) && gpu_is_float(a->type) && gpu_is_float(b->type) &&
           ggml_are_same_shape(a, op) && ggml_can_repeat(b, a);
}

static bool add_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    return binary_supports(dev, op) || gpu_can_add_quantised(dev, op);
}

// For contiguous a and b, where b has n_b elements. Returns whether the op combines element i of a with element i % n_b of b.
// This holds if b has the first extents of a and its other extents are 1.
static bool repeats_whole(const struct ggml_tensor *b, const struct ggml_tensor *a) {
    int i = 0;
    while (i < 4 && b->ne[i] == a->ne[i]) {
        i++;
    }
    while (i < 4 && b->ne[i] == 1) {
        i++;
    }
    return i == 4;
}

static enum ggml_status binary_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = ggml_nelements(op), n_b = ggml_nelements(b);
    if (gpu_is_float4(op) && gpu_is_float4(a) && gpu_is_float4(b) && n % 4 == 0 && n_b % 4 == 0 && repeats_whole(b, a) &&
        n / 4 < GPU_INDEX_MAX) {
        const struct gpu_binary_dense_args args = {.dst = op->data,
            .a = a->data,
            .b = b->data,
            .n = n,
            .n_b = n_b,
            .d_b = gpu_div_of(n_b / 4),
            .what = (int32_t) op->op};
        return gpu_launch(r, "eltwise_binary_dense", gpu_dims_1d(r, n / 4, BLOCK), &args);
    }
    const struct gpu_binary_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(a),
        .b = gpu_view_of(b),
        .index = gpu_index_of(op),
        .n = n,
        .what = (int32_t) op->op};
    return gpu_launch(r, "eltwise_binary", gpu_dims_1d(r, n, BLOCK), &args);
}

static enum ggml_status add_run(struct gpu_run *r, struct ggml_tensor *op) {
    return ggml_is_quantized(op->type) ? gpu_add_quantised(r, op) : binary_run(r, op);
}

// ---- GLU ----

static bool glu_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t what = param_i32(op, 0);
    if (a == NULL || what < 0 || what >= GGML_GLU_OP_COUNT || !gpu_is_float(a->type) || !gpu_is_float(op->type) ||
        (b != NULL && (!gpu_is_float(b->type) || !ggml_are_same_shape(a, b)))) {
        return false;
    }
    return op->ne[0] == (b != NULL ? a->ne[0] : a->ne[0] / 2) && op->ne[1] == a->ne[1] && op->ne[2] == a->ne[2] &&
           op->ne[3] == a->ne[3];
}

// Returns whether a view is f32 with contiguous rows at multiples of 16 bytes, so that it can be read as float4.
static bool can_read_float4(const struct gpu_view *v) {
    return v->type == GGML_TYPE_F32 && v->nb[0] == 4 &&
           ((uintptr_t) v->p | (uintptr_t) v->nb[1] | (uintptr_t) v->nb[2] | (uintptr_t) v->nb[3]) % 16 == 0;
}

static enum ggml_status glu_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1] != NULL ? op->src[1] : a;
    const int64_t half = op->src[1] != NULL ? 0 : op->ne[0];
    const bool swapped = half > 0 && param_i32(op, 1) != 0;
    struct gpu_glu_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(a),
        .b = gpu_view_of(b),
        .index = gpu_index_of(op),
        .n = ggml_nelements(op),
        .alpha = param_f32(op, 2),
        .limit = param_f32(op, 3),
        .what = param_i32(op, 0),
        .a_is_16 = a->type == GGML_TYPE_F16};
    args.a.p += (swapped ? half : 0) * args.a.nb[0];
    args.b.p += (swapped ? 0 : half) * args.b.nb[0];
    const bool fours = op->ne[0] % 4 == 0 && can_read_float4(&args.dst) && can_read_float4(&args.a) && can_read_float4(&args.b) &&
                       args.n < GPU_INDEX_MAX;
    if (fours) {
        struct ggml_tensor shape = *op;
        shape.ne[0] /= 4;
        args.index = gpu_index_of(&shape);
        args.n /= 4;
    }
    return gpu_launch(r, fours ? "glu_fours" : "glu_any", gpu_dims_1d(r, args.n, BLOCK), &args);
}

#define BINARY \
    { .supports = binary_supports, .run = binary_run }
#define MAP \
    { .supports = map_supports, .run = map_run }

const struct gpu_op_entry gpu_ops_eltwise[] = {
    {GGML_OP_ADD, {.supports = add_supports, .run = add_run}},
    {GGML_OP_SUB, BINARY},
    {GGML_OP_MUL, BINARY},
    {GGML_OP_DIV, BINARY},
    {GGML_OP_SQR, MAP},
    {GGML_OP_SQRT, MAP},
    {GGML_OP_LOG, MAP},
    {GGML_OP_SIN, MAP},
    {GGML_OP_COS, MAP},
    {GGML_OP_SCALE, MAP},
    {GGML_OP_CLAMP, MAP},
    {GGML_OP_LEAKY_RELU, MAP},
    {GGML_OP_FILL, {.supports = fill_supports, .run = map_run}},
    {GGML_OP_UNARY, {.supports = unary_supports, .run = unary_run}},
    {GGML_OP_GLU, {.supports = glu_supports, .run = glu_run}},
    GPU_OPS_END,
};

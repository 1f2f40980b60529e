// SPDX-License-Identifier: MIT
// ops_eltwise.c: constructors of elementwise ops that have their own GGML_OP.
// The functions of GGML_OP_UNARY, except xielu, are in ops_unary.c.
//
// op_params: acc [nb1, nb2, nb3, offset, inplace], scale [s, b], clamp [min, max], leaky_relu [slope], fill [c], tri [kind], xielu
// [GGML_UNARY_OP_XIELU, beta + softplus_f32(alpha_n), softplus_f32(alpha_p), beta, eps]; the other ops have none.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <limits.h>
#include <math.h>

// Rows are dense and evenly spaced. Padding between rows is allowed.
static bool is_padded_1d(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type) && t->nb[2] == t->nb[1] * (size_t) t->ne[1] &&
           t->nb[3] == t->nb[2] * (size_t) t->ne[2];
}

// ---- one source, no parameter ----

static struct ggml_tensor *map_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_op op, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    return BERTH_OP(berth_like_or_view(ctx, func, a, inplace), op, a);
}

#define MAP(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return map_new(ctx, __func__, a, op, false); \
    } \
    struct ggml_tensor *ggml_##name##_inplace(struct ggml_context *ctx, struct ggml_tensor *a) { \
        return map_new(ctx, __func__, a, op, true); \
    }

MAP(dup, GGML_OP_DUP)
MAP(sqr, GGML_OP_SQR)
MAP(sqrt, GGML_OP_SQRT)
MAP(log, GGML_OP_LOG)
MAP(sin, GGML_OP_SIN)
MAP(cos, GGML_OP_COS)

// ---- two sources, the second repeated into the first ----

static struct ggml_tensor *binary(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_op op, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_REQUIRE_AS(
        ctx, func, ggml_can_repeat(b, a), "b " BERTH_SHAPE " cannot be repeated into a " BERTH_SHAPE, BERTH_NE(b), BERTH_NE(a));
    return BERTH_OP(berth_like_or_view(ctx, func, a, inplace), op, a, b);
}

#define BINARY(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) { \
        return binary(ctx, __func__, a, b, op, false); \
    } \
    struct ggml_tensor *ggml_##name##_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) { \
        return binary(ctx, __func__, a, b, op, true); \
    }

BINARY(add, GGML_OP_ADD)
BINARY(sub, GGML_OP_SUB)
BINARY(mul, GGML_OP_MUL)
BINARY(div, GGML_OP_DIV)

struct ggml_tensor *ggml_add_cast(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, enum ggml_type type) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[0] == b->ne[0] && ggml_can_repeat(b, a),
        "b " BERTH_SHAPE " cannot be repeated row by row into a " BERTH_SHAPE, BERTH_NE(b), BERTH_NE(a));
    BERTH_REQUIRE(ctx, ggml_is_quantized(a->type) || a->type == GGML_TYPE_F16 || a->type == GGML_TYPE_BF16,
        "a is %s, it must be quantised, f16 or bf16", ggml_type_name(a->type));
    return BERTH_OP(berth_tensor_new(ctx, __func__, type, GGML_MAX_DIMS, a->ne), GGML_OP_ADD, a, b);
}

// result[:, i, j, l] = a[:, i, j, l] + b[:, ids[i, j]]. As in ggml, a may have a fourth extent.
struct ggml_tensor *ggml_add_id(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *ids) {
    BERTH_SOURCES(ctx, a, b, ids);
    BERTH_REQUIRE(ctx, a->ne[0] == b->ne[0], "rows of a have %" PRId64 " elements, rows of b have %" PRId64, a->ne[0], b->ne[0]);
    BERTH_REQUIRE(ctx, ids->type == GGML_TYPE_I32, "ids are %s, they must be i32", ggml_type_name(ids->type));
    BERTH_REQUIRE(ctx, a->ne[1] == ids->ne[0] && a->ne[2] == ids->ne[1],
        "ids " BERTH_SHAPE " must have one index per row of a " BERTH_SHAPE, BERTH_NE(ids), BERTH_NE(a));
    return BERTH_OP(berth_like(ctx, __func__, a), GGML_OP_ADD_ID, a, b, ids);
}

static struct ggml_tensor *add1_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_scalar(b), "b is " BERTH_SHAPE ", it must be one element", BERTH_NE(b));
    BERTH_REQUIRE_AS(ctx, func, is_padded_1d(a), "a " BERTH_SHAPE " has strides " BERTH_STRIDE ", its rows must be evenly spaced",
        BERTH_NE(a), BERTH_NB(a));
    return BERTH_OP(berth_like_or_view(ctx, func, a, inplace), GGML_OP_ADD1, a, b);
}

struct ggml_tensor *ggml_add1(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return add1_new(ctx, __func__, a, b, false);
}

struct ggml_tensor *ggml_add1_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return add1_new(ctx, __func__, a, b, true);
}

static struct ggml_tensor *acc_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, const struct berth_part *part) {
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_REQUIRE_AS(ctx, func, ggml_nelements(b) <= ggml_nelements(a), "b " BERTH_SHAPE " has more elements than a " BERTH_SHAPE,
        BERTH_NE(b), BERTH_NE(a));
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(a), "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous",
        BERTH_NE(a), BERTH_NB(a));
    BERTH_REQUIRE_AS(ctx, func, a->type == GGML_TYPE_F32 && b->type == GGML_TYPE_F32, "a is %s and b is %s, both must be f32",
        ggml_type_name(a->type), ggml_type_name(b->type));
    return berth_op_set_part(ctx, func, a, b, GGML_OP_ACC, part);
}

struct ggml_tensor *ggml_acc(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t nb2, size_t nb3, size_t offset) {
    return acc_new(ctx, __func__, a, b, &(struct berth_part){(size_t[]){0, nb1, nb2, nb3}, offset, false});
}

struct ggml_tensor *ggml_acc_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t nb2, size_t nb3, size_t offset) {
    return acc_new(ctx, __func__, a, b, &(struct berth_part){(size_t[]){0, nb1, nb2, nb3}, offset, true});
}

// ---- one source and parameters ----

static struct ggml_tensor *scale_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, float s, float b, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, is_padded_1d(a), "a " BERTH_SHAPE " has strides " BERTH_STRIDE ", its rows must be evenly spaced",
        BERTH_NE(a), BERTH_NB(a));
    const float params[] = {s, b};
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_SCALE, params, a);
}

struct ggml_tensor *ggml_scale(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return scale_new(ctx, __func__, a, s, 0.0f, false);
}

struct ggml_tensor *ggml_scale_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return scale_new(ctx, __func__, a, s, 0.0f, true);
}

struct ggml_tensor *ggml_scale_bias(struct ggml_context *ctx, struct ggml_tensor *a, float s, float b) {
    return scale_new(ctx, __func__, a, s, b, false);
}

struct ggml_tensor *ggml_scale_bias_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float s, float b) {
    return scale_new(ctx, __func__, a, s, b, true);
}

static struct ggml_tensor *clamp_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, float min, float max, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    const float params[] = {min, max};
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_CLAMP, params, a);
}

struct ggml_tensor *ggml_clamp(struct ggml_context *ctx, struct ggml_tensor *a, float min, float max) {
    return clamp_new(ctx, __func__, a, min, max, false);
}

struct ggml_tensor *ggml_clamp_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float min, float max) {
    return clamp_new(ctx, __func__, a, min, max, true);
}

struct ggml_tensor *ggml_leaky_relu(struct ggml_context *ctx, struct ggml_tensor *a, float negative_slope, bool inplace) {
    BERTH_SOURCES(ctx, a);
    return BERTH_OP_WITH(berth_like_or_view(ctx, __func__, a, inplace), GGML_OP_LEAKY_RELU, negative_slope, a);
}

static struct ggml_tensor *fill_new(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, float c, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, a->type == GGML_TYPE_F32 || a->type == GGML_TYPE_F16, "a is %s, it must be f32 or f16",
        ggml_type_name(a->type));
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(a), "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous",
        BERTH_NE(a), BERTH_NB(a));
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_FILL, c, a);
}

struct ggml_tensor *ggml_fill(struct ggml_context *ctx, struct ggml_tensor *a, float c) {
    return fill_new(ctx, __func__, a, c, false);
}

struct ggml_tensor *ggml_fill_inplace(struct ggml_context *ctx, struct ggml_tensor *a, float c) {
    return fill_new(ctx, __func__, a, c, true);
}

struct ggml_tensor *ggml_tri(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_tri_type type) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32, "a is %s, it must be f32", ggml_type_name(a->type));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(a), "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous", BERTH_NE(a),
        BERTH_NB(a));
    BERTH_REQUIRE(ctx, a->ne[0] == a->ne[1], "a " BERTH_SHAPE " is not square", BERTH_NE(a));
    BERTH_REQUIRE(ctx, (unsigned) type <= GGML_TRI_TYPE_LOWER, "%d is not a ggml_tri_type", (int) type);
    const int32_t param = (int32_t) type;
    return BERTH_OP_WITH(berth_like(ctx, __func__, a), GGML_OP_TRI, param, a);
}

static float softplus_f32(float x) {
    return x > 20.0f ? x : logf(1.0f + expf(x));
}

struct ggml_tensor *ggml_xielu(
    struct ggml_context *ctx, struct ggml_tensor *a, float alpha_n, float alpha_p, float beta, float eps) {
    BERTH_SOURCES(ctx, a);
    const struct {
        int32_t op;
        float alpha_n, alpha_p, beta, eps;
    } params = {GGML_UNARY_OP_XIELU, beta + softplus_f32(alpha_n), softplus_f32(alpha_p), beta, eps};
    return BERTH_OP_WITH(berth_like(ctx, __func__, a), GGML_OP_UNARY, params, a);
}

// ---- shapes ----

static bool shape_broadcast(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1];
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (r->ne[i] != a->ne[i] || !berth_divides(b->ne[i], a->ne[i])) {
            return false;
        }
    }
    return true;
}

static bool shape_add_id(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1], *c = r->src[2];
    return ggml_are_same_shape(r, a) && a->ne[0] == b->ne[0] && b->ne[2] == 1 && b->ne[3] == 1 && c->type == GGML_TYPE_I32 &&
           berth_shape_is(c, a->ne[1], a->ne[2], 1, 1);
}

// ---- gradients ----
// The gradient of a repeated source is the sum over its repetitions.

// Multiplies so that the result is f32. ggml_mul gives the result the type of its first factor, so the f32 factor comes first. a
// and b have the same shape.
static struct ggml_tensor *mul_f32(struct berth_grad *g, struct ggml_tensor *a, struct ggml_tensor *b) {
    return a->type == GGML_TYPE_F32 ? ggml_mul(g->ctx, a, b) : ggml_mul(g->ctx, b, a);
}

static void grad_dup(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
}

static void grad_add(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_fold(g, g->grad, g->node->src[1]));
    }
}

// The gradient of an expert's bias is the sum over all rows that used the bias.
static void grad_add_id(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_needed(g, 1)) {
        struct ggml_tensor *ids = g->node->src[2], *grad = berth_grad_dense(g, g->grad);
        if (grad->ne[3] > 1) { // the same ids hold for every index of the fourth extent
            struct ggml_tensor *first =
                ggml_view_3d(g->ctx, grad, grad->ne[0], grad->ne[1], grad->ne[2], grad->nb[1], grad->nb[2], 0);
            grad = ggml_repeat_back(g->ctx, grad, first);
        }
        struct ggml_tensor *rows = ggml_reshape_2d(g->ctx, grad, grad->ne[0], ggml_nrows(grad));
        struct ggml_tensor *flat = ggml_reshape_1d(g->ctx, berth_grad_dense(g, ids), ggml_nelements(ids));
        berth_grad_put_add(g, 1, ggml_get_rows_back(g->ctx, rows, flat, g->node->src[1]));
    }
}

static void grad_add1(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, ggml_sum(g->ctx, g->grad));
    }
}

static void grad_acc(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_shape(g, ggml_cont(g->ctx, berth_grad_part(g)), g->node->src[1]));
    }
}

static void grad_sub(struct berth_grad *g) {
    berth_grad_put_add(g, 0, g->grad);
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_sub(g, 1, berth_grad_fold(g, g->grad, g->node->src[1]));
    }
}

static void grad_mul(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *b = g->node->src[1];
    if (berth_grad_needed(g, 0)) {
        berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, b));
    }
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_fold(g, mul_f32(g, a, g->grad), b));
    }
}

static void grad_div(struct berth_grad *g) {
    struct ggml_tensor *b = g->node->src[1];
    if (berth_grad_needed(g, 0)) {
        berth_grad_put_add(g, 0, ggml_div(g->ctx, g->grad, b));
    }
    if (berth_grad_needed(g, 1)) {
        struct ggml_tensor *all = ggml_mul(g->ctx, g->grad, ggml_div(g->ctx, g->node, b));
        berth_grad_put_sub(g, 1, berth_grad_fold(g, all, b));
    }
}

static void grad_sqr(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, mul_f32(g, g->node->src[0], g->grad), 2.0f));
}

static void grad_sqrt(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, ggml_div(g->ctx, g->grad, g->node), 0.5f));
}

static void grad_log(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_div(g->ctx, g->grad, g->node->src[0]));
}

static void grad_sin(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, ggml_cos(g->ctx, g->node->src[0])));
}

static void grad_cos(struct berth_grad *g) {
    berth_grad_put_sub(g, 0, ggml_mul(g->ctx, g->grad, ggml_sin(g->ctx, g->node->src[0])));
}

static void grad_scale(struct berth_grad *g) {
    const bool even = ggml_is_contiguous_1(g->grad) && g->grad->nb[0] == sizeof(float);
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, even ? g->grad : ggml_cont(g->ctx, g->grad), param_f32(g->node, 0)));
}

static void grad_clamp(struct berth_grad *g) {
    const float lo = param_f32(g->node, 0), hi = param_f32(g->node, 1);
    struct ggml_tensor *x = berth_grad_dense(g, g->node->src[0]);
    struct ggml_tensor *above = ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, 1.0f, -lo));
    struct ggml_tensor *below = ggml_step(g->ctx, ggml_scale_bias(g->ctx, x, -1.0f, hi));
    berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, ggml_mul(g->ctx, above, below)));
}

static void grad_leaky_relu(struct berth_grad *g) {
    const float slope = param_f32(g->node, 0);
    struct ggml_tensor *step = ggml_step(g->ctx, berth_grad_dense(g, g->node->src[0]));
    berth_grad_put_add(g, 0, ggml_mul(g->ctx, g->grad, ggml_scale_bias(g->ctx, step, 1.0f - slope, slope)));
}

static void grad_tri(struct berth_grad *g) {
    const enum ggml_tri_type type = (enum ggml_tri_type) g->node->op_params[0];
    berth_grad_put_add(g, 0, ggml_tri(g->ctx, berth_grad_dense(g, g->grad), type));
}

// ---- costs ----

// An in-place ACC reads and writes only the part to which it adds.
static void cost_acc(const struct ggml_tensor *node, struct berth_op_cost *c) {
    if (node->view_src != NULL) {
        c->flops = (double) ggml_nelements(node->src[1]);
        c->written_size = berth_elements_size(node->src[1]);
        c->read_size = 2 * c->written_size;
    }
}

// ---- rows of the op table, and the samples that they name ----

ONE(dup)
TWO(add)
SAMPLE(add_id, ggml_add_id(c, sample_shaped(c, a, N, 2, 4, 1), sample_rows(c, b), sample_shaped(c, I32, 2, 4, 1, 1)))
SAMPLE(add1, ggml_add1(c, sample_rows(c, a), sample_shaped(c, b, 1, 1, 1, 1)))
SAMPLE(acc,
    ggml_acc(c, sample_rows(c, a), sample_rows(c, a), ggml_row_size(a, N), ggml_row_size(a, N) * 4, ggml_row_size(a, N) * 4, 0))
TWO(sub)
TWO(mul)
TWO(div)
ONE(sqr)
ONE(sqrt)
ONE(log)
ONE(sin)
ONE(cos)
ONE_WITH(scale, 2.0f)
ONE_WITH(clamp, 0.0f, 1.0f)
ONE_WITH(leaky_relu, 0.1f, false)
SAMPLE(tri, ggml_tri(c, sample_shaped(c, a, N, N, 1, 1), GGML_TRI_TYPE_LOWER))
ONE_WITH(fill, 1.0f)

// clang-format off
const struct berth_op_entry berth_ops_eltwise[] = {
    {GGML_OP_DUP, {"DUP", "x", .n_src = 1, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_CONT, .partial_rule = BERTH_PARTIAL_LINEAR, .shape = berth_shape_as_many, .sample = sample_dup, .grad = grad_dup, .grad_src_mask = 1}},
    {GGML_OP_ADD, {"ADD", "x+y", .n_src = 2, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .partial_rule = BERTH_PARTIAL_ADD, .shape = shape_broadcast, .sample = sample_add, .relation = "+", .grad = grad_add, .grad_src_mask = 3}},
    {GGML_OP_ADD_ID, {"ADD_ID", "x[i]+y", .n_src = 3, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_ADD_ID, .shape = shape_add_id, .sample = sample_add_id, .relation = "+", .grad = grad_add_id, .grad_src_mask = 3}},
    {GGML_OP_ADD1, {"ADD1", "x+y", .n_src = 2, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .sample = sample_add1, .relation = "+", .grad = grad_add1, .grad_src_mask = 3}},
    {GGML_OP_ACC, {"ACC", "view(x,nb,offset)+=y->x", .n_src = 2, .family = BERTH_OP_ELEMENTWISE, .cost = cost_acc, .sample = sample_acc, .grad = grad_acc, .grad_src_mask = 3}},
    {GGML_OP_SUB, {"SUB", "x-y", .n_src = 2, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .partial_rule = BERTH_PARTIAL_ADD, .shape = shape_broadcast, .sample = sample_sub, .relation = "-", .grad = grad_sub, .grad_src_mask = 3}},
    {GGML_OP_MUL, {"MUL", "x*y", .n_src = 2, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .partial_rule = BERTH_PARTIAL_MUL_FIRST, .shape = shape_broadcast, .sample = sample_mul, .relation = "x", .grad = grad_mul, .grad_src_mask = 3}},
    {GGML_OP_DIV, {"DIV", "x/y", .n_src = 2, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .partial_rule = BERTH_PARTIAL_MUL_FIRST, .shape = shape_broadcast, .sample = sample_div, .relation = "/", .grad = grad_div, .grad_src_mask = 3}},
    {GGML_OP_SQR, {"SQR", "x^2", .n_src = 1, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_sqr, .grad = grad_sqr, .grad_src_mask = 1}},
    {GGML_OP_SQRT, {"SQRT", "√x", .n_src = 1, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_sqrt, .grad = grad_sqrt, .grad_src_mask = 1}},
    {GGML_OP_LOG, {"LOG", "log(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_log, .grad = grad_log, .grad_src_mask = 1}},
    {GGML_OP_SIN, {"SIN", "sin(x)", .n_src = 1, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_sin, .grad = grad_sin, .grad_src_mask = 1}},
    {GGML_OP_COS, {"COS", "cos(x)", .n_src = 1, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_cos, .grad = grad_cos, .grad_src_mask = 1}},
    {GGML_OP_SCALE, {"SCALE", "x*v", .n_src = 1, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .partial_rule = BERTH_PARTIAL_SCALE, .shape = berth_shape_as_source, .sample = sample_scale, .grad = grad_scale, .grad_src_mask = 1}},
    {GGML_OP_CLAMP, {"CLAMP", "clamp(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_ELEMENTWISE, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_clamp, .grad = grad_clamp, .grad_src_mask = 1}},
    {GGML_OP_LEAKY_RELU, {"LEAKY_RELU", "leaky_relu(x)", .n_src = 1, .family = BERTH_OP_ACTIVATION, .split = BERTH_SPLIT_EACH, .shape = berth_shape_as_source, .sample = sample_leaky_relu, .grad = grad_leaky_relu, .grad_src_mask = 1}},
    {GGML_OP_TRI, {"TRI", "tri(x)", .n_src = 1, .family = BERTH_OP_STATE, .sample = sample_tri, .grad = grad_tri, .grad_src_mask = 1}},
    {GGML_OP_FILL, {"FILL", "fill(x, c)", .n_src = 1, .in_place = true, .overwrites = 1, .is_flat = true, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_EACH, .sample = sample_fill}},
    BERTH_OPS_END,
};
// clang-format on

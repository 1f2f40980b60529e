// SPDX-License-Identifier: MIT
// ops_reduce.c: constructors of reductions, repetition, concatenation, sorting, and tensors from parameters.
// op_params: concat [dim], argsort [order], arange [start, stop, step], timestep_embedding [dim, max_period].

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <math.h>

// ---- sums and extrema ----

struct ggml_tensor *ggml_sum(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    const int64_t one = 1;
    return BERTH_OP(berth_tensor_new(ctx, __func__, a->type, 1, &one), GGML_OP_SUM, a);
}

static struct ggml_tensor *row_reduce_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_type type, enum ggml_op op) {
    const int64_t ne[] = {1, a->ne[1], a->ne[2], a->ne[3]};
    return BERTH_OP(berth_tensor_new(ctx, func, type, GGML_MAX_DIMS, ne), op, a);
}

struct ggml_tensor *ggml_sum_rows(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    return row_reduce_new(ctx, __func__, a, a->type, GGML_OP_SUM_ROWS);
}

struct ggml_tensor *ggml_mean(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    return row_reduce_new(ctx, __func__, a, GGML_TYPE_F32, GGML_OP_MEAN);
}

struct ggml_tensor *ggml_cumsum(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32, "a is %s, it must be f32", ggml_type_name(a->type));
    return BERTH_OP(berth_like(ctx, __func__, a), GGML_OP_CUMSUM, a);
}

struct ggml_tensor *ggml_argmax(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, ggml_is_matrix(a), "a is " BERTH_SHAPE ", it must be a matrix", BERTH_NE(a));
    BERTH_REQUIRE(ctx, a->ne[0] <= INT32_MAX, "rows have %" PRId64 " elements, their indices must fit i32", a->ne[0]);
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_I32, 1, &a->ne[1]), GGML_OP_ARGMAX, a);
}

struct ggml_tensor *ggml_count_equal(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ggml_are_same_shape(a, b), "a is " BERTH_SHAPE ", b is " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
    const int64_t one = 1;
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_I64, 1, &one), GGML_OP_COUNT_EQUAL, a, b);
}

// ---- repetition and concatenation ----

struct ggml_tensor *ggml_repeat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ggml_can_repeat(a, b), "a " BERTH_SHAPE " cannot be repeated into " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
    return BERTH_OP(berth_tensor_new(ctx, __func__, a->type, GGML_MAX_DIMS, b->ne), GGML_OP_REPEAT, a);
}

struct ggml_tensor *ggml_repeat_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    BERTH_SOURCES(ctx, a);
    const int64_t ne[] = {ne0, ne1, ne2, ne3};
    BERTH_REQUIRE(ctx,
        ggml_is_empty(a) || (ne0 % a->ne[0] == 0 && ne1 % a->ne[1] == 0 && ne2 % a->ne[2] == 0 && ne3 % a->ne[3] == 0),
        "a " BERTH_SHAPE " cannot be repeated into " BERTH_SHAPE, BERTH_NE(a), ne0, ne1, ne2, ne3);
    return BERTH_OP(berth_tensor_new(ctx, __func__, a->type, GGML_MAX_DIMS, ne), GGML_OP_REPEAT, a);
}

struct ggml_tensor *ggml_repeat_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ggml_can_repeat(b, a), "a " BERTH_SHAPE " is not a repetition of " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
    return BERTH_OP(berth_tensor_new(ctx, __func__, a->type, GGML_MAX_DIMS, b->ne), GGML_OP_REPEAT_BACK, a);
}

struct ggml_tensor *ggml_concat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int dim) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, dim >= 0 && dim < GGML_MAX_DIMS, "there is no dimension %d, only 0 to 3", dim);
    BERTH_REQUIRE(ctx, a->type == b->type, "a is %s, b is %s", ggml_type_name(a->type), ggml_type_name(b->type));
    int64_t ne[GGML_MAX_DIMS];
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        BERTH_REQUIRE(ctx, i == dim || a->ne[i] == b->ne[i],
            "a " BERTH_SHAPE " and b " BERTH_SHAPE " may differ in dimension %d only", BERTH_NE(a), BERTH_NE(b), dim);
        ne[i] = a->ne[i];
    }
    BERTH_REQUIRE(ctx, berth_add_i64_ok(a->ne[dim], b->ne[dim], &ne[dim]), "%" PRId64 " and %" PRId64 " elements exceed 63 bits",
        a->ne[dim], b->ne[dim]);
    const int32_t param = dim;
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, a->type, GGML_MAX_DIMS, ne), GGML_OP_CONCAT, param, a, b);
}

// ---- sorting ----

static struct ggml_tensor *argsort_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_sort_order order) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, a->ne[0] <= INT32_MAX, "rows have %" PRId64 " elements, their indices must fit i32", a->ne[0]);
    const int32_t param = (int32_t) order;
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, GGML_TYPE_I32, GGML_MAX_DIMS, a->ne), GGML_OP_ARGSORT, param, a);
}

struct ggml_tensor *ggml_argsort(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_sort_order order) {
    BERTH_REQUIRE(ctx, (unsigned) order <= GGML_SORT_ORDER_DESC, "%d is not a ggml_sort_order", (int) order);
    return argsort_new(ctx, __func__, a, order);
}

// Largest first: a full sort and a view of its start.
struct ggml_tensor *ggml_argsort_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, k >= 0 && a->ne[0] >= k, "k is %d, must be 0 to %" PRId64 ", the length of a row", k, a->ne[0]);
    struct ggml_tensor *order = argsort_new(ctx, __func__, a, GGML_SORT_ORDER_DESC);
    BERTH_SOURCES(ctx, order);
    return ggml_view_4d(ctx, order, k, order->ne[1], order->ne[2], order->ne[3], order->nb[1], order->nb[2], order->nb[3], 0);
}

// The order of the indices is undefined.
struct ggml_tensor *ggml_top_k(struct ggml_context *ctx, struct ggml_tensor *a, int k) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, k >= 0 && a->ne[0] >= k, "k is %d, must be 0 to %" PRId64 ", the length of a row", k, a->ne[0]);
    const int64_t ne[] = {k, a->ne[1], a->ne[2], a->ne[3]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_I32, GGML_MAX_DIMS, ne), GGML_OP_TOP_K, a);
}

// ---- tensors from parameters ----

struct ggml_tensor *ggml_arange(struct ggml_context *ctx, float start, float stop, float step) {
    BERTH_REQUIRE(ctx, stop > start, "the range from %g to %g is empty", (double) start, (double) stop);
    const float n = ceilf((stop - start) / step);
    BERTH_REQUIRE(ctx, n >= 0.0f && n < 0x1p62f, "steps of %g from %g to %g give no valid number of elements", (double) step,
        (double) start, (double) stop);
    const int64_t ne = (int64_t) n;
    const float params[] = {start, stop, step};
    return berth_op_set(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 1, &ne), GGML_OP_ARANGE, params, sizeof params, NULL, 0);
}

struct ggml_tensor *ggml_timestep_embedding(struct ggml_context *ctx, struct ggml_tensor *timesteps, int dim, int max_period) {
    BERTH_SOURCES(ctx, timesteps);
    const int64_t ne[] = {dim, timesteps->ne[0]};
    const int32_t params[] = {dim, max_period};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 2, ne), GGML_OP_TIMESTEP_EMBEDDING, params, timesteps);
}

// ---- shapes ----

static bool shape_sum_rows(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0];
    return berth_shape_is(r, 1, a->ne[1], a->ne[2], a->ne[3]);
}

static bool shape_repeat(const struct ggml_tensor *r) {
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (!berth_divides(r->src[0]->ne[i], r->ne[i])) {
            return false;
        }
    }
    return true;
}

static bool shape_concat(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1];
    const int32_t dim = r->op_params[0];
    if (dim < 0 || dim >= GGML_MAX_DIMS || a->type != b->type || r->type != a->type) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (i == dim ? r->ne[i] != a->ne[i] + b->ne[i] : r->ne[i] != a->ne[i] || b->ne[i] != a->ne[i]) {
            return false;
        }
    }
    return true;
}

static bool shape_argsort(const struct ggml_tensor *r) {
    return ggml_are_same_shape(r, r->src[0]) && r->type == GGML_TYPE_I32;
}

// ---- gradients ----
// The gradient of a sum is repeated, the gradient of a repetition is summed.

static void grad_sum(struct berth_grad *g) {
    berth_grad_put_add1(g, 0, g->grad);
}

static void grad_sum_rows(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_repeat(g->ctx, g->grad, g->node->src[0]));
}

static void grad_mean(struct berth_grad *g) {
    const float each = 1.0f / (float) g->node->src[0]->ne[0];
    berth_grad_put_add1(g, 0, ggml_scale(g->ctx, berth_grad_dense(g, g->grad), each));
}

static void grad_cumsum(struct berth_grad *g) {
    struct ggml_tensor *grad = berth_grad_dense(g, g->grad);
    struct ggml_tensor *before = ggml_sub(g->ctx, ggml_cumsum(g->ctx, grad), grad);
    struct ggml_tensor *all = ggml_repeat(g->ctx, ggml_sum_rows(g->ctx, grad), grad);
    berth_grad_put_add(g, 0, ggml_sub(g->ctx, all, before));
}

static void grad_repeat(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_repeat_back(g->ctx, g->grad, g->node->src[0]));
}

static void grad_repeat_back(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_repeat(g->ctx, g->grad, g->node->src[0]));
}

static void grad_concat(struct berth_grad *g) {
    const int dim = g->node->op_params[0];
    size_t offset = 0;
    for (int i = 0; i < 2; i++) {
        const struct ggml_tensor *src = g->node->src[i];
        if (berth_grad_needed(g, i)) {
            struct ggml_tensor *part = ggml_view_4d(g->ctx, g->grad, src->ne[0], src->ne[1], src->ne[2], src->ne[3],
                g->grad->nb[1], g->grad->nb[2], g->grad->nb[3], offset);
            berth_grad_put_add(g, i, ggml_cont(g->ctx, part));
        }
        offset += (size_t) src->ne[dim] * g->grad->nb[dim];
    }
}

// ---- rows of the op table, and the samples that they name ----

ONE(sum)
ONE(sum_rows)
ONE(cumsum)
ONE(mean)
ONE(argmax)
TWICE(count_equal)
SAMPLE(repeat, ggml_repeat(c, sample_rows(c, a), sample_shaped(c, a, N, 8, 1, 1)))
SAMPLE(repeat_back, ggml_repeat_back(c, sample_shaped(c, a, N, 8, 1, 1), sample_rows(c, a)))
SAMPLE(concat, ggml_concat(c, sample_rows(c, a), sample_rows(c, a), 1))
SAMPLE(arange, a == F32 ? ggml_arange(c, 0.0f, 8.0f, 1.0f) : NULL)
SAMPLE(timestep_embedding, ggml_timestep_embedding(c, sample_shaped(c, a, N, 1, 1, 1), 32, 10000))
ONE_WITH(argsort, GGML_SORT_ORDER_ASC)
ONE_WITH(top_k, 2)

// clang-format off
const struct berth_op_entry berth_ops_reduce[] = {
    {GGML_OP_SUM, {"SUM", "Σx", .n_src = 1, .family = BERTH_OP_REDUCE, .sample = sample_sum, .grad = grad_sum, .grad_src_mask = 1}},
    {GGML_OP_SUM_ROWS, {"SUM_ROWS", "Σx_k", .n_src = 1, .family = BERTH_OP_REDUCE, .split = BERTH_SPLIT_ROWS, .partial_rule = BERTH_PARTIAL_LINEAR, .shape = shape_sum_rows, .sample = sample_sum_rows, .grad = grad_sum_rows, .grad_src_mask = 1}},
    {GGML_OP_CUMSUM, {"CUMSUM", "cumsum(x)", .n_src = 1, .may_expand = true, .family = BERTH_OP_REDUCE, .split = BERTH_SPLIT_ROWS, .partial_rule = BERTH_PARTIAL_LINEAR, .sample = sample_cumsum, .grad = grad_cumsum, .grad_src_mask = 1}},
    {GGML_OP_MEAN, {"MEAN", "Σx/n", .n_src = 1, .family = BERTH_OP_REDUCE, .split = BERTH_SPLIT_ROWS, .partial_rule = BERTH_PARTIAL_LINEAR, .shape = shape_sum_rows, .sample = sample_mean, .grad = grad_mean, .grad_src_mask = 1}},
    {GGML_OP_ARGMAX, {"ARGMAX", "argmax(x)", .n_src = 1, .is_flat = true, .family = BERTH_OP_REDUCE, .sample = sample_argmax}},
    {GGML_OP_COUNT_EQUAL, {"COUNT_EQUAL", "count_equal(x)", .n_src = 2, .is_flat = true, .family = BERTH_OP_REDUCE, .sample = sample_count_equal}},
    {GGML_OP_REPEAT, {"REPEAT", "repeat(x)", .n_src = 1, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_EACH, .shape = shape_repeat, .sample = sample_repeat, .grad = grad_repeat, .grad_src_mask = 1}},
    {GGML_OP_REPEAT_BACK, {"REPEAT_BACK", "repeat_back(x)", .n_src = 1, .family = BERTH_OP_TRAIN, .split = BERTH_SPLIT_KEEP, .sample = sample_repeat_back, .grad = grad_repeat_back, .grad_src_mask = 1}},
    {GGML_OP_CONCAT, {"CONCAT", "concat(x, y)", .n_src = 2, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_CONCAT, .shape = shape_concat, .sample = sample_concat, .grad = grad_concat, .grad_src_mask = 3}},
    {GGML_OP_ARANGE, {"ARANGE", "arange(start, stop, step)", .n_src = 0, .is_flat = true, .family = BERTH_OP_MOVE, .sample = sample_arange}},
    {GGML_OP_TIMESTEP_EMBEDDING, {"TIMESTEP_EMBEDDING", "timestep_embedding(timesteps, dim, max_period)", .n_src = 1, .family = BERTH_OP_MOVE, .sample = sample_timestep_embedding}},
    {GGML_OP_ARGSORT, {"ARGSORT", "argsort(x)", .n_src = 1, .may_expand = true, .is_flat = true, .family = BERTH_OP_REDUCE, .split = BERTH_SPLIT_ROWS, .shape = shape_argsort, .sample = sample_argsort}},
    {GGML_OP_TOP_K, {"TOP_K", "top_k(x)", .n_src = 1, .may_expand = true, .is_flat = true, .family = BERTH_OP_REDUCE, .split = BERTH_SPLIT_ROWS, .sample = sample_top_k}},
    BERTH_OPS_END,
};
// clang-format on

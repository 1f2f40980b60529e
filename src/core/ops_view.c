// SPDX-License-Identifier: MIT
// ops_view.c: constructors of views (reshape, view, permute, transpose) and copies (cpy, cast, cont, set).
// The name of a result is the name of its source and a suffix for the op.
// op_params: view [offset, 64 bits], permute [axis0, axis1, axis2, axis3], set [nb1, nb2, nb3, offset, inplace].

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"
#include "core/span.h"

// Returns true if the product of the extents is n. Returns false if an extent is negative or the product overflows.
static bool has_elements(const int64_t ne[GGML_MAX_DIMS], int64_t n) {
    int64_t product = 1;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (ne[i] < 0 || !berth_mul_i64_ok(product, ne[i], &product)) {
            return false;
        }
    }
    return product == n;
}

// ---- views of the same data ----

static struct ggml_tensor *reshape_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, const int64_t ne[GGML_MAX_DIMS]) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(a), "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous",
        BERTH_NE(a), BERTH_NB(a));
    BERTH_REQUIRE_AS(ctx, func, has_elements(ne, ggml_nelements(a)),
        "a " BERTH_SHAPE " has not the same number of elements as " BERTH_SHAPE, BERTH_NE(a), ne[0], ne[1], ne[2], ne[3]);
    struct ggml_tensor *result = berth_view_new(ctx, func, a, GGML_MAX_DIMS, ne, 0);
    berth_name_suffix(result, a, " (reshaped)");
    return BERTH_OP(result, GGML_OP_RESHAPE, a);
}

// Only the shape of b is used.
struct ggml_tensor *ggml_reshape(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    return reshape_new(ctx, __func__, a, b->ne);
}

struct ggml_tensor *ggml_reshape_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0) {
    return reshape_new(ctx, __func__, a, (int64_t[]){ne0, 1, 1, 1});
}

struct ggml_tensor *ggml_reshape_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1) {
    return reshape_new(ctx, __func__, a, (int64_t[]){ne0, ne1, 1, 1});
}

struct ggml_tensor *ggml_reshape_3d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2) {
    return reshape_new(ctx, __func__, a, (int64_t[]){ne0, ne1, ne2, 1});
}

struct ggml_tensor *ggml_reshape_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return reshape_new(ctx, __func__, a, (int64_t[]){ne0, ne1, ne2, ne3});
}

// Returns true if the offset of the view's last byte overflows. A view that ends after its source is detected later, when the
// graph is computed.
static bool strides_wrap(const struct ggml_tensor *a, int n_dims, const int64_t *ne, const size_t nb[GGML_MAX_DIMS]) {
    if (BERTH_LIKELY((nb[1] | nb[2] | nb[3]) >> 34 == 0)) {
        return false; // the source's number of elements bounds the extents, so such small strides cannot overflow
    }
    struct ggml_tensor t = {.type = a->type, .ne = {1, 1, 1, 1}, .nb = {a->nb[0], nb[1], nb[2], nb[3]}};
    for (int i = 0; i < n_dims; i++) {
        t.ne[i] = ne[i] > 0 ? ne[i] : 1;
    }
    return berth_span(&t) == BERTH_SPAN_INVALID;
}

static bool is_sound(const struct ggml_tensor *t) {
    return t != NULL && !berth_poisoned(t);
}

// If part->nb is NULL, the view is contiguous.
static struct ggml_tensor *view_new(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, int n_dims,
    const int64_t *ne, const struct berth_part *part) {
    const size_t *nb = part->nb, offset = part->offset;
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, nb == NULL || !strides_wrap(a, n_dims, ne, nb),
        "with strides %zu, %zu, %zu, the view ends at an offset that does not fit 63 bits", nb[1], nb[2], nb[3]);
    struct ggml_tensor *result = berth_view_new(ctx, func, a, n_dims, ne, offset);
    if (nb != NULL && is_sound(result)) {
        memcpy(&result->nb[1], &nb[1], 3 * sizeof nb[1]);
    }
    berth_name_suffix(result, a, " (view)");
    return BERTH_OP_WITH(result, GGML_OP_VIEW, offset, a);
}

struct ggml_tensor *ggml_view_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, size_t offset) {
    return view_new(ctx, __func__, a, 1, &ne0, &(struct berth_part){NULL, offset, true});
}

struct ggml_tensor *ggml_view_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, size_t nb1, size_t offset) {
    const size_t nb[] = {0, nb1, nb1 * (size_t) ne1, nb1 * (size_t) ne1};
    return view_new(ctx, __func__, a, 2, (int64_t[]){ne0, ne1}, &(struct berth_part){nb, offset, true});
}

struct ggml_tensor *ggml_view_3d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2,
    size_t nb1, size_t nb2, size_t offset) {
    const size_t nb[] = {0, nb1, nb2, nb2 * (size_t) ne2};
    return view_new(ctx, __func__, a, 3, (int64_t[]){ne0, ne1, ne2}, &(struct berth_part){nb, offset, true});
}

struct ggml_tensor *ggml_view_4d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2,
    int64_t ne3, size_t nb1, size_t nb2, size_t nb3, size_t offset) {
    const size_t nb[] = {0, nb1, nb2, nb3};
    return view_new(ctx, __func__, a, 4, (int64_t[]){ne0, ne1, ne2, ne3}, &(struct berth_part){nb, offset, true});
}

// Dimension i of a becomes dimension axis_i of the result.
struct ggml_tensor *ggml_permute(struct ggml_context *ctx, struct ggml_tensor *a, int axis0, int axis1, int axis2, int axis3) {
    BERTH_SOURCES(ctx, a);
    const int32_t axes[] = {axis0, axis1, axis2, axis3};
    unsigned seen = 0;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        BERTH_REQUIRE(ctx, axes[i] >= 0 && axes[i] < GGML_MAX_DIMS, "axis%d is %d, must be 0 to 3", i, axes[i]);
        seen |= 1u << axes[i];
    }
    BERTH_REQUIRE(ctx, seen == 0xF, "axes %d, %d, %d, %d: each dimension must occur once", axis0, axis1, axis2, axis3);
    struct ggml_tensor *result = berth_view_new(ctx, __func__, a, GGML_MAX_DIMS, a->ne, 0);
    if (is_sound(result)) {
        for (int i = 0; i < GGML_MAX_DIMS; i++) {
            result->ne[axes[i]] = a->ne[i];
            result->nb[axes[i]] = a->nb[i];
        }
        berth_name_suffix(result, a, " (permuted)");
    }
    return BERTH_OP_WITH(result, GGML_OP_PERMUTE, axes, a);
}

struct ggml_tensor *ggml_transpose(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    struct ggml_tensor *result = berth_view_new(ctx, __func__, a, GGML_MAX_DIMS, a->ne, 0);
    if (is_sound(result)) {
        memcpy(result->nb, a->nb, sizeof result->nb);
        result->ne[0] = a->ne[1];
        result->ne[1] = a->ne[0];
        result->nb[0] = a->nb[1];
        result->nb[1] = a->nb[0];
        berth_name_suffix(result, a, " (transposed)");
    }
    return BERTH_OP(result, GGML_OP_TRANSPOSE, a);
}

// ---- copies ----

// Values are converted to b's type. The result is a view of b.
struct ggml_tensor *ggml_cpy(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, ggml_nelements(a) == ggml_nelements(b),
        "a " BERTH_SHAPE " and b " BERTH_SHAPE " differ in their number of elements", BERTH_NE(a), BERTH_NE(b));
    struct ggml_tensor *result = ggml_view_tensor(ctx, b);
    if (b->name[0] != '\0') {
        berth_name_suffix(result, b, " (copy of ");
        berth_name_suffix(result, result, a->name);
        berth_name_suffix(result, result, ")");
    } else {
        berth_name_suffix(result, a, " (copy)");
    }
    return BERTH_OP(result, GGML_OP_CPY, a, b);
}

// src[1] is the result itself, so that the node looks like any other CPY.
struct ggml_tensor *ggml_cast(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_type type) {
    BERTH_SOURCES(ctx, a);
    struct ggml_tensor *result = berth_tensor_new(ctx, __func__, type, GGML_MAX_DIMS, a->ne);
    berth_name_suffix(result, a, " (copy)");
    return BERTH_OP(result, GGML_OP_CPY, a, result);
}

static struct ggml_tensor *cont_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, const int64_t ne[GGML_MAX_DIMS]) {
    struct ggml_tensor *result = berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, ne);
    berth_name_suffix(result, a, " (cont)");
    return BERTH_OP(result, GGML_OP_CONT, a);
}

struct ggml_tensor *ggml_cont(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    return cont_new(ctx, __func__, a, a->ne);
}

static struct ggml_tensor *cont_as_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, const int64_t ne[GGML_MAX_DIMS]) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, has_elements(ne, ggml_nelements(a)),
        "a " BERTH_SHAPE " has not the same number of elements as " BERTH_SHAPE, BERTH_NE(a), ne[0], ne[1], ne[2], ne[3]);
    return cont_new(ctx, func, a, ne);
}

struct ggml_tensor *ggml_cont_1d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0) {
    return cont_as_new(ctx, __func__, a, (int64_t[]){ne0, 1, 1, 1});
}

struct ggml_tensor *ggml_cont_2d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1) {
    return cont_as_new(ctx, __func__, a, (int64_t[]){ne0, ne1, 1, 1});
}

struct ggml_tensor *ggml_cont_3d(struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2) {
    return cont_as_new(ctx, __func__, a, (int64_t[]){ne0, ne1, ne2, 1});
}

struct ggml_tensor *ggml_cont_4d(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return cont_as_new(ctx, __func__, a, (int64_t[]){ne0, ne1, ne2, ne3});
}

// ---- writing into a part of a tensor ----

static struct ggml_tensor *set_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, const struct berth_part *part) {
    const size_t offset = part->offset;
    BERTH_REQUIRE_AS(ctx, func, ggml_nelements(a) >= ggml_nelements(b), "b " BERTH_SHAPE " has more elements than a " BERTH_SHAPE,
        BERTH_NE(b), BERTH_NE(a));
    BERTH_REQUIRE_AS(ctx, func, offset < (size_t) 1 << 30, "offset %zu, must be below 2^30", offset);
    return berth_op_set_part(ctx, func, a, b, GGML_OP_SET, part);
}

#define SET(name, inplace) \
    struct ggml_tensor *ggml_set##name(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, \
        size_t nb2, size_t nb3, size_t offset) { \
        BERTH_SOURCES(ctx, a, b); \
        return set_new(ctx, __func__, a, b, &(struct berth_part){(size_t[]){0, nb1, nb2, nb3}, offset, inplace}); \
    } \
    struct ggml_tensor *ggml_set_1d##name( \
        struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t offset) { \
        BERTH_SOURCES(ctx, a, b); \
        return set_new(ctx, __func__, a, b, &(struct berth_part){a->nb, offset, inplace}); \
    } \
    struct ggml_tensor *ggml_set_2d##name( \
        struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, size_t nb1, size_t offset) { \
        BERTH_SOURCES(ctx, a, b); \
        return set_new(ctx, __func__, a, b, &(struct berth_part){(size_t[]){0, nb1, a->nb[2], a->nb[3]}, offset, inplace}); \
    }

SET(, false)
SET(_inplace, true)

// ---- gradients ----

// The gradient of each source is a view of the node's gradient, or of a part of it.

struct ggml_tensor *berth_grad_part(struct berth_grad *g) {
    const struct ggml_tensor *b = g->node->src[1];
    const int32_t *p = g->node->op_params;
    return ggml_view_4d(g->ctx, berth_grad_dense(g, g->grad), b->ne[0], b->ne[1], b->ne[2], b->ne[3], (size_t) p[0],
        (size_t) p[1], (size_t) p[2], (size_t) p[3]);
}

// The overwritten source gets no gradient.
static void grad_cpy(struct berth_grad *g) {
    berth_grad_put_add(g, 0, berth_grad_shape(g, g->grad, g->node->src[0]));
}

static void grad_cont(struct berth_grad *g) {
    const bool same = ggml_are_same_shape(g->grad, g->node->src[0]);
    berth_grad_put_add(g, 0, same ? g->grad : berth_grad_shape(g, g->grad, g->node->src[0]));
}

static void grad_reshape(struct berth_grad *g) {
    berth_grad_put_add(g, 0, berth_grad_shape(g, g->grad, g->node->src[0]));
}

// The gradient is added to the gradient of the first contiguous tensor in the chain of views. Only the gradient of a contiguous
// tensor has the layout of its tensor, so that the strides and the offset of the view are valid in the gradient.
static void grad_view(struct berth_grad *g) {
    const struct ggml_tensor *node = g->node;
    struct ggml_tensor *to = node->src[0];
    while (!ggml_is_contiguous(to) && berth_op_info(to->op)->is_view && to->src[0] != NULL) {
        to = to->src[0];
    }
    const size_t size = ggml_type_size(to->type);
    const size_t offset = node->view_offs - to->view_offs;
    if (!ggml_is_contiguous(to) || ggml_blck_size(to->type) != 1 || (node->nb[0] != size && node->ne[0] > 1)) {
        berth_grad_refuse(g, "not supported for a view with strides " BERTH_STRIDE " of a tensor with strides " BERTH_STRIDE,
            BERTH_NB(node), BERTH_NB(to));
        return;
    }
    const size_t f32 = sizeof(float);
    const size_t nb[] = {f32, node->nb[1] / size * f32, node->nb[2] / size * f32, node->nb[3] / size * f32};
    berth_grad_put_acc(g, to, g->grad, nb, offset / size * f32);
}

static void grad_permute(struct berth_grad *g) {
    int back[GGML_MAX_DIMS];
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        back[g->node->op_params[i]] = i;
    }
    berth_grad_put_add(g, 0, ggml_permute(g->ctx, g->grad, back[0], back[1], back[2], back[3]));
}

static void grad_transpose(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_transpose(g->ctx, g->grad));
}

static void grad_set(struct berth_grad *g) {
    struct ggml_tensor *part = berth_grad_part(g);
    const int32_t *p = g->node->op_params;
    if (berth_grad_needed(g, 0)) {
        struct ggml_tensor *rest = ggml_acc(g->ctx, berth_grad_dense(g, g->grad), ggml_neg(g->ctx, part), (size_t) p[0],
            (size_t) p[1], (size_t) p[2], (size_t) p[3]);
        berth_grad_put_add(g, 0, rest);
    }
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_shape(g, ggml_cont(g->ctx, part), g->node->src[1]));
    }
}

// ---- costs ----

static void cost_set(const struct ggml_tensor *node, struct berth_op_cost *c) {
    if (node->view_src != NULL) {
        c->read_size = c->written_size = berth_elements_size(node->src[1]);
    }
}

// ---- rows of the op table, and the samples that they name ----

SAMPLE(set,
    ggml_set(c, sample_rows(c, a), sample_rows(c, a), ggml_row_size(a, N), ggml_row_size(a, N) * 4, ggml_row_size(a, N) * 4, 0))
SAMPLE(cpy, ggml_cpy(c, sample_rows(c, a), sample_rows(c, b)))
ONE(cont)
ONE_WITH(reshape_2d, N, 4)
ONE_WITH(view_1d, N, 0)
ONE_WITH(permute, 0, 2, 1, 3)
ONE(transpose)

// clang-format off
const struct berth_op_entry berth_ops_view[] = {
    {GGML_OP_NONE, {"NONE", "none", .n_src = 0, .is_empty = true, .is_flat = true, .family = BERTH_OP_INPUT}},
    {GGML_OP_SET, {"SET", "y-\\>view(x)", .n_src = 2, .family = BERTH_OP_MOVE, .cost = cost_set, .sample = sample_set, .grad = grad_set, .grad_src_mask = 3}},
    {GGML_OP_CPY, {"CPY", "x-\\>y", .n_src = 2, .overwrites = 2, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_CPY, .shape = berth_shape_as_many, .n_needed = 1, .sample = sample_cpy, .relation = "to", .grad = grad_cpy, .grad_src_mask = 1}},
    {GGML_OP_CONT, {"CONT", "cont(x)", .n_src = 1, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_CONT, .partial_rule = BERTH_PARTIAL_LINEAR, .shape = berth_shape_as_many, .sample = sample_cont, .grad = grad_cont, .grad_src_mask = 1}},
    {GGML_OP_RESHAPE, {"RESHAPE", "reshape(x)", .n_src = 1, .is_view = true, .is_empty = true, .family = BERTH_OP_MOVE, .sample = sample_reshape_2d, .grad = grad_reshape, .grad_src_mask = 1}},
    {GGML_OP_VIEW, {"VIEW", "view(x)", .n_src = 1, .is_view = true, .is_empty = true, .family = BERTH_OP_MOVE, .sample = sample_view_1d, .grad = grad_view, .grad_src_mask = 1}},
    {GGML_OP_PERMUTE, {"PERMUTE", "permute(x)", .n_src = 1, .is_view = true, .is_empty = true, .family = BERTH_OP_MOVE, .sample = sample_permute, .grad = grad_permute, .grad_src_mask = 1}},
    {GGML_OP_TRANSPOSE, {"TRANSPOSE", "transpose(x)", .n_src = 1, .is_view = true, .is_empty = true, .family = BERTH_OP_MOVE, .sample = sample_transpose, .grad = grad_transpose, .grad_src_mask = 1}},
    BERTH_OPS_END,
};
// clang-format on

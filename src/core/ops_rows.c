// SPDX-License-Identifier: MIT
// ops_rows.c: constructors of ops on rows: get and set rows, diagonals, masks, softmax, roll, pad, interpolate.
// op_params: diag_mask [n_past], soft_max and its gradient [scale, max_bias], roll [shift0..3], pad [left0, right0, .., right3,
// circular], pad_reflect_1d [left, right], interpolate [mode and flags].

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

static bool is_multiple(int64_t n, int64_t d) {
    return d != 0 && n % d == 0;
}

// ---- reading and writing selected rows ----

// The result is f32, or i32 if a is i32.
struct ggml_tensor *ggml_get_rows(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[2] == b->ne[1] && a->ne[3] == b->ne[2] && b->ne[3] == 1,
        "row indices " BERTH_SHAPE " do not match a " BERTH_SHAPE, BERTH_NE(b), BERTH_NE(a));
    BERTH_REQUIRE(ctx, b->type == GGML_TYPE_I32, "row indices are %s, they must be i32", ggml_type_name(b->type));
    const enum ggml_type type = a->type == GGML_TYPE_I32 ? GGML_TYPE_I32 : GGML_TYPE_F32;
    const int64_t ne[] = {a->ne[0], b->ne[0], b->ne[1], b->ne[2]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, type, GGML_MAX_DIMS, ne), GGML_OP_GET_ROWS, a, b);
}

// Only the shape of c is used.
struct ggml_tensor *ggml_get_rows_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c) {
    BERTH_SOURCES(ctx, a, b, c);
    BERTH_REQUIRE(ctx, ggml_is_matrix(a), "a is " BERTH_SHAPE ", it must be a matrix", BERTH_NE(a));
    BERTH_REQUIRE(ctx, ggml_is_vector(b) && b->type == GGML_TYPE_I32,
        "row indices are %s " BERTH_SHAPE ", they must be an i32 vector", ggml_type_name(b->type), BERTH_NE(b));
    BERTH_REQUIRE(ctx, ggml_is_matrix(c) && a->ne[0] == c->ne[0],
        "c " BERTH_SHAPE " must be a matrix with rows as long as those of a " BERTH_SHAPE, BERTH_NE(c), BERTH_NE(a));
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 2, c->ne), GGML_OP_GET_ROWS_BACK, a, b);
}

// c: indices of the rows of a. The result is a view of a.
struct ggml_tensor *ggml_set_rows(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c) {
    BERTH_SOURCES(ctx, a, b, c);
    BERTH_REQUIRE(ctx, a->ne[0] == b->ne[0] && a->ne[2] == b->ne[2] && a->ne[3] == b->ne[3],
        "a " BERTH_SHAPE " and b " BERTH_SHAPE " may differ in their number of rows only", BERTH_NE(a), BERTH_NE(b));
    BERTH_REQUIRE(ctx,
        b->ne[1] == c->ne[0] && is_multiple(b->ne[2], c->ne[1]) && is_multiple(b->ne[3], c->ne[2]) && c->ne[3] == 1,
        "row indices " BERTH_SHAPE " do not match b " BERTH_SHAPE, BERTH_NE(c), BERTH_NE(b));
    BERTH_REQUIRE(
        ctx, b->type == GGML_TYPE_F32 || b->type == GGML_TYPE_F16, "b is %s, it must be f32 or f16", ggml_type_name(b->type));
    BERTH_REQUIRE(ctx, c->type == GGML_TYPE_I64 || c->type == GGML_TYPE_I32, "row indices are %s, they must be i64 or i32",
        ggml_type_name(c->type));
    BERTH_REQUIRE(ctx, ggml_is_contiguous_rows(a) && ggml_is_contiguous_rows(b),
        "rows of a (stride %zu) or of b (stride %zu) have holes", a->nb[0], b->nb[0]);
    return BERTH_OP(ggml_view_tensor(ctx, a), GGML_OP_SET_ROWS, b, c, a);
}

// ---- diagonals and masks ----

struct ggml_tensor *ggml_diag(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, a->ne[1] == 1, "a is " BERTH_SHAPE ", it must have one row", BERTH_NE(a));
    const int64_t ne[] = {a->ne[0], a->ne[0], a->ne[2], a->ne[3]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, a->type, GGML_MAX_DIMS, ne), GGML_OP_DIAG, a);
}

static struct ggml_tensor *diag_mask(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, enum ggml_op op, int n_past, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    const int32_t param = n_past;
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), op, param, a);
}

#define DIAG_MASK(name, op) \
    struct ggml_tensor *ggml_##name(struct ggml_context *ctx, struct ggml_tensor *a, int n_past) { \
        return diag_mask(ctx, __func__, a, op, n_past, false); \
    } \
    struct ggml_tensor *ggml_##name##_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past) { \
        return diag_mask(ctx, __func__, a, op, n_past, true); \
    }

DIAG_MASK(diag_mask_inf, GGML_OP_DIAG_MASK_INF)
DIAG_MASK(diag_mask_zero, GGML_OP_DIAG_MASK_ZERO)

// ---- softmax ----

struct soft_max_params {
    float scale, max_bias;
};

static struct ggml_tensor *soft_max(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *mask,
    struct soft_max_params params, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_SOURCE_OPT_AS(ctx, func, mask);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(a), "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous",
        BERTH_NE(a), BERTH_NB(a));
    if (mask != NULL) {
        BERTH_REQUIRE_AS(ctx, func, mask->type == GGML_TYPE_F16 || mask->type == GGML_TYPE_F32,
            "mask is %s, it must be f16 or f32", ggml_type_name(mask->type));
        BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(mask),
            "mask " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous", BERTH_NE(mask), BERTH_NB(mask));
        BERTH_REQUIRE_AS(ctx, func,
            mask->ne[0] == a->ne[0] && mask->ne[1] >= a->ne[1] && is_multiple(a->ne[2], mask->ne[2]) &&
                is_multiple(a->ne[3], mask->ne[3]),
            "mask " BERTH_SHAPE " does not cover a " BERTH_SHAPE, BERTH_NE(mask), BERTH_NE(a));
    }
    BERTH_REQUIRE_AS(
        ctx, func, mask != NULL || !(params.max_bias > 0.0f), "max_bias %g requires a mask", (double) params.max_bias);
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_SOFT_MAX, params, a, mask);
}

struct ggml_tensor *ggml_soft_max(struct ggml_context *ctx, struct ggml_tensor *a) {
    return soft_max(ctx, __func__, a, NULL, (struct soft_max_params){1.0f, 0.0f}, false);
}

struct ggml_tensor *ggml_soft_max_inplace(struct ggml_context *ctx, struct ggml_tensor *a) {
    return soft_max(ctx, __func__, a, NULL, (struct soft_max_params){1.0f, 0.0f}, true);
}

struct ggml_tensor *ggml_soft_max_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale, float max_bias) {
    return soft_max(ctx, __func__, a, mask, (struct soft_max_params){scale, max_bias}, false);
}

struct ggml_tensor *ggml_soft_max_ext_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale, float max_bias) {
    return soft_max(ctx, __func__, a, mask, (struct soft_max_params){scale, max_bias}, true);
}

// A softmax must not be computed without its sinks. The setter has no context to poison.
static void sinks_refuse(struct ggml_tensor *a) {
    static char why[] = "ggml_soft_max_add_sinks: the sinks do not match the softmax";
    a->flags |= BERTH_FLAG_POISON;
    a->extra = why;
}

void ggml_soft_max_add_sinks(struct ggml_tensor *a, struct ggml_tensor *sinks) {
    if (a == NULL || berth_poisoned(a)) {
        return;
    }
    if (sinks == NULL) {
        a->src[2] = NULL;
        return;
    }
    if (a->op != GGML_OP_SOFT_MAX || a->src[0] == NULL || a->src[2] != NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: %.63s is %s%s, sinks can be added once to a SOFT_MAX only", __func__, a->name,
            ggml_op_name(a->op), a->src[2] != NULL ? " with a third source" : "");
        sinks_refuse(a);
        return;
    }
    if (berth_poisoned(sinks) || sinks->type != GGML_TYPE_F32 || a->src[0]->ne[2] != sinks->ne[0]) {
        berth_fail(GGML_STATUS_FAILED, "%s: %" PRId64 " sinks of type %s, must be %" PRId64 " of f32", __func__, sinks->ne[0],
            ggml_type_name(sinks->type), a->src[0]->ne[2]);
        sinks_refuse(a);
        return;
    }
    a->src[2] = sinks;
}

static struct ggml_tensor *soft_max_back(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b,
    struct soft_max_params params, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a, b);
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_SOFT_MAX_BACK, params, a, b);
}

struct ggml_tensor *ggml_soft_max_ext_back(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float scale, float max_bias) {
    return soft_max_back(ctx, __func__, a, b, (struct soft_max_params){scale, max_bias}, false);
}

struct ggml_tensor *ggml_soft_max_ext_back_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, float scale, float max_bias) {
    return soft_max_back(ctx, __func__, a, b, (struct soft_max_params){scale, max_bias}, true);
}

// ---- shifting and resizing ----

struct ggml_tensor *ggml_roll(struct ggml_context *ctx, struct ggml_tensor *a, int shift0, int shift1, int shift2, int shift3) {
    BERTH_SOURCES(ctx, a);
    const int32_t shifts[] = {shift0, shift1, shift2, shift3};
    BERTH_REQUIRE(ctx, a->nb[0] == ggml_type_size(a->type), "the rows of a have holes: stride %zu", a->nb[0]);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        BERTH_REQUIRE(ctx, shifts[i] < a->ne[i] && -(int64_t) shifts[i] < a->ne[i],
            "shift%d is %d, its magnitude must be below the extent %" PRId64, i, shifts[i], a->ne[i]);
    }
    return BERTH_OP_WITH(berth_like(ctx, __func__, a), GGML_OP_ROLL, shifts, a);
}

// sides: elements to add on the left and right of each dimension. Negative numbers remove elements.
static struct ggml_tensor *pad_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, const int32_t sides[2 * GGML_MAX_DIMS], bool circular) {
    BERTH_SOURCES_AS(ctx, func, a);
    int32_t params[2 * GGML_MAX_DIMS + 1];
    int64_t ne[GGML_MAX_DIMS];
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        BERTH_REQUIRE_AS(ctx, func, berth_add_i64_ok(a->ne[i], (int64_t) sides[2 * i] + sides[2 * i + 1], &ne[i]),
            "%" PRId64 " elements padded by %d and %d exceed 63 bits", a->ne[i], sides[2 * i], sides[2 * i + 1]);
    }
    memcpy(params, sides, 2 * GGML_MAX_DIMS * sizeof params[0]);
    params[2 * GGML_MAX_DIMS] = circular;
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, ne), GGML_OP_PAD, params, a);
}

struct ggml_tensor *ggml_pad(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1, int p2, int p3) {
    return pad_new(ctx, __func__, a, (int32_t[]){0, p0, 0, p1, 0, p2, 0, p3}, false);
}

struct ggml_tensor *ggml_pad_circular(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1, int p2, int p3) {
    return pad_new(ctx, __func__, a, (int32_t[]){0, p0, 0, p1, 0, p2, 0, p3}, true);
}

struct ggml_tensor *ggml_pad_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, int lp0, int rp0, int lp1, int rp1, int lp2, int rp2, int lp3, int rp3) {
    return pad_new(ctx, __func__, a, (int32_t[]){lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3}, false);
}

struct ggml_tensor *ggml_pad_ext_circular(
    struct ggml_context *ctx, struct ggml_tensor *a, int lp0, int rp0, int lp1, int rp1, int lp2, int rp2, int lp3, int rp3) {
    return pad_new(ctx, __func__, a, (int32_t[]){lp0, rp0, lp1, rp1, lp2, rp2, lp3, rp3}, true);
}

struct ggml_tensor *ggml_pad_reflect_1d(struct ggml_context *ctx, struct ggml_tensor *a, int p0, int p1) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, p0 >= 0 && p1 >= 0 && p0 < a->ne[0] && p1 < a->ne[0],
        "padding by %d and %d, both must be less than the %" PRId64 " elements of a row", p0, p1, a->ne[0]);
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32, "a is %s, it must be f32", ggml_type_name(a->type));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(a), "a " BERTH_SHAPE " with strides " BERTH_STRIDE " is not contiguous", BERTH_NE(a),
        BERTH_NB(a));
    const int64_t ne[] = {a->ne[0] + p0 + p1, a->ne[1], a->ne[2], a->ne[3]};
    const int32_t params[] = {p0, p1};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, a->type, GGML_MAX_DIMS, ne), GGML_OP_PAD_REFLECT_1D, params, a);
}

// The low byte of mode is a ggml_scale_mode. The other bits are ggml_scale_flag.
static struct ggml_tensor *interpolate_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, const int64_t ne[GGML_MAX_DIMS], uint32_t mode) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, (mode & 0xFF) < GGML_SCALE_MODE_COUNT, "%u is not a ggml_scale_mode", (unsigned) (mode & 0xFF));
    BERTH_REQUIRE_AS(ctx, func, (mode & GGML_SCALE_FLAG_ANTIALIAS) == 0 || (mode & 0xFF) == GGML_SCALE_MODE_BILINEAR,
        "only bilinear interpolation can be antialiased, mode is %u", (unsigned) (mode & 0xFF));
    BERTH_REQUIRE_AS(ctx, func, a->type == GGML_TYPE_F32, "a is %s, it must be f32", ggml_type_name(a->type));
    const int32_t param = (int32_t) mode;
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, ne), GGML_OP_UPSCALE, param, a);
}

struct ggml_tensor *ggml_upscale(struct ggml_context *ctx, struct ggml_tensor *a, int scale_factor, enum ggml_scale_mode mode) {
    BERTH_SOURCES(ctx, a);
    int64_t ne[] = {0, 0, a->ne[2], a->ne[3]};
    BERTH_REQUIRE(ctx, scale_factor > 1, "the scale factor is %d, it must be 2 or more", scale_factor);
    BERTH_REQUIRE(ctx, berth_mul_i64_ok(a->ne[0], scale_factor, &ne[0]) && berth_mul_i64_ok(a->ne[1], scale_factor, &ne[1]),
        BERTH_SHAPE " times %d exceeds 63 bits", BERTH_NE(a), scale_factor);
    return interpolate_new(ctx, __func__, a, ne, (uint32_t) mode);
}

struct ggml_tensor *ggml_upscale_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, int ne0, int ne1, int ne2, int ne3, enum ggml_scale_mode mode) {
    return interpolate_new(ctx, __func__, a, (int64_t[]){ne0, ne1, ne2, ne3}, (uint32_t) mode);
}

struct ggml_tensor *ggml_interpolate(
    struct ggml_context *ctx, struct ggml_tensor *a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3, uint32_t mode) {
    return interpolate_new(ctx, __func__, a, (int64_t[]){ne0, ne1, ne2, ne3}, mode);
}

// ---- shapes ----

static bool shape_get_rows(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1];
    return b->type == GGML_TYPE_I32 && b->ne[3] == 1 && a->ne[2] == b->ne[1] && a->ne[3] == b->ne[2] &&
           berth_shape_is(r, a->ne[0], b->ne[0], b->ne[1], b->ne[2]);
}

static bool shape_set_rows(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1], *c = r->src[2];
    return (b->type == GGML_TYPE_I64 || b->type == GGML_TYPE_I32) && berth_shape_is(r, a->ne[0], r->ne[1], a->ne[2], a->ne[3]) &&
           b->ne[0] == a->ne[1] && berth_divides(b->ne[1], a->ne[2]) && berth_divides(b->ne[2], a->ne[3]) && b->ne[3] == 1 &&
           ggml_is_contiguous_rows(r) && ggml_is_contiguous_rows(a) && (c == NULL || ggml_are_same_shape(r, c));
}

static bool shape_soft_max(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1], *c = r->src[2];
    return ggml_are_same_shape(r, a) && ggml_is_contiguous(a) &&
           (b == NULL ||
               ((b->type == GGML_TYPE_F16 || b->type == GGML_TYPE_F32) && ggml_is_contiguous(b) && b->ne[0] == a->ne[0] &&
                   b->ne[1] >= a->ne[1] && berth_divides(b->ne[2], a->ne[2]) && berth_divides(b->ne[3], a->ne[3]))) &&
           (c == NULL || (c->type == GGML_TYPE_F32 && berth_shape_is(c, a->ne[2], 1, 1, 1)));
}

// ---- gradients: reading and writing selected rows ----

static void grad_get_rows(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0];
    if (!ggml_is_matrix(a)) {
        berth_grad_refuse(g, "the source is " BERTH_SHAPE ", the gradient requires a matrix", BERTH_NE(a));
        return;
    }
    berth_grad_put_add(g, 0, ggml_get_rows_back(g->ctx, g->grad, g->node->src[1], a));
}

static void grad_get_rows_back(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_get_rows(g->ctx, g->grad, g->node->src[1]));
}

// Overwritten rows of the target get no gradient.
static void grad_set_rows(struct berth_grad *g) {
    struct ggml_tensor *rows = g->node->src[0], *ids = g->node->src[1];
    if (berth_grad_needed(g, 0)) {
        if (rows->ne[2] != ids->ne[1] || rows->ne[3] != ids->ne[2]) {
            berth_grad_refuse(g, "not supported if indices " BERTH_SHAPE " are shared by batches of rows " BERTH_SHAPE,
                BERTH_NE(ids), BERTH_NE(rows));
            return;
        }
        struct ggml_tensor *narrow = ids->type == GGML_TYPE_I32 ? ids : ggml_cast(g->ctx, ids, GGML_TYPE_I32);
        berth_grad_put_add(g, 0, ggml_get_rows(g->ctx, g->grad, narrow));
    }
    if (berth_grad_needed(g, 2)) {
        struct ggml_tensor *none = ggml_fill(g->ctx, rows, 0.0f);
        berth_grad_put_add(g, 2, ggml_set_rows(g->ctx, ggml_cont(g->ctx, g->grad), none, ids));
    }
}

// ---- gradients: diagonals ----

static void grad_diag(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *grad = berth_grad_dense(g, g->grad);
    struct ggml_tensor *line =
        ggml_view_4d(g->ctx, grad, 1, a->ne[0], a->ne[2], a->ne[3], grad->nb[0] + grad->nb[1], grad->nb[2], grad->nb[3], 0);
    berth_grad_put_add(g, 0, berth_grad_shape(g, ggml_cont(g->ctx, line), a));
}

static void grad_diag_mask(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_diag_mask_zero(g->ctx, g->grad, g->node->op_params[0]));
}

// ---- gradients: softmax ----

struct ggml_tensor *berth_grad_of_sinks(
    struct berth_grad *g, struct ggml_tensor *y, struct ggml_tensor *grad, struct ggml_tensor *sinks) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *taken = berth_grad_one_minus(g, ggml_sum_rows(ctx, y));
    struct ggml_tensor *each = ggml_mul(ctx, taken, ggml_sum_rows(ctx, ggml_mul(ctx, y, grad)));
    struct ggml_tensor *heads = ggml_repeat_back(ctx, each, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 1, 1, y->ne[2]));
    return ggml_reshape(ctx, heads, sinks);
}

// y = exp(scale x + slope mask) / (sum over the row of exp(scale x + slope mask) + exp(sink)).
// The formula of the gradient of x contains only y, scale and the gradient of y. Mask, slopes and sink are not in the formula.
// The weight of a sink is 1 - sum(y).
static void grad_soft_max(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *y = g->node, *mask = y->src[1], *sinks = y->src[2];
    if (berth_grad_needed(g, 0)) {
        berth_grad_put_add(g, 0, ggml_soft_max_ext_back(ctx, g->grad, y, param_f32(y, 0), 0.0f));
    }
    if (berth_grad_needed(g, 1)) {
        if (param_f32(y, 1) != 0.0f || mask->ne[1] != y->ne[1]) {
            berth_grad_refuse(g, "the gradient of a mask with slopes (max_bias) or with unused rows is not implemented");
            return;
        }
        struct ggml_tensor *all = ggml_soft_max_ext_back(ctx, g->grad, y, 1.0f, 0.0f);
        berth_grad_put_add(g, 1, berth_grad_fold(g, all, mask));
    }
    if (berth_grad_needed(g, 2)) {
        berth_grad_put_sub(g, 2, berth_grad_of_sinks(g, y, g->grad, sinks));
    }
}

// ---- gradients: shifting and resizing ----

static void grad_roll(struct berth_grad *g) {
    const int32_t *s = g->node->op_params;
    berth_grad_put_add(g, 0, ggml_roll(g->ctx, berth_grad_dense(g, g->grad), -s[0], -s[1], -s[2], -s[3]));
}

static void grad_pad(struct berth_grad *g) {
    const struct ggml_tensor *a = g->node->src[0];
    const int32_t *sides = g->node->op_params;
    size_t offset = 0;
    bool cut = sides[2 * GGML_MAX_DIMS] != 0;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        cut = cut || sides[2 * i] < 0 || sides[2 * i + 1] < 0;
        offset += (size_t) sides[2 * i] * g->grad->nb[i];
    }
    if (cut) {
        berth_grad_refuse(g, "padding by a negative number and circular padding have no gradient rule");
        return;
    }
    struct ggml_tensor *inside = ggml_view_4d(
        g->ctx, g->grad, a->ne[0], a->ne[1], a->ne[2], a->ne[3], g->grad->nb[1], g->grad->nb[2], g->grad->nb[3], offset);
    berth_grad_put_add(g, 0, ggml_cont(g->ctx, inside));
}

// The sum over the copies of a pixel is average pooling times the number of copies.
static void grad_upscale(struct berth_grad *g) {
    const struct ggml_tensor *a = g->node->src[0], *y = g->node;
    const bool whole = a->ne[0] > 0 && a->ne[1] > 0 && y->ne[0] % a->ne[0] == 0 && y->ne[1] % a->ne[1] == 0 &&
                       y->ne[2] == a->ne[2] && y->ne[3] == a->ne[3];
    if (y->op_params[0] != GGML_SCALE_MODE_NEAREST || !whole) {
        berth_grad_refuse(g, "only GGML_SCALE_MODE_NEAREST with integer factors has a gradient rule");
        return;
    }
    const int f0 = (int) (y->ne[0] / a->ne[0]), f1 = (int) (y->ne[1] / a->ne[1]);
    struct ggml_tensor *mean = ggml_pool_2d(g->ctx, berth_grad_dense(g, g->grad), GGML_OP_POOL_AVG, f0, f1, f0, f1, 0, 0);
    berth_grad_put_add(g, 0, ggml_scale(g->ctx, mean, (float) f0 * (float) f1));
}

// ---- costs ----

static void cost_get_rows(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const struct ggml_tensor *table = node->src[0];
    c->read_size =
        berth_elements_size(node->src[1]) + (double) ggml_row_size(table->type, table->ne[0]) * (double) ggml_nrows(node);
}

static void cost_set_rows(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const struct ggml_tensor *rows = node->src[0];
    c->read_size = berth_elements_size(rows) + berth_elements_size(node->src[1]);
    c->written_size = (double) ggml_row_size(node->type, node->ne[0]) * (double) ggml_nrows(rows);
}

// ---- rows of the op table, and the samples that they name ----

SAMPLE(get_rows, ggml_get_rows(c, sample_rows(c, a), sample_shaped(c, I32, 4, 1, 1, 1)))
SAMPLE(get_rows_back, ggml_get_rows_back(c, sample_rows(c, a), sample_shaped(c, I32, 4, 1, 1, 1), sample_rows(c, F32)))
SAMPLE(set_rows, ggml_set_rows(c, sample_rows(c, b), sample_rows(c, a), sample_shaped(c, GGML_TYPE_I64, 4, 1, 1, 1)))
SAMPLE(diag, ggml_diag(c, sample_shaped(c, a, N, 1, 1, 1)))
ONE_WITH(diag_mask_inf, 0)
ONE_WITH(diag_mask_zero, 0)
SAMPLE(soft_max, ggml_soft_max_ext(c, sample_rows(c, a), sample_rows(c, b), 1.0f, 0.0f))
SAMPLE(soft_max_back, ggml_soft_max_ext_back(c, sample_rows(c, a), sample_rows(c, a), 1.0f, 0.0f))
ONE_WITH(upscale, 2, GGML_SCALE_MODE_NEAREST)
ONE_WITH(pad, 0, 1, 0, 0)
ONE_WITH(pad_reflect_1d, 1, 1)
ONE_WITH(roll, 1, 0, 0, 0)

// clang-format off
const struct berth_op_entry berth_ops_rows[] = {
    {GGML_OP_GET_ROWS, {"GET_ROWS", "get_rows(x)", .n_src = 2, .family = BERTH_OP_MOVE, .cost = cost_get_rows, .split = BERTH_SPLIT_GET_ROWS, .shape = shape_get_rows, .sample = sample_get_rows, .grad = grad_get_rows, .grad_src_mask = 1}},
    {GGML_OP_GET_ROWS_BACK, {"GET_ROWS_BACK", "get_rows_back(x)", .n_src = 2, .family = BERTH_OP_TRAIN, .sample = sample_get_rows_back, .grad = grad_get_rows_back, .grad_src_mask = 1}},
    {GGML_OP_SET_ROWS, {"SET_ROWS", "set_rows(x)", .n_src = 3, .family = BERTH_OP_MOVE, .cost = cost_set_rows, .split = BERTH_SPLIT_SET_ROWS, .n_needed = 2, .shape = shape_set_rows, .sample = sample_set_rows, .relation = "to", .grad = grad_set_rows, .grad_src_mask = 5}},
    {GGML_OP_DIAG, {"DIAG", "diag(x)", .n_src = 1, .family = BERTH_OP_MOVE, .sample = sample_diag, .grad = grad_diag, .grad_src_mask = 1}},
    {GGML_OP_DIAG_MASK_INF, {"DIAG_MASK_INF", "diag_mask_inf(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_ATTENTION, .shape = berth_shape_as_source, .sample = sample_diag_mask_inf, .grad = grad_diag_mask, .grad_src_mask = 1}},
    {GGML_OP_DIAG_MASK_ZERO, {"DIAG_MASK_ZERO", "diag_mask_zero(x)", .n_src = 1, .in_place = true, .family = BERTH_OP_ATTENTION, .shape = berth_shape_as_source, .sample = sample_diag_mask_zero, .grad = grad_diag_mask, .grad_src_mask = 1}},
    {GGML_OP_SOFT_MAX, {"SOFT_MAX", "soft_max(x)", .n_src = 3, .in_place = true, .family = BERTH_OP_ATTENTION, .split = BERTH_SPLIT_SOFT_MAX, .n_needed = 1, .shape = shape_soft_max, .sample = sample_soft_max, .relation = "with mask", .grad = grad_soft_max, .grad_src_mask = 7}},
    {GGML_OP_SOFT_MAX_BACK, {"SOFT_MAX_BACK", "soft_max_back(x)", .n_src = 2, .in_place = true, .family = BERTH_OP_TRAIN, .split = BERTH_SPLIT_ROWS, .sample = sample_soft_max_back}},
    {GGML_OP_UPSCALE, {"UPSCALE", "upscale(x)", .n_src = 1, .family = BERTH_OP_CONV, .sample = sample_upscale, .grad = grad_upscale, .grad_src_mask = 1}},
    {GGML_OP_PAD, {"PAD", "pad(x)", .n_src = 1, .family = BERTH_OP_MOVE, .split = BERTH_SPLIT_KEEP, .sample = sample_pad, .grad = grad_pad, .grad_src_mask = 1}},
    {GGML_OP_PAD_REFLECT_1D, {"PAD_REFLECT_1D", "pad_reflect_1d(x)", .n_src = 1, .family = BERTH_OP_MOVE, .sample = sample_pad_reflect_1d}},
    {GGML_OP_ROLL, {"ROLL", "roll(x)", .n_src = 1, .family = BERTH_OP_MOVE, .sample = sample_roll, .grad = grad_roll, .grad_src_mask = 1}},
    BERTH_OPS_END,
};
// clang-format on

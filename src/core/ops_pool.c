// SPDX-License-Identifier: MIT
// ops_pool.c: constructors for pooling, window partition, and the relative positions of windowed attention.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <limits.h>

// ---- pooling ----

// *out: the number of windows. Returns false if no window fits or the number does not fit an int64_t.
// The arithmetic is float, because pad may have a fraction. As in ggml, extents above 2^24 are therefore rounded; the rounding is
// part of the ABI.
static bool pool_extent(int64_t n, int k, int stride, float pad, int64_t *out) {
    const float windows = ((float) n + 2 * pad - (float) k) / (float) stride + 1;
    if (!(windows >= 1.0f && windows < 0x1p63f)) {
        return false;
    }
    *out = (int64_t) windows;
    return true;
}

static bool is_pool(enum ggml_op_pool op) {
    return op == GGML_OP_POOL_MAX || op == GGML_OP_POOL_AVG;
}

static bool is_int32(float x) {
    return x >= -0x1p31f && x < 0x1p31f;
}

struct ggml_tensor *ggml_pool_1d(struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_op_pool op, int k0, int s0, int p0) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, is_pool(op), "%d is not a ggml_op_pool", (int) op);
    int64_t ne[] = {0, a->ne[1], a->ne[2], a->ne[3]};
    BERTH_REQUIRE(ctx, pool_extent(a->ne[0], k0, s0, (float) p0, &ne[0]),
        "no window of %d fits into a width of %" PRId64 " (stride %d, pad %d)", k0, a->ne[0], s0, p0);
    const int32_t params[] = {(int32_t) op, k0, s0, p0};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_POOL_1D, params, a);
}

struct ggml_tensor *ggml_pool_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, enum ggml_op_pool op, int k0, int k1, int s0, int s1, float p0, float p1) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, is_pool(op), "%d is not a ggml_op_pool", (int) op);
    BERTH_REQUIRE(ctx, is_int32(p0) && is_int32(p1), "pad %g and %g, must fit 32 bits", (double) p0, (double) p1);
    int64_t ne[] = {0, 0, a->ne[2], a->ne[3]};
    BERTH_REQUIRE(ctx, pool_extent(a->ne[0], k0, s0, p0, &ne[0]),
        "no window of %d fits into a width of %" PRId64 " (stride %d, pad %g)", k0, a->ne[0], s0, (double) p0);
    BERTH_REQUIRE(ctx, pool_extent(a->ne[1], k1, s1, p1, &ne[1]),
        "no window of %d fits into a height of %" PRId64 " (stride %d, pad %g)", k1, a->ne[1], s1, (double) p1);
    const int32_t params[] = {(int32_t) op, k0, k1, s0, s1, (int32_t) p0, (int32_t) p1};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_POOL_2D, params, a);
}

// a: the gradient of the pooled image, af: the image.
struct ggml_tensor *ggml_pool_2d_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *af,
    enum ggml_op_pool op, int k0, int k1, int s0, int s1, float p0, float p1) {
    BERTH_SOURCES(ctx, a, af);
    BERTH_REQUIRE(ctx, is_pool(op), "%d is not a ggml_op_pool", (int) op);
    BERTH_REQUIRE(ctx, is_int32(p0) && is_int32(p1), "pad %g and %g, must fit 32 bits", (double) p0, (double) p1);
    const int32_t params[] = {(int32_t) op, k0, k1, s0, s1, (int32_t) p0, (int32_t) p1};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, af->ne), GGML_OP_POOL_2D_BACK, params, a, af);
}

// ---- windows ----

// a: [channels, width, height]. The last windows are padded.
struct ggml_tensor *ggml_win_part(struct ggml_context *ctx, struct ggml_tensor *a, int w) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, ggml_is_3d(a), "a " BERTH_SHAPE " must have three dimensions", BERTH_NE(a));
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32, "a is %s, must be f32", ggml_type_name(a->type));
    BERTH_REQUIRE(ctx, w > 0, "windows of %d, must be positive", w);
    const int64_t n_x = a->ne[1] / w + (a->ne[1] % w != 0);
    const int64_t n_y = a->ne[2] / w + (a->ne[2] % w != 0);
    BERTH_REQUIRE(ctx, n_x <= INT_MAX && n_y <= INT_MAX && n_x * n_y <= INT_MAX, "%" PRId64 " x %" PRId64 " windows are too many",
        n_x, n_y);
    const int64_t ne[] = {a->ne[0], w, w, n_x * n_y};
    const int32_t params[] = {(int32_t) n_x, (int32_t) n_y, w};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_WIN_PART, params, a);
}

struct ggml_tensor *ggml_win_unpart(struct ggml_context *ctx, struct ggml_tensor *a, int w0, int h0, int w) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32, "a is %s, must be f32", ggml_type_name(a->type));
    const int64_t ne[] = {a->ne[0], w0, h0};
    const int32_t params[] = {w};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 3, ne), GGML_OP_WIN_UNPART, params, a);
}

// ---- relative positions ----

// a: one row per distance from -(qh - 1) to qh - 1.
struct ggml_tensor *ggml_get_rel_pos(struct ggml_context *ctx, struct ggml_tensor *a, int qh, int kh) {
    BERTH_SOURCES(ctx, a);
    BERTH_REQUIRE(ctx, qh == kh, "qh %d and kh %d must be the same", qh, kh);
    BERTH_REQUIRE(ctx, 2 * (int64_t) qh - 1 == a->ne[1], "a has %" PRId64 " rows, must have 2 * %d - 1", a->ne[1], qh);
    const int64_t ne[] = {a->ne[0], kh, qh};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F16, 3, ne), GGML_OP_GET_REL_POS, a);
}

// a: scores [w * w, ...]. pw, ph: terms for the horizontal and the vertical distance.
static struct ggml_tensor *add_rel_pos_new(struct ggml_context *ctx, const char *func, struct ggml_tensor *a,
    struct ggml_tensor *pw, struct ggml_tensor *ph, bool inplace) {
    BERTH_REQUIRE_AS(
        ctx, func, ggml_are_same_shape(pw, ph), "pw is " BERTH_SHAPE ", ph is " BERTH_SHAPE, BERTH_NE(pw), BERTH_NE(ph));
    BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(a) && ggml_is_contiguous(pw) && ggml_is_contiguous(ph),
        "strides a " BERTH_STRIDE ", pw " BERTH_STRIDE ", ph " BERTH_STRIDE ": all must be contiguous", BERTH_NB(a), BERTH_NB(pw),
        BERTH_NB(ph));
    BERTH_REQUIRE_AS(ctx, func, pw->type == GGML_TYPE_F32 && ph->type == GGML_TYPE_F32, "pw is %s and ph is %s, both must be f32",
        ggml_type_name(pw->type), ggml_type_name(ph->type));
    int64_t square, rows;
    const bool fits = pw->ne[3] == a->ne[2] && berth_mul_i64_ok(pw->ne[0], pw->ne[0], &square) && square == a->ne[0] &&
                      berth_mul_i64_ok(pw->ne[1], pw->ne[2], &rows) && rows == a->ne[1];
    BERTH_REQUIRE_AS(ctx, func, fits,
        "a is " BERTH_SHAPE ", pw is " BERTH_SHAPE ", must be [w * w, y * x, batch] and [w, x, y, batch]", BERTH_NE(a),
        BERTH_NE(pw));
    const int32_t params[] = {inplace};
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, inplace), GGML_OP_ADD_REL_POS, params, a, pw, ph);
}

struct ggml_tensor *ggml_add_rel_pos(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *pw, struct ggml_tensor *ph) {
    BERTH_SOURCES(ctx, a, pw, ph);
    return add_rel_pos_new(ctx, __func__, a, pw, ph, false);
}

struct ggml_tensor *ggml_add_rel_pos_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *pw, struct ggml_tensor *ph) {
    BERTH_SOURCES(ctx, a, pw, ph);
    return add_rel_pos_new(ctx, __func__, a, pw, ph, true);
}

// ---- gradients ----

static void grad_pool_2d(struct berth_grad *g) {
    const int32_t *p = g->node->op_params;
    berth_grad_put_add(g, 0,
        ggml_pool_2d_back(g->ctx, berth_grad_dense(g, g->grad), g->node->src[0], (enum ggml_op_pool) p[0], p[1], p[2], p[3], p[4],
            (float) p[5], (float) p[6]));
}

// Treats a row as an image that is one pixel high, and uses POOL_2D_BACK. The averages differ at padded ends: POOL_1D divides by
// the number of elements inside the row, POOL_2D by the size of the window. Pooling a row of ones with POOL_2D gives the fraction
// of each window that is inside the row. Dividing the gradient by this fraction corrects the difference.
static void grad_pool_1d(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    const int32_t *p = g->node->op_params;
    struct ggml_tensor *x = g->node->src[0], *grad = berth_grad_dense(g, g->grad);
    if (p[0] == GGML_OP_POOL_AVG && p[3] != 0) {
        struct ggml_tensor *ones = ggml_fill(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, x->ne[0]), 1.0f);
        grad = ggml_div(ctx, grad, ggml_pool_2d(ctx, ones, GGML_OP_POOL_AVG, p[1], 1, p[2], 1, (float) p[3], 0.0f));
    }
    berth_grad_put_add(g, 0, ggml_pool_2d_back(ctx, grad, x, (enum ggml_op_pool) p[0], p[1], 1, p[2], 1, (float) p[3], 0.0f));
}

// ---- rows of the op table, and the samples that they name ----

ONE_WITH(pool_1d, GGML_OP_POOL_MAX, 2, 2, 0)
ONE_WITH(pool_2d, GGML_OP_POOL_MAX, 2, 2, 2, 2, 0.0f, 0.0f)
SAMPLE(pool_2d_back,
    ggml_pool_2d_back(c, sample_shaped(c, F32, N / 2, 2, 1, 1), sample_rows(c, a), GGML_OP_POOL_MAX, 2, 2, 2, 2, 0.0f, 0.0f))
SAMPLE(win_part, ggml_win_part(c, sample_shaped(c, a, N, 4, 4, 1), 2))
SAMPLE(win_unpart, ggml_win_unpart(c, sample_shaped(c, a, N, 2, 2, 4), 4, 4, 2))
SAMPLE(get_rel_pos, ggml_get_rel_pos(c, sample_shaped(c, a, N, 7, 1, 1), 4, 4))
SAMPLE(add_rel_pos,
    ggml_add_rel_pos(c, sample_shaped(c, a, 16, 8, 1, 1), sample_shaped(c, F32, 4, 4, 2, 1), sample_shaped(c, F32, 4, 4, 2, 1)))

// clang-format off
const struct berth_op_entry berth_ops_pool[] = {
    {GGML_OP_POOL_1D, {"POOL_1D", "pool_1d(x)", .n_src = 1, .family = BERTH_OP_CONV, .sample = sample_pool_1d, .grad = grad_pool_1d, .grad_src_mask = 1}},
    {GGML_OP_POOL_2D, {"POOL_2D", "pool_2d(x)", .n_src = 1, .family = BERTH_OP_CONV, .sample = sample_pool_2d, .grad = grad_pool_2d, .grad_src_mask = 1}},
    {GGML_OP_POOL_2D_BACK, {"POOL_2D_BACK", "pool_2d_back(x)", .n_src = 2, .family = BERTH_OP_TRAIN, .sample = sample_pool_2d_back}},
    {GGML_OP_WIN_PART, {"WIN_PART", "win_part(x)", .n_src = 1, .family = BERTH_OP_MOVE, .sample = sample_win_part}},
    {GGML_OP_WIN_UNPART, {"WIN_UNPART", "win_unpart(x)", .n_src = 1, .family = BERTH_OP_MOVE, .sample = sample_win_unpart}},
    {GGML_OP_GET_REL_POS, {"GET_REL_POS", "get_rel_pos(x)", .n_src = 1, .family = BERTH_OP_ATTENTION, .sample = sample_get_rel_pos}},
    {GGML_OP_ADD_REL_POS, {"ADD_REL_POS", "add_rel_pos(x)", .n_src = 3, .family = BERTH_OP_ATTENTION, .sample = sample_add_rel_pos}},
    BERTH_OPS_END,
};
// clang-format on

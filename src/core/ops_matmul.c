// SPDX-License-Identifier: MIT
// ops_matmul.c: constructors of matrix products and of the triangular solve. Results are f32 for all types of sources.
//
// mul_mat: result[i, j] = <row i of a, row j of b>. Rows extend along ne[0].
// If b has more batches (ne[2], ne[3]) than a, several batches of b share a batch of a.
//
// op_params of mul_mat and mul_mat_id: precision of the sum, hint, unused, precision of b.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

static bool batches_fit(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    for (int i = 2; i < GGML_MAX_DIMS; i++) {
        // Extents are usually equal: avoids the division.
        if (BERTH_UNLIKELY(a->ne[i] == 0 || (a->ne[i] != b->ne[i] && b->ne[i] % a->ne[i] != 0))) {
            return false;
        }
    }
    return true;
}

struct ggml_tensor *ggml_mul_mat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[0] == b->ne[0], "a " BERTH_SHAPE " and b " BERTH_SHAPE " differ in ne[0]", BERTH_NE(a), BERTH_NE(b));
    BERTH_REQUIRE(ctx, batches_fit(a, b), "ne[2] and ne[3] of b " BERTH_SHAPE " are not multiples of those of a " BERTH_SHAPE,
        BERTH_NE(b), BERTH_NE(a));
    BERTH_REQUIRE(ctx, !ggml_is_transposed(a), "a is transposed: strides " BERTH_STRIDE, BERTH_NB(a));
    const int64_t ne[] = {a->ne[1], b->ne[1], b->ne[2], b->ne[3]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_MUL_MAT, a, b);
}

// Setters have no context to poison. On error, the tensor is unchanged.
static bool is_mul_mat(const struct ggml_tensor *a, const char *func) {
    if (a == NULL || berth_poisoned(a)) {
        return false; // the constructor reported the error
    }
    if (a->op != GGML_OP_MUL_MAT) {
        return BERTH_FAIL_FALSE(
            GGML_STATUS_FAILED, "%s: %s is %s, not the result of ggml_mul_mat", func, a->name, ggml_op_name(a->op));
    }
    return true;
}

// ---- precision settings: set_slot stores one in op_params[slot]; slot -1: the op has no such setting ----

static bool is_product(const struct ggml_tensor *a) {
    return a->op == GGML_OP_MUL_MAT || a->op == GGML_OP_MUL_MAT_ID;
}

static bool set_slot(struct ggml_tensor *a, int slot, enum ggml_prec prec) {
    if (slot >= 0) {
        a->op_params[slot] = (int32_t) prec;
    }
    return slot >= 0;
}

bool ggml_prec_set_acc(struct ggml_tensor *a, enum ggml_prec prec) {
    if (a == NULL || berth_poisoned(a)) {
        return false; // the constructor reported the error
    }
    if (a->op == GGML_OP_FLASH_ATTN_EXT) {
        return set_slot(a, 3, prec);
    }
    return set_slot(a, is_product(a) ? 0 : -1, prec);
}

bool ggml_prec_set_src(struct ggml_tensor *a, enum ggml_prec prec, int idx) {
    if (a == NULL || berth_poisoned(a)) {
        return false;
    }
    if (idx < 0 || idx >= GGML_MAX_SRC) {
        return BERTH_FAIL_FALSE(
            GGML_STATUS_FAILED, "%s: %s: there is no source %d, only 0 to %d", __func__, a->name, idx, GGML_MAX_SRC - 1);
    }
    return set_slot(a, is_product(a) && idx == 1 ? 3 : -1, prec);
}

void ggml_mul_mat_set_prec(struct ggml_tensor *a, enum ggml_prec prec) {
    if (is_mul_mat(a, __func__)) {
        a->op_params[0] = (int32_t) prec;
    }
}

void ggml_mul_mat_set_hint(struct ggml_tensor *a, enum ggml_op_hint hint) {
    if (is_mul_mat(a, __func__)) {
        a->op_params[1] = (int32_t) hint;
    }
}

// as: [k, m, n_expert], b: [k, n_b, n_token], ids: [n_used, n_token]. Token t uses the experts ids[:, t].
struct ggml_tensor *ggml_mul_mat_id(
    struct ggml_context *ctx, struct ggml_tensor *as, struct ggml_tensor *b, struct ggml_tensor *ids) {
    BERTH_SOURCES(ctx, as, b, ids);
    BERTH_REQUIRE(ctx, !ggml_is_transposed(as), "as is transposed: strides " BERTH_STRIDE, BERTH_NB(as));
    BERTH_REQUIRE(ctx, ids->type == GGML_TYPE_I32, "ids is %s, must be i32", ggml_type_name(ids->type));
    BERTH_REQUIRE(ctx, as->ne[3] == 1 && b->ne[3] == 1, "as " BERTH_SHAPE " and b " BERTH_SHAPE " must have three dimensions",
        BERTH_NE(as), BERTH_NE(b));
    BERTH_REQUIRE(ctx, ggml_is_matrix(ids), "ids " BERTH_SHAPE " must be a matrix", BERTH_NE(ids));
    BERTH_REQUIRE(ctx, ids->ne[1] == b->ne[2], "ids " BERTH_SHAPE " must have one row for each of the %" PRId64 " tokens of b",
        BERTH_NE(ids), b->ne[2]);
    BERTH_REQUIRE(
        ctx, as->ne[0] == b->ne[0], "as " BERTH_SHAPE " and b " BERTH_SHAPE " differ in ne[0]", BERTH_NE(as), BERTH_NE(b));
    BERTH_REQUIRE(ctx, b->ne[1] != 0 && ids->ne[0] % b->ne[1] == 0,
        "ids->ne[0] is %" PRId64 ", must be a multiple of b->ne[1], which is %" PRId64, ids->ne[0], b->ne[1]);
    const int64_t ne[] = {as->ne[1], ids->ne[0], b->ne[2], 1};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_MUL_MAT_ID, as, b, ids);
}

struct ggml_tensor *ggml_out_prod(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->ne[1] == b->ne[1], "a " BERTH_SHAPE " and b " BERTH_SHAPE " differ in ne[1]", BERTH_NE(a), BERTH_NE(b));
    BERTH_REQUIRE(ctx, batches_fit(a, b), "ne[2] and ne[3] of b " BERTH_SHAPE " are not multiples of those of a " BERTH_SHAPE,
        BERTH_NE(b), BERTH_NE(a));
    BERTH_REQUIRE(ctx, !ggml_is_transposed(a), "a is transposed: strides " BERTH_STRIDE, BERTH_NB(a));
    const int64_t ne[] = {a->ne[0], b->ne[0], b->ne[2], b->ne[3]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_OUT_PROD, a, b);
}

// Solves a x = b for a lower triangular a. Other flags are not implemented.
struct ggml_tensor *ggml_solve_tri(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, bool left, bool lower, bool uni) {
    BERTH_SOURCES(ctx, a, b);
    BERTH_REQUIRE(ctx, a->type == GGML_TYPE_F32 && b->type == GGML_TYPE_F32, "a is %s and b is %s, both must be f32",
        ggml_type_name(a->type), ggml_type_name(b->type));
    BERTH_REQUIRE(ctx, a->ne[0] == a->ne[1], "a " BERTH_SHAPE " is not square", BERTH_NE(a));
    BERTH_REQUIRE(ctx, a->ne[1] == b->ne[1] && a->ne[2] == b->ne[2] && a->ne[3] == b->ne[3],
        "a " BERTH_SHAPE " and b " BERTH_SHAPE " differ in ne[1], ne[2] or ne[3]", BERTH_NE(a), BERTH_NE(b));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(a), "a is not contiguous: strides " BERTH_STRIDE, BERTH_NB(a));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(b), "b is not contiguous: strides " BERTH_STRIDE, BERTH_NB(b));
    BERTH_REQUIRE(
        ctx, left && lower && !uni, "left %d, lower %d, uni %d: only left 1, lower 1, uni 0 is implemented", left, lower, uni);
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, b->ne), GGML_OP_SOLVE_TRI, a, b);
}

// ---- shapes ----

static bool shape_mul_mat(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1];
    return a->ne[0] == b->ne[0] && berth_divides(a->ne[2], b->ne[2]) && berth_divides(a->ne[3], b->ne[3]) &&
           !ggml_is_transposed(a) && berth_shape_is(r, a->ne[1], b->ne[1], b->ne[2], b->ne[3]);
}

static bool shape_mul_mat_id(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1], *c = r->src[2];
    return a->ne[0] == b->ne[0] && a->ne[3] == 1 && b->ne[3] == 1 && c->type == GGML_TYPE_I32 && c->ne[2] == 1 && c->ne[3] == 1 &&
           c->ne[1] == b->ne[2] && berth_divides(b->ne[1], c->ne[0]) && !ggml_is_transposed(a) &&
           berth_shape_is(r, a->ne[1], c->ne[0], b->ne[2], 1);
}

// ---- gradients ----
// With c[i, j] = sum over k of a[k, i] b[k, j] and its gradient d[i, j]:
//     gradient of a[k, i]: sum over j of b[k, j] d[i, j]          gradient of b[k, j]: sum over i of a[k, i] d[i, j]
// Both are outer products (OUT_PROD), which accept a quantised first source.

// Copies t if t is transposed or its rows are not dense, because OUT_PROD and MUL_MAT do not accept such a first source.
static struct ggml_tensor *dense_rows(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_is_transposed(t) || t->nb[0] != ggml_type_size(t->type) ? ggml_cont(g->ctx, t) : t;
}

// Batch (i2, i3) of t belongs to batch (i2 / r2, i3 / r3) of a. Sums r2 adjacent batches along i2, then r3 along i3.
// REPEAT_BACK sums complete dimensions only, so a view makes each group a dimension.
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

static void grad_mul_mat(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *b = g->node->src[1];
    if (berth_grad_needed(g, 0)) {
        struct ggml_tensor *all = ggml_out_prod(g->ctx, dense_rows(g, b), g->grad);
        berth_grad_put_add(g, 0, berth_grad_fold_batches(g, all, a));
    }
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, ggml_out_prod(g->ctx, a, ggml_transpose(g->ctx, g->grad)));
    }
}

// The gradient of an expert is the sum of the outer products of token and gradient over the rows that use the expert.
// One OUT_PROD computes all experts, each as a batch. In the batch of an expert, the gradient rows of other experts are set to 0.
// This costs as much as sending all tokens through all experts.
static struct ggml_tensor *grad_of_experts(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *as = g->node->src[0], *b = g->node->src[1], *ids = g->node->src[2], *d = berth_grad_dense(g, g->grad);
    const int64_t n_expert = as->ne[2], n_rows = d->ne[1] * d->ne[2];
    struct ggml_tensor *ones = ggml_fill(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n_expert), 1.0f);
    struct ggml_tensor *flat = ggml_reshape_1d(ctx, berth_grad_dense(g, ids), n_rows);
    struct ggml_tensor *chosen = ggml_get_rows(ctx, ggml_diag(ctx, ones), flat); // [expert, row]: 1 if selected, else 0
    chosen = ggml_cont(ctx, ggml_transpose(ctx, chosen));
    chosen = ggml_reshape_3d(ctx, chosen, 1, n_rows, n_expert);
    struct ggml_tensor *parts =
        ggml_mul(ctx, ggml_repeat_4d(ctx, ggml_reshape_2d(ctx, d, d->ne[0], n_rows), d->ne[0], n_rows, n_expert, 1), chosen);
    if (b->ne[1] != d->ne[1]) { // all experts of a token share its row of b
        b = ggml_repeat_4d(ctx, b, b->ne[0], d->ne[1], d->ne[2], 1);
    }
    return ggml_out_prod(ctx, ggml_reshape_2d(ctx, berth_grad_dense(g, b), b->ne[0], n_rows), parts);
}

static void grad_mul_mat_id(struct berth_grad *g) {
    struct ggml_tensor *as = g->node->src[0], *b = g->node->src[1], *ids = g->node->src[2];
    if (berth_grad_needed(g, 0)) {
        berth_grad_put_add(g, 0, grad_of_experts(g));
    }
    if (berth_grad_needed(g, 1)) {
        struct ggml_tensor *transposed = ggml_is_quantized(as->type) ? ggml_cast(g->ctx, as, GGML_TYPE_F32) : as;
        transposed = ggml_cont(g->ctx, ggml_transpose(g->ctx, transposed));
        struct ggml_tensor *each = ggml_mul_mat_id(g->ctx, transposed, berth_grad_dense(g, g->grad), ids);
        berth_grad_put_add(g, 1, berth_grad_fold(g, each, b));
    }
}

// With c[i, j] = sum over k of a[i, k] b[j, k] and its gradient d[i, j]:
//     gradient of a[i, k]: sum over j of d[i, j] b[j, k]          gradient of b[j, k]: sum over i of d[i, j] a[i, k]
static void grad_out_prod(struct berth_grad *g) {
    struct ggml_tensor *a = g->node->src[0], *b = g->node->src[1];
    if (berth_grad_needed(g, 0)) {
        struct ggml_tensor *transposed = ggml_cont(g->ctx, ggml_transpose(g->ctx, g->grad));
        berth_grad_put_add(g, 0, berth_grad_fold_batches(g, ggml_mul_mat(g->ctx, transposed, dense_rows(g, b)), a));
    }
    if (berth_grad_needed(g, 1)) {
        if (a->ne[2] != b->ne[2] || a->ne[3] != b->ne[3]) {
            berth_grad_refuse(g, "not supported if the second source has more batches than the first");
            return;
        }
        berth_grad_put_add(g, 1, ggml_mul_mat(g->ctx, dense_rows(g, g->grad), dense_rows(g, a)));
    }
}

// ---- costs ----

static void cost_mul_mat(const struct ggml_tensor *node, struct berth_op_cost *c) {
    c->flops = 2 * (double) ggml_nelements(node) * (double) node->src[0]->ne[0];
}

static void cost_mul_mat_id(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const struct ggml_tensor *as = node->src[0], *ids = node->src[2];
    cost_mul_mat(node, c);
    if (ids != NULL && ggml_nelements(ids) < as->ne[2]) {
        c->read_size -= berth_elements_size(as) / (double) as->ne[2] * (double) (as->ne[2] - ggml_nelements(ids));
    }
}

static void cost_out_prod(const struct ggml_tensor *node, struct berth_op_cost *c) {
    c->flops = 2 * (double) ggml_nelements(node) * (double) node->src[0]->ne[1];
}

// ---- rows of the op table, and the samples that they name ----

TWO(mul_mat)
SAMPLE(mul_mat_id,
    ggml_mul_mat_id(c, sample_shaped(c, a, N, 4, 4, 1), sample_shaped(c, b, N, 2, 4, 1), sample_shaped(c, I32, 2, 4, 1, 1)))
TWO(out_prod)
SAMPLE(solve_tri, ggml_solve_tri(c, sample_shaped(c, a, N, N, 1, 1), sample_shaped(c, a, 4, N, 1, 1), true, true, false))

// clang-format off
const struct berth_op_entry berth_ops_matmul[] = {
    {GGML_OP_MUL_MAT, {"MUL_MAT", "X*Y", .n_src = 2, .may_expand = true, .family = BERTH_OP_MATMUL, .cost = cost_mul_mat, .split = BERTH_SPLIT_MUL_MAT, .shape = shape_mul_mat, .sample = sample_mul_mat, .relation = "x", .grad = grad_mul_mat, .grad_src_mask = 3}},
    {GGML_OP_MUL_MAT_ID, {"MUL_MAT_ID", "X[i]*Y", .n_src = 3, .may_expand = true, .family = BERTH_OP_MATMUL, .cost = cost_mul_mat_id, .split = BERTH_SPLIT_MUL_MAT_ID, .shape = shape_mul_mat_id, .sample = sample_mul_mat_id, .relation = "x", .grad = grad_mul_mat_id, .grad_src_mask = 3}},
    {GGML_OP_OUT_PROD, {"OUT_PROD", "X*Y", .n_src = 2, .family = BERTH_OP_MATMUL, .cost = cost_out_prod, .sample = sample_out_prod, .relation = "x", .grad = grad_out_prod, .grad_src_mask = 3}},
    {GGML_OP_SOLVE_TRI, {"SOLVE_TRI", "A X = B, A triangular, solve X", .n_src = 2, .family = BERTH_OP_STATE, .sample = sample_solve_tri}},
    BERTH_OPS_END,
};
// clang-format on

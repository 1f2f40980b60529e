// SPDX-License-Identifier: MIT
// ops_attn.c: constructors of the fused attention op, and of the indexer that scores keys for sparse attention.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

static bool dim_divides(const struct ggml_tensor *small, const struct ggml_tensor *large, int i) {
    return small->ne[i] != 0 && (small->ne[i] == large->ne[i] || large->ne[i] % small->ne[i] == 0);
}

// q: [d_k, n_token, n_head, n_seq], k: [d_k, n_kv, n_head_kv, n_seq], v: [d_v, n_kv, n_head_kv, n_seq],
// mask: [n_kv, n_token, ...] f16 or NULL. The result is [d_v, n_head, n_token, n_seq].
// op_params: scale, max_bias, softcap, precision, n_kv_max.
struct ggml_tensor *ggml_flash_attn_ext(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *mask, float scale, float max_bias, float logit_softcap) {
    BERTH_SOURCES(ctx, q, k, v);
    BERTH_SOURCE_OPT(ctx, mask);
    BERTH_REQUIRE(ctx, k->ne[0] == q->ne[0] && dim_divides(k, q, 2) && dim_divides(k, q, 3),
        "k " BERTH_SHAPE " does not match q " BERTH_SHAPE ": ne[0] must be equal, ne[2] and ne[3] of q multiples of those of k",
        BERTH_NE(k), BERTH_NE(q));
    BERTH_REQUIRE(ctx, q->ne[3] == k->ne[3] && q->ne[3] == v->ne[3],
        "q has %" PRId64 " sequences, k %" PRId64 ", v %" PRId64 " (ne[3])", q->ne[3], k->ne[3], v->ne[3]);
    if (mask != NULL) {
        BERTH_REQUIRE(ctx, mask->type == GGML_TYPE_F16, "mask is %s, must be f16", ggml_type_name(mask->type));
        BERTH_REQUIRE(ctx, ggml_is_contiguous(mask), "mask is not contiguous: strides " BERTH_STRIDE, BERTH_NB(mask));
        BERTH_REQUIRE(ctx, dim_divides(mask, q, 2) && dim_divides(mask, q, 3),
            "ne[2] and ne[3] of q " BERTH_SHAPE " are not multiples of those of the mask " BERTH_SHAPE, BERTH_NE(q),
            BERTH_NE(mask));
    }
    BERTH_REQUIRE(ctx, mask != NULL || !(max_bias > 0.0f), "max_bias is %g, but there is no mask", (double) max_bias);
    const int64_t ne[] = {v->ne[0], q->ne[2], q->ne[1], q->ne[3]};
    const float params[] = {scale, max_bias, logit_softcap};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_FLASH_ATTN_EXT, params, q, k, v, mask);
}

// For the setters below. They change an existing tensor and have no context to poison.
static bool is_flash_attn(const struct ggml_tensor *a, const char *func) {
    if (a == NULL || berth_poisoned(a)) {
        return false; // the constructor reported the error
    }
    if (a->op != GGML_OP_FLASH_ATTN_EXT) {
        return BERTH_FAIL_FALSE(
            GGML_STATUS_FAILED, "%s: %s is %s, not the result of ggml_flash_attn_ext", func, a->name, ggml_op_name(a->op));
    }
    return true;
}

void ggml_flash_attn_ext_set_prec(struct ggml_tensor *a, enum ggml_prec prec) {
    if (is_flash_attn(a, __func__)) {
        a->op_params[3] = (int32_t) prec;
    }
}

// n_kv_max only makes backends faster, so an invalid number is ignored.
void ggml_flash_attn_ext_set_n_kv_max(struct ggml_tensor *a, int32_t n_kv_max) {
    if (!is_flash_attn(a, __func__)) {
        return;
    }
    if (n_kv_max < 0) {
        berth_fail(GGML_STATUS_FAILED, "%s: %s: n_kv_max is %d, must not be negative", __func__, a->name, (int) n_kv_max);
        return;
    }
    a->op_params[4] = n_kv_max;
}

enum ggml_prec ggml_flash_attn_ext_get_prec(const struct ggml_tensor *a) {
    return is_flash_attn(a, __func__) ? (enum ggml_prec) a->op_params[3] : GGML_PREC_DEFAULT;
}

static void sinks_refuse(struct ggml_tensor *a) {
    static char text[] = "ggml_flash_attn_ext_add_sinks: the sinks do not fit";
    berth_poison_self(a, text);
}

// sinks: one f32 per head, or NULL to remove the sinks.
void ggml_flash_attn_ext_add_sinks(struct ggml_tensor *a, struct ggml_tensor *sinks) {
    if (!is_flash_attn(a, __func__)) {
        return;
    }
    if (sinks == NULL) {
        a->src[4] = NULL;
        return;
    }
    if (berth_poisoned(sinks)) {
        sinks_refuse(a); // the reason has been logged
        return;
    }
    const struct ggml_tensor *q = a->src[0];
    if (a->src[4] != NULL || q == NULL || sinks->ne[0] != q->ne[2] || sinks->type != GGML_TYPE_F32) {
        berth_fail(GGML_STATUS_FAILED,
            "%s: %s %s; the new sinks are %s " BERTH_SHAPE ", must be f32 with one element for each of %" PRId64 " heads",
            __func__, a->name, a->src[4] != NULL ? "has sinks already" : "has no sinks yet", ggml_type_name(sinks->type),
            BERTH_NE(sinks), q != NULL ? q->ne[2] : 0);
        sinks_refuse(a);
        return;
    }
    a->src[4] = sinks;
}

// Not implemented, as in ggml: every call fails. Part of the ABI.
struct ggml_tensor *ggml_flash_attn_back(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *d, bool masked) {
    BERTH_SOURCES(ctx, q, k, v, d);
    return berth_poison(
        ctx, __func__, "the backward pass of attention is not implemented (q " BERTH_SHAPE ", masked %d)", BERTH_NE(q), masked);
}

// q: [d, n_head, n_token, n_seq], k: [d, 1, n_kv, n_seq], weights: [n_head, n_token, 1, n_seq], mask: [n_kv, n_token, 1, n].
// The result is a score per key and token: [n_kv, n_token, 1, n_seq].
struct ggml_tensor *ggml_lightning_indexer(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *weights, struct ggml_tensor *mask) {
    BERTH_SOURCES(ctx, q, k, weights, mask);
    BERTH_REQUIRE(ctx, q->type == GGML_TYPE_F32 && weights->type == GGML_TYPE_F32 && mask->type == GGML_TYPE_F16,
        "q is %s, weights are %s, mask is %s, must be f32, f32, f16", ggml_type_name(q->type), ggml_type_name(weights->type),
        ggml_type_name(mask->type));
    BERTH_REQUIRE(ctx, k->ne[0] == q->ne[0] && k->ne[1] == 1 && k->ne[3] == q->ne[3],
        "k is " BERTH_SHAPE ", must have ne[0] and ne[3] of q " BERTH_SHAPE " and one head", BERTH_NE(k), BERTH_NE(q));
    BERTH_REQUIRE(ctx,
        weights->ne[0] == q->ne[1] && weights->ne[1] == q->ne[2] && weights->ne[2] == 1 && weights->ne[3] == q->ne[3],
        "weights are " BERTH_SHAPE ", must be one per head and token of q " BERTH_SHAPE, BERTH_NE(weights), BERTH_NE(q));
    BERTH_REQUIRE(ctx, mask->ne[0] == k->ne[2] && mask->ne[1] == q->ne[2] && mask->ne[2] == 1 && dim_divides(mask, weights, 3),
        "mask is " BERTH_SHAPE ", k " BERTH_SHAPE " and q " BERTH_SHAPE " require [n_kv, n_token, 1, a divisor of n_seq]",
        BERTH_NE(mask), BERTH_NE(k), BERTH_NE(q));
    const int64_t ne[] = {k->ne[2], q->ne[2], 1, q->ne[3]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, ne), GGML_OP_LIGHTNING_INDEXER, q, k, weights, mask);
}

// ---- shapes ----

static bool shape_flash_attn_ext(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1], *c = r->src[2], *d = r->src[3],
                             *e = r->src[4]; // q, k, v, mask, sinks
    return b->ne[0] == a->ne[0] && berth_divides(b->ne[2], a->ne[2]) && berth_divides(c->ne[2], a->ne[2]) &&
           b->ne[1] == c->ne[1] && a->ne[3] == b->ne[3] && a->ne[3] == c->ne[3] &&
           berth_shape_is(r, c->ne[0], a->ne[2], a->ne[1], a->ne[3]) &&
           (d == NULL || (d->type == GGML_TYPE_F16 && ggml_is_contiguous(d) && d->ne[0] >= b->ne[1] && d->ne[1] >= a->ne[1] &&
                             berth_divides(d->ne[2], a->ne[2]) && berth_divides(d->ne[3], a->ne[3]))) &&
           (e == NULL || (e->type == GGML_TYPE_F32 && berth_shape_is(e, a->ne[2], 1, 1, 1)));
}

// ---- gradients ----
// The op stores no probabilities, so the gradient rule recomputes them by plain attention:
//     s = k q, p = softmax(scale s + slope mask, sinks), out = v p
// This requires memory for one score matrix of all heads.

static struct ggml_tensor *as_f32(struct berth_grad *g, struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 ? t : ggml_cast(g->ctx, t, GGML_TYPE_F32);
}

struct scores {
    struct ggml_tensor *capped; // tanh(scale s / cap); NULL without a cap
    struct ggml_tensor *p;
    float scale, cap; // scale: factor of s before the cap; cap: softcap, 0: none
};

static struct scores scores_of(struct berth_grad *g, struct ggml_tensor *q, struct ggml_tensor *k) {
    struct ggml_context *ctx = g->ctx;
    struct scores s = {.scale = param_f32(g->node, 0), .cap = param_f32(g->node, 2)};
    struct ggml_tensor *x = ggml_mul_mat(ctx, k, q);
    float scale = s.scale;
    if (s.cap != 0.0f) {
        s.capped = ggml_tanh(ctx, ggml_scale(ctx, x, s.scale / s.cap));
        x = s.capped;
        scale = s.cap;
    }
    s.p = ggml_soft_max_ext(ctx, x, g->node->src[3], scale, param_f32(g->node, 1));
    ggml_soft_max_add_sinks(s.p, g->node->src[4]);
    return s;
}

// grad is the gradient with respect to p. Returns the gradient with respect to s.
static struct ggml_tensor *scores_back(struct berth_grad *g, const struct scores *s, struct ggml_tensor *grad) {
    if (s->capped == NULL) {
        return ggml_soft_max_ext_back(g->ctx, grad, s->p, s->scale, 0.0f);
    }
    // The softmax input is cap * capped. Its derivative with respect to s is cap (1 - capped^2) scale / cap, so cap cancels.
    struct ggml_tensor *by_capped = ggml_soft_max_ext_back(g->ctx, grad, s->p, s->scale, 0.0f);
    return ggml_mul(g->ctx, by_capped, berth_grad_one_minus(g, ggml_sqr(g->ctx, s->capped)));
}

static void grad_flash_attn_ext(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *q = berth_grad_dense(g, as_f32(g, g->node->src[0])), *k = as_f32(g, g->node->src[1]);
    struct ggml_tensor *v = as_f32(g, g->node->src[2]);
    const struct scores s = scores_of(g, q, k);
    struct ggml_tensor *out = ggml_permute(ctx, g->grad, 0, 2, 1, 3); // [d_v, n_token, n_head, n_seq]
    out = ggml_cont(ctx, out);
    struct ggml_tensor *by_p = ggml_mul_mat(ctx, v, out);
    struct ggml_tensor *by_s = scores_back(g, &s, by_p);
    if (berth_grad_needed(g, 0)) {
        berth_grad_put_add(g, 0, ggml_out_prod(ctx, k, ggml_transpose(ctx, by_s)));
    }
    if (berth_grad_needed(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_fold_batches(g, ggml_out_prod(ctx, q, by_s), g->node->src[1]));
    }
    if (berth_grad_needed(g, 2)) {
        berth_grad_put_add(g, 2, berth_grad_fold_batches(g, ggml_out_prod(ctx, out, s.p), g->node->src[2]));
    }
    if (berth_grad_needed(g, 4)) {
        berth_grad_put_sub(g, 4, berth_grad_of_sinks(g, s.p, by_p, g->node->src[4]));
    }
}

// ---- costs ----

static void cost_flash_attn_ext(const struct ggml_tensor *node, struct berth_op_cost *c) {
    const struct ggml_tensor *q = node->src[0], *k = node->src[1];
    c->flops = 2 * ((double) ggml_nelements(q) + (double) ggml_nelements(node)) * (double) k->ne[1];
}

static void cost_lightning_indexer(const struct ggml_tensor *node, struct berth_op_cost *c) {
    c->flops = 2 * (double) ggml_nelements(node->src[0]) * (double) node->src[1]->ne[2];
}

// ---- rows of the op table, and the samples that they name ----

SAMPLE(flash_attn_ext, ggml_flash_attn_ext(c, sample_shaped(c, F32, N, 4, 2, 1), sample_shaped(c, a, N, 8, 2, 1),
                           sample_shaped(c, b, N, 8, 2, 1), sample_shaped(c, GGML_TYPE_F16, 8, 4, 1, 1), 1.0f, 0.0f, 0.0f))
SAMPLE(lightning_indexer, ggml_lightning_indexer(c, sample_shaped(c, F32, N, 2, 4, 1), sample_shaped(c, a, N, 1, 8, 1),
                              sample_shaped(c, F32, 2, 4, 1, 1), sample_shaped(c, GGML_TYPE_F16, 8, 4, 1, 1)))

// clang-format off
const struct berth_op_entry berth_ops_attn[] = {
    {GGML_OP_FLASH_ATTN_EXT, {"FLASH_ATTN_EXT", "flash_attn_ext(x)", .n_src = 5, .may_expand = true, .family = BERTH_OP_ATTENTION, .cost = cost_flash_attn_ext, .split = BERTH_SPLIT_FLASH_ATTN, .n_needed = 3, .shape = shape_flash_attn_ext, .sample = sample_flash_attn_ext, .relation = "keys, values", .grad = grad_flash_attn_ext, .grad_src_mask = 23}},
    {GGML_OP_LIGHTNING_INDEXER, {"LIGHTNING_INDEXER", "lightning_indexer(q, k, weights, mask)", .n_src = 4, .family = BERTH_OP_ATTENTION, .cost = cost_lightning_indexer, .sample = sample_lightning_indexer}},
    BERTH_OPS_END,
};
// clang-format on

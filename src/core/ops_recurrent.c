// SPDX-License-Identifier: MIT
// ops_recurrent.c: constructors of layers that carry a state from token to token, and of hyper-connections.
// The result of a recurrent op is one f32 tensor: the outputs, then the new states.

#include "core/op.h"
#include "core/sample.h"

#define STRIDE_TEXT(what) what " is not contiguous: strides " BERTH_STRIDE

// ---- state spaces ----

// sx: [d_conv - 1 + n_token, d_inner, n_seq], c: [d_conv, d_inner].
struct ggml_tensor *ggml_ssm_conv(struct ggml_context *ctx, struct ggml_tensor *sx, struct ggml_tensor *c) {
    BERTH_SOURCES(ctx, sx, c);
    BERTH_REQUIRE(ctx, ggml_is_3d(sx) && ggml_is_matrix(c),
        "sx " BERTH_SHAPE " must have three dimensions, c " BERTH_SHAPE " two", BERTH_NE(sx), BERTH_NE(c));
    BERTH_REQUIRE(
        ctx, sx->ne[1] == c->ne[1], "sx " BERTH_SHAPE " and c " BERTH_SHAPE " differ in ne[1]", BERTH_NE(sx), BERTH_NE(c));
    const int64_t n_token = sx->ne[0] - c->ne[0] + 1;
    BERTH_REQUIRE(ctx, n_token >= 0, "rows of %" PRId64 " are shorter than a kernel of %" PRId64, sx->ne[0], c->ne[0]);
    const int64_t ne[] = {c->ne[1], n_token, sx->ne[2]};
    return BERTH_OP(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 3, ne), GGML_OP_SSM_CONV, sx, c);
}

static bool rows_are_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type) && t->nb[1] == t->nb[0] * (size_t) t->ne[0];
}

#define SCAN_LIKELY_STATES 256 // largest plausible K

// Returns K, the number of states that the result contains. Programs that were built for ggml before 0.25 do not pass K, so K is
// then an arbitrary value. If it is unknown for which release the program was built, an implausible K counts as 1.
// A K that is too large only costs memory, because the final states have the same offset for every K.
static int64_t scan_states(const struct ggml_tensor *A, int64_t K) {
    const int minor = berth_client_minor();
    if (minor != 0) {
        return minor < 25 ? 1 : K;
    }
    return A->ne[0] == 1 && K >= 1 && K <= SCAN_LIKELY_STATES ? K : 1;
}

// s: [d_state, d_head, n_head, n_state], x: [d_head, n_head, n_token, n_seq], dt: [n_head, n_token, n_seq],
// A: [d_state or 1, n_head], B and C: [d_state, n_group, n_token, n_seq], ids: [n_seq] index of the initial state.
// The result is y, then K slabs [d_state, d_head, n_head, n_seq]. Slab 0 has the final states, slab i the states i tokens
// earlier.
struct ggml_tensor *ggml_ssm_scan(struct ggml_context *ctx, struct ggml_tensor *s, struct ggml_tensor *x, struct ggml_tensor *dt,
    struct ggml_tensor *A, struct ggml_tensor *B, struct ggml_tensor *C, struct ggml_tensor *ids, int64_t K) {
    BERTH_SOURCES(ctx, s, x, dt, A, B, C, ids);
    K = scan_states(A, K);
    BERTH_REQUIRE(ctx, ggml_is_contiguous(s), STRIDE_TEXT("s"), BERTH_NB(s));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(dt), STRIDE_TEXT("dt"), BERTH_NB(dt));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(A), STRIDE_TEXT("A"), BERTH_NB(A));
    BERTH_REQUIRE(ctx, rows_are_dense(x), "rows of x are not dense: strides " BERTH_STRIDE, BERTH_NB(x));
    BERTH_REQUIRE(ctx, rows_are_dense(B), "rows of B are not dense: strides " BERTH_STRIDE, BERTH_NB(B));
    BERTH_REQUIRE(ctx, rows_are_dense(C), "rows of C are not dense: strides " BERTH_STRIDE, BERTH_NB(C));
    BERTH_REQUIRE(ctx, ggml_are_same_shape(B, C), "B is " BERTH_SHAPE ", C is " BERTH_SHAPE, BERTH_NE(B), BERTH_NE(C));
    const int64_t d_state = s->ne[0];
    const int64_t d_head = x->ne[0];
    const int64_t n_head = x->ne[1];
    const int64_t n_token = x->ne[2];
    const int64_t n_seq = x->ne[3];
    BERTH_REQUIRE(ctx, ids->type == GGML_TYPE_I32 && ggml_is_vector(ids) && ids->ne[0] == n_seq,
        "ids is %s " BERTH_SHAPE ", must be i32, one for each of %" PRId64 " sequences", ggml_type_name(ids->type), BERTH_NE(ids),
        n_seq);
    BERTH_REQUIRE(ctx, dt->ne[0] == n_head && dt->ne[1] == n_token && dt->ne[2] == n_seq && dt->ne[3] == 1,
        "dt " BERTH_SHAPE " does not match x " BERTH_SHAPE, BERTH_NE(dt), BERTH_NE(x));
    BERTH_REQUIRE(ctx, s->ne[1] == d_head && s->ne[2] == n_head, "s " BERTH_SHAPE " does not match x " BERTH_SHAPE, BERTH_NE(s),
        BERTH_NE(x));
    BERTH_REQUIRE(ctx, B->ne[0] == d_state && B->ne[2] == n_token && B->ne[3] == n_seq,
        "B " BERTH_SHAPE " does not match x " BERTH_SHAPE " and s " BERTH_SHAPE, BERTH_NE(B), BERTH_NE(x), BERTH_NE(s));
    BERTH_REQUIRE(ctx, ggml_is_matrix(A) && A->ne[1] == n_head && (A->ne[0] == 1 || A->ne[0] == d_state),
        "A is " BERTH_SHAPE ", must be [1 or %" PRId64 ", %" PRId64 "]", BERTH_NE(A), d_state, n_head);
    BERTH_REQUIRE(ctx, K >= 1 && K <= INT32_MAX, "K is %" PRId64 ", must be 1 to 2^31 - 1", K);
    BERTH_REQUIRE(ctx, K == 1 || A->ne[0] == 1, "K is %" PRId64 ", must be 1 if A has %" PRId64 " values per head", K, A->ne[0]);
    int64_t state, n;
    const bool fits = berth_mul_i64_ok(s->ne[0], s->ne[1], &state) && berth_mul_i64_ok(state, s->ne[2], &state) &&
                      berth_mul_i64_ok(state, n_seq, &state) && berth_mul_i64_ok(state, K, &state) &&
                      berth_add_i64_ok(state, ggml_nelements(x), &n);
    BERTH_REQUIRE(ctx, fits, "s " BERTH_SHAPE " and x " BERTH_SHAPE " with K %" PRId64 " make too many elements", BERTH_NE(s),
        BERTH_NE(x), K);
    const int32_t params[] = {(int32_t) K};
    struct ggml_tensor *result = berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 1, &n);
    return BERTH_OP_WITH(result, GGML_OP_SSM_SCAN, params, s, x, dt, A, B, C, ids);
}

// ---- linear attention with a state of d x d per head ----

static bool same_3d(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a->ne[0] == b->ne[0] && a->ne[1] == b->ne[1] && a->ne[2] == b->ne[2];
}

struct wkv {
    enum ggml_op op;
    const char *names[7]; // names of the sources, for messages
    int n;                // number of sources of shape [d, n_head, n_token] before the state
    int like;             // index of the source that defines this shape
    unsigned any_shape;   // bit i: source i may have any shape
};

// src[n] is the state: [d * d * n_head, n_seq], or another shape with the same ne[1] and number of elements.
// The result is [d * n_head, n_token + d * n_seq].
static struct ggml_tensor *wkv_new(
    struct ggml_context *ctx, const char *func, const struct wkv *op, struct ggml_tensor *const *src) {
    const struct ggml_tensor *like = src[op->like], *state = src[op->n];
    const char *const *names = op->names;
    const int n = op->n;
    for (int i = 0; i <= n; i++) {
        BERTH_REQUIRE_AS(ctx, func, ggml_is_contiguous(src[i]), STRIDE_TEXT("%s"), names[i], BERTH_NB(src[i]));
    }
    for (int i = 0; i < n; i++) {
        BERTH_REQUIRE_AS(ctx, func, (op->any_shape >> i & 1) != 0 || same_3d(src[i], like),
            "%s is " BERTH_SHAPE ", k is " BERTH_SHAPE ": ne[0] to ne[2] differ", names[i], BERTH_NE(src[i]), BERTH_NE(like));
    }
    const int64_t d = like->ne[0];
    const int64_t n_seq = state->ne[1];
    int64_t ne[2], want, have;
    const bool sound = berth_mul_i64_ok(d, like->ne[1], &ne[0]) && berth_mul_i64_ok(d, n_seq, &ne[1]) &&
                       berth_mul_i64_ok(ne[0], ne[1], &want) && berth_add_i64_ok(ne[1], like->ne[2], &ne[1]) &&
                       berth_mul_i64_ok(state->ne[0], n_seq, &have) && berth_mul_i64_ok(have, state->ne[2], &have) &&
                       berth_mul_i64_ok(have, state->ne[3], &have);
    BERTH_REQUIRE_AS(ctx, func, sound && want == have,
        "state is " BERTH_SHAPE ", must have %" PRId64 " x %" PRId64 " x %" PRId64 " elements for each of %" PRId64
        " sequences (ne[1])",
        BERTH_NE(state), d, d, like->ne[1], n_seq);
    return berth_op_set(berth_tensor_new(ctx, func, GGML_TYPE_F32, 2, ne), op->op, NULL, 0, src, (size_t) n + 1);
}

// tf may have any shape.
struct ggml_tensor *ggml_rwkv_wkv6(struct ggml_context *ctx, struct ggml_tensor *k, struct ggml_tensor *v, struct ggml_tensor *r,
    struct ggml_tensor *tf, struct ggml_tensor *td, struct ggml_tensor *state) {
    BERTH_SOURCES(ctx, k, v, r, tf, td, state);
    static const struct wkv op = {GGML_OP_RWKV_WKV6, {"k", "v", "r", "tf", "td", "state"}, 5, 0, 1u << 3};
    return wkv_new(ctx, __func__, &op, (struct ggml_tensor *[]){k, v, r, tf, td, state});
}

// r may have any shape.
struct ggml_tensor *ggml_rwkv_wkv7(struct ggml_context *ctx, struct ggml_tensor *r, struct ggml_tensor *w, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *state) {
    BERTH_SOURCES(ctx, r, w, k, v, a, b, state);
    static const struct wkv op = {GGML_OP_RWKV_WKV7, {"r", "w", "k", "v", "a", "b", "state"}, 6, 2, 1u << 0};
    return wkv_new(ctx, __func__, &op, (struct ggml_tensor *[]){r, w, k, v, a, b, state});
}

struct ggml_tensor *ggml_gated_linear_attn(struct ggml_context *ctx, struct ggml_tensor *k, struct ggml_tensor *v,
    struct ggml_tensor *q, struct ggml_tensor *g, struct ggml_tensor *state, float scale) {
    BERTH_SOURCES(ctx, k, v, q, g, state);
    static const struct wkv op = {GGML_OP_GATED_LINEAR_ATTN, {"k", "v", "q", "g", "state"}, 4, 0, 0};
    struct ggml_tensor *result = wkv_new(ctx, __func__, &op, (struct ggml_tensor *[]){k, v, q, g, state});
    if (BERTH_LIKELY(!berth_poisoned(result))) {
        memcpy(result->op_params, &scale, sizeof scale);
    }
    return result;
}

// q, k: [d, ...], v: [d, n_head, n_token, n_seq], g: [1 or d, ...], beta: [1, ...], state: [d, d, n_head, n_seq].
// The result has the states after each of the last K tokens: [d * n_head, (n_token + K * d) * n_seq].
struct ggml_tensor *ggml_gated_delta_net(struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *g, struct ggml_tensor *beta, struct ggml_tensor *state, int64_t K) {
    BERTH_SOURCES(ctx, q, k, v, g, beta, state);
    BERTH_REQUIRE(ctx, ggml_is_contiguous_rows(q) && ggml_is_contiguous_rows(k) && ggml_is_contiguous_rows(v),
        "strides q " BERTH_STRIDE ", k " BERTH_STRIDE ", v " BERTH_STRIDE ": rows must be dense", BERTH_NB(q), BERTH_NB(k),
        BERTH_NB(v));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(g), STRIDE_TEXT("g"), BERTH_NB(g));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(beta), STRIDE_TEXT("beta"), BERTH_NB(beta));
    BERTH_REQUIRE(ctx, ggml_is_contiguous(state), STRIDE_TEXT("state"), BERTH_NB(state));
    BERTH_REQUIRE(ctx,
        q->type == GGML_TYPE_F32 && k->type == GGML_TYPE_F32 && v->type == GGML_TYPE_F32 && g->type == GGML_TYPE_F32 &&
            beta->type == GGML_TYPE_F32 && state->type == GGML_TYPE_F32,
        "q, k, v, g, beta, state are %s, %s, %s, %s, %s, %s, all must be f32", ggml_type_name(q->type), ggml_type_name(k->type),
        ggml_type_name(v->type), ggml_type_name(g->type), ggml_type_name(beta->type), ggml_type_name(state->type));
    const int64_t d = v->ne[0];
    BERTH_REQUIRE(ctx, (g->ne[0] == 1 || g->ne[0] == d) && beta->ne[0] == 1,
        "g is " BERTH_SHAPE " and beta is " BERTH_SHAPE ": ne[0] of g must be 1 or %" PRId64 ", and ne[0] of beta must be 1",
        BERTH_NE(g), BERTH_NE(beta), d);
    BERTH_REQUIRE(ctx, state->ne[0] == d && state->ne[1] == d && state->ne[2] == v->ne[1] && state->ne[3] == v->ne[3],
        "state " BERTH_SHAPE " does not match v " BERTH_SHAPE, BERTH_NE(state), BERTH_NE(v));
    BERTH_REQUIRE(ctx, K >= 1 && K <= INT32_MAX, "K is %" PRId64 ", must be 1 to 2^31 - 1", K);
    int64_t ne[2], kept;
    const bool fits = berth_mul_i64_ok(d, v->ne[1], &ne[0]) && berth_mul_i64_ok(d, K, &kept) &&
                      berth_add_i64_ok(kept, v->ne[2], &ne[1]) && berth_mul_i64_ok(ne[1], v->ne[3], &ne[1]);
    BERTH_REQUIRE(ctx, fits, "v " BERTH_SHAPE " with K %" PRId64 " makes too many elements", BERTH_NE(v), K);
    const int32_t params[] = {(int32_t) K};
    struct ggml_tensor *result = berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 2, ne);
    return BERTH_OP_WITH(result, GGML_OP_GATED_DELTA_NET, params, q, k, v, g, beta, state);
}

// ---- hyper-connections: n parallel residual streams ----

#define HC_STREAMS 4                                      // the only number of streams that the op supports
#define HC_MIX (2 * HC_STREAMS + HC_STREAMS * HC_STREAMS) // weights for input, output, and all pairs of streams

static bool all_f32(struct ggml_tensor *const *t, int n) {
    for (int i = 0; i < n; i++) {
        if (t[i]->type != GGML_TYPE_F32) {
            return false;
        }
    }
    return true;
}

// mixes: [HC_MIX, n_token], scale: [3 or more], base: [HC_MIX]. The result is one matrix per token: [4, 4, n_token].
struct ggml_tensor *ggml_dsv4_hc_comb(struct ggml_context *ctx, struct ggml_tensor *mixes, struct ggml_tensor *scale,
    struct ggml_tensor *base, float eps, int32_t n_iter) {
    BERTH_SOURCES(ctx, mixes, scale, base);
    struct ggml_tensor *const all[] = {mixes, scale, base};
    BERTH_REQUIRE(ctx, all_f32(all, 3), "mixes, scale, base are %s, %s, %s, all must be f32", ggml_type_name(mixes->type),
        ggml_type_name(scale->type), ggml_type_name(base->type));
    BERTH_REQUIRE(ctx, n_iter > 0, "n_iter is %d, must be positive", (int) n_iter);
    BERTH_REQUIRE(ctx, mixes->ne[0] == HC_MIX && ggml_is_matrix(mixes), "mixes are " BERTH_SHAPE ", must be [%d, n_token]",
        BERTH_NE(mixes), HC_MIX);
    BERTH_REQUIRE(ctx, scale->ne[0] >= 3 && ggml_is_vector(scale), "scale is " BERTH_SHAPE ", must be a vector of at least 3",
        BERTH_NE(scale));
    BERTH_REQUIRE(ctx, base->ne[0] == HC_MIX && ggml_is_vector(base), "base is " BERTH_SHAPE ", must be a vector of %d",
        BERTH_NE(base), HC_MIX);
    const int64_t ne[] = {HC_STREAMS, HC_STREAMS, mixes->ne[1]};
    const struct {
        float eps;
        int32_t n_iter;
    } params = {eps, n_iter};
    return BERTH_OP_WITH(berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 3, ne), GGML_OP_DSV4_HC_COMB, params, mixes, scale, base);
}

// op_params: scale, gated. A graph built by ggml before 0.25 has 0 and 0, which means scale 1.
static struct ggml_tensor *hc_pre_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *x, struct ggml_tensor *by, float scale, bool gated) {
    const int64_t ne[] = {x->ne[0], x->ne[2]};
    const struct {
        float scale;
        int32_t gated;
    } params = {scale, gated};
    return BERTH_OP_WITH(berth_tensor_new(ctx, func, GGML_TYPE_F32, 2, ne), GGML_OP_DSV4_HC_PRE, params, x, by);
}

// x: [n_embd, n_stream, n_token], weights: [n_stream, n_token]. The result is one stream: [n_embd, n_token].
struct ggml_tensor *ggml_dsv4_hc_pre(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *weights) {
    BERTH_SOURCES(ctx, x, weights);
    BERTH_REQUIRE(ctx, x->type == GGML_TYPE_F32 && weights->type == GGML_TYPE_F32, "x is %s and weights %s, both must be f32",
        ggml_type_name(x->type), ggml_type_name(weights->type));
    BERTH_REQUIRE(ctx, ggml_is_3d(x), "x " BERTH_SHAPE " must have three dimensions", BERTH_NE(x));
    BERTH_REQUIRE(ctx, weights->ne[0] == x->ne[1] && weights->ne[1] == x->ne[2] && ggml_is_matrix(weights),
        "weights " BERTH_SHAPE " do not match x " BERTH_SHAPE ": must be one per stream and token", BERTH_NE(weights),
        BERTH_NE(x));
    return hc_pre_new(ctx, __func__, x, weights, 1.0f, false);
}

// A gate per element of x replaces the weight per stream.
struct ggml_tensor *ggml_dsv4_hc_pre_gated(
    struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *gate, float scale) {
    BERTH_SOURCES(ctx, x, gate);
    BERTH_REQUIRE(ctx, x->type == GGML_TYPE_F32 && gate->type == GGML_TYPE_F32, "x is %s and gate %s, both must be f32",
        ggml_type_name(x->type), ggml_type_name(gate->type));
    BERTH_REQUIRE(ctx, ggml_is_3d(x), "x " BERTH_SHAPE " must have three dimensions", BERTH_NE(x));
    BERTH_REQUIRE(
        ctx, ggml_are_same_shape(x, gate), "gate " BERTH_SHAPE " does not match x " BERTH_SHAPE, BERTH_NE(gate), BERTH_NE(x));
    return hc_pre_new(ctx, __func__, x, gate, scale, true);
}

// x: [n_embd, n_token], residual: [n_embd, n_stream, n_token], post: [n_stream, n_token], comb: [n_stream, n_stream, n_token] or
// NULL.
struct ggml_tensor *ggml_dsv4_hc_post(struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *residual,
    struct ggml_tensor *post, struct ggml_tensor *comb) {
    BERTH_SOURCES(ctx, x, residual, post);
    BERTH_SOURCE_OPT(ctx, comb);
    struct ggml_tensor *const all[] = {x, residual, post, comb};
    BERTH_REQUIRE(ctx, all_f32(all, comb != NULL ? 4 : 3), "x, residual, post, comb are %s, %s, %s, %s, all must be f32",
        ggml_type_name(x->type), ggml_type_name(residual->type), ggml_type_name(post->type),
        comb != NULL ? ggml_type_name(comb->type) : "none");
    const int64_t n_stream = residual->ne[1];
    const int64_t n_token = x->ne[1];
    BERTH_REQUIRE(ctx, ggml_is_matrix(x), "x " BERTH_SHAPE " must be a matrix", BERTH_NE(x));
    BERTH_REQUIRE(ctx, residual->ne[0] == x->ne[0] && residual->ne[2] == n_token && residual->ne[3] == 1,
        "residual " BERTH_SHAPE " does not match x " BERTH_SHAPE, BERTH_NE(residual), BERTH_NE(x));
    BERTH_REQUIRE(ctx, post->ne[0] == n_stream && post->ne[1] == n_token && ggml_is_matrix(post),
        "post is " BERTH_SHAPE ", must be [%" PRId64 ", %" PRId64 "]", BERTH_NE(post), n_stream, n_token);
    if (comb != NULL) {
        BERTH_REQUIRE(ctx, comb->ne[0] == n_stream && comb->ne[1] == n_stream && comb->ne[2] == n_token && comb->ne[3] == 1,
            "comb is " BERTH_SHAPE ", must be [%" PRId64 ", %" PRId64 ", %" PRId64 "]", BERTH_NE(comb), n_stream, n_stream,
            n_token);
    }
    struct ggml_tensor *result = berth_tensor_new(ctx, __func__, GGML_TYPE_F32, 4, residual->ne);
    return BERTH_OP(result, GGML_OP_DSV4_HC_POST, x, residual, post, comb);
}

// ---- rows of the op table, and the samples that they name ----

// Samples of recurrent ops have 2 heads of 64, 4 tokens and 1 sequence.
#define HEADS(t) sample_shaped(c, t, 64, 2, 4, 1)
#define STATE(t) sample_shaped(c, t, 64 * 64 * 2, 1, 1, 1)
SAMPLE(ssm_conv, ggml_ssm_conv(c, sample_shaped(c, a, N, 8, 1, 1), sample_shaped(c, a, 4, 8, 1, 1)))
SAMPLE(ssm_scan, ggml_ssm_scan(c, sample_shaped(c, a, 16, N, 2, 1), sample_shaped(c, a, N, 2, 4, 1),
                     sample_shaped(c, a, 2, 4, 1, 1), sample_shaped(c, a, 16, 2, 1, 1), sample_shaped(c, a, 16, 1, 4, 1),
                     sample_shaped(c, a, 16, 1, 4, 1), sample_shaped(c, I32, 1, 1, 1, 1), 1))
SAMPLE(rwkv_wkv6, ggml_rwkv_wkv6(c, HEADS(a), HEADS(a), HEADS(a), sample_shaped(c, a, 64, 2, 1, 1), HEADS(a), STATE(a)))
SAMPLE(gated_linear_attn, ggml_gated_linear_attn(c, HEADS(a), HEADS(a), HEADS(a), HEADS(a), STATE(a), 1.0f))
SAMPLE(rwkv_wkv7, ggml_rwkv_wkv7(c, HEADS(a), HEADS(a), HEADS(a), HEADS(a), HEADS(a), HEADS(a), STATE(a)))
SAMPLE(gated_delta_net, ggml_gated_delta_net(c, HEADS(a), HEADS(a), HEADS(a), sample_shaped(c, a, 1, 2, 4, 1),
                            sample_shaped(c, a, 1, 2, 4, 1), sample_shaped(c, a, 64, 64, 2, 1), 1))
SAMPLE(dsv4_hc_comb, ggml_dsv4_hc_comb(c, sample_shaped(c, a, 24, 4, 1, 1), sample_shaped(c, a, 3, 1, 1, 1),
                         sample_shaped(c, a, 24, 1, 1, 1), 1e-6f, 2))
SAMPLE(dsv4_hc_pre, ggml_dsv4_hc_pre(c, sample_shaped(c, a, N, 4, 2, 1), sample_shaped(c, a, 4, 2, 1, 1)))
SAMPLE(dsv4_hc_post, ggml_dsv4_hc_post(c, sample_shaped(c, a, N, 2, 1, 1), sample_shaped(c, a, N, 4, 2, 1),
                         sample_shaped(c, a, 4, 2, 1, 1), sample_shaped(c, a, 4, 4, 2, 1)))

// clang-format off
const struct berth_op_entry berth_ops_recurrent[] = {
    {GGML_OP_SSM_CONV, {"SSM_CONV", "ssm_conv(x)", .n_src = 2, .family = BERTH_OP_STATE, .split = BERTH_SPLIT_SSM_CONV, .sample = sample_ssm_conv}},
    {GGML_OP_SSM_SCAN, {"SSM_SCAN", "ssm_scan(x)", .n_src = 7, .family = BERTH_OP_STATE, .sample = sample_ssm_scan}},
    {GGML_OP_RWKV_WKV6, {"RWKV_WKV6", "rwkv_wkv6(k, v, r, tf, td, s)", .n_src = 6, .family = BERTH_OP_STATE, .sample = sample_rwkv_wkv6}},
    {GGML_OP_GATED_LINEAR_ATTN, {"GATED_LINEAR_ATTN", "gated_linear_attn(k, v, q, gate, s)", .n_src = 5, .family = BERTH_OP_STATE, .sample = sample_gated_linear_attn}},
    {GGML_OP_RWKV_WKV7, {"RWKV_WKV7", "rwkv_wkv7(r, w, k, v, a, b, s)", .n_src = 7, .family = BERTH_OP_STATE, .sample = sample_rwkv_wkv7}},
    {GGML_OP_GATED_DELTA_NET, {"GATED_DELTA_NET", "gated_delta_net(q, k, v, g, beta, s)", .n_src = 6, .family = BERTH_OP_STATE, .sample = sample_gated_delta_net}},
    {GGML_OP_DSV4_HC_COMB, {"DSV4_HC_COMB", "dsv4_hc_comb(mixes, scale, base)", .n_src = 3, .family = BERTH_OP_OTHER, .sample = sample_dsv4_hc_comb}},
    {GGML_OP_DSV4_HC_PRE, {"DSV4_HC_PRE", "dsv4_hc_pre(x, weights)", .n_src = 2, .family = BERTH_OP_OTHER, .sample = sample_dsv4_hc_pre}},
    {GGML_OP_DSV4_HC_POST, {"DSV4_HC_POST", "dsv4_hc_post(x, residual, post, comb)", .n_src = 4, .family = BERTH_OP_OTHER, .sample = sample_dsv4_hc_post}},
    BERTH_OPS_END,
};
// clang-format on

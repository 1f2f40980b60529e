// SPDX-License-Identifier: MIT
// ffn.c: the feed-forward part of a layer as a graph, dense or by experts, with the activation that its architecture has.

#include "model/graph.h"

// The activation of gate, times up; with up NULL gate holds both, one behind the other.
static struct ggml_tensor *gated(struct graph_builder *b, struct ggml_tensor *gate, struct ggml_tensor *up) {
    switch (b->p->desc->act) {
        case ACT_GELU: return up != NULL ? ggml_geglu_split(b->ctx, gate, up) : ggml_geglu(b->ctx, gate);
        case ACT_OAI: return ggml_swiglu_oai(b->ctx, gate, up, 1.702f, 7.0f);
        default: return up != NULL ? ggml_swiglu_split(b->ctx, gate, up) : ggml_swiglu(b->ctx, gate);
    }
}

static struct ggml_tensor *dense(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *up      = builder_product(b, l->up, l->up_bias, x, "ffn.up"), *act;
    if (builder_has(b, ARCH_NO_GATE)) {
        act = ggml_gelu(b->ctx, up);
    } else if (builder_has(b, ARCH_FUSED_FFN)) {
        act = gated(b, up, NULL);
    } else {
        act = gated(b, builder_product(b, l->gate, l->gate_bias, x, "ffn.gate"), up);
    }
    return builder_product(b, l->down, l->down_bias, builder_named(b, act, "ffn.act"), "ffn.down");
}

// ---- experts ----

struct choice {
    struct ggml_tensor *chosen; // i32 [n_used, n_tokens]
    struct ggml_tensor *shares; // f32 [1, n_used, n_tokens]
};

// Which experts a token goes through, and how much each counts.
static struct choice choose(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l  = &b->m->layers[b->i];
    const int64_t n_tokens = x->ne[1], n_used = p->n_expert_used;
    struct ggml_tensor *like = builder_product(b, l->router, l->router_bias, x, "ffn.router");
    if (p->desc->share != SHARE_CHOSEN) {
        like = builder_named(b, ggml_soft_max(b->ctx, like), "ffn.like");
    }
    struct choice c = {.chosen = ggml_top_k(b->ctx, like, (int) n_used)};
    c.shares        = ggml_get_rows(b->ctx, ggml_reshape_3d(b->ctx, like, 1, p->n_expert, n_tokens), c.chosen);
    c.shares        = ggml_reshape_2d(b->ctx, builder_named(b, c.shares, "ffn.chosen_like"), n_used, n_tokens);
    if (p->desc->share == SHARE_SUM) {
        c.shares = ggml_div(b->ctx, c.shares, builder_named(b, ggml_sum_rows(b->ctx, c.shares), "ffn.sum_like"));
    } else if (p->desc->share == SHARE_CHOSEN) {
        c.shares = ggml_soft_max(b->ctx, c.shares);
    }
    c.shares = ggml_reshape_3d(b->ctx, builder_named(b, c.shares, "ffn.shares"), 1, n_used, n_tokens);
    return c;
}

// The product of each token with the matrices of its experts.
static struct ggml_tensor *each(struct graph_builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias,
    struct ggml_tensor *x, struct ggml_tensor *chosen, const char *name) {
    struct ggml_tensor *y = builder_named(b, ggml_mul_mat_id(b->ctx, weight, x, chosen), name);
    return bias != NULL ? builder_named(b, ggml_add_id(b->ctx, y, bias, chosen), name) : y;
}

static struct ggml_tensor *experts(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l  = &b->m->layers[b->i];
    const struct choice c        = choose(b, x);
    const int64_t n_tokens       = x->ne[1];
    struct ggml_tensor *in       = ggml_reshape_3d(b->ctx, x, p->n_embd, 1, n_tokens);
    struct ggml_tensor *up       = each(b, l->ups, l->ups_bias, in, c.chosen, "ffn.ups");
    struct ggml_tensor *gate     = each(b, l->gates, l->gates_bias, in, c.chosen, "ffn.gates");
    struct ggml_tensor *act      = builder_named(b, gated(b, gate, up), "ffn.acts");
    struct ggml_tensor *down     = each(b, l->downs, l->downs_bias, act, c.chosen, "ffn.downs");
    struct ggml_tensor *all      = builder_named(b, ggml_mul(b->ctx, down, c.shares), "ffn.each"); // [n_embd, n_used, n_tokens]
    struct ggml_tensor *result   = NULL;
    ggml_build_forward_expand(b->graph, all);
    for (int64_t i = 0; i < p->n_expert_used; i++) {
        struct ggml_tensor *one = ggml_view_2d(b->ctx, all, p->n_embd, n_tokens, all->nb[2], (size_t) i * all->nb[1]);
        result                  = result == NULL ? one : builder_named(b, ggml_add(b->ctx, result, one), "ffn.experts");
    }
    return p->n_expert_used == 1 ? builder_named(b, ggml_cont(b->ctx, result), "ffn.experts") : result;
}

struct ggml_tensor *builder_ffn(struct graph_builder *b, struct ggml_tensor *x) {
    return b->p->n_expert > 0 ? experts(b, x) : dense(b, x);
}

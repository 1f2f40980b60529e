// SPDX-License-Identifier: MIT
// ffn.c: builds the feed-forward part of a layer, dense or with experts.

#include "model/graph.h"

#include <math.h>

// up NULL: each row of gate holds the gate, then up.
static struct ggml_tensor *ffn_gate(struct graph_builder *b, struct ggml_tensor *gate, struct ggml_tensor *up) {
    switch (b->p->desc->act) {
        case ACT_GELU: return up != NULL ? ggml_geglu_split(b->ctx, gate, up) : ggml_geglu(b->ctx, gate);
        case ACT_OAI: return ggml_swiglu_oai(b->ctx, gate, up, 1.702f, 7.0f);
        default: return up != NULL ? ggml_swiglu_split(b->ctx, gate, up) : ggml_swiglu(b->ctx, gate);
    }
}

static struct ggml_tensor *ffn_dense(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *up = builder_product(b, l->up, l->up_bias, x, "ffn.up"), *act;
    if (builder_has(b, ARCH_NO_GATE)) {
        act = ggml_gelu(b->ctx, up);
    } else if (builder_has(b, ARCH_FUSED_FFN)) {
        act = ffn_gate(b, up, NULL);
    } else {
        act = ffn_gate(b, builder_product(b, l->gate, l->gate_bias, x, "ffn.gate"), up);
    }
    return builder_product(b, l->down, l->down_bias, builder_named(b, act, "ffn.act"), "ffn.down");
}

// ---- experts ----

struct choice {
    struct ggml_tensor *chosen; // i32 [n_used, n_tokens] indices of the selected experts
    struct ggml_tensor *shares; // f32 [1, n_used, n_tokens] weights of these experts
};

// Sets the scores of experts outside the selected groups to -infinity. The score of a group is the sum of its two highest scores.
static struct ggml_tensor *groups_mask(struct graph_builder *b, struct ggml_tensor *scores) {
    const struct model_params *p = b->p;
    const int64_t n_tokens = scores->ne[1], size = p->n_expert / p->n_group, n_excluded = p->n_group - p->n_group_used;
    struct ggml_tensor *each = ggml_reshape_4d(b->ctx, scores, 1, size, p->n_group, n_tokens);
    struct ggml_tensor *top_two = ggml_reshape_3d(b->ctx, scores, size, p->n_group, n_tokens);
    top_two = ggml_get_rows(b->ctx, each, builder_named(b, ggml_top_k(b->ctx, top_two, 2), "ffn.group_two"));
    top_two = ggml_reshape_3d(b->ctx, builder_named(b, top_two, "ffn.group_best"), 2, p->n_group, n_tokens);
    top_two = builder_named(b, ggml_sum_rows(b->ctx, top_two), "ffn.group_sum"); // [1, n_group, n_tokens]
    top_two = ggml_scale(b->ctx, ggml_reshape_2d(b->ctx, top_two, p->n_group, n_tokens), -1);
    struct ggml_tensor *excluded_ids =
        ggml_top_k(b->ctx, builder_named(b, top_two, "ffn.group_worst"), (int) n_excluded); // [n_excluded, n_tokens]
    struct ggml_tensor *grouped = ggml_reshape_3d(b->ctx, scores, size, p->n_group, n_tokens);
    struct ggml_tensor *excluded = ggml_view_3d(b->ctx, grouped, size, n_excluded, n_tokens, grouped->nb[1], grouped->nb[2], 0);
    excluded = builder_named(b, ggml_fill(b->ctx, ggml_cont(b->ctx, excluded), -INFINITY), "ffn.group_none");
    grouped = ggml_set_rows(b->ctx, ggml_cont(b->ctx, grouped), excluded, excluded_ids);
    return ggml_reshape_2d(b->ctx, builder_named(b, grouped, "ffn.grouped"), p->n_expert, n_tokens);
}

static struct choice experts_choose(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const int64_t n_tokens = x->ne[1], n_used = p->n_expert_used;
    struct ggml_tensor *scores = builder_product(b, l->router, l->router_bias, x, "ffn.router");
    if (p->desc->share != SHARE_CHOSEN) {
        scores = builder_named(b, p->has_sigmoid ? ggml_sigmoid(b->ctx, scores) : ggml_soft_max(b->ctx, scores), "ffn.like");
    }
    struct ggml_tensor *selection_scores =
        l->router_add != NULL ? builder_named(b, ggml_add(b->ctx, scores, l->router_add), "ffn.like_added") : scores;
    if (p->n_group > 0) {
        selection_scores = groups_mask(b, selection_scores);
    }
    struct choice c = {.chosen = ggml_top_k(b->ctx, selection_scores, (int) n_used)};
    c.shares = ggml_get_rows(b->ctx, ggml_reshape_3d(b->ctx, scores, 1, p->n_expert, n_tokens), c.chosen);
    c.shares = ggml_reshape_2d(b->ctx, builder_named(b, c.shares, "ffn.chosen_like"), n_used, n_tokens);
    if (p->norm_weights) {
        c.shares = ggml_div(b->ctx, c.shares, builder_named(b, ggml_sum_rows(b->ctx, c.shares), "ffn.sum_like"));
    } else if (p->desc->share == SHARE_CHOSEN) {
        c.shares = ggml_soft_max(b->ctx, c.shares);
    }
    if (p->expert_scale != 1 && p->expert_scale != 0) {
        c.shares = ggml_scale(b->ctx, builder_named(b, c.shares, "ffn.shares"), p->expert_scale);
    }
    c.shares = ggml_reshape_3d(b->ctx, builder_named(b, c.shares, "ffn.shares"), 1, n_used, n_tokens);
    return c;
}

static struct ggml_tensor *experts_product(struct graph_builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias,
    struct ggml_tensor *x, struct ggml_tensor *chosen, const char *name) {
    struct ggml_tensor *y = builder_named(b, ggml_mul_mat_id(b->ctx, weight, x, chosen), name);
    return bias != NULL ? builder_named(b, ggml_add_id(b->ctx, y, bias, chosen), name) : y;
}

static struct ggml_tensor *ffn_experts(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const struct choice c = experts_choose(b, x);
    const int64_t n_tokens = x->ne[1];
    struct ggml_tensor *in = ggml_reshape_3d(b->ctx, x, p->n_embd, 1, n_tokens);
    struct ggml_tensor *up = experts_product(b, l->ups, l->ups_bias, in, c.chosen, "ffn.ups");
    struct ggml_tensor *gate = experts_product(b, l->gates, l->gates_bias, in, c.chosen, "ffn.gates");
    struct ggml_tensor *act = builder_named(b, ffn_gate(b, gate, up), "ffn.acts");
    struct ggml_tensor *down = experts_product(b, l->downs, l->downs_bias, act, c.chosen, "ffn.downs");
    struct ggml_tensor *weighted = builder_named(b, ggml_mul(b->ctx, down, c.shares), "ffn.each"); // [n_embd, n_used, n_tokens]
    struct ggml_tensor *result = NULL;
    ggml_build_forward_expand(b->graph, weighted);
    for (int64_t i = 0; i < p->n_expert_used; i++) {
        struct ggml_tensor *row =
            ggml_view_2d(b->ctx, weighted, p->n_embd, n_tokens, weighted->nb[2], (size_t) i * weighted->nb[1]);
        result = result == NULL ? row : builder_named(b, ggml_add(b->ctx, result, row), "ffn.experts");
    }
    return p->n_expert_used == 1 ? builder_named(b, ggml_cont(b->ctx, result), "ffn.experts") : result;
}

// The experts that process every token are stored as one dense feed-forward part.
static struct ggml_tensor *ffn_shared(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *up = builder_product(b, l->up_shared, NULL, x, "ffn.up");
    struct ggml_tensor *act = ffn_gate(b, builder_product(b, l->gate_shared, NULL, x, "ffn.gate"), up);
    return builder_product(b, l->down_shared, NULL, builder_named(b, act, "ffn.act"), "ffn.down");
}

struct ggml_tensor *builder_ffn(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    if (!params_has_experts(b->p, b->i)) {
        return ffn_dense(b, x);
    }
    struct ggml_tensor *y = ffn_experts(b, x);
    const bool has_shared = l->gate_shared != NULL && l->up_shared != NULL && l->down_shared != NULL;
    return has_shared ? builder_named(b, ggml_add(b->ctx, y, ffn_shared(b, x)), "ffn.all") : y;
}

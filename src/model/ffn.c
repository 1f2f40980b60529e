// SPDX-License-Identifier: MIT
// ffn.c: the feed-forward part of a layer as a graph: SwiGLU, dense or by experts.

#include "model/model.h"

static struct ggml_tensor *dense(struct ggml_context *ctx, const struct model *m, int64_t i, struct ggml_tensor *x) {
    const struct model_layer *l = &m->layers[i];
    struct ggml_tensor *up      = graph_product(ctx, m, l->up, x, i, "ffn.up");
    struct ggml_tensor *gate    = graph_product(ctx, m, l->gate, x, i, "ffn.gate");
    struct ggml_tensor *act     = graph_named(ggml_swiglu_split(ctx, gate, up), i, "ffn.act");
    return graph_product(ctx, m, l->down, act, i, "ffn.down");
}

// Each token goes through the experts that its router likes best; their results are weighed by how much, together 1.
static struct ggml_tensor *experts(
    struct ggml_context *ctx, struct ggml_cgraph *graph, const struct model *m, int64_t i_layer, struct ggml_tensor *x) {
    const struct model_params *p = &m->params;
    const struct model_layer *l  = &m->layers[i_layer];
    const int64_t n_tokens = x->ne[1], n_used = p->n_expert_used;
    struct ggml_tensor *like   = ggml_soft_max(ctx, graph_product(ctx, m, l->router, x, i_layer, "ffn.router"));
    struct ggml_tensor *chosen = ggml_top_k(ctx, graph_named(like, i_layer, "ffn.like"), (int) n_used);
    struct ggml_tensor *weights =
        ggml_get_rows(ctx, ggml_reshape_3d(ctx, like, 1, p->n_expert, n_tokens), chosen); // [1, n_used, n_tokens]
    weights = ggml_reshape_2d(ctx, graph_named(weights, i_layer, "ffn.chosen_like"), n_used, n_tokens);
    weights = ggml_div(ctx, weights, graph_named(ggml_sum_rows(ctx, weights), i_layer, "ffn.sum_like"));
    graph_named(weights, i_layer, "ffn.shares");
    weights                    = ggml_reshape_3d(ctx, weights, 1, n_used, n_tokens);
    struct ggml_tensor *in     = ggml_reshape_3d(ctx, x, p->n_embd, 1, n_tokens);
    struct ggml_tensor *up     = graph_named(ggml_mul_mat_id(ctx, l->ups, in, chosen), i_layer, "ffn.ups");
    struct ggml_tensor *gate   = graph_named(ggml_mul_mat_id(ctx, l->gates, in, chosen), i_layer, "ffn.gates");
    struct ggml_tensor *act    = graph_named(ggml_swiglu_split(ctx, gate, up), i_layer, "ffn.acts");
    struct ggml_tensor *each   = graph_named(ggml_mul_mat_id(ctx, l->downs, act, chosen), i_layer, "ffn.downs");
    struct ggml_tensor *result = NULL;
    each                       = graph_named(ggml_mul(ctx, each, weights), i_layer, "ffn.each"); // [n_embd, n_used, n_tokens]
    ggml_build_forward_expand(graph, each);
    for (int64_t i = 0; i < n_used; i++) {
        struct ggml_tensor *one = ggml_view_2d(ctx, each, p->n_embd, n_tokens, each->nb[2], (size_t) i * each->nb[1]);
        result                  = result == NULL ? one : graph_named(ggml_add(ctx, result, one), i_layer, "ffn.experts");
    }
    return n_used == 1 ? graph_named(ggml_cont(ctx, result), i_layer, "ffn.experts") : result;
}

struct ggml_tensor *graph_ffn(
    struct ggml_context *ctx, struct ggml_cgraph *graph, const struct model *model, int64_t i, struct ggml_tensor *x) {
    return model->params.n_expert > 0 ? experts(ctx, graph, model, i, x) : dense(ctx, model, i, x);
}

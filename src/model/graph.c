// SPDX-License-Identifier: MIT
// graph.c: builds the graph of a batch. The cache rows to write are an input of the graph, so the graphs of consecutive tokens
// are equal. A new memory plan is needed only when n_kv changes. Without a cache, each sequence of a batch attends only to
// itself, as training requires.
// A failed constructor returns poison, which the caller finds with berth_graph_check.

#include "model/graph.h"

static struct ggml_tensor *input_new(struct graph_builder *b, enum ggml_type type, int64_t n0, int64_t n1, const char *name) {
    struct ggml_tensor *t = n1 > 0 ? ggml_new_tensor_2d(b->ctx, type, n0, n1) : ggml_new_tensor_1d(b->ctx, type, n0);
    ggml_set_input(t);
    ggml_set_name(t, name);
    return t;
}

static struct ggml_tensor *builder_scaled(struct graph_builder *b, struct ggml_tensor *x, float scale, const char *name) {
    return scale != 1 ? builder_named(b, ggml_scale(b->ctx, x, scale), name) : x;
}

// y: the output of attention or of the feed-forward part, before it is added to the residual stream.
static struct ggml_tensor *branch_output(
    struct graph_builder *b, struct ggml_tensor *y, struct ggml_tensor *norm, const char *name) {
    if (norm != NULL) {
        y = builder_norm(b, y, norm, NULL, name);
    }
    return builder_scaled(b, y, b->p->residual_scale, name);
}

// In the last layer, returns only the rows of the tokens whose logits are needed, so that the feed-forward part processes only
// these. In other layers, or with all_outputs, returns x.
static struct ggml_tensor *rows_select(struct graph_builder *b, struct ggml_tensor *x, const char *name) {
    const bool is_last = b->i + 1 == b->p->n_layer && b->in->out != NULL;
    return is_last ? builder_named(b, ggml_get_rows(b->ctx, x, b->in->out), name) : x;
}

static struct ggml_tensor *layer_build(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *in = builder_norm(b, x, l->attn_norm, l->attn_norm_bias, "attn_norm");
    struct ggml_tensor *y;
    if (builder_has(b, ARCH_STATE)) {
        y = rows_select(b, builder_state(b, in), "wanted_state");
        return builder_named(b, ggml_add(b->ctx, rows_select(b, x, "wanted_in"), y), "state.added");
    }
    y = builder_attention(b, in);
    x = rows_select(b, x, "wanted_in");
    y = branch_output(b, rows_select(b, y, "wanted_attn"), l->post_attn_norm, "attn.said");
    x = builder_named(b, ggml_add(b->ctx, x, y), "attn.sum");
    in = builder_has(b, ARCH_PARALLEL) ? rows_select(b, in, "wanted_norm")
                                       : builder_norm(b, x, l->ffn_norm, l->ffn_norm_bias, "ffn_norm");
    y = branch_output(b, builder_ffn(b, in), l->post_ffn_norm, "ffn.said");
    return builder_named(b, ggml_add(b->ctx, x, y), "ffn.sum");
}

size_t graph_max_nodes(const struct model *m) {
    size_t n = 64 + (size_t) m->params.n_layer * (128 + 4 * (size_t) m->params.n_expert_used);
    for (const struct model_lora *lora = m->loras; lora != NULL; lora = lora->next) {
        n += 4 * lora->n_pairs;
    }
    return n;
}

static void inputs_make(struct graph_builder *b) {
    const struct graph_shape *s = b->s;
    struct graph_inputs *in = b->in;
    const bool has_state = builder_has(b, ARCH_STATE);
    bool has_window = false, has_full = false; // has_full: a layer without a window
    int64_t window_layer = 0;                  // index of a layer with a window
    for (int64_t i = 0; !has_state && i < b->p->n_layer; i++) {
        if (params_has_window(b->p, i)) {
            window_layer = i;
            has_window = true;
        } else {
            has_full = true;
        }
    }
    in->tokens = input_new(b, GGML_TYPE_I32, s->n_tokens * s->n_seq, 0, "tokens");
    in->pos = has_state ? NULL : input_new(b, GGML_TYPE_I32, s->n_tokens, 0, "positions");
    in->states = has_state ? input_new(b, GGML_TYPE_I32, 1, 0, "states") : NULL;
    in->rows = s->k != NULL && has_full ? input_new(b, GGML_TYPE_I64, s->n_tokens, 0, "cache_rows") : NULL;
    in->mask = has_full ? input_new(b, GGML_TYPE_F16, s->n_kv, s->n_tokens, "mask") : NULL;
    in->window_rows = s->k != NULL && has_window ? input_new(b, GGML_TYPE_I64, s->n_tokens, 0, "window_rows") : NULL;
    in->window = has_window ? input_new(b, GGML_TYPE_F16, builder_n_visible(b, window_layer), s->n_tokens, "mask_window") : NULL;
    in->out = s->all_outputs ? NULL : input_new(b, GGML_TYPE_I32, s->n_out, 0, "wanted");
}

static struct ggml_tensor *embedding_build(struct graph_builder *b) {
    struct ggml_tensor *x = builder_named(b, ggml_get_rows(b->ctx, b->m->token_embd, b->in->tokens), "embedding");
    x = builder_scaled(b, x, b->p->embd_scale, "embedding_scaled");
    if (b->m->position_embd == NULL) {
        return x;
    }
    struct ggml_tensor *at = builder_named(b, ggml_get_rows(b->ctx, b->m->position_embd, b->in->pos), "position_embedding");
    x = ggml_reshape_3d(b->ctx, x, b->p->n_embd, b->s->n_tokens, b->s->n_seq);
    x = builder_named(b, ggml_add(b->ctx, x, at), "embedding_placed");
    return ggml_reshape_2d(b->ctx, x, b->p->n_embd, b->s->n_tokens * b->s->n_seq);
}

static struct ggml_tensor *output_build(struct graph_builder *b, struct ggml_tensor *x) {
    x = builder_norm(b, x, b->m->output_norm, b->m->output_norm_bias, "output_norm");
    if (b->s->is_embedding) {
        return x;
    }
    x = builder_product(b, b->m->output, NULL, x, "logits");
    x = builder_scaled(b, x, b->p->logit_scale, "logits_scaled");
    return b->p->logit_cap != 0 ? builder_capped(b, x, b->p->logit_cap, "logits_cap") : x;
}

void graph_build(const struct model *m, const struct graph_shape *shape, struct ggml_context *ctx, struct ggml_cgraph *graph,
    struct graph_inputs *in) {
    struct graph_builder b = {.s = shape, .m = m, .p = &m->params, .ctx = ctx, .graph = graph, .in = in, .i = -1};
    inputs_make(&b);
    struct ggml_tensor *x = embedding_build(&b);
    for (int64_t i = 0; i < b.p->n_layer; i++) {
        b.i = i;
        x = layer_build(&b, x);
    }
    b.i = -1;
    in->result = output_build(&b, x);
    ggml_build_forward_expand(graph, in->result);
}

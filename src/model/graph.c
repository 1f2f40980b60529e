// SPDX-License-Identifier: MIT
// graph.c: a batch of tokens through the model as one graph. With a cache new keys and values are written into rows of it that an
// input names, so that the graph of every token is the same and is planned once for each length of the view on the cache. Without
// one, sequences of a batch lie side by side, and each sees only itself: what training needs.
// Constructors never fail here: a mistake is poison, which the caller finds.

#include "model/graph.h"

#include <stdio.h>

static struct ggml_tensor *input(struct graph_builder *b, enum ggml_type type, int64_t n0, int64_t n1, const char *name) {
    struct ggml_tensor *t = n1 > 0 ? ggml_new_tensor_2d(b->ctx, type, n0, n1) : ggml_new_tensor_1d(b->ctx, type, n0);
    ggml_set_input(t);
    ggml_set_name(t, name);
    return t;
}

struct ggml_tensor *builder_named(const struct graph_builder *b, struct ggml_tensor *t, const char *name) {
    if (b->i >= 0) {
        ggml_format_name(t, "blk.%d.%s", (int) b->i, name);
    } else {
        ggml_set_name(t, name);
    }
    return t;
}

// name: of the result and, with .rms or .norm, of what the weight is multiplied with.
struct ggml_tensor *builder_norm(
    struct graph_builder *b, struct ggml_tensor *x, struct ggml_tensor *weight, struct ggml_tensor *bias, const char *name) {
    const bool has_mean = builder_has(b, ARCH_LAYER_NORM);
    char part[32];
    snprintf(part, sizeof part, "%s.%s", name, has_mean ? "norm" : "rms");
    x = builder_named(b, has_mean ? ggml_norm(b->ctx, x, b->p->eps) : ggml_rms_norm(b->ctx, x, b->p->eps), part);
    x = builder_named(b, ggml_mul(b->ctx, x, weight), name);
    return bias != NULL ? builder_named(b, ggml_add(b->ctx, x, bias), name) : x;
}

struct ggml_tensor *builder_product(
    struct graph_builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x, const char *name) {
    struct ggml_tensor *y = builder_named(b, ggml_mul_mat(b->ctx, weight, x), name);
    for (const struct model_lora *lora = b->m->loras; lora != NULL; lora = lora->next) {
        const struct lora_pair *pair = lora_find(lora, weight);
        if (pair != NULL) {
            char part[48];
            snprintf(part, sizeof part, "%s.lora", name);
            struct ggml_tensor *low = builder_named(b, ggml_mul_mat(b->ctx, pair->a, x), part);
            struct ggml_tensor *add = builder_named(b, ggml_mul_mat(b->ctx, pair->b, low), part);
            y = builder_named(b, ggml_add(b->ctx, y, builder_named(b, ggml_scale(b->ctx, add, pair->scale), part)), name);
        }
    }
    return bias != NULL ? builder_named(b, ggml_add(b->ctx, y, bias), name) : y;
}

struct ggml_tensor *builder_capped(struct graph_builder *b, struct ggml_tensor *x, float cap, const char *name) {
    x = builder_named(b, ggml_scale(b->ctx, x, 1 / cap), name);
    x = builder_named(b, ggml_tanh(b->ctx, x), name);
    return builder_named(b, ggml_scale(b->ctx, x, cap), name);
}

static struct ggml_tensor *scaled(struct graph_builder *b, struct ggml_tensor *x, float scale, const char *name) {
    return scale != 1 ? builder_named(b, ggml_scale(b->ctx, x, scale), name) : x;
}

// What a part of a layer says, as it is added to the stream.
static struct ggml_tensor *said(struct graph_builder *b, struct ggml_tensor *y, struct ggml_tensor *norm, const char *name) {
    y = norm != NULL ? builder_norm(b, y, norm, NULL, name) : y;
    return scaled(b, y, b->p->residual_scale, name);
}

// Only the wanted token goes on after the last layer has looked at the others.
static struct ggml_tensor *wanted(struct graph_builder *b, struct ggml_tensor *x, const char *name) {
    const bool is_last = b->i + 1 == b->p->n_layer && b->in->out != NULL;
    return is_last ? builder_named(b, ggml_get_rows(b->ctx, x, b->in->out), name) : x;
}

static struct ggml_tensor *layer(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *in = builder_norm(b, x, l->attn_norm, l->attn_norm_bias, "attn_norm");
    struct ggml_tensor *y;
    if (builder_has(b, ARCH_STATE)) {
        y = wanted(b, builder_state(b, in), "wanted_state");
        return builder_named(b, ggml_add(b->ctx, wanted(b, x, "wanted_in"), y), "state.added");
    }
    y = builder_attention(b, in);
    x = wanted(b, x, "wanted_in");
    y = said(b, wanted(b, y, "wanted_attn"), l->post_attn_norm, "attn.said");
    x = builder_named(b, ggml_add(b->ctx, x, y), "attn.sum");
    in = builder_has(b, ARCH_PARALLEL) ? wanted(b, in, "wanted_norm")
                                       : builder_norm(b, x, l->ffn_norm, l->ffn_norm_bias, "ffn_norm");
    y = said(b, builder_ffn(b, in), l->post_ffn_norm, "ffn.said");
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
    bool has_window = false, has_all = false;
    int64_t window = 0; // a layer that has one
    for (int64_t i = 0; !has_state && i < b->p->n_layer; i++) {
        window = params_has_window(b->p, i) ? i : window;
        has_window |= params_has_window(b->p, i);
        has_all |= !params_has_window(b->p, i);
    }
    in->tokens = input(b, GGML_TYPE_I32, s->n_tokens * s->n_seq, 0, "tokens");
    in->pos = has_state ? NULL : input(b, GGML_TYPE_I32, s->n_tokens, 0, "positions");
    in->states = has_state ? input(b, GGML_TYPE_I32, 1, 0, "states") : NULL;
    in->rows = s->k != NULL && has_all ? input(b, GGML_TYPE_I64, s->n_tokens, 0, "cache_rows") : NULL;
    in->mask = has_all ? input(b, GGML_TYPE_F16, s->n_kv, s->n_tokens, "mask") : NULL;
    in->window_rows = s->k != NULL && has_window ? input(b, GGML_TYPE_I64, s->n_tokens, 0, "window_rows") : NULL;
    in->window = has_window ? input(b, GGML_TYPE_F16, builder_seen(b, window), s->n_tokens, "mask_window") : NULL;
    in->out = s->all_outputs ? NULL : input(b, GGML_TYPE_I32, 1, 0, "wanted");
}

// Where a position has an embedding of its own it is added to each sequence's tokens.
static struct ggml_tensor *embedding(struct graph_builder *b) {
    struct ggml_tensor *x = builder_named(b, ggml_get_rows(b->ctx, b->m->token_embd, b->in->tokens), "embedding");
    x = scaled(b, x, b->p->embd_scale, "embedding_scaled");
    if (b->m->position_embd == NULL) {
        return x;
    }
    struct ggml_tensor *at = builder_named(b, ggml_get_rows(b->ctx, b->m->position_embd, b->in->pos), "position_embedding");
    x = ggml_reshape_3d(b->ctx, x, b->p->n_embd, b->s->n_tokens, b->s->n_seq);
    x = builder_named(b, ggml_add(b->ctx, x, at), "embedding_placed");
    return ggml_reshape_2d(b->ctx, x, b->p->n_embd, b->s->n_tokens * b->s->n_seq);
}

static struct ggml_tensor *output(struct graph_builder *b, struct ggml_tensor *x) {
    x = builder_norm(b, x, b->m->output_norm, b->m->output_norm_bias, "output_norm");
    if (b->s->is_embedding) {
        return x;
    }
    x = builder_product(b, b->m->output, NULL, x, "logits");
    x = scaled(b, x, b->p->logit_scale, "logits_scaled");
    return b->p->logit_cap != 0 ? builder_capped(b, x, b->p->logit_cap, "logits_cap") : x;
}

void graph_build(const struct model *m, const struct graph_shape *shape, struct ggml_context *ctx, struct ggml_cgraph *graph,
    struct graph_inputs *in) {
    struct graph_builder b = {.s = shape, .m = m, .p = &m->params, .ctx = ctx, .graph = graph, .in = in, .i = -1};
    inputs_make(&b);
    struct ggml_tensor *x = embedding(&b);
    for (int64_t i = 0; i < b.p->n_layer; i++) {
        b.i = i;
        x = layer(&b, x);
    }
    b.i = -1;
    in->logits = output(&b, x);
    ggml_build_forward_expand(graph, in->logits);
}

// SPDX-License-Identifier: MIT
// graph.c: a batch of tokens through the model as one graph. With a cache new keys and values are written into rows of it that an
// input names, so that the graph of every token is the same and is planned once for each length of the view on the cache. Without
// one, sequences of a batch lie side by side, and each sees only itself: what training needs.
// Constructors never fail here: a mistake is poison, which the caller finds.

#include "model/model.h"

#include <math.h>
#include <stdio.h>

struct builder {
    const struct graph_shape *s;
    const struct model *m;
    const struct model_params *p;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct graph_inputs *in;
    int64_t i; // the layer, -1: none
};

static struct ggml_tensor *input(struct builder *b, enum ggml_type type, int64_t n0, int64_t n1, const char *name) {
    struct ggml_tensor *t = n1 > 0 ? ggml_new_tensor_2d(b->ctx, type, n0, n1) : ggml_new_tensor_1d(b->ctx, type, n0);
    ggml_set_input(t);
    ggml_set_name(t, name);
    return t;
}

struct ggml_tensor *graph_named(struct ggml_tensor *t, int64_t i, const char *name) {
    if (i >= 0) {
        ggml_format_name(t, "blk.%d.%s", (int) i, name);
    } else {
        ggml_set_name(t, name);
    }
    return t;
}

static struct ggml_tensor *named(const struct builder *b, struct ggml_tensor *t, const char *name) {
    return graph_named(t, b->i, name);
}

// name: of the result and, with .rms, of what the weight is multiplied with.
static struct ggml_tensor *norm(struct builder *b, struct ggml_tensor *x, struct ggml_tensor *weight, const char *name) {
    char part[32];
    snprintf(part, sizeof part, "%s.rms", name);
    return named(b, ggml_mul(b->ctx, named(b, ggml_rms_norm(b->ctx, x, b->p->rms_eps), part), weight), name);
}

struct ggml_tensor *graph_product(struct ggml_context *ctx, const struct model *model, struct ggml_tensor *weight,
    struct ggml_tensor *x, int64_t i, const char *name) {
    struct ggml_tensor *y = graph_named(ggml_mul_mat(ctx, weight, x), i, name);
    for (const struct model_lora *lora = model->loras; lora != NULL; lora = lora->next) {
        const struct lora_pair *pair = lora_find(lora, weight);
        if (pair != NULL) {
            char part[48];
            snprintf(part, sizeof part, "%s.lora", name);
            struct ggml_tensor *low = graph_named(ggml_mul_mat(ctx, pair->a, x), i, part);
            struct ggml_tensor *add = graph_named(ggml_mul_mat(ctx, pair->b, low), i, part);
            y = graph_named(ggml_add(ctx, y, graph_named(ggml_scale(ctx, add, pair->scale), i, part)), i, name);
        }
    }
    return y;
}

static struct ggml_tensor *product(struct builder *b, struct ggml_tensor *weight, struct ggml_tensor *x, const char *name) {
    return graph_product(b->ctx, b->m, weight, x, b->i, name);
}

// A product, its bias if there is one, as heads.
static struct ggml_tensor *heads(struct builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x,
    int64_t size, int64_t n, const char *name) {
    struct ggml_tensor *y = product(b, weight, x, name);
    y                     = bias != NULL ? named(b, ggml_add(b->ctx, y, bias), name) : y;
    return ggml_reshape_4d(b->ctx, y, size, n, b->s->n_tokens, b->s->n_seq);
}

static struct ggml_tensor *rope(struct builder *b, const struct model_layer *l, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    struct ggml_tensor *factors  = l->freq_factors != NULL ? l->freq_factors : b->m->rope_freqs;
    if (b->m->rope_long != NULL && b->m->rope_short != NULL) {
        factors = b->s->n_ctx > p->n_ctx_orig ? b->m->rope_long : b->m->rope_short;
    }
    return ggml_rope_ext(b->ctx, x, b->in->pos, factors, (int) p->n_rot, p->rope_type, (int) p->n_ctx_orig, p->freq_base,
        p->freq_scale, p->ext_factor, p->attn_factor, 32, 1); // yarn's betas are these, whatever the file says: llama.cpp's are
}

static void remember(struct builder *b, struct ggml_tensor *cache, struct ggml_tensor *x, const char *name) {
    struct ggml_tensor *rows = ggml_reshape_2d(b->ctx, x, cache->ne[0], b->s->n_tokens);
    ggml_build_forward_expand(b->graph, named(b, ggml_set_rows(b->ctx, cache, rows, b->in->rows), name));
}

// The first n_kv rows of a layer's cache as [size, n_kv, n_head_kv].
static struct ggml_tensor *recall(struct builder *b, struct ggml_tensor *cache, int64_t size) {
    return ggml_view_3d(b->ctx, cache, size, b->s->n_kv, b->p->n_head_kv, cache->nb[1], ggml_row_size(cache->type, size), 0);
}

// q: [head_size, n_tokens, n_head, n_seq], k and v alike; the result has a row a token.
static struct ggml_tensor *attend(struct builder *b, struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v) {
    const float scale   = 1.0f / sqrtf((float) b->p->head_size);
    const int64_t width = b->p->head_size_v * b->p->n_head, n_rows = b->s->n_tokens * b->s->n_seq;
    if (b->s->has_flash) {
        struct ggml_tensor *y = named(b, ggml_flash_attn_ext(b->ctx, q, k, v, b->in->mask, scale, 0, 0), "attn.flash");
        ggml_flash_attn_ext_set_prec(y, GGML_PREC_F32);
        return ggml_reshape_2d(b->ctx, y, width, n_rows);
    }
    struct ggml_tensor *kq = named(b, ggml_mul_mat(b->ctx, k, q), "attn.kq");
    kq                     = named(b, ggml_soft_max_ext(b->ctx, kq, b->in->mask, scale, 0), "attn.kq_soft");
    v                      = named(b, ggml_cont(b->ctx, ggml_transpose(b->ctx, v)), "attn.v_turned");
    struct ggml_tensor *y  = named(b, ggml_mul_mat(b->ctx, v, kq), "attn.kqv");
    return ggml_cont_2d(b->ctx, ggml_permute(b->ctx, y, 0, 2, 1, 3), width, n_rows);
}

static struct ggml_tensor *attention(struct builder *b, int64_t i, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l  = &b->m->layers[i];
    struct ggml_tensor *q        = heads(b, l->q, l->q_bias, x, p->head_size, p->n_head, "attn.q_flat");
    struct ggml_tensor *k        = heads(b, l->k, l->k_bias, x, p->head_size, p->n_head_kv, "attn.k_flat");
    struct ggml_tensor *v        = heads(b, l->v, l->v_bias, x, p->head_size_v, p->n_head_kv, "attn.v_flat");
    q                            = l->q_norm != NULL ? norm(b, q, l->q_norm, "attn.q_norm") : q;
    k                            = l->k_norm != NULL ? norm(b, k, l->k_norm, "attn.k_norm") : k;
    q                            = named(b, rope(b, l, q), "attn.q");
    k                            = named(b, rope(b, l, k), "attn.k");
    v                            = named(b, v, "attn.v");
    ggml_build_forward_expand(b->graph, q);
    if (b->s->k != NULL) {
        remember(b, b->s->k[i], k, "cache_k.write");
        remember(b, b->s->v[i], v, "cache_v.write");
        k = recall(b, b->s->k[i], p->head_size);
        v = recall(b, b->s->v[i], p->head_size_v);
    } else {
        k = ggml_permute(b->ctx, k, 0, 2, 1, 3);
        v = ggml_permute(b->ctx, v, 0, 2, 1, 3);
    }
    struct ggml_tensor *y = attend(b, ggml_permute(b->ctx, q, 0, 2, 1, 3), k, v);
    y                     = product(b, l->o, named(b, y, "attn.out"), "attn.o");
    return l->o_bias != NULL ? named(b, ggml_add(b->ctx, y, l->o_bias), "attn.o") : y;
}

// Only the wanted token goes on after the last layer has looked at the others.
static struct ggml_tensor *layer(struct builder *b, int64_t i, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[i];
    struct ggml_tensor *y       = attention(b, i, norm(b, x, l->attn_norm, "attn_norm"));
    if (i + 1 == b->p->n_layer && b->in->out != NULL) {
        x = named(b, ggml_get_rows(b->ctx, x, b->in->out), "wanted_in");
        y = named(b, ggml_get_rows(b->ctx, y, b->in->out), "wanted_attn");
    }
    x = named(b, ggml_add(b->ctx, x, y), "attn.sum");
    y = graph_ffn(b->ctx, b->graph, b->m, i, norm(b, x, l->ffn_norm, "ffn_norm"));
    return named(b, ggml_add(b->ctx, x, y), "ffn.sum");
}

size_t graph_max_nodes(const struct model *m) {
    size_t n = 64 + (size_t) m->params.n_layer * (64 + 4 * (size_t) m->params.n_expert_used);
    for (const struct model_lora *lora = m->loras; lora != NULL; lora = lora->next) {
        n += 4 * lora->n_pairs;
    }
    return n;
}

void graph_build(const struct model *m, const struct graph_shape *shape, struct ggml_context *ctx, struct ggml_cgraph *graph,
    struct graph_inputs *in) {
    struct builder b     = {.s = shape, .m = m, .p = &m->params, .ctx = ctx, .graph = graph, .in = in};
    const int64_t n_rows = shape->n_tokens * shape->n_seq;
    in->tokens           = input(&b, GGML_TYPE_I32, n_rows, 0, "tokens");
    in->pos              = input(&b, GGML_TYPE_I32, shape->n_tokens, 0, "positions");
    in->rows             = shape->k != NULL ? input(&b, GGML_TYPE_I64, shape->n_tokens, 0, "cache_rows") : NULL;
    in->mask             = input(&b, GGML_TYPE_F16, shape->n_kv, shape->n_tokens, "mask");
    in->out              = shape->all_outputs ? NULL : input(&b, GGML_TYPE_I32, 1, 0, "wanted");

    struct ggml_tensor *x = ggml_get_rows(ctx, m->token_embd, in->tokens);
    ggml_set_name(x, "embedding");
    for (int64_t i = 0; i < b.p->n_layer; i++) {
        b.i = i;
        x   = layer(&b, i, x);
    }
    b.i        = -1;
    in->logits = product(&b, m->output, norm(&b, x, m->output_norm, "output_norm"), "logits");
    ggml_build_forward_expand(graph, in->logits);
}

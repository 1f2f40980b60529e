// SPDX-License-Identifier: MIT
// attention.c: the attention of a layer as a graph: queries, keys and values by one matrix or by three, their norms, rope, the
// cache, and who looks at whom.

#include "model/graph.h"

struct qkv {
    struct ggml_tensor *q, *k, *v; // [size, heads, n_tokens, n_seq]
};

static struct ggml_tensor *heads(struct graph_builder *b, struct ggml_tensor *flat, int64_t size, int64_t n) {
    return ggml_reshape_4d(b->ctx, flat, size, n, b->s->n_tokens, b->s->n_seq);
}

// n heads of a fused product, from element at on.
static struct ggml_tensor *part(struct graph_builder *b, struct ggml_tensor *flat, int64_t at, int64_t size, int64_t n) {
    const size_t one = ggml_element_size(flat);
    return ggml_view_4d(b->ctx, flat, size, n, b->s->n_tokens, b->s->n_seq, (size_t) size * one, flat->nb[1],
        flat->nb[1] * (size_t) b->s->n_tokens, (size_t) at * one);
}

static struct qkv fused(struct graph_builder *b, const struct model_layer *l, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    struct ggml_tensor *flat = builder_product(b, l->qkv, l->qkv_bias, x, "attn.qkv");
    const int64_t n_q = p->head_size * p->n_head, n_k = p->head_size * p->n_head_kv;
    return (struct qkv){part(b, flat, 0, p->head_size, p->n_head), part(b, flat, n_q, p->head_size, p->n_head_kv),
        part(b, flat, n_q + n_k, p->head_size_v, p->n_head_kv)};
}

static struct qkv apart(struct graph_builder *b, const struct model_layer *l, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    struct ggml_tensor *q = builder_product(b, l->q, l->q_bias, x, "attn.q_flat");
    struct ggml_tensor *k = builder_product(b, l->k, l->k_bias, x, "attn.k_flat");
    struct ggml_tensor *v = builder_product(b, l->v, l->v_bias, x, "attn.v_flat");
    if (builder_has(b, ARCH_QK_WIDE)) {
        q = builder_norm(b, q, l->q_norm, NULL, "attn.q_norm");
        k = builder_norm(b, k, l->k_norm, NULL, "attn.k_norm");
    }
    return (struct qkv){
        heads(b, q, p->head_size, p->n_head), heads(b, k, p->head_size, p->n_head_kv), heads(b, v, p->head_size_v, p->n_head_kv)};
}

struct ggml_tensor *builder_rope(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const bool is_local = params_has_window(p, b->i);
    struct ggml_tensor *factors = l->freq_factors != NULL ? l->freq_factors : b->m->rope_freqs;
    if (b->m->rope_long != NULL && b->m->rope_short != NULL) {
        factors = b->s->n_ctx > p->n_ctx_orig ? b->m->rope_long : b->m->rope_short;
    }
    return ggml_rope_ext(b->ctx, x, b->in->pos, factors, (int) p->n_rot, p->desc->rope_type, (int) p->n_ctx_orig,
        is_local ? p->freq_base_window : p->freq_base, is_local ? p->freq_scale_window : p->freq_scale, p->ext_factor,
        p->attn_factor, 32, 1); // yarn's betas are these, whatever the file says: llama.cpp's are
}

// ---- the cache ----

int64_t builder_seen(const struct graph_builder *b, int64_t i) {
    const int64_t n = b->s->k != NULL ? b->s->k[i]->ne[1] : b->s->n_kv;
    return n < b->s->n_kv ? n : b->s->n_kv;
}

void builder_remember(struct graph_builder *b, struct ggml_tensor *cache, struct ggml_tensor *x, const char *name) {
    struct ggml_tensor *rows = ggml_is_contiguous(x)
                                   ? ggml_reshape_2d(b->ctx, x, cache->ne[0], b->s->n_tokens)
                                   : ggml_view_2d(b->ctx, x, cache->ne[0], b->s->n_tokens, x->nb[2], 0); // part of a fused row
    struct ggml_tensor *where = params_has_window(b->p, b->i) ? b->in->window_rows : b->in->rows;
    ggml_build_forward_expand(b->graph, builder_named(b, ggml_set_rows(b->ctx, cache, rows, where), name));
}

// The rows of a layer's cache that it sees as [size, rows, n_head_kv].
static struct ggml_tensor *recall(struct graph_builder *b, struct ggml_tensor *cache, int64_t size) {
    return ggml_view_3d(
        b->ctx, cache, size, builder_seen(b, b->i), b->p->n_head_kv, cache->nb[1], ggml_row_size(cache->type, size), 0);
}

// ---- looking ----

struct ggml_tensor *builder_attend(struct graph_builder *b, struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v) {
    const struct model_params *p = b->p;
    struct ggml_tensor *sinks = b->m->layers[b->i].sinks;
    struct ggml_tensor *mask = params_has_window(p, b->i) ? b->in->window : b->in->mask;
    if (b->s->has_flash) {
        struct ggml_tensor *y = ggml_flash_attn_ext(b->ctx, q, k, v, mask, p->attn_scale, 0, p->attn_cap);
        ggml_flash_attn_ext_set_prec(builder_named(b, y, "attn.flash"), GGML_PREC_F32);
        ggml_flash_attn_ext_add_sinks(y, sinks);
        return y;
    }
    struct ggml_tensor *kq = builder_named(b, ggml_mul_mat(b->ctx, k, q), "attn.kq");
    float scale = p->attn_scale;
    if (p->attn_cap != 0) {
        kq = builder_capped(b, builder_named(b, ggml_scale(b->ctx, kq, scale), "attn.kq_scaled"), p->attn_cap, "attn.kq_cap");
        scale = 1;
    }
    kq = builder_named(b, ggml_soft_max_ext(b->ctx, kq, mask, scale, 0), "attn.kq_soft");
    ggml_soft_max_add_sinks(kq, sinks);
    v = builder_named(b, ggml_cont(b->ctx, ggml_transpose(b->ctx, v)), "attn.v_turned");
    struct ggml_tensor *y = builder_named(b, ggml_mul_mat(b->ctx, v, kq), "attn.kqv");
    return ggml_permute(b->ctx, y, 0, 2, 1, 3);
}

struct ggml_tensor *builder_rows(struct graph_builder *b, struct ggml_tensor *y) {
    const int64_t width = y->ne[0] * y->ne[1], n_rows = b->s->n_tokens * b->s->n_seq;
    return ggml_is_contiguous(y) ? ggml_reshape_2d(b->ctx, y, width, n_rows) : ggml_cont_2d(b->ctx, y, width, n_rows);
}

// Norms of heads and rope.
static struct qkv turned(struct graph_builder *b, const struct model_layer *l, struct qkv a) {
    const int every = b->p->desc->no_rope_every;
    const bool is_head = !builder_has(b, ARCH_QK_WIDE);
    a.q = is_head && l->q_norm != NULL ? builder_norm(b, a.q, l->q_norm, NULL, "attn.q_norm") : a.q;
    a.k = is_head && l->k_norm != NULL ? builder_norm(b, a.k, l->k_norm, NULL, "attn.k_norm") : a.k;
    if (!builder_has(b, ARCH_POSITIONS) && (every == 0 || (b->i + 1) % every != 0)) {
        a.q = builder_rope(b, a.q);
        a.k = builder_rope(b, a.k);
    }
    return (struct qkv){builder_named(b, a.q, "attn.q"), builder_named(b, a.k, "attn.k"), builder_named(b, a.v, "attn.v")};
}

struct ggml_tensor *builder_attention(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    if (builder_has(b, ARCH_MLA)) {
        return builder_mla(b, x);
    }
    struct qkv a = turned(b, l, l->qkv != NULL ? fused(b, l, x) : apart(b, l, x));
    ggml_build_forward_expand(b->graph, a.q);
    if (b->s->k != NULL) {
        builder_remember(b, b->s->k[b->i], a.k, "cache_k.write");
        builder_remember(b, b->s->v[b->i], a.v, "cache_v.write");
        a.k = recall(b, b->s->k[b->i], p->head_size);
        a.v = recall(b, b->s->v[b->i], p->head_size_v);
    } else {
        a.k = ggml_permute(b->ctx, a.k, 0, 2, 1, 3);
        a.v = ggml_permute(b->ctx, a.v, 0, 2, 1, 3);
    }
    struct ggml_tensor *y = builder_rows(b, builder_attend(b, ggml_permute(b->ctx, a.q, 0, 2, 1, 3), a.k, a.v));
    return builder_product(b, l->o, l->o_bias, builder_named(b, y, "attn.out"), "attn.o");
}

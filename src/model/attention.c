// SPDX-License-Identifier: MIT
// attention.c: builds the attention of a layer.

#include "base/min.h"
#include "model/graph.h"

struct qkv {
    struct ggml_tensor *q, *k, *v; // [size, heads, n_tokens, n_seq]
};

static struct ggml_tensor *heads_view(struct graph_builder *b, struct ggml_tensor *flat, int64_t size, int64_t n) {
    return ggml_reshape_4d(b->ctx, flat, size, n, b->s->n_tokens, b->s->n_seq);
}

// Returns a view of n elements of each head. In each row of flat, the first head begins at element `at`, and heads are head_size
// elements apart.
static struct ggml_tensor *heads_part(
    struct graph_builder *b, struct ggml_tensor *flat, int64_t at, int64_t n, int64_t head_size, int64_t n_heads) {
    const size_t element_size = ggml_element_size(flat);
    return ggml_view_4d(b->ctx, flat, n, n_heads, b->s->n_tokens, b->s->n_seq, (size_t) head_size * element_size, flat->nb[1],
        flat->nb[1] * (size_t) b->s->n_tokens, (size_t) at * element_size);
}

static struct qkv qkv_fused(struct graph_builder *b, const struct model_layer *l, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    struct ggml_tensor *flat = builder_product(b, l->qkv, l->qkv_bias, x, "attn.qkv");
    const int64_t n_q = p->head_size * p->n_head, n_k = p->head_size * p->n_head_kv;
    return (struct qkv){heads_part(b, flat, 0, p->head_size, p->head_size, p->n_head),
        heads_part(b, flat, n_q, p->head_size, p->head_size, p->n_head_kv),
        heads_part(b, flat, n_q + n_k, p->head_size_v, p->head_size_v, p->n_head_kv)};
}

static struct qkv qkv_separate(struct graph_builder *b, const struct model_layer *l, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    struct ggml_tensor *q = builder_product(b, l->q, l->q_bias, x, "attn.q_flat");
    struct ggml_tensor *k = builder_product(b, l->k, l->k_bias, x, "attn.k_flat");
    struct ggml_tensor *v = builder_product(b, l->v, l->v_bias, x, "attn.v_flat");
    if (builder_has(b, ARCH_QK_WIDE)) {
        q = builder_norm(b, q, l->q_norm, NULL, "attn.q_norm");
        k = builder_norm(b, k, l->k_norm, NULL, "attn.k_norm");
    }
    return (struct qkv){heads_view(b, q, p->head_size, p->n_head), heads_view(b, k, p->head_size, p->n_head_kv),
        heads_view(b, v, p->head_size_v, p->n_head_kv)};
}

static struct ggml_tensor *heads_rope(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const bool is_local = params_has_window(p, b->i);
    struct ggml_tensor *factors = l->freq_factors != NULL ? l->freq_factors : b->m->rope_freqs;
    if (b->m->rope_long != NULL && b->m->rope_short != NULL) {
        factors = b->s->n_ctx > p->n_ctx_orig ? b->m->rope_long : b->m->rope_short;
    }
    return ggml_rope_ext(b->ctx, x, b->in->pos, factors, (int) p->n_rot, p->desc->rope_type, (int) p->n_ctx_orig,
        is_local ? p->freq_base_window : p->freq_base, is_local ? p->freq_scale_window : p->freq_scale, p->ext_factor,
        p->attn_factor, 32, 1); // llama.cpp always uses these YaRN betas, whatever the file specifies
}

// ---- the cache ----

int64_t builder_n_visible(const struct graph_builder *b, int64_t i) {
    const int64_t n = b->s->k != NULL ? b->s->k[i]->ne[1] : b->s->n_kv;
    return min_i64(n, b->s->n_kv);
}

static void cache_write(struct graph_builder *b, struct ggml_tensor *cache, struct ggml_tensor *x, const char *name) {
    struct ggml_tensor *rows =
        ggml_is_contiguous(x) ? ggml_reshape_2d(b->ctx, x, cache->ne[0], b->s->n_tokens)
                              : ggml_view_2d(b->ctx, x, cache->ne[0], b->s->n_tokens, x->nb[2], 0); // a view of fused QKV rows
    struct ggml_tensor *row_ids = params_has_window(b->p, b->i) ? b->in->window_rows : b->in->rows;
    ggml_build_forward_expand(b->graph, builder_named(b, ggml_set_rows(b->ctx, cache, rows, row_ids), name));
}

// Returns the cache rows that the current layer attends to, as [size, rows, n_head_kv].
static struct ggml_tensor *cache_view(struct graph_builder *b, struct ggml_tensor *cache, int64_t size) {
    return ggml_view_3d(
        b->ctx, cache, size, builder_n_visible(b, b->i), b->p->n_head_kv, cache->nb[1], ggml_row_size(cache->type, size), 0);
}

// ---- attention ----

// q, k and v are [size, n_tokens, heads, n_seq]. The result is [head_size_v, n_head, n_tokens, n_seq].
static struct ggml_tensor *heads_attend(
    struct graph_builder *b, struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v) {
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
    v = builder_named(b, ggml_cont(b->ctx, ggml_transpose(b->ctx, v)), "attn.v_turned"); // transposed, not rotated by RoPE
    struct ggml_tensor *y = builder_named(b, ggml_mul_mat(b->ctx, v, kq), "attn.kqv");
    return ggml_permute(b->ctx, y, 0, 2, 1, 3);
}

// Returns one row per token.
static struct ggml_tensor *heads_join(struct graph_builder *b, struct ggml_tensor *y) {
    const int64_t width = y->ne[0] * y->ne[1], n_rows = b->s->n_tokens * b->s->n_seq;
    return ggml_is_contiguous(y) ? ggml_reshape_2d(b->ctx, y, width, n_rows) : ggml_cont_2d(b->ctx, y, width, n_rows);
}

static struct qkv qkv_rotate(struct graph_builder *b, const struct model_layer *l, struct qkv a) {
    const int every = b->p->desc->no_rope_every;
    const bool has_head_norms = !builder_has(b, ARCH_QK_WIDE);
    if (has_head_norms && l->q_norm != NULL) {
        a.q = builder_norm(b, a.q, l->q_norm, NULL, "attn.q_norm");
    }
    if (has_head_norms && l->k_norm != NULL) {
        a.k = builder_norm(b, a.k, l->k_norm, NULL, "attn.k_norm");
    }
    if (!builder_has(b, ARCH_POSITIONS) && (every == 0 || (b->i + 1) % every != 0)) {
        a.q = heads_rope(b, a.q);
        a.k = heads_rope(b, a.k);
    }
    return (struct qkv){builder_named(b, a.q, "attn.q"), builder_named(b, a.k, "attn.k"), builder_named(b, a.v, "attn.v")};
}

// ---- ARCH_MLA: multi-head latent attention (DeepSeek). Keys and values of all heads derive from one latent row per token. The
// rows are not expanded: the matrix that would expand them to keys is applied to the queries, and the matrix that would expand
// them to values is applied to the result. So a cache row is only [latent | rotated elements of the key] ----

static struct ggml_tensor *mla_queries(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const int64_t n_unrotated = p->mla_key - p->n_rot;
    if (l->q_a != NULL) {
        x = builder_norm(b, builder_product(b, l->q_a, NULL, x, "attn.q_low"), l->q_a_norm, NULL, "attn.q_low_norm");
    }
    struct ggml_tensor *flat = builder_product(b, l->q_a != NULL ? l->q_b : l->q, NULL, x, "attn.q_flat");
    struct ggml_tensor *unrotated = heads_part(b, flat, 0, n_unrotated, p->mla_key, p->n_head);
    struct ggml_tensor *rotated = heads_rope(b, heads_part(b, flat, n_unrotated, p->n_rot, p->mla_key, p->n_head));
    unrotated = builder_named(b, ggml_mul_mat(b->ctx, l->k_b, ggml_permute(b->ctx, unrotated, 0, 2, 1, 3)), "attn.q_latent");
    unrotated = ggml_permute(b->ctx, unrotated, 0, 2, 1, 3); // [latent, heads, n_tokens, n_seq]
    return builder_named(b, ggml_concat(b->ctx, unrotated, builder_named(b, rotated, "attn.q_turned"), 0), "attn.q");
}

static struct ggml_tensor *mla_keys(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *flat = builder_product(b, l->kv_a, NULL, x, "attn.kv_flat");
    struct ggml_tensor *latent = heads_part(b, flat, 0, p->head_size_v, p->head_size, 1);
    struct ggml_tensor *rotated = heads_rope(b, heads_part(b, flat, p->head_size_v, p->n_rot, p->head_size, 1));
    latent = builder_norm(b, latent, l->kv_a_norm, NULL, "attn.kv_norm");
    return builder_named(b, ggml_concat(b->ctx, latent, builder_named(b, rotated, "attn.k_turned"), 0), "attn.k");
}

static struct ggml_tensor *mla_build(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *q = mla_queries(b, x), *k = mla_keys(b, x);
    ggml_build_forward_expand(b->graph, q);
    if (b->s->k != NULL) {
        struct ggml_tensor *cache = b->s->k[b->i];
        cache_write(b, cache, k, "cache_k.write");
        k = ggml_view_3d(b->ctx, cache, p->head_size, b->s->n_kv, 1, cache->nb[1], cache->nb[1], 0);
    } else {
        k = ggml_permute(b->ctx, k, 0, 2, 1, 3);
    }
    struct ggml_tensor *v =
        ggml_view_4d(b->ctx, k, p->head_size_v, k->ne[1], k->ne[2], k->ne[3], k->nb[1], k->nb[2], k->nb[3], 0);
    struct ggml_tensor *y = heads_attend(b, ggml_permute(b->ctx, q, 0, 2, 1, 3), k, v);
    y = builder_named(b, ggml_mul_mat(b->ctx, l->v_b, ggml_permute(b->ctx, y, 0, 2, 1, 3)), "attn.heads");
    y = builder_named(b, heads_join(b, ggml_permute(b->ctx, y, 0, 2, 1, 3)), "attn.out");
    return builder_product(b, l->o, l->o_bias, y, "attn.o");
}

// ---- any architecture ----

struct ggml_tensor *builder_attention(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    if (builder_has(b, ARCH_MLA)) {
        return mla_build(b, x);
    }
    struct qkv a = qkv_rotate(b, l, l->qkv != NULL ? qkv_fused(b, l, x) : qkv_separate(b, l, x));
    ggml_build_forward_expand(b->graph, a.q);
    if (b->s->k != NULL) {
        cache_write(b, b->s->k[b->i], a.k, "cache_k.write");
        cache_write(b, b->s->v[b->i], a.v, "cache_v.write");
        a.k = cache_view(b, b->s->k[b->i], p->head_size);
        a.v = cache_view(b, b->s->v[b->i], p->head_size_v);
    } else {
        a.k = ggml_permute(b->ctx, a.k, 0, 2, 1, 3);
        a.v = ggml_permute(b->ctx, a.v, 0, 2, 1, 3);
    }
    struct ggml_tensor *y = heads_join(b, heads_attend(b, ggml_permute(b->ctx, a.q, 0, 2, 1, 3), a.k, a.v));
    return builder_product(b, l->o, l->o_bias, builder_named(b, y, "attn.out"), "attn.o");
}

// SPDX-License-Identifier: MIT
// mla.c: attention whose keys and values, of all heads, are made of one short row a token (DeepSeek's). What would make keys of
// the row is applied to the queries, and what would make values to the result, so that the cache holds nothing but the row and
// the elements of the key that are turned: [latent | turned].

#include "model/graph.h"

// n elements of each head of flat, from at on, as [n, heads, n_tokens, n_seq].
static struct ggml_tensor *part(
    struct graph_builder *b, struct ggml_tensor *flat, int64_t at, int64_t n, int64_t head_size, int64_t n_heads) {
    const size_t one = ggml_element_size(flat);
    return ggml_view_4d(b->ctx, flat, n, n_heads, b->s->n_tokens, b->s->n_seq, (size_t) head_size * one, flat->nb[1],
        flat->nb[1] * (size_t) b->s->n_tokens, (size_t) at * one);
}

static struct ggml_tensor *queries(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const int64_t n_still = p->mla_key - p->n_rot;
    if (l->q_a != NULL) {
        x = builder_norm(b, builder_product(b, l->q_a, NULL, x, "attn.q_low"), l->q_a_norm, NULL, "attn.q_low_norm");
    }
    struct ggml_tensor *flat = builder_product(b, l->q_a != NULL ? l->q_b : l->q, NULL, x, "attn.q_flat");
    struct ggml_tensor *still = part(b, flat, 0, n_still, p->mla_key, p->n_head);
    struct ggml_tensor *turned = builder_rope(b, part(b, flat, n_still, p->n_rot, p->mla_key, p->n_head));
    still = builder_named(b, ggml_mul_mat(b->ctx, l->k_b, ggml_permute(b->ctx, still, 0, 2, 1, 3)), "attn.q_latent");
    still = ggml_permute(b->ctx, still, 0, 2, 1, 3); // [latent, heads, n_tokens, n_seq]
    return builder_named(b, ggml_concat(b->ctx, still, builder_named(b, turned, "attn.q_turned"), 0), "attn.q");
}

static struct ggml_tensor *keys(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *flat = builder_product(b, l->kv_a, NULL, x, "attn.kv_flat");
    struct ggml_tensor *latent = part(b, flat, 0, p->head_size_v, p->head_size, 1);
    struct ggml_tensor *turned = builder_rope(b, part(b, flat, p->head_size_v, p->n_rot, p->head_size, 1));
    latent = builder_norm(b, latent, l->kv_a_norm, NULL, "attn.kv_norm");
    return builder_named(b, ggml_concat(b->ctx, latent, builder_named(b, turned, "attn.k_turned"), 0), "attn.k");
}

struct ggml_tensor *builder_mla(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *q = queries(b, x), *k = keys(b, x);
    ggml_build_forward_expand(b->graph, q);
    if (b->s->k != NULL) {
        struct ggml_tensor *cache = b->s->k[b->i];
        builder_remember(b, cache, k, "cache_k.write");
        k = ggml_view_3d(b->ctx, cache, p->head_size, b->s->n_kv, 1, cache->nb[1], cache->nb[1], 0);
    } else {
        k = ggml_permute(b->ctx, k, 0, 2, 1, 3);
    }
    struct ggml_tensor *v =
        ggml_view_4d(b->ctx, k, p->head_size_v, k->ne[1], k->ne[2], k->ne[3], k->nb[1], k->nb[2], k->nb[3], 0);
    struct ggml_tensor *y = builder_attend(b, ggml_permute(b->ctx, q, 0, 2, 1, 3), k, v);
    y = builder_named(b, ggml_mul_mat(b->ctx, l->v_b, ggml_permute(b->ctx, y, 0, 2, 1, 3)), "attn.heads");
    y = builder_named(b, builder_rows(b, ggml_permute(b->ctx, y, 0, 2, 1, 3)), "attn.out");
    return builder_product(b, l->o, l->o_bias, y, "attn.o");
}

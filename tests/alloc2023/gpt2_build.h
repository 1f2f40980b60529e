// SPDX-License-Identifier: MIT
// gpt2_build.h: builds the tensors and the graph of the model of gpt2.h with the 2023 API. Include it after 2023/ggml.h.
#pragma once

#include "gpt2.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model {
    struct ggml_tensor *wte, *wpe, *ln_f_g, *ln_f_b;
    struct ggml_tensor *layers[N_LAYER][N_PER_LAYER];
    struct ggml_tensor *k, *v; // the cache: N_EMBD elements per layer and position
};

// The inputs that differ between evaluations.
struct inputs {
    struct ggml_tensor *tokens, *positions, *scale, *mask;
    int n, n_past;
};

// Computes the attention weights from kq, the products of keys and queries, with the ops of the program's date.
typedef struct ggml_tensor *(*attend_t)(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in);

static const float kq_scale = 0.28867513f; // 1 / sqrt(N_EMBD / N_HEAD)

static inline void model_make(struct model *m, struct ggml_context *ctx) {
    m->wte = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_EMBD, N_VOCAB);
    m->wpe = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_EMBD, N_CTX);
    m->ln_f_g = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N_EMBD);
    m->ln_f_b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N_EMBD);
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            m->layers[il][k] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, layer_shapes[k][0], layer_shapes[k][1]);
        }
    }
    m->k = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N_LAYER * N_CTX * N_EMBD);
    m->v = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N_LAYER * N_CTX * N_EMBD);
}

typedef void (*fill_t)(struct ggml_tensor *tensor, const float *data);

static inline void model_fill(const struct model *m, const struct weights *w, fill_t fill) {
    fill(m->wte, w->wte);
    fill(m->wpe, w->wpe);
    fill(m->ln_f_g, w->ln_f_g);
    fill(m->ln_f_b, w->ln_f_b);
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            fill(m->layers[il][k], w->layers[il][k]);
        }
    }
}

// In 2023, programs often repeated the smaller operand explicitly.
static inline struct ggml_tensor *norm_rows(
    struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *gain, struct ggml_tensor *bias) {
    x = ggml_norm(ctx, x, 1e-5f);
    x = ggml_mul(ctx, ggml_repeat(ctx, gain, x), x);
    return ggml_add(ctx, x, ggml_repeat(ctx, bias, x));
}

static inline struct ggml_tensor *affine(
    struct ggml_context *ctx, struct ggml_tensor *w, struct ggml_tensor *bias, struct ggml_tensor *x) {
    x = ggml_mul_mat(ctx, w, x);
    return ggml_add(ctx, ggml_repeat(ctx, bias, x), x);
}

// Returns all cached positions of a layer: [head size, heads, positions].
static inline struct ggml_tensor *cache_heads(struct ggml_context *ctx, struct ggml_tensor *cache, int il, int n_kv) {
    struct ggml_tensor *rows = ggml_view_1d(ctx, cache, n_kv * N_EMBD, (size_t) il * N_CTX * N_EMBD * ggml_element_size(cache));
    return ggml_reshape_3d(ctx, rows, N_EMBD / N_HEAD, N_HEAD, n_kv);
}

static inline void cache_store(struct ggml_context *ctx, struct ggml_cgraph *gf, struct ggml_tensor *cache, int il,
    struct ggml_tensor *x, const struct inputs *in) {
    const size_t off = (size_t) (il * N_CTX + in->n_past) * N_EMBD * ggml_element_size(cache);
    ggml_build_forward_expand(gf, ggml_cpy(ctx, x, ggml_view_1d(ctx, cache, in->n * N_EMBD, off)));
}

static inline struct ggml_tensor *gpt2_attention(struct ggml_context *ctx, struct ggml_cgraph *gf, const struct model *m, int il,
    struct ggml_tensor *x, const struct inputs *in, attend_t attend) {
    struct ggml_tensor *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = ggml_view_2d(ctx, x, N_EMBD, in->n, x->nb[1], (size_t) i * N_EMBD * sizeof(float));
    }
    cache_store(ctx, gf, m->k, il, part[1], in);
    cache_store(ctx, gf, m->v, il, part[2], in);
    const int n_kv = in->n_past + in->n;
    // In 2023, programs made a tensor contiguous by a copy into a new tensor.
    struct ggml_tensor *q = ggml_cpy(ctx, part[0], ggml_new_tensor_3d(ctx, GGML_TYPE_F32, N_EMBD / N_HEAD, N_HEAD, in->n));
    struct ggml_tensor *k = ggml_permute(ctx, cache_heads(ctx, m->k, il, n_kv), 0, 2, 1, 3);
    struct ggml_tensor *v = ggml_permute(ctx, cache_heads(ctx, m->v, il, n_kv), 1, 2, 0, 3);
    v = ggml_cpy(ctx, v, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n_kv, N_EMBD / N_HEAD, N_HEAD));
    struct ggml_tensor *weight = attend(ctx, ggml_mul_mat(ctx, k, ggml_permute(ctx, q, 0, 2, 1, 3)), in);
    struct ggml_tensor *merged = ggml_permute(ctx, ggml_mul_mat(ctx, v, weight), 0, 2, 1, 3);
    return ggml_cpy(ctx, merged, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_EMBD, in->n));
}

// Builds the graph. Its last node is the logits, one column per token.
static inline struct ggml_tensor *gpt2_build(
    struct ggml_context *ctx, struct ggml_cgraph *gf, const struct model *m, const struct inputs *in, attend_t attend) {
    struct ggml_tensor *x = ggml_add(ctx, ggml_get_rows(ctx, m->wte, in->tokens), ggml_get_rows(ctx, m->wpe, in->positions));
    for (int il = 0; il < N_LAYER; il++) {
        struct ggml_tensor *const *t = m->layers[il];
        struct ggml_tensor *a = affine(ctx, t[ATTN_W], t[ATTN_B], norm_rows(ctx, x, t[LN1_G], t[LN1_B]));
        a = gpt2_attention(ctx, gf, m, il, a, in, attend);
        x = ggml_add(ctx, affine(ctx, t[PROJ_W], t[PROJ_B], a), x);
        a = affine(ctx, t[FC_W], t[FC_B], norm_rows(ctx, x, t[LN2_G], t[LN2_B]));
        x = ggml_add(ctx, affine(ctx, t[DOWN_W], t[DOWN_B], ggml_gelu(ctx, a)), x);
    }
    struct ggml_tensor *logits = ggml_mul_mat(ctx, m->wte, norm_rows(ctx, x, m->ln_f_g, m->ln_f_b));
    ggml_build_forward_expand(gf, logits);
    return logits;
}

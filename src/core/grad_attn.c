// SPDX-License-Identifier: MIT
// grad_attn.c: the gradient of FLASH_ATTN_EXT. The op keeps no probabilities, so they are computed again, as plain attention
// does:
//     s = k q, p = softmax(scale s + slope mask, sinks), out = v p
// One score matrix of all heads at a time is what that takes; activations of the forward pass are q, k, v and mask only.

#include "core/grad.h"

static struct ggml_tensor *as_f32(struct berth_grad *g, struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 ? t : ggml_cast(g->ctx, t, GGML_TYPE_F32);
}

// What the probabilities are made of.
struct scores {
    struct ggml_tensor *bent; // tanh(scale s / cap), NULL without a cap
    struct ggml_tensor *p;
    float scale, cap; // of s before the cap, and the cap
};

static struct scores scores_of(struct berth_grad *g, struct ggml_tensor *q, struct ggml_tensor *k) {
    struct ggml_context *ctx = g->ctx;
    struct scores s = {.scale = param_f32(g->node, 0), .cap = param_f32(g->node, 2)};
    struct ggml_tensor *x = ggml_mul_mat(ctx, k, q);
    float scale = s.scale;
    if (s.cap != 0.0f) {
        s.bent = ggml_tanh(ctx, ggml_scale(ctx, x, s.scale / s.cap));
        x = s.bent;
        scale = s.cap;
    }
    s.p = ggml_soft_max_ext(ctx, x, g->node->src[3], scale, param_f32(g->node, 1));
    ggml_soft_max_add_sinks(s.p, g->node->src[4]);
    return s;
}

// From the gradient of p to that of s.
static struct ggml_tensor *scores_back(struct berth_grad *g, const struct scores *s, struct ggml_tensor *grad) {
    if (s->bent == NULL) {
        return ggml_soft_max_ext_back(g->ctx, grad, s->p, s->scale, 0.0f);
    }
    // scale of the softmax and slope of the cap make one factor: cap (1 - bent^2) scale / cap
    struct ggml_tensor *by_bent = ggml_soft_max_ext_back(g->ctx, grad, s->p, s->scale, 0.0f);
    return ggml_mul(g->ctx, by_bent, berth_grad_one_minus(g, ggml_sqr(g->ctx, s->bent)));
}

void berth_grad_flash_attn_ext(struct berth_grad *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *q = berth_grad_dense(g, as_f32(g, g->node->src[0])), *k = as_f32(g, g->node->src[1]);
    struct ggml_tensor *v = as_f32(g, g->node->src[2]);
    const struct scores s = scores_of(g, q, k);
    struct ggml_tensor *out = ggml_permute(ctx, g->grad, 0, 2, 1, 3); // of [d_v, n_token, n_head, n_seq]
    out = ggml_cont(ctx, out);
    struct ggml_tensor *by_p = ggml_mul_mat(ctx, v, out);
    struct ggml_tensor *by_s = scores_back(g, &s, by_p);
    if (berth_grad_wants(g, 0)) {
        berth_grad_put_add(g, 0, ggml_out_prod(ctx, k, ggml_transpose(ctx, by_s)));
    }
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_fold_batches(g, ggml_out_prod(ctx, q, by_s), g->node->src[1]));
    }
    if (berth_grad_wants(g, 2)) {
        berth_grad_put_add(g, 2, berth_grad_fold_batches(g, ggml_out_prod(ctx, out, s.p), g->node->src[2]));
    }
    if (berth_grad_wants(g, 4)) {
        berth_grad_put_sub(g, 4, berth_grad_of_sinks(g, s.p, by_p, g->node->src[4]));
    }
}

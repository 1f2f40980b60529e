// SPDX-License-Identifier: MIT
// grad_reduce.c: gradients of ops_reduce.c: what was summed is repeated, and the other way round.

#include "core/grad.h"

void berth_grad_sum(struct berth_grad *g) {
    berth_grad_put_add1(g, 0, g->grad);
}

void berth_grad_sum_rows(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_repeat(g->ctx, g->grad, g->node->src[0]));
}

void berth_grad_mean(struct berth_grad *g) {
    const float each = 1.0f / (float) g->node->src[0]->ne[0];
    berth_grad_put_add1(g, 0, ggml_scale(g->ctx, berth_grad_dense(g, g->grad), each));
}

// Element i is in all sums from i on: the whole row without what came before.
void berth_grad_cumsum(struct berth_grad *g) {
    struct ggml_tensor *grad = berth_grad_dense(g, g->grad);
    struct ggml_tensor *before = ggml_sub(g->ctx, ggml_cumsum(g->ctx, grad), grad);
    struct ggml_tensor *all = ggml_repeat(g->ctx, ggml_sum_rows(g->ctx, grad), grad);
    berth_grad_put_add(g, 0, ggml_sub(g->ctx, all, before));
}

void berth_grad_repeat(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_repeat_back(g->ctx, g->grad, g->node->src[0]));
}

void berth_grad_repeat_back(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_repeat(g->ctx, g->grad, g->node->src[0]));
}

void berth_grad_concat(struct berth_grad *g) {
    const int dim = g->node->op_params[0];
    size_t offset = 0;
    for (int i = 0; i < 2; i++) {
        const struct ggml_tensor *src = g->node->src[i];
        if (berth_grad_wants(g, i)) {
            struct ggml_tensor *part = ggml_view_4d(g->ctx, g->grad, src->ne[0], src->ne[1], src->ne[2], src->ne[3],
                g->grad->nb[1], g->grad->nb[2], g->grad->nb[3], offset);
            berth_grad_put_add(g, i, ggml_cont(g->ctx, part));
        }
        offset += (size_t) src->ne[dim] * g->grad->nb[dim];
    }
}

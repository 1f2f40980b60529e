// SPDX-License-Identifier: MIT
// grad_view.c: gradients of ops_view.c: other looks at the gradient, and parts of it.

#include "core/grad.h"

struct ggml_tensor *berth_grad_part(struct berth_grad *g) {
    const struct ggml_tensor *b = g->node->src[1];
    const int32_t *p = g->node->op_params;
    return ggml_view_4d(g->ctx, berth_grad_dense(g, g->grad), b->ne[0], b->ne[1], b->ne[2], b->ne[3], (size_t) p[0],
        (size_t) p[1], (size_t) p[2], (size_t) p[3]);
}

// What was copied passes its gradient on; what was overwritten has none.
void berth_grad_cpy(struct berth_grad *g) {
    berth_grad_put_add(g, 0, berth_grad_shape(g, g->grad, g->node->src[0]));
}

void berth_grad_cont(struct berth_grad *g) {
    const bool same = ggml_are_same_shape(g->grad, g->node->src[0]);
    berth_grad_put_add(g, 0, same ? g->grad : berth_grad_shape(g, g->grad, g->node->src[0]));
}

void berth_grad_reshape(struct berth_grad *g) {
    berth_grad_put_add(g, 0, berth_grad_shape(g, g->grad, g->node->src[0]));
}

// Views of views count from the tensor that is there: between rows of a view there may be elements of others.
void berth_grad_view(struct berth_grad *g) {
    const struct ggml_tensor *node = g->node;
    struct ggml_tensor *to = node->src[0];
    while (!ggml_is_contiguous(to) && berth_op_info(to->op)->is_view && to->src[0] != NULL) {
        to = to->src[0];
    }
    const size_t size = ggml_type_size(to->type);
    const size_t offset = node->view_offs - to->view_offs;
    if (!ggml_is_contiguous(to) || ggml_blck_size(to->type) != 1 || (node->nb[0] != size && node->ne[0] > 1)) {
        berth_grad_refuse(
            g, "a view with strides " BERTH_STRIDE " of a tensor with strides " BERTH_STRIDE, BERTH_NB(node), BERTH_NB(to));
        return;
    }
    const size_t f32 = sizeof(float);
    const size_t nb[] = {f32, node->nb[1] / size * f32, node->nb[2] / size * f32, node->nb[3] / size * f32};
    berth_grad_put_acc(g, to, g->grad, nb, offset / size * f32);
}

void berth_grad_permute(struct berth_grad *g) {
    int back[GGML_MAX_DIMS];
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        back[g->node->op_params[i]] = i;
    }
    berth_grad_put_add(g, 0, ggml_permute(g->ctx, g->grad, back[0], back[1], back[2], back[3]));
}

void berth_grad_transpose(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_transpose(g->ctx, g->grad));
}

// The part that was overwritten is the second source's, the rest the first one's.
void berth_grad_set(struct berth_grad *g) {
    struct ggml_tensor *part = berth_grad_part(g);
    const int32_t *p = g->node->op_params;
    if (berth_grad_wants(g, 0)) {
        struct ggml_tensor *rest = ggml_acc(g->ctx, berth_grad_dense(g, g->grad), ggml_neg(g->ctx, part), (size_t) p[0],
            (size_t) p[1], (size_t) p[2], (size_t) p[3]);
        berth_grad_put_add(g, 0, rest);
    }
    if (berth_grad_wants(g, 1)) {
        berth_grad_put_add(g, 1, berth_grad_shape(g, ggml_cont(g->ctx, part), g->node->src[1]));
    }
}

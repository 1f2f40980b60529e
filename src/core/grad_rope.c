// SPDX-License-Identifier: MIT
// grad_rope.c: gradients of ops_rope.c: a rotation turns back by the same angles, with all parameters of the op: sections, the
// offset of the first dimension that is turned, and frequency factors, which get no gradient themselves.

#include "core/grad.h"

static void turn(struct berth_grad *g, enum ggml_op op) {
    const struct ggml_tensor *node = g->node;
    struct ggml_tensor *result = berth_like(g->ctx, "ggml_build_backward_expand", g->grad);
    berth_grad_put_add(
        g, 0, berth_op_set(result, op, node->op_params, sizeof node->op_params, g->grad, node->src[1], node->src[2]));
}

void berth_grad_rope(struct berth_grad *g) {
    turn(g, GGML_OP_ROPE_BACK);
}

void berth_grad_rope_back(struct berth_grad *g) {
    turn(g, GGML_OP_ROPE);
}

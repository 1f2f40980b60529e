// SPDX-License-Identifier: MIT
// grad_train.c: gradients of ops_train.c. Labels are given, not learnt: they get none.

#include "core/grad.h"

void berth_grad_cross_entropy_loss(struct berth_grad *g) {
    berth_grad_put_add(g, 0, ggml_cross_entropy_loss_back(g->ctx, g->grad, g->node->src[0], g->node->src[1]));
}

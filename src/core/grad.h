// SPDX-License-Identifier: MIT
// grad.h: the interface between backward.c and the gradient rules, and helpers for rules.
// Rule: a function per op, next to the op's constructor (ops_*.c), named in the op's row of the op table.
// A rule gets a node and its gradient. It adds a gradient to each source that needs one:
//
//     static void grad_sqr(struct berth_grad *g) {
//         berth_grad_put_add(g, 0, ggml_scale(g->ctx, ggml_mul(g->ctx, g->node->src[0], g->grad), 2.0f));
//     }
//
// Rules use the public constructors, so that a tensor that cannot be built becomes poison.
#pragma once

#include "core/op.h"
#include "core/op_params.h"

struct berth_grad {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    const bool *needed;       // by hash set slot: the tensor needs a gradient
    struct ggml_tensor *node; // node whose op has the rule
    struct ggml_tensor *grad; // gradient of the loss with respect to node; f32
};

bool berth_grad_needed(const struct berth_grad *g, int i);

// t has the shape of source i. If the source needs no gradient, does nothing.
// Check berth_grad_needed before building an expensive t.
void berth_grad_put_add(struct berth_grad *g, int i, struct ggml_tensor *t);
void berth_grad_put_sub(struct berth_grad *g, int i, struct ggml_tensor *t);
// If t has one element, the element is added to all elements of source i's gradient. If t has one element per row, each element
// is added to all elements of its row.
void berth_grad_put_add1(struct berth_grad *g, int i, struct ggml_tensor *t);
// `to` is a source, or the tensor that a source views. t is added at offset with strides nb[1..3], as f32.
void berth_grad_put_acc(struct berth_grad *g, struct ggml_tensor *to, struct ggml_tensor *t, const size_t nb[4], size_t offset);

// The rule does not support this node. Poisons the context and the graph.
void berth_grad_refuse(struct berth_grad *g, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- helpers for rules ----

// Returns t, copied if it is not contiguous.
static inline struct ggml_tensor *berth_grad_dense(struct berth_grad *g, struct ggml_tensor *t) {
    return t == NULL || ggml_is_contiguous(t) ? t : ggml_cont(g->ctx, t);
}
// t has the shape of a repeated `like`. Returns the sum over the repetitions.
static inline struct ggml_tensor *berth_grad_fold(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *like) {
    return t == NULL || ggml_are_same_shape(t, like) ? t : ggml_repeat_back(g->ctx, t, like);
}
static inline struct ggml_tensor *berth_grad_shape(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *like) {
    return ggml_reshape(g->ctx, berth_grad_dense(g, t), like);
}
static inline struct ggml_tensor *berth_grad_one_minus(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_scale_bias(g->ctx, t, -1.0f, 1.0f);
}
// Returns the part of the gradient that the op_params of ACC and SET describe, in the shape of source 1 (ops_view.c).
struct ggml_tensor *berth_grad_part(struct berth_grad *g);
// For products in which several batches of b share a batch of a: sums t over the batches that share one (ops_matmul.c).
struct ggml_tensor *berth_grad_fold_batches(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *a);
// Returns the negative gradient of the sinks of a softmax with result y (ops_rows.c).
// Sink: an additional term in the denominator. Its weight is 1 - sum(y) in each row of its head.
struct ggml_tensor *berth_grad_of_sinks(
    struct berth_grad *g, struct ggml_tensor *y, struct ggml_tensor *grad, struct ggml_tensor *sinks);

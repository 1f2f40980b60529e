// SPDX-License-Identifier: MIT
// grad.h: the interface between backward.c and the gradient rules, and helpers for rules.
// A gradient rule is a function for one op. The rule is next to the op's constructor (ops_*.c). The op's row of the op table
// names it. A rule gets a node and the node's gradient. The rule adds a gradient to each source that needs one:
//
//     static void grad_sqr(struct berth_grad *g) {
//         berth_grad_put_add(g, 0, ggml_scale(g->ctx, ggml_mul(g->ctx, g->node->src[0], g->grad), 2.0f));
//     }
//
// Rules use the public constructors, so a tensor that cannot be built becomes poison (op.h).
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

// Adds t to (put_add) or subtracts t from (put_sub) the gradient of source i. t has the shape of source i.
// If the source needs no gradient, both functions do nothing. Check berth_grad_needed before building an expensive t.
void berth_grad_put_add(struct berth_grad *g, int i, struct ggml_tensor *t);
void berth_grad_put_sub(struct berth_grad *g, int i, struct ggml_tensor *t);
// If t has one element, the element is added to all elements of source i's gradient. If t has one element per row, each element
// is added to all elements of its row.
void berth_grad_put_add1(struct berth_grad *g, int i, struct ggml_tensor *t);
// Adds t to a part of the gradient of `to`, which is a source or the tensor that a source views. The gradient is f32. The part
// starts at byte `offset` and has strides nb[1..3].
void berth_grad_put_acc(struct berth_grad *g, struct ggml_tensor *to, struct ggml_tensor *t, const size_t nb[4], size_t offset);

// A rule calls this function if it does not support the node. Poisons the context and the graph.
void berth_grad_refuse(struct berth_grad *g, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- helpers for rules ----

// Returns t, copied if it is not contiguous.
static inline struct ggml_tensor *berth_grad_dense(struct berth_grad *g, struct ggml_tensor *t) {
    return t == NULL || ggml_is_contiguous(t) ? t : ggml_cont(g->ctx, t);
}
// t has the shape of `like` repeated along some dimensions. Returns the sum over the repetitions.
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
// In a product of a and b, several batches of b may share a batch of a. Sums the batches of t that share a batch of a.
// (ops_matmul.c)
struct ggml_tensor *berth_grad_fold_batches(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *a);
// Returns the negative gradient of the sinks of a softmax with result y (ops_rows.c).
// Sink: an additional term in the denominator. Its weight is 1 - sum(y) in each row of its head.
struct ggml_tensor *berth_grad_of_sinks(
    struct berth_grad *g, struct ggml_tensor *y, struct ggml_tensor *grad, struct ggml_tensor *sinks);

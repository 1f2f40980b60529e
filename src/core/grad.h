// SPDX-License-Identifier: MIT
// grad.h: the interface between backward.c and the gradient rules, and helpers for rules. A rule is one function per op. It is next
// to the op's constructor (ops_*.c) and named in the op's row. It gets a node and the gradient of the loss with respect to that
// node. It adds the resulting gradient to each source that needs one:
//
//     static void grad_sqr(struct berth_grad *g) {
//         berth_grad_put_add(g, 0, ggml_scale(g->ctx, ggml_mul(g->ctx, g->node->src[0], g->grad), 2.0f));
//     }
//
// Rules build tensors with the public constructors, so that a tensor that cannot be built becomes poison.
#pragma once

#include "core/op.h"
#include "core/op_params.h"

struct berth_grad {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    const bool *needed;       // by slot of the graph's hash set: the tensor needs a gradient
    struct ggml_tensor *node; // node whose op has the rule
    struct ggml_tensor *grad; // gradient of the loss with respect to node: its shape, f32, any strides
};

// Returns true if source i is set and needs a gradient.
bool berth_grad_needed(const struct berth_grad *g, int i);

// Add t to (or subtract it from) the gradient of source i, if the source needs one. t has the shape of the source. Check
// berth_grad_needed before building an expensive t.
void berth_grad_put_add(struct berth_grad *g, int i, struct ggml_tensor *t);
void berth_grad_put_sub(struct berth_grad *g, int i, struct ggml_tensor *t);
// Adds t to the gradient of source i. t has one element, which is added to all elements, or one element per row, which is added to
// all elements of that row.
void berth_grad_put_add1(struct berth_grad *g, int i, struct ggml_tensor *t);
// Adds t to a part of the gradient of `to`, which is a source or the tensor of which a source is a view. The part starts at offset
// and has strides nb[1..3], for f32 elements.
void berth_grad_put_acc(struct berth_grad *g, struct ggml_tensor *to, struct ggml_tensor *t, const size_t nb[4], size_t offset);

// Reports that the rule does not support this node. The context and the graph are poisoned.
void berth_grad_refuse(struct berth_grad *g, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- helpers for rules ----

// Returns t, copied if it is not contiguous.
static inline struct ggml_tensor *berth_grad_dense(struct berth_grad *g, struct ggml_tensor *t) {
    return t == NULL || ggml_is_contiguous(t) ? t : ggml_cont(g->ctx, t);
}
// t has the shape of a repeated `like`. Returns the sum of t over the repetitions, in the shape of `like`.
static inline struct ggml_tensor *berth_grad_fold(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *like) {
    return t == NULL || ggml_are_same_shape(t, like) ? t : ggml_repeat_back(g->ctx, t, like);
}
// Returns t, made contiguous, in the shape of `like`.
static inline struct ggml_tensor *berth_grad_shape(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *like) {
    return ggml_reshape(g->ctx, berth_grad_dense(g, t), like);
}
// Returns 1 - t.
static inline struct ggml_tensor *berth_grad_one_minus(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_scale_bias(g->ctx, t, -1.0f, 1.0f);
}
// Returns the part of the gradient that the op_params of ACC and SET describe, in the shape of source 1 (ops_view.c).
struct ggml_tensor *berth_grad_part(struct berth_grad *g);
// For a product whose batches of a are used for several batches of b: returns the sum of t, which has b's batches, over the batches
// that share one of a (ops_matmul.c).
struct ggml_tensor *berth_grad_fold_batches(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *a);
// Returns the negative gradient of the sinks of a softmax with result y. A sink is an additional term of the sum in the
// denominator. Its weight is 1 - sum(y) in each row of its head (ops_rows.c).
struct ggml_tensor *berth_grad_of_sinks(
    struct berth_grad *g, struct ggml_tensor *y, struct ggml_tensor *grad, struct ggml_tensor *sinks);

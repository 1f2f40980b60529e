// SPDX-License-Identifier: MIT
// grad.h: gradient rules: what backward.c hands to them, and what they are made of. A rule is one function per op, next to
// its constructor (ops_*.c) and named in its row. It gets the node and the gradient of the loss by that node, and puts
// what follows from it on those sources that want some:
//
//     static void grad_sqr(struct berth_grad *g) {
//         berth_grad_put_add(g, 0, ggml_scale(g->ctx, ggml_mul(g->ctx, g->node->src[0], g->grad), 2.0f));
//     }
//
// Rules build tensors with the public constructors, so that what cannot be built becomes poison like anywhere else.
#pragma once

#include "core/op.h"
#include "core/op_params.h"

struct berth_grad {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    const bool *needed;       // by slot of the graph's hash set: a gradient is wanted
    struct ggml_tensor *node; // the op that the rule is for
    struct ggml_tensor *grad; // of node's shape, f32, any strides
};

// Whether source i is there and wants a gradient.
bool berth_grad_wants(const struct berth_grad *g, int i);

// Put a contribution on source i, if it wants one: t has its shape. Building t for nobody is only waste.
void berth_grad_put_add(struct berth_grad *g, int i, struct ggml_tensor *t);
void berth_grad_put_sub(struct berth_grad *g, int i, struct ggml_tensor *t);
// One number, or one a row, for all elements.
void berth_grad_put_add1(struct berth_grad *g, int i, struct ggml_tensor *t);
// t for the part of `to`, a source or what a source is a view of, that starts at offset and has strides nb[1..3] of f32.
void berth_grad_put_acc(struct berth_grad *g, struct ggml_tensor *to, struct ggml_tensor *t, const size_t nb[4], size_t offset);

// The rule cannot serve this node: the context is poisoned and the graph with it.
void berth_grad_refuse(struct berth_grad *g, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- helpers for rules ----

// t, dense.
static inline struct ggml_tensor *berth_grad_dense(struct berth_grad *g, struct ggml_tensor *t) {
    return t == NULL || ggml_is_contiguous(t) ? t : ggml_cont(g->ctx, t);
}
// t summed over what was repeated to make it from a tensor like `like`.
static inline struct ggml_tensor *berth_grad_fold(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *like) {
    return t == NULL || ggml_are_same_shape(t, like) ? t : ggml_repeat_back(g->ctx, t, like);
}
// t, dense, in the shape of `like`.
static inline struct ggml_tensor *berth_grad_shape(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *like) {
    return ggml_reshape(g->ctx, berth_grad_dense(g, t), like);
}
// 1 - t
static inline struct ggml_tensor *berth_grad_one_minus(struct berth_grad *g, struct ggml_tensor *t) {
    return ggml_scale_bias(g->ctx, t, -1.0f, 1.0f);
}
// The part of the gradient that op_params of ACC and SET name, in the shape of source 1 (ops_view.c).
struct ggml_tensor *berth_grad_part(struct berth_grad *g);
// A product with batches of a repeated: t is [m, n, batches of b], the result has a's batches (ops_matmul.c).
struct ggml_tensor *berth_grad_fold_batches(struct berth_grad *g, struct ggml_tensor *t, struct ggml_tensor *a);
// What the sinks of a softmax take back, with the sign turned: a sink gets 1 - sum(y) of each row of its head (ops_rows.c).
struct ggml_tensor *berth_grad_of_sinks(
    struct berth_grad *g, struct ggml_tensor *y, struct ggml_tensor *grad, struct ggml_tensor *sinks);

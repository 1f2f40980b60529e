// SPDX-License-Identifier: MIT
// norm.c: NORM, RMS_NORM, L2_NORM and SOFT_MAX over rows, GROUP_NORM over groups of channels. A fusion also computes the ADD
// before a norm, the MUL by weights and the ADD of a bias.

#include "gpu/kernel/norm.h"

#include "core/graph.h"
#include "gpu/op/op.h"

#include <math.h>

#define ROWS_MAX INT32_MAX // largest grid dimension x

static bool norm_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op) &&
           ggml_nrows(op) <= ROWS_MAX;
}

// Returns whether the rows of a view have ne0 elements and can be read as float4. Returns true for an absent view.
static bool can_read_float4(const struct gpu_view *v, int64_t ne0) {
    return v->p == NULL || (v->ne[0] == ne0 && v->nb[0] == 4 &&
                               ((uintptr_t) v->p | (uintptr_t) v->nb[1] | (uintptr_t) v->nb[2] | (uintptr_t) v->nb[3]) % 16 == 0);
}

static unsigned block_for(int64_t n) {
    unsigned size = 32;
    while (size < 1024 && (int64_t) size * 4 < n) {
        size *= 2;
    }
    return size;
}

static enum ggml_status norm_launch(struct gpu_run *r, const struct gpu_norm_args *args) {
    const int64_t ne0 = args->dst.ne[0], n4 = ne0 / 4;
    const bool fours = ne0 % 4 == 0 && n4 <= 4 * 1024 && can_read_float4(&args->dst, ne0) && can_read_float4(&args->a, ne0) &&
                       can_read_float4(&args->b, ne0) && can_read_float4(&args->sum, ne0) && can_read_float4(&args->mul, ne0) &&
                       can_read_float4(&args->add, ne0);
    const struct gpu_dims dims =
        gpu_grid(args->dst.ne[1] * args->dst.ne[2] * args->dst.ne[3], 1, 1, block_for(fours ? n4 : ne0), 0);
    return gpu_launch(r, fours ? "norm_fours" : "norm_any", dims, args);
}

static enum ggml_status norm_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_norm_args args = {
        .dst = gpu_view_of(op), .a = gpu_view_of(op->src[0]), .eps = param_f32(op, 0), .what = (int32_t) op->op};
    return norm_launch(r, &args);
}

// ---- fusions: [ADD] NORM [MUL [ADD]] ----

// Returns the source of node i that is not `from`. Returns NULL unless node i is an `op` and the only reader of `from`, all
// tensors are f32, and the returned tensor repeats to the shape of the node.
static const struct ggml_tensor *other_of(
    const struct ggml_cgraph *graph, int i, enum ggml_op op, const struct ggml_tensor *from) {
    if (i >= graph->n_nodes || graph->nodes[i]->op != op || !gpu_is_used_once(graph, from)) {
        return NULL;
    }
    const struct ggml_tensor *node = graph->nodes[i];
    const struct ggml_tensor *other = gpu_other_source(node, from);
    return other != NULL && node->type == GGML_TYPE_F32 && other->type == GGML_TYPE_F32 && ggml_are_same_shape(node, from) &&
                   ggml_can_repeat(other, node) && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0
               ? other
               : NULL;
}

struct chain {
    const struct ggml_tensor *sum;       // the ADD before the norm; NULL: none
    const struct ggml_tensor *norm;      // NORM or RMS_NORM
    const struct ggml_tensor *mul, *add; // weights and bias, not the nodes; NULL: none
    const struct ggml_tensor *out;       // last node of the chain
    int n;                               // number of nodes of the chain
};

// Returns the chain of at most `most` nodes that starts at node i. If there is no chain of at least two nodes, n is 0.
static struct chain chain_at(const struct ggml_cgraph *graph, int i, int most) {
    struct chain c = {0};
    const struct ggml_tensor *node = graph->nodes[i];
    int at = i;
    if (node->op == GGML_OP_ADD) {
        const struct ggml_tensor *a = node->src[0], *b = node->src[1];
        if (node->type != GGML_TYPE_F32 || a->type != GGML_TYPE_F32 || b->type != GGML_TYPE_F32 ||
            !ggml_are_same_shape(node, a) || !ggml_can_repeat(b, node)) {
            return c;
        }
        c.sum = node;
        at++;
    }
    c.norm = at < graph->n_nodes ? graph->nodes[at] : node;
    const bool is_ok = (c.norm->op == GGML_OP_RMS_NORM || c.norm->op == GGML_OP_NORM) && c.norm->src[0]->type == GGML_TYPE_F32 &&
                       (c.norm->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && (c.sum == NULL || c.norm->src[0] == c.sum);
    if (!is_ok) {
        return c;
    }
    c.out = c.norm;
    c.mul = at - i + 2 <= most ? other_of(graph, at + 1, GGML_OP_MUL, c.norm) : NULL;
    if (c.mul != NULL) {
        c.out = graph->nodes[++at];
        c.add = at - i + 2 <= most ? other_of(graph, at + 1, GGML_OP_ADD, c.out) : NULL;
        if (c.add != NULL) {
            c.out = graph->nodes[++at];
        }
    }
    const int n = at - i + 1;
    c.n = n > 1 && n <= most ? n : 0;
    return c;
}

// norm_fours reads a complete row before it writes. norm_any reads each element just before it writes that element. A result may
// therefore overlap a source of the same layout, but not a source that several rows read.
static bool may_write(const struct chain *c) {
    const struct ggml_tensor *x = c->sum != NULL ? c->sum : c->norm->src[0];
    if ((c->mul != NULL && gpu_overlap(c->out, c->mul)) || (c->add != NULL && !gpu_may_write_over(c->out, c->add))) {
        return false;
    }
    if (c->sum == NULL) {
        return gpu_may_write_over(c->out, x);
    }
    // The launch also writes the sum, which must keep its value.
    return !gpu_overlap(c->out, c->sum) && !gpu_overlap(c->out, c->sum->src[1]) && gpu_may_write_over(c->out, c->sum->src[0]) &&
           gpu_may_write_over(c->sum, c->sum->src[0]) && gpu_may_write_over(c->sum, c->sum->src[1]) &&
           (c->mul == NULL || !gpu_overlap(c->sum, c->mul)) && (c->add == NULL || !gpu_overlap(c->sum, c->add));
}

static int chain_match(GPU_DEV, const struct ggml_cgraph *graph, int i) {
    struct chain c = {.n = 5};
    do { // a shorter chain may be possible if tensors overlap
        c = chain_at(graph, i, c.n - 1);
    } while (c.n > 0 && !(ggml_nrows(c.norm) <= ROWS_MAX && may_write(&c)));
    return c.n;
}

static enum ggml_status chain_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct chain c = chain_at(graph, i, n);
    struct gpu_norm_args args = {.dst = gpu_view_of(c.out),
        .a = gpu_view_of(c.sum != NULL ? c.sum->src[0] : c.norm->src[0]),
        .eps = param_f32(c.norm, 0),
        .what = (int32_t) c.norm->op};
    if (c.sum != NULL) {
        args.b = gpu_view_of(c.sum->src[1]);
        args.sum = gpu_view_of(c.sum);
    }
    if (c.mul != NULL) {
        args.mul = gpu_view_of(c.mul);
    }
    if (c.add != NULL) {
        args.add = gpu_view_of(c.add);
    }
    return norm_launch(r, &args);
}

const struct gpu_fusion gpu_fusion_norm = {.name = "norm with sum, weights and bias", .match = chain_match, .run = chain_run};

// ---- groups ----

static bool group_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    return norm_supports(dev, op) && param_i32(op, 0) > 0 && op->ne[3] <= 65535;
}

static enum ggml_status group_run(struct gpu_run *r, struct ggml_tensor *op) {
    const int64_t n_groups = param_i32(op, 0);
    const struct gpu_group_norm_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(op->src[0]),
        .n_groups = n_groups,
        .n_each = (op->ne[2] + n_groups - 1) / n_groups,
        .eps = param_f32(op, 1)};
    const struct gpu_dims dims = gpu_grid(n_groups * op->ne[3], 1, 1, 1024, 0);
    return gpu_launch(r, "group_norm", dims, &args);
}

// ---- softmax ----

static bool softmax_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *mask = op->src[1], *sinks = op->src[2];
    if (!norm_supports(dev, op) || !gpu_rows_are_dense(a) || !gpu_rows_are_dense(op)) {
        return false;
    }
    if (mask != NULL &&
        (!gpu_is_float(mask->type) || mask->ne[0] != a->ne[0] || mask->ne[1] < a->ne[1] || mask->ne[2] < 1 || mask->ne[3] < 1)) {
        return false;
    }
    return sinks == NULL || (sinks->type == GGML_TYPE_F32 && sinks->ne[0] >= a->ne[2] && ggml_nrows(sinks) > 0);
}

static enum ggml_status softmax_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *mask = op->src[1], *sinks = op->src[2];
    const float max_bias = param_f32(op, 1);
    int32_t n = 1; // largest power of two that is at most the number of heads
    while ((int64_t) n * 2 <= op->ne[2]) {
        n *= 2;
    }
    struct gpu_softmax_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(op->src[0]),
        .scale = param_f32(op, 0),
        .max_bias = max_bias,
        .m0 = powf(2.0f, -max_bias / (float) n),
        .m1 = powf(2.0f, -max_bias / 2.0f / (float) n),
        .n_head_log2 = n};
    if (mask != NULL) {
        args.mask = gpu_view_of(mask);
    }
    if (sinks != NULL) {
        args.sinks = sinks->data;
        args.sinks_nb = (int64_t) sinks->nb[0];
    }
    const struct gpu_dims dims = gpu_grid(ggml_nrows(op), 1, 1, block_for(op->ne[0]), 0);
    return gpu_launch(r, "soft_max", dims, &args);
}

#define NORM \
    { .supports = norm_supports, .run = norm_run }

const struct gpu_op_entry gpu_ops_norm[] = {
    {GGML_OP_NORM, NORM},
    {GGML_OP_RMS_NORM, NORM},
    {GGML_OP_L2_NORM, NORM},
    {GGML_OP_GROUP_NORM, {.supports = group_supports, .run = group_run}},
    {GGML_OP_SOFT_MAX, {.supports = softmax_supports, .run = softmax_run}},
    GPU_OPS_END,
};

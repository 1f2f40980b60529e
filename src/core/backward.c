// SPDX-License-Identifier: MIT
// backward.c: ggml_build_backward_expand builds the backward pass from the losses of a graph to its parameters:
//
// 1. Forward walk: mark the tensors that need a gradient: float parameters, and results of ops that pass a gradient on
//    (optable.h: grad_src_mask; is_flat: the derivative of the op is 0, so it passes no gradient).
// 2. Set the accumulators that the caller passes, for losses and for nodes that need a gradient. A loss without an accumulator
//    gets a new accumulator with one element. ggml_graph_reset sets the accumulators of losses to 1.
// 3. Reverse walk: call the gradient rule of each node's op. The walk reaches all users of a node before the node, so the node's
//    gradient is complete.
//
// A contribution is added in place only if the gradient is an accumulator. Any other gradient tensor may be the gradient of two
// tensors at the same time, such as both sources of an ADD.

#include "base/base.h"
#include "core/grad.h"
#include "core/graph.h"

#include <stdarg.h>
#include <stdio.h>

static const char func[] = "ggml_build_backward_expand";

static bool is_float(enum ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

static size_t slot_of(const struct ggml_cgraph *graph, const struct ggml_tensor *t) {
    const size_t i = berth_hash_find(&graph->visited_hash_set, t);
    return i != BERTH_HASH_NONE && berth_bit_get(graph->visited_hash_set.used, i) ? i : BERTH_HASH_NONE;
}

static bool is_needed(const struct berth_grad *g, const struct ggml_tensor *t) {
    const size_t i = t != NULL ? slot_of(g->graph, t) : BERTH_HASH_NONE;
    return i != BERTH_HASH_NONE && g->needed[i];
}

// Bit i: the node's gradient passes to source i.
static unsigned srcs_with_grad(const struct ggml_tensor *node) {
    const struct berth_op_info *info = berth_op_info(node->op);
    if (info == NULL || berth_op_is_flat(node)) {
        return 0;
    }
    return info->grad != NULL ? info->grad_src_mask : ~0u; // an op without a rule is refused later, when a gradient reaches it
}

bool berth_grad_needed(const struct berth_grad *g, int i) {
    return (srcs_with_grad(g->node) >> i & 1) != 0 && is_needed(g, g->node->src[i]);
}

// ---- contributions ----

static void grad_put(struct berth_grad *g, size_t slot, struct ggml_tensor *of, struct ggml_tensor *t) {
    if (t == NULL) {
        return;
    }
    g->graph->grads[slot] = t;
    if (!berth_poisoned(t)) {
        ggml_format_name(t, "grad for %s", of->name);
    }
    ggml_build_forward_expand(g->graph, t);
}

typedef struct ggml_tensor *(*binary_t)(struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *);

struct combine_ops {
    binary_t separate, inplace; // separate: the result is a new tensor; inplace: for accumulators
};

// Combines t with the present gradient of source i. If source i has no gradient yet, does nothing and returns false.
static bool grad_join(struct berth_grad *g, int i, struct ggml_tensor *t, const struct combine_ops *combine_ops) {
    const size_t slot = slot_of(g->graph, g->node->src[i]);
    struct ggml_tensor *present = g->graph->grads[slot];
    if (present == NULL) {
        return false;
    }
    grad_put(g, slot, g->node->src[i],
        (g->graph->grad_accs[slot] != NULL ? combine_ops->inplace : combine_ops->separate)(g->ctx, present, t));
    return true;
}

void berth_grad_put_add(struct berth_grad *g, int i, struct ggml_tensor *t) {
    static const struct combine_ops combine_ops = {ggml_add, ggml_add_inplace};
    if (berth_grad_needed(g, i) && !grad_join(g, i, t, &combine_ops)) {
        grad_put(g, slot_of(g->graph, g->node->src[i]), g->node->src[i], t);
    }
}

void berth_grad_put_sub(struct berth_grad *g, int i, struct ggml_tensor *t) {
    static const struct combine_ops combine_ops = {ggml_sub, ggml_sub_inplace};
    if (berth_grad_needed(g, i) && !grad_join(g, i, t, &combine_ops)) {
        grad_put(g, slot_of(g->graph, g->node->src[i]), g->node->src[i], ggml_neg(g->ctx, t));
    }
}

void berth_grad_put_add1(struct berth_grad *g, int i, struct ggml_tensor *t) {
    static const struct combine_ops one = {ggml_add1, ggml_add1_inplace}, rows = {ggml_add, ggml_add_inplace};
    if (berth_grad_needed(g, i) && !grad_join(g, i, t, ggml_is_scalar(t) ? &one : &rows)) {
        grad_put(g, slot_of(g->graph, g->node->src[i]), g->node->src[i], ggml_repeat(g->ctx, t, g->node->src[i]));
    }
}

void berth_grad_put_acc(struct berth_grad *g, struct ggml_tensor *to, struct ggml_tensor *t, const size_t nb[4], size_t offset) {
    if (!is_needed(g, to)) {
        return;
    }
    const size_t slot = slot_of(g->graph, to);
    struct ggml_tensor *present = g->graph->grads[slot], *sum;
    if (present != NULL && g->graph->grad_accs[slot] != NULL) {
        sum = ggml_acc_inplace(g->ctx, present, t, nb[1], nb[2], nb[3], offset);
    } else {
        if (present == NULL) {
            present = ggml_fill(g->ctx, to->type == GGML_TYPE_F32 ? to : ggml_cast(g->ctx, to, GGML_TYPE_F32), 0.0f);
        }
        sum = ggml_acc(g->ctx, berth_grad_dense(g, present), t, nb[1], nb[2], nb[3], offset);
    }
    grad_put(g, slot, to, sum);
}

// ---- refusals ----

static void graph_refuse(struct ggml_context *ctx, struct ggml_cgraph *graph, const char *text) {
    struct ggml_tensor *poison = berth_poison(ctx, func, "%s", text);
    if (poison != NULL) {
        ggml_build_forward_expand(graph, poison); // so that the incomplete backward pass is not computed
    }
}

void berth_grad_refuse(struct berth_grad *g, const char *fmt, ...) {
    char why[200], text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    snprintf(text, sizeof text, "%s, node %.63s: %s", ggml_op_desc(g->node), g->node->name, why);
    graph_refuse(g->ctx, g->graph, text);
}

// ---- the two walks ----

static bool *mark_needed(const struct ggml_cgraph *graph) {
    const size_t n_slots = graph->visited_hash_set.size;
    bool *needed = berth_calloc(n_slots > 0 ? n_slots : 1, sizeof *needed);
    for (int i = 0; needed != NULL && i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const size_t slot = slot_of(graph, node);
        const unsigned grad_mask = srcs_with_grad(node);
        if (slot == BERTH_HASH_NONE || !is_float(node->type)) {
            continue;
        }
        bool need = (node->flags & GGML_TENSOR_FLAG_PARAM) != 0;
        for (int k = 0; k < GGML_MAX_SRC && !need; k++) {
            const size_t from = node->src[k] != NULL ? slot_of(graph, node->src[k]) : BERTH_HASH_NONE;
            need = (grad_mask >> k & 1) != 0 && from != BERTH_HASH_NONE && needed[from];
        }
        needed[slot] = need;
    }
    return needed;
}

static void set_accumulators(struct berth_grad *g, struct ggml_tensor **accs) {
    for (int i = 0; i < g->graph->n_nodes; i++) {
        struct ggml_tensor *node = g->graph->nodes[i], *acc = accs != NULL ? accs[i] : NULL;
        const bool is_loss = (node->flags & GGML_TENSOR_FLAG_LOSS) != 0;
        const size_t slot = slot_of(g->graph, node);
        if (slot == BERTH_HASH_NONE) {
            continue;
        }
        if (acc == NULL && is_loss) {
            acc = ggml_new_tensor_1d(g->ctx, GGML_TYPE_F32, 1);
        }
        if (!is_loss && !g->needed[slot]) {
            acc = NULL;
        }
        g->graph->grads[slot] = acc;
        g->graph->grad_accs[slot] = acc;
    }
}

static bool any_src_needed(const struct berth_grad *g) {
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (berth_grad_needed(g, i)) {
            return true;
        }
    }
    return false;
}

// An in-place op is refused, because the gradient rules of other ops may need the values that it overwrites.
static bool is_inplace(const struct ggml_tensor *node) {
    return node->view_src != NULL && !berth_op_info(node->op)->is_view && node->op != GGML_OP_CPY && node->op != GGML_OP_SET_ROWS;
}

static void node_backward(struct berth_grad *g) {
    const struct berth_op_info *info = berth_op_info(g->node->op);
    g->grad = ggml_graph_get_grad(g->graph, g->node);
    if (g->grad == NULL || info == NULL || info->is_flat || g->node->op == GGML_OP_NONE || !any_src_needed(g)) {
        return;
    }
    if (is_inplace(g->node)) {
        berth_grad_refuse(g, "an in-place op has no gradient, because its source is overwritten");
    } else if (info->grad == NULL) {
        berth_grad_refuse(g, "the op has no gradient rule");
    } else {
        info->grad(g);
    }
}

static bool any_flag(const struct ggml_cgraph *graph, int flag) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if ((graph->nodes[i]->flags & flag) != 0) {
            return true;
        }
    }
    return false;
}

void ggml_build_backward_expand(struct ggml_context *ctx, struct ggml_cgraph *cgraph, struct ggml_tensor **grad_accs) {
    if (ctx == NULL || cgraph == NULL) {
        berth_set_error("%s: the %s is NULL", func, ctx == NULL ? "context" : "graph");
        return;
    }
    const char *why = NULL;
    if (cgraph->n_nodes == 0) {
        why = "the graph has no nodes";
    } else if (cgraph->grads == NULL) {
        why = "the graph was created without gradients (pass grads = true to ggml_new_graph_custom)";
    } else if (!any_flag(cgraph, GGML_TENSOR_FLAG_PARAM)) {
        why = "no node is a parameter (ggml_set_param)";
    } else if (!any_flag(cgraph, GGML_TENSOR_FLAG_LOSS)) {
        why = "no node is a loss (ggml_set_loss)";
    }
    if (why != NULL) {
        graph_refuse(ctx, cgraph, why);
        return;
    }
    bool *needed = mark_needed(cgraph);
    if (needed == NULL) {
        graph_refuse(ctx, cgraph, "out of memory");
        return;
    }
    struct berth_grad g = {.ctx = ctx, .graph = cgraph, .needed = needed};
    set_accumulators(&g, grad_accs);
    for (int i = cgraph->n_nodes - 1; i >= 0; i--) {
        g.node = cgraph->nodes[i];
        node_backward(&g);
    }
    berth_free(needed);
}

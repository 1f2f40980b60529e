// SPDX-License-Identifier: MIT
// build.c: builds the graphs of an optimisation. Tensor names are the same as in the reference (ggml). The loss, labels and
// counts are in the optimisation's own ggml_context. The backward pass and the steps are in the caller's ggml_context. Callers
// choose the size of their context for ggml, so the backward pass and the steps must not have more tensors than in ggml.

#include "core/graph.h"

#include "base/min.h"
#include "core/op.h"
#include "ggml-backend.h"
#include "opt/opt.h"

#define N_RESULTS 16 // ctx_results has space for this number of tensors; a loss needs fewer

// ---- the loss ----

static struct ggml_tensor *tensor_named(struct ggml_tensor *t, const char *name) {
    return ggml_set_name(t, name);
}

static void labels_new(struct ggml_opt_context *o) {
    o->labels = tensor_named(ggml_dup_tensor(o->ctx_results, o->params.outputs), "labels");
    ggml_set_input(o->labels);
}

static void loss_sum(struct ggml_opt_context *o) {
    o->loss = tensor_named(ggml_sum(o->ctx_results, o->params.outputs), "loss_sum");
    o->loss_is_mean = false;
    o->loss_scale = 1.0f;
}

static void loss_mean(struct ggml_opt_context *o) {
    const float n = (float) o->params.opt_period * (float) ggml_nelements(o->params.outputs);
    loss_sum(o);
    o->loss = tensor_named(ggml_scale(o->ctx_results, o->loss, 1.0f / n), "loss_mean");
    o->loss_is_mean = true;
    o->loss_scale = (float) o->params.opt_period;
}

static void loss_cross_entropy(struct ggml_opt_context *o) {
    labels_new(o);
    o->loss = tensor_named(ggml_cross_entropy_loss(o->ctx_results, o->params.outputs, o->labels), "loss_cross_entropy");
    o->loss_is_mean = true;
    o->loss_scale = (float) o->params.opt_period;
    if (o->params.opt_period > 1) {
        o->loss =
            tensor_named(ggml_scale(o->ctx_results, o->loss, 1.0f / (float) o->params.opt_period), "loss_cross_entropy_scaled");
    }
    o->pred = tensor_named(ggml_argmax(o->ctx_results, o->params.outputs), "pred");
    ggml_set_output(o->pred);
    struct ggml_tensor *right = ggml_argmax(o->ctx_results, o->labels);
    o->ncorrect = tensor_named(ggml_count_equal(o->ctx_results, o->pred, right), "ncorrect");
    ggml_set_output(o->ncorrect);
}

static void loss_mean_squared_error(struct ggml_opt_context *o) {
    struct ggml_context *ctx = o->ctx_results;
    labels_new(o);
    const float n = (float) o->params.opt_period * (float) ggml_nelements(o->params.outputs);
    struct ggml_tensor *error = tensor_named(ggml_sub(ctx, o->params.outputs, o->labels), "loss_error");
    struct ggml_tensor *sqr = tensor_named(ggml_sqr(ctx, error), "loss_squared_error");
    struct ggml_tensor *sum = tensor_named(ggml_sum(ctx, sqr), "loss_sum_squared_error");
    o->loss = tensor_named(ggml_scale(ctx, sum, 1.0f / n), "loss_mean_squared_error");
    o->loss_is_mean = true;
    o->loss_scale = (float) o->params.opt_period;
}

static void (*const losses[])(struct ggml_opt_context *o) = {
    [GGML_OPT_LOSS_TYPE_MEAN] = loss_mean,
    [GGML_OPT_LOSS_TYPE_SUM] = loss_sum,
    [GGML_OPT_LOSS_TYPE_CROSS_ENTROPY] = loss_cross_entropy,
    [GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR] = loss_mean_squared_error,
};

static enum ggml_status build_forward(struct ggml_opt_context *o) {
    ggml_free(o->ctx_results);
    o->ctx_results = ggml_init((struct ggml_init_params){.mem_size = N_RESULTS * ggml_tensor_overhead(), .no_alloc = true});
    o->labels = o->pred = o->ncorrect = NULL;
    if (o->ctx_results == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_opt: no memory for the loss");
    }
    if (o->forward == NULL) {
        o->forward = ggml_new_graph_custom(o->ctx_compute, GGML_DEFAULT_GRAPH_SIZE, true);
        if (o->forward == NULL) {
            return berth_fail(GGML_STATUS_FAILED, "ggml_opt: ctx_compute has no memory left for a graph");
        }
    }
    ggml_set_input(o->params.inputs);
    ggml_set_output(o->params.outputs);
    losses[o->params.loss_type](o);
    ggml_set_output(o->loss);
    ggml_set_loss(o->loss);
    ggml_build_forward_expand(o->forward, o->params.outputs);
    ggml_build_forward_expand(o->forward, o->loss);
    if (o->pred != NULL) {
        ggml_build_forward_expand(o->forward, o->pred);
        ggml_build_forward_expand(o->forward, o->ncorrect);
    }
    return berth_graph_check(o->forward);
}

// ---- the backward pass ----

static bool is_param(const struct ggml_tensor *t) {
    return (t->flags & GGML_TENSOR_FLAG_PARAM) != 0;
}

static enum ggml_status build_grad(struct ggml_opt_context *o) {
    const int n_nodes = o->forward->n_nodes;
    o->grad = ggml_graph_dup(o->ctx_compute, o->forward, true);
    if (o->grad == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_opt: ctx_compute has no memory left for the graph of gradients");
    }
    struct ggml_tensor **accs = berth_calloc((size_t) n_nodes + 1, sizeof accs[0]);
    bool ok = accs != NULL;
    for (int i = 0; ok && i < n_nodes; i++) {
        const struct ggml_tensor *node = o->forward->nodes[i];
        if (node == o->loss) {
            accs[i] = o->one;
        } else if (is_param(node) && opt_needs_acc(o)) {
            const struct opt_state *state = opt_state_of(o, node);
            ok = state != NULL;
            accs[i] = ok ? state->acc : NULL;
        }
    }
    if (ok) {
        ggml_build_backward_expand(o->ctx_compute, o->grad, accs);
    }
    berth_free(accs);
    return ok ? berth_graph_check(o->grad) : berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_opt: no memory for gradients");
}

// ---- optimiser steps ----

static struct ggml_tensor *step_of(struct ggml_opt_context *o, struct ggml_tensor *param, struct ggml_tensor *grad) {
    if (o->params.optimizer == GGML_OPT_OPTIMIZER_TYPE_SGD) {
        return ggml_opt_step_sgd(o->ctx_compute, param, grad, o->numbers);
    }
    const struct opt_state *state = opt_state_of(o, param);
    return state == NULL ? NULL
                         : ggml_opt_step_adamw(o->ctx_compute, param, grad, state->moments[0], state->moments[1], o->numbers);
}

// For each tensor t of the graph, stores the index of the last node that reads t or a view of t. If there is no reader, stores
// the index of t. last: [slot of t in the graph's hash set].
static void last_uses(const struct ggml_cgraph *graph, int n_nodes, int *last) {
    for (int i = 0; i < n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        last[berth_hash_find(&graph->visited_hash_set, node)] = i;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            const struct ggml_tensor *src = node->src[k];
            const struct ggml_tensor *root = src != NULL && src->view_src != NULL ? src->view_src : src;
            const size_t slot = root != NULL ? berth_hash_find(&graph->visited_hash_set, root) : BERTH_HASH_NONE;
            if (slot != BERTH_HASH_NONE) {
                last[slot] = i;
            }
        }
    }
}

// Moves each step to the first position after the last reader of its gradient and its parameter. At the end of the graph, a step
// would keep the memory of its gradient in use until then. n_before: number of nodes before the steps.
static enum ggml_status steps_move_early(struct ggml_cgraph *graph, int n_before) {
    const int n_steps = graph->n_nodes - n_before;
    const size_t n_slots = graph->visited_hash_set.size;
    int *last = berth_calloc(n_slots, sizeof last[0]);
    // Steps are numbered from 1; 0: none. first: [node] the first step that moves to after the node. next: [step] the next step
    // after the same node.
    int *first = berth_calloc((size_t) n_before + 1, sizeof first[0]);
    int *next = berth_calloc((size_t) n_steps + 1, sizeof next[0]);
    struct ggml_tensor **list = berth_malloc((size_t) graph->n_nodes * sizeof list[0]);
    const bool ok = last != NULL && first != NULL && next != NULL && list != NULL;
    if (ok) {
        last_uses(graph, n_before, last);
        for (int j = n_steps - 1; j >= 0; j--) {
            const struct ggml_tensor *step = graph->nodes[n_before + j];
            const int by_param = last[berth_hash_find(&graph->visited_hash_set, step->src[0])];
            const int by_grad = last[berth_hash_find(&graph->visited_hash_set, step->src[1])];
            const int at = max_int(by_param, by_grad);
            next[j + 1] = first[at];
            first[at] = j + 1;
        }
        int n = 0;
        for (int i = 0; i < n_before; i++) {
            list[n++] = graph->nodes[i];
            for (int j = first[i]; j != 0; j = next[j]) {
                list[n++] = graph->nodes[n_before + j - 1];
            }
        }
        memcpy(graph->nodes, list, (size_t) n * sizeof list[0]);
    }
    berth_free(last);
    berth_free(first);
    berth_free(next);
    berth_free(list);
    return ok ? GGML_STATUS_SUCCESS : berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_opt: no memory to order %d steps", n_steps);
}

static enum ggml_status build_step(struct ggml_opt_context *o) {
    o->step = ggml_graph_dup(o->ctx_compute, o->grad, true);
    if (o->step == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_opt: ctx_compute has no memory left for the graph of steps");
    }
    for (int i = o->forward->n_nodes - 1; i >= 0; i--) {
        struct ggml_tensor *node = o->forward->nodes[i], *grad = ggml_graph_get_grad(o->grad, node);
        if (!is_param(node) || grad == NULL) {
            continue;
        }
        struct ggml_tensor *step = step_of(o, node, grad);
        if (step == NULL) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_opt: no memory for the moments of %s", node->name);
        }
        if (!berth_poisoned(step)) {
            ggml_format_name(step, "%s step for %s", ggml_opt_optimizer_name(o->params.optimizer), node->name);
        }
        ggml_build_forward_expand(o->step, step);
    }
    const enum ggml_status status = berth_graph_check(o->step);
    return status == GGML_STATUS_SUCCESS ? steps_move_early(o->step, o->grad->n_nodes) : status;
}

enum ggml_status opt_build(struct ggml_opt_context *o, enum ggml_opt_build_type type) {
    o->grad = o->step = NULL;
    enum ggml_status status = build_forward(o);
    if (status != GGML_STATUS_SUCCESS || type < GGML_OPT_BUILD_TYPE_GRAD) {
        return status;
    }
    status = build_grad(o);
    if (status != GGML_STATUS_SUCCESS || type < GGML_OPT_BUILD_TYPE_OPT) {
        return status;
    }
    status = build_step(o);
    return status;
}

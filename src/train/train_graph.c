// SPDX-License-Identifier: MIT
// train_graph.c: builds the three graphs of training. Each graph has its own scheduler, so its memory is planned only once.

#include "train/train.h"

#include "berth-budget-graph.h"

#include <inttypes.h>

#define BUDGET_US 1000000 // microseconds; time limit of the search for nodes to recompute
#define BACKWARD 12       // largest number of nodes in the backward pass per forward node

void train_graph_fini(struct train_graph *g) {
    ggml_backend_sched_free(g->sched);
    ggml_free(g->recompute_ctx);
    ggml_free(g->ctx);
    *g = (struct train_graph){0};
}

static bool graph_new(struct trainer *t, struct train_graph *g, size_t n_nodes, bool with_grads, struct model_error *error) {
    g->ctx = ggml_init((struct ggml_init_params){
        .mem_size = 2 * n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, with_grads), .no_alloc = true});
    if (g->ctx == NULL) {
        return model_fail(error, "out of memory for a graph of %zu nodes", n_nodes);
    }
    g->graph = ggml_new_graph_custom(g->ctx, n_nodes, with_grads);
    g->sched = ggml_backend_sched_new(t->devices->backend, NULL, t->devices->n, n_nodes, false, true);
    return g->sched != NULL || model_fail(error, "%s", berth_last_error());
}

static bool graph_alloc(struct trainer *t, struct train_graph *g, const char *what, struct model_error *error) {
    if (berth_graph_check(g->graph) != GGML_STATUS_SUCCESS) {
        return model_fail(error, "cannot build %s: %s", what, berth_last_error());
    }
    if (!ggml_backend_sched_alloc_graph(g->sched, g->graph)) {
        return model_fail(error, "cannot allocate memory for %s: %s", what, berth_last_error());
    }
    for (int d = 0; d < t->devices->n; d++) {
        t->compute += ggml_backend_sched_get_buffer_size(g->sched, t->devices->backend[d]);
    }
    return true;
}

static void forward_build(struct trainer *t, struct train_graph *g) {
    const struct train_params *p = &t->params;
    const struct graph_shape shape = {
        .n_tokens = p->n_ctx, .n_seq = train_n_local(p), .n_kv = p->n_ctx, .n_ctx = p->n_ctx, .all_outputs = true};
    graph_build(t->model, &shape, g->ctx, g->graph, &g->in);
    g->labels = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, t->model->params.n_vocab, p->n_ctx * train_n_local(p));
    ggml_set_input(g->labels);
    ggml_set_name(g->labels, "labels");
    g->loss = ggml_cross_entropy_loss(g->ctx, g->in.result, g->labels);
    ggml_set_name(g->loss, "loss");
    ggml_set_output(g->loss);
    ggml_set_loss(g->loss);
    ggml_build_forward_expand(g->graph, g->loss);
}

// Returns an array by node: the gradient tensor of a trained tensor, t->loss_grad for the loss, NULL for other nodes. NULL: out of
// memory.
static struct ggml_tensor **accumulators_new(const struct trainer *t, const struct train_graph *g) {
    const int n = ggml_graph_n_nodes(g->graph);
    struct ggml_tensor **accumulators = berth_calloc((size_t) n + 1, sizeof *accumulators);
    for (int i = 0; accumulators != NULL && i < n; i++) {
        const struct ggml_tensor *node = ggml_graph_node(g->graph, i);
        accumulators[i] = node == g->loss ? t->loss_grad : NULL;
        for (size_t k = 0; node->op == GGML_OP_NONE && k < t->n_tensors; k++) {
            if (t->tensors[k].w == node) {
                accumulators[i] = t->tensors[k].grad;
            }
        }
    }
    return accumulators;
}

// Replaces the graph by a graph that recomputes some nodes, so that it fits into the remaining memory (params.memory).
static bool graph_budget(struct trainer *t, struct train_graph *g, struct model_error *error) {
    const uint64_t most = t->params.memory, taken = t->size + t->compute;
    const struct berth_graph_budget_params params = {.memory_limit = most > taken ? most - taken : 0,
        .buft = ggml_backend_get_default_buffer_type(t->devices->backend[0]),
        .time_limit_us = BUDGET_US,
        .seed = 1};
    struct berth_budget_result *r = NULL;
    struct ggml_cgraph *graph = NULL;
    if (t->devices->n > 1) {
        return model_fail(error, "a memory limit requires one device, but the model uses %d", t->devices->n);
    }
    if (berth_graph_budget(g->graph, &params, &g->recompute_ctx, &graph, &r) != GGML_STATUS_SUCCESS) {
        return model_fail(error, "%s", berth_last_error());
    }
    if (graph == NULL) {
        model_fail(error,
            "%" PRIu64 " bytes are too few: trained tensors and optimiser need %" PRIu64 ", a step at least %" PRIu64
            " more; use a smaller --ctx or --batch",
            most, taken, r->uses[0].live_bound);
    } else {
        g->graph = graph;
        t->n_recomputed = r->n_recomputed;
        t->cost_ratio = r->cost_once > 0 ? (double) r->cost / (double) r->cost_once : 1;
    }
    berth_budget_free(r);
    return graph != NULL;
}

bool train_graph_learn(struct trainer *t, struct model_error *error) {
    struct train_graph *g = &t->learn;
    if (!graph_new(t, g, BACKWARD * graph_max_nodes(t->model), true, error)) {
        return false;
    }
    forward_build(t, g);
    struct ggml_tensor **accumulators = accumulators_new(t, g);
    if (accumulators == NULL) {
        return model_fail(error, "out of memory for the list of gradients");
    }
    ggml_build_backward_expand(g->ctx, g->graph, accumulators);
    berth_free(accumulators);
    if (t->params.memory > 0 && !graph_budget(t, g, error)) {
        return false;
    }
    return graph_alloc(t, g, "the graph of the forward and backward pass", error);
}

bool train_graph_evaluate(struct trainer *t, struct model_error *error) {
    if (t->evaluate.graph != NULL) {
        return true;
    }
    if (!graph_new(t, &t->evaluate, 64 + graph_max_nodes(t->model), false, error)) {
        return false;
    }
    forward_build(t, &t->evaluate);
    return graph_alloc(t, &t->evaluate, "the graph of the forward pass", error);
}

bool train_graph_step(struct trainer *t, struct model_error *error) {
    struct train_graph *g = &t->step;
    if (!graph_new(t, g, 64 + 4 * t->n_tensors, false, error)) {
        return false;
    }
    for (size_t i = 0; i < t->n_tensors; i++) {
        const struct train_tensor *x = &t->tensors[i];
        struct ggml_tensor *grad = t->params.clip > 0 ? ggml_mul_inplace(g->ctx, x->grad, t->shrink[x->device]) : x->grad;
        struct ggml_tensor *rates = t->rates[x->device];
        ggml_build_forward_expand(g->graph, x->m != NULL ? ggml_opt_step_adamw(g->ctx, x->w, grad, x->m, x->v, rates)
                                                         : ggml_opt_step_sgd(g->ctx, x->w, grad, rates));
    }
    return graph_alloc(t, g, "the optimiser's graph", error);
}

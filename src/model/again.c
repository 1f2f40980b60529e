// SPDX-License-Identifier: MIT
// again.c: the graph of a session within a limit of bytes: values are not kept until they are wanted again, but computed again
// (berth-budget-graph.h), each by the device that made it first, so that the results are the same bits. What writes the cache,
// and what reads it afterwards, runs once.

#include "model/model.h"

#include <inttypes.h>
#include <string.h>

// Where a node runs in the graph as it was built.
struct home {
    struct ggml_tensor *node;
    ggml_backend_t backend;
};

// NULL with one device, or without memory: the scheduler chooses.
static struct home *homes_find(struct session *s) {
    const int n        = ggml_graph_n_nodes(s->graph);
    struct home *homes = s->devices->n > 1 ? model_alloc_calloc((size_t) n + 1, sizeof *homes) : NULL;
    if (homes != NULL) {
        ggml_backend_sched_reserve_size(s->sched, s->graph, s->sizes);
    }
    for (int i = 0; homes != NULL && i < n; i++) {
        homes[i]         = (struct home){ggml_graph_node(s->graph, i), NULL};
        homes[i].backend = ggml_backend_sched_get_tensor_backend(s->sched, homes[i].node);
    }
    return homes;
}

// Nodes of one name are of one layer, and so of one device.
static bool is_of(const struct ggml_tensor *node, const struct home *home) {
    const size_t n = strlen(node->name), end = strlen(BERTH_BUDGET_AGAIN);
    if (node == home->node || n < end || strcmp(node->name + n - end, BERTH_BUDGET_AGAIN) != 0) {
        return node == home->node;
    }
    const bool is_cut = n + 1 == sizeof node->name; // to make room for the end
    return strncmp(node->name, home->node->name, n - end) == 0 && (is_cut || home->node->name[n - end] == '\0');
}

static void homes_set(struct session *s, const struct home *homes, int n_homes) {
    ggml_backend_sched_reset(s->sched);
    for (int i = 0; i < ggml_graph_n_nodes(s->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(s->graph, i);
        for (int k = 0; k < n_homes; k++) {
            if (is_of(node, &homes[k]) && homes[k].backend != NULL) {
                ggml_backend_sched_set_tensor_backend(s->sched, node, homes[k].backend);
                break;
            }
        }
    }
}

bool session_again(struct session *s, struct model_error *error) {
    const int n_homes = ggml_graph_n_nodes(s->graph), main_device = s->model->layer_device[s->model->params.n_layer];
    struct home *homes                            = homes_find(s);
    const struct berth_graph_budget_params params = {
        .bytes = s->params.compute, .buft = ggml_backend_get_default_buffer_type(s->devices->backend[main_device]), .seed = 1};
    struct berth_budget_result *r = NULL;
    struct ggml_cgraph *graph     = NULL;
    const bool ok                 = berth_graph_budget(s->graph, &params, &s->again_ctx, &graph, &r) == GGML_STATUS_SUCCESS ||
                    model_fail(error, "%s", berth_last_error());
    if (ok) {
        s->again = (struct session_again){.is_kept = graph != NULL,
            .n_again                               = graph != NULL ? (int64_t) r->n_again : 0,
            .n_nodes                               = n_homes,
            .least                                 = r->n_uses > 0 ? r->uses[0].least : 0,
            .slower = graph != NULL && r->cost_once > 0 ? (double) r->cost / (double) r->cost_once : 1};
    }
    if (ok && graph != NULL) {
        s->graph = graph;
    }
    if (ok && graph != NULL && homes != NULL) {
        homes_set(s, homes, n_homes);
    }
    berth_budget_free(r);
    model_alloc_free(homes);
    return ok;
}

// SPDX-License-Identifier: MIT
// compare.c: one graph on two backends, results shown to a callback node by node. The graph itself runs on backend1; backend2
// works on a copy. Without chosen nodes each node is computed from backend-own inputs, so that errors do not hide behind others.

#include "backend/backend.h"
#include "core/graph.h"
#include "core/optable.h"

static bool is_chosen(const struct ggml_tensor *node, const struct ggml_tensor *const *chosen, size_t n_chosen) {
    for (size_t i = 0; i < n_chosen; i++) {
        if (chosen[i] == node) {
            return true;
        }
    }
    return false;
}

static bool moves_no_data(const struct ggml_tensor *node) {
    const struct berth_op_info *info = berth_op_info(node->op);
    return info != NULL && info->is_empty;
}

static bool compute_both(ggml_backend_t backend1, struct ggml_cgraph *g1, ggml_backend_t backend2, struct ggml_cgraph *g2) {
    return ggml_backend_graph_compute(backend1, g1) == GGML_STATUS_SUCCESS &&
           ggml_backend_graph_compute(backend2, g2) == GGML_STATUS_SUCCESS;
}

static bool compare_nodes(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *g1, struct ggml_cgraph *g2,
    ggml_backend_eval_callback callback, void *user_data) {
    for (int i = 0; i < g1->n_nodes; i++) {
        struct ggml_cgraph one1 = ggml_graph_view(g1, i, i + 1), one2 = ggml_graph_view(g2, i, i + 1);
        if (!compute_both(backend1, &one1, backend2, &one2)) {
            return false;
        }
        if (!moves_no_data(g1->nodes[i]) && !callback(i, g1->nodes[i], g2->nodes[i], user_data)) {
            return true;
        }
    }
    return true;
}

// True if both computed, also when the callback ended it early with false. False: a copy or a compute failed.
bool ggml_backend_compare_graph_backend(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data, const struct ggml_tensor *const *test_nodes, size_t num_test_nodes) {
    if (callback == NULL || (test_nodes == NULL && num_test_nodes > 0)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_compare_graph_backend: the %s NULL",
            callback == NULL ? "callback is" : "chosen nodes are");
        return false;
    }
    struct ggml_backend_graph_copy copy = ggml_backend_graph_copy(backend2, graph);
    if (copy.graph == NULL) {
        return false;
    }
    bool ok;
    if (num_test_nodes == 0) {
        ok = compare_nodes(backend1, backend2, graph, copy.graph, callback, user_data);
    } else {
        ok = compute_both(backend1, graph, backend2, copy.graph);
        for (int i = 0; ok && i < graph->n_nodes; i++) {
            if (is_chosen(graph->nodes[i], test_nodes, num_test_nodes) &&
                !callback(i, graph->nodes[i], copy.graph->nodes[i], user_data)) {
                break;
            }
        }
    }
    ggml_backend_graph_copy_free(copy);
    return ok;
}

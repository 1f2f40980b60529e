// SPDX-License-Identifier: MIT
// graph_check.c: what every graph passes before a backend sees it: no poison, and each node that is computed, and each of its
// sources, lies in memory as a whole (core/span.h). One pass;
// berth_backend_has_checked spares the CPU backend a second.

#include "backend/backend.h"
#include "core/graph.h"
#include "core/optable.h"
#include "core/span.h"

static enum ggml_status refuse(
    const struct ggml_cgraph *graph, int i, const struct ggml_tensor *bad, enum berth_span_fault fault) {
    const struct ggml_tensor *node = graph->nodes[i];
    char text[320];
    berth_span_tell(fault, bad, text, sizeof text);
    return berth_fail(GGML_STATUS_FAILED, "node %d of %d, %s (%s), cannot be computed: %s %s", i, graph->n_nodes,
        berth_name_of(node), ggml_op_name(node->op), bad == node ? "the result" : "source", text);
}

enum ggml_status berth_backend_graph_check(const struct ggml_cgraph *graph) {
    if (berth_graph_check(graph) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    struct berth_span_walk walk = {0};
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node   = graph->nodes[i];
        const struct berth_op_info *info = berth_op_info(node->op);
        if (info != NULL && info->is_empty) {
            continue;
        }
        const struct ggml_tensor *bad = node;
        enum berth_span_fault fault   = berth_span_walk(&walk, node);
        for (int s = 0, n = berth_span_n_src(node); fault <= BERTH_SPAN_EMPTY && s < n; s++) {
            if (node->src[s] != NULL) {
                bad   = node->src[s];
                fault = berth_span_walk(&walk, bad);
            }
        }
        if (BERTH_UNLIKELY(fault > BERTH_SPAN_EMPTY)) {
            return refuse(graph, i, bad, fault);
        }
    }
    return GGML_STATUS_SUCCESS;
}

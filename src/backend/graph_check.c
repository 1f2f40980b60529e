// SPDX-License-Identifier: MIT
// graph_check.c: what every graph passes before a backend sees it: no poison, and each node that is computed, and each of its
// sources, lies in memory as a whole (core/span.h). One pass;
// berth_backend_has_checked spares the CPU backend a second.

#include "backend/backend.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/span.h"

static enum ggml_status refuse(
    const struct ggml_cgraph *graph, int i, const struct ggml_tensor *bad, enum berth_span_fault fault) {
    const struct ggml_tensor *node = graph->nodes[i];
    char text[320];
    berth_span_tell(fault, bad, text, sizeof text);
    return berth_fail(GGML_STATUS_FAILED, "node %d of %d, %s (%s), cannot be computed: %s %s", i, graph->n_nodes,
        berth_name_of(node), ggml_op_name(node->op), bad == node ? "the result" : "source", text);
}

// Leafs and the mark of a graph that was full are core's to tell of.
static bool holds_poison(const struct ggml_cgraph *graph) {
    int32_t flags = 0;
    for (int i = 0; i < graph->n_leafs; i++) {
        flags |= graph->leafs[i]->flags;
    }
    return (flags & BERTH_FLAG_POISON) != 0;
}

enum ggml_status berth_backend_graph_check(const struct ggml_cgraph *graph, bool *has_empty) {
    *has_empty = false;
    if (graph == NULL || holds_poison(graph)) {
        return berth_graph_check(graph);
    }
    struct berth_span_walk walk = {0};
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i], *bad = node;
        if (BERTH_UNLIKELY(berth_poisoned(node))) {
            return berth_graph_check(graph);
        }
        enum berth_span_fault fault = berth_span_walk_node(&walk, node);
        for (int s = 0, n = berth_span_n_src(node); fault <= BERTH_SPAN_EMPTY && s < n; s++) {
            if (node->src[s] != NULL) {
                bad = node->src[s];
                fault = berth_span_walk(&walk, bad);
                *has_empty |= fault == BERTH_SPAN_EMPTY;
            }
        }
        if (BERTH_UNLIKELY(fault > BERTH_SPAN_EMPTY)) {
            const struct berth_op_info *info = berth_op_info(node->op);
            if (info == NULL || !info->is_empty) { // views that nobody reads may be what they like
                return refuse(graph, i, bad, fault);
            }
        }
    }
    return GGML_STATUS_SUCCESS;
}

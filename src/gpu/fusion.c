// SPDX-License-Identifier: MIT
// fusion.c: functions that fusions use to inspect graphs.

#include "core/graph.h"
#include "gpu/gpu.h"

int gpu_n_uses(const struct ggml_cgraph *graph, const struct ggml_tensor *node) {
    if (graph->use_counts == NULL || (node->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
        return -1;
    }
    const size_t slot = berth_hash_find(&graph->visited_hash_set, node);
    return slot != BERTH_HASH_NONE && berth_bit_get(graph->visited_hash_set.used, slot) ? graph->use_counts[slot] : -1;
}

bool gpu_is_used_once(const struct ggml_cgraph *graph, const struct ggml_tensor *node) {
    return gpu_n_uses(graph, node) == 1;
}

bool gpu_overlap(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    const char *pa = a->data, *pb = b->data;
    return pa < pb + ggml_nbytes(b) && pb < pa + ggml_nbytes(a);
}

bool gpu_may_write_over(const struct ggml_tensor *result, const struct ggml_tensor *read) {
    return !gpu_overlap(result, read) || (result->data == read->data && result->type == read->type &&
                                             ggml_are_same_shape(result, read) && ggml_are_same_stride(result, read));
}

bool gpu_writes_into(const struct ggml_tensor *node, const struct ggml_tensor *t) {
    return !gpu_is_view_op(node->op) && node->view_src != NULL && node->view_src == (t->view_src != NULL ? t->view_src : t);
}

// t must be a source of an op. The function searches the nodes for one that writes t. It skips the search if t has one reader:
// that reader is the op, so t has no view and no in-place op, and no node can write t. Most weights have one reader.
bool gpu_is_const(const struct ggml_cgraph *graph, const struct ggml_tensor *t) {
    bool is_const = t->op == GGML_OP_NONE && t->view_src == NULL;
    const int n_searched = is_const && gpu_n_uses(graph, t) != 1 ? graph->n_nodes : 0;
    for (int i = 0; i < n_searched && is_const; i++) {
        is_const = !gpu_writes_into(graph->nodes[i], t);
    }
    return is_const;
}

int gpu_next_computed(const struct ggml_cgraph *graph, int i) {
    while (i < graph->n_nodes && (gpu_is_view_op(graph->nodes[i]->op) || ggml_nelements(graph->nodes[i]) == 0)) {
        i++;
    }
    return i;
}

struct ggml_tensor *gpu_node_at(const struct ggml_cgraph *graph, int i, enum ggml_op op) {
    struct ggml_tensor *node = i < graph->n_nodes ? graph->nodes[i] : NULL;
    return node != NULL && node->op == op && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 ? node : NULL;
}

void gpu_keep(struct ggml_backend_graph_optimize_params *params, const struct ggml_tensor *t, struct ggml_tensor *until) {
    const struct ggml_tensor *root = t->view_src != NULL ? t->view_src : t;
    if (root->op != GGML_OP_NONE) {
        params->add_alloc_dep(params->user_data, (struct ggml_tensor *) root, until);
    }
}

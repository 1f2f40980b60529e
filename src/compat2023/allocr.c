// SPDX-License-Identifier: MIT
// allocr.c: the allocator of the first 2023 generation: a tensor allocator and a graph allocator in one object.

#include "compat2023/compat2023.h"

struct ggml_allocr {
    gen_tallocr_t talloc;
    gen_gallocr_t galloc;
};

ggml_allocr_t berth_2023_allocr_over(gen_tallocr_t talloc) {
    ggml_allocr_t alloc = talloc != NULL ? berth_calloc(1, sizeof *alloc) : NULL;
    gen_gallocr_t galloc = alloc != NULL ? berth_2023_gallocr_new() : NULL;
    if (galloc == NULL) {
        berth_2023_tallocr_free(talloc);
        berth_free(alloc);
        return NULL;
    }
    *alloc = (struct ggml_allocr){.talloc = talloc, .galloc = galloc};
    return alloc;
}

ggml_allocr_t berth_2023_allocr_new_from_buffer(gen_buffer_t buffer) {
    return berth_2023_allocr_over(berth_2023_tallocr_new_from_buffer(buffer));
}

gen_buffer_t berth_2023_allocr_get_buffer(ggml_allocr_t alloc) {
    return alloc != NULL ? alloc->talloc->buffer : NULL;
}

void berth_2023_allocr_set_parse_seq(ggml_allocr_t alloc, const int *list, int n) {
    berth_2023_gallocr_set_parse_seq(alloc != NULL ? alloc->galloc : NULL, list, n);
}

void berth_2023_allocr_free(ggml_allocr_t alloc) {
    if (alloc != NULL) {
        berth_2023_tallocr_free(alloc->talloc);
        berth_2023_gallocr_free(alloc->galloc);
        berth_free(alloc);
    }
}

bool berth_2023_allocr_is_measure(ggml_allocr_t alloc) {
    return alloc != NULL && alloc->talloc->is_measure;
}

void berth_2023_allocr_reset(ggml_allocr_t alloc) {
    berth_2023_tallocr_reset(alloc != NULL ? alloc->talloc : NULL);
}

void berth_2023_allocr_alloc(ggml_allocr_t alloc, struct ggml_tensor *tensor) {
    berth_2023_tallocr_alloc(alloc != NULL ? alloc->talloc : NULL, tensor);
}

size_t berth_2023_allocr_max_size(ggml_allocr_t alloc) {
    return berth_2023_tallocr_max_size(alloc != NULL ? alloc->talloc : NULL);
}

size_t berth_2023_allocr_alloc_graph(ggml_allocr_t alloc, struct ggml_cgraph *graph) {
    return alloc != NULL ? berth_2023_gallocr_alloc_graph(alloc->galloc, alloc->talloc, graph) : 0;
}

// ---- several graphs ----

static void inputs_place(ggml_allocr_t alloc, struct ggml_tensor **inputs) {
    for (size_t i = 0; inputs != NULL && inputs[i] != NULL; i++) {
        if (inputs[i]->op == GGML_OP_NONE && inputs[i]->data == NULL && inputs[i]->view_src == NULL) {
            berth_2023_allocr_alloc(alloc, inputs[i]);
        }
    }
}

// The graphs are placed as one graph, so that the outputs of each graph keep their memory. ggml differs: it reuses this memory
// for the next graph.
size_t berth_2023_allocr_alloc_graph_n(
    ggml_allocr_t alloc, struct ggml_cgraph **graphs, int n_graphs, struct ggml_tensor ***inputs, struct ggml_tensor ***outputs) {
    (void) outputs;
    size_t n_nodes = 0, n_leafs = 0;
    for (int g = 0; graphs != NULL && g < n_graphs; g++) {
        n_nodes += (size_t) graphs[g]->n_nodes;
        n_leafs += (size_t) graphs[g]->n_leafs;
    }
    if (alloc == NULL || graphs == NULL || n_graphs < 1 || n_nodes + n_leafs > INT32_MAX) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_allocr_alloc_graph_n: the allocator is NULL, or %zu nodes in %d graphs are out of range", n_nodes, n_graphs);
        return 0;
    }
    struct ggml_tensor **tensors = berth_malloc((n_nodes + n_leafs + 1) * sizeof tensors[0]);
    if (tensors == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_allocr_alloc_graph_n: out of memory for %zu nodes", n_nodes);
        return 0;
    }
    struct ggml_cgraph merged = *graphs[0];
    merged.nodes = tensors;
    merged.leafs = tensors + n_nodes;
    merged.n_nodes = 0;
    merged.n_leafs = 0;
    for (int g = 0; g < n_graphs; g++) {
        inputs_place(alloc, inputs != NULL ? inputs[g] : NULL);
        for (int i = 0; i < graphs[g]->n_nodes; i++) {
            merged.nodes[merged.n_nodes++] = graphs[g]->nodes[i];
        }
        for (int i = 0; i < graphs[g]->n_leafs; i++) {
            merged.leafs[merged.n_leafs++] = graphs[g]->leafs[i];
        }
    }
    const size_t size = berth_2023_allocr_alloc_graph(alloc, &merged);
    berth_free(tensors);
    return size;
}

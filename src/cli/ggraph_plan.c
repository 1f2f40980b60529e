// SPDX-License-Identifier: MIT
// ggraph_plan.c: captured graphs as items to plan: what the graph allocator would ask the planner, with the in-place rules of the
// ggml version that the file names.

#include "berth-alloc.h"
#include "cli/ggraph.h"
#include "cli/plan_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The place of a tensor: nodes by their number, others by their name; of several with one name, the next. NULL: none.
static const struct ggraph_place *place_of(struct ggraph *g, const struct berth_plan_tensor *tensor) {
    const int64_t n_nodes = ggml_graph_n_nodes(g->graph);
    if (tensor->node >= 0) {
        return tensor->node < n_nodes ? &g->places[tensor->node] : NULL;
    }
    for (int64_t i = n_nodes; i < g->n_places; i++) {
        if (g->places[i].offset >= 0 && !g->places[i].is_taken && strcmp(g->places[i].tensor->name, tensor->name) == 0) {
            g->places[i].is_taken = true;
            return &g->places[i];
        }
    }
    return NULL;
}

// Offsets as the captured program had them, where it had one; an item lies where its first tensor does.
static void set_captured(struct ggraph *g, struct berth_plan_set *set) {
    size_t t = 0;
    for (size_t i = 0; i < set->n_items; i++) {
        uint64_t max_chunk = 0;
        for (size_t p = 0; p < set->n_pools; p++) {
            max_chunk = set->pools[p].pool == set->items[i].pool ? set->pools[p].max_chunk : max_chunk;
        }
        while (t < set->n_tensors && set->tensors[t].item < i) {
            t++;
        }
        const bool has_tensor            = t < set->n_tensors && set->tensors[t].item == i;
        const struct ggraph_place *place = has_tensor ? place_of(g, &set->tensors[t]) : NULL;
        const bool is_placed             = place != NULL && place->offset >= 0 && place->chunk >= 0;
        uint64_t base;
        set->offsets[i] = is_placed && !__builtin_mul_overflow((uint64_t) place->chunk, max_chunk, &base) &&
                                  !__builtin_add_overflow(base, (uint64_t) place->offset, &base)
                              ? base
                              : BERTH_PLAN_ANY;
    }
}

// Through the allocator's own file format, which has all that a plan has.
static enum ggml_status items_of(struct ggraph *g, ggml_gallocr_t galloc, const char *path, struct berth_plan_set **set) {
    char *text              = NULL;
    size_t size             = 0;
    size_t *sizes           = calloc((size_t) g->n_bufs, sizeof *sizes);
    FILE *file              = sizes != NULL ? open_memstream(&text, &size) : NULL;
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (file != NULL) {
        status = berth_gallocr_sizes(galloc, g->graph, g->node_bufs, g->leaf_bufs, sizes);
        if (status == GGML_STATUS_SUCCESS) {
            status = berth_gallocr_save(galloc, g->graph, file);
        }
        if (fclose(file) == 0 && status == GGML_STATUS_SUCCESS) {
            status = berth_plan_read_json(text, size, path, set);
        }
        if (status == GGML_STATUS_SUCCESS) {
            (*set)->has_offsets = false; // the plan is to be made, not to be started from
            set_captured(g, *set);
        }
    }
    free(sizes);
    free(text);
    return status;
}

enum ggml_status cli_plan_read_graph(const char *path, struct berth_plan_set **set) {
    *set = NULL;
    struct ggraph g;
    enum ggml_status status = ggraph_read(&g, path);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    ggml_backend_buffer_type_t *types = calloc((size_t) g.n_bufs, sizeof(ggml_backend_buffer_type_t));
    ggml_gallocr_t galloc             = NULL;
    if (types != NULL) {
        ggraph_bufts(&g, types);
        galloc = ggml_gallocr_new_n(types, g.n_bufs);
    }
    if (galloc != NULL) {
        struct berth_gallocr_options options = berth_gallocr_options_default();
        options.inplace_via_views            = false;
        options.in_place                     = ggraph_in_place;
        options.in_place_user                = &g;
        berth_gallocr_set_options(galloc, &options);
    }
    status = galloc != NULL ? items_of(&g, galloc, path, set) : GGML_STATUS_ALLOC_FAILED;
    ggml_gallocr_free(galloc);
    free(types);
    ggraph_free(&g);
    return status;
}

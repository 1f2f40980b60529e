// SPDX-License-Identifier: MIT
// ggraph_plan.c: captured graphs as items to plan: what the graph allocator would ask the planner, with the in-place rules of the
// ggml version that the file names.

#include "berth-alloc.h"
#include "cli/ggraph.h"
#include "cli/plan_graph.h"

#include <stdio.h>
#include <stdlib.h>

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

// SPDX-License-Identifier: MIT
// plan_graph.c: captured graphs (.ggraph, .ggraph.gz) as items to plan: what the graph allocator would ask the planner, with the
// in-place rules of the ggml version that the file names.

#include "cli/plan_graph.h"

#include "berth-alloc.h"
#include "cli/ggraph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
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
        }
    }
    free(sizes);
    free(text);
    return status;
}

enum ggml_status cli_plan_read(const char *path, struct berth_plan_set **set) {
    *set = NULL;
    if (!ends_with(path, ".ggraph") && !ends_with(path, ".ggraph.gz")) {
        return berth_plan_read_file(path, set);
    }
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

int32_t cli_plan_pools(const struct berth_plan_set *set) {
    int32_t n = 0;
    for (size_t i = 0; i < set->n_items; i++) {
        n = set->items[i].pool >= n ? set->items[i].pool + 1 : n;
    }
    return n;
}

bool cli_plan_pool(const struct berth_plan_set *set, const uint64_t *offsets, int32_t pool, struct cli_pool *out) {
    struct berth_plan_item *items = malloc((set->n_items + 1) * sizeof *items);
    *out                          = (struct cli_pool){0};
    if (items == NULL) {
        return false;
    }
    for (size_t i = 0; i < set->n_items; i++) {
        if (set->items[i].pool == pool) {
            const uint64_t end = set->items[i].size > 0 ? offsets[i] + set->items[i].size : 0;
            out->peak          = end > out->peak ? end : out->peak;
            items[out->n++]    = set->items[i];
        }
    }
    const bool ok =
        out->n == 0 || berth_plan_bound(items, (int64_t) out->n, NULL, &out->bound, &out->step) == GGML_STATUS_SUCCESS;
    free(items);
    return ok;
}

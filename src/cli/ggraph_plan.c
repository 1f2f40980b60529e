// SPDX-License-Identifier: MIT
// ggraph_plan.c: captured graphs as items to plan: what the graph allocator would ask the planner, with the in-place rules of the
// ggml version that the file names.

#include "base/base.h"
#include "berth-alloc.h"
#include "cli/ggraph.h"
#include "cli/plan_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Places of what is no node, by name, then in order; a cursor at the first of each name says how many of that name are taken.
struct named {
    const struct ggraph_place *place;
    size_t n_taken;
};

static int by_name(const void *a, const void *b) {
    const struct ggraph_place *x = ((const struct named *) a)->place, *y = ((const struct named *) b)->place;
    const int order = strcmp(x->tensor->name, y->tensor->name);
    return order != 0 ? order : (x > y) - (x < y);
}

static struct named *names_of(const struct ggraph *g, size_t *n) {
    struct named *names = malloc(((size_t) g->n_places + 1) * sizeof *names);
    *n                  = 0;
    for (int64_t i = ggml_graph_n_nodes(g->graph); names != NULL && i < g->n_places; i++) {
        if (g->places[i].offset >= 0) {
            names[(*n)++] = (struct named){.place = &g->places[i]};
        }
    }
    if (names != NULL && *n > 0) {
        qsort(names, *n, sizeof *names, by_name);
    }
    return names;
}

// The place of a tensor: nodes by their number, others by their name; of several with one name, the next. NULL: none.
static const struct ggraph_place *place_of(
    const struct ggraph *g, struct named *names, size_t n_names, const struct berth_plan_tensor *tensor) {
    if (tensor->node >= 0) {
        return tensor->node < ggml_graph_n_nodes(g->graph) ? &g->places[tensor->node] : NULL;
    }
    size_t low = 0;
    for (size_t high = n_names; low < high;) {
        const size_t mid = low + (high - low) / 2;
        if (strcmp(names[mid].place->tensor->name, tensor->name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    const size_t at = low < n_names ? low + names[low].n_taken : n_names;
    if (at >= n_names || strcmp(names[at].place->tensor->name, tensor->name) != 0) {
        return NULL;
    }
    names[low].n_taken++;
    return names[at].place;
}

// As one number, as plans count: chunks follow each other, each of the pool's largest size.
static uint64_t offset_in(const struct berth_plan_pool *pool, const struct ggraph_place *place) {
    uint64_t base = 0;
    if (place == NULL || place->offset < 0 || place->chunk < 0 ||
        __builtin_mul_overflow((uint64_t) place->chunk, pool != NULL ? pool->max_chunk : 0, &base) ||
        __builtin_add_overflow(base, (uint64_t) place->offset, &base)) {
        return BERTH_PLAN_ANY;
    }
    return base;
}

// Offsets as the captured program had them, where it had one; an item lies where its first tensor does.
static enum ggml_status set_captured(const struct ggraph *g, struct berth_plan_set *set) {
    size_t n_names, t = 0;
    struct named *names = names_of(g, &n_names);
    if (names == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the names of %lld tensors", (long long) g->n_places);
    }
    cli_pools_sort(set);
    for (size_t i = 0; i < set->n_items; i++) {
        while (t < set->n_tensors && set->tensors[t].item < i) {
            t++;
        }
        const bool has_tensor = t < set->n_tensors && set->tensors[t].item == i;
        set->offsets[i] =
            offset_in(cli_pools_find(set, set->items[i].pool), has_tensor ? place_of(g, names, n_names, &set->tensors[t]) : NULL);
    }
    free(names);
    return GGML_STATUS_SUCCESS;
}

// Through the allocator's own file format, which has all that a plan has.
static enum ggml_status items_of(struct ggraph *g, ggml_gallocr_t galloc, const char *path, struct berth_plan_set **set) {
    char *text    = NULL;
    size_t size   = 0;
    size_t *sizes = calloc((size_t) g->n_bufs, sizeof *sizes);
    FILE *file    = sizes != NULL ? open_memstream(&text, &size) : NULL;
    if (file == NULL) {
        free(sizes);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for its plan", path);
    }
    enum ggml_status status = berth_gallocr_sizes(galloc, g->graph, g->node_bufs, g->leaf_bufs, sizes);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_gallocr_save(galloc, g->graph, file);
    }
    if (fclose(file) != 0 && status == GGML_STATUS_SUCCESS) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for its plan as text", path);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_read_json(text, size, path, set);
    }
    if (status == GGML_STATUS_SUCCESS) {
        (*set)->has_offsets = false; // the plan is to be made, not to be started from
        status              = set_captured(g, *set);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_plan_set_free(*set);
        *set = NULL;
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
    status = galloc != NULL ? items_of(&g, galloc, path, set)
                            : berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %d buffers", path, g.n_bufs);
    ggml_gallocr_free(galloc);
    free(types);
    ggraph_free(&g);
    return status;
}

// SPDX-License-Identifier: MIT
// galloc_plan.c: a graph becomes a plan: record, lifetimes, offsets, and the bytes each chunk needs. No buffer is touched.

#include "alloc/galloc_plan.h"

#include "ggml-backend.h"

// ---- what a record asks ----

static bool is_ours(void *user, const struct ggml_tensor *t) {
    const struct ggml_gallocr *galloc = user;
    for (int p = 0; p < galloc->n_pools && t->buffer != NULL; p++) {
        for (size_t c = 0; c < galloc->pools[p].n_chunks; c++) {
            if (galloc->pools[p].chunks[c] == t->buffer) {
                return true;
            }
        }
    }
    return false;
}

static size_t alloc_size(void *user, const struct ggml_tensor *t, int buf) {
    const struct ggml_gallocr *galloc = user;
    return ggml_backend_buft_get_alloc_size(galloc->pools[galloc->pool_of[buf]].buft, t);
}

struct record_rules berth_galloc_record_rules(struct ggml_gallocr *galloc) {
    return (struct record_rules){.is_ours = is_ours, .alloc_size = alloc_size, .user = galloc};
}

struct lifetime_rules berth_galloc_lifetime_rules(const struct ggml_gallocr *galloc) {
    const struct berth_gallocr_options *o = &galloc->options;
    return (struct lifetime_rules){
        .via_views = o->inplace_via_views, .free_unread = o->free_unread, .in_place = o->in_place, .user = o->in_place_user};
}

// ---- the plan ----

static enum ggml_status ids_are_sound(const struct ggml_gallocr *galloc, const char *what, const int *ids, int n) {
    for (int i = 0; ids != NULL && i < n; i++) {
        if (ids[i] < 0 || ids[i] >= galloc->n_bufs) {
            return berth_fail(GGML_STATUS_FAILED, "%s %d is given buffer %d of %d", what, i, ids[i], galloc->n_bufs);
        }
    }
    return GGML_STATUS_SUCCESS;
}

// Bytes of each chunk: how far the items in it reach.
static enum ggml_status sum_chunks(struct ggml_gallocr *galloc) {
    for (int p = 0; p < galloc->n_pools; p++) {
        galloc->pools[p].n_need = 0;
    }
    for (size_t i = 0; i < galloc->lives.n_items; i++) {
        struct galloc_pool *pool = &galloc->pools[galloc->lives.items[i].pool];
        const uint64_t chunk     = pool->max_chunk != 0 ? galloc->offsets[i] / pool->max_chunk : 0;
        const uint64_t end       = galloc->offsets[i] - chunk * pool->max_chunk + galloc->lives.items[i].size;
        if (!berth_grow((void **) &pool->need, &pool->need_cap, (size_t) chunk + 1, sizeof pool->need[0])) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu chunks", (size_t) chunk + 1);
        }
        while (pool->n_need <= chunk) {
            pool->need[pool->n_need++] = 0;
        }
        if (end > pool->need[chunk]) {
            pool->need[chunk] = end;
        }
    }
    return GGML_STATUS_SUCCESS;
}

// A pool at a time, since each may have a largest chunk of its own. Items of the pool are gathered to the front of scratch.
static enum ggml_status solve_pool(
    struct ggml_gallocr *galloc, int p, struct berth_plan_item *items, int32_t *ids, uint64_t *offsets) {
    struct galloc_pool *pool = &galloc->pools[p];
    int64_t n                = 0;
    for (size_t i = 0; i < galloc->lives.n_items; i++) {
        if (galloc->lives.items[i].pool == p) {
            items[n]        = galloc->lives.items[i];
            ids[n]          = (int32_t) i;
            items[n++].pool = 0;
        }
    }
    const struct berth_plan_params params = {.max_chunk = pool->max_chunk, .budget_us = galloc->options.budget_us};
    const enum ggml_status status         = berth_plan_solve(items, n, &params, offsets, &pool->report);
    for (int64_t i = 0; i < n && status == GGML_STATUS_SUCCESS; i++) {
        galloc->offsets[ids[i]] = offsets[i];
    }
    return status;
}

static enum ggml_status solve(struct ggml_gallocr *galloc) {
    const size_t n = galloc->lives.n_items;
    if (!berth_grow((void **) &galloc->offsets, &galloc->offsets_cap, n > 0 ? n : 1, sizeof galloc->offsets[0])) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu offsets", n);
    }
    if (galloc->n_pools == 1) {
        const struct berth_plan_params params = {.max_chunk = galloc->pools[0].max_chunk, .budget_us = galloc->options.budget_us};
        return berth_plan_solve(galloc->lives.items, (int64_t) n, &params, galloc->offsets, &galloc->pools[0].report);
    }
    struct berth_plan_item *items = berth_malloc((n + 1) * sizeof *items);
    int32_t *ids                  = berth_malloc((n + 1) * sizeof *ids);
    uint64_t *offsets             = berth_malloc((n + 1) * sizeof *offsets);
    enum ggml_status status       = GGML_STATUS_SUCCESS;
    if (items == NULL || ids == NULL || offsets == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the plan of %zu items", n);
    }
    for (int p = 0; p < galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        status = solve_pool(galloc, p, items, ids, offsets);
    }
    berth_free(items);
    berth_free(ids);
    berth_free(offsets);
    return status;
}

enum ggml_status berth_galloc_plan(
    struct ggml_gallocr *galloc, struct ggml_cgraph *graph, const int *node_bufs, const int *leaf_bufs) {
    const struct record_rules sizes   = berth_galloc_record_rules(galloc);
    const struct lifetime_rules rules = berth_galloc_lifetime_rules(galloc);

    galloc->is_planned      = false;
    enum ggml_status status = berth_graph_check(graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = ids_are_sound(galloc, "node", node_bufs, graph->n_nodes);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = ids_are_sound(galloc, "leaf", leaf_bufs, graph->n_leafs);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_record_build(&galloc->rec, graph, node_bufs, leaf_bufs, &sizes);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_lifetimes(&galloc->lives, &galloc->rec, &sizes, &rules, galloc->aligns, galloc->pool_of);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = solve(galloc);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = sum_chunks(galloc);
    }
    galloc->is_planned = status == GGML_STATUS_SUCCESS;
    return status;
}

// SPDX-License-Identifier: MIT
// galloc.c: the graph allocator: a plan applied to buffers. A graph that was seen before, at the same addresses or at others,
// costs one linear comparison and its addresses; every other graph is planned anew, and its buffers grow if they must. A failure
// loses nothing: the allocator keeps its buffers or gets equal ones back, and the next graph can be tried.

#include "alloc/galloc.h"

#include "alloc/galloc_plan.h"
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

// ---- life ----

struct berth_gallocr_options berth_gallocr_options_default(void) {
    const char *budget = getenv("BERTH_PLAN_BUDGET_US");
    return (struct berth_gallocr_options){.budget_us = budget != NULL ? strtoll(budget, NULL, 10) : 0, .inplace_via_views = true};
}

void berth_gallocr_set_options(ggml_gallocr_t galloc, const struct berth_gallocr_options *options) {
    if (galloc != NULL && options != NULL) {
        galloc->options    = *options;
        galloc->is_planned = false;
    }
}

// Buffers of one type share a pool.
static void pool_assign(struct ggml_gallocr *galloc, ggml_backend_buffer_type_t buft, int i) {
    int p = 0;
    while (p < galloc->n_pools && galloc->pools[p].buft != buft) {
        p++;
    }
    if (p == galloc->n_pools) {
        const size_t align = ggml_backend_buft_get_alignment(buft), max = ggml_backend_buft_get_max_size(buft);

        galloc->pools[galloc->n_pools++] = (struct galloc_pool){
            .buft      = buft,
            .align     = align > 0 ? align : 1,
            .max_chunk = max < (size_t) 1 << 62 ? max : 0, // more than that is no limit
        };
    }
    galloc->pool_of[i] = p;
    galloc->aligns[i]  = galloc->pools[p].align;
}

ggml_gallocr_t ggml_gallocr_new_n(ggml_backend_buffer_type_t *bufts, int n_bufs) {
    if (bufts == NULL || n_bufs <= 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_gallocr_new_n: %d buffer types", n_bufs);
        return NULL;
    }
    for (int i = 0; i < n_bufs; i++) {
        if (bufts[i] == NULL) {
            berth_fail(GGML_STATUS_FAILED, "ggml_gallocr_new_n: buffer type %d of %d is NULL", i, n_bufs);
            return NULL;
        }
    }
    struct ggml_gallocr *galloc = berth_calloc(1, sizeof *galloc);
    if (galloc != NULL) {
        galloc->pools   = berth_calloc((size_t) n_bufs, sizeof galloc->pools[0]);
        galloc->pool_of = berth_calloc((size_t) n_bufs, sizeof galloc->pool_of[0]);
        galloc->aligns  = berth_calloc((size_t) n_bufs, sizeof galloc->aligns[0]);
    }
    if (galloc == NULL || galloc->pools == NULL || galloc->pool_of == NULL || galloc->aligns == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_gallocr_new_n: out of memory for an allocator of %d buffers", n_bufs);
        ggml_gallocr_free(galloc);
        return NULL;
    }
    galloc->n_bufs  = n_bufs;
    galloc->options = berth_gallocr_options_default();
    for (int i = 0; i < n_bufs; i++) {
        pool_assign(galloc, bufts[i], i);
    }
    return galloc;
}

ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft) {
    return ggml_gallocr_new_n(&buft, 1);
}

void ggml_gallocr_free(ggml_gallocr_t galloc) {
    if (galloc == NULL) {
        return;
    }
    for (int p = 0; p < galloc->n_pools; p++) {
        for (size_t c = 0; c < galloc->pools[p].n_chunks; c++) {
            ggml_backend_buffer_free(galloc->pools[p].chunks[c]);
        }
        berth_free(galloc->pools[p].chunks);
        berth_free(galloc->pools[p].need);
    }
    berth_record_fini(&galloc->rec);
    berth_lifetimes_fini(&galloc->lives);
    berth_free(galloc->offsets);
    berth_free(galloc->pools);
    berth_free(galloc->pool_of);
    berth_free(galloc->aligns);
    berth_free(galloc);
}

// ---- buffers ----

static ggml_backend_buffer_t chunk_new(struct galloc_pool *pool, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(pool->buft, size);
    if (buffer != NULL) {
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    }
    return buffer;
}

// A larger buffer while the old one still stands; if both do not fit, the old one goes first, and comes back if that is in vain.
static bool chunk_grow(struct galloc_pool *pool, size_t c) {
    ggml_backend_buffer_t old   = pool->chunks[c];
    const size_t old_size       = old != NULL ? ggml_backend_buffer_get_size(old) : 0;
    ggml_backend_buffer_t fresh = chunk_new(pool, pool->need[c]);
    if (fresh == NULL && old != NULL) {
        ggml_backend_buffer_free(old);
        old   = NULL;
        fresh = chunk_new(pool, pool->need[c]);
        if (fresh == NULL) {
            pool->chunks[c] = old_size > 0 ? chunk_new(pool, old_size) : NULL;
            return false;
        }
    }
    if (fresh == NULL) {
        return false;
    }
    ggml_backend_buffer_free(old);
    pool->chunks[c] = fresh;
    return true;
}

static enum ggml_status pool_reserve(struct galloc_pool *pool) {
    if (!berth_grow((void **) &pool->chunks, &pool->chunks_cap, pool->n_need + 1, sizeof pool->chunks[0])) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu buffers", pool->n_need);
    }
    while (pool->n_chunks < pool->n_need) {
        pool->chunks[pool->n_chunks++] = NULL;
    }
    for (size_t c = 0; c < pool->n_need; c++) {
        const size_t have = pool->chunks[c] != NULL ? ggml_backend_buffer_get_size(pool->chunks[c]) : 0;
        if ((pool->chunks[c] == NULL || pool->need[c] > have) && !chunk_grow(pool, c)) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "a compute buffer of type %s of %zu bytes is not to be had",
                ggml_backend_buft_name(pool->buft), pool->need[c]);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status buffers_reserve(struct ggml_gallocr *galloc) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int p = 0; p < galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        status = pool_reserve(&galloc->pools[p]);
    }
    galloc->is_planned = galloc->is_planned && status == GGML_STATUS_SUCCESS;
    return status;
}

// ---- reserve ----

// Is this the planned graph, or one of its form that is nowhere larger?
static bool is_known(struct ggml_gallocr *galloc, struct ggml_cgraph *graph, const int *node_bufs, const int *leaf_bufs) {
    if (!galloc->is_planned) {
        return false;
    }
    const struct record_rules rules = berth_galloc_record_rules(galloc);
    const enum record_match match   = berth_record_match(&galloc->rec, graph, node_bufs, leaf_bufs, &rules);
    if (match == RECORD_RESHAPED) {
        return berth_lifetimes_still_fit(&galloc->lives, &galloc->rec, &rules, galloc->aligns);
    }
    return match == RECORD_SAME;
}

static enum ggml_status reserve(
    struct ggml_gallocr *galloc, struct ggml_cgraph *graph, const int *node_bufs, const int *leaf_bufs) {
    const enum ggml_status status = berth_galloc_plan(galloc, graph, node_bufs, leaf_bufs);
    return status == GGML_STATUS_SUCCESS ? buffers_reserve(galloc) : status;
}

static bool has_arguments(const char *func, ggml_gallocr_t galloc, const struct ggml_cgraph *graph) {
    if (galloc == NULL || graph == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the %s is NULL", func, galloc == NULL ? "allocator" : "graph");
        return false;
    }
    return true;
}

bool ggml_gallocr_reserve_n(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids) {
    return has_arguments(__func__, galloc, graph) &&
           reserve(galloc, graph, node_buffer_ids, leaf_buffer_ids) == GGML_STATUS_SUCCESS;
}

bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph *graph) {
    return ggml_gallocr_reserve_n(galloc, graph, NULL, NULL);
}

static size_t pool_size(const struct galloc_pool *pool) {
    size_t size = 0;
    for (size_t c = 0; c < pool->n_need; c++) {
        size += pool->need[c];
    }
    return size;
}

// The first buffer of a pool stands for it; others of its type count 0, so that a sum over buffers is right.
static bool is_first_of_pool(const struct ggml_gallocr *galloc, int i) {
    for (int j = 0; j < i; j++) {
        if (galloc->pool_of[j] == galloc->pool_of[i]) {
            return false;
        }
    }
    return true;
}

enum ggml_status berth_gallocr_sizes(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes) {
    if (!has_arguments(__func__, galloc, graph) || sizes == NULL) {
        return GGML_STATUS_FAILED;
    }
    const enum ggml_status status = berth_galloc_plan(galloc, graph, node_buffer_ids, leaf_buffer_ids);
    for (int i = 0; i < galloc->n_bufs; i++) {
        const bool counts = status == GGML_STATUS_SUCCESS && is_first_of_pool(galloc, i);
        sizes[i]          = counts ? pool_size(&galloc->pools[galloc->pool_of[i]]) : 0;
    }
    galloc->is_planned = false; // the buffers may be too small for it
    return status;
}

void ggml_gallocr_reserve_n_size(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes) {
    (void) berth_gallocr_sizes(galloc, graph, node_buffer_ids, leaf_buffer_ids, sizes);
}

size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int buffer_id) {
    if (galloc == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs || !is_first_of_pool(galloc, buffer_id)) {
        return 0;
    }
    const struct galloc_pool *pool = &galloc->pools[galloc->pool_of[buffer_id]];
    size_t size                    = 0;
    for (size_t c = 0; c < pool->n_chunks; c++) {
        size += pool->chunks[c] != NULL ? ggml_backend_buffer_get_size(pool->chunks[c]) : 0;
    }
    return size;
}

// ---- addresses ----

static enum ggml_status place(struct ggml_gallocr *galloc, struct record_row *row) {
    struct galloc_pool *pool     = &galloc->pools[galloc->lives.items[row->item].pool];
    const uint64_t off           = galloc->offsets[row->item];
    const uint64_t chunk         = pool->max_chunk != 0 ? off / pool->max_chunk : 0;
    ggml_backend_buffer_t buffer = pool->chunks[chunk];
    char *base                   = ggml_backend_buffer_get_base(buffer);

    row->t->buffer = NULL; // placed anew, also when it was ours before
    row->t->data   = NULL;
    return ggml_backend_tensor_alloc(buffer, row->t, base + (off - chunk * pool->max_chunk));
}

// Sources first, so that a view finds its memory.
static enum ggml_status place_all(struct ggml_gallocr *galloc) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t i = 0; i < galloc->rec.n_rows && status == GGML_STATUS_SUCCESS; i++) {
        if (galloc->rec.rows[i].item >= 0) {
            status = place(galloc, &galloc->rec.rows[i]);
        }
    }
    for (int32_t i = 0; i < galloc->rec.n_rows && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor *t = galloc->rec.rows[i].t;
        if (t->view_src != NULL && t->view_src->buffer != NULL) {
            t->buffer = NULL;
            t->data   = NULL;
            status    = ggml_backend_view_init(t);
        }
    }
    return status;
}

bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph *graph) {
    if (!has_arguments(__func__, galloc, graph)) {
        return false;
    }
    if (!is_known(galloc, graph, NULL, NULL)) {
        if (galloc->n_bufs > 1) {
            berth_fail(GGML_STATUS_FAILED,
                "ggml_gallocr_alloc_graph: this graph of %d nodes was not reserved, and which of the %d buffers its tensors go "
                "to "
                "is not known: call ggml_gallocr_reserve_n first",
                graph->n_nodes, galloc->n_bufs);
            return false;
        }
        if (reserve(galloc, graph, NULL, NULL) != GGML_STATUS_SUCCESS) {
            return false;
        }
    }
    return place_all(galloc) == GGML_STATUS_SUCCESS;
}

// ---- reports ----

enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report) {
    if (galloc == NULL || report == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs || !galloc->is_planned) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_report: buffer %d has no plan", buffer_id);
    }
    *report = galloc->pools[galloc->pool_of[buffer_id]].report;
    return GGML_STATUS_SUCCESS;
}

// SPDX-License-Identifier: MIT
// captured.c: turns captured graphs into items to plan. If the file has no items, Berth's graph allocator makes them, with the
// in-place rules of the file's ggml version.

#include "base/base.h"
#include "base/json.h"
#include "base/min.h"
#include "berth-alloc.h"
#include "berth-budget-graph.h"
#include "capture/ggraph.h"
#include "view/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- items from the graph allocator ----

// An entry of the list of tensors that are not nodes. The list is sorted by name. Equal names are in file order.
struct named {
    const struct ggraph_place *place;
    size_t n_taken; // number of entries with this name that place_of has returned; used in the first of them only
};

static int by_name(const void *a, const void *b) {
    const struct ggraph_place *x = ((const struct named *) a)->place, *y = ((const struct named *) b)->place;
    const int order = strcmp(x->tensor->name, y->tensor->name);
    return order != 0 ? order : (x > y) - (x < y);
}

static struct named *names_of(const struct ggraph *g, size_t *n) {
    struct named *names = berth_malloc(((size_t) g->n_places + 1) * sizeof *names);
    *n = 0;
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

// Returns the captured place of a tensor. Nodes are found by number, other tensors by name. If tensors have the same name, each
// call returns the next one. NULL: none.
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

// Returns chunk * chunk_limit + the offset in the chunk. BERTH_PLAN_ANY: the tensor has no offset, or the sum overflows.
static uint64_t offset_in(const struct berth_plan_pool *pool, const struct ggraph_place *place) {
    uint64_t base = 0;
    if (place == NULL || place->offset < 0 || place->chunk < 0 ||
        __builtin_mul_overflow((uint64_t) place->chunk, pool != NULL ? pool->chunk_limit : 0, &base) ||
        __builtin_add_overflow(base, (uint64_t) place->offset, &base)) {
        return BERTH_PLAN_ANY;
    }
    return base;
}

// Sets the offset of each item to the captured offset of its first tensor.
static enum ggml_status set_captured(const struct ggraph *g, struct berth_plan_set *set) {
    size_t n_names;
    int64_t t = 0;
    struct named *names = names_of(g, &n_names);
    if (names == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the names of %lld tensors", (long long) g->n_places);
    }
    view_pools_sort(set);
    for (int64_t i = 0; i < set->n_items; i++) {
        while (t < set->n_tensors && set->tensors[t].item < i) {
            t++;
        }
        const bool has_tensor = t < set->n_tensors && set->tensors[t].item == i;
        set->offsets[i] = offset_in(
            view_pools_find(set, set->items[i].pool), has_tensor ? place_of(g, names, n_names, &set->tensors[t]) : NULL);
    }
    berth_free(names);
    return GGML_STATUS_SUCCESS;
}

struct galloc_input {
    struct ggraph *g;
    ggml_gallocr_t galloc;
    const int *nodes, *leafs; // buffer of each node and leaf; NULL: the first buffer
    size_t *sizes;            // scratch, one per buffer
};

static enum ggml_status galloc_input_write(FILE *file, void *user) {
    const struct galloc_input *a = user;
    const enum ggml_status status = berth_gallocr_sizes(a->galloc, a->g->graph, a->nodes, a->leafs, a->sizes);
    return status == GGML_STATUS_SUCCESS ? berth_gallocr_save(a->galloc, a->g->graph, file) : status;
}

// Makes the items of a graph with the allocator, and frees the allocator. n: number of buffers. is_captured: the graph is
// unchanged, so the offsets in the file apply.
static enum ggml_status items_of(struct galloc_input a, int n, bool is_captured, const char *path, struct berth_plan_set **set) {
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    a.sizes = berth_calloc((size_t) n + 1, sizeof *a.sizes);
    if (a.galloc != NULL && a.sizes != NULL) {
        status = view_set_make(galloc_input_write, &a, path, set);
    } else {
        berth_fail(status, "%s: out of memory for %d buffers", path, n);
    }
    if (is_captured && status == GGML_STATUS_SUCCESS) {
        status = set_captured(a.g, *set);
    }
    berth_free(a.sizes);
    ggml_gallocr_free(a.galloc);
    return status;
}

// ---- items from the file ----

static void write_tensor(struct berth_json_writer *w, const struct ggraph *g, int64_t id) {
    const struct ggml_tensor *t = g->places[id].tensor;
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'name': %s, 'op': %s, 'type': %s, 'shape': [%lld, %lld, %lld, %lld]", t->name, ggml_op_desc(t),
        ggml_type_name(t->type), (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) t->ne[3]);
    if (id < ggml_graph_n_nodes(g->graph)) {
        berth_json_printf(w, "'node': %lld", (long long) id);
    }
    berth_json_end(w);
}

// Writes one pool per buffer type. The pool's number is the id of the first buffer of the type. Fills chunks with the largest
// chunk size of each pool: the recorded size, or the size of the largest item if that is larger; 0: no limit.
static void write_pools(struct berth_json_writer *w, const struct ggraph *g, uint64_t *chunks) {
    for (int i = 0; i < g->n_bufs; i++) {
        chunks[i] = g->bufs[i].max_size < (size_t) 1 << 62 ? g->bufs[i].max_size : 0;
    }
    for (int64_t k = 0; k < g->n_items; k++) {
        uint64_t *chunk = &chunks[g->bufs[g->items[k].buf].same_as];
        if (*chunk > 0) {
            *chunk = max_u64(*chunk, g->items[k].size);
        }
    }
    berth_json_begin(w, "pools", '[');
    for (int i = 0; i < g->n_bufs; i++) {
        if (g->bufs[i].same_as == i) {
            berth_json_printf(
                w, "{'pool': %d, 'name': %s, 'max_chunk': %llu}", i, g->bufs[i].name, (unsigned long long) chunks[i]);
        }
    }
    berth_json_end(w);
}

// Lists the tensors of each item in the order of their use. The list starts with the item's owner. next[id]: the tensor after
// tensor id; -1: end.
static void tensors_chain(const struct ggraph *g, int64_t *tails, int64_t *next) {
    for (int64_t i = 0; i < g->n_items; i++) {
        tails[i] = g->items[i].owner;
    }
    for (int64_t id = 0; id < g->n_places; id++) {
        next[id] = -1;
    }
    for (int64_t id = 0; id < g->n_places; id++) {
        const int64_t item = g->places[id].item;
        if (item >= 0 && g->items[item].owner != id) {
            next[tails[item]] = id;
            tails[item] = id;
        }
    }
}

static void write_item(
    struct berth_json_writer *w, const struct ggraph *g, int64_t i, const uint64_t *chunks, const int64_t *next) {
    const struct ggraph_item *item = &g->items[i];
    const int pool = g->bufs[item->buf].same_as;
    const uint64_t offset = offset_in(&(struct berth_plan_pool){.chunk_limit = chunks[pool]}, &g->places[item->owner]);
    berth_json_line(w, 0);
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'id': %s, 'first': %lld, 'last': %lld, 'size': %llu, 'alignment': %zu, 'pool': %d",
        g->places[item->owner].tensor->name, (long long) item->first, (long long) item->last, (unsigned long long) item->size,
        g->bufs[pool].align, pool);
    if (offset <= (uint64_t) 1 << 62) {
        berth_json_printf(w, "'offset': %llu", (unsigned long long) offset);
    }
    berth_json_begin(w, "tensors", '[');
    for (int64_t id = item->owner; id >= 0; id = next[id]) {
        write_tensor(w, g, id);
    }
    berth_json_end(w);
    berth_json_end(w);
}

static enum ggml_status graph_write(FILE *file, void *user) {
    const struct ggraph *g = user;
    uint64_t *chunks = berth_calloc((size_t) g->n_bufs + 1, sizeof *chunks);
    int64_t *tails = berth_malloc(((size_t) g->n_items + 1) * sizeof *tails);
    int64_t *next = berth_malloc(((size_t) g->n_places + 1) * sizeof *next);
    const bool ok = chunks != NULL && tails != NULL && next != NULL;
    if (ok) {
        tensors_chain(g, tails, next);
        struct berth_json_writer w = {.file = file};
        berth_json_begin(&w, NULL, '{');
        write_pools(&w, g, chunks);
        berth_json_begin(&w, "items", '[');
        for (int64_t i = 0; i < g->n_items; i++) {
            write_item(&w, g, i, chunks, next);
        }
        berth_json_end(&w);
        berth_json_end(&w);
    }
    berth_free(chunks);
    berth_free(tails);
    berth_free(next);
    return ok ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

static bool ops_report(
    const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params, void *user_data) {
    const struct view_budget *budget = &((const struct view_plan *) user_data)->budget;
    return budget->on_ops == NULL || budget->on_ops(ops, n_ops, params, budget->user);
}

static void alive_report(int64_t i, const struct ggml_tensor *tensor, uint64_t size, void *user_data) {
    view_plan_alive_add(user_data, (size_t) i, tensor->name, size);
}

#define SPILL_FLOPS 4 // cost per spilled byte: the CPU reads and writes it
static const char spill_price[] =
    "4 per byte moved one way; an op costs its arithmetic plus 2 per byte that it reads or writes; 4096 more per op or move";

// Replaces g->graph by a graph below the memory limit. *ctx owns the new graph. The items in the file do not apply to the new
// graph. If no such graph is found, g and *ctx are unchanged.
static enum ggml_status graph_budget(
    struct ggraph *g, const char *path, ggml_backend_buffer_type_t *types, struct ggml_context **ctx, struct view_plan *plan) {
    struct ggml_cgraph *graph = NULL;
    const struct berth_graph_budget_params params = {.memory_limit = plan->budget.bytes,
        .buft = types[0],
        .time_limit_us = VIEW_BUDGET_US,
        .seed = 1,
        .spill_buft = plan->budget.spill > 0 ? types[1] : NULL,
        .spill_limit = plan->budget.spill,
        .spill_cost_per_byte = SPILL_FLOPS,
        .on_alive = alive_report,
        .on_ops = ops_report,
        .user_data = plan,
        .proof = plan->budget.proof,
        .proof_data = plan->budget.proof_data};
    if (g->n_bufs > 1) {
        return berth_fail(
            GGML_STATUS_FAILED, "%s: the graph uses %d buffers; --budget requires a graph that uses one", path, g->n_bufs);
    }
    plan->spill_price = spill_price;
    const enum ggml_status status = berth_graph_budget(g->graph, &params, ctx, &graph, &plan->budgeted);
    if (graph != NULL) {
        g->graph = graph;
    }
    return status;
}

// Makes the items of the graph that graph_budget made. Spilled values are in a second pool.
static enum ggml_status items_budgeted(
    struct ggraph *g, ggml_backend_buffer_type_t *types, const char *path, struct view_plan *plan) {
    const int n = ggml_graph_n_nodes(g->graph), n_pools = plan->budget.spill > 0 ? 2 : 1;
    int *pools = berth_calloc((size_t) n + 1, sizeof *pools);
    if (pools == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a graph of %d nodes", path, n);
    }
    berth_budget_pools(g->graph, pools, n);
    const struct galloc_input input = {.g = g, .galloc = ggml_gallocr_new_n(types, n_pools), .nodes = pools};
    const enum ggml_status status = items_of(input, n_pools, false, path, &plan->set);
    berth_free(pools);
    return status;
}

static enum ggml_status items_plain(
    struct ggraph *g, ggml_backend_buffer_type_t *types, const char *path, struct view_plan *plan) {
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, g->n_bufs);
    struct berth_gallocr_params options = berth_gallocr_params_default();
    if (galloc != NULL && plan->budget.bytes == 0) { // with a memory limit, Berth's in-place rules apply
        options.inplace_via_views = false;
        options.inplace = ggraph_in_place;
        options.inplace_user_data = g;
        berth_gallocr_set_params(galloc, &options);
    }
    const struct galloc_input input = {.g = g, .galloc = galloc, .nodes = g->node_bufs, .leafs = g->leaf_bufs};
    return items_of(input, g->n_bufs, true, path, &plan->set);
}

enum ggml_status view_plan_read_graph(const char *path, struct view_plan *plan) {
    struct ggml_context *ctx = NULL;
    struct ggraph g;
    enum ggml_status status = ggraph_read(&g, path);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (g.has_items && plan->budget.bytes == 0) {
        status = view_set_make(graph_write, &g, path, &plan->set);
        ggraph_free(&g);
        return status;
    }
    ggml_backend_buffer_type_t *types = berth_calloc((size_t) g.n_bufs + 1, sizeof(ggml_backend_buffer_type_t));
    if (types == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %d buffers", path, g.n_bufs);
    } else {
        ggraph_bufts(&g, types);
        types[g.n_bufs] = ggml_backend_cpu_buffer_type(); // the pool to which values are spilled
        if (plan->budget.bytes > 0) {
            status = graph_budget(&g, path, types, &ctx, plan);
        }
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = ctx != NULL ? items_budgeted(&g, types, path, plan) : items_plain(&g, types, path, plan);
    }
    berth_free(types);
    ggml_free(ctx);
    ggraph_free(&g);
    return status;
}

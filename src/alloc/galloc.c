// SPDX-License-Identifier: MIT
// galloc.c: the graph allocator. If a graph equals a planned graph, one comparison suffices to place it. Any other graph is
// planned, and the buffers may grow. After a failure the plans are unchanged, and the buffers keep their sizes.

#include "alloc/galloc.h"
#include "backend/backend.h"

#include <stdlib.h>
#include <string.h>

// ---- new, free, options ----

static void plans_forget(struct ggml_gallocr *galloc) {
    while (galloc->plans != NULL) {
        struct galloc_plan *plan = galloc->plans;
        galloc->plans = plan->next;
        berth_galloc_plan_free(galloc, plan);
    }
}

struct berth_gallocr_params berth_gallocr_params_default(void) {
    const char *budget = getenv("BERTH_PLAN_BUDGET_US");
    return (struct berth_gallocr_params){
        .time_limit_us = budget != NULL ? strtoll(budget, NULL, 10) : 0, .inplace_via_views = true};
}

void berth_gallocr_set_params(ggml_gallocr_t galloc, const struct berth_gallocr_params *params) {
    if (galloc != NULL && params != NULL) {
        galloc->options = *params;
        plans_forget(galloc);
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
        const struct berth_composite_hooks *composite = berth_composite_hooks_get();

        galloc->pools[galloc->n_pools++] = (struct galloc_pool){
            .buft = buft,
            .align = align > 0 ? align : 1,
            .chunk_limit = max < (size_t) 1 << 62 ? max : 0, // a value of 2^62 or more means no limit
            .composite = composite != NULL && composite->is_composite(buft) ? composite : NULL,
        };
    }
    galloc->pool_of[i] = p;
    galloc->aligns[i] = galloc->pools[p].align;
}

// Returns true if both types are memory of one device, or host memory of devices that do not compute asynchronously.
static bool is_same_home(ggml_backend_buffer_type_t a, ggml_backend_buffer_type_t b) {
    const ggml_backend_dev_t x = ggml_backend_buft_get_device(a), y = ggml_backend_buft_get_device(b);
    const bool is_host = ggml_backend_buft_is_host(a);
    if (is_host != ggml_backend_buft_is_host(b)) {
        return false;
    }
    if (x != NULL && x == y) {
        return true;
    }
    struct ggml_backend_dev_props of_x = {0}, of_y = {0};
    ggml_backend_dev_get_props(x, &of_x);
    ggml_backend_dev_get_props(y, &of_y);
    return is_host && !of_x.caps.async && !of_y.caps.async;
}

static void home_assign(struct ggml_gallocr *galloc, const ggml_backend_buffer_type_t *bufts, int i) {
    galloc->homes[i] = i;
    for (int j = 0; j < i; j++) {
        if (bufts[j] == bufts[i] || is_same_home(bufts[j], bufts[i])) {
            galloc->homes[i] = galloc->homes[j];
            return;
        }
    }
}

ggml_gallocr_t ggml_gallocr_new_n(ggml_backend_buffer_type_t *bufts, int n_bufs) {
    if (bufts == NULL || n_bufs <= 0) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_gallocr_new_n: %d buffer types", n_bufs);
    }
    for (int i = 0; i < n_bufs; i++) {
        if (bufts[i] == NULL) {
            return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_gallocr_new_n: buffer type %d of %d is NULL", i, n_bufs);
        }
    }
    struct ggml_gallocr *galloc = berth_calloc(1, sizeof *galloc);
    if (galloc != NULL) {
        galloc->pools = berth_arrays_new(&galloc->mem, (size_t) n_bufs, sizeof galloc->pools[0]);
        galloc->pool_of = berth_arrays_new(&galloc->mem, (size_t) n_bufs, sizeof galloc->pool_of[0]);
        galloc->homes = berth_arrays_new(&galloc->mem, (size_t) n_bufs, sizeof galloc->homes[0]);
        galloc->aligns = berth_arrays_new(&galloc->mem, (size_t) n_bufs, sizeof galloc->aligns[0]);
    }
    if (galloc == NULL || galloc->mem.has_failed) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_gallocr_new_n: out of memory for an allocator of %d buffers", n_bufs);
        ggml_gallocr_free(galloc);
        return NULL;
    }
    galloc->n_bufs = n_bufs;
    galloc->epoch = 1;
    galloc->options = berth_gallocr_params_default();
    galloc->has_capture = berth_capture_is_on();
    for (int i = 0; i < n_bufs; i++) {
        pool_assign(galloc, bufts[i], i);
        home_assign(galloc, bufts, i);
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
    plans_forget(galloc);
    berth_galloc_buffers_free(galloc);
    berth_arrays_free(&galloc->mem);
    berth_free(galloc);
}

// ---- plans ----

#define PLANS_MAX 8
#define PLANS_ROWS_MAX 1000000 // limit on the rows of all plans together; the newest plan alone may have more

// Returns the plan that matches the graph and moves the plan to the front of the list; NULL: none. If is_exact is true, the graph
// must equal the planned graph, and the plan may have no buffers yet. If is_exact is false, tensors of the graph may be smaller
// than planned, and the plan must have buffers.
static struct galloc_plan *plan_find(
    struct ggml_gallocr *galloc, struct ggml_cgraph *graph, struct galloc_ids ids, bool is_exact, bool *in_place) {
    for (struct galloc_plan **link = &galloc->plans, *plan; (plan = *link) != NULL; link = &plan->next) {
        if (!is_exact && !plan->is_backed) {
            continue;
        }
        if (berth_galloc_plan_matches(galloc, plan, graph, ids, is_exact, in_place)) {
            *link = plan->next; // move to the front
            plan->next = galloc->plans;
            galloc->plans = plan;
            return plan;
        }
    }
    return NULL;
}

struct galloc_plan *berth_galloc_find_any(struct ggml_gallocr *galloc, struct ggml_cgraph *graph) {
    struct galloc_plan *plan = plan_find(galloc, graph, (struct galloc_ids){0}, false, NULL);
    return plan != NULL ? plan : plan_find(galloc, graph, (struct galloc_ids){0}, true, NULL);
}

// Drops plans, so that both limits hold after a plan of n_rows rows is added.
static void plans_trim(struct ggml_gallocr *galloc, int64_t n_rows) {
    size_t n_plans = 0;
    for (struct galloc_plan **link = &galloc->plans, *plan; (plan = *link) != NULL;) {
        n_rows += plan->rec.n_rows;
        if (++n_plans < PLANS_MAX && n_rows <= PLANS_ROWS_MAX) {
            link = &plan->next;
        } else {
            n_rows -= plan->rec.n_rows;
            *link = plan->next;
            berth_galloc_plan_free(galloc, plan);
        }
    }
}

void berth_galloc_adopt(struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    plans_trim(galloc, plan->rec.n_rows);
    plan->next = galloc->plans;
    galloc->plans = plan;
}

// ---- reserve ----

bool berth_galloc_has_arguments(const char *func, ggml_gallocr_t galloc, const struct ggml_cgraph *graph) {
    if (galloc == NULL || graph == NULL) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "%s: the %s is NULL", func, galloc == NULL ? "allocator" : "graph");
    }
    return true;
}

// Returns true if the plan has id 0 for all nodes, or leafs, for which the caller gave no ids. plan_find has compared the given
// ids.
static bool missing_ids_are_zero(const struct galloc_plan *plan, struct galloc_ids ids) {
    const struct record *rec = &plan->rec;
    for (int32_t i = 0; i < rec->n_nodes + rec->n_leafs; i++) {
        if ((i < rec->n_nodes ? ids.nodes : ids.leafs) == NULL && lifetime_rows(rec)[i].id != 0) {
            return false;
        }
    }
    return true;
}

// Finds or makes the plan of exactly this graph. Allocates no buffer.
static enum ggml_status plan_get(
    struct ggml_gallocr *galloc, struct ggml_cgraph *graph, struct galloc_ids ids, struct galloc_plan **out) {
    *out = plan_find(galloc, graph, ids, true, NULL);
    if (*out != NULL && missing_ids_are_zero(*out, ids)) {
        return GGML_STATUS_SUCCESS;
    }
    struct galloc_plan *plan = berth_galloc_plan_new(galloc, true);
    if (plan == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    enum ggml_status status = berth_galloc_plan_items(galloc, plan, graph, ids);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_galloc_plan_solve(galloc, plan, &plan->rec);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_galloc_plan_free(galloc, plan);
        return status;
    }
    berth_galloc_adopt(galloc, plan);
    berth_capture(galloc, plan, &plan->rec);
    *out = plan;
    return GGML_STATUS_SUCCESS;
}

// Plans the graph and allocates its buffers. Also reserves the memory that a later comparison with an equal graph requires.
static enum ggml_status graph_reserve(struct ggml_gallocr *galloc, struct ggml_cgraph *graph, struct galloc_ids ids) {
    struct galloc_plan *plan;
    const enum ggml_status status = plan_get(galloc, graph, ids, &plan);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    // plan_get returns no plan with unknown duplicates. So berth_record_has_unknown_duplicates is true only if out of memory.
    if (!berth_record_reserve_forms(&plan->rec) ||
        (plan->lives.n_unlisted > 0 && berth_record_has_unknown_duplicates(&plan->rec))) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the layouts of %d tensors", plan->rec.n_rows);
    }
    return berth_galloc_buffers_reserve(galloc, plan);
}

bool ggml_gallocr_reserve_n(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids) {
    return berth_galloc_has_arguments(__func__, galloc, graph) &&
           graph_reserve(galloc, graph, (struct galloc_ids){node_buffer_ids, leaf_buffer_ids}) == GGML_STATUS_SUCCESS;
}

bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph *graph) {
    return ggml_gallocr_reserve_n(galloc, graph, NULL, NULL);
}

// Only the first buffer of a pool reports a size, so that a sum over buffers is correct.
static bool is_first_of_pool(const struct ggml_gallocr *galloc, int i) {
    for (int j = 0; j < i; j++) {
        if (galloc->pool_of[j] == galloc->pool_of[i]) {
            return false;
        }
    }
    return true;
}

void berth_galloc_plan_sizes(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, size_t *sizes) {
    for (int i = 0; i < galloc->n_bufs; i++) {
        const struct galloc_need *need = &plan->needs[galloc->pool_of[i]];
        const bool is_first = is_first_of_pool(galloc, i);
        sizes[i] = is_first && need->layout != NULL ? need->layout->bytes : 0;
        for (size_t c = 0; is_first && c < need->n; c++) {
            sizes[i] += need->sizes[c];
        }
    }
}

enum ggml_status berth_gallocr_sizes(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph) || sizes == NULL) {
        return GGML_STATUS_FAILED;
    }
    struct galloc_plan *plan;
    const enum ggml_status status = plan_get(galloc, graph, (struct galloc_ids){node_buffer_ids, leaf_buffer_ids}, &plan);
    memset(sizes, 0, (size_t) galloc->n_bufs * sizeof sizes[0]);
    if (status == GGML_STATUS_SUCCESS) {
        berth_galloc_plan_sizes(galloc, plan, sizes);
    }
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
    size_t size = berth_galloc_parts_size(pool);
    for (size_t c = 0; c < pool->n_chunks; c++) {
        size += ggml_backend_buffer_get_size(pool->chunks[c].buffer);
    }
    return size;
}

// ---- addresses ----

// The address of a tensor without bytes, if its buffer has no memory.
static _Alignas(64) char empty_memory[64];

static enum ggml_status tensor_place(struct ggml_tensor *t, ggml_backend_buffer_t buffer, void *addr) {
    t->buffer = buffer;
    t->data = addr;
    if (BERTH_LIKELY(buffer->iface.init_tensor == NULL)) {
        return GGML_STATUS_SUCCESS;
    }
    const enum ggml_status status = buffer->iface.init_tensor(buffer, t);
    if (status != GGML_STATUS_SUCCESS) {
        t->buffer = NULL;
        t->data = NULL;
        return berth_fail(status, "the buffer of type %s rejects tensor %s (init_tensor failed)",
            ggml_backend_buffer_name(buffer), berth_name_of(t));
    }
    return status;
}

static struct record_place place_of(const struct ggml_gallocr *galloc, const struct galloc_spot *spot) {
    const struct galloc_pool *pool = &galloc->pools[spot->pool];
    const struct galloc_chunk *chunk = spot->chunk == GALLOC_PARTS ? &pool->parts : &pool->chunks[spot->chunk];
    return (struct record_place){chunk->buffer, chunk->base != NULL ? chunk->base + spot->off : empty_memory};
}

struct record_place berth_galloc_place(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, int32_t row) {
    const int32_t item = plan->lives.rows[row].item;
    return item >= 0 ? place_of(galloc, &plan->spots[item]) : (struct record_place){NULL, NULL};
}

uint64_t berth_galloc_epoch(const struct ggml_gallocr *galloc) {
    return galloc->epoch;
}

// Stores the address of every row in the plan, except for views of the caller's memory, whose addresses may change with every
// graph.
static void places_fill(const struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    const struct record *rec = &plan->rec;
    plan->has_no_init_tensor = true;
    for (int32_t i = 0; i < rec->n_rows; i++) {
        const int32_t item = lifetime_rows(rec)[record_base(rec, rec->rows[i].same_as)].item;
        plan->places[i] = item >= 0 ? place_of(galloc, &plan->spots[item]) : (struct record_place){NULL, NULL};
        plan->has_no_init_tensor = plan->has_no_init_tensor && (item < 0 || plan->places[i].buffer->iface.init_tensor == NULL);
    }
    plan->places_epoch = galloc->epoch;
}

// Places a view of the caller's memory. A view of memory in the arena of a ggml_context (buffer NULL) already has its address.
static enum ggml_status place_foreign_view(struct ggml_tensor *t) {
    ggml_backend_buffer_t buffer = t->view_src->buffer;
    return buffer == NULL || t->buffer != NULL ? GGML_STATUS_SUCCESS
                                               : tensor_place(t, buffer, (char *) t->view_src->data + t->view_offs);
}

static void *address_of(const struct galloc_plan *plan, int32_t i) {
    const struct ggml_tensor *t = plan->rec.tensors[i];
    return plan->places[i].data + (t->view_src != NULL ? t->view_offs : 0);
}

// Sets the addresses of all tensors. If the buffer has init_tensor, views are placed last, because init_tensor may read the
// source of a view.
static enum ggml_status place_all(const struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    bool has_postponed_views = false;
    if (plan->places_epoch != galloc->epoch) {
        places_fill(galloc, plan);
    }
    for (int pass = 0; pass == 0 || (pass == 1 && has_postponed_views); pass++) {
        for (int32_t i = 0; i < plan->rec.n_rows && status == GGML_STATUS_SUCCESS; i++) {
            ggml_backend_buffer_t buffer = plan->places[i].buffer;
            struct ggml_tensor *t = plan->rec.tensors[i];
            if (buffer == NULL) {
                status = t->view_src != NULL ? place_foreign_view(t) : GGML_STATUS_SUCCESS;
            } else if (buffer == t->buffer && t->data == address_of(plan, i)) {
                continue;
            } else if (pass == 0 && t->view_src != NULL && buffer->iface.init_tensor != NULL) {
                has_postponed_views = true;
            } else {
                status = tensor_place(t, buffer, address_of(plan, i));
            }
        }
    }
    return status;
}

// Returns true if every tensor has the address of its row. False if one tensor has two rows with different addresses, or if
// init_tensor has changed an address.
static bool is_all_in_place(const struct galloc_plan *plan) {
    for (int32_t i = 0; i < plan->rec.n_rows; i++) {
        const struct ggml_tensor *t = plan->rec.tensors[i];
        if (plan->places[i].buffer != NULL && (t->buffer != plan->places[i].buffer || t->data != address_of(plan, i))) {
            return false;
        }
    }
    return true;
}

// Places the graph by the plan of an equal graph. Sets *plan to NULL if there is no such plan.
static enum ggml_status place_known(struct ggml_gallocr *galloc, struct ggml_cgraph *graph, struct galloc_plan **plan) {
    bool in_place = false;
    *plan = plan_find(galloc, graph, (struct galloc_ids){0}, false, &in_place);
    if (*plan == NULL) {
        return GGML_STATUS_SUCCESS;
    }
    enum ggml_status status = berth_galloc_buffers_reserve(galloc, *plan);
    if (status != GGML_STATUS_SUCCESS || (in_place && (*plan)->places_epoch == galloc->epoch)) {
        return status;
    }
    status = place_all(galloc, *plan);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    // If an address differs, init_tensor has changed it, or one tensor has two rows. If init_tensor has changed it, the plan
    // applies. If one tensor has two rows, the plan does not apply. Without init_tensor, only the second reason is possible.
    if (!is_all_in_place(*plan) && ((*plan)->has_no_init_tensor || berth_record_has_unknown_duplicates(&(*plan)->rec))) {
        *plan = NULL;
    }
    return GGML_STATUS_SUCCESS;
}

bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph *graph) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph)) {
        return false;
    }
    struct galloc_plan *plan;
    if (place_known(galloc, graph, &plan) != GGML_STATUS_SUCCESS) {
        return false;
    }
    if (plan != NULL) {
        return true;
    }
    if (galloc->n_pools > 1) {
        // No log line: programs call this function first and reserve after it fails.
        berth_set_error(
            "ggml_gallocr_alloc_graph: the graph of %d nodes was not reserved, so the assignment of its tensors to %d "
            "buffers is unknown: call ggml_gallocr_reserve_n first",
            graph->n_nodes, galloc->n_bufs);
        return false;
    }
    if (plan_get(galloc, graph, (struct galloc_ids){0}, &plan) != GGML_STATUS_SUCCESS ||
        berth_galloc_buffers_reserve(galloc, plan) != GGML_STATUS_SUCCESS) {
        return false;
    }
    return place_all(galloc, plan) == GGML_STATUS_SUCCESS;
}

// ---- reports ----

enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report) {
    if (galloc == NULL || report == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs || galloc->plans == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_report: buffer %d has no plan", buffer_id);
    }
    *report = galloc->plans->needs[galloc->pool_of[buffer_id]].report;
    return GGML_STATUS_SUCCESS;
}

// Finds the row that occupies each item at a step. A late leaf (late.c) is overwritten by a node before any other access. It
// occupies its item from the step of this node on.
static void find_holders(const struct galloc_plan *plan, int64_t step, int32_t *holders) {
    const struct record *rec = &plan->rec;
    for (size_t i = 0; i < plan->lives.n_items; i++) {
        holders[i] = plan->lives.owners[i];
    }
    for (int32_t r = 0; r < rec->n_nodes && r <= step; r++) {
        const int32_t at = lifetime_rows(rec)[r].is_late ? rec->rows[r].view_src : r;
        const int32_t item = lifetime_rows(rec)[at].item;
        if (item >= 0) {
            holders[item] = at;
        }
    }
}

static int larger_first(const void *a, const void *b) {
    const struct berth_gallocr_live *x = a, *y = b;
    if (x->size != y->size) {
        return x->size > y->size ? -1 : 1;
    }
    return (x->offset > y->offset) - (x->offset < y->offset);
}

int64_t berth_gallocr_live(ggml_gallocr_t galloc, struct ggml_cgraph *graph, int buffer_id, int64_t step,
    struct berth_gallocr_live *out, int64_t n_max) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph)) {
        return -1;
    }
    struct galloc_plan *plan = berth_galloc_find_any(galloc, graph);
    if (plan == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs) {
        berth_fail(GGML_STATUS_FAILED, "berth_gallocr_live: the graph was not reserved, or there is no buffer %d", buffer_id);
        return -1;
    }
    const size_t n = plan->lives.n_items;
    const int32_t pool = galloc->pool_of[buffer_id];
    struct berth_arrays mem = {0};
    int32_t *holders = berth_arrays_new(&mem, n, sizeof *holders);
    struct berth_gallocr_live *live = berth_arrays_new(&mem, n, sizeof *live);
    int64_t n_live = 0;
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        berth_fail(GGML_STATUS_ALLOC_FAILED, "berth_gallocr_live: out of memory for %zu items", n);
        return -1;
    }
    if (step < 0) {
        step = plan->needs[pool].report.bound_step;
    }
    find_holders(plan, step, holders);
    for (size_t i = 0; i < n; i++) {
        const struct berth_plan_item *item = &plan->lives.items[i];
        if (item->pool == pool && item->size > 0 && item->first <= step && step <= item->last) {
            live[n_live++] =
                (struct berth_gallocr_live){plan->rec.tensors[holders[i]], plan->offsets[i], item->size, item->first, item->last};
        }
    }
    qsort(live, (size_t) n_live, sizeof *live, larger_first);
    for (int64_t i = 0; i < n_live && i < n_max && out != NULL; i++) {
        out[i] = live[i];
    }
    berth_arrays_free(&mem);
    return n_live;
}

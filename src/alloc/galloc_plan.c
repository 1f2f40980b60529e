// SPDX-License-Identifier: MIT
// galloc_plan.c: makes a plan from a graph: record, lifetimes, offsets, and the bytes per chunk. Allocates no buffer. A chunk is
// one of several buffers that together hold a plan, for buffer types that limit the size of a buffer.

#include "alloc/galloc.h"
#include "ggml-backend-impl.h"

#include <string.h>

// ---- new, free, columns ----

struct galloc_plan *berth_galloc_plan_new(const struct ggml_gallocr *galloc, bool has_places) {
    size_t size;
    const bool ok = berth_mul_ok((size_t) galloc->n_pools, sizeof(struct galloc_need), &size);
    struct galloc_plan *plan = ok ? berth_calloc(1, sizeof *plan + size) : NULL;
    if (plan == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "out of memory for a plan of %d buffer types", galloc->n_pools);
    }
    plan->rec.column_size = sizeof(struct lifetime_row);
    plan->lives.per_row = has_places ? 2 * sizeof plan->places[0] : 0;
    plan->lives.per_item = sizeof plan->spots[0] + sizeof plan->offsets[0];
    return plan;
}

void berth_galloc_plan_free(struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (int p = 0; p < galloc->n_pools; p++) {
        berth_free(plan->needs[p].many);
        berth_galloc_parts_drop(galloc, plan, p);
    }
    berth_record_fini(&plan->rec);
    berth_lifetimes_fini(&plan->lives);
    berth_free(plan->block);
    berth_free(plan);
}

struct galloc_columns berth_galloc_plan_columns(struct galloc_plan *plan, size_t n_rows, size_t n_steps) {
    size_t rows_size, steps_size, size;
    const bool ok = berth_mul_ok(n_rows + 1, sizeof plan->tensors[0] + sizeof plan->lives.rows[0], &rows_size) &&
                    berth_mul_ok(n_steps, sizeof(int32_t), &steps_size) && berth_add_ok(rows_size, steps_size, &size) &&
                    berth_grow(&plan->block, &plan->block_size, size, 1);
    plan->is_ready = false;
    if (!ok) {
        return (struct galloc_columns){NULL, NULL};
    }
    plan->tensors = plan->block;
    plan->lives.rows = (struct lifetime_row *) (plan->tensors + n_rows + 1);
    return (struct galloc_columns){plan->lives.rows, (int32_t *) (plan->lives.rows + n_rows + 1)};
}

const struct berth_plan_report *berth_galloc_plan_report(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, int buf) {
    return plan != NULL && plan->is_ready ? &plan->needs[galloc->pool_of[buf]].report : NULL;
}

// ---- rules for records and lifetimes ----

static bool is_ours(void *user, const struct ggml_tensor *t) {
    // All buffers of the allocator have usage COMPUTE.
    return t->buffer != NULL && t->buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE && berth_galloc_owns(user, t->buffer);
}

static size_t alloc_size(void *user, const struct ggml_tensor *t, int buf) {
    const struct ggml_gallocr *galloc = user;
    return ggml_backend_buft_get_alloc_size(galloc->pools[galloc->pool_of[buf]].buft, t);
}

struct record_rules berth_galloc_record_rules(struct ggml_gallocr *galloc) {
    return (struct record_rules){.is_ours = is_ours, .user = galloc};
}

static struct lifetime_sizes sizes_of(struct ggml_gallocr *galloc) {
    bool is_by_layout = true;
    for (int p = 0; p < galloc->n_pools; p++) {
        if (galloc->pools[p].buft->iface.get_alloc_size != NULL) {
            is_by_layout = false;
        }
    }
    return (struct lifetime_sizes){.alloc_size = alloc_size, .is_by_layout = is_by_layout, .user = galloc};
}

static struct lifetime_rules rules_of(const struct ggml_gallocr *galloc) {
    const struct berth_gallocr_params *o = &galloc->options;
    return (struct lifetime_rules){.via_views = o->inplace_via_views,
        .free_unread = o->free_unread,
        .homes = galloc->homes,
        .in_place = o->inplace,
        .user = o->inplace_user_data};
}

// Checks the two decisions that depend on properties which the record does not compare:
// - The in_place callback let a result take over the memory of a source.
// - A leaf is late: a node overwrites the leaf before any node reads it (late.c).
static bool still_valid(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const struct record *rec) {
    const struct berth_gallocr_params *o = &galloc->options;
    for (int32_t i = 0; i < rec->n_nodes && plan->lives.n_by_callback > 0; i++) {
        const struct lifetime_row *row = &plan->lives.rows[i];
        if (row->is_by_callback && !o->inplace(rec->tensors[i], rec->slots[row->took], o->inplace_user_data)) {
            return false;
        }
    }
    return berth_lifetimes_still_late(&plan->lives, rec);
}

// An unlisted tensor is neither a node nor a leaf of the graph, but a source of a node. The plan gives an unlisted tensor memory
// from its first reader on. If the same tensor is also a node of the current graph, it requires memory earlier, so the plan does
// not apply. The tensor then has two rows, which berth_record_has_unknown_duplicates detects.
static bool has_unlisted_node(struct galloc_plan *plan) {
    return plan->lives.n_unlisted > 0 && berth_record_has_unknown_duplicates(&plan->rec);
}

static bool still_fits(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) {
    const struct lifetime_sizes sizes = sizes_of(galloc);
    return berth_lifetimes_still_fit(&plan->lives, rec, &sizes, galloc->aligns);
}

static bool same_ids(const struct lifetime_row *rows, const int *bufs, int32_t n) {
    for (int32_t i = 0; bufs != NULL && i < n; i++) {
        if (bufs[i] != rows[i].id) {
            return false;
        }
    }
    return true;
}

bool berth_galloc_plan_matches(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct ggml_cgraph *graph,
    struct galloc_ids ids, bool is_exact, bool *in_place) {
    const struct lifetime_row *rows = lifetime_rows(&plan->rec);
    if (!plan->is_ready || (is_exact && plan->is_reshaped) || graph->n_nodes != plan->rec.n_nodes ||
        graph->n_leafs != plan->rec.n_leafs || !same_ids(rows, ids.nodes, graph->n_nodes) ||
        !same_ids(rows + graph->n_nodes, ids.leafs, graph->n_leafs)) {
        return false;
    }
    const struct record_rules rules = berth_galloc_record_rules(galloc);
    struct record_placer placer = {.places = plan->places,
        .undo = plan->places != NULL ? (struct record_undo *) (plan->places + plan->rec.n_rows) : NULL,
        .may_write =
            plan->has_no_init_tensor && plan->lives.n_by_callback == 0 && plan->lives.n_unlisted == 0 && plan->lives.n_late == 0};
    const bool has_places = in_place != NULL && plan->places_epoch == galloc->epoch;
    const enum record_match match = berth_record_match(&plan->rec, graph, &rules, has_places ? &placer : NULL);
    if (in_place != NULL) {
        *in_place = has_places && placer.is_done;
    }
    if (match != RECORD_DIFFERS && (!still_valid(galloc, plan, &plan->rec) || has_unlisted_node(plan))) {
        return false;
    }
    if (match == RECORD_RESHAPED && !is_exact && still_fits(galloc, plan, &plan->rec)) {
        // The items keep their planned sizes. So the plan still fits if a later graph has the planned, larger tensors again.
        plan->is_ready = berth_record_reshape(&plan->rec);
        plan->is_reshaped = true;
        return plan->is_ready;
    }
    return match == RECORD_SAME && !(is_exact && berth_record_has_unknown_duplicates(&plan->rec));
}

// ---- kept plans: the scheduler asks whether a plan of an earlier record is valid for another record ----

static bool same_row(const struct record_row *x, const struct record_row *y) {
    return x->op == y->op && x->flags == y->flags && x->view_src == y->view_src && x->same_as == y->same_as && x->src == y->src &&
           x->n_src == y->n_src && x->has_memory == y->has_memory;
}

static bool same_graph(
    const struct record *a, const struct lifetime_row *a_rows, const struct record *b, const struct lifetime_row *b_rows) {
    const size_t n_srcs = (size_t) a->n_srcs;
    if (a->n_all != b->n_all || a->n_nodes != b->n_nodes || a->n_srcs != b->n_srcs ||
        (n_srcs > 0 && (memcmp(a->srcs, b->srcs, n_srcs * sizeof a->srcs[0]) != 0 ||
                           memcmp(a->slots, b->slots, n_srcs * sizeof a->slots[0]) != 0))) {
        return false;
    }
    int32_t i = 0;
    while (i < a->n_all && same_row(&a->rows[i], &b->rows[i]) && a_rows[i].id == b_rows[i].id) {
        i++;
    }
    return i == a->n_all;
}

static bool same_order(const struct lifetime_order *a, const struct lifetime_order *b) {
    return a->n_steps == b->n_steps && a->n_early == b->n_early && (a->steps != NULL) == (b->steps != NULL) &&
           (a->steps == NULL || a->n_steps == 0 || memcmp(a->steps, b->steps, (size_t) a->n_steps * sizeof a->steps[0]) == 0);
}

bool berth_galloc_plan_remember(struct galloc_plan *plan, const struct record *rec) {
    struct record *own = &plan->rec;
    const size_t n_rows = (size_t) rec->n_all, n_srcs = (size_t) rec->n_srcs;
    if (!berth_record_reserve(own, n_rows + 1, n_srcs + 1)) {
        return false;
    }
    own->n_all = own->n_rows = rec->n_all;
    own->n_nodes = rec->n_nodes;
    own->n_srcs = rec->n_srcs;
    memcpy(own->rows, rec->rows, n_rows * sizeof own->rows[0]);
    memcpy(own->srcs, rec->srcs, n_srcs * sizeof own->srcs[0]);
    memcpy(own->slots, rec->slots, n_srcs * sizeof own->slots[0]);
    return true;
}

bool berth_galloc_plan_accepts(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec,
    const struct lifetime_row *rows, const struct lifetime_order *order) {
    if (galloc->has_capture) {
        return false; // planning writes the captured file
    }
    if (!plan->is_ready || !same_order(&plan->lives.order, order) || !same_graph(&plan->rec, plan->lives.rows, rec, rows) ||
        !still_valid(galloc, plan, rec) || !still_fits(galloc, plan, rec)) {
        return false;
    }
    if (rec->n_all > 0) {
        memcpy(plan->tensors, rec->tensors, (size_t) rec->n_all * sizeof rec->tensors[0]);
    }
    return true;
}

bool berth_galloc_plan_covers(const struct galloc_plan *plan, const struct galloc_plan *other) {
    bool is_same = plan->is_ready && same_order(&plan->lives.order, &other->lives.order) &&
                   same_graph(&plan->rec, plan->lives.rows, &other->rec, other->lives.rows) &&
                   plan->lives.n_items == other->lives.n_items;
    for (int32_t i = 0; is_same && i < plan->rec.n_all; i++) {
        is_same = plan->lives.rows[i].item == other->lives.rows[i].item;
    }
    for (size_t i = 0; is_same && i < plan->lives.n_items; i++) {
        is_same = plan->lives.items[i].size >= other->lives.items[i].size;
    }
    return is_same;
}

struct galloc_plan *berth_galloc_plan_like(struct ggml_gallocr *galloc, const struct galloc_plan *plan) {
    struct galloc_plan *like = berth_galloc_plan_new(galloc, false);
    if (like == NULL || !berth_grow(&like->block, &like->block_size, plan->block_size, 1)) {
        berth_galloc_plan_free(galloc, like);
        return NULL;
    }
    return like;
}

// ---- items ----

static enum ggml_status check_ids(const struct ggml_gallocr *galloc, const char *what, const int *ids, int n) {
    for (int i = 0; ids != NULL && i < n; i++) {
        if (ids[i] < 0 || ids[i] >= galloc->n_bufs) {
            return berth_fail(
                GGML_STATUS_FAILED, "%s %d has buffer id %d; the allocator has %d buffers", what, i, ids[i], galloc->n_bufs);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status lives_make(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) {
    const struct lifetime_sizes sizes = sizes_of(galloc);
    const struct lifetime_rules rules = rules_of(galloc);

    plan->is_ready = plan->is_reshaped = false;
    plan->places_epoch = 0;
    plan->n_rows = rec->n_all;
    return berth_lifetimes(&plan->lives, rec, &sizes, &rules, galloc->aligns, galloc->pool_of);
}

enum ggml_status berth_galloc_plan_items(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct ggml_cgraph *graph, struct galloc_ids ids) {
    const struct record_rules owners = berth_galloc_record_rules(galloc);
    enum ggml_status status = check_ids(galloc, "node", ids.nodes, graph->n_nodes);
    if (status == GGML_STATUS_SUCCESS) {
        status = check_ids(galloc, "leaf", ids.leafs, graph->n_leafs);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_lifetimes_record(&plan->lives, &plan->rec, graph, ids.nodes, ids.leafs, &owners);
    }
    plan->tensors = plan->rec.tensors;
    return status == GGML_STATUS_SUCCESS ? lives_make(galloc, plan, &plan->rec) : status;
}

enum ggml_status berth_galloc_plan_make(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, const struct lifetime_order *order) {
    if (rec->n_all > 0) {
        memcpy(plan->tensors, rec->tensors, (size_t) rec->n_all * sizeof plan->tensors[0]);
    }
    plan->lives.order = *order;
    enum ggml_status status = lives_make(galloc, plan, rec);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_galloc_plan_solve(galloc, plan, rec);
    }
    if (status == GGML_STATUS_SUCCESS) {
        berth_capture(galloc, plan, rec);
    }
    return status;
}

// ---- offsets ----

// Sets the largest size of a chunk in each pool: the limit of the buffer type, or the size of the largest item if that is larger,
// as in ggml.
static void chunk_limits_set(const struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    bool is_limited = false;
    for (int p = 0; p < galloc->n_pools; p++) {
        plan->needs[p].chunk_limit = galloc->pools[p].chunk_limit;
        is_limited = is_limited || galloc->pools[p].chunk_limit > 0;
    }
    for (size_t i = 0; i < plan->lives.n_items && is_limited; i++) {
        struct galloc_need *need = &plan->needs[plan->lives.items[i].pool];
        if (need->chunk_limit > 0 && plan->lives.items[i].size > need->chunk_limit) {
            need->chunk_limit = plan->lives.items[i].size;
        }
    }
}

void berth_galloc_plan_prepare(const struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    if (plan->lives.room != NULL) { // NULL: a graph without tensors
        plan->places = (struct record_place *) plan->lives.room;
        plan->spots = (struct galloc_spot *) (plan->lives.room + (size_t) plan->rec.n_rows * plan->lives.per_row);
        plan->offsets = (uint64_t *) (plan->spots + plan->lives.max_items);
    }
    chunk_limits_set(galloc, plan);
}

// Plans the items of pool p. Pools are planned separately, because their chunk limits differ. items, ids and offsets are scratch.
static enum ggml_status solve_pool(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p, struct berth_plan_item *items,
    int32_t *ids, uint64_t *offsets) {
    int64_t n = 0;
    for (size_t i = 0; i < plan->lives.n_items; i++) {
        if (plan->lives.items[i].pool == p) {
            items[n] = plan->lives.items[i];
            ids[n] = (int32_t) i;
            items[n++].pool = 0;
        }
    }
    const struct berth_plan_params params = {.chunk_limit = plan->needs[p].chunk_limit,
        .time_limit_us = galloc->options.time_limit_us,
        .is_brief = galloc->options.time_limit_us == 0};
    const enum ggml_status status = berth_plan_solve(items, n, &params, offsets, &plan->needs[p].report);
    for (int64_t i = 0; i < n && status == GGML_STATUS_SUCCESS; i++) {
        plan->offsets[ids[i]] = offsets[i];
    }
    return status;
}

static enum ggml_status solve_pools(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) {
    const size_t n = plan->lives.n_items;
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    // The plan has larger arrays of as many items, so the sizes do not overflow.
    struct berth_plan_item *items = berth_scratch_take(&scratch, n * sizeof *items);
    int32_t *ids = berth_scratch_take(&scratch, n * sizeof *ids);
    uint64_t *offsets = berth_scratch_take(&scratch, n * sizeof *offsets);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (items == NULL || ids == NULL || offsets == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory to plan %zu items", n);
    }
    for (int p = 0; p < galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        if (galloc->pools[p].composite != NULL) {
            status = berth_galloc_parts_solve(galloc, plan, rec, p);
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
        }
        if (plan->needs[p].layout == NULL) {
            status = solve_pool(galloc, plan, p, items, ids, offsets);
        }
    }
    berth_scratch_fini(&scratch);
    return status;
}

enum ggml_status berth_galloc_plan_solve(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) {
    const int64_t n = (int64_t) plan->lives.n_items;
    enum ggml_status status;
    berth_galloc_plan_prepare(galloc, plan);
    if (galloc->n_pools == 1 && galloc->pools[0].composite == NULL) {
        const struct berth_plan_params params = {.chunk_limit = plan->needs[0].chunk_limit,
            .time_limit_us = galloc->options.time_limit_us,
            .is_brief = galloc->options.time_limit_us == 0};
        status = berth_plan_solve(plan->lives.items, n, &params, plan->offsets, &plan->needs[0].report);
    } else {
        status = solve_pools(galloc, plan, rec);
    }
    return status == GGML_STATUS_SUCCESS ? berth_galloc_plan_set_spots(galloc, plan) : status;
}

// ---- spots and needs ----

static bool need_grow(struct galloc_need *need, size_t n) {
    if (n > 1 && !BERTH_GROW(&need->many, &need->many_cap, n)) {
        return false;
    }
    if (n > 1 && need->n == 1) {
        need->many[0] = need->one;
    }
    need->sizes = n > 1 ? need->many : &need->one;
    while (need->n < n) {
        need->sizes[need->n++] = 0;
    }
    return true;
}

// Computes the chunk of each item, and the size of each chunk: the highest end of the chunk's items.
enum ggml_status berth_galloc_plan_set_spots(struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    const size_t n = plan->lives.n_items;
    for (int p = 0; p < galloc->n_pools; p++) {
        plan->needs[p].n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        const int32_t p = plan->lives.items[i].pool;
        struct galloc_need *need = &plan->needs[p];
        const uint64_t max = need->chunk_limit;
        if (need->layout != NULL) {
            plan->spots[i] = (struct galloc_spot){.pool = p, .chunk = GALLOC_PARTS, .off = need->layout->base + plan->offsets[i]};
            continue;
        }
        const uint64_t chunk = max != 0 ? plan->offsets[i] / max : 0;
        const uint64_t off = plan->offsets[i] - chunk * max;
        if (chunk >= need->n && !need_grow(need, (size_t) chunk + 1)) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the sizes of %zu chunks", (size_t) chunk + 1);
        }
        const uint64_t end = off + plan->lives.items[i].size;
        if (end > need->sizes[chunk]) {
            need->sizes[chunk] = end;
        }
        plan->spots[i] = (struct galloc_spot){.pool = p, .chunk = (int32_t) chunk, .off = off};
    }
    plan->is_ready = true;
    return GGML_STATUS_SUCCESS;
}

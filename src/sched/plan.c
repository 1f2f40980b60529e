// SPDX-License-Identifier: MIT
// plan.c: makes one memory plan over all splits of a graph with the graph allocator.
//
// sched_plan appends temporary rows to the record of the cached graph:
// - one row per additional slot of an input, alive from the first step on;
// - one row per copy and slot. Each of these rows is a step of its own. The steps of a split's copies are directly before the
//   split's nodes, and those of its early copies (early.c) directly before the copies and nodes of the preceding split. The row of
//   a resident copy (resident.c) has memory already and is no step;
// - one reader per lifetime request of a backend (optimize.c). A reader is a row that reads a tensor at a later step, so that the
//   tensor keeps its memory until that step.
// With several graphs in flight, the memory of copies and inputs is not shared with other tensors. sched_plan reads the record
// only, not the tensors.

#include "sched/sched.h"

#include "base/min.h"

#include <string.h>

#define KEPT_MAX 8 // equal to PLANS_MAX of the graph allocator

struct planner {
    struct sched_cached *cached;
    struct galloc_columns cols; // columns of all rows
    int32_t n_steps;
    int32_t *first_dep; // [n_nodes] index in cached->deps of the first lifetime request that ends at the node, -1: none
    bool *is_computed;  // [n_rows], then [n_copies]: has its value after the last appended step; NULL: no lifetime requests
};

// ---- appended rows ----

// Appends a row for the tensor, in the memory of the backend. The field same_as of an appended row is the row's own index.
static struct record_row *row_append(struct planner *p, struct ggml_tensor *t, int op, int flags, int32_t form, int backend) {
    struct record *rec = &p->cached->rec;
    struct record_row *row = record_append(rec, t, op, flags);
    row->form = form;
    p->cols.rows[row->same_as] = lifetime_row_in(max_int(backend, 0));
    return row;
}

// Appends the rows of inputs: for each input in the order of rows, its slots from 1 on. sched_slot_row relies on this order.
// RECORD_FLAGS marks a row as input and output, so that the row has its memory from the first step to the last.
static void slots_append(struct planner *p) {
    const struct sched_cached *cached = p->cached;
    for (int32_t r = 0; cached->n_inputs > 0 && r < cached->rec.n_rows; r++) {
        const struct sched_row *row = &cached->rows[r];
        for (int slot = 1; row->slots >= 0 && slot < cached->n_slots; slot++) {
            row_append(
                p, sched_slot_tensor(cached, row, slot), GGML_OP_NONE, RECORD_FLAGS, cached->rec.rows[r].form, row->backend);
        }
    }
}

// Appends the rows of the copies: for each copy, its slots from 0 on. sched_copy_row relies on this order. A copy has the layout
// of its source.
static void copies_append(struct planner *p) {
    struct sched_cached *cached = p->cached;
    const int flags = cached->n_slots > 1 ? RECORD_FLAGS : 0;
    for (int32_t i = 0; i < cached->n_copies; i++) {
        const struct sched_copy *copy = &cached->copies[i];
        if (copy->resident >= 0) { // has one slot
            struct ggml_tensor *t = sched_copy_tensor(cached, i, 0);
            row_append(p, t, GGML_OP_NONE, 0, cached->rec.rows[copy->row].form, copy->backend)->has_memory = true;
            continue;
        }
        for (int slot = 0; slot < cached->n_slots; slot++) {
            struct record_row *row = row_append(p, sched_copy_tensor(cached, i, slot), slot == 0 ? GGML_OP_DUP : GGML_OP_NONE,
                flags, cached->rec.rows[copy->row].form, copy->backend);
            if (slot == 0) {
                record_src_put(&cached->rec, row, copy->row, 0);
            }
        }
    }
}

// ---- steps ----

static void step_append(struct planner *p, int32_t row) {
    p->cols.steps[p->n_steps++] = row;
}

// Links the lifetime requests that end at the same node. Sets is_computed for the time before the first step: true for rows that
// are not nodes, false for nodes and copies.
static void deps_link(struct planner *p) {
    struct sched_cached *cached = p->cached;
    memset(p->first_dep, -1, (size_t) cached->rec.n_nodes * sizeof p->first_dep[0]);
    for (int32_t d = cached->n_deps - 1; d >= 0; d--) {
        cached->deps[d].next = p->first_dep[cached->deps[d].until];
        p->first_dep[cached->deps[d].until] = d;
    }
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        p->is_computed[r] = r >= cached->rec.n_nodes;
    }
    memset(p->is_computed + cached->rec.n_rows, 0, (size_t) cached->n_copies * sizeof p->is_computed[0]);
}

// Appends a reader for each lifetime request that ends at node `until`. A tensor that is computed later, or that has memory of
// the caller, gets no reader.
static void deps_append(struct planner *p, int32_t until, int backend) {
    struct sched_cached *cached = p->cached;
    for (int32_t d = p->first_dep[until]; d >= 0; d = cached->deps[d].next) {
        const struct sched_dep *dep = &cached->deps[d];
        const bool is_copy = dep->row < 0;
        if (!p->is_computed[is_copy ? cached->rec.n_rows + dep->copy : dep->row] ||
            (!is_copy && cached->rows[dep->row].is_placed)) {
            continue;
        }
        const int32_t read_row = is_copy ? sched_copy_row(cached, dep->copy, 0) : dep->row;
        struct record_row *reader = row_append(p, cached->rec.tensors[read_row], GGML_OP_NONE, 0, -1, backend);
        reader->view_src = is_copy ? read_row : sched_base(cached, read_row);
        record_src_put(&cached->rec, reader, read_row, 0);
        step_append(p, reader->same_as);
    }
}

static void copy_steps_append(struct planner *p, const struct sched_split *split, bool is_early) {
    const struct sched_cached *cached = p->cached;
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        const bool is_step = cached->copies[i].is_early == is_early && cached->copies[i].resident < 0;
        for (int slot = 0; slot < cached->n_slots && is_step; slot++) {
            step_append(p, sched_copy_row(cached, i, slot));
            if (p->first_dep != NULL) {
                p->is_computed[cached->rec.n_rows + i] = true;
            }
        }
    }
}

static void steps_append(struct planner *p) {
    const struct sched_cached *cached = p->cached;
    for (int32_t s = 0; s < cached->n_splits; s++) {
        const struct sched_split *split = &cached->splits[s];
        if (s + 1 < cached->n_splits) {
            copy_steps_append(p, split + 1, true);
        }
        copy_steps_append(p, split, false);
        for (int32_t i = split->i_start; i < split->i_end; i++) {
            const int32_t row = sched_order(cached, i);
            step_append(p, row);
            if (p->first_dep != NULL) {
                p->is_computed[row] = true;
                deps_append(p, row, split->backend);
            }
        }
    }
}

// ---- kept plans: plans of reserved graphs (sched->kept) ----

// Returns a kept plan that is valid for the graph; NULL: none.
static struct galloc_plan *kept_find(
    struct ggml_backend_sched *sched, struct record *rec, const struct lifetime_row *rows, const struct lifetime_order *order) {
    for (size_t i = sched->n_kept; i-- > 0;) {
        if (berth_galloc_plan_accepts(sched->galloc, sched->kept[i], rec, rows, order)) {
            return sched->kept[i];
        }
    }
    return NULL;
}

static void kept_drop(struct ggml_backend_sched *sched, size_t i) {
    berth_galloc_plan_free(sched->galloc, sched->kept[i]);
    sched->n_kept--;
    memmove(&sched->kept[i], &sched->kept[i + 1], (sched->n_kept - i) * sizeof sched->kept[0]);
}

void sched_plans_free(struct ggml_backend_sched *sched) {
    while (sched->n_kept > 0) {
        kept_drop(sched, sched->n_kept - 1);
    }
    berth_galloc_plan_free(sched->galloc, sched->spare);
    berth_free(sched->kept);
}

// The spare plan becomes a kept plan. A new plan with the same capacities becomes the spare plan.
bool sched_plan_keep(struct ggml_backend_sched *sched) {
    struct galloc_plan *plan = sched->spare, *spare = berth_galloc_plan_like(sched->galloc, plan);
    if (spare == NULL || !BERTH_GROW(&sched->kept, &sched->kept_cap, sched->n_kept + 1)) {
        berth_galloc_plan_free(sched->galloc, spare);
        return false;
    }
    for (size_t i = sched->n_kept; i-- > 0;) { // drops older plans that the new one covers
        if (berth_galloc_plan_covers(plan, sched->kept[i])) {
            kept_drop(sched, i);
        }
    }
    if (sched->n_kept == KEPT_MAX) {
        kept_drop(sched, 0);
    }
    sched->kept[sched->n_kept++] = plan;
    sched->spare = spare;
    return true;
}

// ---- plan ----

static void edges_redirect(struct sched_cached *cached, bool to_copies) {
    for (int32_t i = 0; i < cached->n_edges; i++) {
        const struct sched_edge *e = &cached->edges[i];
        cached->rec.srcs[e->src] = to_copies ? sched_copy_row(cached, e->copy, 0) : cached->copies[e->copy].row;
    }
}

static void columns_fill(struct planner *p) {
    const struct sched_cached *cached = p->cached;
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        const int32_t at = record_is_duplicate(&cached->rec, r) ? cached->rec.rows[r].same_as : r;
        p->cols.rows[r] = lifetime_row_in(max_int(cached->rows[at].backend, 0));
        p->cols.rows[r].is_kept = sched_is_per_slot_input(cached, at);
    }
}

static bool planner_reserve(struct ggml_backend_sched *sched, struct planner *p, bool is_plain) {
    struct sched_cached *cached = p->cached;
    const size_t n_rows = (size_t) cached->rec.n_rows, n_nodes = (size_t) cached->rec.n_nodes, n_deps = (size_t) cached->n_deps;
    const size_t n_copies = (size_t) cached->n_copies, n_slots = (size_t) cached->n_slots;
    const size_t n_all = n_rows + (size_t) cached->n_inputs * (n_slots - 1) + n_copies * n_slots + n_deps;
    if (!berth_record_reserve(&cached->rec, n_all, (size_t) cached->rec.n_srcs + n_copies + n_deps)) {
        return false;
    }
    cached->rows = cached->rec.columns; // berth_record_reserve may have moved the columns
    if (n_deps > 0) {
        p->first_dep = sched_scratch(sched, n_nodes * sizeof p->first_dep[0] + (n_rows + n_copies) * sizeof p->is_computed[0]);
        p->is_computed = p->first_dep != NULL ? (bool *) (p->first_dep + n_nodes) : NULL;
    }
    p->cols = berth_galloc_plan_columns(sched->plan, n_all, is_plain ? 0 : n_nodes + n_copies * n_slots + n_deps);
    return p->cols.rows != NULL && (n_deps == 0 || p->first_dep != NULL);
}

static enum ggml_status plan_get(
    struct ggml_backend_sched *sched, struct planner *p, const struct lifetime_order *order, enum sched_plan_use use) {
    struct record *rec = &p->cached->rec;
    struct galloc_plan *kept = use == SCHED_PLAN_PLACE ? kept_find(sched, rec, p->cols.rows, order) : NULL;
    if (kept != NULL) {
        sched->plan = kept;
        return GGML_STATUS_SUCCESS;
    }
    const enum ggml_status status = berth_galloc_plan_make(sched->galloc, sched->plan, rec, order);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (use == SCHED_PLAN_RESERVE && !berth_galloc_plan_remember(sched->plan, rec)) {
        return berth_fail(
            GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory to keep the plan of a reserved graph of %d nodes", rec->n_nodes);
    }
    return status;
}

enum ggml_status sched_plan(struct ggml_backend_sched *sched, struct sched_cached *cached, enum sched_plan_use use) {
    struct planner p = {.cached = cached};
    const bool is_plain = cached->n_copies == 0 && cached->n_inputs == 0 && cached->n_deps == 0 && !cached->is_reordered;
    if (sched->spare == NULL) {
        sched->spare = berth_galloc_plan_new(sched->galloc, false);
    }
    sched->plan = sched->spare;
    sched->planned = NULL;
    if (sched->plan == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    if (!planner_reserve(sched, &p, is_plain)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory to plan a graph of %d nodes", cached->rec.n_nodes);
    }
    columns_fill(&p);
    slots_append(&p);
    copies_append(&p);
    // n_early: number of rows between the last node and the first copy. These are leafs, tensors that are only sources, and slots
    // of inputs.
    struct lifetime_order order = {.n_steps = cached->rec.n_nodes, .n_early = sched_copy_row(cached, 0, 0) - cached->rec.n_nodes};
    if (!is_plain) {
        if (p.first_dep != NULL) {
            deps_link(&p);
        }
        steps_append(&p);
        order.steps = p.cols.steps;
        order.n_steps = p.n_steps;
    }
    edges_redirect(cached, true);
    const enum ggml_status status = plan_get(sched, &p, &order, use);
    edges_redirect(cached, false);
    record_cut(&cached->rec);
    sched->planned = status == GGML_STATUS_SUCCESS ? cached : NULL;
    return status;
}

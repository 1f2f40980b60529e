// SPDX-License-Identifier: MIT
// reorder.c: finds orders of the ops that require less memory, by hoisting once ops and by the order pass (src/plan/order).
// - A once op (BERTH_BUDGET_ONCE) may run only once. The once ops of a group run in their given order.
// - until[i] is the op that overwrites a source of op i. Op i must run before op until[i]. -1: there is no such op.

#include "plan/budget/budget.h"

// ---- hoisting ----

// Graphs often have once ops at the end, for example optimiser steps. Then every gradient stays in memory until the end. Hoisting
// runs each once op as soon as its sources are there, if that frees memory. The other ops keep their order. The time is linear.

struct hoist {
    const struct budget_graph *g;
    int32_t *waits; // [n] number of ops that must run before op i and have not run yet: the sources of i, the previous once op of
                    // its group, and the ops j with until[j] == i
    int32_t *reads; // [n] number of readers that have not run
    bool *has_run;  // [n]
    int32_t *next;  // [n] the next once op of the group, -1: none
    int32_t *order; // [n] output
    int32_t n_order;
    int32_t *ready; // [n_ready] once ops that can run and are not inspected yet
    int32_t n_ready;
};

static void waits_fill(struct hoist *h) {
    const struct budget_graph *g = h->g;
    for (int32_t i = 0; i < g->n; i++) {
        h->next[i] = -1;
    }
    for (int32_t i = 0; i < g->n; i++) {
        h->reads[i] = g->readers.start[i + 1] - g->readers.start[i];
        h->waits[i] += g->srcs.start[i + 1] - g->srcs.start[i];
        if (g->once_before[i] >= 0) {
            h->waits[i]++;
            h->next[g->once_before[i]] = i;
        }
        if (g->until[i] >= 0) {
            h->waits[g->until[i]]++;
        }
    }
}

static void wait_less(struct hoist *h, int32_t i) {
    if (--h->waits[i] == 0 && !h->has_run[i] && budget_is_once(h->g, i)) {
        h->ready[h->n_ready++] = i;
    }
}

static void op_run(struct hoist *h, int32_t i) {
    const struct budget_graph *g = h->g;
    h->has_run[i] = true;
    h->order[h->n_order++] = i;
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
        h->reads[g->srcs.at[k]]--;
    }
    for (int32_t k = g->readers.start[i]; k < g->readers.start[i + 1]; k++) {
        wait_less(h, g->readers.at[k]);
    }
    if (h->next[i] >= 0) {
        wait_less(h, h->next[i]);
    }
    if (g->until[i] >= 0) {
        wait_less(h, g->until[i]);
    }
}

// Returns true if running op i frees more bytes than the result of op i requires.
static bool op_frees_memory(const struct hoist *h, int32_t i) {
    const struct budget_graph *g = h->g;
    uint64_t freed = 0;
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
        const int32_t src = g->srcs.at[k];
        freed += h->reads[src] == 1 && !g->keep[src] && g->pool[src] == g->pool[i] ? g->size[src] : 0;
    }
    return freed > g->size[i];
}

static void order_all(struct hoist *h) {
    const struct budget_graph *g = h->g;
    for (int32_t i = 0; i < g->n; i++) {
        if (budget_is_input(g, i)) {
            op_run(h, i);
        }
    }
    for (int32_t i = 0; i < g->n; i++) {
        while (h->n_ready > 0) {
            const int32_t at = h->ready[--h->n_ready];
            if (!h->has_run[at] && op_frees_memory(h, at)) {
                op_run(h, at);
            }
        }
        if (!h->has_run[i]) {
            op_run(h, i);
        }
    }
}

bool budget_hoist(const struct budget_graph *g, int32_t *order, bool *is_new) {
    const size_t n = (size_t) g->n;
    struct berth_arrays mem = {0};
    struct hoist h = {.g = g, .order = order};
    h.waits = berth_arrays_new(&mem, n, sizeof *h.waits);
    h.reads = berth_arrays_new(&mem, n, sizeof *h.reads);
    h.has_run = berth_arrays_new(&mem, n, sizeof *h.has_run);
    h.next = berth_arrays_new(&mem, n, sizeof *h.next);
    h.ready = berth_arrays_new(&mem, n, sizeof *h.ready);
    const bool ok = !mem.has_failed;
    if (ok) {
        waits_fill(&h);
        order_all(&h);
    }
    *is_new = false;
    int32_t last = -1; // last op that is not an input; the order of inputs does not matter
    for (int32_t k = 0; ok && k < g->n; k++) {
        *is_new = *is_new || (!budget_is_input(g, order[k]) && order[k] < last);
        if (!budget_is_input(g, order[k])) {
            last = order[k];
        }
    }
    berth_arrays_free(&mem);
    return ok;
}

// ---- the order pass ----

// The order pass knows neither groups nor `until`. There are two ways to express them (may_group):
// - If no once op has a result with bytes, and each until[i] is a once op, each group of once ops gets an artificial input. The
//   once ops of the group write this input. Each op i with until[i] in the group reads it. The order pass keeps the order of
// reads
//   and writes, so op i stays before until[i].
// - Otherwise all once ops, all ops with an `until`, and all ops until[i] keep their order (BERTH_ORDER_EFFECT).

struct reorder {
    const struct budget_graph *g;
    struct berth_order_op *ops; // [n_groups + n] artificial inputs, then the ops
    int32_t *srcs, *order;
    int32_t *group; // [n] group of a once op, -1: none
    int32_t n_groups;
};

static bool may_group(const struct budget_graph *g) {
    for (int32_t i = 0; i < g->n; i++) {
        if ((budget_is_once(g, i) && g->size[i] > 0) || (g->until[i] >= 0 && !budget_is_once(g, g->until[i]))) {
            return false;
        }
    }
    return true;
}

static void groups_number(struct reorder *r) {
    const bool may = may_group(r->g);
    for (int32_t i = 0; i < r->g->n; i++) {
        const int32_t before = r->g->once_before[i];
        r->group[i] = -1;
        if (may && budget_is_once(r->g, i)) {
            r->group[i] = before >= 0 ? r->group[before] : r->n_groups++;
        }
    }
}

static void op_put(struct reorder *r, int32_t i, int32_t *srcs) {
    const struct berth_budget_op *from = &r->g->ops[i];
    struct berth_order_op *op = &r->ops[r->n_groups + i];
    const int32_t until = r->g->until[i];
    *op = (struct berth_order_op){.srcs = srcs,
        .n_srcs = from->n_srcs,
        .view_of = -1,
        .size = from->size,
        .align = from->align,
        .inplace = from->inplace,
        .pool = from->pool};
    op->flags |= (budget_is_input(r->g, i) ? BERTH_ORDER_INPUT : 0) | (r->g->keep[i] ? BERTH_ORDER_OUTPUT : 0);
    for (int32_t k = 0; k < from->n_srcs; k++) {
        srcs[k] = r->n_groups + from->srcs[k];
    }
    if (r->group[i] >= 0) {
        op->view_of = r->group[i];
        op->flags |= BERTH_ORDER_WRITES;
    } else if (budget_is_once(r->g, i) || (until >= 0 && r->group[until] < 0)) {
        op->flags |= BERTH_ORDER_EFFECT;
    } else if (until >= 0) {
        srcs[op->n_srcs++] = r->group[until];
    }
}

static void ops_put(struct reorder *r) {
    int32_t *srcs = r->srcs;
    for (int32_t k = 0; k < r->n_groups; k++) {
        r->ops[k] = (struct berth_order_op){.view_of = -1, .size = 1, .flags = BERTH_ORDER_INPUT | BERTH_ORDER_OUTPUT};
    }
    for (int32_t i = 0; i < r->g->n; i++) {
        op_put(r, i, srcs);
        srcs += r->g->ops[i].n_srcs + 1;
    }
    for (int32_t i = 0; i < r->g->n; i++) { // op until[i] also keeps its order, so that it stays after op i
        const int32_t until = r->g->until[i];
        if (until >= 0 && r->group[until] < 0) {
            r->ops[r->n_groups + until].flags |= BERTH_ORDER_EFFECT;
        }
    }
}

static enum ggml_status order_ask(struct reorder *r, int32_t *order, bool *is_new) {
    struct berth_order_report report;
    const size_t n = (size_t) r->g->n + (size_t) r->n_groups;
    const enum ggml_status status = berth_plan_order(r->ops, n, NULL, r->order, &report);
    if (status != GGML_STATUS_SUCCESS || !report.changed) {
        return status;
    }
    *is_new = true;
    for (size_t k = 0, at = 0; k < n; k++) {
        if (r->order[k] >= r->n_groups) {
            order[at++] = r->order[k] - r->n_groups;
        }
    }
    return status;
}

enum ggml_status budget_reorder(const struct budget_graph *g, int32_t *order, bool *is_new) {
    struct berth_arrays mem = {0};
    struct reorder r = {.g = g, .group = berth_arrays_new(&mem, (size_t) g->n, sizeof *r.group)};
    size_t n_srcs = 0;
    *is_new = false;
    for (int32_t i = 0; i < g->n; i++) {
        n_srcs += (size_t) g->ops[i].n_srcs + 1;
    }
    if (r.group != NULL) {
        groups_number(&r);
    }
    const size_t n = (size_t) g->n + (size_t) r.n_groups;
    r.ops = berth_arrays_new(&mem, n, sizeof *r.ops);
    r.srcs = berth_arrays_new(&mem, n_srcs, sizeof *r.srcs);
    r.order = berth_arrays_new(&mem, n, sizeof *r.order);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (!mem.has_failed) {
        ops_put(&r);
        status = order_ask(&r, order, is_new);
    }
    berth_arrays_free(&mem);
    return status;
}

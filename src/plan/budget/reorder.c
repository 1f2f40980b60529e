// SPDX-License-Identifier: MIT
// reorder.c: asks the order pass for an order with less memory. It knows no ops that run until another: where all that runs once
// has no bytes of its own, each group writes a piece of memory that stands for it, which what runs before it reads. Otherwise all
// of these keep the order in which they stand.

#include "plan/budget/budget.h"

struct reorder {
    const struct budget_graph *g;
    struct berth_order_op *ops; // [n_groups + n] the groups' memory first
    int32_t *srcs, *order;
    int32_t *group; // [n] of a once op, -1: none
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
    for (int32_t i = 0; i < r->g->n; i++) { // what an op has to run before keeps its place behind it
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

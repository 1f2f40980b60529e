// SPDX-License-Identifier: MIT
// hoist.c: ops that run once stand where the caller put them, which is often at the end: the steps of an optimiser behind the
// whole way back, so that every gradient waits for them. Here each runs as soon as it can if that frees memory, and all other ops
// keep their order. Linear in ops and sources.

#include "plan/budget/budget.h"

struct hoist {
    const struct budget_graph *g;
    int32_t *waits;  // [n] sources, ops of its group and readers of what it overwrites that have not run
    int32_t *reads;  // [n] ops that read the value and have not run
    bool *has_run;   // [n]
    int32_t *next;   // [n] the once op of the group behind this once op, -1: none
    int32_t *order;  // [n] out
    int32_t n_order; //
    int32_t *ready;  // [n_ready] to be looked at
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

static bool frees_more(const struct hoist *h, int32_t i) {
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
            if (!h->has_run[at] && frees_more(h, at)) {
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
    int32_t last = -1; // inputs have no place of their own
    for (int32_t k = 0; ok && k < g->n; k++) {
        *is_new = *is_new || (!budget_is_input(g, order[k]) && order[k] < last);
        if (!budget_is_input(g, order[k])) {
            last = order[k];
        }
    }
    berth_arrays_free(&mem);
    return ok;
}

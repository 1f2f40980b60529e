// SPDX-License-Identifier: MIT
// galloc_report.c: what a plan looks like from outside: how good it is, and which tensors are alive when.

#include "alloc/galloc.h"

#include <stdlib.h>

enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report) {
    if (galloc == NULL || report == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs || galloc->plans == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_report: buffer %d has no plan", buffer_id);
    }
    *report = galloc->plans->needs[galloc->pool_of[buffer_id]].report;
    return GGML_STATUS_SUCCESS;
}

// Which row is in an item at a step: the last of those that took it over by then, or the late leaf that was overwritten last.
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
    return x->size != y->size ? (x->size > y->size ? -1 : 1) : x->offset < y->offset ? -1 : x->offset > y->offset;
}

int64_t berth_gallocr_alive(ggml_gallocr_t galloc, struct ggml_cgraph *graph, int buffer_id, int64_t step,
    struct berth_gallocr_live *out, int64_t n_max) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph)) {
        return -1;
    }
    struct galloc_plan *plan = berth_galloc_find_any(galloc, graph);
    if (plan == NULL || buffer_id < 0 || buffer_id >= galloc->n_bufs) {
        berth_fail(GGML_STATUS_FAILED, "berth_gallocr_alive: the graph was not reserved, or there is no buffer %d", buffer_id);
        return -1;
    }
    const size_t n = plan->lives.n_items;
    const int32_t pool = galloc->pool_of[buffer_id];
    int32_t *holders = berth_malloc((n + 1) * sizeof *holders);
    struct berth_gallocr_live *live = berth_malloc((n + 1) * sizeof *live);
    int64_t n_live = holders != NULL && live != NULL ? 0 : -1;
    if (n_live < 0) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "berth_gallocr_alive: out of memory for %zu items", n);
    } else {
        step = step < 0 ? plan->needs[pool].report.bound_step : step;
        find_holders(plan, step, holders);
        for (size_t i = 0; i < n; i++) {
            const struct berth_plan_item *item = &plan->lives.items[i];
            if (item->pool == pool && item->size > 0 && item->first <= step && step <= item->last) {
                live[n_live++] = (struct berth_gallocr_live){.tensor = plan->rec.tensors[holders[i]],
                    .offset = plan->offsets[i],
                    .size = item->size,
                    .first = item->first,
                    .last = item->last};
            }
        }
        qsort(live, (size_t) n_live, sizeof *live, larger_first);
    }
    for (int64_t i = 0; i < n_live && i < n_max && out != NULL; i++) {
        out[i] = live[i];
    }
    berth_free(holders);
    berth_free(live);
    return n_live;
}

// SPDX-License-Identifier: MIT
// constrained.c: a search for better plans of blocks that may not lie anywhere: alignments that the unit does not settle, chunks,
// fixed blocks. A few blocks are exhausted (exhaust.c), for half of the time at most. Then a
// local search: blocks go one by one into the lowest gap; two change places in the order, and the change stays if the peak does
// not rise. It proves nothing: the bound is bound.c's.

#include "plan/solve/plan.h"

#define TRIES_PER_BLOCK 400

static uint64_t random_below(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

enum ggml_status berth_plan_search_constrained(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    size_t n = (size_t) p->n;
    struct berth_arrays mem = {0};
    int32_t *order = berth_arrays_new(&mem, 2 * n, sizeof *order);
    uint64_t *key = berth_arrays_new(&mem, 2 * n, sizeof *key);
    struct plan_goal half = *g;
    half.deadline_us -= (g->deadline_us - plan_now_us(g->work)) / 2;
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the search over %d blocks", p->n);
    }
    berth_plan_exhaust(p, &half, INT64_MAX, s);
    int32_t n_order = berth_plan_order_by_size(p, order, order + n, key);
    int64_t last_peak = INT64_MAX; // of the order as it is
    uint64_t random = g->seed;
    for (int64_t tries = (int64_t) n_order * TRIES_PER_BLOCK; tries > 0 && n_order > 1 && !plan_is_done(s, g); tries--) {
        if (plan_is_over(g->deadline_us, g->work, g->watch)) {
            break;
        }
        int32_t x = (int32_t) random_below(&random, (uint64_t) n_order);
        int32_t y = (int32_t) random_below(&random, (uint64_t) n_order);
        int32_t swap = order[x];
        order[x] = order[y];
        order[y] = swap;
        plan_work_add(g->work, plan_work_place(n_order));
        int64_t peak = berth_plan_place_in_order(p, order, n_order, last_peak, order + n, s->spare);
        if (peak >= 0) {
            last_peak = peak;
            if (peak < s->peak) {
                plan_state_take(s, peak, "local search");
            }
        } else {
            order[y] = order[x];
            order[x] = swap;
        }
    }
    berth_arrays_free(&mem);
    return GGML_STATUS_SUCCESS;
}

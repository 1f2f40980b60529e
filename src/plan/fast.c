// SPDX-License-Identifier: MIT
// fast.c: the first plan, in near-linear time: dives by several priorities, online best fit, and largest first while its
// quadratic cost is small; last, if what decides is a core of a few blocks, that is searched (core.c). Keeps the best, stops as
// soon as a plan meets the bound or is enough. Each dive is aimed below the best plan so far and gives up when it cannot get
// there.

#include "plan/plan.h"

#define LARGEST_FIRST_MAX 2000 // blocks; 1 ms
#define CORE_MAX 64            // blocks

static const struct {
    const char *name;
    int priority; // of a dive, or FIT, LARGEST
} methods[] = {
    {"dive TWA", PLAN_TWA},
    {"dive WAT", PLAN_WAT},
    {"dive TAW", PLAN_TAW},
    {"best fit", -1},
    {"largest first", -2},
    {"dive ZW", PLAN_ZW},
    {"dive AT", PLAN_AT},
};

enum ggml_status plan_fast(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    struct plan_dive *dive = plan_dive_new(p);
    if (dive == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for a dive over %d blocks", p->n);
    }
    bool is_out_of_memory = false;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0] && !plan_is_done(s, g); m++) {
        int64_t target = s->peak == PLAN_NO_CAP ? PLAN_NO_CAP : s->peak - 1;
        int64_t peak   = -1;
        if (methods[m].priority >= 0) {
            peak = plan_dive_run(dive, (enum plan_priority) methods[m].priority, false, target, s->spare);
        } else if (methods[m].priority == -1 && !plan_prob_is_odd(p)) {
            peak = plan_best_fit(p, target, s->spare);
        } else if (methods[m].priority == -2 && p->n <= LARGEST_FIRST_MAX) {
            peak = plan_largest_first(p, target, s->spare);
        }
        is_out_of_memory |= peak == -2;
        if (peak >= 0) {
            plan_state_take(s, peak, methods[m].name);
        }
    }
    plan_dive_free(dive);
    if (p->n <= LARGEST_FIRST_MAX && !plan_is_done(s, g) && !plan_prob_is_odd(p) && !p->is_loose) {
        enum ggml_status status = plan_core(p, g->enough > 0 ? g->enough : s->bound, CORE_MAX, INT64_MAX, s);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    if (s->peak == PLAN_NO_CAP) {
        return is_out_of_memory ? berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d blocks", p->n)
                                : berth_fail(GGML_STATUS_FAILED, "plan: no plan of %d blocks ends below 2^63 units", p->n);
    }
    return GGML_STATUS_SUCCESS;
}

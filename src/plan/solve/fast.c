// SPDX-License-Identifier: MIT
// fast.c: finds the first plan, in nearly linear time. It tries the methods of a table, one after another, until a plan reaches
// the bound or the capacity. A plan is kept if its peak is lower than the best peak so far. If a plain problem has a small core
// (critical.c), the core is then searched exactly. If alignments differ, greedy passes waste memory for padding. Against this
// waste, one method places blocks with large alignments first, then blocks slide down into padding, and constrained.c tries all
// plans if there are few blocks.

#include "plan/solve/plan.h"

#define LARGEST_FIRST_MAX 2000 // largest number of blocks for methods of quadratic time, which then take 1 ms
#define CORE_MAX 64            // largest number of blocks in a core that is searched

#define AIMED_MAX 50000 // largest number of blocks for an aimed pass, which takes more memory
#define FEW_WORK 200000 // limit on nodes * blocks^2 of constrained.c; 0.4 ms

#define BRIEF_MIN 64 // is_brief is ignored for up to this number of blocks, because all methods then take negligible time
#define N_BRIEF 6    // number of methods that run if is_brief is set

enum kind { OUTWARD, GREEDY_PASS, AIMED_PASS, ALIGNED_PASS, BEST_FIT, LARGEST_FIRST, MOST_ALIGNED_FIRST };

static const struct {
    const char *name;
    enum kind kind;
    enum plan_priority priority; // of a greedy pass
} methods[] = {
    {"outward", OUTWARD, 0},
    {"most aligned first", MOST_ALIGNED_FIRST, 0},
    {"greedy LWA", ALIGNED_PASS, PLAN_LWA},
    {"greedy TWA", GREEDY_PASS, PLAN_TWA},
    {"greedy TAW", GREEDY_PASS, PLAN_TAW},
    {"best fit", BEST_FIT, 0},
    {"greedy WAT", GREEDY_PASS, PLAN_WAT}, // the first method that is_brief skips
    {"largest first", LARGEST_FIRST, 0},
    {"greedy ZW", GREEDY_PASS, PLAN_ZW},
    {"greedy AT", GREEDY_PASS, PLAN_AT},
    {"aimed greedy TWA", AIMED_PASS, PLAN_TWA},
    {"aimed greedy WAT", AIMED_PASS, PLAN_WAT},
    {"aimed greedy TAW", AIMED_PASS, PLAN_TAW},
};

// Places the blocks again in the order of their offsets, each in the lowest gap. Repeats this as long as the peak falls. False:
// out of memory.
static bool slide_down(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    int64_t peak = s->peak == PLAN_NO_CAP ? -1 : 0;
    while (peak >= 0 && !plan_is_done(s, g)) {
        peak = berth_plan_lowest_first(p, s->off, s->peak - 1, s->spare);
        if (peak >= 0) {
            plan_state_take(s, peak, "slid down");
        }
    }
    return peak != -2;
}

enum ggml_status berth_plan_fast(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    struct greedy_pass *pass = NULL;
    bool is_out_of_memory = false;
    const bool is_brief = g->is_brief && p->n > BRIEF_MIN && !plan_prob_is_constrained(p);
    for (size_t m = 0; m < sizeof methods / sizeof methods[0] && !plan_is_done(s, g); m++) {
        if (is_brief && m >= N_BRIEF && s->peak != PLAN_NO_CAP) {
            break;
        }
        int64_t target = s->peak == PLAN_NO_CAP ? PLAN_NO_CAP : s->peak - 1;
        int64_t peak = -1;
        const bool is_aimed = methods[m].kind == AIMED_PASS;
        if (methods[m].kind == OUTWARD && !plan_prob_is_constrained(p)) {
            peak = berth_plan_from_peak(p, s->spare);
        } else if (methods[m].kind == GREEDY_PASS || (is_aimed && p->n <= AIMED_MAX) ||
                   (methods[m].kind == ALIGNED_PASS && p->align != NULL)) {
            if (pass == NULL) {
                pass = berth_greedy_pass_new(p);
            }
            if (pass == NULL) {
                return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for a greedy pass over %d blocks", p->n);
            }
            peak = berth_greedy_pass_run(pass, methods[m].priority, is_aimed, target, s->spare);
        } else if (methods[m].kind == BEST_FIT && !plan_prob_is_constrained(p)) {
            peak = berth_plan_best_fit(p, target, s->spare);
        } else if (methods[m].kind == LARGEST_FIRST && p->n <= LARGEST_FIRST_MAX) {
            peak = berth_plan_largest_first(p, target, s->spare);
        } else if (methods[m].kind == MOST_ALIGNED_FIRST && p->align != NULL && p->n <= LARGEST_FIRST_MAX) {
            peak = berth_plan_most_aligned_first(p, target, s->spare);
        }
        is_out_of_memory |= peak == -2;
        if (peak >= 0) {
            plan_state_take(s, peak, methods[m].name);
        }
    }
    berth_greedy_pass_free(pass);
    if (plan_prob_is_constrained(p) && p->n <= LARGEST_FIRST_MAX) {
        is_out_of_memory |= !slide_down(p, g, s);
        berth_plan_exhaust(p, g, FEW_WORK / ((int64_t) p->n * p->n) + 1, s);
    }
    if (p->n <= LARGEST_FIRST_MAX && !is_brief && !plan_is_done(s, g) && !plan_prob_is_constrained(p) && !p->bound_is_inexact) {
        const struct plan_goal untimed = {.enough = g->enough, .deadline_us = INT64_MAX, .proof = g->proof};
        enum ggml_status status = berth_plan_critical(p, g->enough > 0 ? g->enough : s->bound, CORE_MAX, &untimed, s);
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

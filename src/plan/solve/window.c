// SPDX-License-Identifier: MIT
// window.c: plans a problem of many blocks from a window: the sections around the fullest section. Blocks that are alive in the
// whole window are stacked at the bottom. An exact search places the other blocks of the window above the stack. Then walks place
// the remaining blocks outward from both ends of the window (from_peak.c). If a walk fails in a section, the window is extended
// to that section, and all steps are repeated.

#include "base/min.h"
#include "plan/solve/plan.h"

#include <string.h>

#define FIRST_REACH 8       // sections on each side of the fullest section
#define WINDOW_BLOCK_NS 300 // counted work per window and block
#define FAST_BLOCK_NS 2000  // counted work of the first plan per block

struct window {
    const struct plan_prob *p;
    const struct plan_goal *goal;
    struct plan_state *state;
    int64_t cap;
    int32_t lo, hi;       // sections of the window
    int32_t *ids;         // [2n] blocks that begin or end in the window
    uint64_t *key;        // [2n] scratch of the sort
    int32_t n_ids, limit; // limit: largest n_ids that is searched
};

// Stacks the blocks that are alive in the whole window. The block that reaches farthest beyond the window is the lowest. Lists
// the other blocks of the window in ids. Returns the end of the stack.
static int64_t stack_through(struct window *w) {
    const struct plan_prob *p = w->p;
    int32_t n = 0;
    w->n_ids = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (p->begin[i] <= w->lo && p->end[i] >= w->hi) {
            const int32_t before = w->lo - p->begin[i], after = p->end[i] - w->hi;
            w->key[n] = ~(uint64_t) max_i32(before, after);
            w->ids[n++] = i;
        }
    }
    berth_plan_sort(w->key, w->ids, w->key + p->n, w->ids + p->n, n);
    int64_t top = 0;
    for (int32_t k = 0; k < n; k++) {
        w->state->spare[w->ids[k]] = top;
        top += p->size[w->ids[k]];
    }
    for (int32_t i = 0; i < p->n; i++) {
        if (p->begin[i] < w->hi && p->end[i] > w->lo && (p->begin[i] > w->lo || p->end[i] < w->hi)) {
            w->ids[w->n_ids++] = i;
        }
    }
    return top;
}

// Searches for offsets of the blocks of ids above the stack, which ends at `top`. *is_found: all of them fit below the capacity.
static enum ggml_status search_window(struct window *w, int64_t top, int64_t deadline_us, bool *is_found) {
    struct plan_prob sub;
    *is_found = w->n_ids == 0;
    if (w->n_ids == 0) {
        return GGML_STATUS_SUCCESS;
    }
    if (!berth_plan_prob_subset(w->p, w->ids, w->n_ids, &sub)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    int64_t *off = berth_malloc(2 * (size_t) w->n_ids * sizeof *off);
    struct plan_state state = {.off = off, .spare = off + w->n_ids, .peak = PLAN_NO_CAP, .bound = sub.bound, .method = "window"};
    struct plan_goal goal = *w->goal;
    goal.enough = w->cap - top;
    goal.proof = NULL; // above a stack, the answer "no" proves nothing about the whole problem
    goal.deadline_us = deadline_us;
    plan_work_add(goal.work, (int64_t) w->n_ids * FAST_BLOCK_NS);
    enum ggml_status status = off != NULL ? berth_plan_fast(&sub, &goal, &state) : GGML_STATUS_ALLOC_FAILED;
    if (status != GGML_STATUS_SUCCESS) {
        goto done;
    }
    if (!plan_is_done(&state, &goal)) {
        status = berth_plan_search(&sub, &goal, &state);
    }
    w->state->n_nodes += state.n_nodes;
    *is_found = state.peak <= goal.enough && status == GGML_STATUS_SUCCESS;
    for (int32_t k = 0; k < w->n_ids && *is_found; k++) {
        w->state->spare[w->ids[k]] = top + state.off[k];
    }
done:
    berth_free(off);
    berth_plan_prob_fini(&sub);
    return status;
}

static enum ggml_status windows_run(struct window *w, int64_t deadline_us) {
    const int32_t n_sec = w->p->n_sec;
    for (int32_t reach = FIRST_REACH; !plan_is_over(deadline_us, w->goal->work, w->goal->watch); reach *= 2) {
        const int64_t top = stack_through(w);
        plan_work_add(w->goal->work, (int64_t) w->p->n * WINDOW_BLOCK_NS);
        bool is_found;
        if (w->n_ids > w->limit || (w->n_ids == w->p->n && reach > FIRST_REACH)) {
            break;
        }
        const enum ggml_status status = search_window(w, top, deadline_us, &is_found);
        if (status != GGML_STATUS_SUCCESS || !is_found) {
            return status;
        }
        const int32_t at = berth_plan_walk_from(w->p, w->lo, w->hi, w->cap, w->state->spare);
        if (at == -2) {
            return GGML_STATUS_SUCCESS;
        }
        if (at == -1) {
            const int64_t peak = berth_plan_peak(w->p, w->state->spare);
            if (peak < w->state->peak) {
                plan_state_take(w->state, peak, "window");
            }
            return GGML_STATUS_SUCCESS;
        }
        if (at < w->lo) {
            w->lo = at - reach;
        }
        if (at >= w->hi) {
            w->hi = at + reach;
        }
        w->lo = max_i32(w->lo, 0);
        w->hi = min_i32(w->hi, n_sec);
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_plan_window(
    const struct plan_prob *p, int64_t cap, int32_t limit, int64_t deadline_us, const struct plan_goal *g, struct plan_state *s) {
    if (cap < p->bound) {
        return GGML_STATUS_SUCCESS;
    }
    const size_t n = (size_t) p->n;
    struct window w = {.p = p, .goal = g, .state = s, .cap = cap, .limit = limit};
    w.lo = p->bound_sec > FIRST_REACH ? p->bound_sec - FIRST_REACH : 0;
    w.hi = min_i32(p->bound_sec + FIRST_REACH, p->n_sec);
    struct berth_arrays mem = {0};
    w.key = berth_arrays_new(&mem, 2 * n, sizeof *w.key);
    w.ids = berth_arrays_new(&mem, 2 * n, sizeof *w.ids);
    const enum ggml_status status = mem.has_failed ? GGML_STATUS_ALLOC_FAILED : windows_run(&w, deadline_us);
    berth_arrays_free(&mem);
    return status == GGML_STATUS_SUCCESS ? status : berth_fail(status, "plan: out of memory for a window of %d blocks", p->n);
}

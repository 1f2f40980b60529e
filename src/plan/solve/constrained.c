// SPDX-License-Identifier: MIT
// constrained.c: finds better plans for problems with alignments, chunks or fixed blocks. If there are few blocks, an exhaustive
// search runs for at most half of the remaining time. Then a local search exchanges two blocks in the order of placement, and
// keeps exchanges that do not raise the peak. With more blocks and without chunks, it shares the time with improve.c.

#include "base/min.h"
#include "plan/solve/plan.h"

#include <string.h>

// ---- exhaustive search ----

// In some optimal plan every block is at the lowest offset that the blocks below it allow. So blocks are placed by rising offset,
// each at its lowest offset. A branch ends
// - if some unplaced block can no longer end below the best peak,
// - if it differs from an earlier branch only by an exchange of two equal blocks,
// - if another unplaced block fits completely below the next block; another branch places that block first.
// A node takes O(n^2).

#define CLOCK_NODES 256 // nodes between two readings of the clock
#define NODE_NS 100     // counted work of a node
#define NODE_PAIR_NS 3  // counted work of a node for each pair of an unplaced and a placed block

struct exhaust {
    const struct plan_prob *p;
    struct plan_state *state;
    const struct plan_goal *goal;
    int64_t *off;    // [n]
    int32_t *placed; // [n] placed blocks that are not fixed, by rising offset
    int32_t *open;   // [n] unplaced blocks
    int32_t n_placed, n_open;
    int64_t n_left; // nodes until the node limit
    bool is_late;
};

static bool is_equal(const struct plan_prob *p, int32_t i, int32_t j) {
    return p->begin[i] == p->begin[j] && p->end[i] == p->end[j] && p->size[i] == p->size[j] &&
           (p->align == NULL || p->align[i] == p->align[j]);
}

// Returns the lowest offset of block i among the placed blocks, -1: block i would not end below the best peak.
static int64_t lowest_level(const struct exhaust *x, int32_t i) {
    const struct plan_prob *p = x->p;
    const int64_t limit = x->state->peak - 1 - p->size[i];
    int64_t at = limit >= 0 ? berth_plan_lowest_at(p, i, 0, limit) : -1;
    for (int32_t k = 0; k < x->n_placed && at >= 0;) {
        const int32_t j = x->placed[k];
        if (p->end[j] <= p->begin[i] || p->end[i] <= p->begin[j] || x->off[j] + p->size[j] <= at ||
            at + p->size[i] <= x->off[j]) {
            k++;
            continue;
        }
        at = berth_plan_lowest_at(p, i, x->off[j] + p->size[j], limit);
        k = 0; // all placed blocks are tested again at the new offset
    }
    return at;
}

static bool is_over(struct exhaust *x) {
    if (x->n_left % CLOCK_NODES == 0 && x->goal->deadline_us > 0 &&
        plan_is_over(x->goal->deadline_us, x->goal->work, x->goal->watch)) {
        x->is_late = true;
    }
    x->is_late = x->is_late || x->n_left <= 0;
    return x->is_late || plan_is_done(x->state, x->goal);
}

// Tries all ways to place the open blocks at or above `level`, the highest offset of a placed block. peak: the highest end of a
// placed block.
static void level_search(struct exhaust *x, int64_t level, int64_t peak) {
    if (x->n_open == 0) {
        memcpy(x->state->spare, x->off, (size_t) x->p->n * sizeof *x->off);
        plan_state_take(x->state, peak, "exhaustion");
        return;
    }
    const struct plan_prob *p = x->p;
    int64_t low[PLAN_EXHAUST_MAX], least_end = INT64_MAX;
    x->n_left--;
    plan_work_add(x->goal->work, NODE_NS + NODE_PAIR_NS * (int64_t) x->n_open * (x->n_placed + 1));
    for (int32_t k = 0; k < x->n_open; k++) {
        const int32_t i = x->open[k];
        low[k] = lowest_level(x, i);
        if (low[k] < 0) {
            return;
        }
        least_end = min_i64(low[k] + p->size[i], least_end);
    }
    const int32_t n_open = x->n_open;
    for (int32_t k = 0; k < n_open && !is_over(x); k++) {
        const int32_t i = x->open[k];
        const int64_t top = max_i64(low[k] + p->size[i], peak);
        bool is_twin = false;
        for (int32_t t = 0; t < k && !is_twin; t++) {
            is_twin = is_equal(p, i, x->open[t]);
        }
        if (low[k] < level || low[k] >= least_end || top >= x->state->peak || is_twin) {
            continue;
        }
        x->off[i] = low[k];
        x->placed[x->n_placed++] = i;
        x->open[k] = x->open[--x->n_open];
        level_search(x, low[k], top);
        x->open[x->n_open++] = x->open[k];
        x->open[k] = i;
        x->n_placed--;
    }
}

void berth_plan_exhaust(const struct plan_prob *p, const struct plan_goal *g, int64_t max_nodes, struct plan_state *s) {
    if (p->n > PLAN_EXHAUST_MAX || p->chunk > 0 || s->peak == PLAN_NO_CAP) {
        return;
    }
    int64_t peak = 0;
    int64_t off[PLAN_EXHAUST_MAX];
    int32_t placed[PLAN_EXHAUST_MAX], open[PLAN_EXHAUST_MAX];
    struct exhaust x = {.p = p, .state = s, .goal = g, .off = off, .placed = placed, .open = open, .n_left = max_nodes};
    for (int32_t i = 0; i < p->n; i++) {
        if (p->fixed != NULL && p->fixed[i] >= 0) {
            off[i] = p->fixed[i];
            peak = max_i64(off[i] + p->size[i], peak);
        } else {
            open[x.n_open++] = i;
        }
    }
    if (peak < s->peak) {
        level_search(&x, 0, peak);
    }
    s->n_nodes += max_nodes - x.n_left;
    if (!x.is_late && !p->bound_is_inexact && s->peak > s->bound && s->peak > g->enough) {
        s->bound = s->peak;
    }
}

// ---- local search ----

#define TRIES_PER_BLOCK 400 // limit on exchanges per block

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
    int64_t last_peak = INT64_MAX; // of the current order
    uint64_t random = g->seed;
    struct plan_improve *improve = p->chunk == 0 && p->n > PLAN_EXHAUST_MAX ? berth_plan_improve_new(p, g, s) : NULL;
    for (int64_t tries = (int64_t) n_order * TRIES_PER_BLOCK; tries > 0 && n_order > 1 && !plan_is_done(s, g); tries--) {
        if (plan_is_over(g->deadline_us, g->work, g->watch)) {
            break;
        }
        berth_plan_improve_share(improve);
        int32_t x = (int32_t) plan_random_below(&random, (uint64_t) n_order);
        int32_t y = (int32_t) plan_random_below(&random, (uint64_t) n_order);
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
    if (improve != NULL && !plan_is_done(s, g)) {
        berth_plan_improve_turn(improve, g->deadline_us);
    }
    berth_plan_improve_free(improve);
    berth_arrays_free(&mem);
    return GGML_STATUS_SUCCESS;
}

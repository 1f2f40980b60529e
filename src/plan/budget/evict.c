// SPDX-License-Identifier: MIT
// evict.c: finds a schedule for tight limits (the method "walk"). It runs the ops in the given order and recomputes missing
// sources. If memory is short, it evicts values that are cheap to recompute, large, and not needed soon.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <math.h>
#include <string.h>

#define GROW_MAX 40     // limit on steps per op
#define DEPTH_MAX 4000  // limit on the depth of recursion
#define COST_OPS_MAX 48 // largest number of ops that are inspected to estimate the cost of recomputing a value

struct walk {
    const struct budget_graph *g;
    struct budget_steps *out;
    bool *is_resident;    // [n] the value is in memory
    int32_t *n_locks;     // [n] number of running ops that need the value in memory
    int32_t *last_need;   // [n] last op that may need the value
    int32_t *resident;    // [n_resident] values with bytes in memory, unordered
    int32_t *resident_at; // [n] index of the value in resident
    int32_t n_resident;
    int32_t *seen; // [n] stamp of the last visit
    int32_t stamp;
    uint64_t *bytes; // [n_pools]
    int32_t pos;     // current op of the order
    double power;    // exponent of the distance to the next use
    const struct budget_end *end;
    size_t max_steps;
    enum budget_answer answer; // BUDGET_NONE as long as there is no failure
};

// Returns `last`, or the op that overwrites a source of i if that op is earlier, because op i cannot be recomputed after it.
static int32_t last_need_limit(const struct budget_graph *g, int32_t i, int32_t last) {
    return g->until[i] >= 0 && g->until[i] < last ? g->until[i] : last;
}

static void last_needs_find(struct walk *w) {
    const struct budget_graph *g = w->g;
    for (int pass = 0; pass < 2; pass++) { // two passes, because inputs may be after their readers
        for (int32_t i = g->n; i-- > 0;) {
            int32_t last = g->keep[i] ? g->n : -1;
            for (int32_t k = g->readers.start[i]; k < g->readers.start[i + 1]; k++) {
                const int32_t r = g->readers.at[k],
                              at = g->can_recompute[r] && w->last_need[r] > r ? last_need_limit(g, r, w->last_need[r]) : r;
                last = max_i32(at, last);
            }
            w->last_need[i] = last;
        }
    }
}

static void resident_add(struct walk *w, int32_t i) {
    w->is_resident[i] = true;
    if (w->g->size[i] > 0) {
        w->resident_at[i] = w->n_resident;
        w->resident[w->n_resident++] = i;
        w->bytes[w->g->pool[i]] += w->g->size[i];
    }
}

static void resident_remove(struct walk *w, int32_t i) {
    w->is_resident[i] = false;
    if (w->g->size[i] > 0) {
        const int32_t other = w->resident[--w->n_resident];
        w->resident[w->resident_at[i]] = other;
        w->resident_at[other] = w->resident_at[i];
        w->bytes[w->g->pool[i]] -= w->g->size[i];
    }
}

static int32_t next_use(const struct walk *w, int32_t i) {
    const struct budget_graph *g = w->g;
    int32_t lo = g->readers.start[i], hi = g->readers.start[i + 1];
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (g->readers.at[mid] < w->pos) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    if (lo < g->readers.start[i + 1]) {
        return g->readers.at[lo];
    }
    return w->last_need[i] > w->pos ? (w->last_need[i] + 3 * g->n) / 4 : g->n;
}

// Estimates the cost of recomputing the value and its missing sources. Inspects at most COST_OPS_MAX ops.
static double recompute_cost(struct walk *w, int32_t value) {
    const struct budget_graph *g = w->g;
    int32_t list[COST_OPS_MAX];
    int32_t n = 0;
    double cost = 0;
    w->stamp++;
    list[n++] = value;
    w->seen[value] = w->stamp;
    for (int32_t at = 0; at < n; at++) {
        cost += (double) g->cost[list[at]];
        for (int32_t k = g->srcs.start[list[at]]; k < g->srcs.start[list[at] + 1] && n < COST_OPS_MAX; k++) {
            const int32_t src = g->srcs.at[k];
            if (!w->is_resident[src] && w->seen[src] != w->stamp) {
                w->seen[src] = w->stamp;
                list[n++] = src;
            }
        }
    }
    *g->work += 4 * n;
    return n == COST_OPS_MAX ? cost * 2 : cost;
}

static bool pool_evict(struct walk *w, int32_t pool) {
    const struct budget_graph *g = w->g;
    int32_t best = -1;
    double best_score = INFINITY;
    *g->work += 4 * (int64_t) w->n_resident;
    for (int32_t k = 0; k < w->n_resident; k++) {
        const int32_t i = w->resident[k];
        if (g->pool[i] != pool || w->n_locks[i] > 0 || !g->can_recompute[i] ||
            (g->until[i] >= 0 && g->until[i] <= next_use(w, i))) {
            continue;
        }
        const double far = pow((double) (next_use(w, i) - w->pos + 1), w->power);
        const double score = (recompute_cost(w, i) + 1e-3) / ((double) g->size[i] * far);
        if (score < best_score) {
            best_score = score;
            best = i;
        }
    }
    if (best >= 0) {
        resident_remove(w, best);
    }
    return best >= 0;
}

static void srcs_release(struct walk *w, int32_t i) {
    const struct budget_graph *g = w->g;
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
        const int32_t src = g->srcs.at[k];
        w->n_locks[src]--;
        if (w->is_resident[src] && w->n_locks[src] == 0 && !g->keep[src] && w->last_need[src] <= w->pos) {
            resident_remove(w, src);
        }
    }
}

static bool takes_over(const struct walk *w, int32_t i) {
    const struct budget_graph *g = w->g;
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1] && k - g->srcs.start[i] < 64; k++) {
        const int32_t src = g->srcs.at[k];
        if ((g->takeover[i] >> (k - g->srcs.start[i]) & 1) != 0 && w->n_locks[src] == 1 && w->last_need[src] <= w->pos) {
            return true;
        }
    }
    return false;
}

static void value_compute(struct walk *w, int32_t i, int32_t depth) {
    const struct budget_graph *g = w->g;
    const uint64_t limit = g->pools[g->pool[i]].limit;
    if (depth > DEPTH_MAX || w->out->n > w->max_steps || budget_is_over(g, w->end) ||
        (i != w->pos && (!g->can_recompute[i] || (g->until[i] >= 0 && g->until[i] < w->pos)))) {
        w->answer = BUDGET_GAVE_UP;
        return;
    }
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
        w->n_locks[g->srcs.at[k]]++;
    }
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1] && w->answer == BUDGET_NONE; k++) {
        if (!w->is_resident[g->srcs.at[k]]) {
            value_compute(w, g->srcs.at[k], depth + 1);
        }
    }
    const uint64_t size = takes_over(w, i) ? 0 : g->size[i];
    while (w->answer == BUDGET_NONE && w->bytes[g->pool[i]] + size > limit) {
        w->answer = pool_evict(w, g->pool[i]) ? BUDGET_NONE : BUDGET_GAVE_UP;
    }
    if (w->answer == BUDGET_NONE && !budget_put(w->out, i, BERTH_BUDGET_RUN)) {
        w->answer = BUDGET_OUT_OF_MEMORY;
    }
    if (w->answer == BUDGET_NONE) {
        resident_add(w, i);
        w->n_locks[i]++; // keeps srcs_release from discarding the result
        srcs_release(w, i);
        w->n_locks[i]--;
    }
}

static void walk_all(struct walk *w) {
    const struct budget_graph *g = w->g;
    for (int32_t i = 0; i < g->n; i++) {
        if (budget_is_input(g, i)) {
            resident_add(w, i);
        }
    }
    for (int32_t i = 0; i < g->n && w->answer == BUDGET_NONE; i++) {
        w->pos = i;
        if (!budget_is_input(g, i) && !w->is_resident[i]) {
            value_compute(w, i, 0);
        }
    }
}

enum budget_answer budget_walk(
    const struct budget_graph *g, double power, const struct budget_end *end, struct budget_steps *out) {
    const size_t n = (size_t) g->n;
    struct berth_arrays mem = {0};
    struct walk w = {.g = g, .out = out, .power = power, .end = end, .max_steps = GROW_MAX * n + 64};
    w.is_resident = berth_arrays_new(&mem, n, sizeof *w.is_resident);
    w.n_locks = berth_arrays_new(&mem, n, sizeof *w.n_locks);
    w.last_need = berth_arrays_new(&mem, n, sizeof *w.last_need);
    w.resident = berth_arrays_new(&mem, n, sizeof *w.resident);
    w.resident_at = berth_arrays_new(&mem, n, sizeof *w.resident_at);
    w.seen = berth_arrays_new(&mem, n, sizeof *w.seen);
    w.bytes = berth_arrays_new(&mem, (size_t) g->n_pools, sizeof *w.bytes);
    w.answer = BUDGET_OUT_OF_MEMORY;
    out->n = 0;
    if (!mem.has_failed) {
        w.answer = BUDGET_NONE;
        last_needs_find(&w);
        walk_all(&w);
        if (w.answer == BUDGET_NONE) {
            w.answer = BUDGET_FOUND;
        }
    }
    berth_arrays_free(&mem);
    return w.answer;
}

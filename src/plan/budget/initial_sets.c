// SPDX-License-Identifier: MIT
// initial_sets.c: makes start schedules by heuristics. Each set of values gives one schedule: the values of the set are discarded
// before the step with the most live bytes, and recomputed when they are needed later. There are two kinds of sets:
// - greedy: the values with the largest ratio of size to cost;
// - checkpoints: all values except those at equal distances in the order.
// Making a schedule takes linear time, so many sets are tried.

#include "plan/budget/budget.h"

#include <stdlib.h>
#include <string.h>

#define N_GREEDY 100 // number of greedy sets

struct sets {
    const struct budget_graph *g;
    struct budget_trace t;
    struct budget_steps steps;
    struct berth_arrays mem;    // owns the arrays below
    int32_t *position;          // [n] index of the op in the order
    int32_t *last;              // [n] position of the last op that reads the value, -1: none
    bool *drop, *is_recomputed; // [n] the value is in the set; the value has been recomputed after peak_at
    int32_t *stack;             // capacity for all sources and ops
    int32_t peak_at;            // position with the most bytes
    uint64_t best;              // cost of the cheapest schedule so far
};

// Appends the steps that recompute the value and its discarded sources. A stack entry below 0 stands for an op whose sources were
// already pushed.
static bool value_recompute(struct sets *x, int32_t value) {
    const struct budget_graph *g = x->g;
    size_t n = 0;
    bool ok = true;
    x->stack[n++] = value;
    while (ok && n > 0) {
        const int32_t top = x->stack[--n], i = top < 0 ? -1 - top : top;
        if (top < 0) {
            ok = budget_put(&x->steps, i, BERTH_BUDGET_RUN);
            continue;
        }
        if (x->is_recomputed[i]) {
            continue;
        }
        x->is_recomputed[i] = true;
        x->stack[n++] = -1 - i;
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
            const int32_t src = g->srcs.at[k];
            if (x->drop[src] && !x->is_recomputed[src]) {
                x->stack[n++] = src;
            }
        }
    }
    return ok;
}

// Makes the schedule of the set x->drop. Copies it to out if it fits and is the cheapest so far. False: out of memory.
static bool set_try(struct sets *x, const struct budget_steps *order, struct budget_steps *out) {
    const struct budget_graph *g = x->g;
    x->steps.n = 0;
    memset(x->is_recomputed, 0, (size_t) g->n * sizeof *x->is_recomputed);
    for (int32_t at = 0; at < (int32_t) order->n; at++) {
        const int32_t i = order->at[at].op;
        for (int32_t k = g->srcs.start[i]; at > x->peak_at && k < g->srcs.start[i + 1]; k++) {
            const int32_t src = g->srcs.at[k];
            if (x->drop[src] && !x->is_recomputed[src] && !value_recompute(x, src)) {
                return false;
            }
        }
        if (!budget_put(&x->steps, i, BERTH_BUDGET_RUN)) {
            return false;
        }
    }
    const uint64_t cost = budget_cost(g, &x->steps);
    *g->work += 4 * (int64_t) x->steps.n;
    if (cost >= x->best) {
        return true;
    }
    if (!budget_trace(g, &x->steps, &x->t)) {
        return false;
    }
    if (x->t.fault < 0 && budget_excess(g, &x->t, x->steps.n).most == 0) {
        x->best = cost;
        return budget_copy(out, &x->steps);
    }
    return true;
}

static bool may_drop(const struct sets *x, int32_t i) {
    return x->g->can_recompute[i] && x->g->size[i] > 0 && x->position[i] < x->peak_at && x->last[i] >= 0;
}

struct rated {
    double ratio;
    int32_t op;
};

static int by_ratio(const void *a, const void *b) {
    const struct rated *x = a, *y = b;
    if (x->ratio != y->ratio) {
        return x->ratio > y->ratio ? -1 : 1;
    }
    return x->op < y->op ? -1 : 1;
}

static bool greedy_try(struct sets *x, const struct budget_steps *order, struct budget_steps *out) {
    const struct budget_graph *g = x->g;
    struct rated *rated = berth_calloc((size_t) g->n + 1, sizeof *rated);
    int32_t n = 0, done = 0;
    for (int32_t i = 0; rated != NULL && i < g->n; i++) {
        if (may_drop(x, i)) {
            rated[n++] = (struct rated){(double) g->size[i] / ((double) g->cost[i] + 1), i};
        }
    }
    if (n > 0) {
        qsort(rated, (size_t) n, sizeof *rated, by_ratio);
    }
    memset(x->drop, 0, (size_t) g->n * sizeof *x->drop);
    bool ok = rated != NULL;
    for (int32_t k = 1; ok && k <= N_GREEDY; k++) {
        for (; done < (int32_t) ((int64_t) n * k / N_GREEDY); done++) {
            x->drop[rated[done].op] = true;
        }
        ok = set_try(x, order, out);
    }
    berth_free(rated);
    return ok;
}

static bool checkpoints_try(struct sets *x, const struct budget_steps *order, struct budget_steps *out) {
    bool ok = true;
    for (int32_t length = 2; ok && length <= x->peak_at + 1; length += 1 + length / 8) {
        for (int32_t i = 0; i < x->g->n; i++) {
            x->drop[i] =
                x->g->can_recompute[i] && x->g->size[i] > 0 && x->position[i] < x->peak_at && x->position[i] % length != 0;
        }
        ok = set_try(x, order, out);
    }
    return ok;
}

static bool sets_init(struct sets *x, const struct budget_steps *order) {
    const struct budget_graph *g = x->g;
    const size_t n = (size_t) g->n;
    x->position = berth_arrays_new(&x->mem, n, sizeof *x->position);
    x->last = berth_arrays_new(&x->mem, n, sizeof *x->last);
    x->drop = berth_arrays_new(&x->mem, n, sizeof *x->drop);
    x->is_recomputed = berth_arrays_new(&x->mem, n, sizeof *x->is_recomputed);
    x->stack = berth_arrays_new(&x->mem, 2 * (n + 1) + (size_t) g->srcs.start[n], sizeof *x->stack);
    if (x->mem.has_failed || !budget_trace(g, order, &x->t)) {
        return false;
    }
    const struct budget_excess excess = budget_excess(g, &x->t, order->n);
    x->peak_at = excess.most > 0 ? excess.step : (int32_t) order->n;
    for (int32_t i = 0; i < g->n; i++) {
        x->position[i] = x->last[i] = -1;
    }
    for (int32_t at = 0; at < (int32_t) order->n; at++) {
        const int32_t i = order->at[at].op;
        x->position[i] = at;
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
            x->last[g->srcs.at[k]] = at;
        }
    }
    return true;
}

enum budget_answer budget_sets(const struct budget_graph *g, const struct budget_steps *order, struct budget_steps *out) {
    struct sets x = {.g = g, .best = UINT64_MAX};
    enum budget_answer answer = BUDGET_OUT_OF_MEMORY;
    bool ok = sets_init(&x, order);
    const int32_t peak_at = x.peak_at, far = 1 + (int32_t) order->n / 64;
    for (int32_t k = -1; ok && k <= 1; k++) { // at the step with the most bytes, before and after it
        x.peak_at = peak_at + k * far;
        ok = greedy_try(&x, order, out) && checkpoints_try(&x, order, out);
    }
    if (ok) {
        answer = x.best == UINT64_MAX ? BUDGET_GAVE_UP : BUDGET_FOUND;
    }
    budget_trace_fini(&x.t);
    berth_free(x.steps.at);
    berth_arrays_free(&x.mem);
    return answer;
}

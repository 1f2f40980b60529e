// SPDX-License-Identifier: MIT
// trace.c: replays a schedule to find the lifetime of each instance and the live bytes at each step, in linear time. In a valid
// schedule, every instance exists before a step reads it.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <string.h>

#define TRACE_WORK 8 // counted work per op and step

bool budget_put(struct budget_steps *s, int32_t op, enum berth_budget_kind kind) {
    if (!BERTH_GROW(&s->at, &s->cap, s->n + 1)) {
        return false;
    }
    s->at[s->n++] = (struct berth_budget_step){op, kind};
    return true;
}

bool budget_copy(struct budget_steps *to, const struct budget_steps *from) {
    if (!BERTH_GROW(&to->at, &to->cap, from->n + 1)) {
        return false;
    }
    if (from->n > 0) {
        memcpy(to->at, from->at, from->n * sizeof *to->at);
    }
    to->n = from->n;
    return true;
}

uint64_t budget_cost(const struct budget_graph *g, const struct budget_steps *s) {
    uint64_t sum = 0;
    for (size_t k = 0; k < s->n; k++) {
        const int32_t op = s->at[k].op;
        sum += s->at[k].kind == BERTH_BUDGET_RUN ? g->cost[op] : budget_spill_cost(g, op);
    }
    return sum;
}

void budget_trace_fini(struct budget_trace *t) {
    berth_free(t->last);
    berth_free(t->src);
    berth_free(t->start);
    berth_free(t->taken);
    berth_free(t->now);
    berth_free(t->out);
    berth_free(t->live);
    berth_free(t->peak);
    *t = (struct budget_trace){0};
}

static bool trace_alloc(const struct budget_graph *g, const struct budget_steps *s, struct budget_trace *t) {
    const size_t n = (size_t) g->n, n_pools = (size_t) g->n_pools;
    size_t n_src = 1;
    for (size_t k = 0; k < s->n; k++) {
        const int32_t op = s->at[k].op;
        n_src +=
            op < 0 || op >= g->n || s->at[k].kind != BERTH_BUDGET_RUN ? 1 : (size_t) (g->srcs.start[op + 1] - g->srcs.start[op]);
    }
    return BERTH_GROW(&t->last, &t->last_cap, n + s->n + 1) && BERTH_GROW(&t->src, &t->src_cap, n_src) &&
           BERTH_GROW(&t->start, &t->start_cap, s->n + 1) && BERTH_GROW(&t->taken, &t->taken_cap, s->n + 1) &&
           BERTH_GROW(&t->now, &t->now_cap, n + 1) && BERTH_GROW(&t->out, &t->out_cap, n + 1) &&
           BERTH_GROW(&t->live, &t->live_cap, s->n * n_pools + 1) && BERTH_GROW(&t->peak, &t->peak_cap, n_pools + 1);
}

static void step_refuse(struct budget_trace *t, size_t step, const char *why) {
    t->fault = (int32_t) step;
    t->why = why;
}

// Returns the reason why the step is invalid; NULL: the step can run.
static const char *step_fault(const struct budget_graph *g, const struct budget_trace *t, const struct berth_budget_step *step) {
    const int32_t op = step->op;
    if (op < 0 || op >= g->n) {
        return "names an op that does not exist";
    }
    if (step->kind == BERTH_BUDGET_RUN) {
        if (budget_is_input(g, op)) {
            return "runs an input";
        }
        if (t->now[op] >= 0 && !g->can_recompute[op]) {
            return "recomputes an op that may run only once";
        }
        if (g->until[op] >= 0 && t->now[g->until[op]] >= 0) {
            return "runs after an op that overwrites one of its sources";
        }
        const bool is_early = g->once_before[op] >= 0 && t->now[g->once_before[op]] < 0;
        return is_early ? "runs before an op that must run earlier" : NULL;
    }
    if (step->kind != BERTH_BUDGET_SPILL && step->kind != BERTH_BUDGET_RESTORE) {
        return "has an unknown kind";
    }
    if (g->spill_pool[op] < 0) {
        return "spills a value that has no pool to spill to";
    }
    if (step->kind == BERTH_BUDGET_RESTORE) {
        return t->out[op] < 0 ? "reads back a value that was not spilled" : NULL;
    }
    return t->now[op] < 0 ? "spills a value that does not exist" : NULL;
}

static void reads_find(const struct budget_graph *g, const struct budget_steps *s, struct budget_trace *t) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->n; i++) {
        t->now[i] = t->last[i] = budget_is_input(g, i) ? i : -1;
        t->out[i] = -1;
        t->last[i] = -1;
    }
    for (size_t k = 0; k < s->n; k++) {
        const struct berth_budget_step *step = &s->at[k];
        const int32_t op = step->op, me = g->n + (int32_t) k;
        const char *why = step_fault(g, t, step);
        t->start[k] = n;
        if (why != NULL) {
            step_refuse(t, k, why);
            return;
        }
        if (step->kind != BERTH_BUDGET_RUN) {
            t->src[n++] = step->kind == BERTH_BUDGET_SPILL ? t->now[op] : t->out[op];
        } else {
            for (int32_t j = g->srcs.start[op]; j < g->srcs.start[op + 1]; j++) {
                t->src[n++] = t->now[g->srcs.at[j]];
            }
        }
        for (int32_t j = t->start[k]; j < n; j++) {
            if (t->src[j] < 0) {
                step_refuse(t, k, "reads a value that does not exist yet");
                return;
            }
            t->last[t->src[j]] = (int32_t) k;
        }
        t->last[me] = (int32_t) k;
        if (step->kind == BERTH_BUDGET_SPILL) {
            t->out[op] = me;
        } else {
            t->now[op] = me;
        }
    }
    t->start[s->n] = n;
    for (int32_t i = 0; i < g->n; i++) {
        if (t->now[i] < 0) {
            step_refuse(t, s->n, "is the end, but an op has not run");
        } else if (g->keep[i]) {
            t->last[t->now[i]] = (int32_t) s->n;
        }
    }
}

static int32_t pool_of(const struct budget_graph *g, const struct budget_steps *s, int32_t instance) {
    const int32_t value = budget_value(g, s, instance);
    const bool is_out = instance >= g->n && s->at[instance - g->n].kind == BERTH_BUDGET_SPILL;
    return is_out ? g->spill_pool[value] : g->pool[value];
}

// Returns the instance whose memory the result of step k takes over, -1: none.
static int32_t taken_find(const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t, int32_t k) {
    const int32_t op = s->at[k].op;
    if (s->at[k].kind != BERTH_BUDGET_RUN || g->takeover[op] == 0) {
        return -1;
    }
    for (int32_t j = t->start[k]; j < t->start[k + 1] && j - t->start[k] < 64; j++) {
        if ((g->takeover[op] >> (j - t->start[k]) & 1) != 0 && t->last[t->src[j]] == k) {
            return t->src[j];
        }
    }
    return -1;
}

static void live_find(const struct budget_graph *g, const struct budget_steps *s, struct budget_trace *t, uint64_t *now) {
    const int32_t n_pools = g->n_pools;
    for (int32_t i = 0; i < g->n; i++) {
        now[g->pool[i]] += budget_is_input(g, i) ? g->size[i] : 0;
    }
    memcpy(t->peak, now, (size_t) n_pools * sizeof *now);
    for (int32_t k = 0; k < (int32_t) s->n; k++) {
        const int32_t me = g->n + k, pool = pool_of(g, s, me);
        t->taken[k] = taken_find(g, s, t, k);
        now[pool] += t->taken[k] < 0 ? g->size[s->at[k].op] : 0;
        memcpy(&t->live[(size_t) k * (size_t) n_pools], now, (size_t) n_pools * sizeof *now);
        t->peak[pool] = max_u64(now[pool], t->peak[pool]);
        for (int32_t j = t->start[k]; j < t->start[k + 1]; j++) {
            const int32_t src = t->src[j];
            if (t->last[src] == k && src != t->taken[k]) {
                now[pool_of(g, s, src)] -= g->size[budget_value(g, s, src)];
            }
        }
        now[pool] -= t->last[me] == k ? g->size[s->at[k].op] : 0;
    }
}

bool budget_trace(const struct budget_graph *g, const struct budget_steps *s, struct budget_trace *t) {
    t->fault = -1;
    t->why = NULL;
    uint64_t *now = s->n > INT32_MAX / 8 ? NULL : berth_calloc((size_t) g->n_pools + 1, sizeof *now);
    const bool ok = now != NULL && trace_alloc(g, s, t);
    if (ok) {
        reads_find(g, s, t);
        *g->work += TRACE_WORK * (g->n + (int64_t) s->n);
    }
    if (ok && t->fault < 0) {
        live_find(g, s, t, now);
    }
    berth_free(now);
    return ok;
}

struct budget_excess budget_excess(const struct budget_graph *g, const struct budget_trace *t, size_t n_steps) {
    struct budget_excess e = {0};
    for (int32_t p = 0; p < g->n_pools; p++) {
        const uint64_t limit = g->pools[p].limit;
        // In a schedule without steps, only the inputs are alive.
        for (size_t k = 0; t->peak[p] > limit && k < (n_steps > 0 ? n_steps : 1); k++) {
            const uint64_t live = n_steps > 0 ? t->live[k * (size_t) g->n_pools + (size_t) p] : t->peak[p];
            const uint64_t here = live > limit ? live - limit : 0;
            e.sum += (double) here;
            if (here > e.most) {
                e.most = here;
                e.pool = p;
                e.step = (int32_t) k;
            }
        }
    }
    return e;
}

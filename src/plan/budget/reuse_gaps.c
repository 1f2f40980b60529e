// SPDX-License-Identifier: MIT
// reuse_gaps.c: finds and applies cuts; budget.h defines cut, gap and cascade.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 64         // number of steps that share one entry of block_max
#define CASCADE_MAX 4096 // largest cascade, in ops
#define CASCADE_WORK 4   // counted work per op of a cascade, and per source of the op

// ---- tables ----

void budget_gaps_fini(struct budget_gaps *x) {
    budget_trace_fini(&x->t);
    berth_free(x->read_start);
    berth_free(x->reads);
    berth_free(x->made_start);
    berth_free(x->made);
    berth_free(x->block_max);
    berth_free(x->n_over);
    berth_free(x->mark);
    berth_free(x->put_at);
    berth_free(x->lock);
    *x = (struct budget_gaps){0};
}

static bool gaps_alloc(struct budget_gaps *x) {
    const size_t n = (size_t) x->g->n, m = x->s->n, p = (size_t) x->g->n_pools;
    return BERTH_GROW(&x->read_start, &x->cap[0], n + m + 2) && BERTH_GROW(&x->reads, &x->cap[1], (size_t) x->t.start[m] + 1) &&
           BERTH_GROW(&x->made_start, &x->cap[2], n + 2) && BERTH_GROW(&x->made, &x->cap[3], n + m + 1) &&
           BERTH_GROW(&x->block_max, &x->cap[4], (m / BLOCK + 1) * p) && BERTH_GROW(&x->n_over, &x->cap[5], (m + 1) * p) &&
           BERTH_GROW(&x->mark, &x->cap[6], n + 1) && BERTH_GROW(&x->put_at, &x->cap[7], n + 1) &&
           BERTH_GROW(&x->lock, &x->cap[8], n + m + 1);
}

static bool is_home(const struct budget_gaps *x, int32_t k) {
    return x->s->at[k].kind != BERTH_BUDGET_SPILL;
}

static void lists_fill(struct budget_gaps *x) {
    const int32_t n = x->g->n, m = (int32_t) x->s->n;
    memset(x->read_start, 0, ((size_t) n + (size_t) m + 2) * sizeof *x->read_start);
    memset(x->made_start, 0, ((size_t) n + 2) * sizeof *x->made_start);
    for (int32_t j = 0; j < x->t.start[m]; j++) {
        x->read_start[x->t.src[j] + 2]++;
    }
    for (int32_t i = 0; i < n; i++) {
        x->made_start[i + 2] += budget_is_input(x->g, i);
    }
    for (int32_t k = 0; k < m; k++) {
        x->made_start[x->s->at[k].op + 2] += is_home(x, k);
    }
    for (int32_t i = 2; i < n + m + 2; i++) {
        x->read_start[i] += x->read_start[i - 1];
    }
    for (int32_t i = 2; i < n + 2; i++) {
        x->made_start[i] += x->made_start[i - 1];
    }
    for (int32_t i = 0; i < n; i++) {
        if (budget_is_input(x->g, i)) {
            x->made[x->made_start[i + 1]++] = i;
        }
    }
    for (int32_t k = 0; k < m; k++) {
        for (int32_t j = x->t.start[k]; j < x->t.start[k + 1]; j++) {
            x->reads[x->read_start[x->t.src[j] + 1]++] = k;
        }
        if (is_home(x, k)) {
            x->made[x->made_start[x->s->at[k].op + 1]++] = n + k;
        }
    }
}

static void maxima_fill(struct budget_gaps *x) {
    const size_t p = (size_t) x->g->n_pools, m = x->s->n;
    memset(x->block_max, 0, (m / BLOCK + 1) * p * sizeof *x->block_max);
    memset(x->n_over, 0, p * sizeof *x->n_over);
    for (size_t k = 0; k < m; k++) {
        for (size_t q = 0; q < p; q++) {
            const uint64_t live = x->t.live[k * p + q];
            uint64_t *most = &x->block_max[k / BLOCK * p + q];
            *most = max_u64(live, *most);
            x->n_over[(k + 1) * p + q] = x->n_over[k * p + q] + (live > x->g->pools[q].limit);
        }
    }
}

bool budget_gaps_find(struct budget_gaps *x, const struct budget_graph *g, const struct budget_steps *s) {
    x->g = g;
    x->s = s;
    if (!budget_trace(g, s, &x->t)) {
        return false;
    }
    BERTH_ASSERT(x->t.fault < 0);
    if (!gaps_alloc(x)) {
        return false;
    }
    lists_fill(x);
    maxima_fill(x);
    memset(x->mark, 0, ((size_t) g->n + 1) * sizeof *x->mark);
    memset(x->lock, 0, ((size_t) g->n + s->n + 1) * sizeof *x->lock);
    for (int32_t i = 0; i < g->n; i++) {
        x->put_at[i] = -1;
    }
    x->stamp = 0;
    return true;
}

static uint64_t gaps_max(const struct budget_gaps *x, int32_t pool, int32_t lo, int32_t hi) {
    const size_t p = (size_t) x->g->n_pools;
    uint64_t most = 0;
    *x->g->work += BLOCK + (hi - lo) / BLOCK;
    for (int32_t k = lo; k < hi;) {
        const bool is_full_block = k % BLOCK == 0 && k + BLOCK <= hi;
        const uint64_t live =
            is_full_block ? x->block_max[(size_t) (k / BLOCK) * p + (size_t) pool] : x->t.live[(size_t) k * p + (size_t) pool];
        most = max_u64(live, most);
        k += is_full_block ? BLOCK : 1;
    }
    return most;
}

// Returns the instance of the value that step b would read: the last one made before b, -1: none.
static int32_t instance_at(const struct budget_gaps *x, int32_t value, int32_t b) {
    int32_t lo = x->made_start[value], hi = x->made_start[value + 1];
    while (lo < hi) { // the last instance made before b
        const int32_t mid = lo + (hi - lo) / 2;
        if (x->made[mid] < x->g->n + b) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo == x->made_start[value] ? -1 : x->made[lo - 1];
}

// ---- the cost of a cut ----

struct cascade {
    struct budget_gaps *x;
    struct budget_cuts *cuts;
    double byte_cost; // cost of a byte of a source that must stay in memory longer for the cascade
    double penalty;   // sum of these costs for all such bytes
    int32_t step;     // the step at which bytes are to be freed
    int64_t stays;    // bytes of such sources that are then alive at `step`
    bool is_final;    // lock the instances that the cut relies on
};

static bool can_make(const struct budget_gaps *x, int32_t value, int32_t b) {
    const int32_t until = x->g->until[value];
    return x->g->can_recompute[value] && (until < 0 || x->made[x->made_start[until]] >= x->g->n + b);
}

// Returns true if the cascade can read the source before step b without recomputing it, because the source is in memory or can
// stay there. Returns false if the cascade must recompute the source too. If neither is possible, sets *has_failed and returns
// true.
static bool src_is_there(struct cascade *c, int32_t src, int32_t b, bool *has_failed) {
    struct budget_gaps *x = c->x;
    const int32_t own = instance_at(x, src, b);
    if (x->mark[src] == x->stamp || x->put_at[src] == b) {
        return true;
    }
    if (own < 0) {
        *has_failed = true;
        return true;
    }
    const int32_t last = x->t.last[own];
    if (x->lock[own] != 2 && last >= b) {
        if (c->is_final) {
            x->lock[own] = 1;
        }
        return true;
    }
    const int32_t pool = x->g->pool[src];
    const uint64_t limit = x->g->pools[pool].limit, size = x->g->size[src];
    if (x->lock[own] != 2 && (size == 0 || (limit >= size && gaps_max(x, pool, last + 1, b) <= limit - size))) {
        if (c->is_final) {
            x->lock[own] = 1;
        }
        return true;
    }
    const bool is_cheap = c->byte_cost * (double) size < (double) x->g->cost[src];
    if (can_make(x, src, b) && (!is_cheap || x->lock[own] == 2)) {
        return false;
    }
    if (x->lock[own] == 2) {
        *has_failed = true;
        return true;
    }
    if (c->is_final) {
        x->lock[own] = 1;
    }
    c->penalty += c->byte_cost * (double) size;
    c->stays += c->step > last && c->step < b ? (int64_t) size : 0;
    return true;
}

// Lists the ops of the cascade in execution order. *ok: the value can be recomputed.
static bool cascade_find(struct cascade *c, struct budget_cut *cut, int32_t value, bool *ok) {
    struct budget_gaps *x = c->x;
    struct budget_cuts *cuts = c->cuts;
    const struct budget_graph *g = x->g;
    size_t n_stack = 0;
    cut->first = (int32_t) cuts->n_ops;
    cut->cost = 0;
    x->stamp++;
    // An entry below 0 is a value whose sources were already pushed.
    if (!BERTH_GROW(&cuts->stack, &cuts->stack_cap, 2)) {
        return false;
    }
    cuts->stack[n_stack++] = value;
    *ok = true;
    while (n_stack > 0 && *ok) {
        const int32_t top = cuts->stack[--n_stack], i = top < 0 ? -1 - top : top;
        if (x->mark[i] == x->stamp) {
            continue;
        }
        if (top < 0) {
            x->mark[i] = x->stamp;
            cut->cost += g->cost[i];
            if (!BERTH_GROW(&cuts->ops, &cuts->ops_cap, cuts->n_ops + 1)) {
                return false;
            }
            cuts->ops[cuts->n_ops++] = i;
            *ok = cuts->n_ops - (size_t) cut->first < CASCADE_MAX;
            continue;
        }
        const size_t n_srcs = (size_t) (g->srcs.start[i + 1] - g->srcs.start[i]);
        *g->work += CASCADE_WORK * (int64_t) (n_srcs + 1);
        if (!BERTH_GROW(&cuts->stack, &cuts->stack_cap, n_stack + n_srcs + 2)) {
            return false;
        }
        cuts->stack[n_stack++] = -1 - i;
        bool has_failed = n_stack > 8 * CASCADE_MAX;
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
            if (!src_is_there(c, g->srcs.at[k], cut->b, &has_failed)) {
                cuts->stack[n_stack++] = g->srcs.at[k];
            }
        }
        *ok = !has_failed;
    }
    cut->n = (int32_t) cuts->n_ops - cut->first;
    return true;
}

void budget_cuts_fini(struct budget_cuts *c) {
    berth_free(c->at);
    berth_free(c->ops);
    berth_free(c->stack);
    *c = (struct budget_cuts){0};
}

static int by_score(const void *a, const void *b) {
    const struct budget_cut *x = a, *y = b;
    if (x->score != y->score) {
        return x->score < y->score ? -1 : 1;
    }
    return (x->instance > y->instance) - (x->instance < y->instance);
}

// Sets cut->a and cut->b to the uses of the instance before and after the step. Returns false if the step itself uses the
// instance, or if the instance does not exist at the step.
static bool gap_around(const struct budget_gaps *x, int32_t instance, int32_t step, struct budget_cut *cut) {
    const int32_t made = instance < x->g->n ? -1 : instance - x->g->n;
    if (made >= step || x->t.last[instance] <= step) {
        return false;
    }
    cut->a = made;
    cut->b = (int32_t) x->s->n;
    for (int32_t j = x->read_start[instance]; j < x->read_start[instance + 1]; j++) {
        const int32_t at = x->reads[j];
        if (at == step) {
            return false;
        }
        if (at < step) {
            cut->a = at;
        }
        if (at > step) {
            cut->b = at;
            break;
        }
    }
    return true;
}

static bool cut_rate(
    struct cascade *c, const struct budget_style *style, int32_t step, uint64_t excess, struct budget_cut *cut, bool *ok) {
    struct budget_gaps *x = c->x;
    const struct budget_graph *g = x->g;
    const int32_t value = budget_value(g, x->s, cut->instance);
    const size_t p = (size_t) g->n_pools;
    c->penalty = 0;
    c->stays = 0;
    c->step = step;
    *ok = false;
    if (can_make(x, value, cut->b) && !cascade_find(c, cut, value, ok)) {
        return false;
    }
    const uint64_t spill = 2 * budget_spill_cost(g, value);
    cut->is_spill = false;
    cut->freed = (int64_t) g->size[value] - c->stays;
    if (g->spill_pool[value] >= 0 && (!*ok || cut->freed <= 0 || (double) spill < (double) cut->cost + c->penalty)) {
        cut->is_spill = *ok = true;
        cut->cost = spill;
        cut->freed = (int64_t) g->size[value];
        c->penalty = 0;
    }
    *ok = *ok && cut->freed > 0;
    if (*ok) {
        const int32_t n_over =
            x->n_over[(size_t) cut->b * p + (size_t) cut->pool] - x->n_over[(size_t) (cut->a + 1) * p + (size_t) cut->pool];
        const double bytes = (uint64_t) cut->freed > excess && excess > 0 ? (double) excess : (double) cut->freed;
        const double reach = 1 + style->reach * (n_over > 1 ? (double) (n_over - 1) : 0);
        cut->score = ((double) cut->cost + c->penalty + 1e-3) / (bytes * reach);
    }
    return true;
}

static double byte_cost(const struct budget_graph *g, const struct budget_style *style) {
    double bytes = 1;
    for (int32_t i = 0; i < g->n; i++) {
        bytes += (double) g->size[i];
    }
    return style->lambda * (double) g->cost_once / bytes;
}

bool budget_cuts_find(struct budget_gaps *x, const struct budget_style *style, int32_t step, int32_t pool, uint64_t excess,
    struct budget_cuts *cuts) {
    const struct budget_graph *g = x->g;
    struct cascade c = {.x = x, .cuts = cuts, .byte_cost = byte_cost(g, style)};
    cuts->n = cuts->n_ops = 0;
    for (int32_t instance = 0; instance < g->n + step; instance++) {
        struct budget_cut cut = {.instance = instance, .pool = pool};
        const int32_t value = budget_value(g, x->s, instance);
        const bool is_in = instance < g->n ? budget_is_input(g, value) : is_home(x, instance - g->n);
        if (!is_in || g->pool[value] != pool || g->size[value] == 0 || x->t.last[instance] <= step ||
            (!g->can_recompute[value] && g->spill_pool[value] < 0) || !gap_around(x, instance, step, &cut)) {
            continue;
        }
        bool ok;
        const size_t n_ops = cuts->n_ops;
        if (!cut_rate(&c, style, step, excess, &cut, &ok) || !BERTH_GROW(&cuts->at, &cuts->cap, cuts->n + 1)) {
            return false;
        }
        if (ok) {
            cuts->at[cuts->n++] = cut;
        } else {
            cuts->n_ops = n_ops;
        }
    }
    if (cuts->n > 0) {
        qsort(cuts->at, cuts->n, sizeof *cuts->at, by_score);
    }
    return true;
}

// ---- applying cuts ----

// A step to insert before step `before` of the schedule. Steps with the same `before` are inserted by rising `rank`.
struct insert {
    int32_t before, rank;
    struct berth_budget_step step;
};

struct inserts {
    struct insert *at;
    size_t n, cap;
};

static bool insert_put(struct inserts *in, int32_t before, int32_t op, enum berth_budget_kind kind) {
    if (!BERTH_GROW(&in->at, &in->cap, in->n + 1)) {
        return false;
    }
    in->at[in->n] = (struct insert){before, (int32_t) in->n, {op, kind}};
    in->n++;
    return true;
}

static int by_place(const void *a, const void *b) {
    const struct insert *x = a, *y = b;
    if (x->before != y->before) {
        return x->before < y->before ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : 1;
}

// Applies a cut: appends its steps to `in`. The cascade is computed again, because other cuts of this round may have changed
// which values are in memory. *ok: the cut was applied. False: out of memory.
static bool cut_apply(struct cascade *c, struct budget_cut *cut, struct inserts *in, bool *ok) {
    struct budget_gaps *x = c->x;
    const int32_t value = budget_value(x->g, x->s, cut->instance);
    const size_t n_ops = c->cuts->n_ops;
    *ok = x->lock[cut->instance] == 0;
    if (!*ok) {
        return true;
    }
    x->lock[cut->instance] = 2;
    if (cut->is_spill) {
        x->put_at[value] = cut->b;
        return insert_put(in, cut->a + 1, value, BERTH_BUDGET_SPILL) && insert_put(in, cut->b, value, BERTH_BUDGET_RESTORE);
    }
    c->is_final = true;
    bool has_memory = cascade_find(c, cut, value, ok);
    const int32_t *ops = &c->cuts->ops[cut->first];
    for (int32_t k = 0; has_memory && *ok && k < cut->n; k++) {
        has_memory = insert_put(in, cut->b, ops[k], BERTH_BUDGET_RUN);
        x->put_at[ops[k]] = cut->b;
    }
    x->lock[cut->instance] = *ok ? 2 : 1;
    c->cuts->n_ops = n_ops;
    return has_memory;
}

static bool steps_merge(const struct budget_steps *s, struct inserts *in, struct budget_steps *out) {
    size_t at = 0;
    out->n = 0;
    if (in->n > 0) {
        qsort(in->at, in->n, sizeof *in->at, by_place);
    }
    for (size_t k = 0; k <= s->n; k++) {
        for (; at < in->n && (size_t) in->at[at].before == k; at++) {
            if (!budget_put(out, in->at[at].step.op, in->at[at].step.kind)) {
                return false;
            }
        }
        if (k < s->n && !budget_put(out, s->at[k].op, s->at[k].kind)) {
            return false;
        }
    }
    return true;
}

bool budget_cuts_apply(struct budget_gaps *x, struct budget_cuts *cuts, const struct budget_style *style, size_t first,
    uint64_t excess, struct budget_steps *out) {
    struct cascade c = {.x = x, .cuts = cuts, .byte_cost = byte_cost(x->g, style)};
    struct inserts in = {0};
    int64_t freed = 0;
    bool has_memory = true, ok;
    cuts->n_done = 0;
    for (size_t k = first; has_memory && k < cuts->n && (freed < (int64_t) excess || cuts->n_done == 0); k++) {
        has_memory = cut_apply(&c, &cuts->at[k], &in, &ok);
        freed += ok ? cuts->at[k].freed : 0;
        cuts->n_done += ok;
    }
    if (has_memory) {
        has_memory = steps_merge(x->s, &in, out);
    }
    berth_free(in.at);
    return has_memory;
}

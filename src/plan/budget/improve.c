// SPDX-License-Identifier: MIT
// improve.c: local search on a schedule that fits. It removes steps that restore a value, if the value can stay in memory
// instead. The most expensive steps are removed first. Then it repeats kicks: a kick cuts a random value at a random step, and
// restoring steps are removed again. A kick is kept if the cost does not rise, and sometimes if the cost rises a little.

#include "plan/budget/budget.h"

#include <stdlib.h>
#include <string.h>

struct removable {
    int32_t step;  // step that recomputes a value or reads it back
    double weight; // cost per byte, with random noise
};

struct improver {
    const struct budget_graph *g;
    struct budget_gaps x;
    struct budget_cuts cuts;
    struct budget_steps next, best;
    struct removable *removables;
    size_t removables_cap;
    bool *is_removed; // [steps] the step is removed
    size_t is_removed_cap;
    uint64_t random;
};

static uint64_t random_next(struct improver *m) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random >> 11;
}

static int by_weight(const void *a, const void *b) {
    const struct removable *x = a, *y = b;
    if (x->weight != y->weight) {
        return x->weight > y->weight ? -1 : 1;
    }
    return x->step < y->step ? -1 : 1;
}

// Returns the last instance before step k of the value that step k makes, -1: none.
static int32_t instance_before(const struct budget_gaps *x, int32_t k) {
    const int32_t value = x->s->at[k].op;
    int32_t found = -1;
    for (int32_t j = x->made_start[value]; j < x->made_start[value + 1] && x->made[j] < x->g->n + k; j++) {
        found = x->made[j];
    }
    return found;
}

// Removes step k if the previous instance of its value can stay in memory until step k. Returns true if the step is removed.
static bool removal_try(struct improver *m, int32_t k) {
    struct budget_gaps *x = &m->x;
    const int32_t value = x->s->at[k].op, before = instance_before(x, k), pool = m->g->pool[value];
    const size_t p = (size_t) m->g->n_pools;
    const uint64_t limit = m->g->pools[pool].limit, size = m->g->size[value];
    if (before < 0 || (before >= m->g->n && m->is_removed[before - m->g->n])) {
        return false;
    }
    const int32_t last = x->t.last[before];
    if (last >= 0 && x->t.taken[last] == before) {
        return false; // the memory of that instance was taken over
    }
    int32_t free_to = last + 1;
    while (free_to < k && x->t.live[(size_t) free_to * p + (size_t) pool] + size <= limit) {
        free_to++;
    }
    *m->g->work += free_to - last;
    if (free_to < k) {
        return false;
    }
    for (int32_t at = last + 1; at < k; at++) {
        x->t.live[(size_t) at * p + (size_t) pool] += size;
    }
    x->t.last[before] = x->t.last[m->g->n + k];
    m->is_removed[k] = true;
    return true;
}

static void removed_drop(struct improver *m, struct budget_steps *s) {
    size_t n = 0;
    for (size_t k = 0; k < s->n; k++) {
        s->at[n] = s->at[k];
        n += !m->is_removed[k];
    }
    s->n = n;
}

// Tries to remove every restoring step once. *n_done: number of steps removed. is_noisy: in a partly random order. False: out of
// memory.
static bool removals_round(struct improver *m, struct budget_steps *s, bool is_noisy, int32_t *n_done) {
    *n_done = 0;
    if (!budget_gaps_find(&m->x, m->g, s) || !BERTH_GROW(&m->removables, &m->removables_cap, s->n + 1) ||
        !BERTH_GROW(&m->is_removed, &m->is_removed_cap, s->n + 1)) {
        return false;
    }
    memset(m->is_removed, 0, s->n * sizeof *m->is_removed);
    size_t n = 0;
    for (int32_t k = 0; k < (int32_t) s->n; k++) {
        const int32_t op = s->at[k].op;
        if (s->at[k].kind == BERTH_BUDGET_SPILL || m->x.made[m->x.made_start[op]] == m->g->n + k) {
            continue;
        }
        const double cost =
            s->at[k].kind == BERTH_BUDGET_RUN ? (double) m->g->cost[op] : 2 * (double) budget_spill_cost(m->g, op);
        const double noise = is_noisy ? 0.25 + (double) (random_next(m) % 1024) / 512 : 1;
        m->removables[n++] = (struct removable){k, noise * cost / (1 + (double) m->g->size[op])};
    }
    if (n > 0) {
        qsort(m->removables, n, sizeof *m->removables, by_weight);
    }
    for (size_t i = 0; i < n; i++) {
        *n_done += removal_try(m, m->removables[i].step);
    }
    removed_drop(m, s);
    return budget_sweep(m->g, s);
}

static bool removals_all(struct improver *m, struct budget_steps *s, bool is_noisy) {
    int32_t n_done = 1;
    bool ok = true;
    while (ok && n_done > 0) {
        ok = removals_round(m, s, is_noisy, &n_done);
    }
    return ok;
}

static bool steps_fit(struct improver *m, const struct budget_steps *s, bool *ok) {
    *ok = budget_trace(m->g, s, &m->x.t);
    return *ok && m->x.t.fault < 0 && budget_excess(m->g, &m->x.t, s->n).most == 0;
}

// Adds one cut at a random step. *is_done: there was a possible cut.
static bool steps_kick(struct improver *m, const struct budget_steps *s, struct budget_steps *out, bool *is_done) {
    const struct budget_style style = {.reach = 0, .lambda = (double) (random_next(m) % 4)};
    const int32_t step = (int32_t) (random_next(m) % (s->n + 1)), pool = (int32_t) (random_next(m) % (uint64_t) m->g->n_pools);
    *is_done = false;
    if (!budget_gaps_find(&m->x, m->g, s) || !budget_cuts_find(&m->x, &style, step, pool, 0, &m->cuts)) {
        return false;
    }
    if (m->cuts.n == 0) {
        return true;
    }
    const uint64_t among = m->cuts.n < 8 || random_next(m) % 4 == 0 ? m->cuts.n : 8;
    if (!budget_cuts_apply(&m->x, &m->cuts, &style, (size_t) (random_next(m) % among), 0, out)) {
        return false;
    }
    *is_done = m->cuts.n_done > 0;
    return true;
}

static bool kicks_search(struct improver *m, int64_t end_us, int64_t max_kicks, struct budget_steps *s) {
    static const struct budget_style style = {.reach = 0.1, .lambda = 1};
    const struct budget_end end = {.work = INT64_MAX, .us = end_us};
    uint64_t cost = budget_cost(m->g, s), best = cost;
    bool ok = budget_copy(&m->best, s), is_done;
    for (int64_t round = 0; ok && round < max_kicks && ggml_time_us() < end_us && best > m->g->cost_once; round++) {
        ok = steps_kick(m, s, &m->next, &is_done);
        for (uint64_t more = random_next(m) % 3; ok && is_done && more > 0; more--) {
            struct budget_steps kicked = {0};
            ok = steps_kick(m, &m->next, &kicked, &is_done) && (!is_done || budget_copy(&m->next, &kicked));
            is_done = true;
            berth_free(kicked.at);
        }
        if (!ok || !is_done) {
            continue;
        }
        const enum budget_answer answer = budget_trim(m->g, &style, &end, &m->next);
        ok = answer != BUDGET_OUT_OF_MEMORY && (answer != BUDGET_FOUND || removals_all(m, &m->next, true));
        if (!ok || answer != BUDGET_FOUND || !steps_fit(m, &m->next, &ok)) {
            continue;
        }
        const uint64_t found = budget_cost(m->g, &m->next);
        const bool takes = found <= cost || (found - best < (best - m->g->cost_once) / 32 + 1 && random_next(m) % 8 == 0);
        if (takes) {
            cost = found;
            ok = budget_copy(s, &m->next);
        }
        if (ok && found < best) {
            best = found;
            ok = budget_copy(&m->best, &m->next);
        } else if (ok && round % 256 == 255) {
            cost = best;
            ok = budget_copy(s, &m->best);
        }
    }
    return ok && budget_copy(s, &m->best);
}

enum budget_answer budget_improve(
    const struct budget_graph *g, uint64_t seed, int64_t end_us, int64_t max_kicks, struct budget_steps *s) {
    struct improver m = {.g = g, .random = seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u};
    struct budget_steps first = {0};
    bool ok = budget_copy(&first, s) && removals_all(&m, s, false), is_sound;
    if (ok && !steps_fit(&m, s, &is_sound)) { // removing runs can change which results take over memory
        ok = is_sound && budget_copy(s, &first);
    }
    if (ok) {
        ok = kicks_search(&m, end_us, max_kicks, s);
    }
    budget_gaps_fini(&m.x);
    budget_cuts_fini(&m.cuts);
    berth_free(m.next.at);
    berth_free(m.best.at);
    berth_free(m.removables);
    berth_free(m.is_removed);
    berth_free(first.at);
    return ok ? BUDGET_FOUND : BUDGET_OUT_OF_MEMORY;
}

// SPDX-License-Identifier: MIT
// states.c: what can follow a state, and what it costs at least to come to the end from it.

#include "plan/budget/states.h"

#define BIT(i) ((uint64_t) 1 << (i))

bool budget_words_init(struct budget_words *w, const struct budget_graph *g) {
    *w = (struct budget_words){.g = g};
    for (int32_t i = 0; i < g->n && g->n <= BUDGET_WORD; i++) {
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
            w->srcs[i] |= BIT(g->srcs.at[k]);
            w->takeover[i] |= (g->takeover[i] >> (k - g->srcs.start[i]) & 1) != 0 ? BIT(g->srcs.at[k]) : 0;
        }
        for (int32_t k = g->readers.start[i]; k < g->readers.start[i + 1]; k++) {
            w->readers[i] |= BIT(g->readers.at[k]);
        }
        if (g->until[i] >= 0) {
            w->ends[g->until[i]] |= BIT(i);
        }
        w->spill[i] = budget_spill_cost(g, i);
        w->inputs |= budget_is_input(g, i) ? BIT(i) : 0;
        w->keep |= g->keep[i] ? BIT(i) : 0;
        w->again |= g->again[i] ? BIT(i) : 0;
        w->sized |= g->size[i] > 0 ? BIT(i) : 0;
        w->mobile |= g->size[i] > 0 && g->away[i] >= 0 ? BIT(i) : 0;
    }
    return g->n <= BUDGET_WORD;
}

struct budget_state budget_first(const struct budget_words *w) {
    return (struct budget_state){.live = w->inputs, .done = w->inputs};
}

static uint64_t all_once(const struct budget_words *w) {
    const int32_t n = w->g->n;
    return (n == BUDGET_WORD ? UINT64_MAX : BIT(n) - 1) & ~w->again;
}

bool budget_is_goal(const struct budget_words *w, const struct budget_state *s) {
    return (all_once(w) & ~s->done) == 0 && (w->keep & ~s->live) == 0;
}

// Ops that may not run any more, for what has run.
static uint64_t ended_find(const struct budget_words *w, uint64_t done) {
    uint64_t ended = 0;
    for (uint64_t left = done & ~w->inputs; left != 0; left &= left - 1) {
        ended |= w->ends[__builtin_ctzll(left)];
    }
    return ended;
}

// Ops that will not run again, whatever follows.
static uint64_t finished_find(const struct budget_words *w, uint64_t done) {
    uint64_t finished = ended_find(w, done);
    for (int32_t i = w->g->n; i-- > 0;) {
        const bool is_read = (w->readers[i] & ~finished) != 0;
        if ((w->again & BIT(i)) == 0) {
            finished |= done & BIT(i);
        } else if (!is_read) {
            finished |= BIT(i);
        }
    }
    return finished;
}

// Values that nobody will read again, whatever follows.
static uint64_t dead_find(const struct budget_words *w, uint64_t done) {
    const uint64_t finished = finished_find(w, done);
    uint64_t dead = 0;
    for (int32_t i = 0; i < w->g->n; i++) {
        dead |= (w->readers[i] & ~finished) == 0 && (w->keep & BIT(i)) == 0 ? BIT(i) : 0;
    }
    return dead;
}

uint64_t budget_to_go(const struct budget_words *w, const struct budget_state *s) {
    uint64_t need = all_once(w) & ~s->done, moved = w->keep & s->done & ~s->live, cost = 0;
    for (int32_t i = w->g->n; i-- > 0;) {
        if ((need & BIT(i)) == 0 || (w->inputs & BIT(i)) != 0) {
            continue;
        }
        const uint64_t lacking = w->srcs[i] & ~s->live;
        need |= lacking & ~s->out;
        moved |= lacking & s->out;
        cost += w->g->cost[i];
    }
    if ((need & (s->done | ended_find(w, s->done))) != 0) {
        return BUDGET_NO; // gone for good
    }
    for (int32_t i = 0; moved != 0 && i < w->g->n; i++) {
        const bool may_run = (w->again & BIT(i)) != 0 && w->g->cost[i] < w->spill[i];
        if ((moved & BIT(i)) != 0) {
            cost += may_run ? w->g->cost[i] : w->spill[i];
        }
    }
    return cost;
}

// ---- moves ----

static uint64_t bytes_in(const struct budget_words *w, const struct budget_state *s, int32_t pool) {
    uint64_t sum = 0;
    for (uint64_t left = s->live; left != 0; left &= left - 1) {
        const int32_t i = __builtin_ctzll(left);
        sum += w->g->pool[i] == pool ? w->g->size[i] : 0;
    }
    for (uint64_t left = s->out; left != 0; left &= left - 1) {
        const int32_t i = __builtin_ctzll(left);
        sum += w->g->away[i] == pool ? w->g->size[i] : 0;
    }
    return sum;
}

static bool move_put(struct budget_moves *m, struct budget_state to, int32_t op, enum berth_budget_kind kind, uint64_t cost) {
    if (!berth_grow((void **) &m->at, &m->cap, m->n + 1, sizeof *m->at)) {
        return false;
    }
    m->at[m->n++] = (struct budget_move){to, {op, kind}, cost};
    return true;
}

// The op with each choice of sources that go behind it.
static bool runs_find(const struct budget_words *w, const struct budget_state *s, int32_t i, struct budget_moves *m) {
    const struct budget_graph *g = w->g;
    struct budget_state to = {s->live | BIT(i), s->out, s->done | (BIT(i) & ~w->again)};
    const uint64_t dead = dead_find(w, to.done), limit = g->pools[g->pool[i]].limit, bytes = bytes_in(w, s, g->pool[i]);
    const uint64_t may_go = w->srcs[i] & w->sized & ~dead & (~w->keep | s->out);
    uint64_t go = 0;
    if ((dead & BIT(i)) != 0 && (w->again & BIT(i)) != 0) {
        return true; // for nothing
    }
    do { // every subset of may_go
        const bool takes = (w->takeover[i] & (go | dead)) != 0;
        const struct budget_state then = {to.live & ~go & ~dead, to.out & ~dead, to.done};
        if (bytes + (takes ? 0 : g->size[i]) <= limit && !move_put(m, then, i, BERTH_BUDGET_RUN, g->cost[i])) {
            return false;
        }
        go = (go - may_go) & may_go;
    } while (go != 0);
    return true;
}

static bool spills_find(const struct budget_words *w, const struct budget_state *s, int32_t i, struct budget_moves *m) {
    const struct budget_graph *g = w->g;
    const int32_t home = g->pool[i], away = g->away[i];
    bool ok = true;
    if ((s->live & ~s->out & BIT(i)) != 0 && bytes_in(w, s, away) + g->size[i] <= g->pools[away].limit) {
        const struct budget_state stays = {s->live, s->out | BIT(i), s->done}, goes = {s->live & ~BIT(i), stays.out, s->done};
        ok = move_put(m, goes, i, BERTH_BUDGET_OUT, w->spill[i]) && move_put(m, stays, i, BERTH_BUDGET_OUT, w->spill[i]);
    }
    if ((s->out & ~s->live & BIT(i)) != 0 && bytes_in(w, s, home) + g->size[i] <= g->pools[home].limit) {
        const struct budget_state stays = {s->live | BIT(i), s->out, s->done}, goes = {stays.live, s->out & ~BIT(i), s->done};
        ok = move_put(m, goes, i, BERTH_BUDGET_IN, w->spill[i]) && move_put(m, stays, i, BERTH_BUDGET_IN, w->spill[i]);
    }
    return ok;
}

static bool is_turn(const struct budget_words *w, const struct budget_state *s, uint64_t over, int32_t i) {
    const int32_t before = w->g->once_before[i];
    return ((over | s->live) & BIT(i)) == 0 && (before < 0 || (s->done & BIT(before)) != 0) && (w->srcs[i] & ~s->live) == 0;
}

// An op that has to run once, takes no bytes and ends nothing that could run again loses nothing by running now. -1: none.
static int32_t forced_find(const struct budget_words *w, const struct budget_state *s, uint64_t over) {
    const uint64_t finished = finished_find(w, s->done);
    for (uint64_t left = all_once(w) & ~s->done & ~w->sized; left != 0; left &= left - 1) {
        const int32_t i = __builtin_ctzll(left);
        if (is_turn(w, s, over, i) && (w->ends[i] & ~finished) == 0) {
            return i;
        }
    }
    return -1;
}

bool budget_moves_find(const struct budget_words *w, const struct budget_state *s, struct budget_moves *m) {
    const struct budget_graph *g = w->g;
    const uint64_t over = s->done | ended_find(w, s->done);
    const int32_t forced = forced_find(w, s, over);
    bool ok = true;
    m->n = 0;
    if (forced >= 0) {
        return runs_find(w, s, forced, m);
    }
    for (int32_t i = 0; ok && i < g->n; i++) {
        if (is_turn(w, s, over, i)) {
            ok = runs_find(w, s, i, m);
        }
        if (ok && (w->mobile & BIT(i)) != 0 && ((s->live | s->out) & BIT(i)) != 0) {
            ok = spills_find(w, s, i, m);
        }
    }
    return ok;
}

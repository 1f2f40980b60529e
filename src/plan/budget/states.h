// SPDX-License-Identifier: MIT
// states.h: small graphs as words: a state is which values are there, which have a copy outside, and which ops that run once have
// run. What one can do from a state depends on nothing else, so that exact searches work on states.
#pragma once

#include "plan/budget/budget.h"

#define BUDGET_WORD 64       // most ops
#define BUDGET_NO UINT64_MAX // no way from here

struct budget_state {
    uint64_t live, out, done; // done: of those that run once
};

struct budget_words {
    const struct budget_graph *g;
    uint64_t srcs[BUDGET_WORD], readers[BUDGET_WORD], takeover[BUDGET_WORD];
    uint64_t ends[BUDGET_WORD];  // ops that may not run any more once this one has
    uint64_t spill[BUDGET_WORD]; // cost of one way
    uint64_t inputs, keep, again, sized, mobile;
};

struct budget_move {
    struct budget_state to;
    struct berth_budget_step step;
    uint64_t cost;
};

// At most this many moves from a state.
struct budget_moves {
    struct budget_move *at;
    size_t n, cap;
};

bool budget_words_init(struct budget_words *w, const struct budget_graph *g); // false: too large
struct budget_state budget_first(const struct budget_words *w);
bool budget_is_goal(const struct budget_words *w, const struct budget_state *s);
// No way from here to the goal costs less; BUDGET_NO: there is none.
uint64_t budget_to_go(const struct budget_words *w, const struct budget_state *s);
// Every sensible step from a state. Values go right behind a step that reads them, those that nobody can need at once. False: out
// of memory.
bool budget_moves_find(const struct budget_words *w, const struct budget_state *s, struct budget_moves *moves) BERTH_MUST_USE;

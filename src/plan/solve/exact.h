// SPDX-License-Identifier: MIT
// exact.h: the yes/no question "does this fit into C units?" by branch and bound; plain problems only.
#pragma once

#include "plan/solve/plan.h"

#include <stdatomic.h>

enum exact_answer {
    EXACT_FITS,    // a plan was found
    EXACT_NO,      // there is none; next is the least capacity that this proof does not rule out
    EXACT_UNKNOWN, // out of nodes or time
};

// Rules that prune. All are on but in tests, where each is switched off in turn.
enum exact_rule {
    EXACT_DOMINANCE = 1, // a block that nothing keeps from sliding to its sky lies there
    EXACT_LONELY = 2,    // a candidate that no unplaced neighbour can get under is never at fault
    EXACT_SPLIT = 4,     // parts of time that nothing unplaced connects are searched apart
    EXACT_NOT_FIRST = 8, // a block that cannot be lowest in a section lies above one that can
    EXACT_STRAND = 16,   // a block that cannot lie at its sky rests on an unplaced neighbour
    EXACT_THROUGH = 32,  // a block that lives as long as its part lies at the bottom
    EXACT_HEADS = 64,    // some of a section's blocks need their room above the lowest of them
    EXACT_TWINS = 128,   // of equal blocks the one of the lower number lies lower
    EXACT_SORTED = 256,  // of two blocks of one life, one right on the other, the larger lies below
    EXACT_BORDERS = 512, // what begins where a full section ends lies where something ended, and the other way round
    EXACT_N_RULES = 10,
    EXACT_ALL = (1 << EXACT_N_RULES) - 1,
};

struct exact; // the search's memory for one problem

// Pairs of blocks that live together: what exact_new's lists hold twice. INT64_MAX: out of memory. With more than EXACT_PAIRS_MAX
// there is no search.
#define EXACT_PAIRS_MAX (1 << 25)
int64_t berth_exact_pairs(const struct plan_prob *p);
#define EXACT_PAIR_NS 12 // what a pair costs in exact_new

// NULL: out of memory, or the problem is too large for lists of neighbours.
struct exact *berth_exact_new(const struct plan_prob *p) BERTH_MUST_USE;
void berth_exact_free(struct exact *x);

#define EXACT_N_PREORDERS PLAN_LWA // the priorities before it

// By the least slack, the floor, the sections, or what blame says of them.
enum exact_valley { EXACT_TIGHTEST, EXACT_LOWEST, EXACT_NARROWEST, EXACT_BLAMED, EXACT_N_VALLEYS };

struct exact_ask {
    int64_t cap; // units
    enum plan_priority preorder;
    enum exact_valley valley; // which one is worked on first
    unsigned rules;           // EXACT_ALL
    float *blame;             // [n + n_sec] grows for what is still to place where a section fails, and for it; NULL: not noted
    float weight;             // of blame: who has the most counts as 1 + weight times as large in the preorder
    int32_t width;            // states a level of a search in breadth; 0: in depth
    int64_t max_nodes;        // ends the search
    int64_t deadline_us;      // of plan_now_us(); INT64_MAX: none
    struct plan_work *work;   // grows by what the nodes cost, and is the deadline's clock; NULL: not counted
    const atomic_bool *stop;  // ends the search when true; NULL: none
    struct plan_watch *watch; // may end it too; NULL: none
};

// off is filled if the answer is EXACT_FITS. *next: see EXACT_NO. *n_nodes is increased. *is_late: the clock or stop ended it.
enum exact_answer berth_exact_ask(
    struct exact *x, const struct exact_ask *ask, int64_t *off, int64_t *next, int64_t *n_nodes, bool *is_late);

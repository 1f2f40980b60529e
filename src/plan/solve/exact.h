// SPDX-License-Identifier: MIT
// exact.h: answers the question "does this plain problem fit into C units?" by branch and bound. An ask is one such question.
#pragma once

#include "plan/solve/plan.h"
#include "plan/solve/proof.h"

#include <stdatomic.h>

enum exact_answer {
    EXACT_FITS,    // a plan was found
    EXACT_NO,      // there is no plan; next is the least capacity that this proof does not rule out
    EXACT_UNKNOWN, // the node limit or the time limit ended the search
};

// Pruning rules. Each comment is a fact that may be assumed without losing all plans. Tests switch off single rules.
// exact_state.h defines neighbour, sky, candidate and part.
enum exact_rule {
    EXACT_DOMINANCE = 1,  // if no unplaced neighbour keeps a block from sliding down to its sky, the block is at its sky
    EXACT_SKY_ONLY = 2,   // a candidate is tried above its sky only if an unplaced neighbour could be between it and its sky
    EXACT_SPLIT = 4,      // disconnected ranges of sections are searched separately
    EXACT_NOT_FIRST = 8,  // a block that cannot be the lowest of a section is above a block that can
    EXACT_RESTING = 16,   // a block that cannot be at its sky rests on an unplaced neighbour
    EXACT_PART_WIDE = 32, // a block that is alive in all sections of its part is at the bottom; in a proof, the largest one
    EXACT_SUBSETS = 64,   // any subset of a section's unplaced blocks must fit between the least low of the subset and C
    EXACT_TWINS = 128,    // of equal blocks, the one with the lower number is lower
    EXACT_SORTED = 256,   // if a block is directly on another one with the same lifetime, the lower block is not smaller
    EXACT_BORDERS = 512,  // in sections with little slack, a block that begins overlaps the addresses of a block that ends
    EXACT_N_RULES = 10,
    EXACT_ALL = (1 << EXACT_N_RULES) - 1,
};

struct exact; // memory of the search for one problem

// Returns the number of pairs of blocks that are alive together. INT64_MAX: out of memory. Problems with more than
// EXACT_PAIRS_MAX pairs are not searched.
#define EXACT_PAIRS_MAX (1 << 25)
int64_t berth_exact_pairs(const struct plan_prob *p);
#define EXACT_PAIR_NS 12 // counted work of berth_exact_new per pair

// NULL: out of memory, or too many pairs.
struct exact *berth_exact_new(const struct plan_prob *p) BERTH_MUST_USE;
void berth_exact_free(struct exact *x);

#define EXACT_N_PREORDERS PLAN_LWA // number of priorities that an ask can use: those before PLAN_LWA

// The valley that is filled first.
enum exact_valley { EXACT_TIGHTEST, EXACT_LOWEST, EXACT_NARROWEST, EXACT_BLAMED, EXACT_N_VALLEYS };

struct exact_ask {
    int64_t cap;                 // units
    enum plan_priority preorder; // the order in which the candidates of a valley are tried
    enum exact_valley valley;    // the valley that is filled first
    unsigned rules;              // EXACT_ALL, or fewer rules in tests
    // If a section cannot hold its unplaced blocks, the blame of these blocks and of the section grows by 1.
    float *blame;                // [n + n_sec] of blocks, then sections; NULL: not counted
    float weight;                // for the preorder, the size of the most blamed block counts as size * (1 + weight)
    int32_t width;               // beam width; 0: depth first
    int64_t max_nodes;           // node limit
    int64_t deadline_us;         // on the clock of plan_now_us(work); INT64_MAX: none
    struct plan_work *work;      // clock of the deadline; NULL: wall time
    const atomic_bool *stop;     // the search ends when this is true; NULL: none
    struct plan_watch *watch;    // callback that may end the search; NULL: none
    struct plan_proof *proof;    // if the answer is EXACT_NO, stores the log of the search here; NULL: no log
    struct plan_log_scope scope; // the blocks of the problem, for the proof
};

// Answers an ask. If the answer is EXACT_FITS, fills off. If the answer is EXACT_NO, sets *next. Adds the number of nodes to
// *n_nodes. *is_late: the deadline, stop or watch ended the search.
enum exact_answer berth_exact_ask(
    struct exact *x, const struct exact_ask *ask, int64_t *off, int64_t *next, int64_t *n_nodes, bool *is_late);

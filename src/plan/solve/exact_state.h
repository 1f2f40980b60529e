// SPDX-License-Identifier: MIT
// exact_state.h: the state of the exact search at a node of the search tree. exact_new.c allocates the state, exact_settle.c and
// exact_section.c derive conclusions from it, exact.c and beam.c walk the search tree. C is the capacity in units. Neighbours are
// blocks with a common section. A plan below a node is a plan that the remaining choices can still reach. A conclusion is a fact
// about all plans below a node, such as a higher low[i].
//
//   sky[i]     the highest end of a placed neighbour of block i; a block is always placed at its sky
//   low[i]     a lower bound of the offset of block i in all plans below this node; low[i] >= sky[i]
//   floor[s]   a lower bound of the offsets of all unplaced blocks in section s
//   rest[s]    the unplaced units of section s
//   slack[s]   the units that may stay unused in section s from now on: C - rest[s] - min(low) over its unplaced blocks
//   span[s]    the number of unplaced blocks that are alive in sections s - 1 and s
// A candidate is an unplaced block i with low[i] == sky[i] == floor[s] in all of its sections s. A part-wide block is a candidate
// that is alive in all sections of its part. Invariants at a node: slack >= 0; low[i] = EXACT_PLACED for placed blocks;
// max(floor) <= low[i] <= C - size[i] for unplaced blocks.
#pragma once

#include "base/min.h"
#include "plan/solve/exact.h"

#define EXACT_PLACED ((int64_t) 1 << 62)

// An entry of the trail, which is the undo log of the state.
struct exact_change {
    int64_t *at; // the changed number
    int64_t old; // its value before the change
};

// A part of the problem: unplaced blocks that are searched together, because no other unplaced block shares a section with them.
struct exact_part {
    size_t list; // the blocks are lists[list .. list + n); a block that is placed moves to the end of this range, and n falls
    int32_t n;
    int32_t lo, hi; // sections
};

struct exact {
    const struct plan_prob *p;
    struct berth_arrays mem; // owns all arrays except trail and lists, which grow
    int64_t *low;            // [n]
    int64_t *sky;            // [n]
    int64_t *rest;           // [n_sec]
    int64_t *span;           // [n_sec + 1]
    int64_t *floor;          // [n_sec]
    int64_t *slack;          // [n_sec]
    int64_t *off;            // [n] offsets of placed blocks
    int32_t *sec_at;         // [n_sec + 1] into sec_ids
    int32_t *sec_ids;        // blocks by section
    int32_t *begin_at;       // [n_sec + 2] into begin_ids
    int32_t *begin_ids;      // [n] blocks by first section
    int32_t *end_at;         // [n_sec + 2] into end_ids
    int32_t *end_ids;        // [n] blocks by end
    int32_t *near_at;        // [n + 1] into near_ids
    int32_t *near_ids;       // lists of neighbours
    int32_t *pre;            // [n] rank of the block in the preorder of its part; the preorder is the order by priority
    int32_t *pos;            // [n] index of the block in the list of its part
    int32_t *queue;          // [n_sec] ring of sections to check: n_queue sections from i_queue on
    bool *is_queued;         // [n_sec]
    int32_t n_queue, i_queue;
    int32_t *best_at; // [n_sec] candidate that starts in this section and has the best preorder, -1: none
    int32_t *n_at;    // [n_sec] number of candidates that start in this section
    int32_t *twin;    // [n] the equal block before i, -1: none
    int32_t *peer;    // [n] circular list of the blocks with the same lifetime; i: no other block
    int32_t *support; // [n] a neighbour on which i may rest, from the last search for one
    int32_t *blocker; // [n] a neighbour that may keep i from sliding to its sky, from the last search for one
    struct exact_change *trail;
    size_t n_trail, cap_trail;
    int32_t *lists; // stack of the block lists of the parts from the root to this node
    size_t n_lists, cap_lists;
    uint64_t *key; // [2n] scratch of the sort
    int32_t *tmp;  // [n] scratch of the sort
    int64_t *sums; // [2n] scratch of a section check
    const struct exact_ask *ask;
    int64_t next;        // the least capacity that the failures so far do not rule out
    int64_t n_nodes;     // of this ask
    int64_t n_inspected; // blocks and sections inspected since the last node: from ten to a million per node
    double blame_max;    // the largest blame of a block at the start of the ask, at least 1
    // berth_exact_note_candidates sets best_at, n_at and these three fields:
    int32_t part_wide_id;       // a part-wide block, -1: none
    int32_t noted_lo, noted_hi; // sections [noted_lo, noted_hi) of the part
    bool is_noted;              // best_at, n_at and part_wide_id are current
    bool is_late;               // the deadline or ask->stop ended the search
    bool is_out_of_memory;
};

// Adjacent sections with the same floor.
struct exact_run {
    int32_t lo, hi;
    int64_t floor, left, right; // left, right: floors of the adjacent sections, EXACT_PLACED at the ends of the part
    int32_t best;               // candidate in these sections with the best preorder, -1: none
};

// Returns whether value <= C. If not, records value as a candidate for next.
static inline bool exact_holds(struct exact *x, int64_t value) {
    if (value <= x->ask->cap) {
        return true;
    }
    x->next = min_i64(value, x->next);
    return false;
}

// ---- exact_settle.c ----

// Changes a number of the state and records the old value in the trail.
void berth_exact_set(struct exact *x, int64_t *at, int64_t value);
// Restores the numbers that were changed since the trail had the length mark.
void berth_exact_undo(struct exact *x, size_t mark);
// Raises low[i]. False: block i would then end above the capacity.
bool berth_exact_raise(struct exact *x, int32_t i, int64_t low);
// Places block i at its sky and derives no conclusions. Sets *has_split if there is now a border between two sections of i that no
// unplaced block crosses. False: some neighbour would end above the capacity.
bool berth_exact_place(struct exact *x, int32_t i, bool *has_split);
// Excludes plans in which a larger block with the same lifetime is directly on block i, which was just placed. Such a plan is not
// needed: the two blocks could be exchanged. False: one of the larger blocks would end above the capacity.
bool berth_exact_sort_on(struct exact *x, int32_t i);
// Fills best_at, n_at, part_wide_id, noted_lo and noted_hi for the candidates of a part.
void berth_exact_note_candidates(struct exact *x, struct exact_part part);
// Returns the run that begins at section s of [lo, hi). A border that no unplaced block crosses counts as an infinitely high side.
struct exact_run berth_exact_run_at(const struct exact *x, int32_t s, int32_t lo, int32_t hi);
// Derives all conclusions for a part, until nothing changes. False: there is no plan.
bool berth_exact_settle(struct exact *x, struct exact_part part);

// Takes the next section from the queue, which must not be empty.
int32_t berth_exact_queue_take(struct exact *x);

// ---- exact_section.c ----

// Checks the sections in the queue until it is empty. False: some section cannot hold its unplaced blocks.
bool berth_exact_propagate(struct exact *x);

// ---- exact.c ----

// Counts a node. True: nodes, time or memory are used up.
bool berth_exact_is_over(struct exact *x);
// Returns the block to branch on; -1: all blocks are placed.
int32_t berth_exact_choose(struct exact *x, struct exact_part part);
// Returns the part without block i. Block i moves to the end of the list, so the list of the parent node still contains it.
struct exact_part berth_exact_part_without(struct exact *x, struct exact_part part, int32_t i);
// Places block i at its sky and derives the conclusions for the part left. False: there is no such plan.
bool berth_exact_try(struct exact *x, int32_t i, bool is_part_wide, struct exact_part left, bool *has_split);
// Derives the conclusions from the fact that block i is above its sky, after trying it at its sky has failed and was undone.
bool berth_exact_try_higher(struct exact *x, int32_t i, bool is_part_wide, struct exact_part part);

// ---- beam.c ----

// Answers the current ask breadth first. On EXACT_FITS, x->off is a plan.
enum exact_answer berth_exact_beam(struct exact *x, int32_t width);

// SPDX-License-Identifier: MIT
// exact_state.h: the state of the exact search, which its files share: exact_new.c makes it, exact_settle.c and
// exact_section.c draw what follows from it, exact.c and beam.c walk the tree.
//
//   sky[i]     the highest end of a placed neighbour: where i would lie if placed now
//   low[i]     no plan below this node has i lower; low[i] >= sky[i]
//   floor[s]   nothing unplaced comes lower in section s
//   rest[s]    units of section s still to place; slack[s] = C - rest[s] - min(low): what it can still waste
//   span[s]    unplaced blocks alive both before and in section s
// Invariants at a node: low[i] = EXACT_PLACED for placed blocks; for unplaced ones max(floor) <= low[i] <= C - size[i]; slack >=
// 0.
#pragma once

#include "base/min.h"
#include "plan/solve/exact.h"

#define EXACT_PLACED ((int64_t) 1 << 62)

struct exact_change {
    int64_t *at;
    int64_t old;
};

// Blocks that are searched together.
struct exact_part {
    size_t list; // its unplaced blocks: lists[list .. list + n); what is placed moves behind the end
    int32_t n;
    int32_t lo, hi; // its sections
};

struct exact {
    const struct plan_prob *p;
    struct berth_arrays mem; // all arrays but trail and lists, which grow
    int64_t *low;            // [n]
    int64_t *sky;            // [n]
    int64_t *rest;           // [n_sec]
    int64_t *span;           // [n_sec + 1]
    int64_t *floor;          // [n_sec] nothing unplaced comes below this
    int64_t *slack;          // [n_sec] C - min(low) - rest: what section s can still waste
    int64_t *off;            // [n] offsets of placed blocks
    int32_t *sec_at;         // [n_sec + 1] into sec_ids
    int32_t *sec_ids;        // blocks by section
    int32_t *begin_at;       // [n_sec + 2] into begin_ids
    int32_t *begin_ids;      // [n] blocks by first section
    int32_t *end_at;         // [n_sec + 2] into end_ids
    int32_t *end_ids;        // [n] blocks by the section behind their last
    int32_t *near_at;        // [n + 1] into near_ids
    int32_t *near_ids;       // neighbours by block
    int32_t *pre;            // [n] place in the preorder of the block's part
    int32_t *pos;            // [n] place in its part's list, from the list's begin
    int32_t *queue;          // [n_sec] sections to look at, a ring: n_queue from i_queue on
    bool *is_queued;         // [n_sec]
    int32_t n_queue, i_queue;
    int32_t *best_at; // [n_sec] the candidate of the best preorder that starts here, -1: none
    int32_t *n_at;    // [n_sec] how many candidates start here
    int32_t *twin;    // [n] the equal block before i, -1: none
    int32_t *peer;    // [n] the next block of the same life, around; i itself: none
    int32_t *under;   // [n] a neighbour that i may rest on, the last time one was looked for
    int32_t *block;   // [n] a neighbour that may keep i from sliding to its sky, likewise
    struct exact_change *trail;
    size_t n_trail, cap_trail;
    int32_t *lists; // blocks of the parts on the way down, a stack
    size_t n_lists, cap_lists;
    uint64_t *key; // [2n] scratch of the sort
    int32_t *tmp;  // [n]
    int64_t *sums; // [2n] scratch of a section
    const struct exact_ask *ask;
    int64_t next;
    int64_t n_nodes;
    int64_t n_looks;  // at blocks and sections since the last node: the work of one is anything between ten and a million
    double blame_max; // the most that a block had when the ask began, 1 at least
    // Set by berth_exact_note_candidates, as best_at and n_at:
    int32_t through;            // a candidate that lives as long as its part, -1: none
    int32_t noted_lo, noted_hi; // the part's sections
    bool is_noted;              // nothing has changed since
    bool is_late;
    bool is_out_of_memory;
};

// A run of sections with one floor.
struct exact_run {
    int32_t lo, hi;
    int64_t floor, left, right; // left, right: the floors beside it, EXACT_PLACED at the ends of the part
    int32_t best;               // its candidate of the best preorder, -1: none
};

// value <= C? If not, notes it.
static inline bool exact_holds(struct exact *x, int64_t value) {
    if (value <= x->ask->cap) {
        return true;
    }
    x->next = min_i64(value, x->next);
    return false;
}

// ---- exact_settle.c ----

// Writes a number of the state, so that it can be taken back.
void berth_exact_set(struct exact *x, int64_t *at, int64_t value);
// Takes back what was written since the trail was as long as mark.
void berth_exact_undo(struct exact *x, size_t mark);
// Raises low[i]; false: there is no plan with it below the capacity.
bool berth_exact_raise(struct exact *x, int32_t i, int64_t low);
// Places i on the skyline. *has_split: a border of time is crossed no more. Conclusions are berth_exact_settle()'s.
bool berth_exact_place(struct exact *x, int32_t i, bool *has_split);
// i was placed by choice: no larger block of the same life lies right on it, for the two could change places.
bool berth_exact_sort_on(struct exact *x, int32_t i);
// Notes where the part's candidates start.
void berth_exact_note_candidates(struct exact *x, struct exact_part part);
// The run that begins at section s of [lo, hi). Borders that nothing unplaced crosses are walls.
struct exact_run berth_exact_run_at(const struct exact *x, int32_t s, int32_t lo, int32_t hi);
// Draws all conclusions for a part, until nothing moves.
bool berth_exact_settle(struct exact *x, struct exact_part part);

// The next section to look at, of n_queue.
int32_t berth_exact_queue_take(struct exact *x);

// ---- exact_section.c ----

// Looks at the sections in the queue until it is empty; false: one has not enough room.
bool berth_exact_propagate(struct exact *x);

// ---- exact.c ----

// Counts a node; true: nodes, time or memory are used up.
bool berth_exact_is_over(struct exact *x);
// The block to branch on; -1: there is nothing left.
int32_t berth_exact_choose(struct exact *x, struct exact_part part);
// The part after i is placed: i moves behind the end of the list, where the parent still finds it.
struct exact_part berth_exact_part_without(struct exact *x, struct exact_part part, int32_t i);
// Places i on its sky and settles what is left; false: that leads nowhere.
bool berth_exact_try(struct exact *x, int32_t i, bool is_through, struct exact_part left, bool *has_split);
// i, taken back, lies higher than its sky; false: that leads nowhere either.
bool berth_exact_try_higher(struct exact *x, int32_t i, bool is_through, struct exact_part part);

// ---- beam.c ----

// The ask in breadth, from the start. On EXACT_FITS x->off is a plan.
enum exact_answer berth_exact_beam(struct exact *x, int32_t width);

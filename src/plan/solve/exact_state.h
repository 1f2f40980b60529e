// SPDX-License-Identifier: MIT
// exact_state.h: the state of the exact search at a node of the search tree.
//
//   C          the capacity in units
//   neighbours blocks with a common section
//   part       unplaced blocks that share no section with other unplaced blocks; a part can be searched separately
//   conclusion a fact about all plans that are still possible at a node
//   sky[i]     the highest end of a placed neighbour of block i; a block is always placed at its sky
//   low[i]     a lower bound of the offset of block i; low[i] >= sky[i]
//   floor[s]   a lower bound of the offsets of all unplaced blocks in section s
//   rest[s]    the sum of the sizes of the unplaced blocks of section s
//   slack[s]   the units that may stay unused in section s: C - rest[s] - min(low) over its unplaced blocks
//   span[s]    the number of unplaced blocks that are alive in both sections s - 1 and s
//   candidate  an unplaced block that can be placed next: low[i] == sky[i] == floor[s] in all of its sections s
//   part-wide  a part-wide block is alive in all sections of its part
// Invariants: slack >= 0; low[i] = EXACT_PLACED for placed blocks; max(floor) <= low[i] <= C - size[i] for unplaced blocks.
#pragma once

#include "base/min.h"
#include "plan/solve/exact.h"

#define EXACT_PLACED ((int64_t) 1 << 62)

// An entry of the trail (undo log).
struct exact_change {
    int64_t *at; // the changed number
    int64_t old; // value before the change
};

struct exact_part {
    size_t list;    // the blocks are exact.lists[list .. list + n); a block that is placed moves to the end of the list
    int32_t n;      // number of unplaced blocks
    int32_t lo, hi; // the part has the sections [lo, hi)
};

struct exact {
    const struct plan_prob *p;
    struct berth_arrays mem; // owns all arrays except trail and lists
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
    int32_t *pre;            // [n] rank of the block by priority
    int32_t *pos;            // [n] index of the block in the list of its part
    int32_t *queue;          // [n_sec] ring of sections to check
    bool *is_queued;         // [n_sec]
    int32_t n_queue, i_queue;
    int32_t *best_at; // [n_sec] best candidate that starts here, -1: none
    int32_t *n_at;    // [n_sec] number of candidates that start here
    int32_t *twin;    // [n] the equal block before i, -1: none
    int32_t *peer;    // [n] next block with the same lifetime, as a circular list
    int32_t *support; // [n] neighbour on which block i may rest
    int32_t *blocker; // [n] neighbour that may keep block i from sliding down
    struct exact_change *trail;
    size_t n_trail, cap_trail;
    int32_t *lists; // stack of block lists, from the root on
    size_t n_lists, cap_lists;
    uint64_t *key; // [2n] scratch of the sort
    int32_t *tmp;  // [n] scratch of the sort
    int64_t *sums; // [2n] scratch of a section check
    const struct exact_ask *ask;
    struct plan_log *log; // of this ask; NULL: the ask needs no proof
    struct plan_log log_memory;
    int64_t next;        // least capacity that the search has not ruled out; see exact_holds
    int64_t n_nodes;     // number of nodes of this ask
    int64_t n_inspected; // blocks and sections inspected since the last node
    double blame_max;    // the largest blame of a block at the start of the ask, at least 1
    // Set by berth_exact_note_candidates:
    int32_t part_wide_id;       // the part-wide block that is placed next, -1: none, or no part-wide block is a candidate
    int32_t noted_lo, noted_hi; // sections [noted_lo, noted_hi) of the part
    bool is_noted;              // best_at, n_at and part_wide_id are current
    bool is_late;               // the deadline or ask->stop ended the search
    bool is_out_of_memory;
};

// Adjacent sections with the same floor.
struct exact_run {
    int32_t lo, hi;
    int64_t floor, left, right; // left, right: floors of the sections before and after the run, EXACT_PLACED: none
    int32_t best;               // candidate with the best preorder, -1: none
};

// Returns whether value <= C. If not, lowers next to value.
static inline bool exact_holds(struct exact *x, int64_t value) {
    if (value <= x->ask->cap) {
        return true;
    }
    x->next = min_i64(value, x->next);
    return false;
}

// Appends a step to the log, if there is one. docs/dev/proofs.md defines the letters.
static inline void exact_log(struct exact *x, char letter, int64_t arg) {
    if (x->log != NULL) {
        berth_plan_log_step(x->log, letter, &arg, 1);
    }
}

// ---- exact_settle.c ----

// Sets a number and logs its old value in the trail.
void berth_exact_set(struct exact *x, int64_t *at, int64_t value);
void berth_exact_undo(struct exact *x, size_t mark);
// Raises low[i]. False: block i would then end above the capacity.
bool berth_exact_raise(struct exact *x, int32_t i, int64_t low);
// Places block i at its sky without deriving conclusions. Sets *has_split to true if two adjacent sections of i now share no
// unplaced block. False: some neighbour would end above the capacity.
bool berth_exact_place(struct exact *x, int32_t i, bool *has_split);
// Excludes plans in which a larger block with the same lifetime is directly on block i, because exchanging the two blocks gives
// another plan with the same peak. False: one of the larger blocks would end above the capacity.
bool berth_exact_sort_on(struct exact *x, int32_t i);
// Finds the candidates of the part: fills best_at, n_at, part_wide_id, noted_lo and noted_hi.
void berth_exact_note_candidates(struct exact *x, struct exact_part part);
// Returns the run that begins at section s of [lo, hi). At a border that no unplaced block crosses, left or right is
// EXACT_PLACED.
struct exact_run berth_exact_run_at(const struct exact *x, int32_t s, int32_t lo, int32_t hi);
// Derives all conclusions for a part. False: there is no plan.
bool berth_exact_settle(struct exact *x, struct exact_part part);

// Removes and returns the first section of the queue, which must not be empty.
int32_t berth_exact_queue_take(struct exact *x);

// ---- exact_section.c ----

// Checks all sections in the queue. False: some section cannot hold its unplaced blocks.
bool berth_exact_propagate(struct exact *x);

// ---- exact.c ----

// Counts a node. True: nodes, time or memory are used up.
bool berth_exact_is_over(struct exact *x);
// Returns the block to branch on; -1: all blocks are placed.
int32_t berth_exact_choose(struct exact *x, struct exact_part part);
// Returns the part without block i. The list of the parent node still contains block i.
struct exact_part berth_exact_part_without(struct exact *x, struct exact_part part, int32_t i);
// Places block i at its sky and derives conclusions for `left`. False: there is no plan.
bool berth_exact_try(struct exact *x, int32_t i, bool is_part_wide, struct exact_part left, bool *has_split);
// Derives conclusions from block i being above its sky. Placing block i at its sky must have failed and been undone.
bool berth_exact_try_higher(struct exact *x, int32_t i, bool is_part_wide, struct exact_part part);

// ---- beam.c ----

// Answers the current ask breadth first. On EXACT_FITS, x->off is a plan.
enum exact_answer berth_exact_beam(struct exact *x, int32_t width);

// SPDX-License-Identifier: MIT
// greedy_pass.h: the state of a greedy pass. greedy_index.c finds the best unplaced block of a valley, greedy_pass.c places it.
// Terms:
// - A width class is all blocks of similar width. They are in consecutive slots of one table, sorted by first section.
// - A cell is a range of 1 << shift sections.
// - The rank of a block is its position by priority; 0 is the best.
// plan.h defines section, width, skyline and valley.
#pragma once

#include "plan/solve/plan.h"

#define GREEDY_FINE_FROM 8 // there are GREEDY_FINE classes per power of two for widths of 2^8 and more
#define GREEDY_FINE_BITS 3
#define GREEDY_FINE (1 << GREEDY_FINE_BITS)
#define GREEDY_CLASSES (GREEDY_FINE_FROM + GREEDY_FINE * (31 - GREEDY_FINE_FROM))
#define GREEDY_NO_RANK INT32_MAX // rank of padding and placed blocks; no block found

// A node of the tree over the slots of a class.
struct greedy_node {
    int32_t least_end; // least end of the unplaced blocks in the node's slots, INT32_MAX: none
    int32_t best;      // best rank of the unplaced blocks in the node's slots, GREEDY_NO_RANK: none
};

struct greedy_class {
    int32_t w_min, w_max;     // least and largest width
    int32_t shift;            // log2 of the sections per cell; 1 << shift is at most w_min
    int32_t slot;             // first slot, a multiple of the slots per leaf
    int32_t n;                // number of blocks
    int32_t n_leaves;         // leaves in use
    int32_t pow2;             // number of leaves of the tree, a power of two
    struct greedy_node *tree; // [2 * pow2]: 1 is the root, pow2 + i is leaf i
    int32_t *cell;            // [(n_sec >> shift) + 2]: first block with begin >= index << shift, relative to slot
};

// A segment of the skyline: consecutive sections with the same level.
struct greedy_segment {
    int64_t level; // skyline of its sections
    int32_t lo;    // first section; the segment ends where the next one begins
};

struct greedy_pass {
    const struct plan_prob *p;
    struct berth_arrays mem;
    int32_t n_classes;
    int32_t n_slots;
    struct greedy_class classes[GREEDY_CLASSES];
    int16_t last_class[GREEDY_CLASSES]; // [class number] index in classes of the widest nonempty class up to this one, -1: none
    int32_t *block;                     // [n_slots] block in a slot, -1: the slot is padding
    int32_t *slot_begin;                // [n_slots] first section of the block
    int32_t *slot_end;                  // [n_slots] end of the block, INT32_MAX if it is placed
    int32_t *rank;                      // [n_slots] rank of the block by the priority of this pass, or GREEDY_NO_RANK
    int32_t *by_rank;                   // [n] slot of each rank
    int32_t n_free;                     // number of blocks that are not fixed
    struct greedy_node *nodes;          // the trees of all classes
    int32_t *cells;                     // the cells of all classes
    int64_t *life_max;                  // [n] largest total in a block's lifetime
    uint64_t *key;                      // [n] scratch of the sort
    uint64_t *tmp_key;
    int32_t *tmp_idx;
    int64_t *unplaced_max;          // [2 * unplaced_n] maximum tree over unplaced units; NULL: not built
    int64_t *unplaced_add;          // [2 * unplaced_n] pending addition to a whole node
    int32_t unplaced_n;             // leaves of unplaced_max, a power of two
    struct greedy_segment *skyline; // [n_sec + 2]
};

// ---- greedy_index.c ----

// Ranks all blocks that are not fixed, and marks them as unplaced.
void berth_greedy_index_rank(struct greedy_pass *d, enum plan_priority priority);
void berth_greedy_index_build(struct greedy_pass *d);
void berth_greedy_index_remove(struct greedy_pass *d, struct greedy_class *c, int32_t slot);
// Returns the rank of the best unplaced block inside [lo, hi), or GREEDY_NO_RANK. If cover is not -1, the block must be alive in
// section cover. *i_class: index in classes of the block's class.
int32_t berth_greedy_index_query(const struct greedy_pass *d, int32_t lo, int32_t hi, int32_t cover, int *i_class);

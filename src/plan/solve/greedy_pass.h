// SPDX-License-Identifier: MIT
// pass.h: the unplaced blocks of a dive, from which greedy_index.c finds the best inside a valley for pass.c to place.
#pragma once

#include "plan/solve/plan.h"

#define GREEDY_FINE_FROM 8 // widths of 2^8 and more have GREEDY_FINE classes per power of two
#define GREEDY_FINE_BITS 3
#define GREEDY_FINE (1 << GREEDY_FINE_BITS)
#define GREEDY_CLASSES (GREEDY_FINE_FROM + GREEDY_FINE * (31 - GREEDY_FINE_FROM))
#define GREEDY_PLACED INT32_MAX // rank of a slot that holds no unplaced block

struct greedy_node {
    int32_t least_b; // least end of the unplaced blocks below, INT32_MAX: none
    int32_t best;    // their best rank, GREEDY_PLACED: none
};

// A class that has blocks.
struct greedy_class {
    int32_t w_min, w_max;     // widths
    int32_t shift;            // sections per cell, as a power of two; not above w_min
    int32_t slot;             // first slot, a multiple of what a leaf holds
    int32_t n;                // blocks
    int32_t n_leaves;         // leaves in use
    int32_t pow2;             // leaves of the tree, a power of two
    struct greedy_node *tree; // [2 * pow2]: 1 is the root, pow2 + i is leaf i
    int32_t *cell;            // [(n_sec >> shift) + 2]: first block with a >= cell << shift, relative to slot
};

struct greedy_segment {
    int64_t level;
    int32_t lo; // its end is where the next one begins
};

struct greedy_pass {
    const struct plan_prob *p;
    struct berth_arrays mem;
    int32_t n_classes;
    int32_t n_slots;
    struct greedy_class classes[GREEDY_CLASSES];
    int16_t last_class[GREEDY_CLASSES]; // by number: the last class whose number is not above, -1: none
    int32_t *block;                     // [n_slots] block in a slot, -1: padding
    int32_t *slot_a;                    // [n_slots]
    int32_t *slot_b;                    // [n_slots] INT32_MAX once placed
    int32_t *rank;                      // [n_slots] by the priority of this dive, GREEDY_PLACED once placed
    int32_t *by_rank;                   // [n] slot
    int32_t n_free;                     // blocks to place: those that are not fixed
    struct greedy_node *nodes;
    int32_t *cells;
    int64_t *life_max; // [n] T: the largest total over a block's life; filled when first asked for
    uint64_t *key;     // [n] scratch of the sort
    uint64_t *tmp_key;
    int32_t *tmp_idx;
    int64_t *left_most;         // [2 * left_n] tree over what is left of each section; NULL until a dive is aimed
    int64_t *left_more;         // [2 * left_n] to be added to all below
    int32_t left_n;             // leaves, a power of two
    struct greedy_segment *row; // [n_sec + 2]
};

// ---- greedy_index.c ----

// Ranks the blocks that are not fixed by a priority; all are unplaced.
void berth_greedy_index_rank(struct greedy_pass *d, enum plan_priority priority);
// The trees over the ranks as they are.
void berth_greedy_index_plant(struct greedy_pass *d);
// The block in a slot of class c is placed.
void berth_greedy_index_remove(struct greedy_pass *d, struct greedy_class *c, int32_t slot);
// The best unplaced block inside [lo, hi), that lives in section cover unless that is -1: its rank, or GREEDY_PLACED. *in: its
// class.
int32_t berth_greedy_index_query(const struct greedy_pass *d, int32_t lo, int32_t hi, int32_t cover, int *in);

// SPDX-License-Identifier: MIT
// eject.h: moves blocks of a plan below a target, by ejection chains. A chain places one block. If the block fits into no gap, the
// chain takes out ("ejects") the blocks that are cheapest to place again, and then places those. A chain that places all of its
// blocks changes the plan. Any other chain leaves the plan as it was, or swaps: it leaves easier blocks unplaced.
#pragma once

#include "plan/solve/plan.h"

struct eject;

// NULL: out of memory. overlap must outlive the result.
struct eject *berth_eject_new(const struct plan_prob *p, const struct plan_overlap *overlap, uint64_t seed) BERTH_MUST_USE;
void berth_eject_free(struct eject *e);

// Sets the plan. Blocks with a negative offset are not placed.
void berth_eject_load(struct eject *e, const int64_t *off);
void berth_eject_store(const struct eject *e, int64_t *off);
bool berth_eject_is_placed(const struct eject *e, int32_t i);
// Returns the peak of the placed blocks.
int64_t berth_eject_peak(const struct eject *e);
// Returns a random block that ends above cap and is not fixed, -1: none found.
int32_t berth_eject_above(struct eject *e, int64_t cap);

// The limits of a chain.
struct eject_limits {
    int64_t cap;       // all blocks of the chain end at or below this
    int32_t max_steps; // a step places one block
    double swap;       // a chain swaps if the open blocks have less than this times the difficulty of its first block; 0: never
    double hopeless;   // a chain ends early if the open blocks have more than this times that difficulty; 0: never
    const struct plan_goal *goal;
    int64_t n_steps; // result: steps so far, of all chains
};

// Places block i, which is not placed or ends above the cap. Returns whether the chain placed all of its blocks.
bool berth_eject_place(struct eject *e, int32_t i, struct eject_limits *limits);
// Returns the number of blocks that the last chain left open: 0 if it placed all blocks or was undone.
int32_t berth_eject_open(const struct eject *e, const int32_t **ids);
// Places block i, which is not placed, into a gap below the cap. False: there is no gap.
bool berth_eject_fit(struct eject *e, int32_t i, struct eject_limits *limits);
// Moves a random block that is alive together with block i to a random offset, by a chain.
bool berth_eject_shake(struct eject *e, int32_t i, struct eject_limits *limits);

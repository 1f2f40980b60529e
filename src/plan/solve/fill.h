// SPDX-License-Identifier: MIT
// fill.h: looks for a plan below a cap, from a plan in which some blocks are not placed. Unlike in improve.c, the plan is not
// complete until the end, so chains can swap a block that does not fit against easier ones.
#pragma once

#include "plan/solve/eject.h"

struct fill;

enum fill_result {
    FILL_OPEN,  // the time is up
    FILL_DONE,  // all blocks are placed: the plan is in the struct eject
    FILL_STUCK, // many chains have failed
};

// NULL: out of memory. eject must outlive the result; other users may load other plans between two calls.
struct fill *berth_fill_new(const struct plan_prob *p, struct eject *eject, uint64_t seed) BERTH_MUST_USE;
void berth_fill_free(struct fill *f);
// Begins a search below cap, from the plan off without the blocks that end above cap.
void berth_fill_begin(struct fill *f, const int64_t *off, int64_t cap);
// Begins a search below cap that places the missing blocks of off in a new order. A block is missing if its offset is negative or if
// it ends above cap. NULL: all blocks are missing.
void berth_fill_begin_new(struct fill *f, const int64_t *off, int64_t cap);
// Raises the cap of a search that is stuck.
void berth_fill_raise(struct fill *f, int64_t cap);
// Continues the search until the deadline of the goal.
enum fill_result berth_fill_run(struct fill *f, const struct plan_goal *goal);

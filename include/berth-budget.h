// SPDX-License-Identifier: MIT
// berth-budget.h: a budget of bytes in, a schedule out: which ops run again and which values move out and back, so that the
// packed memory of a graph stays within what there is, at the least cost that is found. Part of berth.h.
#pragma once

#include "berth-plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum berth_budget_flag {
    BERTH_BUDGET_INPUT = 1,  // not computed: there from the start, until its last use
    BERTH_BUDGET_OUTPUT = 2, // runs once, and its memory is kept to the end. A value that nobody reads is one too
    BERTH_BUDGET_ONCE = 4,   // acts on the outside or has a state: runs once, in order with the others of its group
    BERTH_BUDGET_STAYS = 8,  // does not move to another pool
};

// A value and the op that computes it. Ops stand in a valid order: a source is an input or stands before.
struct berth_budget_op {
    const int32_t *srcs; // values that the op reads
    int32_t n_srcs;
    int32_t pool;     // as in berth_plan_item
    uint64_t size;    // bytes, up to 2^62; 0: none, always there once made
    uint64_t align;   // as in berth_plan_item
    uint64_t inplace; // bit i: the result may take over the memory of source i, of the same size, if nobody needs that any more
    uint64_t cost;    // of running it once, in any unit, up to 2^53
    uint32_t flags;   // of berth_budget_flag
    int32_t group;    // of BERTH_BUDGET_ONCE, from 0 to 2^20: those of one keep their order
    int32_t until;    // an op behind this one, ONCE or OUTPUT, that overwrites what this one reads: runs only before it. 0: none
};

// What a pool may take, and where its values may move to. Pools that are not named have no limit.
struct berth_budget_pool {
    int32_t pool;
    int32_t spill_to;      // another pool, if may_spill
    bool may_spill;        //
    uint64_t bytes;        // the budget
    double spill_per_byte; // cost of one way, with spill_each on top
    uint64_t spill_each;
};

enum berth_budget_kind {
    BERTH_BUDGET_RUN, // the op runs, for the first time or again
    BERTH_BUDGET_OUT, // its value is copied to the pool that its own spills to
    BERTH_BUDGET_IN,  // the copy is copied back
};

// Memory is taken by the step that makes a value, and given back behind the last step that reads it before it is made again.
// Steps can run one by one. Moves can also run beside ops, one at a time in their order: a copy out from the step that makes its
// value on until its own place, a copy in from its own place on until its first reader; they stand where that leaves them time.
struct berth_budget_step {
    int32_t op;
    enum berth_budget_kind kind;
};

struct berth_budget_params {
    const struct berth_budget_pool *pools;
    size_t n_pools;
    int64_t time_us;   // local search, by the clock; 0: none
    int64_t max_nodes; // of the exact search; 0: 30,000; below 0: no exact search
    uint64_t seed;
    bool live_only; // the budget is for live bytes; otherwise for packed memory, in which holes count
};

// What a pool needs.
struct berth_budget_use {
    int32_t pool;
    uint64_t bytes; // the budget; UINT64_MAX: none
    uint64_t live;  // most bytes alive under the schedule
    uint64_t peak;  // of the packed plan
    uint64_t least; // no schedule lives on less, live bytes
};

struct berth_budget_result {
    struct berth_budget_step *steps; // [n_steps]; the best that was found if it does not fit
    size_t n_steps;
    bool fits;
    bool proven;          // no schedule is cheaper; or, if it does not fit, none does
    uint64_t cost;        // of the schedule, moves included
    uint64_t cost_beside; // the same with one move at a time beside the ops: until it is needed, and its memory is another's
    uint64_t cost_once;   // of every op once
    uint64_t cost_bound;  // no schedule that fits costs less
    size_t n_again, n_out, n_in;
    struct berth_budget_use *uses; // [n_uses] by rising pool
    size_t n_uses;
    int32_t tight_op; // where `least` of the pool that lacks most, or is fullest, is needed; -1: nothing is
    int32_t *alive;   // [n_alive] the values that every schedule has there, largest first
    size_t n_alive;
    const char *method; // what found it
    int64_t n_nodes;    // of the exact search
    int64_t time_us;
};

// The cheapest schedule found within the budgets. One that does not fit is no failure: fits is false, and uses say what lacks.
// Fails on ops that contradict what is said above. The same input gives the same schedule on every machine, but for what local
// search finds in time_us; and berth_budget_check finds of every schedule what is said of it here.
BERTH_API enum ggml_status berth_budget_solve(const struct berth_budget_op *ops, size_t n_ops,
    const struct berth_budget_params *params, struct berth_budget_result **result);
BERTH_API void berth_budget_free(struct berth_budget_result *result);

// Replays a schedule: every source is there when it is read, every op runs, once if it may only once, outputs stay. Fills cost,
// counts, live bytes and, unless live_only, the packed peak into a new result with a copy of the steps; fits says if all pools
// keep their budgets. GGML_STATUS_FAILED names the first step that is wrong.
BERTH_API enum ggml_status berth_budget_check(const struct berth_budget_op *ops, size_t n_ops,
    const struct berth_budget_params *params, const struct berth_budget_step *steps, size_t n_steps,
    struct berth_budget_result **result);

// The planner's items under a schedule: items has room for n_ops + n_steps; item_of[n_ops + k] becomes the item of what step k
// makes, item_of[i] that of input i, -1 if none. Times are positions: n_ops + k for step k.
BERTH_API enum ggml_status berth_budget_items(const struct berth_budget_op *ops, size_t n_ops,
    const struct berth_budget_params *params, const struct berth_budget_step *steps, size_t n_steps,
    struct berth_plan_item *items, size_t *n_items, int32_t *item_of);

#ifdef __cplusplus
}
#endif

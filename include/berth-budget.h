// SPDX-License-Identifier: MIT
// berth-budget.h: schedules within a memory limit. The solver decides which ops to recompute and which values to spill, so that
// the packed memory of a graph stays within the limit at the lowest cost found. Part of berth.h, whose general rules hold.
// docs/user/budget.md is the guide.
//
// The functions have no state. Any number of threads can use them at the same time.
#pragma once

#include "berth-plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Properties of a value or of its op. They can be combined.
enum berth_budget_flag {
    BERTH_BUDGET_INPUT = 1,    // not computed: present from the start until its last use
    BERTH_BUDGET_OUTPUT = 2,   // runs once, and its memory is kept to the end; a value that no op reads is an output too
    BERTH_BUDGET_ONCE = 4,     // has effects or a state: runs once, in order with the others of its group
    BERTH_BUDGET_NO_SPILL = 8, // is not spilled
};

// A value and the op that computes it. The ops must be in a valid order: each source is an input or comes before the op.
struct berth_budget_op {
    const int32_t *srcs; // values that the op reads
    int64_t n_srcs;      // number of sources
    int32_t pool;        // as in berth_plan_item
    uint64_t size;       // bytes, up to 2^62; 0: needs no memory and stays once computed
    uint64_t align;      // as in berth_plan_item
    uint64_t inplace; // bit i: the result may take over the memory of source i, of the same size, if nothing reads it afterwards
    uint64_t cost;    // of running it once, in any unit, up to 2^53
    uint32_t flags;   // of berth_budget_flag
    int32_t group;    // with BERTH_BUDGET_ONCE, 0 to 2^20: ops of one group keep their order; inputs have none
    int32_t until;    // a later op, ONCE or OUTPUT, that overwrites a source of this op: this op runs only before it. 0: none
};

// The memory limit of a pool, and the pool that it can spill to. Pools that are not listed have no limit.
struct berth_budget_pool {
    int32_t pool;                 // number of the pool
    int32_t spill_to;             // with may_spill: the pool to spill to
    bool may_spill;               // values of this pool may be spilled
    uint64_t limit;               // memory limit
    double spill_cost_per_byte;   // cost of copying a byte one way, in addition to spill_cost_per_copy
    uint64_t spill_cost_per_copy; // cost of each copy
};

// The kind of a step.
enum berth_budget_kind {
    BERTH_BUDGET_RUN,     // the op runs, for the first time or to recompute its value
    BERTH_BUDGET_SPILL,   // the value is copied to the pool that its own pool spills to
    BERTH_BUDGET_RESTORE, // the copy is copied back
};

// A step of a schedule. A step that creates a value takes its memory. The memory is free after the last step that reads the value
// before it is created the next time. Steps run serially.
struct berth_budget_step {
    int32_t op;                  // the op, or the op of the value that is copied
    enum berth_budget_kind kind; // what the step does
};

// How to solve.
struct berth_budget_params {
    const struct berth_budget_pool *pools; // limits
    int64_t n_pools;                       // number of limits
    int64_t time_limit_us;                 // time limit of the local search; 0: no local search
    int64_t max_nodes;                     // most nodes of the exact search; 0: 30,000; below 0: no exact search
    uint64_t seed;                         // seed of the local search
    bool live_only;                        // limits are for live bytes; otherwise for packed memory, gaps included
    // Receives the proof that no schedule keeps the limits, in the format of docs/dev/proofs.md, which `berth verify --proof` checks.
    // It is complete if the result has proven and not fits; otherwise nothing is written. NULL: no proof is made. If writing fails,
    // solving fails.
    berth_plan_write_t proof;
    void *proof_data; // argument of `proof`
};

// The memory that a pool needs.
struct berth_budget_use {
    int32_t pool;        // number of the pool
    uint64_t limit;      // its memory limit; UINT64_MAX: none
    uint64_t live;       // most live bytes in the schedule
    uint64_t peak;       // peak of the packed plan
    uint64_t live_bound; // live bytes that every schedule needs
};

// A schedule and its properties. berth_budget_free frees it and everything in it.
struct berth_budget_result {
    struct berth_budget_step *steps; // [n_steps]; the best schedule found, whether it fits or not
    int64_t n_steps;                 // number of steps
    bool fits;                       // all pools keep their limits
    bool proven;                     // no schedule is cheaper; or, if it does not fit, no schedule fits
    uint64_t cost;                   // of the schedule, copies included
    uint64_t cost_once;              // of every op once
    uint64_t cost_bound;             // no schedule that fits costs less
    int64_t n_recomputed;            // steps that recompute a value
    int64_t n_spilled, n_restored;   // steps of the kinds SPILL and RESTORE
    struct berth_budget_use *uses;   // [n_uses], by rising pool number
    int64_t n_uses;                  // number of pools
    int32_t tight_op;                // the op that needs live_bound, of the pool that misses most or is fullest; -1: none
    int32_t *alive;                  // [n_alive] the values that every schedule has in memory at that op, largest first
    int64_t n_alive;                 // number of these values
    const char *method;              // name of the method that found the schedule; static text
    int64_t n_nodes;                 // nodes of the exact search
    int64_t time_us;                 // wall time
};

// ---- solving ----

// Searches for the cheapest schedule within the limits and stores it in *result, which the caller frees with berth_budget_free. A
// schedule that does not fit is not a failure: fits is false, and uses states what is missing. Fails on ops that contradict the
// rules above. The same arguments give the same schedule on every machine, except for the local search, which ends by the clock.
BERTH_API enum ggml_status berth_budget_solve(const struct berth_budget_op *ops, int64_t n_ops,
    const struct berth_budget_params *params, struct berth_budget_result **result);

// Frees a result.
BERTH_API void berth_budget_free(struct berth_budget_result *result);

// ---- checking ----

// Replays a schedule and checks it: every source is present when it is read, every op runs, ops with ONCE run once, outputs stay.
// Stores a new result with a copy of the steps, their cost, counts, live bytes and, unless live_only, the packed peak. The caller
// frees it with berth_budget_free. Returns GGML_STATUS_FAILED, and names the first wrong step, if the schedule is not valid.
BERTH_API enum ggml_status berth_budget_check(const struct berth_budget_op *ops, int64_t n_ops,
    const struct berth_budget_params *params, const struct berth_budget_step *steps, int64_t n_steps,
    struct berth_budget_result **result);

// Stores the planner's items of a schedule. items must have room for n_ops + n_steps, item_of too. item_of[n_ops + k] becomes the
// item of the value that step k creates, item_of[i] that of input i, or -1. Times are positions: n_ops + k for step k.
BERTH_API enum ggml_status berth_budget_items(const struct berth_budget_op *ops, int64_t n_ops,
    const struct berth_budget_params *params, const struct berth_budget_step *steps, int64_t n_steps,
    struct berth_plan_item *items, int64_t *n_items, int32_t *item_of);

#ifdef __cplusplus
}
#endif

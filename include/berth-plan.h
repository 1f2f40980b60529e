// SPDX-License-Identifier: MIT
// berth-plan.h: the memory planner on its own: items with lifetimes in, offsets and a proven bound out. Part of berth.h.
#pragma once

#include "ggml.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_PLAN_ANY UINT64_MAX // in lists of offsets: none is known

// A zeroed item with .first, .last and .size is the plain case.
struct berth_plan_item {
    int64_t first;  // first step at which the item is alive
    int64_t last;   // last step, inclusive (files of CSV name the step after it); last < first is refused
    uint64_t size;  // bytes, up to 2^62; 0 is allowed and takes no room
    uint64_t align; // the offset is a multiple of this; 0 counts as 1; need not be a power of two
    uint64_t fixed; // the offset that the item must have, up to 2^62, if it is_fixed
    int32_t alias;  // items of one group > 0 get the same offset and may overlap in time; 0: none
    int32_t pool;   // items of different pools never share memory and are planned apart
    bool is_fixed;
};

struct berth_plan_params {
    uint64_t capacity;     // bytes a pool may take; 0: as few as possible
    uint64_t max_chunk;    // a pool consists of chunks of at most this many bytes, no item straddles two; 0: one chunk
    int64_t budget_us;     // search time after the fast path, wall time; 0: fast path only
    uint64_t seed;         // of local search
    int32_t n_threads;     // 0 and 1: the caller's thread only
    const uint64_t *start; // offsets of a known plan to start from, or NULL
    bool is_brief;         // of the fast path only what takes about as long as one pass of best fit, a few times over
    bool is_counted;       // budget_us is work, counted step by step, and not the clock's: one thread, and the same plan anywhere
};

struct berth_plan_report {
    uint64_t peak;      // bytes needed, the sum over pools
    uint64_t bound;     // no plan needs less, the sum over pools
    bool proven;        // peak == bound, or the capacity question is answered for sure
    bool fits;          // peak <= capacity in every pool (true without a capacity)
    const char *method; // which path found the plan
    double gap;         // peak / bound - 1
    int64_t bound_step; // a step where the most is alive, in the pool that needs most
    int64_t n_peak;     // items that end at the peak of their pool
    int64_t time_us;    // wall time; 0 for 64 items or fewer without a search, which is a few microseconds
    int64_t n_nodes;    // nodes of the exact search
};

// Places n items. offsets[i] is where item i goes in its pool. params and report may be NULL.
// With max_chunk, chunk k of a pool is the range [k * max_chunk, (k + 1) * max_chunk) of its offsets: offset / max_chunk is the
// chunk and offset % max_chunk the place in it, which is what alignment is about. The bytes a pool needs are then the sum over
// its chunks of how far each is used.
// A plan that needs more than the capacity is no failure: the best one found is returned, with fits == false; proven then
// says whether a better one could have fitted. Fails on items that contradict themselves or each other, with the numbers.
// The same input, params and seed give the same plan unless time ran out, which counted time does everywhere at the same step.
BERTH_API enum ggml_status berth_plan_solve(const struct berth_plan_item *items, int64_t n,
    const struct berth_plan_params *params, uint64_t *offsets, struct berth_plan_report *report);

// Looks on while a search runs: the best peak and the proven bound so far, in bytes, of the pool that is being searched. False
// ends the search; the best plan so far is the answer then. Asked some times a second, by one thread of the search at a time.
typedef bool (*berth_plan_watch_t)(uint64_t peak, uint64_t bound, void *user);
// berth_plan_solve with somebody who looks on; watch may be NULL.
BERTH_API enum ggml_status berth_plan_solve_watched(const struct berth_plan_item *items, int64_t n,
    const struct berth_plan_params *params, berth_plan_watch_t watch, void *user, uint64_t *offsets,
    struct berth_plan_report *report);

enum berth_plan_fault_kind {
    BERTH_PLAN_SOUND,    // no fault
    BERTH_PLAN_ITEM,     // item i contradicts itself: last < first, size above 2^62 or max_chunk, alias below 0
    BERTH_PLAN_ALIGN,    // the offset of item i is not a multiple of its alignment
    BERTH_PLAN_FIXED,    // item i is not where it must be
    BERTH_PLAN_CHUNK,    // item i lies across the end of a chunk
    BERTH_PLAN_OVERFLOW, // item i ends above 2^63 - 1
    BERTH_PLAN_ALIAS,    // items i and j are of one alias group but not at one offset (or not of one pool)
    BERTH_PLAN_COLLIDE,  // items i and j are alive together and share bytes
};

struct berth_plan_fault {
    enum berth_plan_fault_kind kind;
    int64_t i; // the item, -1: none
    int64_t j; // the other one, -1: none; i < j
};

// Is this plan valid? GGML_STATUS_FAILED and the first fault if not: those of one item before those of two, lowest item first.
// O(n log n). fault may be NULL; params are read for max_chunk only and may be NULL.
BERTH_API enum ggml_status berth_plan_check(const struct berth_plan_item *items, int64_t n,
    const struct berth_plan_params *params, const uint64_t *offsets, struct berth_plan_fault *fault);

// Bytes that every plan needs, the sum over pools, without searching: live bytes, raised by alignment and by fixed items.
// step: where the most is alive in the pool that needs most. bound and step may be NULL.
BERTH_API enum ggml_status berth_plan_bound(
    const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params, uint64_t *bound, int64_t *step);

#ifdef __cplusplus
}
#endif

#include "berth-plan-io.h"

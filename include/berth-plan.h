// SPDX-License-Identifier: MIT
// berth-plan.h: the memory planner without graphs: items with lifetimes in, offsets and a proven bound out. Part of berth.h,
// whose general rules hold. docs/user/planner.md explains the planner.
//
// The planner has no state. Any number of threads can use it at the same time. It owns nothing after it returns.
#pragma once

#include "ggml.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// In arrays of offsets: the offset is unknown.
#define BERTH_PLAN_ANY UINT64_MAX

// A piece of memory and its lifetime. A simple item sets first, last and size; the other members are 0.
struct berth_plan_item {
    int64_t first;  // first step at which the item is alive
    int64_t last;   // last step at which it is alive, inclusive; not below first. (CSV files state the step after it.)
    uint64_t size;  // bytes, up to 2^62; an item of 0 bytes takes no memory
    uint64_t align; // the offset is a multiple of this, which need not be a power of two; 0 means 1
    uint64_t fixed; // with is_fixed: the offset that the item must have, up to 2^62
    int32_t alias;  // items of one group above 0 get the same offset and may overlap in time; 0: no group
    int32_t pool;   // items of different pools never share memory; each pool is planned separately
    bool is_fixed;  // the item has a fixed offset
};

// Receives the next piece of a text. If it returns false, writing has failed.
typedef bool (*berth_plan_write_t)(const char *text, size_t size, void *user_data);

// How to plan. All members may be 0.
struct berth_plan_params {
    uint64_t memory_limit; // most bytes of each pool; 0: find the lowest peak
    uint64_t chunk_limit;  // most bytes of one chunk of a pool; no item crosses two chunks; 0: one chunk
    int64_t time_limit_us; // time limit of the search after the fast path, wall time; 0: fast path only
    uint64_t seed;         // seed of the local search
    int n_threads;         // threads of the search; 0 or 1: the calling thread only
    const uint64_t *start; // offsets of a known plan to start from; NULL: none
    bool is_brief;         // use only the fastest methods of the fast path, which take a few times as long as one best fit
    bool is_counted;       // time_limit_us counts work instead of time: one thread, and the same plan on every machine
    // Receives the proof of each pool's bound, in the format of docs/dev/proofs.md, which `berth verify --proof` checks. Some bounds
    // have no proof; the report then has the lower bound that the proof shows. NULL: no proof is made. If writing fails, planning
    // fails.
    berth_plan_write_t proof;
    void *proof_data; // argument of `proof`
};

// How good a plan is.
struct berth_plan_report {
    uint64_t peak;      // bytes needed, the sum over pools
    uint64_t bound;     // no plan needs less, the sum over pools
    bool proven;        // peak == bound, or the question whether the memory limit suffices is answered with certainty
    bool fits;          // peak <= memory_limit in every pool; true without a memory limit
    const char *method; // name of the method that found the plan; static text
    double gap;         // peak / bound - 1
    int64_t bound_step; // a step with the most live bytes in the largest pool
    int64_t n_peak;     // items that end at the peak of their pool
    int64_t time_us;    // wall time; 0 for 64 items or fewer without a search, which take a few microseconds
    int64_t n_nodes;    // nodes of the exact search
};

// ---- planning ----

// With chunk_limit, chunk k of a pool has the offsets from k * chunk_limit to below (k + 1) * chunk_limit. Alignment then refers
// to the offset in the chunk, offset % chunk_limit. The peak is the sum of the bytes used in each chunk.

// Places n items: offsets[i] becomes the offset of item i in its pool. params and report may be NULL. The same arguments give the
// same plan, unless the search ends by the clock. Fails on items that contradict themselves or each other. A plan above the
// memory limit is not a failure: fits is then false, and proven states whether it is certain that no plan fits.
BERTH_API enum ggml_status berth_plan_solve(const struct berth_plan_item *items, int64_t n,
    const struct berth_plan_params *params, uint64_t *offsets, struct berth_plan_report *report);

// Observes a search. It receives the best peak and the proven bound so far, in bytes, of the current pool. If it returns false,
// the search ends with the best plan so far. It is called several times per second, by one thread of the search at a time.
typedef bool (*berth_plan_watch_t)(uint64_t peak, uint64_t bound, void *user_data);

// Like berth_plan_solve, with an observer. watch may be NULL; user_data is its argument.
BERTH_API enum ggml_status berth_plan_solve_watched(const struct berth_plan_item *items, int64_t n,
    const struct berth_plan_params *params, berth_plan_watch_t watch, void *user_data, uint64_t *offsets,
    struct berth_plan_report *report);

// ---- checking ----

// What is wrong with a plan.
enum berth_plan_fault_kind {
    BERTH_PLAN_SOUND,    // no fault
    BERTH_PLAN_ITEM,     // item i contradicts itself: last < first, size above 2^62 or chunk_limit, alias below 0
    BERTH_PLAN_ALIGN,    // the offset of item i is not a multiple of its alignment
    BERTH_PLAN_FIXED,    // item i is not at its fixed offset
    BERTH_PLAN_CHUNK,    // item i crosses the end of a chunk
    BERTH_PLAN_OVERFLOW, // item i ends above 2^63 - 1
    BERTH_PLAN_ALIAS,    // items i and j are in one alias group but have different offsets or pools
    BERTH_PLAN_COLLIDE,  // items i and j are alive at the same time and share bytes
};

// The first fault of a plan.
struct berth_plan_fault {
    enum berth_plan_fault_kind kind; // what is wrong
    int64_t i;                       // the item; -1: none
    int64_t j;                       // the other item, j > i; -1: none
};

// Returns GGML_STATUS_SUCCESS if the plan is valid. Otherwise it returns GGML_STATUS_FAILED and stores the first fault: faults of
// one item come before faults of two, the lowest item first. fault may be NULL. params may be NULL; only chunk_limit is used. It
// takes O(n log n).
BERTH_API enum ggml_status berth_plan_check(const struct berth_plan_item *items, int64_t n,
    const struct berth_plan_params *params, const uint64_t *offsets, struct berth_plan_fault *fault);

// Stores the bytes that every plan needs, the sum over pools, without a search: live bytes, raised by alignment and fixed items.
// step becomes the step with the most live bytes in the largest pool. bound and step may be NULL.
BERTH_API enum ggml_status berth_plan_bound(
    const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params, uint64_t *bound, int64_t *step);

#ifdef __cplusplus
}
#endif

#include "berth-plan-io.h"

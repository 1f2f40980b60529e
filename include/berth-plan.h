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

#define BERTH_PLAN_ANY UINT64_MAX // an offset that the planner may choose

struct berth_plan_item {
    int64_t first;  // first step at which the item is alive
    int64_t last;   // last step, inclusive; last < first is refused
    uint64_t size;  // bytes, up to 2^62; 0 is allowed and takes no room
    uint64_t align; // the offset is a multiple of this; 0 counts as 1; need not be a power of two
    uint64_t fixed; // offset that the item must have, or BERTH_PLAN_ANY
    int32_t alias;  // items of one group >= 0 get the same offset and may overlap in time; -1: none
    int32_t pool;   // items of different pools never share memory and are planned apart
};

struct berth_plan_params {
    uint64_t capacity;     // bytes a pool may take; 0: as few as possible
    uint64_t max_chunk;    // a pool consists of chunks of at most this many bytes, no item straddles two; 0: one chunk
    int64_t budget_us;     // search time after the fast path; 0: fast path only
    uint64_t seed;         // of the search's noise
    int32_t n_threads;     // 0 and 1: the caller's thread only
    const uint64_t *start; // offsets of a known plan to start from, or NULL
};

struct berth_plan_report {
    uint64_t peak;       // bytes needed, the sum over pools
    uint64_t bound;      // no plan needs less, the sum over pools
    bool proven;         // peak == bound, or the capacity question is answered for sure
    bool fits;           // peak <= capacity (true without a capacity)
    const char *method;  // which path found the plan
    double gap;          // peak / bound - 1
    int64_t bound_step;  // a step where the bound is reached
    int64_t n_peak;      // items that end at the peak
    int64_t time_us;     // wall time
    int64_t n_nodes;     // nodes of the exact search
};

#ifdef __cplusplus
}
#endif

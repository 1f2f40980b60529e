// SPDX-License-Identifier: MIT
// blocks.h: the blocks of a pool in steps and bytes, before pool.c converts them to sections and units.
#pragma once

#include "base/multiple.h"
#include "plan/solve/plan.h"

struct raw_block {
    int64_t first, last;         // steps, both inclusive
    uint64_t size, align, fixed; // bytes; fixed: offset, BERTH_PLAN_ANY: none
    int32_t group;               // alias group, 0: none
};

// Returns a sort key for a time. The keys have the same order as the times.
static inline uint64_t plan_time_key(int64_t t) {
    return (uint64_t) t ^ (uint64_t) 1 << 63;
}

// Makes the pool's blocks, by rising first step, in scratch. Fills pool->block_of and sets pool->prob.bound_is_inexact.
enum ggml_status berth_plan_blocks(struct plan_pool *pool, const struct plan_traits *traits, struct berth_scratch *scratch,
    struct raw_block **blocks, int32_t *n_blocks) BERTH_MUST_USE;

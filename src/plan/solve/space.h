// SPDX-License-Identifier: MIT
// space.h: free space between 0 and a limit, best fit first. Shared by the online allocator and whoever replays a sequence of
// takes and gives. Handles are stable until given back.
#pragma once

#include "base/base.h"

#define BERTH_SPACE_NONE UINT32_MAX

// Blocks tile [0, limit): next/prev link them by address, and no two free ones touch. The free ones are also in a treap by
// (size, offset), so that the best fit is one descent away.
struct berth_space_block {
    uint64_t off;
    uint64_t size;              // > 0 but for spare blocks
    uint32_t prev, next;        // neighbours by address; next also links spare blocks
    uint32_t left, right, prio; // treap, while free
    bool is_free;
};

struct berth_space {
    struct berth_space_block *blocks;
    size_t n_blocks, n_cap;
    uint32_t spare;   // list of blocks out of use
    uint32_t n_spare; // its length
    uint32_t root;    // of the treap
    uint64_t limit;   // end of the last block
    uint64_t peak;    // end of the highest block ever taken
    uint64_t used;    // sum of the taken blocks
    uint64_t rng;     // of the treap's priorities
};

// limit: at most 2^62. Takes no memory yet.
void berth_space_init(struct berth_space *space, uint64_t limit);
void berth_space_fini(struct berth_space *space);
// Everything is free again and the peak 0; memory is kept.
void berth_space_reset(struct berth_space *space);
// Takes size > 0 bytes at a multiple of align > 0 from the smallest free block that holds them, the highest of equals; the block
// at the end counts as the largest. ALLOC_FAILED without an error text: no room, or no memory (then *no_room is false).
enum ggml_status berth_space_take(
    struct berth_space *space, uint64_t size, uint64_t align, uint32_t *block, bool *no_room) BERTH_MUST_USE;
void berth_space_give(struct berth_space *space, uint32_t block);
static inline uint64_t berth_space_off(const struct berth_space *space, uint32_t block) {
    return space->blocks[block].off;
}
// Does the structure hold what is said above? O(n); for debug builds and tests.
bool berth_space_is_valid(const struct berth_space *space);

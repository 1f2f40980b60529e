// SPDX-License-Identifier: MIT
// rng.h: the random number generator splitmix64. A seed gives the same numbers on every machine.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *g) {
    uint64_t z = (g->state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// Returns a number from lo to hi, both included.
static inline int64_t rng_range(struct rng *g, int64_t lo, int64_t hi) {
    return lo + (int64_t) (rng_next(g) % (uint64_t) (hi - lo + 1));
}

static inline bool rng_chance(struct rng *g, int percent) {
    return (int) (rng_next(g) % 100) < percent;
}

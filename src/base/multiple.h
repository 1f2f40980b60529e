// SPDX-License-Identifier: MIT
// multiple.h: common divisors and multiples of integers.
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t berth_gcd(uint64_t x, uint64_t y) {
    while (y != 0) {
        uint64_t r = x % y;
        x = y;
        y = r;
    }
    return x;
}

// Least common multiple. False: 2^63 or more.
static inline bool berth_lcm_ok(uint64_t x, uint64_t y, uint64_t *out) {
    return !__builtin_mul_overflow(x, y / berth_gcd(x, y), out) && *out <= (uint64_t) INT64_MAX;
}

// Returns the number to add to x to get a multiple of `of`, which is not 0.
static inline uint64_t berth_padding(uint64_t x, uint64_t of) {
    return (of - x % of) % of;
}

// SPDX-License-Identifier: MIT
// check.h: included by every test program: cmocka, a function that silences the log, and a random number generator.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "berth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void check_log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

// For tests that provoke errors.
static inline void check_quiet(void) {
    ggml_log_set(check_log_drop, NULL);
}

// xorshift64*: a seed gives the same numbers on every machine.
struct check_rng {
    uint64_t state;
};

static inline struct check_rng check_rng_new(uint64_t seed) {
    return (struct check_rng){seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u};
}

static inline uint64_t check_rng_next(struct check_rng *r) {
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * 0x2545F4914F6CDD1Du;
}

static inline uint64_t check_rng_below(struct check_rng *r, uint64_t n) {
    return check_rng_next(r) % n;
}

// Returns n / CHECK_PART. tests/CMakeLists.txt sets CHECK_PART above 1 for slow builds (sanitizers, coverage, second compiler).
#ifndef CHECK_PART
#    define CHECK_PART 1
#endif

static inline int check_cases(int n) {
    return n > CHECK_PART ? n / CHECK_PART : 1;
}

// 1, or 4 in builds that run only a part of the cases.
static inline int check_step(void) {
    return CHECK_PART > 1 ? 4 : 1;
}

// BERTH_SEED overrides the given seed. Prints the seed, so that a failure can be reproduced.
static inline uint64_t check_seed(uint64_t otherwise) {
    const char *text = getenv("BERTH_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : otherwise;
    printf("seed %llu (BERTH_SEED sets it)\n", (unsigned long long) seed);
    return seed;
}

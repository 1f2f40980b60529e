// SPDX-License-Identifier: MIT
// bytes.h: reads numbers from a fuzzer's bytes, for targets that build structures from them. Missing bytes count as 0.
#pragma once

#include "fuzz/fuzz.h"

struct bytes {
    const uint8_t *p, *end;
};

static inline uint64_t get(struct bytes *b, int n) {
    uint64_t x = 0;
    for (int i = 0; i < n; i++) {
        x = x << 8 | (b->p < b->end ? *b->p++ : 0);
    }
    return x;
}

// Returns a random number. It is small in most cases, so that the lifetimes of items overlap.
static inline uint64_t some_size(struct bytes *b) {
    const uint64_t kind = get(b, 1);
    return kind < 224 ? kind % 32 : kind < 250 ? get(b, 2) : get(b, 8) >> (2 + kind % 4 * 12);
}

// SPDX-License-Identifier: MIT
// streams.h: rows two at a time, which share the loads of a column: one from each half of them, not neighbours. The hardware
// foresees two long runs through memory (a Neoverse N1 reads 19.0 GB/s so, 19.5 in one), but not two that begin anew with every
// pair of rows (10). Asking for every line by instruction makes up for that, but only from memory: where rows come from a cache
// it takes a third longer. A line now and then, far ahead, is cheap and tells the hardware early of the pages to come.
#pragma once

#include <stddef.h>

#define STREAMS_AHEAD 8192 // bytes from what is read to what is asked for

struct streams {
    const char *a, *b; // rows; the same one where the first half has one more
    float *s_a, *s_b;  // where their results go
    size_t bx;
    int n_a, n_b; // rows left
};

static inline __attribute__((always_inline)) struct streams streams(float *s, const void *x, size_t bx, int nx) {
    const int half = (nx + 1) / 2, to_b = nx > half ? half : 0;
    return (struct streams){x, (const char *) x + (size_t) to_b * bx, s, s + to_b, bx, half, nx - half};
}

static inline __attribute__((always_inline)) int streams_have(const struct streams *at) {
    return at->n_a > 0;
}

static inline __attribute__((always_inline)) void streams_next(struct streams *at) {
    const int has_a = --at->n_a > 0, has_b = --at->n_b > 0; // behind the last row there is no other, and bx may be anything
    at->a += has_a ? at->bx : 0;
    at->s_a += has_a;
    at->b = has_b ? at->b + at->bx : at->a;
    at->s_b = has_b ? at->s_b + 1 : at->s_a;
}

// For kernels that do more than wait for memory: what both rows will come to, into the second cache.
static inline __attribute__((always_inline)) void streams_ask(const void *a, const void *b) {
    __builtin_prefetch((const char *) a + STREAMS_AHEAD, 0, 2);
    __builtin_prefetch((const char *) b + STREAMS_AHEAD, 0, 2);
}

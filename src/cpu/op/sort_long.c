// SPDX-License-Identifier: MIT
// sort_long.c: long rows. Indices go to and fro between two places in stable passes by a digit of their keys, the lowest digit
// first; keys are made again from the row, which costs no more than to carry them. The first pass takes the indices from nowhere.
// Linear in n; equal elements keep their order. 4 bytes an index and place, and 24 KB of stack.

#include "cpu/op/sort.h"

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define N_DIGITS 3 // of 11, 11 and 10 bits

static inline uint32_t digit_of(uint32_t key, int d) {
    return key >> (d * DIGIT_BITS) & (DIGITS - 1);
}

// Counts become where the indices of each digit go; false: all go to the same.
static bool starts_make(uint32_t *count, int64_t n) {
    uint32_t sum = 0, most = 0;
    for (int v = 0; v < DIGITS; v++) {
        const uint32_t here = count[v];
        most = here > most ? here : most;
        count[v] = sum;
        sum += here;
    }
    return most < n;
}

void cpu_sort_long(const float *x, int64_t n, uint32_t flip, int32_t *out, int32_t *spare) {
    uint32_t next[N_DIGITS][DIGITS] = {{0}};
    int passes[N_DIGITS], n_passes = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t key = sort_float_key(x[i], flip);
        for (int d = 0; d < N_DIGITS; d++) {
            next[d][digit_of(key, d)]++;
        }
    }
    for (int d = 0; d < N_DIGITS; d++) {
        if (starts_make(next[d], n) || (d == N_DIGITS - 1 && n_passes == 0)) {
            passes[n_passes++] = d;
        }
    }
    int32_t *to = n_passes % 2 == 1 ? out : spare, *from = NULL; // the last pass ends in out
    for (int p = 0; p < n_passes; p++) {
        const int d = passes[p];
        uint32_t *slot = next[d];
        for (int64_t i = 0; i < n; i++) {
            const int32_t at = from != NULL ? from[i] : (int32_t) i;
            to[slot[digit_of(sort_float_key(x[at], flip), d)]++] = at;
        }
        from = to;
        to = from == out ? spare : out;
    }
}

// SPDX-License-Identifier: MIT
// numbers.h: names for what lies at another rank, whose tables are as long as the largest: numbers that are given back are taken
// again, the smallest first. As many as there is memory for.
#pragma once

#include "base/shim/shim.h"

#include <string.h>

struct mpi_numbers {
    bool *taken; // [n]
    size_t n;
};

// False: out of memory.
static inline bool mpi_numbers_take(struct mpi_numbers *s, uint32_t *number) {
    size_t i = 0;
    while (i < s->n && s->taken[i]) {
        i++;
    }
    if (i == s->n) {
        const size_t n = 2 * s->n + 16;
        bool *grown = shim_calloc(n, sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        if (s->n > 0) {
            memcpy(grown, s->taken, s->n * sizeof *grown);
        }
        shim_free(s->taken);
        s->taken = grown;
        s->n = n;
    }
    s->taken[i] = true;
    *number = (uint32_t) i;
    return true;
}

static inline void mpi_numbers_give_back(struct mpi_numbers *s, uint32_t number) {
    s->taken[number] = false;
}

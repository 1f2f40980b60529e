// SPDX-License-Identifier: MIT
// bias.h: the second measure of a quantiser: by how much products of its rows with rows that go along with them are off.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bias_side {
    size_t (*rows)(const float *, void *, int64_t, int64_t, const float *);
    void (*deq)(const void *, float *, int64_t);
};

// Prints both kinds of rows side by side. False: ours is off by more.
bool bias_compare(const struct bias_side *ours, const struct bias_side *theirs, bool wants_matrix, int n_phases);

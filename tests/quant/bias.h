// SPDX-License-Identifier: MIT
// bias.h: a second measure of a quantiser: the error of products of its rows with correlated rows.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bias_side {
    size_t (*rows)(const float *, void *, int64_t, int64_t, const float *);
    void (*deq)(const void *, float *, int64_t);
};

// Prints the errors of both sides for both kinds of rows. Returns false if the error of `ours` is larger.
bool bias_compare(const struct bias_side *ours, const struct bias_side *theirs, bool needs_matrix, int n_phases);

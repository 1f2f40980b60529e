// SPDX-License-Identifier: MIT
// bias.h: measures a quantiser by the error of products, in addition to the squared error that quant_diff.c measures. The products
// are those of quantised rows with rows that are correlated with them (bias.c).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The functions of one implementation for one format.
struct bias_side {
    size_t (*rows)(const float *, void *, int64_t, int64_t, const float *); // quantises rows, as quantize_q4_0
    void (*deq)(const void *, float *, int64_t);                            // dequantises one row
};

// Prints the errors of `ours` (Berth) and `theirs` (the reference) for n_phases cosine waves, each with another phase, and for
// n_phases rows of normal random numbers. needs_matrix: the format requires an importance matrix. Returns false if an error of
// `ours` is larger than chance explains.
bool bias_compare(const struct bias_side *ours, const struct bias_side *theirs, bool needs_matrix, int n_phases);

// SPDX-License-Identifier: MIT
// weighted.h: the scale, or scale and offset, of a run under weights, as the reference chooses them: byte for byte, so the order
// of the sums is part of the contract. Serves q4_0 q4_1 q5_0 q5_1 under an importance matrix (legacy.c) and plain rows of the K
// formats (plain.c).
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WEIGHTED_BLOCK = 32 };

// Mean square of a row.
float berth_row_power(const float *x, int64_t n);

// What the error of each element of a block counts: w * sqrt(power + x * x), so that large elements count more than w says.
// False: w cannot steer a search, being zero throughout, negative or not finite somewhere.
bool berth_weighted_init(const float *x, const float *w, float power, float *weight);

// x = d * (q - bias), q in 0 .. 2 * bias - 1; returns d.
struct scale_search {
    int len; // of the run, at most WEIGHTED_BLOCK, a multiple of 4
    int bias;
    bool fused; // sums of all trials but the first round once where they can
};
float berth_weighted_scale(const float *x, const float *weight, const struct scale_search *how, uint8_t *q);

// x = d * q + m, q in 0 .. q_max, m not above zero; returns d.
struct line_search {
    int len; // as above
    int q_max;
    float first, step; // trials have q_max + first + t * step steps
    int n_trials;
    bool absolute; // magnitudes of errors count, not their squares
};
float berth_weighted_line(const float *x, const float *weight, const struct line_search *how, uint8_t *q, float *m);

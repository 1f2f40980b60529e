// SPDX-License-Identifier: MIT
// weighted.h: finds the scale, or scale and offset, of a run under weights by the rules of the reference. The bytes must equal
// the reference's, so the order of the sums is part of the contract. Used for q4_0 q4_1 q5_0 q5_1 with an importance matrix
// (legacy.c) and for rows of the K formats without a long search (plain.c).
#pragma once

#include "quant/normalise.h"

enum { WEIGHTED_BLOCK = 32 };

// Returns the mean square of a row.
float berth_row_power(const float *x, int64_t n);

// Computes the weight of the error of each element of a block: w * sqrt(power + x * x), so that large elements count more than w
// alone says. Returns false if w is unusable: all zero, or negative or not finite somewhere.
bool berth_weighted_init(const float *x, const float *w, float power, float *weight);

// x = d * (q - bias), q in 0 .. 2 * bias - 1. Returns d.
struct scale_search {
    int len; // length of the run, at most WEIGHTED_BLOCK, a multiple of 4
    int bias;
    bool fused; // the sums of all trials except the first use fused multiply-adds if the CPU has them
};
float berth_weighted_scale(const float *x, const float *weight, const struct scale_search *how, uint8_t *q);

// x = d * q + m, q in 0 .. q_max, m not above zero. Returns d.
struct line_search {
    int len; // length of the run, at most WEIGHTED_BLOCK, a multiple of 4
    int q_max;
    float first, step; // trial t has q_max + first + t * step steps
    int n_trials;
    bool absolute; // minimise the magnitudes of errors instead of their squares
};
float berth_weighted_line(const float *x, const float *weight, const struct line_search *how, uint8_t *q, float *m);

// ---- rows without a long search (plain.c) ----

// Scales and levels of rows in the K and iq4 formats, as the reference's row functions choose them, byte for byte. Copies, caches
// and devices write rows with these functions, so that all of them agree; ggml_quantize_chunk searches longer (scalar.h). x:
// finite, QK_K elements, or 32 for iq4_nl. A block of zeros in iq4_nl gets level 8 for all elements; the reference leaves these
// levels undefined.

// q2_K q4_K q5_K: s and m in 0 .. s_max.
void berth_plain_affine(const float *x, const struct line_search *how, int s_max, struct affine_super *out);

// q3: x = d * s[run] * (q - 4), s in -32 .. 31. q6: x = d * s[run] * (q - 32), s in -128 .. 127. Return d.
uint16_t berth_plain_q3(const float *x, int8_t *s, uint8_t *q);
uint16_t berth_plain_q6(const float *x, int8_t *s, uint8_t *q);

// iq4_nl: x = d * values[q]. iq4_xs: x = d * s[run] * values[q], s in -32 .. 31. Return d.
uint16_t berth_plain_iq4_nl(const float *x, const int8_t *values, uint8_t *q);
uint16_t berth_plain_iq4_xs(const float *x, const int8_t *values, int8_t *s, uint8_t *q);

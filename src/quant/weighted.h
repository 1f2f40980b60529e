// SPDX-License-Identifier: MIT
// weighted.h: finds the scale, or scale and offset, of a run by the rules of the reference: each element has a weight, and the
// weighted error is minimised. The bytes must equal the reference's, so the order of the sums is part of the contract. Used for
// q4_0 q4_1 q5_0 q5_1 with an importance matrix (legacy.c) and for rows of the K formats without a long search (plain.c).
#pragma once

#include "quant/normalise.h"

enum { WEIGHTED_BLOCK = 32 };

// Returns the mean square of a row.
float berth_row_power(const float *x, int64_t n);

// Computes the weight of each element of a block: w * sqrt(power + x * x). w is the importance of the element; large elements get
// more weight. power: mean square of the row. Returns false if w is unusable: all w are zero, or one is negative or not finite.
bool berth_weighted_init(const float *x, const float *w, float power, float *weight);

// Rules of a search for d in x = d * (q - bias), q in 0 .. 2 * bias - 1.
struct scale_search {
    int len; // length of the run, at most WEIGHTED_BLOCK, a multiple of 4
    int bias;
    bool fused; // the sums of all trials except the first use fused multiply-adds if the CPU has them
};
// Returns d and writes the levels to q.
float berth_weighted_scale(const float *x, const float *weight, const struct scale_search *how, uint8_t *q);

// Rules of a search for d and m in x = d * q + m, q in 0 .. q_max, m not above zero.
struct line_search {
    int len; // length of the run, at most WEIGHTED_BLOCK, a multiple of 4
    int q_max;
    float first, step; // trial t divides the range of the elements into q_max + first + t * step steps
    int n_trials;
    bool absolute; // minimise the magnitudes of errors instead of their squares
};
// Returns d; writes the levels to q and the offset to *m.
float berth_weighted_line(const float *x, const float *weight, const struct line_search *how, uint8_t *q, float *m);

// ---- rows without a long search (plain.c) ----

// These functions choose the scales and levels of one block of a K or iq4 format as the reference's row functions do, byte for
// byte. Copies, caches and devices write rows with them and therefore agree. ggml_quantize_chunk searches longer (scalar.h). x:
// QK_K finite elements, or 32 for iq4_nl. A block of zeros in iq4_nl gets level 8 for all elements; the reference leaves these
// levels undefined.

// q2_K q4_K q5_K: s and m in 0 .. s_max.
void berth_plain_affine(const float *x, const struct line_search *how, int s_max, struct affine_super *out);

// q3: x = d * s[run] * (q - 4), s in -32 .. 31. q6: x = d * s[run] * (q - 32), s in -128 .. 127. Return d.
uint16_t berth_plain_q3(const float *x, int8_t *s, uint8_t *q);
uint16_t berth_plain_q6(const float *x, int8_t *s, uint8_t *q);

// iq4_nl: x = d * values[q]. iq4_xs: x = d * s[run] * values[q], s in -32 .. 31. Return d.
uint16_t berth_plain_iq4_nl(const float *x, const int8_t *values, uint8_t *q);
uint16_t berth_plain_iq4_xs(const float *x, const int8_t *values, int8_t *s, uint8_t *q);

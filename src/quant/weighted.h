// SPDX-License-Identifier: MIT
// weighted.h: finds the scale, or scale and offset, of a run with the least weighted error. The results must equal those of the
// reference (ggml) byte for byte, so the order of the sums is part of the contract. Used by legacy.c (with an importance matrix)
// and plain.c.
#pragma once

#include "quant/normalise.h"

enum { WEIGHTED_BLOCK = 32 };

float berth_row_power(const float *x, int64_t n);

// Computes the weight of each element of a block: w * sqrt(power + x * x). w: importance of the element. power: mean square of
// the row. If all w are zero, or a w is negative or not finite, returns false.
bool berth_weighted_init(const float *x, const float *w, float power, float *weight);

// A search for d in x = d * (q - bias), q in 0 .. 2 * bias - 1.
struct scale_search {
    int len; // elements; multiple of 4, at most WEIGHTED_BLOCK
    int bias;
    bool fused; // use fused multiply-adds, except in the first trial
};
// Returns d and writes the levels to q.
float berth_weighted_scale(const float *x, const float *weight, const struct scale_search *how, uint8_t *q);

// A search for d and m in x = d * q + m, q in 0 .. q_max, m <= 0.
struct line_search {
    int len; // elements; multiple of 4, at most WEIGHTED_BLOCK
    int q_max;
    float first, step; // trial t divides the range of the elements into q_max + first + t * step parts
    int n_trials;
    bool absolute; // minimise sum |error| instead of sum error^2
};
// Returns d; writes the levels to q and the offset to *m.
float berth_weighted_line(const float *x, const float *weight, const struct line_search *how, uint8_t *q, float *m);

// ---- rows without a long search (plain.c) ----

// Each function writes one block as the reference's row functions do, byte for byte. So all devices write equal bytes when a
// graph copies a row or fills a cache. ggml_quantize_chunk searches longer (scalar.h). x: QK_K finite elements, or 32 for iq4_nl.
// In an iq4_nl block of zeros, all levels are 8; the reference leaves these levels undefined.

// q2_K q4_K q5_K: s and m in 0 .. s_max.
void berth_plain_affine(const float *x, const struct line_search *how, int s_max, struct affine_super *out);

// q3: x = d * s[run] * (q - 4), s in -32 .. 31. q6: x = d * s[run] * (q - 32), s in -128 .. 127. Return d.
uint16_t berth_plain_q3(const float *x, int8_t *s, uint8_t *q);
uint16_t berth_plain_q6(const float *x, int8_t *s, uint8_t *q);

// iq4_nl: x = d * values[q]. iq4_xs: x = d * s[run] * values[q], s in -32 .. 31. Return d.
uint16_t berth_plain_iq4_nl(const float *x, const int8_t *values, uint8_t *q);
uint16_t berth_plain_iq4_xs(const float *x, const int8_t *values, int8_t *s, uint8_t *q);

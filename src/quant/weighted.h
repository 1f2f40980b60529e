// SPDX-License-Identifier: MIT
// weighted.h: the scale, or scale and offset, of a run under weights, as the reference chooses them: byte for byte, so the order
// of the sums is part of the contract. Serves q4_0 q4_1 q5_0 q5_1 under an importance matrix (legacy.c) and plain rows of the K
// formats (plain.c).
#pragma once

#include "quant/normalise.h"

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

// ---- plain rows (plain.c) ----

// Scales and levels of rows in the K and iq4 formats as the reference's row functions choose them, byte for byte. Copies, caches
// and devices write rows this way, so that all of them agree; ggml_quantize_chunk searches longer (scalar.h). x: finite, QK_K
// elements but for iq4_nl's 32. Blocks of zeros in iq4_nl are all of level 8, where the reference leaves what happened to be there.

// s and m in 0 .. s_max: q2_K q4_K q5_K.
void berth_plain_affine(const float *x, const struct line_search *how, int s_max, struct affine_super *out);

// x = d * s[run] * (q - 4), s in -32 .. 31; x = d * s[run] * (q - 32), s in -128 .. 127. Return d.
uint16_t berth_plain_q3(const float *x, int8_t *s, uint8_t *q);
uint16_t berth_plain_q6(const float *x, int8_t *s, uint8_t *q);

// x = d * values[q]; x = d * s[run] * values[q], s in -32 .. 31. Return d.
uint16_t berth_plain_iq4_nl(const float *x, const int8_t *values, uint8_t *q);
uint16_t berth_plain_iq4_xs(const float *x, const int8_t *values, int8_t *s, uint8_t *q);

// SPDX-License-Identifier: MIT
// plain.h: scales and levels of rows in the K and iq4 formats as the reference's row functions choose them, byte for byte.
// Copies, caches and devices write rows this way, so that all of them agree; ggml_quantize_chunk searches longer (scalar.h). x:
// finite, QK_K elements but for iq4_nl's 32. Blocks of zeros in iq4_nl are all of level 8, where the reference leaves what
// happened to be there.
#pragma once

#include "quant/weighted.h"

// x = d * s[run] * q - dmin * m[run], s and m in 0 .. s_max: q2_K q4_K q5_K.
void berth_plain_affine(
    const float *x, const struct line_search *how, int s_max, uint8_t *s, uint8_t *m, uint8_t *q, uint16_t *d, uint16_t *dmin);

// x = d * s[run] * (q - 4), s in -32 .. 31; x = d * s[run] * (q - 32), s in -128 .. 127. Return d.
uint16_t berth_plain_q3(const float *x, int8_t *s, uint8_t *q);
uint16_t berth_plain_q6(const float *x, int8_t *s, uint8_t *q);

// x = d * values[q]; x = d * s[run] * values[q], s in -32 .. 31. Return d.
uint16_t berth_plain_iq4_nl(const float *x, const int8_t *values, uint8_t *q);
uint16_t berth_plain_iq4_xs(const float *x, const int8_t *values, int8_t *s, uint8_t *q);

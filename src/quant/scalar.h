// SPDX-License-Identifier: MIT
// scalar.h: scales, or scales and offsets, that let runs of elements be written on a one-dimensional grid with the least squared
// error. All of them work in a frame; weights are the frame's.
#pragma once

#include "quant/normalise.h"

// What a format's grid looks like: even steps lo..hi, or the values of a codebook (sorted), then lo and hi are its ends.
struct grid {
    float lo, hi;
    const int8_t *values; // NULL, or 16 values
};

// One run of len elements at x[at]: x = d * g, g in the grid, d a half, which is returned. q: index into the codebook or g - lo.
uint16_t berth_fit_run(const struct frame *f, int at, int len, const struct grid *grid, uint8_t *q);

// A superblock of 256 in runs of len: x = d * s[run] * g, s in s_min .. -s_min - 1, d a half, which is returned.
uint16_t berth_fit_super(const struct frame *f, int len, const struct grid *grid, int s_min, int8_t *s, uint8_t *q);

// A superblock in runs of len: x = d * s[run] * q - dmin * m[run], q in 0..q_max, s and m in 0..s_max.
void berth_fit_affine_super(
    const struct frame *f, int len, int q_max, int s_max, uint8_t *s, uint8_t *m, uint8_t *q, uint16_t *d, uint16_t *dmin);

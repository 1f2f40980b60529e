// SPDX-License-Identifier: MIT
// scalar.h: the scale, or scale and offset, that lets a run of elements be written on an even grid with the least squared error.
#pragma once

#include <stdint.h>

// x = d * (q - bias), q in 0..2*bias-1, d a half, which is returned. w: weights, not NULL. n at most 32.
uint16_t berth_fit_symmetric(const float *x, const float *w, int n, int bias, uint8_t *q);

// x = d * q + m, q in 0..q_max, d and m halves.
void berth_fit_affine(const float *x, const float *w, int n, int q_max, uint8_t *q, uint16_t *d, uint16_t *m);

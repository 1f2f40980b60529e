// SPDX-License-Identifier: MIT
// weighted.h: the scale, or scale and offset, of a block of 32 under an importance matrix, as the reference chooses them for
// q4_0 q4_1 q5_0 q5_1: byte for byte, so the order of the sums is part of the contract.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WEIGHTED_BLOCK = 32 };

// Mean square of a row.
float berth_row_power(const float *x, int64_t n);

// What the error of each element counts: w * sqrt(power + x * x), so that large elements count more than w says. False: w cannot
// steer a search, being zero throughout, negative or not finite somewhere.
bool berth_weighted_init(const float *x, const float *w, float power, float *weight);

// x = d * (q - bias), q in 0 .. 2 * bias - 1; returns d.
float berth_weighted_scale(const float *x, const float *weight, int bias, uint8_t *q);

// x = d * q + m, q in 0 .. q_max, m not above zero; returns d.
float berth_weighted_line(const float *x, const float *weight, int q_max, uint8_t *q, float *m);

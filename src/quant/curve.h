// SPDX-License-Identifier: MIT
// curve.h: the reduction of the squared error (gain) of a run at every scale, for grids with few levels.
#pragma once

#include "base/min.h"
#include "quant/scalar.h"

enum { CURVE_OCTAVES = 4, CURVE_MAX_PLACES = CURVE_OCTAVES << 6, CURVE_PEAKS = 8 };

// Writing a run as scale * g reduces its sum of squares by 2 * scale * a - scale^2 * b, with a = sum(w x g) and b = sum(w g g).
// Place i holds a and b for the levels g at the inverse scales of that place. Index [1] is for negative scales.
struct curve {
    uint32_t first; // bits of the inverse scale at place 0
    int shift;      // number of low bits of the float that are dropped: 32 or 64 places per octave
    int n_places;
    float a[2][CURVE_MAX_PLACES];
    float b[2][CURVE_MAX_PLACES];
    int n_peaks;
    // Scales with the largest gains, best first, without those whose error is much larger than that of the best.
    float peak[CURVE_PEAKS];
    float gain[CURVE_PEAKS]; // gains of these scales
};

// amax: largest magnitude of the run, above 0. The grid has at most 16 levels. fine: 64 places per octave, not 32.
void berth_curve_init(struct curve *c, const float *x, const float *w, int len, float amax, const struct grid *grid, bool fine);

static inline int curve_place(const struct curve *c, float inverse) {
    const int32_t off = (int32_t) (berth_float_bits(inverse) - c->first) >> c->shift;
    return max_int(0, off);
}

// Returns the gain at a scale other than zero, for levels whose inverse scale is within a few percent. inverse: 1 / scale.
static inline float curve_gain(const struct curve *c, float scale, float inverse) {
    const int sign = scale < 0.0f;
    const float size = fabsf(scale);
    const int i = min_int(curve_place(c, fabsf(inverse)), c->n_places - 1);
    return size * (2.0f * c->a[sign][i] - size * c->b[sign][i]);
}

// SPDX-License-Identifier: MIT
// curve.h: what a run of elements gains at every scale, on a grid of few levels.
#pragma once

#include "base/min.h"
#include "quant/scalar.h"

enum { CURVE_OCTAVES = 4, CURVE_MAX_PLACES = CURVE_OCTAVES << 6, CURVE_PEAKS = 8 };

// Writing a run as scale * g takes 2 * scale * a - scale^2 * b off its sum of squares, with a = sum(w x g) and b = sum(w g g).
// Place i holds both for the levels g of inverse scales about there; [1] is for negative scales.
struct curve {
    uint32_t first; // bits of the inverse scale at place 0
    int shift;      // from bits to places: 32 or 64 of them to the octave
    int n_places;
    float a[2][CURVE_MAX_PLACES];
    float b[2][CURVE_MAX_PLACES];
    int n_peaks;
    float peak[CURVE_PEAKS]; // scales with the largest gains, best first; none that leaves far more error than the best
    float gain[CURVE_PEAKS]; // theirs
};

// amax: largest magnitude of the run, above zero. The grid has at most 16 levels. fine: 64 places to
// the octave, not 32.
void berth_curve_init(struct curve *c, const float *x, const float *w, int len, float amax, const struct grid *grid, bool fine);

static inline int curve_place(const struct curve *c, float inverse) {
    const int32_t off = (int32_t) (berth_float_bits(inverse) - c->first) >> c->shift;
    return max_int(0, off);
}

// The gain at a scale other than zero, that of levels within some hundredths of the best. inverse: 1 / scale.
static inline float curve_gain(const struct curve *c, float scale, float inverse) {
    const int sign = scale < 0.0f;
    const float size = fabsf(scale);
    const int i = min_int(curve_place(c, fabsf(inverse)), c->n_places - 1);
    return size * (2.0f * c->a[sign][i] - size * c->b[sign][i]);
}

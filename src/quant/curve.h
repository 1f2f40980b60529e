// SPDX-License-Identifier: MIT
// curve.h: computes how well a run of elements x can be written as scale * g, for every scale. g are values of a grid with at
// most 16 levels. The gain of a scale is sum(w x x) minus the squared error sum(w (x - scale g)^2), so a larger gain is better.
#pragma once

#include "base/min.h"
#include "quant/scalar.h"

enum { CURVE_OCTAVES = 4, CURVE_MAX_PLACES = CURVE_OCTAVES << 6, CURVE_PEAKS = 8 };

// gain = 2 * scale * a - scale^2 * b, with a = sum(w x g) and b = sum(w g g). A place is a range of inverse scales whose floats
// have the same upper bits. a[0][i] and b[0][i] belong to place i: each x is rounded to the grid value g nearest to x * inverse
// scale. a[1] and b[1] are for negative scales.
struct curve {
    uint32_t first; // bits of the inverse scale at place 0
    int shift;      // number of low bits of the float that do not matter: 18 gives 32 places per octave, 17 gives 64
    int n_places;
    float a[2][CURVE_MAX_PLACES];
    float b[2][CURVE_MAX_PLACES];
    int n_peaks;
    // Scales at local maxima of the gain, best first. Scales whose error is more than about twice the least are left out.
    float peak[CURVE_PEAKS];
    float gain[CURVE_PEAKS]; // gain of each peak
};

// amax: largest magnitude of the run, above 0. fine: 64 places per octave instead of 32.
void berth_curve_init(struct curve *c, const float *x, const float *w, int len, float amax, const struct grid *grid, bool fine);

static inline int curve_place(const struct curve *c, float inverse) {
    const int32_t off = (int32_t) (berth_float_bits(inverse) - c->first) >> c->shift;
    return max_int(0, off);
}

// Returns the approximate gain at a scale other than zero. inverse: 1 / scale. The gain is approximate because the elements are
// rounded with the inverse scale at the end of the place, which differs from `inverse` by up to 3%.
static inline float curve_gain(const struct curve *c, float scale, float inverse) {
    const int sign = scale < 0.0f;
    const float size = fabsf(scale);
    const int i = min_int(curve_place(c, fabsf(inverse)), c->n_places - 1);
    return size * (2.0f * c->a[sign][i] - size * c->b[sign][i]);
}

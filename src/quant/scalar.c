// SPDX-License-Identifier: MIT
// scalar.c: fits x = scale * g to a run of elements with the least squared error; g is on an even grid or in a table of values.
//
// A trial scale rounds the elements to grid values g. With A = sum(w x g) and B = sum(w g g), the best scale for these g is A /
// B, and the error is sum(w x x) - A * A / B. curve.c computes the error for a dense series of scales and returns the best scales
// (peaks). The peaks are tried first, and for each of them A / B. If all nonzero elements of a run have the same value v, the
// scale v / g is also tried for every grid value g other than 0. A frame (normalise.h) holds the elements and weights of a block.
// A hard frame needs a longer search, so more peaks are tried.
#include "quant/scalar_run.h"

// A trial scale and its error.
struct trial {
    float d;     // the scale of the frame's elements, rounded so that it equals h
    uint16_t h;  // the scale of the row's elements as f16 (frame_round_half)
    float error; // squared error with this scale
};

// Rounds the scale to f16. If its error is smaller than the error of *best, replaces *best.
static void try_scale(const struct frame *f, int at, int len, const struct grid *grid, float scale, struct trial *best) {
    struct trial r = {.d = scale};
    r.h = frame_round_half(f, &r.d);
    if (r.h != best->h) {
        r.error = error_at(f->x + at, f->w + at, len, grid, r.d);
        if (r.error < best->error) {
            *best = r;
        }
    }
}

// Returns the f16 to store as d. The scale with the least squared error makes dot products a little too small. So the f16 is a
// little larger than `scale` (frame_growth).
static uint16_t run_unbiased(const struct frame *f, int at, int len, const struct grid *grid, float scale) {
    float a, b;
    run_project(f->x + at, f->w + at, len, grid, 1.0f / scale, &a, &b);
    scale *= frame_growth(f, sum_of_squares(f->x + at, f->w + at, len), scale * a, 1.0f);
    return frame_round_half(f, &scale);
}

uint16_t berth_fit_run(const struct frame *f, int at, int len, const struct grid *grid, uint8_t *q) {
    const float *x = f->x + at;
    const float *w = f->w + at;
    struct trial best = {.error = error_at(x, w, len, grid, 0.0f)}; // error with d = 0
    struct curve c;
    float a, b;
    if (v4_largest(x, len) != 0.0f) {
        berth_curve_init(&c, x, w, len, v4_largest(x, len), grid, f->hard);
        for (int i = 0; i < c.n_peaks && i < (f->hard ? CURVE_PEAKS : 2); i++) {
            float scale = c.peak[i];
            for (int round = 0; round < 2 && scale != 0.0f; round++) {
                try_scale(f, at, len, grid, scale, &best);
                run_project(x, w, len, grid, 1.0f / scale, &a, &b);
                scale = b > 0.0f ? a / b : 0.0f;
            }
            try_scale(f, at, len, grid, scale, &best);
        }
    }
    const float value = only_value(x, len);
    for (int i = 0; value != 0.0f && i < n_levels(grid); i++) {
        if (grid_level(grid, i) != 0.0f) {
            try_scale(f, at, len, grid, value / grid_level(grid, i), &best);
        }
    }
    write_levels(x, len, grid, best.d, q);
    return best.d != 0.0f ? run_unbiased(f, at, len, grid, best.d) : best.h;
}

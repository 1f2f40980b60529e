// SPDX-License-Identifier: MIT
// scalar.c: fits x = scale * g to a run of elements with the least squared error; g is on an even grid or in a table of values.
//
// A trial scale rounds the elements to grid values g. With A = sum(w x g) and B = sum(w g g), the best scale for these g is A /
// B, and the error is sum(w x x) - A * A / B. curve.c evaluates all scales. If all nonzero elements of a run are equal, every
// level is also tried for them.
#include "quant/scalar_run.h"

struct run {
    float d;
    uint16_t h;
    float error;
};

// If the error with the scale rounded to f16 is smaller, replaces *best.
static void try_scale(const struct frame *f, int at, int len, const struct grid *grid, float scale, struct run *best) {
    struct run r = {.d = scale};
    r.h = frame_round_half(f, &r.d);
    if (r.h != best->h) {
        r.error = error_at(f->x + at, f->w + at, len, grid, r.d);
        if (r.error < best->error) {
            *best = r;
        }
    }
}

// Returns the f16 to store as d. The f16 is a little larger than `scale`, so that dot products keep their size (frame_growth).
static uint16_t run_unbiased(const struct frame *f, int at, int len, const struct grid *grid, float scale) {
    float a, b;
    run_project(f->x + at, f->w + at, len, grid, 1.0f / scale, &a, &b);
    scale *= frame_growth(f, sum_of_squares(f->x + at, f->w + at, len), scale * a, 1.0f);
    return frame_round_half(f, &scale);
}

uint16_t berth_fit_run(const struct frame *f, int at, int len, const struct grid *grid, uint8_t *q) {
    const float *x = f->x + at;
    const float *w = f->w + at;
    struct run best = {.error = error_at(x, w, len, grid, 0.0f)}; // error with d = 0
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

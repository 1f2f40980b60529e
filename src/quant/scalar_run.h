// SPDX-License-Identifier: MIT
// scalar_run.h: sums, errors and levels of a run at a given scale, for scalar.c and scalar_super.c.
// Notation: x: elements; w: weights; g: grid values to which x / scale rounds; A = sum(w x g); B = sum(w g g). A / B is the best
// scale for these g. A * A / B is the gain, the reduction of the squared error.
// The functions are inline, so that loops are specialised by length and grid. X_body is the loop of function X (BY_GRID).
#pragma once

#include "base/min.h"
#include "quant/curve.h"
#include "quant/scalar.h"
#include "quant/vec.h"

static inline int nearest_value(const int8_t *values, float v) {
    int i = 0;
    for (int step = 8; step > 0; step /= 2) {
        i += 2.0f * v > (float) (values[i + step - 1] + values[i + step]) ? step : 0;
    }
    return i;
}

static inline v4f grid_snap(const struct grid *grid, v4f v) {
    v = v4_max(v4_min(v, v4_all(grid->hi)), v4_all(grid->lo));
    if (grid->values == NULL) {
        return v4_round(v);
    }
    // Comparisons process all lanes together. A table look-up would process each lane separately.
    v4f g = v4_all(grid->values[0]);
    for (int i = 1; i < 16; i++) {
        const float middle = 0.5f * (float) (grid->values[i - 1] + grid->values[i]);
        const float step = (float) (grid->values[i] - grid->values[i - 1]);
        g += (v4f) ((v > v4_all(middle)) & (v4i) v4_all(step));
    }
    return g;
}

// Computes A and B. inverse: 1 / scale.
static inline void run_project_body(
    const float *x, const float *w, int len, const struct grid *grid, float inverse, float *a_out, float *b_out) {
    v4f a = v4_all(0.0f);
    v4f b = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f g = grid_snap(grid, xi * v4_all(inverse));
        const v4f wg = v4_load(w + i) * g;
        a += wg * xi;
        b += wg * g;
    }
    *a_out = v4_sum(a);
    *b_out = v4_sum(b);
}

// Computes A and B for four inverses, one per lane. Each lane is bitwise equal to run_project_body with that inverse.
static inline void run_project_4_body(
    const float *x, const float *w, int len, const struct grid *grid, v4f inverse, v4f *a_out, v4f *b_out) {
    v4f a[4] = {v4_all(0.0f), v4_all(0.0f), v4_all(0.0f), v4_all(0.0f)};
    v4f b[4] = {v4_all(0.0f), v4_all(0.0f), v4_all(0.0f), v4_all(0.0f)};
    for (int i = 0; i < len; i += 4) {
        for (int k = 0; k < 4; k++) {
            const v4f xi = v4_all(x[i + k]);
            const v4f g = grid_snap(grid, xi * inverse);
            const v4f wg = v4_all(w[i + k]) * g;
            a[k] += wg * xi;
            b[k] += wg * g;
        }
    }
    *a_out = (a[0] + a[2]) + (a[1] + a[3]);
    *b_out = (b[0] + b[2]) + (b[1] + b[3]);
}

static inline float error_at_body(const float *x, const float *w, int len, const struct grid *grid, float scale) {
    const v4f inverse = v4_all(scale != 0.0f ? 1.0f / scale : 0.0f);
    v4f sum = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f e = xi - grid_snap(grid, xi * inverse) * v4_all(scale);
        sum += v4_load(w + i) * e * e;
    }
    return v4_sum(sum);
}

// One scale per lane.
static inline v4f error_at_4(const float *x, const float *w, int len, const struct grid *grid, v4f scale) {
    const v4f inverse = v4_select(scale != v4_all(0.0f), v4_all(1.0f) / scale, v4_all(0.0f));
    v4f sum[4] = {v4_all(0.0f), v4_all(0.0f), v4_all(0.0f), v4_all(0.0f)};
    for (int i = 0; i < len; i += 4) {
        for (int k = 0; k < 4; k++) {
            const v4f xi = v4_all(x[i + k]);
            const v4f e = xi - grid_snap(grid, xi * inverse) * scale;
            sum[k] += v4_all(w[i + k]) * e * e;
        }
    }
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

// Calls call(len, grid). In the most common case (len 16, no table), len and grid->values are constants.
#define BY_GRID(call) \
    do { \
        if (grid->values == NULL && len == 16) { \
            const struct grid even = {grid->lo, grid->hi, NULL}; \
            call(16, &even); \
        } else { \
            call(len, grid); \
        } \
    } while (0)

static inline void run_project(
    const float *x, const float *w, int len, const struct grid *grid, float inverse, float *a, float *b) {
#define PROJECT(n, g) run_project_body(x, w, n, g, inverse, a, b)
    BY_GRID(PROJECT);
}

static inline void run_project_4(const float *x, const float *w, int len, const struct grid *grid, v4f inverse, v4f *a, v4f *b) {
#define PROJECT_4(n, g) run_project_4_body(x, w, n, g, inverse, a, b)
    BY_GRID(PROJECT_4);
}

static inline float error_at(const float *x, const float *w, int len, const struct grid *grid, float scale) {
#define ERROR_AT(n, g) return error_at_body(x, w, n, g, scale)
    BY_GRID(ERROR_AT);
}

// Returns sum(w x x).
static inline float sum_of_squares(const float *x, const float *w, int len) {
    v4f sum = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        sum += v4_load(w + i) * v4_load(x + i) * v4_load(x + i);
    }
    return v4_sum(sum);
}

// Returns the element of the largest magnitude. If magnitudes are equal, returns the first element.
static inline float run_extreme(const float *x, int len) {
    const float amax = v4_largest(x, len);
    int i = 0;
    while (fabsf(x[i]) != amax) {
        i++;
    }
    return amax != 0.0f ? x[i] : 0.0f;
}

// Returns the best scale of the run, not rounded; 0 for a run of zeros. The search maps the largest element to n_trials positions
// near the grid end lo (n_ends = 1) or near both ends (n_ends = 2). Then A / B replaces the best scale up to n_rounds times.
// n_trials: a multiple of 4.
static inline float run_scale(
    const float *x, const float *w, int len, const struct grid *grid, int n_ends, int n_trials, int n_rounds) {
    const float max = run_extreme(x, len);
    float best = 0.0f;
    float scale = 0.0f;
    float a, b;
    if (max == 0.0f) {
        return 0.0f;
    }
    const v4f inverse_max = v4_all(1.0f / max);
    v4f gains = v4_all(0.0f);
    v4f scales = gains;
    for (int end = 0; end < n_ends; end++) {
        const float edge = end == 0 ? grid->lo : grid->hi;
        // Positions beyond the end clip the largest element, which can reduce the error of the others. Coarse grids gain more
        // from clipping.
        const float from = (1.0f - 0.6f / fabsf(edge) - 0.04f) * edge;
        const float step = ((1.0f + 3.0f / fabsf(edge) + 0.06f) * edge - from) / (float) (n_trials - 1);
        for (int t = 0; t < n_trials; t += 4) {
            const v4f ts = {(float) t, (float) (t + 1), (float) (t + 2), (float) (t + 3)};
            v4f as, bs;
            run_project_4(x, w, len, grid, (v4_all(from) + v4_all(step) * ts) * inverse_max, &as, &bs);
            // bs > 0: the largest element never rounds to zero.
            const v4f fitted = as / bs;
            const v4i better = fitted * as > gains;
            gains = v4_select(better, fitted * as, gains);
            scales = v4_select(better, fitted, scales);
        }
    }
    for (int k = 0; k < 4; k++) {
        if (gains[k] > best) {
            best = gains[k];
            scale = scales[k];
        }
    }
    for (int round = 0; round < n_rounds && scale != 0.0f; round++) {
        run_project(x, w, len, grid, 1.0f / scale, &a, &b);
        if (!(b > 0.0f && a * a > best * b)) {
            break;
        }
        best = a * a / b;
        scale = a / b;
    }
    return scale;
}

// len: a multiple of 16.
static inline void write_levels(const float *x, int len, const struct grid *grid, float scale, uint8_t *q) {
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < len && grid->values != NULL; i++) {
        q[i] = (uint8_t) nearest_value(grid->values, float_clamp(x[i] * inverse, grid->lo, grid->hi));
    }
    for (int i = 0; i < len && grid->values == NULL; i += 16) {
        v4i levels[4];
        for (int j = 0; j < 4; j++) {
            levels[j] = v4_int(grid_snap(grid, v4_load(x + i + 4 * j) * v4_all(inverse)) - v4_all(grid->lo));
        }
        v4_store_bytes(levels, 16, q + i);
    }
}

// If all nonzero elements have the same value, returns this value. Otherwise, returns 0.
static inline float only_value(const float *x, int len) {
    float v = 0.0f;
    for (int i = 0; i < len; i++) {
        if (v == 0.0f) {
            v = x[i];
        }
        if (x[i] != 0.0f && x[i] != v) {
            return 0.0f;
        }
    }
    return v;
}

static inline int n_levels(const struct grid *grid) {
    return grid->values != NULL ? 16 : (int) (grid->hi - grid->lo) + 1;
}

static inline float grid_level(const struct grid *grid, int i) {
    return grid->values != NULL ? (float) grid->values[i] : grid->lo + (float) i;
}

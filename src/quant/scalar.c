// SPDX-License-Identifier: MIT
// scalar.c: x = scale * g for runs of elements, g on an even grid or in a codebook: which scale has the least squared error?
//
// One run. Each of a set of trial scales rounds the run to grid points g; for these points the best scale is A / B and the
// squared error it leaves is sum(w x x) - A * A / B, with A = sum(w x g) and B = sum(w g g). The trial with the largest A * A / B
// wins. Trials put the largest element on evenly spaced places around both ends of the grid, beyond them too: clipping one
// element can serve the others.
//
// A superblock. Runs share a half d and have integer scales s. From the runs' own scales follows a d by trials, then two steps
// are repeated: with d fixed each run takes the best of the neighbouring s; with s and g fixed d is refitted by least squares
// over all 256. Every step is kept only if the error after rounding d to a half is less: the result is never worse than the
// start. Cost: about 40 roundings an element.
#include "quant/scalar.h"
#include "quant/vec.h"

#include <string.h>

// ---- one run ----

static inline float clampf(float v, float lo, float hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

// Index of the nearest of 16 sorted values.
static inline int nearest_value(const int8_t *values, float v) {
    int i = 0;
    for (int step = 8; step > 0; step /= 2) {
        i += 2.0f * v > (float) (values[i + step - 1] + values[i + step]) ? step : 0;
    }
    return i;
}

// Four grid points nearest to v.
static inline v4f snap(const struct grid *grid, v4f v) {
    v = v4_max(v4_min(v, v4_all(grid->hi)), v4_all(grid->lo));
    if (grid->values == NULL) {
        return v4_round(v);
    }
    // One comparison for each pair of neighbours: no look-up, and the lanes stay together.
    v4f g = v4_all(grid->values[0]);
    for (int i = 1; i < 16; i++) {
        const float middle = 0.5f * (float) (grid->values[i - 1] + grid->values[i]);
        const float step   = (float) (grid->values[i] - grid->values[i - 1]);
        g += (v4f) ((v > v4_all(middle)) & (v4i) v4_all(step));
    }
    return g;
}

// A and B of the points that x * inverse rounds to.
static inline void project(
    const float *x, const float *w, int len, const struct grid *grid, float inverse, float *a_out, float *b_out) {
    v4f a = v4_all(0.0f);
    v4f b = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f g  = snap(grid, xi * v4_all(inverse));
        const v4f wg = v4_load(w + i) * g;
        a += wg * xi;
        b += wg * g;
    }
    *a_out = v4_sum(a);
    *b_out = v4_sum(b);
}

// Squared error of the run at this scale.
static inline float error_at(const float *x, const float *w, int len, const struct grid *grid, float scale) {
    const v4f inverse = v4_all(scale != 0.0f ? 1.0f / scale : 0.0f);
    v4f sum           = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f e  = xi - snap(grid, xi * inverse) * v4_all(scale);
        sum += v4_load(w + i) * e * e;
    }
    return v4_sum(sum);
}

static float extreme(const float *x, int len) {
    float max = 0.0f;
    for (int i = 0; i < len; i++) {
        max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    }
    return max;
}

// Best scale of the run without regard to what a half or an integer can hold; 0 for a run of zeros.
static float run_scale(const float *x, const float *w, int len, const struct grid *grid, int n_trials) {
    enum { N_ROUNDS = 3 };
    const float max = extreme(x, len);
    float best      = 0.0f;
    float scale     = 0.0f;
    float a, b;
    if (max == 0.0f) {
        return 0.0f;
    }
    for (int end = 0; end < 2; end++) {
        const float edge = end == 0 ? grid->lo : grid->hi;
        // From a little inside the end to beyond it; coarse grids gain more from clipping.
        const float from = (1.0f - 0.6f / fabsf(edge) - 0.04f) * edge;
        const float step = ((1.0f + 3.0f / fabsf(edge) + 0.06f) * edge - from) / (float) (n_trials - 1);
        for (int t = 0; t < n_trials; t++) {
            project(x, w, len, grid, (from + step * (float) t) / max, &a, &b);
            if (b > 0.0f && a * a > best * b) {
                best  = a * a / b;
                scale = a / b;
            }
        }
    }
    for (int round = 0; round < N_ROUNDS && scale != 0.0f; round++) {
        project(x, w, len, grid, 1.0f / scale, &a, &b);
        if (!(b > 0.0f && a * a > best * b)) {
            break;
        }
        best  = a * a / b;
        scale = a / b;
    }
    return scale;
}

struct run {
    float d;
    uint16_t h;
    float error;
};

static void write_levels(const float *x, int len, const struct grid *grid, float scale, uint8_t *q) {
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < len; i++) {
        const float v = clampf(x[i] * inverse, grid->lo, grid->hi);
        q[i]          = (uint8_t) (grid->values != NULL ? nearest_value(grid->values, v) : (int) (rintf(v) - grid->lo));
    }
}

// Takes scale as a half if it leaves less error.
static void try_scale(const struct frame *f, int at, int len, const struct grid *grid, float scale, struct run *best) {
    struct run r = {.d = scale};
    r.h          = frame_round_half(f, &r.d);
    if (r.h != best->h) {
        r.error = error_at(f->x + at, f->w + at, len, grid, r.d);
        if (r.error < best->error) {
            *best = r;
        }
    }
}

uint16_t berth_fit_run(const struct frame *f, int at, int len, const struct grid *grid, uint8_t *q) {
    const float *x  = f->x + at;
    const float *w  = f->w + at;
    const float max = extreme(x, len);
    struct run best = {.error = error_at(x, w, len, grid, 0.0f)}; // what zeros leave
    const float all = best.error;
    try_scale(f, at, len, grid, run_scale(x, w, len, grid, 20), &best);
    // The points may have moved with the rounding: fit once more.
    if (best.d != 0.0f) {
        float a, b;
        project(x, w, len, grid, 1.0f / best.d, &a, &b);
        try_scale(f, at, len, grid, b > 0.0f ? a / b : 0.0f, &best);
    }
    // A run that is all but exact, such as a constant one, has only the rounding of d left to lose: try the points one by one.
    for (int i = 0; i < 16 && best.error < 1e-5f * all; i++) {
        const float g = grid->values != NULL ? (float) grid->values[i] : grid->lo + (grid->hi - grid->lo) * (float) i / 15.0f;
        if (fabsf(g) >= 1.0f) {
            try_scale(f, at, len, grid, max / rintf(g), &best);
        }
    }
    write_levels(x, len, grid, best.d, q);
    return best.h;
}

// ---- a superblock ----

enum { MAX_RUNS = 16 };

struct plan {
    float d;
    uint16_t h;
    float error;
    int s[MAX_RUNS];
};

static int nearest_scale(float v, int s_min) {
    return (int) rintf(clampf(v, (float) s_min, (float) (-s_min - 1)));
}

// With d fixed, each run takes the best s among reach neighbours on either side of its own scale.
static void choose_scales(
    const struct frame *f, int len, const struct grid *grid, int s_min, const float *own, int reach, struct plan *p) {
    p->error = 0.0f;
    for (int r = 0; r < QK_K / len; r++) {
        const int middle = p->d != 0.0f ? nearest_scale(own[r] / p->d, s_min) : 0;
        float best       = INFINITY;
        for (int k = 0; k <= 2 * reach; k++) {
            const int s = middle + (k % 2 ? (k + 1) / 2 : -k / 2);
            if (s < s_min || s > -s_min - 1) {
                continue;
            }
            const float error = error_at(f->x + r * len, f->w + r * len, len, grid, p->d * (float) s);
            if (error < best || k == 0) {
                best    = error;
                p->s[r] = s;
            }
        }
        p->error += best;
    }
}

static float refit(const struct frame *f, int len, const struct grid *grid, const struct plan *p) {
    float aa = 0.0f;
    float bb = 0.0f;
    for (int r = 0; r < QK_K / len; r++) {
        const float s = (float) p->s[r];
        float a, b;
        if (p->s[r] != 0) {
            project(f->x + r * len, f->w + r * len, len, grid, 1.0f / (p->d * s), &a, &b);
            aa += s * a;
            bb += s * s * b;
        }
    }
    return bb > 0.0f ? aa / bb : 0.0f;
}

static void try_d(
    const struct frame *f, int len, const struct grid *grid, int s_min, const float *own, float d, struct plan *best) {
    struct plan p = {.d = d};
    p.h           = frame_round_half(f, &p.d);
    choose_scales(f, len, grid, s_min, own, 0, &p);
    if (p.error < best->error) {
        *best = p;
    }
}

uint16_t berth_fit_super(const struct frame *f, int len, const struct grid *grid, int s_min, int8_t *s, uint8_t *q) {
    enum { N_TRIALS = 12, N_ROUNDS = 3 };
    float own[MAX_RUNS] = {0};
    struct plan best    = {.d = 0.0f, .error = INFINITY};
    for (int r = 0; r < QK_K / len; r++) {
        own[r] = run_scale(f->x + r * len, f->w + r * len, len, grid, 12);
    }
    const float max = extreme(own, QK_K / len);
    choose_scales(f, len, grid, s_min, own, 0, &best); // d = 0: what zeros leave
    const float zero_error = best.error;
    for (int t = 0; t < N_TRIALS && max != 0.0f; t++) {
        // The largest scale becomes s_min, or one of its neighbours in half steps.
        try_d(f, len, grid, s_min, own, max / ((float) s_min + 0.5f * (float) t), &best);
    }
    for (int round = 0; round < N_ROUNDS && best.d != 0.0f; round++) {
        struct plan p = best;
        choose_scales(f, len, grid, s_min, own, 1, &p);
        if (p.error < best.error) {
            best = p;
        }
        p.d = refit(f, len, grid, &best);
        p.h = frame_round_half(f, &p.d);
        if (p.h == best.h) {
            break;
        }
        choose_scales(f, len, grid, s_min, own, 1, &p);
        if (!(p.error < best.error)) {
            break;
        }
        best = p;
    }
    // A block that is all but exact, such as a constant one, has only the rounding of d left to lose: try them all.
    for (int t = s_min; t < 0 && best.error < 1e-5f * zero_error; t++) {
        try_d(f, len, grid, s_min, own, max / (float) t, &best);
    }
    for (int r = 0; r < QK_K / len; r++) {
        s[r] = (int8_t) best.s[r];
        write_levels(f->x + r * len, len, grid, best.d * (float) best.s[r], q + r * len);
    }
    return best.h;
}

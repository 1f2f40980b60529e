// SPDX-License-Identifier: MIT
// scalar_super.c: fits x = d * s * g to a superblock. All runs share the f16 value d. Each run has an integer scale s. Each
// element has a grid level g.
//   1. Each run finds the scales that fit it best, without regard to the other runs.
//   2. The run with the largest scale determines which d are tried. For each d, each run takes the nearest s.
//   3. The best few d are improved. In turn, d is refitted by least squares, and each run takes the best neighbouring s.
// Step 3 never makes a start worse, because a change must reduce the error after rounding d to f16. If all nonzero elements of a
// block are equal, all products s * g are also tried for them.
#include "base/min.h"
#include "quant/scalar_run.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 16, MAX_STARTS = 8, FINE_RUN = 16 };

// A candidate for the result.
struct plan {
    float d;    // value of h in the frame (normalise.h)
    uint16_t h; // the f16 that the block would store
    float error;
    int s[MAX_RUNS];
};

// Limits of a search. If a search uses curves (curve.c), the limits of run_scale are unused.
struct effort {
    int n_ends;    // run_scale: 1: lowest grid end only; 2: both
    int n_trials;  // run_scale: trial scales per end
    int n_settles; // run_scale: refinements of the best scale
    int n_starts;  // trial values of d, multiple of 4; 0: plan_direct
    int n_rounds;  // rounds of the two alternating steps
    int n_shifts;  // calls of shift_scales per start
};
// quick_effort: for 3-bit levels with equal weights, for which the reference does not search either.
static const struct effort quick_effort = {1, 8, 0, 0, 0, 0};
static const struct effort plain_effort = {2, 4, 1, 4, 2, 0};
static const struct effort weighted_effort = {2, 8, 1, 4, 2, 0};
static const struct effort curve_effort = {0, 0, 0, 16, 2, 0};
static const struct effort hard_effort = {2, 36, 3, 12, 5, 4};

struct search {
    const struct frame *f;
    const struct grid *grid;
    int len, n_runs;
    int s_min;
    int n_starts;
    struct effort effort;
    const struct curve *curves; // one per run; NULL: search without curves
    int n_peaks[MAX_RUNS];      // number of best scales of each run
    float peak[MAX_RUNS][CURVE_PEAKS];
    float later_gain[MAX_RUNS]; // approximate largest total gain of the runs after this one
};

static int nearest_scale(float v, int s_min) {
    return (int) rintf(float_clamp(v, (float) s_min, (float) (-s_min - 1)));
}

static float run_error(const struct search *z, int r, float scale) {
    return error_at(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->grid, scale);
}

// Returns a number that is larger if s is better for the run. If `exact`, the number is the negative error. Otherwise, the number
// is the approximate gain from the curve of the run.
static float run_gain(const struct search *z, bool exact, int r, float d, float inverse_d, int s) {
    if (exact) {
        return -run_error(z, r, d * (float) s);
    }
    return s != 0 ? curve_gain(&z->curves[r], d * (float) s, inverse_d / (float) s) : 0.0f;
}

// Lists in `tried`, without duplicates, all s within `reach` of a best scale of the run or of current_s. Returns their number.
static inline int near_scales(const struct search *z, int r, int reach, float inverse_d, int current_s, int *tried) {
    int middle[1 + CURVE_PEAKS];
    int n = 0;
    for (int i = 0; i <= z->n_peaks[r]; i++) {
        middle[i] = i > 0 ? nearest_scale(z->peak[r][i - 1] * inverse_d, z->s_min) : current_s;
        for (int s = middle[i] - reach; s <= middle[i] + reach; s++) {
            bool seen = s < z->s_min || s > -z->s_min - 1;
            for (int k = 0; k < i; k++) {
                seen = seen || abs(s - middle[k]) <= reach;
            }
            tried[n] = s;
            n += !seen;
        }
    }
    return n;
}

// With d fixed, gives each run its best s and computes the error of the plan.
static void choose_scales(const struct search *z, int reach, struct plan *p) {
    const float inverse_d = inverse_or_0(p->d);
    const bool exact = z->curves == NULL || z->f->hard;
    p->error = 0.0f;
    for (int r = 0; r < z->n_runs; r++) {
        enum { MAX_TRIED = 3 * (1 + CURVE_PEAKS) };
        int tried[MAX_TRIED + 1]; // near_scales may write one entry past those it counts
        float gains[MAX_TRIED];
        const int n = near_scales(z, r, reach, inverse_d, p->s[r], tried);
        int chosen = p->s[r];
        float best = -INFINITY;
        // All gains are computed before the first comparison, because mispredicted branches would delay the computation.
        for (int i = 0; i < n; i++) {
            gains[i] = run_gain(z, exact, r, p->d, inverse_d, tried[i]);
        }
        for (int i = 0; i < n; i++) {
            if (gains[i] > best) {
                chosen = tried[i];
            }
            best = max_f32(gains[i], best);
        }
        float error = exact ? -best : run_error(z, r, p->d * (float) chosen);
        if (!exact && chosen != p->s[r]) {
            const float stay = run_error(z, r, p->d * (float) p->s[r]);
            if (stay < error) {
                error = stay;
                chosen = p->s[r];
            }
        }
        p->s[r] = chosen;
        p->error += error;
    }
}

static float plan_refit(const struct search *z, const struct plan *p) {
    float aa = 0.0f;
    float bb = 0.0f;
    for (int r = 0; r < z->n_runs; r++) {
        const float s = (float) p->s[r];
        float a, b;
        if (p->s[r] != 0) {
            run_project(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->grid, 1.0f / (p->d * s), &a, &b);
            aa += s * a;
            bb += s * s * b;
        }
    }
    return bb > 0.0f ? aa / bb : 0.0f;
}

// `starts` is sorted by error. If two d differ by at most 1%, only the better start is kept.
static void start_keep(const struct search *z, const struct plan *p, struct plan *starts) {
    int last = 0;
    while (last < z->n_starts - 1 && fabsf(starts[last].d - p->d) > 0.01f * fabsf(p->d)) {
        last++;
    }
    if (p->error < starts[last].error) {
        while (last > 0 && p->error < starts[last - 1].error) {
            starts[last] = starts[last - 1];
            last--;
        }
        starts[last] = *p;
    }
}

static void try_start(const struct search *z, float d, struct plan *starts) {
    struct plan p = {.d = d};
    p.h = frame_round_half(z->f, &p.d);
    const float inverse_d = inverse_or_0(p.d);
    for (int r = 0; r < z->n_runs && p.d != 0.0f; r++) {
        float best = z->n_peaks[r] > 0 ? -INFINITY : 0.0f;
        for (int i = 0; i < z->n_peaks[r]; i++) {
            const int s = nearest_scale(z->peak[r][i] * inverse_d, z->s_min);
            const float gain = run_gain(z, false, r, p.d, inverse_d, s);
            if (gain > best) {
                best = gain;
                p.s[r] = s;
            }
        }
        p.error -= best;
        if (p.error - z->later_gain[r] > starts[z->n_starts - 1].error) {
            return;
        }
    }
    start_keep(z, &p, starts);
}

// For searches without curves: each run has one best scale, and the errors are exact.
static void try_starts_4(const struct search *z, const float *d, struct plan *starts) {
    struct plan p[4] = {{.d = d[0]}, {.d = d[1]}, {.d = d[2]}, {.d = d[3]}};
    const struct grid even = {z->grid->lo, z->grid->hi, NULL};
    v4f ds, inverse_d, error = v4_all(0.0f);
    for (int k = 0; k < 4; k++) {
        p[k].h = frame_round_half(z->f, &p[k].d);
        ds[k] = p[k].d;
        inverse_d[k] = inverse_or_0(p[k].d);
    }
    for (int r = 0; r < z->n_runs; r++) {
        if (z->n_peaks[r] > 0) {
            const v4f v = v4_all(z->peak[r][0]) * inverse_d;
            const v4f s = v4_round(v4_max(v4_min(v, v4_all((float) (-z->s_min - 1))), v4_all((float) z->s_min)));
            error += error_at_4(z->f->x + r * FINE_RUN, z->f->w + r * FINE_RUN, FINE_RUN, &even, ds * s);
            for (int k = 0; k < 4; k++) {
                p[k].s[r] = (int) s[k];
            }
        }
    }
    for (int k = 0; k < 4; k++) {
        p[k].error = p[k].d != 0.0f ? error[k] : 0.0f;
        start_keep(z, &p[k], starts);
    }
}

static void plan_improve(const struct search *z, struct plan *best) {
    choose_scales(z, 1, best);
    for (int round = 1; round < z->effort.n_rounds; round++) {
        struct plan p = *best;
        p.d = plan_refit(z, best);
        p.h = frame_round_half(z->f, &p.d);
        if (p.h == best->h) {
            break;
        }
        choose_scales(z, 1, &p);
        if (!(p.error < best->error)) {
            break;
        }
        *best = p;
    }
}

// Changes one s at a time by 1 or 2 and refits d. This finds solutions that plan_improve misses. Returns true if the error
// decreased.
static bool shift_scales(const struct search *z, struct plan *best) {
    struct plan p = *best;
    float a[MAX_RUNS], b[MAX_RUNS];
    float aa = 0.0f, bb = 0.0f;
    for (int r = 0; r < z->n_runs; r++) {
        const float s = (float) p.s[r];
        run_project(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->grid, inverse_or_0(p.d * s), &a[r], &b[r]);
        aa += s * a[r];
        bb += s * s * b[r];
    }
    for (int r = 0; r < z->n_runs && bb > 0.0f; r++) {
        const float s0 = (float) p.s[r];
        const float a0 = aa - s0 * a[r];
        const float b0 = bb - s0 * s0 * b[r];
        // All four changes are evaluated with the current d.
        const v4f inverses = {inverse_or_0(p.d * (s0 - 2.0f)), inverse_or_0(p.d * (s0 - 1.0f)), inverse_or_0(p.d * (s0 + 1.0f)),
            inverse_or_0(p.d * (s0 + 2.0f))};
        bool moved = false;
        v4f as, bs;
        run_project_4(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->grid, inverses, &as, &bs);
        for (int s = (int) s0 - 2; s <= (int) s0 + 2; s++) {
            const float sf = (float) s;
            if (s != p.s[r] && s != 0 && s >= z->s_min && s <= -z->s_min - 1) {
                const int lane = s - (int) s0 + (sf < s0 ? 2 : 1);
                float ar = as[lane & 3], br = bs[lane & 3];
                if (moved) {
                    run_project(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->grid, inverse_or_0(p.d * sf), &ar, &br);
                }
                const float a1 = a0 + sf * ar;
                const float b1 = b0 + sf * sf * br;
                if (a1 * a1 * bb > aa * aa * b1 * 1.000001f) {
                    aa = a1;
                    bb = b1;
                    moved = true;
                    p.s[r] = s;
                    p.d = aa / bb;
                }
            }
        }
    }
    p.h = frame_round_half(z->f, &p.d);
    choose_scales(z, 1, &p);
    if (!(p.error < best->error)) {
        return false;
    }
    *best = p;
    return true;
}

// For blocks of one value and zeros: finds the s * g with the least error after rounding d to f16.
static void try_products(const struct search *z, float value, struct plan *best) {
    struct plan found = *best;
    double least = INFINITY;
    for (int s = z->s_min; s <= -z->s_min - 1; s++) {
        for (int i = 0; i < n_levels(z->grid); i++) {
            const float product = (float) s * grid_level(z->grid, i);
            float d = product != 0.0f ? value / product : 0.0f;
            const uint16_t h = frame_round_half(z->f, &d);
            const double distance = fabs((double) d * product - value);
            if (d != 0.0f && distance < least) {
                least = distance;
                found.d = d;
                found.h = h;
                for (int r = 0; r < z->n_runs; r++) {
                    found.s[r] = run_extreme(z->f->x + r * z->len, z->len) != 0.0f ? s : 0;
                }
            }
        }
    }
    choose_scales(z, 0, &found);
    if (found.error < best->error) {
        *best = found;
    }
    // If the grid has no zero, the zeros of the block have errors too. So a neighbouring f16 may be better.
    for (int step = -8; step <= 8; step++) {
        found = *best;
        found.h = (uint16_t) (best->h + step);
        found.d = (float) (berth_half_to_float(found.h) / z->f->outer);
        if (isfinite(found.d) && ((found.h ^ best->h) & 0x8000) == 0) {
            choose_scales(z, 0, &found);
            if (found.error < best->error) {
                *best = found;
            }
        }
    }
}

// Returns the smallest scale whose gain is within 3% of the best gain. A small scale leaves more precision to the other runs.
static float least_scale(const struct curve *c, int n_peaks) {
    float scale = n_peaks > 0 ? c->peak[0] : 0.0f;
    for (int i = 1; i < n_peaks; i++) {
        if (c->gain[i] > 0.97f * c->gain[0] && fabsf(c->peak[i]) < fabsf(scale)) {
            scale = c->peak[i];
        }
    }
    return scale;
}

// Returns the f16 to store as d. The d with the least squared error makes dot products a little too small. So the f16 is a little
// larger than p->d (frame_growth).
static uint16_t unbiased_super(const struct search *z, const struct plan *p) {
    float xy = 0.0f;
    for (int r = 0; r < z->n_runs; r++) {
        const float scale = p->d * (float) p->s[r];
        float a, b;
        run_project(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->grid, inverse_or_0(scale), &a, &b);
        xy += scale * a;
    }
    float d = p->d * frame_growth(z->f, sum_of_squares(z->f->x, z->f->w, QK_K), xy, 1.0f);
    return frame_round_half(z->f, &d);
}

static struct effort effort_of(const struct frame *f, const struct grid *grid) {
    if (f->hard) {
        return hard_effort;
    }
    if (grid->values != NULL) {
        return curve_effort;
    }
    if (f->uneven) {
        return weighted_effort;
    }
    return n_levels(grid) <= 8 ? quick_effort : plain_effort;
}

// Computes the best scales of each run. Returns the largest least_scale of all runs; 0: all elements are zero.
static float runs_init(struct search *z, struct curve *curves) {
    const struct frame *f = z->f;
    const int len = z->len;
    float max = 0.0f;
    for (int r = 0; r < z->n_runs; r++) {
        const float *x = f->x + r * len;
        const float amax = v4_largest(x, len);
        if (amax != 0.0f && z->curves != NULL) {
            berth_curve_init(&curves[r], x, f->w + r * len, len, amax, z->grid, f->hard);
            z->n_peaks[r] = curves[r].n_peaks;
            memcpy(z->peak[r], curves[r].peak, sizeof(z->peak[r]));
        } else if (amax != 0.0f) {
            z->n_peaks[r] = 1;
            z->peak[r][0] = run_scale(x, f->w + r * len, len, z->grid, z->effort.n_ends, z->effort.n_trials, z->effort.n_settles);
        }
        float need = z->n_peaks[r] > 0 ? z->peak[r][0] : 0.0f;
        if (z->curves != NULL) {
            need = least_scale(&curves[r], z->n_peaks[r]);
        }
        if (fabsf(need) > fabsf(max)) {
            max = need;
        }
    }
    for (int r = z->n_runs - 1; r > 0 && z->curves != NULL; r--) {
        z->later_gain[r - 1] = z->later_gain[r] + (z->n_peaks[r] > 0 ? curves[r].gain[0] : 0.0f);
    }
    return max;
}

// Finds the best few starts. `max`: result of runs_init. Some trial d clip the run with the scale `max` to s_min. Clipping can be
// better, because few elements of that run are large.
static void starts_find(const struct search *z, float max, struct plan *starts) {
    enum { N_HARD_TRIALS = 128 };
    const bool hard = z->f->hard;
    float d = max / (1.5f * (float) z->s_min);
    const int n_trials = hard ? N_HARD_TRIALS : z->effort.n_starts;
    const float factor = powf(3.0f, 1.0f / (float) n_trials);
    for (int t = 0; t < n_trials && max != 0.0f && z->curves != NULL; t++, d *= factor) {
        try_start(z, d, starts);
        if (hard) {
            try_start(z, -d, starts); // the sign of d matters, because s_min has a larger magnitude than the largest s
        }
    }
    for (int t = 0; t < z->effort.n_starts && max != 0.0f && z->curves == NULL; t += 4) {
        float ds[4];
        for (int k = 0; k < 4; k++) {
            ds[k] = max / ((float) z->s_min + (hard ? 1.5f : 0.5f) * (float) (t + k));
        }
        try_starts_4(z, ds, starts);
    }
}

// Makes a plan without a search: each run takes the s nearest to its best scale.
static struct plan plan_direct(const struct search *z, float max) {
    struct plan p = {.d = max / (float) z->s_min, .error = INFINITY};
    p.h = frame_round_half(z->f, &p.d);
    for (int r = 0; r < z->n_runs; r++) {
        p.s[r] = nearest_scale(z->peak[r][0] * inverse_or_0(p.d), z->s_min);
    }
    return p;
}

uint16_t berth_fit_super(const struct frame *f, int len, const struct grid *grid, int s_min, int8_t *s, uint8_t *q) {
    struct search z = {
        .f = f, .grid = grid, .len = len, .n_runs = QK_K / len, .s_min = s_min, .n_starts = f->hard ? MAX_STARTS : 1};
    struct plan best = {.d = 0.0f};
    struct plan starts[MAX_STARTS];
    struct curve curves[MAX_RUNS];
    z.effort = effort_of(f, grid);
    // Without curves, len is FINE_RUN, as try_starts_4 requires.
    z.curves = n_levels(grid) <= 16 && (f->hard || grid->values != NULL) ? curves : NULL;
    const float max = runs_init(&z, curves);
    best.error = sum_of_squares(f->x, f->w, QK_K); // error with d = 0
    for (int i = 0; i < z.n_starts; i++) {
        starts[i] = (struct plan){.error = INFINITY};
    }
    starts_find(&z, max, starts);
    if (z.effort.n_starts == 0 && max != 0.0f) {
        best = plan_direct(&z, max);
    }
    for (int i = 0; i < z.n_starts && starts[i].d != 0.0f; i++) {
        plan_improve(&z, &starts[i]);
        for (int k = 0; k < z.effort.n_shifts && shift_scales(&z, &starts[i]); k++) {
        }
        if (starts[i].error < best.error) {
            best = starts[i];
        }
    }
    const float value = only_value(f->x, QK_K);
    if (value != 0.0f) {
        try_products(&z, value, &best);
    }
    for (int r = 0; r < z.n_runs; r++) {
        s[r] = (int8_t) best.s[r];
        write_levels(f->x + r * len, len, grid, best.d * (float) best.s[r], q + r * len);
    }
    return unbiased_super(&z, &best);
}

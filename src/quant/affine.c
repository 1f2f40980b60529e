// SPDX-License-Identifier: MIT
// affine.c: fits x = d * s * q - dmin * m to a superblock. All runs share d and dmin (f16); each run has integers s and m.
//
// The search starts with the best line of each run (affine_run.h). The largest scale and the largest offset determine which pairs
// of d and dmin are tried (starts). The best starts are improved:
//   1. With d and dmin fixed, each run takes the best neighbouring (s, m).
//   2. With s, m and the levels fixed, d and dmin are refitted by least squares over all 256 elements. 1 and 2 alternate.
//   3. One s or m at a time changes by 1, and d and dmin are refitted (shift_scales).
// A change must reduce the error after rounding to f16. If most runs have only positive elements, a second search tries negative
// dmin. Cost: about 40 roundings per element, ten times as many for hard blocks (normalise.h).
#include "base/min.h"
#include "quant/affine_run.h"

#include <string.h>

enum { MAX_RUNS = 16, MAX_STARTS = 8, MAX_SIDES = 13, MAX_IN_REACH = 5 };

// A candidate for the result.
struct plan {
    float d, dmin;    // values of h and hmin in the frame (normalise.h)
    uint16_t h, hmin; // the f16 values that the block would store
    float error;
    int s[MAX_RUNS];
    int m[MAX_RUNS];
};

// Limits of a search. Larger limits in plain_effort would lower the error of usual blocks by only about 1%.
struct effort {
    int n_trials;              // trials per line of a run
    int first_start, n_starts; // trial i < n_starts of d or dmin: factor 1 + step * (first_start + i) (plan_search)
    int n_kept;                // number of starts that are improved
    int n_rounds;              // rounds of the two alternating steps
    int n_shifts;              // calls of shift_scales per start
    int reach;                 // largest change of s and m in the first round; 1 in later rounds
};
static const struct effort plain_effort = {4, -1, 3, 1, 1, 0, 1};
static const struct effort weighted_effort = {4, -1, 4, 1, 2, 1, 1};
static const struct effort hard_effort = {16, -9, MAX_SIDES, MAX_STARTS, 4, 4, 2};

struct search {
    const struct frame *f;
    int len;
    float q_max;
    int s_max;
    enum sign sign;
    struct effort effort;
    struct line own[MAX_RUNS];
    struct sums sums[MAX_RUNS];
};

static int nearest_scale(float v, int s_max) {
    return (int) rintf(float_clamp(v, 0.0f, (float) s_max));
}

static void plan_round_f16(const struct search *z, struct plan *p) {
    p->h = frame_round_half(z->f, &p->d);
    p->hmin = frame_round_half(z->f, &p->dmin);
}

// Finds the pair (s, m) with the least error within `reach` of (*s_io, *m_io). If errors are equal, the smallest s wins, then the
// smallest m. Returns the error. All errors are computed before the first comparison, because mispredicted branches would delay
// the computation.
static inline float choose_run(const struct search *z, int len, int r, int reach, float d, float dmin, int *s_io, int *m_io) {
    float error[MAX_IN_REACH * MAX_IN_REACH] = {INFINITY};
    const float *x = z->f->x + r * len;
    const float *w = z->f->w + r * len;
    const int s_lo = *s_io > reach ? *s_io - reach : 0;
    const int s_hi = min_int(*s_io + reach, z->s_max);
    const int m_lo = *m_io > reach ? *m_io - reach : 0;
    const int m_hi = min_int(*m_io + reach, z->s_max);
    const int width = m_hi - m_lo + 1;
    int n = 0;
    for (int s = s_lo; s <= s_hi; s++) {
        for (int m = m_lo; m <= m_hi; m++) {
            error[n++] = error_at(x, w, len, d * (float) s, -dmin * (float) m, z->q_max);
        }
    }
    float best = error[0];
    int chosen = 0;
    for (int i = 1; i < n; i++) {
        const bool better = (error[i] < best) | (best == INFINITY);
        if (better) {
            chosen = i;
            best = error[i];
        }
    }
    *s_io = s_lo + chosen / width;
    *m_io = m_lo + chosen % width;
    return best;
}

static int own_s(const struct search *z, int r, float d) {
    return d != 0.0f ? nearest_scale(z->own[r].scale / d, z->s_max) : 0;
}

static int own_m(const struct search *z, int r, float dmin) {
    return dmin != 0.0f ? nearest_scale(-z->own[r].offset / dmin, z->s_max) : 0;
}

// With d and dmin fixed, gives each run the best (s, m) within `reach` of its first values. The first values come from the run's
// own line if from_own, otherwise from p. If the error exceeds `most`, stops: the plan is then rejected.
static inline void choose_scales_of(const struct search *z, int len, int reach, bool from_own, float most, struct plan *p) {
    p->error = 0.0f;
    for (int r = 0; r < QK_K / len && p->error <= most; r++) {
        if (from_own) {
            p->s[r] = own_s(z, r, p->d);
            p->m[r] = own_m(z, r, p->dmin);
        }
        if (reach > 0) {
            p->error += choose_run(z, len, r, reach, p->d, p->dmin, &p->s[r], &p->m[r]);
        } else {
            p->error +=
                error_at(z->f->x + r * len, z->f->w + r * len, len, p->d * (float) p->s[r], -p->dmin * (float) p->m[r], z->q_max);
        }
    }
}

static void choose_scales(const struct search *z, int reach, bool from_own, float most, struct plan *p) {
    if (z->len == 16 && reach == 0) {
        choose_scales_of(z, 16, 0, from_own, most, p);
    } else if (z->len == 16) {
        choose_scales_of(z, 16, reach, from_own, most, p);
    } else if (reach == 0) {
        choose_scales_of(z, 32, 0, from_own, most, p);
    } else {
        choose_scales_of(z, 32, reach, from_own, most, p);
    }
}

// Normal equations of the least-squares fit of d and -dmin. a: s * q. b: m. So ab is the sum of w * (s * q) * m.
struct normal {
    double aa, ab, bb;
    double ax, bx;
};

static struct normal normal_of(const struct search *z, int r, float d, float dmin, int s, int m) {
    const float scale = d * (float) s;
    struct sums sum = z->sums[r];
    sum_levels(z->f->x + r * z->len, z->f->w + r * z->len, z->len, inverse_or_0(scale), -dmin * (float) m, z->q_max, &sum);
    return (struct normal){
        (double) s * s * sum.qq, (double) s * m * sum.q, (double) m * m * sum.w, s * (double) sum.qx, m * (double) sum.x};
}

static struct normal normal_add(struct normal a, struct normal b, double sign) {
    return (struct normal){a.aa + sign * b.aa, a.ab + sign * b.ab, a.bb + sign * b.bb, a.ax + sign * b.ax, a.bx + sign * b.bx};
}

// Returns the reduction of the sum of squares.
static double normal_solve(const struct normal *n, float *d, float *dmin) {
    const double det = n->aa * n->bb - n->ab * n->ab;
    double u = 0;
    double v = 0;
    if (det > 1e-9 * n->aa * n->bb) {
        u = (n->bb * n->ax - n->ab * n->bx) / det;
        v = (n->aa * n->bx - n->ab * n->ax) / det;
    } else if (n->aa > 0) {
        u = n->ax / n->aa;
    } else if (n->bb > 0) {
        v = n->bx / n->bb;
    }
    *d = (float) u;
    *dmin = (float) -v;
    return u * n->ax + v * n->bx;
}

static void plan_refit(const struct search *z, struct plan *p) {
    struct normal n = {0};
    for (int r = 0; r < QK_K / z->len; r++) {
        n = normal_add(n, normal_of(z, r, p->d, p->dmin, p->s[r], p->m[r]), 1);
    }
    (void) normal_solve(&n, &p->d, &p->dmin);
}

// Changes s, m or both of one run at a time by 1 and refits d and dmin. This finds solutions that plan_improve misses. Returns
// true if the error decreased.
static bool shift_scales(const struct search *z, struct plan *best) {
    static const int8_t moves[][2] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {1, 1}, {-1, -1}};
    struct plan p = *best;
    struct normal own[MAX_RUNS], all = {0};
    for (int r = 0; r < QK_K / z->len; r++) {
        own[r] = normal_of(z, r, p.d, p.dmin, p.s[r], p.m[r]);
        all = normal_add(all, own[r], 1);
    }
    double gain = normal_solve(&all, &p.d, &p.dmin);
    for (int r = 0; r < QK_K / z->len; r++) {
        const int s0 = p.s[r];
        const int m0 = p.m[r];
        const struct normal others = normal_add(all, own[r], -1);
        for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
            const int s = s0 + moves[i][0];
            const int m = m0 + moves[i][1];
            if (s < 0 || s > z->s_max || m < 0 || m > z->s_max) {
                continue;
            }
            float d, dmin;
            const struct normal n = normal_of(z, r, p.d, p.dmin, s, m);
            const struct normal t = normal_add(others, n, 1);
            const double g = normal_solve(&t, &d, &dmin);
            if (g > gain * (1 + 1e-7)) {
                gain = g;
                all = t, own[r] = n;
                p.d = d, p.dmin = dmin, p.s[r] = s, p.m[r] = m;
            }
        }
    }
    plan_round_f16(z, &p);
    choose_scales(z, 0, false, best->error, &p);
    if (!(p.error < best->error)) {
        return false;
    }
    *best = p;
    return true;
}

static bool is_close_to(const struct plan *a, const struct plan *b) {
    return fabsf(a->d - b->d) <= 0.02f * fabsf(a->d) && fabsf(a->dmin - b->dmin) <= 0.02f * fabsf(a->dmin);
}

// Half of a start: a d with the s of each run, or a dmin with the m of each run.
struct side {
    float v;                 // d or dmin
    uint16_t h;              // v as f16
    int integer[MAX_RUNS];   // s or m
    float factor[MAX_RUNS];  // scale d * s, or offset -dmin * m
    float inverse[MAX_RUNS]; // 1 / scale; unused for dmin
};

static void side_of_d(const struct search *z, float d, struct side *a) {
    a->v = d;
    a->h = frame_round_half(z->f, &a->v);
    for (int r = 0; r < QK_K / z->len; r++) {
        a->integer[r] = own_s(z, r, a->v);
        a->factor[r] = a->v * (float) a->integer[r];
        a->inverse[r] = inverse_or_0(a->factor[r]);
    }
}

static void side_of_dmin(const struct search *z, float dmin, struct side *b) {
    b->v = dmin;
    b->h = frame_round_half(z->f, &b->v);
    for (int r = 0; r < QK_K / z->len; r++) {
        b->integer[r] = own_m(z, r, b->v);
        b->factor[r] = -b->v * (float) b->integer[r];
    }
}

// Returns the error with d of a and dmin of b. If the error exceeds `most`, returns a partial sum above `most`.
static inline float error_of(const struct search *z, int len, const struct side *a, const struct side *b, float most) {
    float error = 0.0f;
    for (int r = 0; r < QK_K / len && error <= most; r++) {
        error += error_with(z->f->x + r * len, z->f->w + r * len, len, a->factor[r], a->inverse[r], b->factor[r], z->q_max);
    }
    return error;
}

// `starts` is sorted by error. If d and dmin of two starts differ by at most 2%, only the better start is kept.
static void start_keep(const struct search *z, const struct side *a, const struct side *b, struct plan *starts) {
    const float most = starts[z->effort.n_kept - 1].error;
    const float error = z->len == 16 ? error_of(z, 16, a, b, most) : error_of(z, 32, a, b, most);
    if (!(error <= most)) {
        return;
    }
    struct plan p = {.d = a->v, .dmin = b->v, .h = a->h, .hmin = b->h, .error = error};
    memcpy(p.s, a->integer, sizeof(p.s));
    memcpy(p.m, b->integer, sizeof(p.m));
    int last = 0;
    while (last < z->effort.n_kept - 1 && !is_close_to(&starts[last], &p)) {
        last++;
    }
    if (p.error < starts[last].error) {
        while (last > 0 && p.error < starts[last - 1].error) {
            starts[last] = starts[last - 1];
            last--;
        }
        starts[last] = p;
    }
}

static void plan_improve(const struct search *z, struct plan *best) {
    for (int round = 0; round < z->effort.n_rounds && (best->d != 0.0f || best->dmin != 0.0f); round++) {
        struct plan p = *best;
        choose_scales(z, round == 0 ? z->effort.reach : 1, round == 0, best->error, &p);
        if (p.error < best->error) {
            *best = p;
        }
        p = *best;
        plan_refit(z, &p);
        plan_round_f16(z, &p);
        if (p.h == best->h && p.hmin == best->hmin) {
            break;
        }
        choose_scales(z, 0, false, best->error, &p);
        if (!(p.error < best->error)) {
            break;
        }
        *best = p;
    }
}

// ---- blocks that contain only one value and zeros ----

// A choice of d, dmin, s, m and q. Before d and dmin are rounded to f16, d * s * q - dmin * m is exactly the value.
struct near {
    double distance; // from the value, after rounding
    struct plan p;   // s[0] and m[0]: for the runs that contain the value
};

static void try_near(const struct search *z, float value, float d, int s, int q, float dmin, int m, struct near *best) {
    struct near n = {.p = {.d = d, .dmin = dmin, .s = {s}, .m = {m}}};
    plan_round_f16(z, &n.p);
    n.distance = fabs((double) n.p.d * s * q - (double) n.p.dmin * m - value);
    if (n.distance < best->distance) {
        *best = n;
    }
}

// mixed: some run contains both the value and zeros.
static void try_one_value(const struct search *z, float value, bool mixed, struct plan *best) {
    struct near n = {.distance = INFINITY};
    for (int s = 1; s <= z->s_max; s++) {
        for (int q = 1; q <= (int) z->q_max && value > 0.0f; q++) {
            try_near(z, value, value / (float) (s * q), s, q, 0.0f, 0, &n); // zeros get level 0
        }
        if (mixed && value < 0.0f) {
            try_near(z, value, -value / (float) s, s, 0, -value / (float) s, s, &n); // the value gets level 0, zeros level 1
        } else if (!mixed) {
            float dmin = -value / (float) s;
            (void) frame_round_half(z->f, &dmin);
            const float rest = value + dmin * (float) s;
            try_near(z, value, rest, 1, 1, dmin, s, &n);
            try_near(z, value, rest / (float) (z->s_max * (int) z->q_max), z->s_max, (int) z->q_max, dmin, s, &n);
        }
    }
    for (int r = QK_K / z->len - 1; r >= 0; r--) {
        const float *x = z->f->x + r * z->len;
        bool holds = false;
        for (int i = 0; i < z->len; i++) {
            holds = holds || x[i] != 0.0f;
        }
        n.p.s[r] = holds ? n.p.s[0] : 0;
        n.p.m[r] = holds ? n.p.m[0] : 0;
    }
    choose_scales(z, 0, false, best->error, &n.p);
    if (n.p.error < best->error) {
        *best = n.p;
    }
}

// If all nonzero elements have the same value, returns this value. Otherwise, returns 0. Sets *mixed if a run contains both the
// value and zeros.
static float only_value(const struct search *z, bool *mixed) {
    float v = 0.0f;
    *mixed = false;
    for (int i = 0; i < QK_K; i++) {
        const float x = z->f->x[i];
        if (v == 0.0f) {
            v = x;
        }
        if (x != 0.0f && x != v) {
            return 0.0f;
        }
        *mixed = *mixed || (x == 0.0f) != (z->f->x[i / z->len * z->len] == 0.0f);
    }
    return v;
}

// ---- the search ----

static struct plan plan_search(struct search *z) {
    struct plan starts[MAX_STARTS];
    struct plan best = {0};
    float scale = 0.0f;
    float offset = 0.0f;
    for (int r = 0; r < QK_K / z->len; r++) {
        const float *x = z->f->x + r * z->len;
        const float *w = z->f->w + r * z->len;
        const int n_trials = z->effort.n_trials;
        z->own[r] =
            z->len == 16 ? fit_line(x, w, 16, z->q_max, z->sign, n_trials) : fit_line(x, w, 32, z->q_max, z->sign, n_trials);
        scale = max_f32(z->own[r].scale, scale);
        if (fabsf(z->own[r].offset) > fabsf(offset)) {
            offset = z->own[r].offset;
        }
        sum_elements(z->f->x + r * z->len, z->f->w + r * z->len, z->len, &z->sums[r]);
    }
    choose_scales(z, 0, true, INFINITY, &best); // error with d = dmin = 0
    for (int i = 0; i < z->effort.n_kept; i++) {
        starts[i] = (struct plan){.error = INFINITY};
    }
    // Each trial of d maps the largest scale to s_max, to slightly less, or to more than s_max. In the last case, s is clipped.
    // The trials of dmin do the same with the largest offset.
    const float step = z->s_max < 32 ? 0.04f : 0.02f;
    struct side as[MAX_SIDES], bs[MAX_SIDES];
    const int n_sides = z->effort.n_starts;
    for (int i = 0; i < n_sides; i++) {
        const float factor = 1.0f + step * (float) (z->effort.first_start + i);
        side_of_d(z, scale / (float) z->s_max * factor, &as[i]);
        side_of_dmin(z, -offset / (float) z->s_max * factor, &bs[i]);
    }
    for (int a = 0; a < n_sides; a++) {
        for (int b = 0; b < n_sides; b++) {
            start_keep(z, &as[a], &bs[b], starts);
        }
    }
    for (int i = 0; i < z->effort.n_kept; i++) {
        if (starts[i].error == INFINITY) {
            break;
        }
        plan_improve(z, &starts[i]);
        for (int k = 0; k < z->effort.n_shifts && shift_scales(z, &starts[i]); k++) {
        }
        if (starts[i].error < best.error) {
            best = starts[i];
        }
    }
    bool mixed;
    const float value = only_value(z, &mixed);
    if (value != 0.0f) {
        try_one_value(z, value, mixed, &best);
    }
    return best;
}

// Enlarges d and dmin, because values with the least squared error make dot products a little too small (frame_growth). The
// levels do not change.
static void plan_unbias(const struct search *z, struct plan *p) {
    float xx = 0.0f, xy = 0.0f;
    for (int r = 0; r < QK_K / z->len; r++) {
        struct sums sum = z->sums[r];
        const float scale = p->d * (float) p->s[r];
        const float offset = -p->dmin * (float) p->m[r];
        sum_levels(z->f->x + r * z->len, z->f->w + r * z->len, z->len, inverse_or_0(scale), offset, z->q_max, &sum);
        xx += sum.xx;
        xy += scale * sum.qx + offset * sum.x;
    }
    const float growth = frame_growth(z->f, xx, xy, 1.0f);
    p->d *= growth;
    p->dmin *= growth;
    plan_round_f16(z, p);
}

void berth_fit_affine_super(const struct frame *f, int len, int q_max, int s_max, struct affine_super *out) {
    struct search z = {.f = f,
        .len = len,
        .q_max = (float) q_max,
        .s_max = s_max,
        .sign = NOT_ABOVE_ZERO,
        .effort = f->uneven ? weighted_effort : plain_effort};
    if (f->hard) {
        z.effort = hard_effort;
    }
    struct plan best = plan_search(&z);
    int n_above = 0;
    for (int r = 0; r < QK_K / len; r++) {
        float lo = f->x[r * len];
        for (int i = 1; i < len; i++) {
            lo = min_f32(f->x[r * len + i], lo);
        }
        n_above += lo > 0.0f;
    }
    if (2 * n_above > QK_K / len) {
        z.sign = NOT_BELOW_ZERO;
        const struct plan p = plan_search(&z);
        if (p.error < best.error) {
            best = p;
        }
    }
    for (int r = 0; r < QK_K / len; r++) {
        out->s[r] = (uint8_t) best.s[r];
        out->m[r] = (uint8_t) best.m[r];
        write_levels(f->x + r * len, len, best.d * (float) best.s[r], -best.dmin * (float) best.m[r], z.q_max, out->q + r * len);
    }
    plan_unbias(&z, &best);
    out->d = best.h;
    out->dmin = best.hmin;
}

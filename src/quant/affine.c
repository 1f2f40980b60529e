// SPDX-License-Identifier: MIT
// affine.c: x = scale * q + offset for runs of elements, q in 0..q_max: which scale and offset have the least squared error?
//
// One run. Trials spread the levels over the run's range, widened or narrowed about its middle; for the levels each one rounds
// to, the best scale and offset solve two linear equations. The best trial is then rounded and solved again until it stands
// still.
//
// A superblock. Runs share halves d and dmin and have integers s and m: scale = d * s, offset = -dmin * m. The runs' own results
// say which d and dmin to start from; from the best starts on, two steps are repeated: with both fixed each run takes the best of
// the neighbouring (s, m); with those and the levels fixed, d and dmin are refitted by least squares over all 256. In the end one
// s or m at a time moves while d and dmin follow. Kept only if better after rounding to halves. dmin < 0 is a block whose runs
// sit above zero: tried where most do. Cost: about 100 roundings an element, three times that in hard blocks (frame.h).
#include "quant/scalar.h"
#include "quant/vec.h"

#include <string.h>

enum { MAX_RUNS = 16, MAX_STARTS = 8, N_SHIFTS = 4 };

static inline float clampf(float v, float lo, float hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

// ---- one run ----

// Sums over a run: of w, wx, wxx, and of wq, wqq, wqx for its levels q.
struct sums {
    float w, x, xx;
    float q, qq, qx;
};

static inline v4f snap(v4f x, float inverse, float offset, float q_max) {
    const v4f v = (x - v4_all(offset)) * v4_all(inverse);
    return v4_round(v4_max(v4_min(v, v4_all(q_max)), v4_all(0.0f)));
}

static inline void sum_elements(const float *x, const float *w, int len, struct sums *s) {
    v4f sw = v4_all(0.0f), sx = sw, sxx = sw;
    for (int i = 0; i < len; i += 4) {
        const v4f wx = v4_load(w + i) * v4_load(x + i);
        sw += v4_load(w + i);
        sx += wx;
        sxx += wx * v4_load(x + i);
    }
    s->w  = v4_sum(sw);
    s->x  = v4_sum(sx);
    s->xx = v4_sum(sxx);
}

static inline void sum_levels(const float *x, const float *w, int len, float inverse, float offset, float q_max, struct sums *s) {
    v4f sq = v4_all(0.0f), sqq = sq, sqx = sq;
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f q  = snap(xi, inverse, offset, q_max);
        const v4f wq = v4_load(w + i) * q;
        sq += wq;
        sqq += wq * q;
        sqx += wq * xi;
    }
    s->q  = v4_sum(sq);
    s->qq = v4_sum(sqq);
    s->qx = v4_sum(sqx);
}

static inline float error_at(const float *x, const float *w, int len, float scale, float offset, float q_max) {
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    v4f sum             = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f e  = xi - (snap(xi, inverse, offset, q_max) * v4_all(scale) + v4_all(offset));
        sum += v4_load(w + i) * e * e;
    }
    return v4_sum(sum);
}

// Which offsets a run may have.
enum sign { NOT_ABOVE_ZERO = -1, ANY = 0, NOT_BELOW_ZERO = 1 };

struct line {
    float scale, offset;
    float gain; // what it takes off sum(w x x)
};

// Least squares for the levels summed in s.
static struct line solve(const struct sums *s, enum sign sign) {
    struct line l   = {0};
    const float det = s->w * s->qq - s->q * s->q;
    if (det > 1e-6f * s->w * s->qq) {
        l.scale  = (s->w * s->qx - s->q * s->x) / det;
        l.offset = (s->qq * s->x - s->q * s->qx) / det;
    } else {
        l.offset = s->x / s->w;
    }
    if (l.scale < 0.0f || (float) sign * l.offset < 0.0f) {
        l.offset = 0.0f;
        l.scale  = s->qq > 0.0f && s->qx > 0.0f ? s->qx / s->qq : 0.0f;
    }
    // sum w (x - scale q - offset)^2 = xx - gain
    l.gain = 2.0f * (l.scale * s->qx + l.offset * s->x) -
             (l.scale * l.scale * s->qq + 2.0f * l.scale * l.offset * s->q + l.offset * l.offset * s->w);
    return l;
}

static struct line fit_line(const float *x, const float *w, int len, float q_max, enum sign sign, int n_trials) {
    enum { N_ROUNDS = 4 };
    struct sums s;
    struct line best = {0};
    float lo         = x[0];
    float hi         = x[0];
    for (int i = 1; i < len; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    lo = (float) sign * lo < 0.0f ? 0.0f : lo;
    hi = hi < lo ? lo : hi;
    sum_elements(x, w, len, &s);
    s.q = s.qq = s.qx = 0.0f;
    best              = solve(&s, sign); // all levels zero
    if (hi == lo) {
        return best;
    }
    // Ranges narrowed by up to three steps of the grid and widened by one; held at the lower end, the middle or the upper end, or
    // moved so that zero is on the grid.
    for (int t = 4 * n_trials - 1; t >= 0; t--) {
        const float narrow = (1.0f - 4.0f / (float) (n_trials - 1) * (float) (t / 4)) / q_max;
        const float wide   = narrow > -0.9f ? 1.0f + narrow : 0.1f;
        const float slack  = (1.0f - wide) * (hi - lo);
        const float step   = wide * (hi - lo) / q_max;
        float offset       = t % 4 < 3 ? lo + 0.5f * (float) (t % 4) * slack : step * rintf((lo + 0.5f * slack) / step);
        offset             = (float) sign * offset < 0.0f || lo == 0.0f ? 0.0f : offset;
        sum_levels(x, w, len, q_max / (wide * (hi - lo)), offset, q_max, &s);
        const struct line l = solve(&s, sign);
        // A wider range has to be better by more than a trifle: a large scale or offset costs the other runs.
        if (s.xx - l.gain < 0.995f * (s.xx - best.gain)) {
            best = l;
        }
    }
    for (int round = 0; round < N_ROUNDS && best.scale > 0.0f; round++) {
        sum_levels(x, w, len, 1.0f / best.scale, best.offset, q_max, &s);
        const struct line l = solve(&s, sign);
        if (!(l.gain > best.gain)) {
            break;
        }
        best = l;
    }
    return best;
}

static void write_levels(const float *x, int len, float scale, float offset, int q_max, uint8_t *q) {
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < len; i++) {
        q[i] = (uint8_t) rintf(clampf((x[i] - offset) * inverse, 0.0f, (float) q_max));
    }
}

// ---- a superblock ----

struct plan {
    float d, dmin;
    uint16_t h, hmin;
    float error;
    int s[MAX_RUNS];
    int m[MAX_RUNS];
};

struct search {
    const struct frame *f;
    int len;
    float q_max;
    int s_max;
    enum sign sign;
    int n_starts;
    struct line own[MAX_RUNS];
    struct sums sums[MAX_RUNS]; // of the elements
};

static int nearest_scale(float v, int s_max) {
    return (int) rintf(clampf(v, 0.0f, (float) s_max));
}

static void round_halves(const struct search *z, struct plan *p) {
    p->h    = frame_round_half(z->f, &p->d);
    p->hmin = frame_round_half(z->f, &p->dmin);
}

// With d and dmin fixed, each run takes the best (s, m) within reach of its middle: its own result, or what p holds.
static void choose_scales(const struct search *z, int reach, bool from_own, struct plan *p) {
    p->error = 0.0f;
    for (int r = 0; r < QK_K / z->len; r++) {
        const float *x = z->f->x + r * z->len;
        const float *w = z->f->w + r * z->len;
        int s0         = p->s[r];
        int m0         = p->m[r];
        float best     = INFINITY;
        if (from_own) {
            s0 = p->d != 0.0f ? nearest_scale(z->own[r].scale / p->d, z->s_max) : 0;
            m0 = p->dmin != 0.0f ? nearest_scale(-z->own[r].offset / p->dmin, z->s_max) : 0;
        }
        for (int s = s0 - reach; s <= s0 + reach; s++) {
            for (int m = m0 - reach; m <= m0 + reach; m++) {
                if (s < 0 || s > z->s_max || m < 0 || m > z->s_max) {
                    continue;
                }
                const float error = error_at(x, w, z->len, p->d * (float) s, -p->dmin * (float) m, z->q_max);
                if (error < best || best == INFINITY) {
                    best    = error;
                    p->s[r] = s;
                    p->m[r] = m;
                }
            }
        }
        p->error += best;
    }
}

// Normal equations of d and -dmin: each element is d * (s * q) + (-dmin) * m.
struct normal {
    double aa, ab, bb;
    double ax, bx;
};

static struct normal normal_of(const struct search *z, int r, float d, float dmin, int s, int m) {
    const float scale = d * (float) s;
    struct sums sum   = z->sums[r];
    sum_levels(z->f->x + r * z->len, z->f->w + r * z->len, z->len, scale != 0.0f ? 1.0f / scale : 0.0f, -dmin * (float) m,
        z->q_max, &sum);
    return (struct normal){
        (double) s * s * sum.qq, (double) s * m * sum.q, (double) m * m * sum.w, s * (double) sum.qx, m * (double) sum.x};
}

static struct normal normal_add(struct normal a, struct normal b, double sign) {
    return (struct normal){a.aa + sign * b.aa, a.ab + sign * b.ab, a.bb + sign * b.bb, a.ax + sign * b.ax, a.bx + sign * b.bx};
}

// Returns what the solution takes off the sum of squares.
static double normal_solve(const struct normal *n, float *d, float *dmin) {
    const double det = n->aa * n->bb - n->ab * n->ab;
    double u         = 0;
    double v         = 0;
    if (det > 1e-9 * n->aa * n->bb) {
        u = (n->bb * n->ax - n->ab * n->bx) / det;
        v = (n->aa * n->bx - n->ab * n->ax) / det;
    } else if (n->aa > 0) {
        u = n->ax / n->aa;
    } else if (n->bb > 0) {
        v = n->bx / n->bb;
    }
    *d    = (float) u;
    *dmin = (float) -v;
    return u * n->ax + v * n->bx;
}

// Least squares for d and dmin over the whole superblock, levels and integers fixed.
static void refit(const struct search *z, struct plan *p) {
    struct normal n = {0};
    for (int r = 0; r < QK_K / z->len; r++) {
        n = normal_add(n, normal_of(z, r, p->d, p->dmin, p->s[r], p->m[r]), 1);
    }
    (void) normal_solve(&n, &p->d, &p->dmin);
}

// One s or m at a time moves by a step, d and dmin following at once: what choosing and refitting do not reach alone. True: the
// error is less.
static bool shift_scales(const struct search *z, struct plan *best) {
    static const int8_t moves[][2] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {1, 1}, {-1, -1}};
    struct plan p                  = *best;
    struct normal own[MAX_RUNS], all = {0};
    for (int r = 0; r < QK_K / z->len; r++) {
        own[r] = normal_of(z, r, p.d, p.dmin, p.s[r], p.m[r]);
        all    = normal_add(all, own[r], 1);
    }
    double gain = normal_solve(&all, &p.d, &p.dmin);
    for (int r = 0; r < QK_K / z->len; r++) {
        const int s0               = p.s[r];
        const int m0               = p.m[r];
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
            const double g        = normal_solve(&t, &d, &dmin);
            if (g > gain * (1 + 1e-7)) {
                gain = g;
                all = t, own[r] = n;
                p.d = d, p.dmin = dmin, p.s[r] = s, p.m[r] = m;
            }
        }
    }
    round_halves(z, &p);
    choose_scales(z, 0, false, &p);
    if (!(p.error < best->error)) {
        return false;
    }
    *best = p;
    return true;
}

static bool is_beside(const struct plan *a, const struct plan *b) {
    return fabsf(a->d - b->d) <= 0.02f * fabsf(a->d) && fabsf(a->dmin - b->dmin) <= 0.02f * fabsf(a->dmin);
}

// A start, kept in order of the error; of two that are close together, the better one.
static void start(const struct search *z, float d, float dmin, struct plan *starts) {
    struct plan p = {.d = d, .dmin = dmin};
    round_halves(z, &p);
    choose_scales(z, 0, true, &p);
    int last = 0;
    while (last < z->n_starts - 1 && !is_beside(&starts[last], &p)) {
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

// Choosing and refitting in turn, until neither gains.
static void improve(const struct search *z, struct plan *best) {
    enum { N_ROUNDS = 4 };
    for (int round = 0; round < N_ROUNDS && (best->d != 0.0f || best->dmin != 0.0f); round++) {
        struct plan p = *best;
        choose_scales(z, round == 0 && z->f->hard ? 2 : 1, round == 0, &p);
        *best = p.error < best->error ? p : *best;
        p     = *best;
        refit(z, &p);
        round_halves(z, &p);
        if (p.h == best->h && p.hmin == best->hmin) {
            break;
        }
        choose_scales(z, 0, false, &p);
        if (!(p.error < best->error)) {
            break;
        }
        *best = p;
    }
}

// ---- blocks of one value and zeros ----

// Exact but for the rounding of the halves. d and dmin with s, m and the level q that come nearest to value.
struct near {
    double off;
    struct plan p; // s[0] and m[0]: of the runs that hold the value
};

static void try_near(const struct search *z, float value, float d, int s, int q, float dmin, int m, struct near *best) {
    struct near n = {.p = {.d = d, .dmin = dmin, .s = {s}, .m = {m}}};
    round_halves(z, &n.p);
    n.off = fabs((double) n.p.d * s * q - (double) n.p.dmin * m - value);
    *best = n.off < best->off ? n : *best;
}

// mixed: some run holds the value and zeros.
static void try_one_value(const struct search *z, float value, bool mixed, struct plan *best) {
    struct near n = {.off = INFINITY};
    for (int s = 1; s <= z->s_max; s++) {
        for (int q = 1; q <= (int) z->q_max && value > 0.0f; q++) {
            try_near(z, value, value / (float) (s * q), s, q, 0.0f, 0, &n); // zeros are level 0
        }
        if (mixed && value < 0.0f) {
            try_near(z, value, -value / (float) s, s, 0, -value / (float) s, s, &n); // zeros are level 1
        } else if (!mixed) {
            // The offset falls short of the value by a rounding, or goes beyond it: the scale makes up for that.
            float dmin = -value / (float) s;
            (void) frame_round_half(z->f, &dmin);
            const float rest = value + dmin * (float) s;
            try_near(z, value, rest, 1, 1, dmin, s, &n);
            try_near(z, value, rest / (float) (z->s_max * (int) z->q_max), z->s_max, (int) z->q_max, dmin, s, &n);
        }
    }
    for (int r = QK_K / z->len - 1; r >= 0; r--) {
        const float *x = z->f->x + r * z->len;
        bool holds     = false;
        for (int i = 0; i < z->len; i++) {
            holds = holds || x[i] != 0.0f;
        }
        n.p.s[r] = holds ? n.p.s[0] : 0;
        n.p.m[r] = holds ? n.p.m[0] : 0;
    }
    choose_scales(z, 0, false, &n.p);
    *best = n.p.error < best->error ? n.p : *best;
}

// The value that all elements have that are not zero; 0 if they differ.
static float only_value(const struct search *z, bool *mixed) {
    float v = 0.0f;
    *mixed  = false;
    for (int i = 0; i < QK_K; i++) {
        const float x = z->f->x[i];
        v             = v == 0.0f ? x : v;
        if (x != 0.0f && x != v) {
            return 0.0f;
        }
        *mixed = *mixed || (x == 0.0f) != (z->f->x[i / z->len * z->len] == 0.0f);
    }
    return v;
}

// ---- the search ----

static struct plan search(struct search *z) {
    struct plan starts[MAX_STARTS];
    struct plan best = {0};
    float scale      = 0.0f;
    float offset     = 0.0f;
    for (int r = 0; r < QK_K / z->len; r++) {
        z->own[r] = fit_line(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->q_max, z->sign, z->f->hard ? 16 : 8);
        scale     = z->own[r].scale > scale ? z->own[r].scale : scale;
        offset    = fabsf(z->own[r].offset) > fabsf(offset) ? z->own[r].offset : offset;
        sum_elements(z->f->x + r * z->len, z->f->w + r * z->len, z->len, &z->sums[r]);
    }
    choose_scales(z, 0, true, &best); // all zero
    for (int i = 0; i < z->n_starts; i++) {
        starts[i] = (struct plan){.error = INFINITY};
    }
    // The largest scale and offset become s_max, less, or more: clipped.
    const float step = z->s_max < 32 ? 0.04f : 0.02f;
    const int first  = z->f->hard ? -9 : -1;
    for (int a = first; a < 4; a++) {
        for (int b = first; b < 4; b++) {
            start(z, scale / (float) z->s_max * (1.0f + step * (float) a), -offset / (float) z->s_max * (1.0f + step * (float) b),
                starts);
        }
    }
    for (int i = 0; i < z->n_starts; i++) {
        if (starts[i].error == INFINITY) {
            break;
        }
        improve(z, &starts[i]);
        for (int k = 0; k < N_SHIFTS && shift_scales(z, &starts[i]); k++) {
        }
        best = starts[i].error < best.error ? starts[i] : best;
    }
    bool mixed;
    const float value = only_value(z, &mixed);
    if (value != 0.0f) {
        try_one_value(z, value, mixed, &best);
    }
    return best;
}

void berth_fit_affine_super(
    const struct frame *f, int len, int q_max, int s_max, uint8_t *s, uint8_t *m, uint8_t *q, uint16_t *d, uint16_t *dmin) {
    struct search z = {
        .f = f, .len = len, .q_max = (float) q_max, .s_max = s_max, .sign = NOT_ABOVE_ZERO, .n_starts = f->hard ? MAX_STARTS : 2};
    struct plan best = search(&z);
    int n_above      = 0;
    for (int r = 0; r < QK_K / len; r++) {
        float lo = f->x[r * len];
        for (int i = 1; i < len; i++) {
            lo = f->x[r * len + i] < lo ? f->x[r * len + i] : lo;
        }
        n_above += lo > 0.0f;
    }
    if (2 * n_above > QK_K / len) {
        z.sign              = NOT_BELOW_ZERO;
        const struct plan p = search(&z);
        best                = p.error < best.error ? p : best;
    }
    for (int r = 0; r < QK_K / len; r++) {
        s[r] = (uint8_t) best.s[r];
        m[r] = (uint8_t) best.m[r];
        write_levels(f->x + r * len, len, best.d * (float) best.s[r], -best.dmin * (float) best.m[r], q_max, q + r * len);
    }
    *d    = best.h;
    *dmin = best.hmin;
}

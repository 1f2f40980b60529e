// SPDX-License-Identifier: MIT
// affine.c: x = scale * q + offset for runs of elements, q in 0..q_max: which scale and offset have the least squared error?
//
// One run. Trials spread the levels over the run's range, widened or narrowed about its middle; for the levels each one rounds
// to, the best scale and offset solve two linear equations. The best trial is then rounded and solved again until it stands
// still.
//
// A superblock. Runs share halves d and dmin and have integers s and m: scale = d * s, offset = -dmin * m. From the runs' own
// results follow d and dmin, then two steps are repeated: with both fixed each run takes the best of the neighbouring (s, m);
// with those and the levels fixed, d and dmin are refitted by least squares over all 256. Kept only if better after rounding to
// halves. dmin < 0 is a block whose runs sit above zero: tried where most do. Cost: about 80 roundings an element.
#include "quant/scalar.h"
#include "quant/vec.h"

#include <string.h>

enum { MAX_RUNS = 16 };

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
    for (int t = 0; t < 4 * n_trials; t++) {
        const float wide  = 1.0f + (1.0f - 4.0f / (float) (n_trials - 1) * (float) (t / 4)) / q_max;
        const float slack = (1.0f - wide) * (hi - lo);
        const float step  = wide * (hi - lo) / q_max;
        float offset      = t % 4 < 3 ? lo + 0.5f * (float) (t % 4) * slack : step * rintf((lo + 0.5f * slack) / step);
        offset            = (float) sign * offset < 0.0f || lo == 0.0f ? 0.0f : offset;
        sum_levels(x, w, len, q_max / (wide * (hi - lo)), offset, q_max, &s);
        const struct line l = solve(&s, sign);
        if (l.gain > best.gain) {
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
    struct line own[MAX_RUNS];
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

// Least squares for d and dmin over the whole superblock, levels and integers fixed.
static void refit(const struct search *z, struct plan *p) {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int r = 0; r < QK_K / z->len; r++) {
        const double s = p->s[r];
        const double m = p->m[r];
        struct sums sum;
        const float scale = p->d * (float) p->s[r];
        sum_elements(z->f->x + r * z->len, z->f->w + r * z->len, z->len, &sum);
        sum_levels(z->f->x + r * z->len, z->f->w + r * z->len, z->len, scale != 0.0f ? 1.0f / scale : 0.0f,
            -p->dmin * (float) p->m[r], z->q_max, &sum);
        aa += s * s * sum.qq;
        ab += s * m * sum.q;
        bb += m * m * sum.w;
        ax += s * sum.qx;
        bx += m * sum.x;
    }
    const double det = aa * bb - ab * ab;
    if (det > 1e-9 * aa * bb) {
        p->d    = (float) ((bb * ax - ab * bx) / det);
        p->dmin = (float) ((ab * ax - aa * bx) / det);
    } else if (aa > 0) {
        p->d    = (float) (ax / aa);
        p->dmin = 0.0f;
    } else if (bb > 0) {
        p->d    = 0.0f;
        p->dmin = (float) (-bx / bb);
    }
}

static void start(const struct search *z, float d, float dmin, struct plan *best) {
    struct plan p = {.d = d, .dmin = dmin};
    round_halves(z, &p);
    choose_scales(z, 0, true, &p);
    if (p.error < best->error) {
        *best = p;
    }
}

static struct plan search(struct search *z) {
    enum { N_ROUNDS = 4 };
    struct plan best = {.error = INFINITY};
    float scale      = 0.0f;
    float offset     = 0.0f;
    for (int r = 0; r < QK_K / z->len; r++) {
        z->own[r] = fit_line(z->f->x + r * z->len, z->f->w + r * z->len, z->len, z->q_max, z->sign, 8);
        scale     = z->own[r].scale > scale ? z->own[r].scale : scale;
        offset    = fabsf(z->own[r].offset) > fabsf(offset) ? z->own[r].offset : offset;
    }
    start(z, 0.0f, 0.0f, &best);
    const float zero_error = best.error;
    // The largest scale and offset become s_max, or up to a fifth less where integers are few.
    const int n_starts = z->s_max < 32 ? 5 : 3;
    for (int a = 0; a < n_starts; a++) {
        for (int b = 0; b < n_starts; b++) {
            start(z, scale / ((float) z->s_max - 0.5f * (float) a), -offset / ((float) z->s_max - 0.5f * (float) b), &best);
        }
    }
    for (int round = 0; round < N_ROUNDS && (best.d != 0.0f || best.dmin != 0.0f); round++) {
        struct plan p = best;
        choose_scales(z, round == 0 ? 2 : 1, round == 0, &p);
        if (p.error < best.error) {
            best = p;
        }
        p = best;
        refit(z, &p);
        round_halves(z, &p);
        if (p.h == best.h && p.hmin == best.hmin) {
            break;
        }
        choose_scales(z, 0, false, &p);
        if (!(p.error < best.error)) {
            break;
        }
        best = p;
    }
    // A block that is all but exact, such as a constant one, has only the rounding of the halves left to lose.
    for (int t = 1; t <= z->s_max && best.error < 1e-5f * zero_error; t++) {
        start(z, scale / (float) t, best.dmin, &best);
        start(z, best.d, -offset / (float) t, &best);
        start(z, scale / (float) t, -offset / (float) t, &best);
    }
    return best;
}

void berth_fit_affine_super(
    const struct frame *f, int len, int q_max, int s_max, uint8_t *s, uint8_t *m, uint8_t *q, uint16_t *d, uint16_t *dmin) {
    struct search z  = {.f = f, .len = len, .q_max = (float) q_max, .s_max = s_max, .sign = NOT_ABOVE_ZERO};
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

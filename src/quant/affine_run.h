// SPDX-License-Identifier: MIT
// affine_run.h: fits a line x = scale * q + offset to one run, q in 0..q_max, with the least squared error. A trial spreads the
// levels q over about the range of the elements. Least squares give the best line for the levels of a trial. The best trial is
// refined until its error no longer decreases.
#pragma once

#include "base/min.h"
#include "quant/scalar.h"
#include "quant/vec.h"

// Weighted sums: x is sum(w x), qx is sum(w q x).
struct sums {
    float w, x, xx;
    float q, qq, qx;
};

static inline v4f level_snap(v4f x, float inverse, float offset, float q_max) {
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
    s->w = v4_sum(sw);
    s->x = v4_sum(sx);
    s->xx = v4_sum(sxx);
}

static inline void sum_levels(const float *x, const float *w, int len, float inverse, float offset, float q_max, struct sums *s) {
    v4f sq = v4_all(0.0f), sqq = sq, sqx = sq;
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f q = level_snap(xi, inverse, offset, q_max);
        const v4f wq = v4_load(w + i) * q;
        sq += wq;
        sqq += wq * q;
        sqx += wq * xi;
    }
    s->q = v4_sum(sq);
    s->qq = v4_sum(sqq);
    s->qx = v4_sum(sqx);
}

// inverse: 1 / scale.
static inline float error_with(const float *x, const float *w, int len, float scale, float inverse, float offset, float q_max) {
    v4f sum = v4_all(0.0f);
    for (int i = 0; i < len; i += 4) {
        const v4f xi = v4_load(x + i);
        const v4f e = xi - (level_snap(xi, inverse, offset, q_max) * v4_all(scale) + v4_all(offset));
        sum += v4_load(w + i) * e * e;
    }
    return v4_sum(sum);
}

static inline float error_at(const float *x, const float *w, int len, float scale, float offset, float q_max) {
    return error_with(x, w, len, scale, inverse_or_0(scale), offset, q_max);
}

// Constraint on the offset of a run.
enum sign { NOT_ABOVE_ZERO = -1, ANY = 0, NOT_BELOW_ZERO = 1 };

struct line {
    float scale, offset;
    float gain; // reduction of sum(w x x)
};

// Returns the least-squares line for the levels with the sums s. If the line violates `sign` or has a negative scale, the offset
// is 0.
static inline struct line line_solve(const struct sums *s, enum sign sign) {
    struct line l = {0};
    const float det = s->w * s->qq - s->q * s->q;
    if (det > 1e-6f * s->w * s->qq) {
        l.scale = (s->w * s->qx - s->q * s->x) / det;
        l.offset = (s->qq * s->x - s->q * s->qx) / det;
    } else {
        l.offset = s->x / s->w;
    }
    if (l.scale < 0.0f || (float) sign * l.offset < 0.0f) {
        l.offset = 0.0f;
        l.scale = s->qq > 0.0f && s->qx > 0.0f ? s->qx / s->qq : 0.0f;
    }
    // sum w (x - scale q - offset)^2 = xx - gain
    l.gain = 2.0f * (l.scale * s->qx + l.offset * s->x) -
             (l.scale * l.scale * s->qq + 2.0f * l.scale * l.offset * s->q + l.offset * l.offset * s->w);
    return l;
}

struct lanes {
    v4f scale, offset, gain;
};

// sum_levels() for four offsets, one per lane. Each lane is bitwise equal to sum_levels with that offset.
static inline void sum_levels_4(
    const float *x, const float *w, int len, float inverse, v4f offset, float q_max, v4f *q_out, v4f *qq_out, v4f *qx_out) {
    v4f sq[4] = {v4_all(0.0f), v4_all(0.0f), v4_all(0.0f), v4_all(0.0f)};
    v4f sqq[4], sqx[4];
    memcpy(sqq, sq, sizeof(sqq));
    memcpy(sqx, sq, sizeof(sqx));
    for (int i = 0; i < len; i += 4) {
        for (int k = 0; k < 4; k++) {
            const v4f xi = v4_all(x[i + k]);
            const v4f v = (xi - offset) * v4_all(inverse);
            const v4f q = v4_round(v4_max(v4_min(v, v4_all(q_max)), v4_all(0.0f)));
            const v4f wq = v4_all(w[i + k]) * q;
            sq[k] += wq;
            sqq[k] += wq * q;
            sqx[k] += wq * xi;
        }
    }
    *q_out = (sq[0] + sq[2]) + (sq[1] + sq[3]);
    *qq_out = (sqq[0] + sqq[2]) + (sqq[1] + sqq[3]);
    *qx_out = (sqx[0] + sqx[2]) + (sqx[1] + sqx[3]);
}

// line_solve() for four trials, one per lane.
static inline struct lanes solve_4(const struct sums *s, v4f q, v4f qq, v4f qx, enum sign sign) {
    const v4f zero = v4_all(0.0f);
    const v4f w = v4_all(s->w);
    const v4f x = v4_all(s->x);
    const v4f det = w * qq - q * q;
    const v4i solvable = det > v4_all(1e-6f) * w * qq;
    v4f scale = v4_select(solvable, (w * qx - q * x) / det, zero);
    v4f offset = v4_select(solvable, (qq * x - q * qx) / det, x / w);
    const v4i wrong = (scale < zero) | (v4_all((float) sign) * offset < zero);
    scale = v4_select(wrong, v4_select((qq > zero) & (qx > zero), qx / qq, zero), scale);
    offset = v4_select(wrong, zero, offset);
    const v4f two = v4_all(2.0f);
    const v4f gain = two * (scale * qx + offset * x) - (scale * scale * qq + two * scale * offset * q + offset * offset * w);
    return (struct lanes){scale, offset, gain};
}

// Returns the offsets of four trials, whose levels span `wide` times the range of the run. The spans share the lower end, the
// middle or the upper end with the range. The fourth span has a level at zero.
static inline v4f offsets_of(float lo, float range, float wide, float q_max, enum sign sign) {
    const float slack = (1.0f - wide) * range;
    const float step = wide * range / q_max;
    v4f offset = {lo, lo + 0.5f * slack, lo + slack, step * rintf((lo + 0.5f * slack) / step)};
    return lo == 0.0f ? v4_all(0.0f) : v4_select(v4_all((float) sign) * offset < v4_all(0.0f), v4_all(0.0f), offset);
}

static inline struct line fit_line(const float *x, const float *w, int len, float q_max, enum sign sign, int n_trials) {
    enum { N_ROUNDS = 4 };
    struct sums s;
    struct line best = {0};
    v4f least = v4_load(x);
    v4f most = least;
    for (int i = 4; i < len; i += 4) {
        least = v4_min(least, v4_load(x + i));
        most = v4_max(most, v4_load(x + i));
    }
    float lo = -v4_highest(-least);
    float hi = v4_highest(most);
    if ((float) sign * lo < 0.0f) {
        lo = 0.0f;
    }
    hi = max_f32(lo, hi);
    sum_elements(x, w, len, &s);
    s.q = s.qq = s.qx = 0.0f;
    best = line_solve(&s, sign); // the line if all levels are 0
    if (hi == lo) {
        return best;
    }
    // The spans of the trials go from three level distances less than the range to one level distance more.
    for (int t = n_trials - 1; t >= 0; t--) {
        const float extra = (1.0f - 4.0f / (float) (n_trials - 1) * (float) t) / q_max;
        const float wide = extra > -0.9f ? 1.0f + extra : 0.1f;
        const v4f offset = offsets_of(lo, hi - lo, wide, q_max, sign);
        v4f q, qq, qx;
        sum_levels_4(x, w, len, q_max / (wide * (hi - lo)), offset, q_max, &q, &qq, &qx);
        const struct lanes l = solve_4(&s, q, qq, qx, sign);
        // A trial must reduce the error by more than 0.5%: a larger scale or offset makes the scales of the other runs coarser.
        const v4i better = v4_all(s.xx) - l.gain < v4_all(0.995f * (s.xx - best.gain));
        for (int k = v4_any(better) ? 3 : -1; k >= 0; k--) {
            if (s.xx - l.gain[k] < 0.995f * (s.xx - best.gain)) {
                best = (struct line){l.scale[k], l.offset[k], l.gain[k]};
            }
        }
    }
    for (int round = 0; round < N_ROUNDS && best.scale > 0.0f; round++) {
        sum_levels(x, w, len, 1.0f / best.scale, best.offset, q_max, &s);
        const struct line l = line_solve(&s, sign);
        if (!(l.gain > best.gain)) {
            break;
        }
        best = l;
    }
    return best;
}

// len: a multiple of 16.
static inline void write_levels(const float *x, int len, float scale, float offset, float q_max, uint8_t *q) {
    const float inverse = inverse_or_0(scale);
    for (int i = 0; i < len; i += 16) {
        v4i levels[4];
        for (int j = 0; j < 4; j++) {
            levels[j] = v4_int(level_snap(v4_load(x + i + 4 * j), inverse, offset, q_max));
        }
        v4_store_bytes(levels, 16, q + i);
    }
}

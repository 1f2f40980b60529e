// SPDX-License-Identifier: MIT
// weighted.c: finds the scale, or the scale and offset, with the least weighted error. This file makes the same trials as the
// reference (ggml) and compares them in the same way; the rules were derived from the reference's results. The last bit of a sum
// can decide between almost equal trials, so every sum adds the elements in the order of the row. Each vector lane computes one
// trial.
//
// Search for a scale: trial t, from -9 to 9, maps the element of the largest magnitude to -(bias + t / 10). For the levels q of a
// trial, A = sum(w x q) and B = sum(w q q). The trial with the largest A * A / B wins; its scale is A / B. Trial t = 0 is
// compared first. Of equal trials, the first wins.
//
// Search for a line: a trial spreads about q_max levels from the current offset to the largest element and fits a least-squares
// line. If its error is the smallest so far, the trial is accepted, and later trials start from the offset of its line. Four
// trials are computed together with the same offset. If one of them is accepted, those after it are computed again with the new
// offset.
#include "quant/weighted.h"

#include "base/min.h"
#include "quant/round.h"
#include "quant/vec.h"

#include <math.h>
#if defined(__aarch64__)
#    include <arm_neon.h>
#endif

static inline v4f v4_mad(v4f a, v4f b, v4f c) {
#if defined(__aarch64__)
    return (v4f) vfmaq_f32((float32x4_t) c, (float32x4_t) a, (float32x4_t) b);
#else
    return a * b + c;
#endif
}

// Returns the levels nearest to v, limited to lo .. hi. If |v| >= 2^22, the result is wrong in the same way as in the reference.
static inline v4f level_snap(v4f v, int lo, int hi) {
    const v4i bits = (v4i) (v + v4_all(0x1.8p23f));
    v4i q = (bits & 0x7fffff) - 0x400000;
#if defined(__aarch64__)
    q = (v4i) vminq_s32(vmaxq_s32((int32x4_t) q, vdupq_n_s32(lo)), vdupq_n_s32(hi));
#else
    v4i out = q < lo;
    q = (out & lo) | (~out & q);
    out = q > hi;
    q = (out & hi) | (~out & q);
#endif
    return __builtin_convertvector(q, v4f);
}

static void write_levels(const float *x, int len, float offset, float inverse, int lo, int hi, uint8_t *q) {
    for (int j = 0; j < len; j += 4) {
        const v4f l = level_snap((v4_load(x + j) - v4_all(offset)) * v4_all(inverse), lo, hi);
        for (int k = 0; k < 4; k++) {
            q[j + k] = (uint8_t) ((int) l[k] - lo);
        }
    }
}

// ---- weights ----

float berth_row_power(const float *x, int64_t n) {
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sum / (float) n;
}

bool berth_weighted_init(const float *x, const float *w, float power, float *weight) {
    bool any = false;
    for (int j = 0; j < WEIGHTED_BLOCK; j++) {
        if (!(w[j] >= 0.0f && w[j] < INFINITY)) {
            return false;
        }
        any = any || w[j] > 0.0f;
        weight[j] = w[j] * sqrtf(berth_mad(x[j], x[j], power));
    }
    return any;
}

// ---- a scale ----

enum { N_SCALES = 19, SCALE_SLOTS = 20 };

// Computes A and B of all trials. Entry 0 is the trial t = 0 of the file comment, which never uses fused multiply-adds.
static inline void scale_sums(
    const float *x, const float *weight, const float *inverse, const struct scale_search *how, float *a, float *b) {
    float wx[WEIGHTED_BLOCK];
    for (int j = 0; j < how->len; j++) {
        wx[j] = weight[j] * x[j];
    }
    for (int t = 0; t < SCALE_SLOTS; t += 4) {
        const v4f inv = v4_load(inverse + t);
        v4f at = v4_all(0.0f);
        v4f bt = v4_all(0.0f);
        v4f at_fused = at;
        v4f bt_fused = bt;
        for (int j = 0; j < how->len; j++) {
            const v4f l = level_snap(v4_all(x[j]) * inv, -how->bias, how->bias - 1);
            const v4f wl = v4_all(weight[j]) * l;
            if (how->fused) {
                at_fused = v4_mad(v4_all(wx[j]), l, at_fused);
                bt_fused = v4_mad(wl, l, bt_fused);
            }
            if (!how->fused || t == 0) {
                at += v4_all(wx[j]) * l;
                bt += wl * l;
            }
        }
        v4_store(a + t, how->fused ? at_fused : at);
        v4_store(b + t, how->fused ? bt_fused : bt);
        if (t == 0) {
            a[0] = at[0];
            b[0] = bt[0];
        }
    }
}

float berth_weighted_scale(const float *x, const float *weight, const struct scale_search *how, uint8_t *q) {
    static const float least = 1e-15f; // smaller magnitudes count as zero
    float max = 0.0f;
    float inverse[SCALE_SLOTS], a[SCALE_SLOTS], b[SCALE_SLOTS];
    for (int j = 0; j < how->len; j++) {
        if (fabsf(x[j]) > fabsf(max)) {
            max = x[j];
        }
    }
    if (fabsf(max) < least) {
        memset(q, 0, (size_t) how->len);
        return 0.0f;
    }
    for (int t = 0; t < SCALE_SLOTS; t++) {
        int tenths = 0;
        if (t != 0 && t != N_SCALES) {
            tenths = t < 10 ? t - 10 : t - 9;
        }
        inverse[t] = -((float) how->bias + 0.1f * (float) tenths) / max;
    }
    scale_sums(x, weight, inverse, how, a, b);
    int chosen = 0;
    float scale = b[0] != 0.0f ? a[0] / b[0] : 0.0f;
    float best = scale * a[0];
    for (int t = 1; t < N_SCALES; t++) {
        if (b[t] > 0.0f && a[t] * a[t] > best * b[t]) {
            chosen = t;
            scale = a[t] / b[t];
            best = scale * a[t];
        }
    }
    write_levels(x, how->len, 0.0f, inverse[chosen], -how->bias, how->bias - 1, q);
    return scale;
}

// ---- a line ----

// Four trials, one per lane.
struct lines {
    v4f inverse; // levels per unit of x: before the fit, element x gets the level (x - from) * inverse
    v4f scale, offset;
    v4f error; // INFINITY: the levels of this trial determine no line
};

// q: the levels of each element in the four trials.
static inline v4f line_error(
    const float *x, const float *weight, const struct line_search *how, const v4f *q, v4f scale, v4f offset) {
    v4f error = v4_all(0.0f);
    for (int j = 0; j < how->len; j++) {
        const v4f e = v4_mad(scale, q[j], offset) - v4_all(x[j]);
        error = v4_mad(v4_all(weight[j]), how->absolute ? v4_abs(e) : e * e, error);
    }
    return error;
}

// Computes the trials first .. first + 3 for the range from .. top. sum_w: sum of weights. sum_x: sum of weight * x.
static inline void fit_lines(const float *x, const float *weight, float sum_w, float sum_x, const struct line_search *how,
    float from, float top, int first, struct lines *l) {
    v4f q[WEIGHTED_BLOCK];
    v4f sq = v4_all(0.0f), sqq = sq, sqx = sq;
    for (int k = 0; k < 4; k++) {
        l->inverse[k] = (how->first + how->step * (float) (first + k) + (float) how->q_max) / (top - from);
    }
    for (int j = 0; j < how->len; j++) {
        q[j] = level_snap(l->inverse * (v4_all(x[j]) - v4_all(from)), 0, how->q_max);
        const v4f wq = v4_all(weight[j]) * q[j];
        sq += wq;
        sqq += wq * q[j];
        sqx += wq * v4_all(x[j]);
    }
    const v4f det = v4_mad(v4_all(sum_w), sqq, -(sq * sq));
    const v4f slope = v4_mad(v4_all(sum_w), sqx, -(v4_all(sum_x) * sq)) / det;
    const v4f level = v4_mad(sqq, v4_all(sum_x), -(sq * sqx)) / det;
    const v4i above = level > v4_all(0.0f);
    l->scale = v4_select(above, sqx / sqq, slope);
    l->offset = v4_select(above, v4_all(0.0f), level);
    const v4f error = line_error(x, weight, how, q, l->scale, l->offset);
    l->error = v4_select(det > v4_all(0.0f), error, v4_all(INFINITY));
}

static inline float fit_line(const float *x, const float *weight, const struct line_search *how, uint8_t *q, float *m) {
    float lo = x[0];
    float top = x[0];
    float sum_w = weight[0];
    float sum_x = weight[0] * x[0];
    for (int j = 1; j < how->len; j++) {
        lo = min_f32(x[j], lo);
        top = max_f32(x[j], top);
        sum_w += weight[j];
        sum_x = berth_mad(weight[j], x[j], sum_x);
    }
    float from = min_f32(0.0f, lo);
    *m = from;
    if (top <= from) {
        memset(q, 0, (size_t) how->len);
        return 0.0f;
    }
    float inverse = (float) how->q_max / (top - from);
    float scale = 1.0f / inverse;
    float best = 0.0f;
    write_levels(x, how->len, from, inverse, 0, how->q_max, q);
    for (int j = 0; j < how->len; j++) {
        const float e = berth_mad(scale, (float) q[j], from) - x[j];
        // For squares, the reference rounds the product and the sum separately.
        best = how->absolute ? berth_mad(weight[j], fabsf(e), best) : best + weight[j] * (e * e);
    }
    for (int t = 0; t < how->n_trials;) {
        struct lines l;
        fit_lines(x, weight, sum_w, sum_x, how, *m, top, t, &l);
        const int n = min_int(how->n_trials - t, 4);
        int k = 0;
        while (k < n && !(l.error[k] < best)) {
            k++;
        }
        if (k < n) {
            write_levels(x, how->len, *m, l.inverse[k], 0, how->q_max, q);
            best = l.error[k];
            scale = l.scale[k];
            *m = l.offset[k];
            k++;
        }
        t += k;
    }
    return scale;
}

float berth_weighted_line(const float *x, const float *weight, const struct line_search *how, uint8_t *q, float *m) {
    // With the constant length, the compiler inlines a second copy of fit_line for 32 elements, which is a third faster.
    struct line_search run = *how;
    if (how->len == WEIGHTED_BLOCK) {
        run.len = WEIGHTED_BLOCK;
        return fit_line(x, weight, &run, q, m);
    }
    return fit_line(x, weight, how, q, m);
}

// SPDX-License-Identifier: MIT
// plain.c: quantises blocks of the K and iq4 formats to the same bytes as the row functions of the reference (ggml). These rules
// were derived from the reference's results:
//   1. Each run finds its own scale, or scale and offset. Larger elements have larger weights.
//   2. The run with the largest scale gets the integer scale with the largest magnitude. The other scales are rounded relative to
//      it.
//   3. All levels are rounded with the resulting scales.
// The long searches (scalar_super.c, affine.c) have a smaller error but take longer. The bytes depend on the order of the sums
// and on fused roundings (berth_mad).
#include "base/min.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/round.h"
#include "quant/weighted.h"

static const float least = 1e-15f; // smaller magnitudes count as zero

enum { MAX_RUNS = 16, RUN = 16, IQ4_RUN = 32 };

static inline int nearest_in(float v, int lo, int hi) {
    return berth_clamp_i32(berth_rint_wrapped(v), lo, hi);
}

static float run_extreme(const float *x, int len) {
    float max = 0.0f;
    for (int i = 0; i < len; i++) {
        if (fabsf(x[i]) > fabsf(max)) {
            max = x[i];
        }
    }
    return max;
}

static void run_squares(const float *x, int len, float *weight) {
    for (int i = 0; i < len; i++) {
        weight[i] = x[i] * x[i];
    }
}

// ---- formats with an offset ----

// Weights: the magnitude for q2_K (how->absolute); magnitude plus root mean square of the run for q4_K and q5_K.
static void affine_weights(const float *x, const struct line_search *how, float *weight) {
    float power = 0.0f;
    for (int i = 0; i < how->len && !how->absolute; i++) {
        power = berth_mad(x[i], x[i], power);
    }
    const float base = sqrtf(power / (float) how->len);
    for (int i = 0; i < how->len; i++) {
        weight[i] = how->absolute ? fabsf(x[i]) : base + fabsf(x[i]);
    }
}

static void integers_of(const float *v, int n, float max, int s_max, uint8_t *s) {
    const float inverse = max > 0.0f ? (float) s_max / max : 0.0f;
    for (int r = 0; r < n; r++) {
        s[r] = (uint8_t) (min_i32(berth_rint_wrapped(inverse * v[r]), s_max) & s_max);
    }
}

void berth_plain_affine(const float *x, const struct line_search *how, int s_max, struct affine_super *out) {
    const int n_runs = QK_K / how->len;
    float scale[MAX_RUNS], offset[MAX_RUNS];
    float max_scale = 0.0f;
    float max_offset = 0.0f;
    for (int r = 0; r < n_runs; r++) {
        float weight[WEIGHTED_BLOCK], low;
        affine_weights(x + r * how->len, how, weight);
        scale[r] = berth_weighted_line(x + r * how->len, weight, how, out->q + r * how->len, &low);
        offset[r] = -low;
        max_scale = max_f32(scale[r], max_scale);
        max_offset = max_f32(offset[r], max_offset);
    }
    integers_of(scale, n_runs, max_scale, s_max, out->s);
    integers_of(offset, n_runs, max_offset, s_max, out->m);
    out->d = berth_float_to_half(max_scale / (float) s_max);
    out->dmin = berth_float_to_half(max_offset / (float) s_max);
    for (int r = 0; r < n_runs; r++) {
        const float step = berth_half_to_float(out->d) * (float) out->s[r];
        const float low = berth_half_to_float(out->dmin) * (float) out->m[r];
        for (int i = r * how->len; i < (r + 1) * how->len && step != 0.0f; i++) {
            out->q[i] = (uint8_t) nearest_in((x[i] + low) / step, 0, how->q_max);
        }
    }
}

// ---- formats without an offset ----

// Rounds 16 scales to s_min .. -s_min - 1. The largest magnitude becomes s_min. Computes q. Returns d.
static uint16_t scales_of(const float *x, const float *scale, int bias, int s_min, int8_t *s, uint8_t *q) {
    const float max = run_extreme(scale, MAX_RUNS);
    const float inverse = (float) s_min / max;
    const uint16_t d = berth_float_to_half(1.0f / inverse);
    for (int r = 0; r < MAX_RUNS; r++) {
        s[r] = (int8_t) min_i32(berth_rint_wrapped(inverse * scale[r]), -s_min - 1);
        const float step = berth_half_to_float(d) * (float) s[r];
        for (int i = r * RUN; i < (r + 1) * RUN && step != 0.0f; i++) {
            q[i] = (uint8_t) (nearest_in(x[i] / step, -bias, bias - 1) + bias);
        }
    }
    return d;
}

// Finds the scale of a run of q3_K. For each element in turn, the other elements give a best scale, and the element moves to the
// level nearest to it at that scale. A move is made only if it reduces the error of the run.
static float q3_run(const float *x, uint8_t *q) {
    enum { BIAS = 4, N_ROUNDS = 5 };
    const float max = run_extreme(x, RUN);
    float a = 0.0f, b = 0.0f;
    float w[RUN];
    int level[RUN];
    if (fabsf(max) < least) {
        memset(q, 0, RUN);
        return 0.0f;
    }
    run_squares(x, RUN, w);
    const float inverse = -(float) BIAS / max;
    for (int i = 0; i < RUN; i++) {
        level[i] = nearest_in(inverse * x[i], -BIAS, BIAS - 1);
        const float l = (float) level[i];
        a = berth_mad(w[i] * x[i], l, a);
        b = berth_mad(w[i] * l, l, b);
    }
    bool changed = true;
    for (int round = 0; round < N_ROUNDS && changed; round++) {
        changed = false;
        for (int i = 0; i < RUN; i++) {
            const float l = (float) level[i];
            const float wx = w[i] * x[i];
            float rest_a = berth_mad(-wx, l, a);
            if (!(rest_a > 0.0f)) {
                continue;
            }
            float rest_b = berth_mad(-(w[i] * l), l, b);
            const int next = nearest_in(x[i] * rest_b / rest_a, -BIAS, BIAS - 1);
            rest_a = berth_mad(wx, (float) next, rest_a);
            rest_b = berth_mad(w[i] * (float) next, (float) next, rest_b);
            if (next != level[i] && rest_b > 0.0f && rest_a * rest_a * b > a * a * rest_b) {
                level[i] = next;
                a = rest_a;
                b = rest_b;
                changed = true;
            }
        }
    }
    for (int i = 0; i < RUN; i++) {
        q[i] = (uint8_t) (level[i] + BIAS);
    }
    return b > 0.0f ? a / b : 0.0f;
}

uint16_t berth_plain_q3(const float *x, int8_t *s, uint8_t *q) {
    float scale[MAX_RUNS];
    for (int r = 0; r < MAX_RUNS; r++) {
        scale[r] = q3_run(x + r * RUN, q + r * RUN);
    }
    if (run_extreme(scale, MAX_RUNS) == 0.0f) {
        memset(s, -32, MAX_RUNS);
        return 0;
    }
    return scales_of(x, scale, 4, -32, s, q);
}

uint16_t berth_plain_q6(const float *x, int8_t *s, uint8_t *q) {
    static const struct scale_search how = {RUN, 32, true};
    float scale[MAX_RUNS], w[RUN];
    for (int r = 0; r < MAX_RUNS; r++) {
        run_squares(x + r * RUN, RUN, w);
        scale[r] = berth_weighted_scale(x + r * RUN, w, &how, q + r * RUN);
    }
    if (fabsf(run_extreme(scale, MAX_RUNS)) < least) {
        memset(s, 0, MAX_RUNS);
        memset(q, 0, QK_K);
        return 0;
    }
    return scales_of(x, scale, 32, -128, s, q);
}

// ---- formats with a table of values ----

// Returns the index of the nearest of 16 sorted values. If two values are equally near, returns the upper.
static int nearest_value(const int8_t *values, float v) {
    int i = 0;
    for (int step = 8; step > 0; step /= 2) {
        i += v >= (float) values[i + step] ? step : 0;
    }
    return i < 15 && !(v - (float) values[i] < (float) values[i + 1] - v) ? i + 1 : i;
}

static void levels_of(const float *x, float inverse, const int8_t *values, uint8_t *q) {
    for (int i = 0; i < IQ4_RUN; i++) {
        q[i] = (uint8_t) nearest_value(values, inverse * x[i]);
    }
}

static void value_sums(const float *x, const int8_t *values, const uint8_t *q, float *a, float *b) {
    *a = *b = 0.0f;
    for (int i = 0; i < IQ4_RUN; i++) {
        const float v = (float) values[q[i]];
        const float wv = x[i] * x[i] * v;
        *a = berth_mad(wv, x[i], *a);
        *b = berth_mad(wv, v, *b);
    }
}

uint16_t berth_plain_iq4_nl(const float *x, const int8_t *values, uint8_t *q) {
    const float max = run_extreme(x, IQ4_RUN);
    float a, b;
    if (fabsf(max) < least) {
        levels_of(x, 0.0f, values, q);
        return 0;
    }
    levels_of(x, 1.0f / (max / (float) values[0]), values, q);
    value_sums(x, values, q, &a, &b);
    return berth_float_to_half(a / b);
}

static float iq4_xs_run(const float *x, const int8_t *values) {
    enum { REACH = 7 };
    const float max = run_extreme(x, IQ4_RUN);
    uint8_t q[IQ4_RUN];
    float a, b;
    if (fabsf(max) < least) {
        return 0.0f;
    }
    levels_of(x, 1.0f / (-max / (float) values[0]), values, q);
    value_sums(x, values, q, &a, &b);
    float scale = a / b;
    float best = scale * a;
    for (int t = -REACH; t <= REACH; t++) {
        levels_of(x, (float) (t + values[0]) / max, values, q);
        value_sums(x, values, q, &a, &b);
        if (b > 0.0f && a * a > best * b) {
            scale = a / b;
            best = scale * a;
        }
    }
    return scale;
}

uint16_t berth_plain_iq4_xs(const float *x, const int8_t *values, int8_t *s, uint8_t *q) {
    enum { N_RUNS = QK_K / IQ4_RUN };
    float scale[N_RUNS];
    for (int r = 0; r < N_RUNS; r++) {
        scale[r] = iq4_xs_run(x + r * IQ4_RUN, values);
    }
    const float d = -run_extreme(scale, N_RUNS) / 32;
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (int r = 0; r < N_RUNS; r++) {
        s[r] = (int8_t) nearest_in(inverse * scale[r], -32, 31);
        const float step = d * (float) s[r];
        levels_of(x + r * IQ4_RUN, step != 0.0f ? 1.0f / step : 0.0f, values, q + r * IQ4_RUN);
    }
    return berth_float_to_half(d);
}

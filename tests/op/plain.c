// SPDX-License-Identifier: MIT
// plain.c: ops as loops in double precision, written directly from their definitions.

#include "plain.h"

#include "core/op_params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t at(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return i0 + t->ne[0] * (i1 + t->ne[1] * (i2 + t->ne[2] * i3));
}

// Rounds to f16 if the other operand is f16.
static double *values_rounded_for(const struct ggml_tensor *t, const struct ggml_tensor *other) {
    double *v = op_values(t);
    for (int64_t i = 0; other->type == GGML_TYPE_F16 && i < ggml_nelements(t); i++) {
        v[i] = op_rounded(GGML_TYPE_F16, v[i]);
    }
    return v;
}

void op_plain_copy(const struct ggml_tensor *t, double *out) {
    double *x = op_values(t->src[0]);
    memcpy(out, x, (size_t) ggml_nelements(t) * sizeof *out);
    free(x);
}

void op_plain_mul_mat(const struct ggml_tensor *t, double *out) {
    const struct ggml_tensor *a = t->src[0], *b = t->src[1];
    double *x = op_values(a), *y = values_rounded_for(b, a);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        const int64_t row = i % t->ne[0], col = i / t->ne[0] % t->ne[1];
        const int64_t i2 = i / (t->ne[0] * t->ne[1]) % t->ne[2], i3 = i / (t->ne[0] * t->ne[1] * t->ne[2]);
        const double *xs = x + at(a, 0, row, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
        const double *ys = y + at(b, 0, col, i2, i3);
        double sum = 0;
        for (int64_t k = 0; k < a->ne[0]; k++) {
            sum += xs[k] * ys[k];
        }
        out[i] = sum;
    }
    free(x), free(y);
}

// ALiBi, arXiv 2108.12409.
static double slope_of(int64_t h, int64_t n, double max_bias) {
    if (max_bias <= 0) {
        return 1;
    }
    const double n_power = exp2(floor(log2((double) n)));
    return (double) h < n_power ? pow(2, -max_bias / n_power * (double) (h + 1))
                                : pow(2, -max_bias / 2 / n_power * (2 * ((double) h - n_power) + 1));
}

struct attn {
    const struct ggml_tensor *t, *q, *k, *v, *mask, *sinks;
    double *qs, *ks, *vs, *masks, *sinks_v;
};

static void attn_row(const struct attn *a, int64_t head, int64_t token, int64_t seq, double *score, double *out) {
    const double scale = (double) param_f32(a->t, 0), softcap = (double) param_f32(a->t, 2),
                 slope = slope_of(head, a->q->ne[2], (double) param_f32(a->t, 1));
    const int64_t d = a->q->ne[0], d_v = a->v->ne[0], n_kv = a->k->ne[1];
    const double *q = a->qs + at(a->q, 0, token, head, seq);
    double max = a->sinks != NULL ? a->sinks_v[head] : -INFINITY;
    for (int64_t j = 0; j < n_kv; j++) {
        const double *k = a->ks + at(a->k, 0, j, head / (a->q->ne[2] / a->k->ne[2]), seq / (a->q->ne[3] / a->k->ne[3]));
        double dot = 0;
        for (int64_t i = 0; i < d; i++) {
            dot += q[i] * k[i];
        }
        score[j] = softcap != 0 ? softcap * tanh(dot * scale / softcap) : dot * scale;
        if (a->mask != NULL) {
            score[j] += slope * a->masks[at(a->mask, j, token, head % a->mask->ne[2], seq % a->mask->ne[3])];
        }
        max = fmax(max, score[j]);
    }
    double sum = a->sinks != NULL ? exp(a->sinks_v[head] - max) : 0;
    memset(out, 0, (size_t) d_v * sizeof *out);
    for (int64_t j = 0; j < n_kv && max != -INFINITY; j++) {
        const double w = exp(score[j] - max),
                     *v = a->vs + at(a->v, 0, j, head / (a->q->ne[2] / a->v->ne[2]), seq / (a->q->ne[3] / a->v->ne[3]));
        sum += w;
        for (int64_t i = 0; i < d_v && w != 0; i++) {
            out[i] += w * v[i];
        }
    }
    for (int64_t i = 0; i < d_v; i++) {
        out[i] = sum != 0 ? out[i] / sum : 0;
    }
}

void op_plain_attn(const struct ggml_tensor *t, double *out) {
    struct attn a = {.t = t, .q = t->src[0], .k = t->src[1], .v = t->src[2], .mask = t->src[3], .sinks = t->src[4]};
    a.qs = values_rounded_for(a.q, a.k);
    a.ks = op_values(a.k);
    a.vs = op_values(a.v);
    a.masks = a.mask != NULL ? op_values(a.mask) : NULL;
    a.sinks_v = a.sinks != NULL ? op_values(a.sinks) : NULL;
    double *score = malloc((size_t) a.k->ne[1] * sizeof *score);
    for (int64_t i = 0; i < ggml_nrows(t); i++) {
        const int64_t head = i % t->ne[1], token = i / t->ne[1] % t->ne[2], seq = i / (t->ne[1] * t->ne[2]);
        attn_row(&a, head, token, seq, score, out + i * t->ne[0]);
    }
    free(a.qs), free(a.ks), free(a.vs), free(a.masks), free(a.sinks_v), free(score);
}

static double mapped(const struct ggml_tensor *t, double x) {
    if (t->op == GGML_OP_SCALE) {
        return x * (double) param_f32(t, 0) + (double) param_f32(t, 1);
    }
    switch (ggml_get_unary_op(t)) {
        case GGML_UNARY_OP_GELU: return 0.5 * x * (1 + tanh(0.79788456080286535588 * x * (1 + 0.044715 * x * x)));
        case GGML_UNARY_OP_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
        case GGML_UNARY_OP_GELU_QUICK: return x / (1 + exp(-1.702 * x));
        case GGML_UNARY_OP_SILU: return x / (1 + exp(-x));
        default: return NAN;
    }
}

void op_plain_map(const struct ggml_tensor *t, double *out) {
    double *x = op_values(t->src[0]);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        out[i] = mapped(t, x[i]);
    }
    free(x);
}

void op_plain_glu(const struct ggml_tensor *t, double *out) {
    const struct ggml_tensor *a = t->src[0], *b = t->src[1];
    const int64_t n = t->ne[0];
    const double alpha = (double) param_f32(t, 2), limit = (double) param_f32(t, 3);
    double *x = op_values(a), *y = b != NULL ? op_values(b) : NULL;
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        const int64_t row = i / n;
        const double v = fmin(x[row * a->ne[0] + i % n], limit);
        const double g = y != NULL ? y[i] : x[row * a->ne[0] + n + i % n];
        out[i] = v / (1 + exp(-alpha * v)) * (fmax(-limit, fmin(limit, g)) + 1);
    }
    free(x), free(y);
}

void op_plain_ssm_conv(const struct ggml_tensor *t, double *out) {
    const struct ggml_tensor *a = t->src[0], *c = t->src[1];
    double *x = op_values(a), *w = op_values(c);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        const int64_t channel = i % t->ne[0], token = i / t->ne[0] % t->ne[1], seq = i / (t->ne[0] * t->ne[1]);
        double sum = 0;
        for (int64_t k = 0; k < c->ne[0]; k++) {
            sum += x[at(a, token + k, channel, seq, 0)] * w[at(c, k, channel, 0, 0)];
        }
        out[i] = sum;
    }
    free(x), free(w);
}

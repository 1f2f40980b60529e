// SPDX-License-Identifier: MIT
// vec.c: portable kernels on rows of floats. Sums use LANES partial sums, so that compilers can use vector registers. The order
// of the additions is fixed, so results do not depend on the compiler.

#include "base/min.h"
#include "cpu/kernels.h"
#include "quant/half.h"

#include <math.h>

#define LANES 16

#define ROW2(name, value) \
    static void row_##name(int64_t n, float *z, const float *x, const float *y) { \
        for (int64_t i = 0; i < n; i++) { \
            z[i] = value; \
        } \
    }
ROW2(add, x[i] + y[i])
ROW2(sub, x[i] - y[i])
ROW2(mul, x[i] * y[i])
ROW2(div, x[i] / y[i])
ROW2(silu_mul, x[i] / (1.0f + expf(-x[i])) * y[i])

#define ROW1(name, value) \
    static void row_##name(int64_t n, float *y, const float *x) { \
        for (int64_t i = 0; i < n; i++) { \
            y[i] = value; \
        } \
    }
ROW1(exp, expf(x[i]))
ROW1(silu, x[i] / (1.0f + expf(-x[i])))
ROW1(tanh, tanhf(x[i]))
ROW1(sigmoid, 1.0f / (1.0f + expf(-x[i])))

// ggml reads gelu from tables of f16 values, so argument and result are rounded to f16.
static float round_f16(float v) {
    return berth_half_to_float(berth_float_to_half(v));
}

static void row_gelu(int64_t n, float *y, const float *x) {
    const float a = 0.044715f, sqrt_2_over_pi = 0.79788456080286535587989211986876f;
    for (int64_t i = 0; i < n; i++) {
        const float v = round_f16(x[i]);
        // For |x| >= 10 the result is exactly 0 or x.
        const float far = x[i] <= -10.0f ? 0.0f : x[i];
        y[i] = fabsf(x[i]) >= 10.0f ? far : round_f16(0.5f * v * (1.0f + tanhf(sqrt_2_over_pi * v * (1.0f + a * v * v))));
    }
}

static void row_gelu_quick(int64_t n, float *y, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        const float v = round_f16(x[i]);
        y[i] = round_f16(v * (1.0f / (1.0f + expf(-1.702f * v))));
    }
}

static void row_cos_sin(int64_t n, float *c, float *s, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        c[i] = cosf(x[i]);
        s[i] = sinf(x[i]);
    }
}

static void row_scale(int64_t n, float *y, const float *x, float s, float b) {
    if (b == 0.0f) { // keeps the sign of zero
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i] * s;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * s + b;
    }
}

static void row_mad(int64_t n, float *y, const float *x, float s) {
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i] * s;
    }
}

static void row_fill(int64_t n, float *y, float v) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = v;
    }
}

#define SUM(name, value_of) \
    static double row_##name(int64_t n, const float *x) { \
        double lane[LANES] = {0}; \
        int64_t i = 0; \
        for (; i + LANES <= n; i += LANES) { \
            for (int j = 0; j < LANES; j++) { \
                lane[j] += value_of(x[i + j]); \
            } \
        } \
        double sum = 0; \
        for (int j = 0; j < LANES; j++) { \
            sum += lane[j]; \
        } \
        for (; i < n; i++) { \
            sum += value_of(x[i]); \
        } \
        return sum; \
    }
#define IDENTITY(v) (v)
#define SQUARE(v) (double) (v) * (v)
SUM(sum, IDENTITY)
SUM(sum_sq, SQUARE)

static float row_max(int64_t n, const float *x) {
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        max = max_f32(x[i], max);
    }
    return max;
}

static double row_exp_sum(int64_t n, float *y, const float *x, float max) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - max);
        sum += y[i];
    }
    return sum;
}

static void row_mix(CPU_MIX_ARGS) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < ny; j++) {
            if (w[j * ld_w + i] != 0.0f) {
                row_mad(d, y + j * ld_y, x + i * ld_x, w[j * ld_w + i]);
            }
        }
    }
}

static void row_rotate(int64_t n, float *z, const float *x, const float *c, const float *s) {
    for (int64_t i = 0; i + 2 <= n; i += 2) {
        const float a = x[i], b = x[i + 1];
        z[i] = a * c[i] + b * s[i];
        z[i + 1] = b * c[i + 1] + a * s[i + 1];
    }
}

void cpu_ukr_vec(struct cpu_kernels *k) {
    k->add = row_add;
    k->sub = row_sub;
    k->mul = row_mul;
    k->div = row_div;
    k->scale = row_scale;
    k->mad = row_mad;
    k->fill = row_fill;
    k->sum = row_sum;
    k->sum_sq = row_sum_sq;
    k->max = row_max;
    k->exp_sum = row_exp_sum;
    k->mix = row_mix;
    k->rotate = row_rotate;
    k->exp = row_exp;
    k->silu = row_silu;
    k->silu_mul = row_silu_mul;
    k->gelu = row_gelu;
    k->gelu_quick = row_gelu_quick;
    k->tanh = row_tanh;
    k->sigmoid = row_sigmoid;
    k->cos_sin = row_cos_sin;
}

// SPDX-License-Identifier: MIT
// unary.c: portable kernels of the activations that are hot in models. The rest of GGML_OP_UNARY is in op/eltwise.c.

#include "cpu/kernels.h"

#include "quant/half.h"

#include <math.h>

static void row_exp(int64_t n, float *y, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i]);
    }
}

static void row_silu_mul(int64_t n, float *z, const float *x, const float *y) {
    for (int64_t i = 0; i < n; i++) {
        z[i] = x[i] / (1.0f + expf(-x[i])) * y[i];
    }
}

static void row_silu(int64_t n, float *y, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] / (1.0f + expf(-x[i]));
    }
}

// Both gelu curves take and give the precision of a half: ggml has always read them from a table of halves, and models' outputs
// are compared with its.
static float as_half(float v) {
    return berth_half_to_float(berth_float_to_half(v));
}

static void row_gelu(int64_t n, float *y, const float *x) {
    const float a = 0.044715f, sqrt_2_over_pi = 0.79788456080286535587989211986876f;
    for (int64_t i = 0; i < n; i++) {
        const float v = as_half(x[i]);
        // beyond 10 the curve is 0 or x to the last bit
        const float far = x[i] <= -10.0f ? 0.0f : x[i];
        y[i] = fabsf(x[i]) >= 10.0f ? far : as_half(0.5f * v * (1.0f + tanhf(sqrt_2_over_pi * v * (1.0f + a * v * v))));
    }
}

static void row_gelu_quick(int64_t n, float *y, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        const float v = as_half(x[i]);
        y[i] = as_half(v * (1.0f / (1.0f + expf(-1.702f * v))));
    }
}

static void row_tanh(int64_t n, float *y, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = tanhf(x[i]);
    }
}

static void row_sigmoid(int64_t n, float *y, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = 1.0f / (1.0f + expf(-x[i]));
    }
}

static void row_cos_sin(int64_t n, float *c, float *s, const float *x) {
    for (int64_t i = 0; i < n; i++) {
        c[i] = cosf(x[i]);
        s[i] = sinf(x[i]);
    }
}

void cpu_ukr_unary(struct cpu_kernels *k) {
    k->exp = row_exp;
    k->silu = row_silu;
    k->silu_mul = row_silu_mul;
    k->gelu = row_gelu;
    k->gelu_quick = row_gelu_quick;
    k->tanh = row_tanh;
    k->sigmoid = row_sigmoid;
    k->cos_sin = row_cos_sin;
}

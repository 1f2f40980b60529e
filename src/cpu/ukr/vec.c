// SPDX-License-Identifier: MIT
// vec.c: portable kernels over rows of floats: arithmetic and reductions. Sums run in LANES partial sums so that compilers can
// keep them in vector registers; their order is fixed, so results do not depend on the compiler.

#include "base/min.h"
#include "cpu/kernels.h"

#include <math.h>

#define LANES 16

static void row_add(int64_t n, float *z, const float *x, const float *y) {
    for (int64_t i = 0; i < n; i++) {
        z[i] = x[i] + y[i];
    }
}

static void row_sub(int64_t n, float *z, const float *x, const float *y) {
    for (int64_t i = 0; i < n; i++) {
        z[i] = x[i] - y[i];
    }
}

static void row_mul(int64_t n, float *z, const float *x, const float *y) {
    for (int64_t i = 0; i < n; i++) {
        z[i] = x[i] * y[i];
    }
}

static void row_div(int64_t n, float *z, const float *x, const float *y) {
    for (int64_t i = 0; i < n; i++) {
        z[i] = x[i] / y[i];
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

static double row_sum(int64_t n, const float *x) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    double sum = 0;
    for (int j = 0; j < LANES; j++) {
        sum += lane[j];
    }
    for (; i < n; i++) {
        sum += x[i];
    }
    return sum;
}

static double row_sum_sq(int64_t n, const float *x) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double) x[i + j] * x[i + j];
        }
    }
    double sum = 0;
    for (int j = 0; j < LANES; j++) {
        sum += lane[j];
    }
    for (; i < n; i++) {
        sum += (double) x[i] * x[i];
    }
    return sum;
}

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

static void row_mix(
    int64_t d, float *y, int64_t ld_y, int ny, const float *w, int64_t ld_w, const float *x, int64_t ld_x, int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < ny; j++) {
            if (w[j * ld_w + i] != 0.0f) {
                row_mad(d, y + j * ld_y, x + i * ld_x, w[j * ld_w + i]);
            }
        }
    }
}

static void row_turn(int64_t n, float *z, const float *x, const float *c, const float *s) {
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
    k->turn = row_turn;
}

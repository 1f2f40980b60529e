// SPDX-License-Identifier: MIT
// softmax.c: SOFT_MAX: exp(x * scale + slope * mask) of a row, divided by its sum. The mask (f16, bf16 or f32) repeats over
// dimensions 2 and 3. With max_bias, the slope decreases from head to head (ALiBi). Sink: a number per head whose exp is added to
// the sum.

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <math.h>

static bool softmax_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *mask = op->src[1], *sinks = op->src[2];
    if (a == NULL || a->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || !ggml_are_same_shape(a, op) ||
        !cpu_rows_are_dense(a) || !cpu_rows_are_dense(op)) {
        return false;
    }
    if (mask != NULL && (!cpu_is_float(mask->type) || mask->ne[0] != a->ne[0] || mask->ne[1] < a->ne[1] || mask->ne[2] < 1 ||
                            mask->ne[3] < 1 || !cpu_rows_are_dense(mask))) {
        return false;
    }
    return sinks == NULL || (sinks->type == GGML_TYPE_F32 && sinks->ne[0] >= a->ne[2] && ggml_nrows(sinks) > 0);
}

static float slope_of(int64_t head, int64_t n_heads, float max_bias) {
    if (!(max_bias > 0.0f)) {
        return 1.0f;
    }
    int64_t n = 1; // largest power of two <= n_heads
    while (n * 2 <= n_heads) {
        n *= 2;
    }
    const float m0 = powf(2.0f, -max_bias / (float) n), m1 = powf(2.0f, -max_bias / 2.0f / (float) n);
    return head < n ? powf(m0, (float) (head + 1)) : powf(m1, (float) (2 * (head - n) + 1));
}

// y += slope * mask
static void add_mask(
    const struct cpu_kernels *k, int64_t n, float *y, const struct ggml_tensor *mask, const char *row, float slope) {
    float buf[CPU_PIECE];
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        const int64_t m = min_i64(n - i, CPU_PIECE);
        k->mad(m, y + i, cpu_row_load(k, mask, row, i, m, buf), slope);
    }
}

static void softmax_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *mask = op->src[1], *sinks = op->src[2];
    const struct cpu_kernels *k = p->k;
    const float scale = param_f32(op, 0), max_bias = param_f32(op, 1);
    const int64_t n = op->ne[0];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        float *y = (float *) (void *) cpu_row(op, at);
        k->scale(n, y, (const float *) (const void *) cpu_row(a, at), scale, 0.0f);
        if (mask != NULL) {
            const char *row = cpu_row_at(mask, at.i1, at.i2 % mask->ne[2], at.i3 % mask->ne[3]);
            add_mask(k, n, y, mask, row, slope_of(at.i2, op->ne[2], max_bias));
        }
        const float sink = sinks != NULL ? cpu_f32_at(sinks, at.i2) : -INFINITY;
        const float max = sinks != NULL ? fmaxf(k->max(n, y), sink) : k->max(n, y);
        double sum = k->exp_sum(n, y, y, max);
        if (sinks != NULL) {
            sum += expf(sink - max);
        }
        k->scale(n, y, y, (float) (1.0 / sum), 0.0f);
    }
}

const struct cpu_op_entry cpu_ops_softmax[] = {
    {GGML_OP_SOFT_MAX,
        {.supports = softmax_supports, .run = softmax_run, .uses = CPU_USE_MAD | CPU_USE_SCALE | CPU_USE_MAX | CPU_USE_EXP_SUM}},
    CPU_OPS_END,
};

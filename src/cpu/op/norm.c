// SPDX-License-Identifier: MIT
// norm.c: NORM, RMS_NORM and L2_NORM over rows, and GROUP_NORM over groups of channels (dimension 2). All are f32, in place or not.
// Strided rows are gathered in work memory; GROUP_NORM requires dense rows. Sums are f64, to keep the precision of long rows.

#include "base/min.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <math.h>

static bool norm_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op);
}

static bool is_dense(const struct ggml_tensor *op) {
    return cpu_is_f32_dense(op->src[0]) && cpu_is_f32_dense(op);
}

static bool group_supports(const struct ggml_tensor *op) {
    return norm_supports(op) && is_dense(op) && param_i32(op, 0) > 0;
}

// ---- over rows ----

typedef void (*row_norm_t)(const struct cpu_kernels *k, int64_t n, float *y, const float *x, float eps);

static void rows_run(const struct cpu_params *p, struct ggml_tensor *op, row_norm_t norm) {
    const float eps = param_f32(op, 0);
    float *buf = is_dense(op) ? NULL : cpu_scratch(p, op->ne[0]);
    int64_t i0, i1;
    cpu_share(p, ggml_nrows(op), &i0, &i1);
    for (int64_t ir = i0; ir < i1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        float *y = cpu_row_target(op, cpu_row(op, at), 0, buf);
        const float *x = cpu_row_load(p->k, op->src[0], cpu_row(op->src[0], at), 0, op->ne[0], buf);
        norm(p->k, op->ne[0], y, x, eps);
        cpu_row_store(p->k, op, cpu_row(op, at), 0, op->ne[0], y);
    }
}

static size_t rows_work_size(const struct ggml_tensor *op, int n_tasks) {
    return is_dense(op) ? 0 : cpu_scratch_size(op->ne[0], n_tasks);
}

// y = x - mean; returns the sum of squares of y.
static double row_center(const struct cpu_kernels *k, int64_t n, float *y, const float *x, float mean) {
    k->scale(n, y, x, 1.0f, -mean);
    return k->sum_sq(n, y);
}

static void row_norm(const struct cpu_kernels *k, int64_t n, float *y, const float *x, float eps) {
    const float mean = (float) (k->sum(n, x) / (double) n);
    const float var = (float) (row_center(k, n, y, x, mean) / (double) n);
    k->scale(n, y, y, 1.0f / sqrtf(var + eps), 0.0f);
}

static void row_rms_norm(const struct cpu_kernels *k, int64_t n, float *y, const float *x, float eps) {
    const float mean = (float) (k->sum_sq(n, x) / (double) n);
    k->scale(n, y, x, 1.0f / sqrtf(mean + eps), 0.0f);
}

static void row_l2_norm(const struct cpu_kernels *k, int64_t n, float *y, const float *x, float eps) {
    const float length = sqrtf((float) k->sum_sq(n, x));
    k->scale(n, y, x, 1.0f / fmaxf(length, eps), 0.0f);
}

static void norm_run(const struct cpu_params *p, struct ggml_tensor *op) {
    rows_run(p, op, row_norm);
}
static void rms_norm_run(const struct cpu_params *p, struct ggml_tensor *op) {
    rows_run(p, op, row_rms_norm);
}
static void l2_norm_run(const struct cpu_params *p, struct ggml_tensor *op) {
    rows_run(p, op, row_l2_norm);
}

// ---- over groups ----

static void group_run(const struct cpu_kernels *k, struct ggml_tensor *op, int64_t i3, int64_t c0, int64_t c1, float eps) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n = op->ne[0];
    const double count = (double) (n * op->ne[1] * (c1 - c0));
    double sum = 0, sum_sq = 0;
    for (int64_t i2 = c0; i2 < c1; i2++) {
        for (int64_t i1 = 0; i1 < op->ne[1]; i1++) {
            sum += k->sum(n, (const float *) (const void *) cpu_row_at(a, i1, i2, i3));
        }
    }
    const float mean = (float) (sum / count);
    for (int64_t i2 = c0; i2 < c1; i2++) {
        for (int64_t i1 = 0; i1 < op->ne[1]; i1++) {
            sum_sq += row_center(k, n, (float *) (void *) cpu_row_at(op, i1, i2, i3),
                (const float *) (const void *) cpu_row_at(a, i1, i2, i3), mean);
        }
    }
    const float scale = 1.0f / sqrtf((float) (sum_sq / count) + eps);
    for (int64_t i2 = c0; i2 < c1; i2++) {
        for (int64_t i1 = 0; i1 < op->ne[1]; i1++) {
            float *y = (float *) (void *) cpu_row_at(op, i1, i2, i3);
            k->scale(n, y, y, scale, 0.0f);
        }
    }
}

static void group_norm_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const int64_t n_groups = param_i32(op, 0), n_channels = op->ne[2];
    const int64_t n_each = (n_channels + n_groups - 1) / n_groups; // the last group may have fewer
    const float eps = param_f32(op, 1);
    int64_t i0, i1;
    cpu_share(p, n_groups * op->ne[3], &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        const int64_t c0 = i % n_groups * n_each;
        const int64_t c1 = min_i64(c0 + n_each, n_channels);
        if (c0 < c1) {
            group_run(p->k, op, i / n_groups, c0, c1, eps);
        }
    }
}

const struct cpu_op_entry cpu_ops_norm[] = {
    {GGML_OP_NORM, {.supports = norm_supports,
                       .work_size = rows_work_size,
                       .run = norm_run,
                       .uses = CPU_USE_SUM | CPU_USE_SUM_SQ | CPU_USE_SCALE}},
    {GGML_OP_RMS_NORM,
        {.supports = norm_supports, .work_size = rows_work_size, .run = rms_norm_run, .uses = CPU_USE_SUM_SQ | CPU_USE_SCALE}},
    {GGML_OP_L2_NORM,
        {.supports = norm_supports, .work_size = rows_work_size, .run = l2_norm_run, .uses = CPU_USE_SUM_SQ | CPU_USE_SCALE}},
    {GGML_OP_GROUP_NORM,
        {.supports = group_supports, .run = group_norm_run, .uses = CPU_USE_SUM | CPU_USE_SUM_SQ | CPU_USE_SCALE}},
    CPU_OPS_END,
};

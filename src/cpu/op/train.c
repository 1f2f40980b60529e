// SPDX-License-Identifier: MIT
// train.c: the loss and its gradient, gradient ops (*_BACK), and optimiser steps. Gradient ops accept f32, f16 and bf16 with any
// strides and compute in f32. The loss, its gradient and the optimisers are f32 only.

#include "base/min.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>
#include <math.h>

static bool is_dense_f32(const struct ggml_tensor *t) {
    return t != NULL && t->type == GGML_TYPE_F32 && cpu_rows_are_dense(t);
}

static float *row_f32(const struct ggml_tensor *t, struct cpu_row_pos at) {
    return (float *) (void *) cpu_row(t, at);
}

// ---- the loss: -mean over rows of <labels, log softmax(logits)> ----

static bool loss_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return is_dense_f32(a) && is_dense_f32(b) && is_dense_f32(op) && ggml_are_same_shape(a, b) && ggml_is_scalar(op);
}

// Work memory holds one double per row, its share of the loss. One row of floats per task follows. Task 0 adds the doubles, so
// that the loss does not depend on the number of tasks. Returns the size of the doubles, in floats.
static int64_t loss_sums(const struct ggml_tensor *op) {
    return (int64_t) cpu_scratch_floats(2 * ggml_nrows(op->src[0]));
}

static size_t loss_work_size(const struct ggml_tensor *op, int n_tasks) {
    return (size_t) loss_sums(op) * sizeof(float) + cpu_scratch_size(op->src[0]->ne[0], n_tasks);
}

static void loss_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = a->ne[0];
    const int64_t n_rows = ggml_nrows(a);
    double *sums = p->work;
    float *buf = cpu_scratch(p, n) + loss_sums(op);
    int64_t i, end;
    for (cpu_share(p, n_rows, &i, &end); i < end; i++) {
        const float *x = row_f32(a, cpu_row_pos(a, i)), *label = row_f32(b, cpu_row_pos(b, i));
        const float max = p->k->max(n, x);
        const float log_sum = max + (float) log(p->k->exp_sum(n, buf, x, max));
        sums[i] = 0;
        for (int64_t j = 0; j < n; j++) {
            sums[i] += (double) (x[j] - log_sum) * label[j];
        }
    }
    cpu_barrier(p);
    if (p->ith == 0) {
        double sum = 0;
        for (int64_t r = 0; r < n_rows; r++) {
            sum += sums[r];
        }
        *(float *) op->data = (float) (-sum / (double) n_rows);
    }
}

// src: gradient of the loss, logits, labels. Result: (softmax(logits) - labels) * gradient / number of rows
static bool loss_back_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *d = op->src[0], *a = op->src[1], *b = op->src[2];
    return is_dense_f32(d) && is_dense_f32(a) && is_dense_f32(b) && is_dense_f32(op) && ggml_is_scalar(d) &&
           ggml_are_same_shape(a, b) && ggml_are_same_shape(a, op);
}

static void loss_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[1], *b = op->src[2];
    const int64_t n = op->ne[0];
    const float d = *(const float *) op->src[0]->data / (float) ggml_nrows(op);
    int64_t i, end;
    for (cpu_share(p, ggml_nrows(op), &i, &end); i < end; i++) {
        const struct cpu_row_pos at = cpu_row_pos(op, i);
        const float *x = row_f32(a, at), *label = row_f32(b, at);
        float *y = row_f32(op, at);
        const double sum = p->k->exp_sum(n, y, x, p->k->max(n, x));
        p->k->scale(n, y, y, (float) (1.0 / sum), 0.0f);
        p->k->sub(n, y, y, label);
        p->k->scale(n, y, y, d, 0.0f);
    }
}

// ---- gradients of single ops; src[0] is the incoming gradient ----

static bool back_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && cpu_is_float(a->type) && cpu_is_float(b->type) && cpu_is_float(op->type) &&
           ggml_are_same_shape(a, b) && ggml_are_same_shape(a, op);
}

static void silu_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    float buf_d[CPU_PIECE], buf_x[CPU_PIECE], buf_y[CPU_PIECE], s[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *row = cpu_row(op, it.at);
        const float *d = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_d);
        const float *x = cpu_row_load(p->k, b, cpu_row(b, it.at), it.i0, it.n, buf_x);
        float *y = cpu_row_target(op, row, it.i0, buf_y);
        p->k->sigmoid(it.n, s, x);
        for (int64_t i = 0; i < it.n; i++) {
            y[i] = d[i] * s[i] * (1.0f + x[i] * (1.0f - s[i]));
        }
        cpu_row_store(p->k, op, row, it.i0, it.n, y);
    }
}

// Computes a row y from the gradient d and the other source x.
typedef void (*row_back_t)(const struct cpu_kernels *k, const struct ggml_tensor *op, float *y, const float *d, const float *x);

static int64_t row_back_scratch(const struct ggml_tensor *op) {
    return 3 * op->ne[0];
}

static size_t row_back_work_size(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(row_back_scratch(op), n_tasks);
}

static void row_back_run(const struct cpu_params *p, struct ggml_tensor *op, row_back_t back) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = op->ne[0];
    float *buf_d = cpu_scratch(p, row_back_scratch(op)), *buf_x = buf_d + n, *buf_y = buf_x + n;
    int64_t i, end;
    for (cpu_share(p, ggml_nrows(op), &i, &end); i < end; i++) {
        const struct cpu_row_pos at = cpu_row_pos(op, i);
        char *row = cpu_row(op, at);
        const float *d = cpu_row_load(p->k, a, cpu_row(a, at), 0, n, buf_d);
        const float *x = cpu_row_load(p->k, b, cpu_row(b, at), 0, n, buf_x);
        float *y = cpu_row_target(op, row, 0, buf_y);
        back(p->k, op, y, d, x);
        cpu_row_store(p->k, op, row, 0, n, y);
    }
}

static double row_dot(int64_t n, const float *x, const float *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double) x[i] * y[i];
    }
    return sum;
}

// Removes the component of d in the direction of x and divides by rms(x).
static void rms_norm_back(const struct cpu_kernels *k, const struct ggml_tensor *op, float *y, const float *d, const float *x) {
    const int64_t n = op->ne[0];
    const float eps = param_f32(op, 0);
    const double xx = k->sum_sq(n, x), xd = row_dot(n, x, d);
    const float along = (float) (-xd / (xx + (double) eps * (double) n));
    const float scale = 1.0f / sqrtf((float) (xx / (double) n) + eps);
    for (int64_t i = 0; i < n; i++) {
        y[i] = (d[i] + x[i] * along) * scale;
    }
}

// x is the result of the softmax.
static void soft_max_back(const struct cpu_kernels *k, const struct ggml_tensor *op, float *y, const float *d, const float *x) {
    (void) k;
    const int64_t n = op->ne[0];
    const float scale = param_f32(op, 0);
    const float xd = (float) row_dot(n, x, d);
    for (int64_t i = 0; i < n; i++) {
        y[i] = (d[i] - xd) * x[i] * scale;
    }
}

static void rms_norm_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    row_back_run(p, op, rms_norm_back);
}

static void soft_max_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    row_back_run(p, op, soft_max_back);
}

// A softmax with max_bias is not supported.
static bool soft_max_back_supports(const struct ggml_tensor *op) {
    return back_supports(op) && param_f32(op, 1) == 0.0f;
}

// ---- gradients of GET_ROWS and REPEAT ----

static bool get_rows_back_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *ids = op->src[1];
    return a != NULL && ids != NULL && cpu_is_float(a->type) && ids->type == GGML_TYPE_I32 && is_dense_f32(op) &&
           a->ne[0] == op->ne[0];
}

// Each task computes a range of columns of all rows, so no two tasks write the same element.
static void get_rows_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *ids = op->src[1];
    const int64_t n_ids = ggml_nelements(ids), n_have = ggml_nrows(a);
    if (n_ids > n_have) {
        cpu_fail(p, "%s: %" PRId64 " row indices, but only %" PRId64 " rows", op->name, n_ids, n_have);
        return;
    }
    int64_t i0, i1;
    cpu_share(p, op->ne[0], &i0, &i1);
    for (int64_t r = 0; r < ggml_nrows(op); r++) {
        p->k->fill(i1 - i0, row_f32(op, cpu_row_pos(op, r)) + i0, 0.0f);
    }
    float buf[CPU_PIECE];
    for (int64_t i = 0; i < n_ids; i++) {
        int32_t id;
        memcpy(&id, cpu_row(ids, cpu_row_pos(ids, i / ids->ne[0])) + (size_t) (i % ids->ne[0]) * ids->nb[0], sizeof id);
        if (id < 0 || id >= op->ne[1]) {
            cpu_fail(p, "%s: row index %d is out of range: there are %" PRId64 " rows", op->name, id, op->ne[1]);
            return;
        }
        const char *row = cpu_row(a, cpu_row_pos(a, i));
        float *y = (float *) (void *) cpu_row_at(op, id, 0, 0);
        for (int64_t j = i0; j < i1; j += CPU_PIECE) {
            const int64_t n = min_i64(i1 - j, CPU_PIECE);
            p->k->add(n, y + j, y + j, cpu_row_load(p->k, a, row, j, n, buf));
        }
    }
}

static bool repeat_back_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && is_dense_f32(op) && ggml_can_repeat(op, a);
}

static void repeat_back_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    float buf[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        float *y = row_f32(op, it.at) + it.i0;
        p->k->fill(it.n, y, 0.0f);
        if (ggml_is_empty(a)) { // other extents of an empty tensor may be huge
            continue;
        }
        for (int64_t i3 = it.at.i3; i3 < a->ne[3]; i3 += op->ne[3]) {
            for (int64_t i2 = it.at.i2; i2 < a->ne[2]; i2 += op->ne[2]) {
                for (int64_t i1 = it.at.i1; i1 < a->ne[1]; i1 += op->ne[1]) {
                    const char *row = cpu_row_at(a, i1, i2, i3);
                    for (int64_t i0 = it.i0; i0 < a->ne[0]; i0 += op->ne[0]) {
                        p->k->add(it.n, y, y, cpu_row_load(p->k, a, row, i0, it.n, buf));
                    }
                }
            }
        }
    }
}

// ---- optimisers: the result is a view of src[0], which is updated in place ----

static bool step_supports(const struct ggml_tensor *op, int n_moments, int64_t n_numbers) {
    for (int i = 0; i < 2 + n_moments; i++) {
        const struct ggml_tensor *t = op->src[i];
        if (t == NULL || t->type != GGML_TYPE_F32 || !ggml_are_same_shape(t, op)) {
            return false;
        }
    }
    const struct ggml_tensor *numbers = op->src[2 + n_moments];
    return op->type == GGML_TYPE_F32 && numbers != NULL && numbers->type == GGML_TYPE_F32 && numbers->ne[0] == n_numbers &&
           ggml_nrows(numbers) == 1;
}

// Returns a piece of a source: in the source if it is dense f32, otherwise a copy in buf. piece_done writes the copy back.
static float *piece_of(const struct cpu_params *p, const struct ggml_tensor *t, const struct cpu_pieces *it, float *buf) {
    if (cpu_is_f32_dense(t)) {
        return row_f32(t, it->at) + it->i0;
    }
    cpu_row_widen(p->k, t, cpu_row(t, it->at), it->i0, it->n, buf);
    return buf;
}

static void piece_done(const struct cpu_params *p, const struct ggml_tensor *t, const struct cpu_pieces *it, const float *x) {
    cpu_row_store(p->k, t, cpu_row(t, it->at), it->i0, it->n, x);
}

static bool adamw_supports(const struct ggml_tensor *op) {
    return step_supports(op, 2, 7);
}

// The tensors do not overlap, so that the compiler can vectorise the loop.
static void adamw_piece(
    int64_t n, float *restrict w, const float *restrict g, float *restrict m, float *restrict v, const float numbers[7]) {
    const float alpha = numbers[0], beta1 = numbers[1], beta2 = numbers[2], eps = numbers[3], decay = numbers[4];
    const float beta1h = numbers[5], beta2h = numbers[6], keep = 1.0f - alpha * decay;
    for (int64_t i = 0; i < n; i++) {
        m[i] = m[i] * beta1 + g[i] * (1.0f - beta1);
        v[i] = v[i] * beta2 + g[i] * g[i] * (1.0f - beta2);
        w[i] = w[i] * keep - alpha * (m[i] * beta1h) / (sqrtf(v[i] * beta2h) + eps);
    }
}

// arXiv 1711.05101. beta1h and beta2h correct the bias of the means in the first steps.
static void adamw_run(const struct cpu_params *p, struct ggml_tensor *op) {
    float numbers[7];
    for (int i = 0; i < 7; i++) {
        numbers[i] = cpu_f32_at(op->src[4], i);
    }
    float buf[4][CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        float *w = piece_of(p, op->src[0], &it, buf[0]);
        const float *g = piece_of(p, op->src[1], &it, buf[1]);
        float *m = piece_of(p, op->src[2], &it, buf[2]);
        float *v = piece_of(p, op->src[3], &it, buf[3]);
        adamw_piece(it.n, w, g, m, v, numbers);
        piece_done(p, op->src[0], &it, w);
        piece_done(p, op->src[2], &it, m);
        piece_done(p, op->src[3], &it, v);
    }
}

static bool sgd_supports(const struct ggml_tensor *op) {
    return step_supports(op, 0, 2);
}

static void sgd_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const float alpha = cpu_f32_at(op->src[2], 0), keep = 1.0f - alpha * cpu_f32_at(op->src[2], 1);
    float buf[2][CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        float *w = piece_of(p, op->src[0], &it, buf[0]);
        const float *g = piece_of(p, op->src[1], &it, buf[1]);
        for (int64_t i = 0; i < it.n; i++) {
            w[i] = w[i] * keep - alpha * g[i];
        }
        piece_done(p, op->src[0], &it, w);
    }
}

const struct cpu_op_entry cpu_ops_train[] = {
    {GGML_OP_CROSS_ENTROPY_LOSS,
        {.supports = loss_supports, .work_size = loss_work_size, .run = loss_run, .uses = CPU_USE_MAX | CPU_USE_EXP_SUM}},
    {GGML_OP_CROSS_ENTROPY_LOSS_BACK, {.supports = loss_back_supports,
                                          .run = loss_back_run,
                                          .uses = CPU_USE_MAX | CPU_USE_EXP_SUM | CPU_USE_SCALE | CPU_USE_SUB}},
    {GGML_OP_SILU_BACK, {.supports = back_supports, .run = silu_back_run, .uses = CPU_USE_SIGMOID | CPU_USE_CONVERT}},
    {GGML_OP_RMS_NORM_BACK, {.supports = back_supports,
                                .work_size = row_back_work_size,
                                .run = rms_norm_back_run,
                                .uses = CPU_USE_SUM_SQ | CPU_USE_CONVERT}},
    {GGML_OP_SOFT_MAX_BACK,
        {.supports = soft_max_back_supports, .work_size = row_back_work_size, .run = soft_max_back_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_GET_ROWS_BACK, {.supports = get_rows_back_supports,
                                .run = get_rows_back_run,
                                .uses = CPU_USE_ADD | CPU_USE_CONVERT,
                                .empty_srcs = 1 << 0 | 1 << 1 | 1 << 2}},
    {GGML_OP_REPEAT_BACK,
        {.supports = repeat_back_supports, .run = repeat_back_run, .uses = CPU_USE_ADD | CPU_USE_CONVERT, .empty_srcs = 1 << 0}},
    {GGML_OP_OPT_STEP_ADAMW, {.supports = adamw_supports, .run = adamw_run}},
    {GGML_OP_OPT_STEP_SGD, {.supports = sgd_supports, .run = sgd_run}},
    CPU_OPS_END,
};

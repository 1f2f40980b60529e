// SPDX-License-Identifier: MIT
// reduce.c: SUM, SUM_ROWS, MEAN, CUMSUM, ARGMAX, COUNT_EQUAL. SUM, SUM_ROWS and MEAN add in f64 and round once. CUMSUM adds in
// f32. Partial sums of SUM cover SUM_BLOCK pieces. So the result does not depend on the number of tasks.

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <math.h>

static bool same_rows(const struct ggml_tensor *a, const struct ggml_tensor *op) {
    return a->ne[1] == op->ne[1] && a->ne[2] == op->ne[2] && a->ne[3] == op->ne[3];
}

// ---- one number per tensor ----

#define PART_SIZE 64 // bytes between partial results: one cache line

static size_t parts_size(const struct ggml_tensor *op, int n_tasks) {
    (void) op;
    return PART_SIZE * (size_t) n_tasks;
}

static bool sum_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == a->type && ggml_nelements(op) == 1;
}

#define SUM_BLOCK 64 // pieces (rowio.h) per partial sum

// If one extent is 0, the product of the others may overflow.
static int64_t sum_pieces(const struct ggml_tensor *a) {
    return cpu_is_empty(a) ? 0 : cpu_pieces_per_row(a) * ggml_nrows(a);
}

static size_t sum_work(const struct ggml_tensor *op, int n_tasks) {
    (void) n_tasks;
    return (size_t) (sum_pieces(op->src[0]) / SUM_BLOCK + 1) * sizeof(double);
}

static void sum_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n_pieces = sum_pieces(a), n_blocks = (n_pieces + SUM_BLOCK - 1) / SUM_BLOCK;
    double *parts = p->work;
    float buf[CPU_PIECE];
    int64_t b0, b1;
    cpu_share(p, n_blocks, &b0, &b1);
    for (int64_t b = b0; b < b1; b++) {
        const int64_t first = b * SUM_BLOCK, end = min_i64(first + SUM_BLOCK, n_pieces);
        double sum = 0;
        for (struct cpu_pieces it = cpu_pieces_of(a, first, end); cpu_piece_next(&it);) {
            sum += p->k->sum(it.n, cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf));
        }
        parts[b] = sum;
    }
    cpu_barrier(p);
    if (p->ith != 0) {
        return;
    }
    double sum = 0;
    for (int64_t b = 0; b < n_blocks; b++) {
        sum += parts[b];
    }
    const float total = (float) sum;
    p->k->traits[op->type].from_float(&total, op->data, 1);
}

static bool count_equal_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && a->type == GGML_TYPE_I32 && b->type == GGML_TYPE_I32 && op->type == GGML_TYPE_I64 &&
           ggml_are_same_shape(a, b) && ggml_nelements(op) == 1;
}

static int64_t row_count_equal(int64_t n, const char *x, size_t x_step, const char *y, size_t y_step) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t v, w;
        memcpy(&v, x + (size_t) i * x_step, sizeof v);
        memcpy(&w, y + (size_t) i * y_step, sizeof w);
        count += v == w;
    }
    return count;
}

static void count_equal_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    int64_t r0, r1, count = 0;
    cpu_share(p, cpu_is_empty(a) ? 0 : ggml_nrows(a), &r0, &r1); // an empty tensor may have many rows
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(a, ir);
        count += row_count_equal(a->ne[0], cpu_row(a, at), a->nb[0], cpu_row(b, at), b->nb[0]);
    }
    char *parts = p->work;
    memcpy(parts + PART_SIZE * (size_t) p->ith, &count, sizeof count);
    cpu_barrier(p);
    if (p->ith != 0) {
        return;
    }
    count = 0;
    for (int i = 0; i < p->nth; i++) {
        int64_t part;
        memcpy(&part, parts + PART_SIZE * (size_t) i, sizeof part);
        count += part;
    }
    memcpy(op->data, &count, sizeof count);
}

// ---- one number per row ----

static bool sum_rows_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == a->type && op->ne[0] == 1 && same_rows(a, op);
}

static bool mean_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == GGML_TYPE_F32 && op->ne[0] == 1 && same_rows(a, op);
}

static double row_sum(const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row) {
    float buf[CPU_PIECE];
    double sum = 0;
    for (int64_t i = 0; i < t->ne[0]; i += CPU_PIECE) {
        const int64_t n = min_i64(t->ne[0] - i, CPU_PIECE);
        sum += k->sum(n, cpu_row_load(k, t, row, i, n, buf));
    }
    return sum;
}

static void by_row_run(const struct cpu_params *p, struct ggml_tensor *op, bool mean) {
    const struct ggml_tensor *a = op->src[0];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        float sum = (float) row_sum(p->k, a, cpu_row(a, at));
        if (mean) {
            sum /= (float) a->ne[0];
        }
        p->k->traits[op->type].from_float(&sum, cpu_row(op, at), 1);
    }
}

static void sum_rows_run(const struct cpu_params *p, struct ggml_tensor *op) {
    by_row_run(p, op, false);
}
static void mean_run(const struct cpu_params *p, struct ggml_tensor *op) {
    by_row_run(p, op, true);
}

static bool argmax_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == GGML_TYPE_I32 && a->ne[1] == op->ne[0] && ggml_is_matrix(a) &&
           ggml_is_vector(op);
}

// If maxima are equal, returns the last. After a NaN, the search restarts, as in the reference.
static int32_t row_argmax(const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row) {
    float buf[CPU_PIECE];
    float max = -INFINITY;
    int64_t at = 0;
    for (int64_t i0 = 0; i0 < t->ne[0]; i0 += CPU_PIECE) {
        const int64_t n = min_i64(t->ne[0] - i0, CPU_PIECE);
        const float *x = cpu_row_load(k, t, row, i0, n, buf);
        for (int64_t i = 0; i < n; i++) {
            max = max_f32(max, x[i]);
            if (max == x[i]) {
                at = i0 + i;
            }
        }
    }
    return (int32_t) at;
}

static void argmax_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    int64_t r0, r1;
    cpu_share(p, a->ne[1], &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const int32_t at = row_argmax(p->k, a, cpu_row_at(a, ir, 0, 0));
        memcpy((char *) op->data + (size_t) ir * op->nb[0], &at, sizeof at);
    }
}

// ---- cumulative sums ----

static bool cumsum_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op);
}

static void cumsum_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    float buf_x[CPU_PIECE], buf_y[CPU_PIECE];
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        float sum = 0.0f;
        for (int64_t i0 = 0; i0 < op->ne[0]; i0 += CPU_PIECE) {
            const int64_t n = min_i64(op->ne[0] - i0, CPU_PIECE);
            const float *x = cpu_row_load(p->k, a, cpu_row(a, at), i0, n, buf_x);
            float *y = cpu_row_target(op, cpu_row(op, at), i0, buf_y);
            for (int64_t i = 0; i < n; i++) {
                sum += x[i];
                y[i] = sum;
            }
            cpu_row_store(p->k, op, cpu_row(op, at), i0, n, y);
        }
    }
}

const struct cpu_op_entry cpu_ops_reduce[] = {
    {GGML_OP_SUM, {.supports = sum_supports,
                      .work_size = sum_work,
                      .run = sum_run,
                      .uses = CPU_USE_SUM | CPU_USE_CONVERT,
                      .empty_srcs = 1 << 0}},
    {GGML_OP_SUM_ROWS,
        {.supports = sum_rows_supports, .run = sum_rows_run, .uses = CPU_USE_SUM | CPU_USE_CONVERT, .empty_srcs = 1 << 0}},
    {GGML_OP_MEAN, {.supports = mean_supports, .run = mean_run, .uses = CPU_USE_SUM | CPU_USE_CONVERT, .empty_srcs = 1 << 0}},
    {GGML_OP_CUMSUM, {.supports = cumsum_supports, .run = cumsum_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_ARGMAX, {.supports = argmax_supports, .run = argmax_run, .uses = CPU_USE_CONVERT, .empty_srcs = 1 << 0}},
    {GGML_OP_COUNT_EQUAL,
        {.supports = count_equal_supports, .work_size = parts_size, .run = count_equal_run, .empty_srcs = 1 << 0 | 1 << 1}},
    CPU_OPS_END,
};

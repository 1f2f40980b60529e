// SPDX-License-Identifier: MIT
// outprod.c: OUT_PROD: result[i, j] = sum over k of a[i, k] b[j, k]. With dimensions 0 and 1 of both sources swapped, OUT_PROD is
// a MUL_MAT. So OUT_PROD uses panels (gemm.c), which can be filled from transposed f32. Other types of a are converted to f32
// first. With few columns or without panels, a row of the result is a weighted sum of rows of a.

#include "base/min.h"
#include "cpu/op/gemm.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#define TASK_FLOPS 131072
#define OUT_ROWS 8 // rows that share a converted piece of a

static bool outprod_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || b->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || op->nb[0] != sizeof(float)) {
        return false;
    }
    const bool fits = a->ne[1] == b->ne[1] && a->ne[2] > 0 && a->ne[3] > 0 && b->ne[2] % a->ne[2] == 0 &&
                      b->ne[3] % a->ne[3] == 0 && op->ne[0] == a->ne[0] && op->ne[1] == b->ne[0] && op->ne[2] == b->ne[2] &&
                      op->ne[3] == b->ne[3];
    return fits && cpu_kernels_portable.to_float[a->type] != NULL &&
           (cpu_is_float(a->type) || a->nb[0] == ggml_type_size(a->type));
}

static int n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double n = (double) ggml_nelements(op) * (double) op->src[0]->ne[1] / TASK_FLOPS;
    return cpu_tasks_for(n, n_threads);
}

// ---- through panels ----

// Returns t with dimensions 0 and 1 swapped.
static struct ggml_tensor rows_as_columns(const struct ggml_tensor *t) {
    struct ggml_tensor r = *t;
    r.ne[0] = t->ne[1];
    r.ne[1] = t->ne[0];
    r.nb[0] = t->nb[1];
    r.nb[1] = t->nb[0];
    return r;
}

static bool has_dense_dim(const struct ggml_tensor *t) {
    return t->nb[0] == sizeof(float) || t->nb[1] == sizeof(float);
}

static bool panels_take(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    return cpu_gemm_takes_transposed(k, op) && !cpu_is_empty(op->src[0]) && has_dense_dim(op->src[1]);
}

// Bytes of a converted to f32; 0: a is read directly.
static size_t widened_size(const struct ggml_tensor *a) {
    const bool is_ready = a->type == GGML_TYPE_F32 && has_dense_dim(a);
    return is_ready ? 0 : cpu_gemm_lines((size_t) ggml_nelements(a) * sizeof(float));
}

// The invariant kernels use panels for any number of columns, so their size suffices for the best kernels.
static size_t work_size(const struct ggml_tensor *op, int tasks) {
    if (!panels_take(&cpu_kernels_invariant, op)) {
        return 0;
    }
    const struct ggml_tensor b = rows_as_columns(op->src[1]);
    return widened_size(op->src[0]) + cpu_gemm_work_size(&cpu_kernels_invariant, GGML_TYPE_F32, &b, tasks);
}

static struct ggml_tensor matrix_widen(const struct cpu_params *p, const struct ggml_tensor *a) {
    struct ggml_tensor w = *a;
    w.type = GGML_TYPE_F32;
    w.data = p->work;
    w.nb[0] = sizeof(float);
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        w.nb[i] = w.nb[i - 1] * (size_t) w.ne[i - 1];
    }
    float buf[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, a); cpu_piece_next(&it);) {
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf);
        memcpy(cpu_row(&w, it.at) + (size_t) it.i0 * sizeof(float), x, (size_t) it.n * sizeof(float));
    }
    cpu_barrier(p);
    return w;
}

static void run_panels(const struct cpu_params *p, struct ggml_tensor *op) {
    const size_t copy_size = widened_size(op->src[0]);
    const struct ggml_tensor wide_a = copy_size > 0 ? matrix_widen(p, op->src[0]) : *op->src[0];
    const struct ggml_tensor a = rows_as_columns(&wide_a), b = rows_as_columns(op->src[1]);
    cpu_gemm_run(p, &(struct cpu_gemm_call){.op = op, .a = &a, .b = &b, .work = (char *) p->work + copy_size});
}

// ---- row by row ----

static void run_rows(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n_pieces = (op->ne[0] + CPU_PIECE - 1) / CPU_PIECE, n_blocks = (op->ne[1] + OUT_ROWS - 1) / OUT_ROWS;
    float buf[CPU_PIECE];
    int64_t i, end;
    for (cpu_share(p, n_pieces * n_blocks * op->ne[2] * op->ne[3], &i, &end); i < end; i++) {
        const int64_t i0 = i % n_pieces * CPU_PIECE, j0 = i / n_pieces % n_blocks * OUT_ROWS;
        const int64_t i2 = i / (n_pieces * n_blocks) % op->ne[2], i3 = i / (n_pieces * n_blocks * op->ne[2]);
        const int64_t n = min_i64(op->ne[0] - i0, CPU_PIECE);
        const int64_t j1 = min_i64(op->ne[1], j0 + OUT_ROWS);
        for (int64_t j = j0; j < j1; j++) {
            p->k->fill(n, (float *) (void *) cpu_row_at(op, j, i2, i3) + i0, 0.0f);
        }
        for (int64_t c = 0; c < a->ne[1]; c++) {
            const char *row = cpu_row_at(a, c, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
            const float *x = cpu_row_load(p->k, a, row, i0, n, buf);
            const char *weights = cpu_row_at(b, c, i2, i3);
            for (int64_t j = j0; j < j1; j++) {
                p->k->mad(n, (float *) (void *) cpu_row_at(op, j, i2, i3) + i0, x,
                    *(const float *) (const void *) (weights + (size_t) j * b->nb[0]));
            }
        }
    }
}

static void outprod_run(const struct cpu_params *p, struct ggml_tensor *op) {
    if (panels_take(p->k, op)) {
        run_panels(p, op);
    } else {
        run_rows(p, op);
    }
}

const struct cpu_op_entry cpu_ops_outprod[] = {
    {GGML_OP_OUT_PROD, {.supports = outprod_supports,
                           .n_tasks = n_tasks,
                           .work_size = work_size,
                           .run = outprod_run,
                           .uses = CPU_USE_MAD | CPU_USE_DOT_F32 | CPU_USE_CONVERT,
                           .empty_srcs = 1 << 0 | 1 << 1}}, // sums over no k are 0
    CPU_OPS_END,
};

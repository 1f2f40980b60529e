// SPDX-License-Identifier: MIT
// matmul.c: MUL_MAT. A column is a row of src[1]. Many columns use gemm.c, few columns gemv.c, if the machine has the kernels.
// Otherwise, the rows of src[1] are converted to the vec_dot_type of src[0]'s type, and tasks take tiles until none are left. So
// a slow thread does not delay the others. In a tile, TILE_ROWS rows of src[0] stay in the cache.

#include "base/min.h"
#include "cpu/op/dots.h"
#include "cpu/op/gemm.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#define TILE_ROWS 32 // rows of src[0]
#define TILE_COLS 16 // rows of src[1]

static bool matmul_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || op->type != GGML_TYPE_F32 || op->nb[0] != sizeof(float)) {
        return false;
    }
    const bool fits = a->ne[0] == b->ne[0] && a->ne[2] > 0 && a->ne[3] > 0 && b->ne[2] % a->ne[2] == 0 &&
                      b->ne[3] % a->ne[3] == 0 && op->ne[0] == a->ne[1] && op->ne[1] == b->ne[1] && op->ne[2] == b->ne[2] &&
                      op->ne[3] == b->ne[3];
    return fits && cpu_dot_supports(op);
}

static size_t row_size(const struct ggml_tensor *op) {
    return ggml_row_size(cpu_dot_type(op), op->src[1]->ne[0]);
}

// The bytes of the method that a table selects, 0 for tiles.
static size_t work_size_by(const struct cpu_kernels *k, const struct ggml_tensor *op, int tasks) {
    if (cpu_gemm_takes(k, op)) {
        return cpu_gemm_work_size(k, op->src[0]->type, op->src[1], tasks);
    }
    return cpu_gemv_takes(k, op) ? cpu_gemv_work_size(op) : 0;
}

// Suffices for all tables of kernels. The portable kernels use tiles.
static size_t work_size(const struct ggml_tensor *op, int tasks) {
    const size_t rows = cpu_dot_is_ready(op) ? 0 : row_size(op) * (size_t) ggml_nrows(op->src[1]);
    const size_t best = work_size_by(&cpu_kernels_best, op, tasks), invariant = work_size_by(&cpu_kernels_invariant, op, tasks);
    return max_size(rows, max_size(best, invariant));
}

// Work memory for at most n_cols columns.
static size_t work_of(const struct ggml_tensor *op, int tasks, int64_t n_cols) {
    struct ggml_tensor few = *op->src[1], product = *op;
    few.ne[1] = min_i64(n_cols, few.ne[1]);
    product.src[1] = &few;
    return work_size(&product, tasks);
}

// An op with fewer columns may use another method. The bound covers all methods.
static size_t work_bound(const struct ggml_tensor *op, int tasks) {
    const enum ggml_type type = op->src[0]->type;
    const int64_t cols_without_gemm = cpu_kernels_best.gemm[type].min_cols - 1,
                  cols_of_gemv = cpu_kernels_best.gemv[type].max_cols;
    size_t max = work_size(op, tasks);
    if (cols_without_gemm > 0) {
        max = max_size(max, work_of(op, tasks, cols_without_gemm));
    }
    if (cols_of_gemv > 0) {
        max = max_size(max, work_of(op, tasks, cols_of_gemv));
    }
    return max;
}

// ---- the rows of src[1] ----

static void convert_rows(const struct cpu_params *p, const struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    const size_t size = row_size(op);
    const enum ggml_type type = cpu_dot_type(op);
    const size_t piece_size = ggml_row_size(type, CPU_PIECE);
    float buf[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, b); cpu_piece_next(&it);) {
        const int64_t ir = (it.at.i3 * b->ne[2] + it.at.i2) * b->ne[1] + it.at.i1;
        char *to = (char *) p->work + (size_t) ir * size + (size_t) (it.i0 / CPU_PIECE) * piece_size;
        const float *x = cpu_row_load(p->k, b, cpu_row(b, it.at), it.i0, it.n, buf);
        p->k->traits[type].from_float(x, to, it.n);
    }
}

// One batch of src[1], in the vec_dot_type of src[0]'s type.
struct cols {
    const char *data;
    size_t step; // bytes between rows
};

static struct cols batch_cols(const struct cpu_params *p, const struct ggml_tensor *op, int64_t i2, int64_t i3) {
    const struct ggml_tensor *b = op->src[1];
    if (cpu_dot_is_ready(op)) {
        return (struct cols){.data = cpu_row_at(b, 0, i2, i3), .step = b->nb[1]};
    }
    const size_t size = row_size(op);
    return (struct cols){.data = (const char *) p->work + (size_t) ((i3 * b->ne[2] + i2) * b->ne[1]) * size, .step = size};
}

// ---- a tile ----

struct tile {
    int64_t r0, r1; // rows of src[0]
    int64_t c0, c1; // rows of src[1]
    int64_t i2, i3; // batch
};

static void tile_run(const struct cpu_params *p, struct ggml_tensor *op, const struct tile *t) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = a->ne[0];
    const struct cols cols = batch_cols(p, op, t->i2, t->i3);
    const char *rows = cpu_row_at(a, 0, t->i2 / (b->ne[2] / a->ne[2]), t->i3 / (b->ne[3] / a->ne[3]));
    const struct cpu_tile *ukr = &p->k->tile[a->type];
    if (ukr->run != NULL && op->nb[1] % sizeof(float) == 0) {
        for (int64_t c = t->c0; c < t->c1; c += ukr->nr) {
            const int nc = t->c1 - c < ukr->nr ? (int) (t->c1 - c) : ukr->nr;
            for (int64_t r = t->r0; r < t->r1; r += ukr->mr) {
                const int nr = t->r1 - r < ukr->mr ? (int) (t->r1 - r) : ukr->mr;
                float *to = (float *) (void *) cpu_row_at(op, c, t->i2, t->i3) + r;
                ukr->run(n, to, (int64_t) (op->nb[1] / sizeof(float)), rows + (size_t) r * a->nb[1], a->nb[1], nr,
                    cols.data + (size_t) c * cols.step, cols.step, nc);
            }
        }
        return;
    }
    const ggml_vec_dot_t dot = p->k->traits[a->type].vec_dot;
    for (int64_t c = t->c0; c < t->c1; c++) {
        float *to = (float *) (void *) cpu_row_at(op, c, t->i2, t->i3);
        for (int64_t r = t->r0; r < t->r1; r++) {
            dot(cpu_dot_length(n), to + r, 0, rows + (size_t) r * a->nb[1], 0, cols.data + (size_t) c * cols.step, 0, 1);
        }
    }
}

static void matmul_run(const struct cpu_params *p, struct ggml_tensor *op) {
    if (cpu_gemm_takes(p->k, op)) {
        cpu_gemm_run(p, &(struct cpu_gemm_call){.op = op, .a = op->src[0], .b = op->src[1], .work = p->work});
        return;
    }
    if (cpu_gemv_takes(p->k, op)) {
        cpu_gemv_run(p, op);
        return;
    }
    if (!cpu_dot_is_ready(op)) {
        convert_rows(p, op);
        cpu_barrier(p);
    }
    // If there are fewer than 4 tiles per task, tiles get fewer rows.
    const int64_t ne0 = op->ne[0], ne1 = op->ne[1];
    const int64_t n_cols = (ne1 + TILE_COLS - 1) / TILE_COLS;
    int64_t tile_rows = TILE_ROWS;
    while (tile_rows > 4 && n_cols * op->ne[2] * op->ne[3] * ((ne0 + tile_rows - 1) / tile_rows) < 4 * p->nth) {
        tile_rows /= 2;
    }
    const int64_t n_rows = (ne0 + tile_rows - 1) / tile_rows;
    const int64_t n = n_rows * n_cols * op->ne[2] * op->ne[3];
    for (int64_t i = cpu_chunk_next(p); i < n; i = cpu_chunk_next(p)) {
        const int64_t ir = i % n_rows, ic = i / n_rows % n_cols, batch = i / (n_rows * n_cols);
        const struct tile t = {
            .r0 = ir * tile_rows,
            .r1 = min_i64(ne0, (ir + 1) * tile_rows),
            .c0 = ic * TILE_COLS,
            .c1 = min_i64(ne1, (ic + 1) * TILE_COLS),
            .i2 = batch % op->ne[2],
            .i3 = batch / op->ne[2],
        };
        tile_run(p, op, &t);
    }
}

const struct cpu_op_entry cpu_ops_matmul[] = {
    {GGML_OP_MUL_MAT, {.supports = matmul_supports,
                          .n_tasks = cpu_dot_tasks,
                          .work_size = work_size,
                          .work_bound = work_bound,
                          .run = matmul_run,
                          .uses = CPU_USE_DOT}},
    CPU_OPS_END,
};

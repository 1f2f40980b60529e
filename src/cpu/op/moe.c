// SPDX-License-Identifier: MIT
// moe.c: ADD_ID, which adds each row the bias of its expert, and OUT_PROD.

#include "cpu/op/experts.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>

#define TASK_FLOPS 131072

// ---- ADD_ID: a row of src[1], named by ids, to each row of src[0] ----

static bool add_id_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    return a != NULL && b != NULL && ids != NULL && cpu_is_float(a->type) && cpu_is_float(b->type) && cpu_is_float(op->type) &&
           ids->type == GGML_TYPE_I32 && ggml_are_same_shape(a, op) && a->ne[0] == b->ne[0] && a->ne[1] == ids->ne[0] &&
           a->ne[2] == ids->ne[1] && ggml_nelements(b) > 0;
}

static void add_id_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    float buf_a[CPU_PIECE], buf_b[CPU_PIECE], buf_z[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        const int32_t id = cpu_expert_of(ids, it.at.i1, it.at.i2);
        if (id < 0 || id >= b->ne[1]) {
            cpu_fail(p, "%s: row %d is wanted, there are %" PRId64, op->name, id, b->ne[1]);
            return;
        }
        char *row      = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_a);
        const float *y = cpu_row_load(p->k, b, cpu_row_at(b, id, 0, 0), it.i0, it.n, buf_b);
        float *z       = cpu_row_target(op, row, it.i0, buf_z);
        p->k->add(it.n, z, x, y);
        cpu_row_store(p->k, op, row, it.i0, it.n, z);
    }
}

// ---- OUT_PROD: result[i, j] = sum over k of a[i, k] b[j, k]: rows of a, weighted, make rows of the result ----

#define OUT_ROWS 8 // rows of the result that one widened piece of a goes into

static bool out_supports(const struct ggml_tensor *op) {
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

static int out_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double n = (double) ggml_nelements(op) * (double) op->src[0]->ne[1] / TASK_FLOPS;
    return n < 1 ? 1 : n < n_threads ? (int) n : n_threads;
}

static void out_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n_pieces = (op->ne[0] + CPU_PIECE - 1) / CPU_PIECE, n_blocks = (op->ne[1] + OUT_ROWS - 1) / OUT_ROWS;
    float buf[CPU_PIECE];
    int64_t i, end;
    for (cpu_share(p, n_pieces * n_blocks * op->ne[2] * op->ne[3], &i, &end); i < end; i++) {
        const int64_t i0 = i % n_pieces * CPU_PIECE, j0 = i / n_pieces % n_blocks * OUT_ROWS;
        const int64_t i2 = i / (n_pieces * n_blocks) % op->ne[2], i3 = i / (n_pieces * n_blocks * op->ne[2]);
        const int64_t n  = op->ne[0] - i0 < CPU_PIECE ? op->ne[0] - i0 : CPU_PIECE;
        const int64_t j1 = op->ne[1] < j0 + OUT_ROWS ? op->ne[1] : j0 + OUT_ROWS;
        for (int64_t j = j0; j < j1; j++) {
            p->k->fill(n, (float *) (void *) cpu_row_at(op, j, i2, i3) + i0, 0.0f);
        }
        for (int64_t c = 0; c < a->ne[1]; c++) {
            const char *row     = cpu_row_at(a, c, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
            const float *x      = cpu_row_load(p->k, a, row, i0, n, buf);
            const char *weights = cpu_row_at(b, c, i2, i3);
            for (int64_t j = j0; j < j1; j++) {
                p->k->mad(n, (float *) (void *) cpu_row_at(op, j, i2, i3) + i0, x,
                    *(const float *) (const void *) (weights + (size_t) j * b->nb[0]));
            }
        }
    }
}

const struct cpu_op_entry cpu_ops_moe[] = {
    {GGML_OP_ADD_ID, {.supports = add_id_supports, .run = add_id_run, .uses = CPU_USE_ADD | CPU_USE_CONVERT}},
    {GGML_OP_OUT_PROD, {.supports      = out_supports,
                           .n_tasks    = out_n_tasks,
                           .run        = out_run,
                           .uses       = CPU_USE_MAD | CPU_USE_CONVERT,
                           .empty_srcs = 3}},
    CPU_OPS_END,
};

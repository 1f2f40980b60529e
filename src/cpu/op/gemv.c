// SPDX-License-Identifier: MIT
// gemv.c: MUL_MAT of few columns. All tasks bring the columns into the form the micro-kernel takes, in work memory, a piece at a
// time; then they take runs of rows of src[0], as they get to them, and multiply them with every column. Each row is read once
// and straight through.

#include "cpu/op/gemm.h"
#include "cpu/rowio.h"

#define ROWS 32

bool cpu_gemv_takes(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    return k->gemv[op->src[0]->type].run != NULL && b->type == GGML_TYPE_F32 && b->nb[0] == sizeof(float) &&
           op->nb[1] % sizeof(float) == 0;
}

size_t cpu_gemv_work_size(const struct ggml_tensor *op) {
    return cpu_gemv_y_size(&cpu_kernels_best.gemv[op->src[0]->type], op->src[0]->ne[0]) * (size_t) ggml_nrows(op->src[1]);
}

void cpu_gemv_pack(const struct cpu_params *p, const struct ggml_tensor *b, const struct cpu_gemv *g, char *columns) {
    const size_t size = cpu_gemv_y_size(g, b->ne[0]);
    BERTH_ASSERT(CPU_PIECE % g->step == 0);
    for (struct cpu_pieces it = cpu_pieces(p, b); cpu_piece_next(&it);) {
        const int64_t ir = (it.at.i3 * b->ne[2] + it.at.i2) * b->ne[1] + it.at.i1;
        char *to         = columns + (size_t) ir * size + (size_t) (it.i0 / g->step) * g->y_size;
        g->pack_y(p->k, it.n, to, (const float *) (const void *) cpu_row(b, it.at) + it.i0);
    }
}

void cpu_gemv_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const struct cpu_gemv *g = &p->k->gemv[a->type];
    const size_t size        = cpu_gemv_y_size(g, b->ne[0]);
    cpu_gemv_pack(p, b, g, p->work);
    cpu_barrier(p);
    // shorter runs while there are few: every task should find one
    const int64_t ne0 = op->ne[0], n_batches = op->ne[2] * op->ne[3];
    int64_t rows = ROWS;
    while (rows > 4 && (ne0 + rows - 1) / rows * n_batches < 4 * p->nth) {
        rows /= 2;
    }
    const int64_t n_runs = (ne0 + rows - 1) / rows;
    for (int64_t i = cpu_chunk_next(p); i < n_runs * n_batches; i = cpu_chunk_next(p)) {
        const int64_t r0 = i % n_runs * rows, i2 = i / n_runs % op->ne[2], i3 = i / n_runs / op->ne[2];
        const int nr    = ne0 - r0 < rows ? (int) (ne0 - r0) : (int) rows;
        const char *row = cpu_row_at(a, r0, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
        for (int64_t c = 0; c < b->ne[1]; c++) {
            const char *column = (const char *) p->work + size * (size_t) ((i3 * b->ne[2] + i2) * b->ne[1] + c);
            g->run(a->ne[0], (float *) (void *) cpu_row_at(op, c, i2, i3) + r0, row, a->nb[1], nr, column);
        }
    }
}

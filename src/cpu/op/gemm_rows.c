// SPDX-License-Identifier: MIT
// gemm_rows.c: MUL_MAT of some tens of columns, where copying the rows into panels (gemm.c) is not paid for. All tasks bring
// src[1] into panels, in work memory; then each takes rows of src[0], as it gets to them and as they lie, and multiplies them
// with all.

#include "cpu/op/gemm.h"

bool cpu_gemm_rows_takes(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *b   = op->src[1];
    const struct cpu_gemm_rows *g = &k->gemm_rows[op->src[0]->type];
    return g->run != NULL && b->type == GGML_TYPE_F32 && b->nb[0] == sizeof(float) && b->ne[1] >= g->min_cols &&
           b->ne[1] <= g->max_cols && op->nb[1] % sizeof(float) == 0;
}

static size_t panel_size(const struct cpu_gemm_rows *g, int64_t n) {
    return cpu_gemm_lines(g->y_head + (size_t) ((n + g->step - 1) / g->step) * g->y_size);
}

static int64_t n_panels(const struct cpu_gemm_rows *g, const struct ggml_tensor *b) {
    return (b->ne[1] + g->nr - 1) / g->nr;
}

size_t cpu_gemm_rows_work_size(const struct ggml_tensor *op) {
    const struct cpu_gemm_rows *g = &cpu_kernels_best.gemm_rows[op->src[0]->type];
    const struct ggml_tensor *b   = op->src[1];
    return panel_size(g, b->ne[0]) * (size_t) (n_panels(g, b) * b->ne[2] * b->ne[3]);
}

void cpu_gemm_rows_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const struct cpu_gemm_rows *g = &p->k->gemm_rows[a->type];
    const size_t size             = panel_size(g, b->ne[0]);
    const int64_t per_batch = n_panels(g, b), n_batches = b->ne[2] * b->ne[3];
    for (int64_t i = cpu_chunk_next(p); i < per_batch * n_batches; i = cpu_chunk_next(p)) {
        const int64_t c0 = i % per_batch * g->nr, i2 = i / per_batch % b->ne[2], i3 = i / per_batch / b->ne[2];
        const int nc = b->ne[1] - c0 < g->nr ? (int) (b->ne[1] - c0) : g->nr;
        const float *cols[CPU_GEMM_NR];
        for (int c = 0; c < nc; c++) {
            cols[c] = (const float *) (const void *) cpu_row_at(b, c0 + c, i2, i3);
        }
        g->pack_y(b->ne[0], (char *) p->work + (size_t) i * size, cols, nc);
    }
    cpu_barrier(p);
    const int64_t n_runs = (op->ne[0] + g->mr - 1) / g->mr;
    for (int64_t i = cpu_chunk_next(p); i < n_runs * n_batches; i = cpu_chunk_next(p)) {
        const int64_t r = i % n_runs * g->mr, i2 = i / n_runs % b->ne[2], i3 = i / n_runs / b->ne[2];
        const char *rows   = cpu_row_at(a, r, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
        const char *panels = (const char *) p->work + size * (size_t) ((i3 * b->ne[2] + i2) * per_batch);
        g->run(a->ne[0], (float *) (void *) cpu_row_at(op, 0, i2, i3) + r, (int64_t) (op->nb[1] / sizeof(float)), rows, a->nb[1],
            op->ne[0] - r < g->mr ? (int) (op->ne[0] - r) : g->mr, panels, size, (int) b->ne[1]);
    }
}

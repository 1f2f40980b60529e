// SPDX-License-Identifier: MIT
// gemm.c: MUL_MAT of many columns. All tasks bring src[1] into panels, in work memory; then each takes rows of src[0], as it gets
// to them, packs them into its own memory and multiplies them with every panel of src[1] that they meet. X_PANELS panels of rows
// stay in the second cache while a panel of columns stays in the first, so src[1] is read once for so many.

#include "cpu/op/gemm.h"

#define X_PANELS CPU_GEMM_X_PANELS

bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return k->gemm[a->type].run != NULL && b->type == GGML_TYPE_F32 && b->nb[0] == sizeof(float) &&
           b->ne[1] >= k->gemm[a->type].min_cols && op->nb[1] % sizeof(float) == 0;
}

struct sizes {
    size_t x, y;      // a panel
    int64_t n_panels; // of src[1], a batch
};

static struct sizes sizes_of(const struct cpu_gemm *g, const struct ggml_tensor *op) {
    const int64_t n = op->src[0]->ne[0];
    return (struct sizes){
        .x = cpu_gemm_x_size(g, n), .y = cpu_gemm_y_size(g, n), .n_panels = (op->src[1]->ne[1] + g->nr - 1) / g->nr};
}

size_t cpu_gemm_work_size(const struct ggml_tensor *op, int n_tasks) {
    const struct ggml_tensor *b = op->src[1];
    const struct sizes size     = sizes_of(&cpu_kernels_best.gemm[op->src[0]->type], op);
    return size.y * (size_t) (size.n_panels * b->ne[2] * b->ne[3]) + size.x * X_PANELS * (size_t) n_tasks;
}

static void pack_columns(
    const struct cpu_params *p, const struct ggml_tensor *b, const struct cpu_gemm *g, const struct sizes *size) {
    BERTH_ASSERT(g->nr <= CPU_GEMM_NR);
    const int64_t n = size->n_panels * b->ne[2] * b->ne[3];
    for (int64_t i = cpu_chunk_next(p); i < n; i = cpu_chunk_next(p)) {
        const int64_t c0 = i % size->n_panels * g->nr, i2 = i / size->n_panels % b->ne[2], i3 = i / size->n_panels / b->ne[2];
        const int nc = b->ne[1] - c0 < g->nr ? (int) (b->ne[1] - c0) : g->nr;
        const float *cols[CPU_GEMM_NR];
        for (int c = 0; c < nc; c++) {
            cols[c] = (const float *) (const void *) cpu_row_at(b, c0 + c, i2, i3);
        }
        g->pack_y(p->k, b->ne[0], (char *) p->work + (size_t) i * size->y, cols, nc);
    }
}

// An item: rows r0 to r1 of one batch of src[0], and a part of the panels of every batch of src[1] that meets it.
struct item {
    int64_t r0, r1, i2, i3;
    int64_t c0, c1; // panels
};

static void item_run(const struct cpu_params *p, struct ggml_tensor *op, const struct cpu_gemm *g, const struct sizes *size,
    const struct item *it) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = a->ne[0], r2 = b->ne[2] / a->ne[2], r3 = b->ne[3] / a->ne[3];
    char *own =
        (char *) p->work + size->y * (size_t) (size->n_panels * b->ne[2] * b->ne[3]) + size->x * X_PANELS * (size_t) p->ith;
    for (int64_t r = it->r0, i = 0; r < it->r1; r += g->mr, i++) {
        const int nr = it->r1 - r < g->mr ? (int) (it->r1 - r) : g->mr;
        g->pack_x(n, own + size->x * (size_t) i, cpu_row_at(a, r, it->i2, it->i3), a->nb[1], nr);
    }
    for (int64_t i3 = it->i3 * r3; i3 < (it->i3 + 1) * r3; i3++) {
        for (int64_t i2 = it->i2 * r2; i2 < (it->i2 + 1) * r2; i2++) {
            const char *panels = (const char *) p->work + size->y * (size_t) ((i3 * b->ne[2] + i2) * size->n_panels);
            for (int64_t c = it->c0; c < it->c1; c++) {
                const int64_t col = c * g->nr;
                const int nc      = b->ne[1] - col < g->nr ? (int) (b->ne[1] - col) : g->nr;
                float *to         = (float *) (void *) cpu_row_at(op, col, i2, i3);
                for (int64_t r = it->r0, i = 0; r < it->r1; r += g->mr, i++) {
                    const int nr = it->r1 - r < g->mr ? (int) (it->r1 - r) : g->mr;
                    g->run(n, to + r, (int64_t) (op->nb[1] / sizeof(float)), own + size->x * (size_t) i, nr,
                        panels + size->y * (size_t) c, nc);
                }
            }
        }
    }
}

void cpu_gemm_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct cpu_gemm *g    = &p->k->gemm[a->type];
    const struct sizes size     = sizes_of(g, op);
    pack_columns(p, op->src[1], g, &size);
    cpu_barrier(p);
    // fewer rows an item while there are few items, then fewer columns: every task should find some
    const int64_t ne0 = op->ne[0], n_batches = a->ne[2] * a->ne[3], wanted = p->nth > 1 ? 4 * p->nth : 1;
    int64_t rows = (int64_t) X_PANELS * g->mr;
    while (rows > g->mr && (ne0 + rows - 1) / rows * n_batches < wanted) {
        rows /= 2;
    }
    const int64_t n_rows = (ne0 + rows - 1) / rows, most = size.n_panels / 8 + 1;
    int64_t n_parts    = (wanted + n_rows * n_batches - 1) / (n_rows * n_batches);
    n_parts            = n_parts < most ? n_parts : most;
    const int64_t part = (size.n_panels + n_parts - 1) / n_parts;
    const int64_t n    = n_rows * n_parts * n_batches;
    for (int64_t i = cpu_chunk_next(p); i < n; i = cpu_chunk_next(p)) {
        const int64_t ir = i % n_rows, ic = i / n_rows % n_parts, batch = i / (n_rows * n_parts);
        const struct item it = {
            .r0 = ir * rows,
            .r1 = ne0 < (ir + 1) * rows ? ne0 : (ir + 1) * rows,
            .i2 = batch % a->ne[2],
            .i3 = batch / a->ne[2],
            .c0 = ic * part,
            .c1 = size.n_panels < (ic + 1) * part ? size.n_panels : (ic + 1) * part,
        };
        item_run(p, op, g, &size, &it);
    }
}

// SPDX-License-Identifier: MIT
// gemm.c: products of many columns, for MUL_MAT and OUT_PROD. All tasks bring b into panels, in work memory; then each takes rows
// of a, as it gets to them, packs a panel of them into its own memory and multiplies it with every panel of b that it meets: a
// panel of rows, the larger, stays in the first cache or near it while those of columns come from the second. Sources of f32 may
// be transposed: X_PANELS panels of them are copied from across the rows at a time.

#include "cpu/op/gemm.h"

#include <string.h>

#define X_PANELS CPU_GEMM_X_PANELS
#define Y_PANELS 4 // that are packed at a time

bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return k->gemm[a->type].run != NULL && b->type == GGML_TYPE_F32 && b->nb[0] == sizeof(float) &&
           b->ne[1] >= k->gemm[a->type].min_cols && op->nb[1] % sizeof(float) == 0;
}

bool cpu_gemm_takes_across(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct cpu_gemm *g = &k->gemm[GGML_TYPE_F32];
    const int few            = g->min_cols < g->nr ? g->min_cols : g->nr; // no dot products are an alternative
    return g->run != NULL && op->ne[1] >= few && op->nb[1] % sizeof(float) == 0;
}

struct sizes {
    size_t x, y;      // a panel
    int64_t n_panels; // of b, a batch
    int64_t n_all;    // of b
};

static struct sizes sizes_of(const struct cpu_gemm *g, const struct ggml_tensor *b) {
    const int64_t n_panels = (b->ne[1] + g->nr - 1) / g->nr;
    return (struct sizes){.x = cpu_gemm_x_size(g, b->ne[0]),
        .y                   = cpu_gemm_y_size(g, b->ne[0]),
        .n_panels            = n_panels,
        .n_all               = n_panels * b->ne[2] * b->ne[3]};
}

size_t cpu_gemm_work_size(enum ggml_type type, const struct ggml_tensor *b, int n_tasks) {
    const struct sizes size = sizes_of(&cpu_kernels_best.gemm[type], b);
    return size.y * (size_t) size.n_all + size.x * X_PANELS * (size_t) n_tasks;
}

// ---- panels ----

void cpu_gemm_pack_across(int64_t n, char *panels, size_t size, int side, const char *from, size_t step, int64_t n_rows) {
    for (int64_t i = 0; i < n; i++, from += step, panels += (size_t) side * sizeof(float)) {
        char *to  = panels;
        int64_t r = 0;
        for (; side % 8 == 0 && r + side <= n_rows; r += side, to += size) {
            for (int j = 0; j < side; j += 8) { // a size the compiler knows
                memcpy(to + (size_t) j * sizeof(float), from + (size_t) (r + j) * sizeof(float), 8 * sizeof(float));
            }
        }
        for (; r < n_rows; r += side, to += size) {
            const int64_t here = n_rows - r < side ? n_rows - r : side;
            memcpy(to, from + (size_t) r * sizeof(float), (size_t) here * sizeof(float));
            memset(to + (size_t) here * sizeof(float), 0, (size_t) (side - here) * sizeof(float));
        }
    }
}

// Panels first to end - 1 of one batch of b.
static void pack_part(const struct cpu_kernels *k, const struct cpu_gemm *g, const struct sizes *size,
    const struct ggml_tensor *b, char *panels, int64_t first, int64_t end, int64_t i2, int64_t i3) {
    const int64_t c0 = first * g->nr, c1 = b->ne[1] < end * g->nr ? b->ne[1] : end * g->nr;
    if (b->nb[0] != sizeof(float)) {
        cpu_gemm_pack_across(b->ne[0], panels, size->y, g->nr, cpu_row_at(b, c0, i2, i3), b->nb[0], c1 - c0);
        return;
    }
    for (int64_t c = c0; c < c1; c += g->nr, panels += size->y) {
        const int nc = c1 - c < g->nr ? (int) (c1 - c) : g->nr;
        const float *cols[CPU_GEMM_NR];
        for (int i = 0; i < nc; i++) {
            cols[i] = (const float *) (const void *) cpu_row_at(b, c + i, i2, i3);
        }
        g->pack_y(k, b->ne[0], panels, cols, nc);
    }
}

static void pack_columns(
    const struct cpu_params *p, const struct ggml_tensor *b, const struct cpu_gemm *g, const struct sizes *size, char *panels) {
    BERTH_ASSERT(g->nr <= CPU_GEMM_NR);
    const int64_t n_parts = (size->n_panels + Y_PANELS - 1) / Y_PANELS, n = n_parts * b->ne[2] * b->ne[3];
    for (int64_t i = cpu_chunk_next(p); i < n; i = cpu_chunk_next(p)) {
        const int64_t first = i % n_parts * Y_PANELS, i2 = i / n_parts % b->ne[2], i3 = i / n_parts / b->ne[2];
        const int64_t end = size->n_panels < first + Y_PANELS ? size->n_panels : first + Y_PANELS;
        char *to          = panels + (size_t) ((i3 * b->ne[2] + i2) * size->n_panels + first) * size->y;
        pack_part(p->k, g, size, b, to, first, end, i2, i3);
    }
}

// ---- products ----

// An item: rows r0 to r1 of one batch of a, and a part of the panels of every batch of b that meets it.
struct item {
    int64_t r0, r1, i2, i3;
    int64_t c0, c1; // panels
};

// nr rows from r on with all columns of the item: a panel at own, or as they lie if that is NULL.
static void columns_run(const struct cpu_gemm_call *call, const struct cpu_gemm *g, const struct sizes *size,
    const struct item *it, int64_t r, int nr, const char *own) {
    const struct ggml_tensor *a = call->a, *b = call->b, *op = call->op;
    const int64_t n = a->ne[0], r2 = b->ne[2] / a->ne[2], r3 = b->ne[3] / a->ne[3], ld = (int64_t) (op->nb[1] / sizeof(float));
    for (int64_t i3 = it->i3 * r3; i3 < (it->i3 + 1) * r3; i3++) {
        for (int64_t i2 = it->i2 * r2; i2 < (it->i2 + 1) * r2; i2++) {
            const char *panels = call->work + size->y * (size_t) ((i3 * b->ne[2] + i2) * size->n_panels);
            for (int64_t c = it->c0; c < it->c1; c++) {
                const int64_t col = c * g->nr;
                const int nc      = b->ne[1] - col < g->nr ? (int) (b->ne[1] - col) : g->nr;
                const char *y     = panels + size->y * (size_t) c;
                float *to         = (float *) (void *) cpu_row_at(op, col, i2, i3) + r;
                if (own == NULL) {
                    g->rows.run(n, to, ld, cpu_row_at(a, r, it->i2, it->i3), a->nb[1], y, nc);
                } else {
                    g->run(n, to, ld, own, nr, y, nc);
                }
            }
        }
    }
}

static void item_run(const struct cpu_params *p, const struct cpu_gemm_call *call, const struct cpu_gemm *g,
    const struct sizes *size, const struct item *it) {
    const struct ggml_tensor *a = call->a;
    const bool across           = a->nb[0] != ggml_type_size(a->type);
    const bool lie              = !across && cpu_gemm_has_rows(g, a->ne[0], call->b->ne[1]);
    char *own                   = call->work + size->y * (size_t) size->n_all + size->x * X_PANELS * (size_t) p->ith;
    int64_t r                   = it->r0;
    for (; lie && r + g->mr <= it->r1; r += g->mr) { // panel after panel of columns while these rows are at hand
        columns_run(call, g, size, it, r, g->mr, NULL);
    }
    if (across && r < it->r1) {
        cpu_gemm_pack_across(a->ne[0], own, size->x, g->mr, cpu_row_at(a, r, it->i2, it->i3), a->nb[0], it->r1 - r);
    }
    for (; r < it->r1; r += g->mr, own += across ? size->x : 0) {
        const int nr = it->r1 - r < g->mr ? (int) (it->r1 - r) : g->mr;
        if (!across) {
            g->pack_x(a->ne[0], own, cpu_row_at(a, r, it->i2, it->i3), a->nb[1], nr);
        }
        columns_run(call, g, size, it, r, nr, own);
    }
}

void cpu_gemm_run(const struct cpu_params *p, const struct cpu_gemm_call *call) {
    const struct ggml_tensor *a = call->a;
    const struct cpu_gemm *g    = &p->k->gemm[a->type];
    const struct sizes size     = sizes_of(g, call->b);
    pack_columns(p, call->b, g, &size, call->work);
    cpu_barrier(p);
    // fewer rows an item while there are few items, then fewer columns: every task should find some
    const int64_t ne0 = call->op->ne[0], n_batches = a->ne[2] * a->ne[3], wanted = p->nth > 1 ? 4 * p->nth : 1;
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
        item_run(p, call, g, &size, &it);
    }
}

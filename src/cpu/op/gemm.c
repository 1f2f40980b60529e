// SPDX-License-Identifier: MIT
// gemm.c: products with many columns, for MUL_MAT and OUT_PROD.
//   1. All tasks together pack columns of b into panels in work memory.
//   2. Each task takes items: blocks of rows of a with some panels of b.
// A task multiplies each panel of rows of an item with all panels of columns of the item. A panel of rows is larger than a panel
// of columns. It stays in or near the L1 cache. The panels of columns are read from the L2 cache. If the columns do not fit in
// work memory, 1 and 2 are repeated (rounds). So work memory does not grow with b. Panels of b are numbered so that batches with
// the same batch of a are adjacent.

#include "cpu/op/gemm.h"

#include "base/min.h"

#include <string.h>

#define X_PANELS CPU_GEMM_X_PANELS
#define Y_PANELS 4 // panels of transposed columns packed at a time
#define PIECE 512  // minimum elements of a column that a task packs
// A round holds at least ROUND_COLS columns and at least ROUND_SIZE bytes. Rows are packed once per round.
#define ROUND_COLS 512
#define ROUND_SIZE ((size_t) 1 << 20)

bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return k->gemm[a->type].run != NULL && b->type == GGML_TYPE_F32 && b->nb[0] == sizeof(float) &&
           b->ne[1] >= k->gemm[a->type].min_cols && op->nb[1] % sizeof(float) == 0;
}

bool cpu_gemm_takes_transposed(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct cpu_gemm *g = &k->gemm[GGML_TYPE_F32];
    const int few = min_int(g->min_cols, g->nr); // at most nr: OUT_PROD always uses panels
    return g->run != NULL && op->ne[1] >= few && op->nb[1] % sizeof(float) == 0;
}

struct sizes {
    size_t x, y;           // bytes of a panel of rows, of a panel of columns
    int64_t n_panels;      // panels of b per batch
    int64_t n_per_a_batch; // panels of b that are multiplied with one batch of a
    int64_t n_all;         // all panels of b
    int64_t n_round;       // panels of b per round
};

static size_t round_size(const struct cpu_gemm *g, size_t y) {
    const size_t size = (size_t) ((ROUND_COLS + g->nr - 1) / g->nr) * y;
    return max_size(size, ROUND_SIZE);
}

static struct sizes sizes_of(const struct cpu_gemm *g, const struct ggml_tensor *a, const struct ggml_tensor *b) {
    const size_t y = cpu_gemm_y_size(g, b->ne[0]);
    const int64_t n_panels = (b->ne[1] + g->nr - 1) / g->nr, n_all = n_panels * b->ne[2] * b->ne[3];
    const int64_t n_round = (int64_t) (round_size(g, y) / (y > 0 ? y : 1));
    return (struct sizes){.x = cpu_gemm_x_size(g, b->ne[0]),
        .y = y,
        .n_panels = n_panels,
        .n_per_a_batch = n_panels * (b->ne[2] / a->ne[2]) * (b->ne[3] / a->ne[3]),
        .n_all = n_all,
        .n_round = min_i64(n_round, n_all)};
}

// Returns the number of panels of rows that a task has memory for. Rows of f32 may be transposed. Then all panels of an item are
// packed together.
static size_t n_own(enum ggml_type type) {
    return type == GGML_TYPE_F32 ? X_PANELS : 1;
}

// Returns the bytes for the panels of a round and for the panels of rows of all tasks. A round counts with its full capacity
// (round_size), because shorter columns can fill more of it. So an op with shorter columns never needs more memory.
size_t cpu_gemm_work_size(const struct cpu_kernels *k, enum ggml_type type, const struct ggml_tensor *b, int n_tasks) {
    const struct cpu_gemm *g = &k->gemm[type];
    const size_t y = cpu_gemm_y_size(g, b->ne[0]), room = round_size(g, y);
    const size_t all = y * (size_t) ((b->ne[1] + g->nr - 1) / g->nr * b->ne[2] * b->ne[3]);
    return min_size(all, room) + cpu_gemm_x_size(g, b->ne[0]) * n_own(type) * (size_t) n_tasks;
}

// ---- panels ----

void cpu_gemm_pack_transposed(int64_t n, char *panels, size_t size, int side, const char *rows, size_t step, int64_t n_rows) {
    for (int64_t i = 0; i < n; i++, panels += (size_t) side * sizeof(float)) {
        const char *from = rows + (size_t) i * step;
        char *to = panels;
        int64_t r = 0;
        for (; side % 8 == 0 && r + side <= n_rows; r += side, to += size) {
            for (int j = 0; j < side; j += 8) { // constant size, so that the copy is inlined
                memcpy(to + (size_t) j * sizeof(float), from + (size_t) (r + j) * sizeof(float), 8 * sizeof(float));
            }
        }
        for (; r < n_rows; r += side, to += size) {
            const int64_t n_left = min_i64(n_rows - r, side);
            memcpy(to, from + (size_t) r * sizeof(float), (size_t) n_left * sizeof(float));
            memset(to + (size_t) n_left * sizeof(float), 0, (size_t) (side - n_left) * sizeof(float));
        }
    }
}

// Elements i0 .. i0 + n - 1 of panels first .. end - 1 of one batch of b.
struct pack {
    int64_t first, end, i2, i3;
    int64_t i0, n;
};

static void pack_part(const struct cpu_kernels *k, const struct cpu_gemm *g, const struct sizes *size,
    const struct ggml_tensor *b, char *panels, const struct pack *part) {
    const int64_t c0 = part->first * g->nr, c1 = min_i64(b->ne[1], part->end * g->nr);
    if (b->nb[0] != sizeof(float)) {
        const char *rows = cpu_row_at(b, c0, part->i2, part->i3);
        cpu_gemm_pack_transposed(b->ne[0], panels, size->y, g->nr, rows, b->nb[0], c1 - c0);
        return;
    }
    panels += (size_t) (part->i0 / g->step) * g->y_size;
    for (int64_t c = c0; c < c1; c += g->nr, panels += size->y) {
        const int nc = c1 - c < g->nr ? (int) (c1 - c) : g->nr;
        const float *cols[CPU_GEMM_NR];
        for (int i = 0; i < nc; i++) {
            cols[i] = (const float *) (const void *) cpu_row_at(b, c + i, part->i2, part->i3) + part->i0;
        }
        g->pack_y(k, part->n, panels, cols, nc);
    }
}

// Returns the batch of b with index i in the order of panels.
static void batch_of(const struct ggml_tensor *a, const struct ggml_tensor *b, int64_t i, int64_t *i2, int64_t *i3) {
    const int64_t r2 = b->ne[2] / a->ne[2], r3 = b->ne[3] / a->ne[3], of_a = i / (r2 * r3);
    *i2 = of_a % a->ne[2] * r2 + i % r2;
    *i3 = of_a / a->ne[2] * r3 + i / r2 % r3;
}

// Returns the elements of a column that a task packs at a time: all, unless there are fewer panels than tasks.
static int64_t piece_of(const struct cpu_params *p, const struct cpu_gemm *g, const struct ggml_tensor *b, int64_t n_panels) {
    if (n_panels >= p->nth || g->y_head > 0 || b->nb[0] != sizeof(float)) {
        return b->ne[0];
    }
    const int64_t n = max_i64(PIECE, b->ne[0] * n_panels / p->nth + 1);
    return (n + g->step - 1) / g->step * g->step;
}

// Packs this task's share of panels p0 .. p1 - 1 of b.
static void pack_columns(const struct cpu_params *p, const struct cpu_gemm_call *call, const struct cpu_gemm *g,
    const struct sizes *size, int64_t p0, int64_t p1) {
    BERTH_ASSERT(g->nr <= CPU_GEMM_NR);
    const int64_t n_each = call->b->nb[0] == sizeof(float) ? 1 : Y_PANELS, n = call->b->ne[0];
    const int64_t piece = piece_of(p, g, call->b, p1 - p0), n_pieces = n > 0 ? (n + piece - 1) / piece : 1;
    const int64_t n_parts = (p1 - p0 + n_each - 1) / n_each * n_pieces;
    for (int64_t i = cpu_chunk_next(p); i < n_parts; i = cpu_chunk_next(p)) {
        const int64_t i0 = i % n_pieces * piece, at_0 = p0 + i / n_pieces * n_each, end = min_i64(at_0 + n_each, p1);
        struct pack part = {.i0 = i0, .n = min_i64(piece, n - i0)};
        for (int64_t at = at_0, next; at < end; at = next) { // one batch at a time
            const int64_t batch = at / size->n_panels, first = batch * size->n_panels;
            next = min_i64(first + size->n_panels, end);
            part.first = at - first;
            part.end = next - first;
            batch_of(call->a, call->b, batch, &part.i2, &part.i3);
            pack_part(p->k, g, size, call->b, call->work + (size_t) (at - p0) * size->y, &part);
        }
    }
}

// ---- products ----

// Rows r0 .. r1 - 1 of one batch of a, times panels c0 .. c1 - 1 of b.
struct item {
    int64_t r0, r1, batch;
    int64_t c0, c1;     // panels, counted from the first panel of b that is multiplied with this batch of a
    const char *panels; // address of panel c0
};

// Multiplies rows r .. r + nr - 1 with all columns of the item. own: the panel of these rows; NULL: not packed.
static void columns_run(const struct cpu_gemm_call *call, const struct cpu_gemm *g, const struct sizes *size,
    const struct item *it, int64_t r, int nr, const char *own) {
    const struct ggml_tensor *a = call->a, *b = call->b, *op = call->op;
    const int64_t n = a->ne[0], ld = (int64_t) (op->nb[1] / sizeof(float)), n_batches = size->n_per_a_batch / size->n_panels;
    const char *y = it->panels;
    for (int64_t c = it->c0, step = 1; c < it->c1; c += step, y += (size_t) step * size->y) {
        const int64_t panel = c % size->n_panels, col = panel * g->nr;
        if (own == NULL) {
            step = cpu_gemm_rows_panels(g, min_i64(it->c1 - c, size->n_panels - panel));
        }
        const int nc = (int) min_i64(b->ne[1] - col, step * g->nr);
        int64_t i2, i3;
        batch_of(a, b, it->batch * n_batches + c / size->n_panels, &i2, &i3);
        float *to = (float *) (void *) cpu_row_at(op, col, i2, i3) + r;
        if (own == NULL) {
            g->rows.run(n, to, ld, cpu_row_at(a, r, it->batch % a->ne[2], it->batch / a->ne[2]), a->nb[1], y, nc);
        } else {
            g->run(n, to, ld, own, nr, y, nc);
        }
    }
}

static void item_run(const struct cpu_params *p, const struct cpu_gemm_call *call, const struct cpu_gemm *g,
    const struct sizes *size, const struct item *it) {
    const struct ggml_tensor *a = call->a;
    const int64_t i2 = it->batch % a->ne[2], i3 = it->batch / a->ne[2];
    const bool is_transposed = a->nb[0] != ggml_type_size(a->type);
    const bool reads_rows = !is_transposed && cpu_gemm_has_rows(g, a->ne[0], call->b->ne[1]);
    char *own = call->work + size->y * (size_t) size->n_round + size->x * n_own(a->type) * (size_t) p->ith;
    int64_t r = it->r0;
    for (; reads_rows && r + g->mr <= it->r1; r += g->mr) { // mr rows stay in the cache for all panels of columns
        columns_run(call, g, size, it, r, g->mr, NULL);
    }
    if (is_transposed && r < it->r1) {
        cpu_gemm_pack_transposed(a->ne[0], own, size->x, g->mr, cpu_row_at(a, r, i2, i3), a->nb[0], it->r1 - r);
    }
    for (; r < it->r1; r += g->mr, own += is_transposed ? size->x : 0) {
        const int nr = it->r1 - r < g->mr ? (int) (it->r1 - r) : g->mr;
        if (!is_transposed) {
            g->pack_x(a->ne[0], own, cpu_row_at(a, r, i2, i3), a->nb[1], nr);
        }
        columns_run(call, g, size, it, r, nr, own);
    }
}

static void round_run(const struct cpu_params *p, const struct cpu_gemm_call *call, const struct cpu_gemm *g,
    const struct sizes *size, int64_t p0, int64_t p1) {
    const int64_t ne0 = call->op->ne[0], first = p0 / size->n_per_a_batch, n_batches = (p1 - 1) / size->n_per_a_batch - first + 1;
    const int64_t min_items = p->nth > 1 ? 4 * p->nth : 1, n_cols = min_i64(p1 - p0, size->n_per_a_batch);
    // Every task should have an item. If there are fewer than min_items items, items get fewer rows, then fewer panels.
    int64_t rows = (int64_t) X_PANELS * g->mr;
    while (rows > g->mr && (ne0 + rows - 1) / rows * n_batches < min_items) {
        rows /= 2;
    }
    const int64_t n_row_blocks = (ne0 + rows - 1) / rows, max_parts = n_cols / 8 + 1;
    const int64_t n_parts = min_i64((min_items + n_row_blocks * n_batches - 1) / (n_row_blocks * n_batches), max_parts);
    for (int64_t i = cpu_chunk_next(p); i < n_row_blocks * n_parts * n_batches; i = cpu_chunk_next(p)) {
        const int64_t ir = i % n_row_blocks, ic = i / n_row_blocks % n_parts, batch = first + i / (n_row_blocks * n_parts);
        // c0 and c1 count from of_batch, the first panel of b for this batch of a.
        const int64_t of_batch = batch * size->n_per_a_batch;
        const int64_t c0 = p0 > of_batch ? p0 - of_batch : 0,
                      c1 = p1 < of_batch + size->n_per_a_batch ? p1 - of_batch : size->n_per_a_batch;
        const int64_t part = (c1 - c0 + n_parts - 1) / n_parts, from = c0 + ic * part;
        const struct item it = {
            .r0 = ir * rows,
            .r1 = min_i64(ne0, (ir + 1) * rows),
            .batch = batch,
            .c0 = from,
            .c1 = min_i64(c1, from + part),
            .panels = call->work + (size_t) (of_batch + from - p0) * size->y,
        };
        if (it.c0 < it.c1) {
            item_run(p, call, g, size, &it);
        }
    }
}

void cpu_gemm_run(const struct cpu_params *p, const struct cpu_gemm_call *call) {
    const struct cpu_gemm *g = &p->k->gemm[call->a->type];
    const struct sizes size = sizes_of(g, call->a, call->b);
    for (int64_t p0 = 0; p0 < size.n_all; p0 += size.n_round) {
        const int64_t p1 = min_i64(p0 + size.n_round, size.n_all);
        if (p0 > 0) {
            cpu_barrier(p); // other tasks may still read the panels of the last round
        }
        pack_columns(p, call, g, &size, p0, p1);
        cpu_barrier(p);
        round_run(p, call, g, &size, p0, p1);
    }
}

// SPDX-License-Identifier: MIT
// gemv.c: MUL_MAT with few columns. All tasks together pack the columns in work memory. Then tasks multiply runs of consecutive
// rows of src[0] with every column. With one column, long runs are best for hardware prefetching (arm/streams.h). Later runs are
// shorter, so that all tasks end at about the same time. With more columns, all runs are short, so that their rows stay in a
// cache.

#include "base/min.h"
#include "cpu/op/gemm.h"
#include "cpu/rowio.h"

#define ROWS 32          // rows of the shortest run
#define ROWS_MAX 1048576 // rows of the longest run; kernels count rows in int

bool cpu_gemv_takes(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    const struct cpu_gemv *g = &k->gemv[op->src[0]->type];
    return g->run != NULL && (g->max_cols == 0 || b->ne[1] <= g->max_cols) && b->type == GGML_TYPE_F32 &&
           b->nb[0] == sizeof(float) && op->nb[1] % sizeof(float) == 0;
}

size_t cpu_gemv_work_size(const struct ggml_tensor *op) {
    return cpu_gemv_y_size(&cpu_kernels_best.gemv[op->src[0]->type], op->src[0]->ne[0]) * (size_t) ggml_nrows(op->src[1]);
}

void cpu_gemv_pack(const struct cpu_params *p, const struct ggml_tensor *b, const struct cpu_gemv *g, char *columns) {
    const size_t size = cpu_gemv_y_size(g, b->ne[0]);
    BERTH_ASSERT(CPU_PIECE % g->step == 0);
    for (struct cpu_pieces it = cpu_pieces(p, b); cpu_piece_next(&it);) {
        const int64_t ir = (it.at.i3 * b->ne[2] + it.at.i2) * b->ne[1] + it.at.i1;
        char *to = columns + (size_t) ir * size + (size_t) (it.i0 / g->step) * g->y_size;
        g->pack_y(p->k, it.n, to, (const float *) (const void *) cpu_row(b, it.at) + it.i0);
    }
}

// If is_long, the first nth runs together take half of the rows, the next nth runs half of the rest, and so on; each run has at
// least `least` rows. Otherwise, all runs have `least` rows.
struct runs {
    int64_t n_rows, least, nth;
    bool is_long;
};

// Returns the end of run i, and its first row in *r0. If there are no more rows, the run is empty.
static int64_t run_at(const struct runs *runs, int64_t i, int64_t *r0) {
    const int64_t n = runs->n_rows;
    int64_t size = runs->least, first = 0;
    if (runs->is_long) {
        for (; first < n; first += runs->nth * size, i -= runs->nth) {
            const int64_t half = (n - first) / (2 * runs->nth);
            size = half < runs->least ? runs->least : min_i64(half, ROWS_MAX);
            if (i < runs->nth) {
                break;
            }
        }
    }
    first += i * size;
    *r0 = min_i64(first, n);
    return min_i64(first + size, n);
}

static int64_t n_runs(const struct runs *runs) {
    int64_t n = 0, r0;
    while (run_at(runs, n, &r0) > r0) {
        n++;
    }
    return n;
}

void cpu_gemv_columns(
    const struct cpu_gemv *g, int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny) {
    if (g->run_cols != NULL && ny > 1) {
        g->run_cols(n, s, x, bx, nx, y, ny);
        return;
    }
    for (int c = 0; c < ny; c++) {
        g->run(n, s[c], x, bx, nx, y[c]);
    }
}

void cpu_gemv_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const struct cpu_gemv *g = &p->k->gemv[a->type];
    const size_t size = cpu_gemv_y_size(g, b->ne[0]);
    cpu_gemv_pack(p, b, g, p->work);
    cpu_barrier(p);
    const int64_t n_batches = op->ne[2] * op->ne[3];
    struct runs runs = {op->ne[0], ROWS, p->nth, b->ne[1] == 1};
    while (runs.least > 4 && (runs.n_rows + runs.least - 1) / runs.least * n_batches < 4 * p->nth) {
        runs.least /= 2;
    }
    const int64_t n = n_runs(&runs), n_cols = b->ne[1];
    const int64_t n_passes = (n_cols + CPU_GEMV_COLS - 1) / CPU_GEMV_COLS;
    for (int64_t i = cpu_chunk_next(p); i < n * n_batches; i = cpu_chunk_next(p)) {
        int64_t r0;
        const int64_t r1 = run_at(&runs, i % n, &r0), i2 = i / n % op->ne[2], i3 = i / n / op->ne[2];
        const char *row = cpu_row_at(a, r0, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
        for (int64_t pass = 0; pass < n_passes; pass++) { // equal passes: no pass has few columns
            const int64_t c = n_cols * pass / n_passes;
            const int nc = (int) (n_cols * (pass + 1) / n_passes - c);
            float *s[CPU_GEMV_COLS];
            const void *columns[CPU_GEMV_COLS];
            for (int j = 0; j < nc; j++) {
                s[j] = (float *) (void *) cpu_row_at(op, c + j, i2, i3) + r0;
                columns[j] = (const char *) p->work + size * (size_t) ((i3 * b->ne[2] + i2) * n_cols + c + j);
            }
            cpu_gemv_columns(g, a->ne[0], s, row, a->nb[1], (int) (r1 - r0), columns, nc);
        }
    }
}

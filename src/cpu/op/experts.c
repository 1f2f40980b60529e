// SPDX-License-Identifier: MIT
// experts.c: MUL_MAT_ID and ADD_ID. MUL_MAT_ID multiplies each row of src[1] with the matrices (experts) that ids (src[2])
// select. A pair is a row of src[1] and an expert that multiplies it.
// The pairs are sorted by expert in work memory. Then one of three methods runs. The choice depends on types and shapes only, with
// batch invariance (kernels.h: is_invariant) on types and layouts only:
//   panels: experts with many pairs (kernels.h: cpu_gemm). About WAVE_PAIRS pairs, a wave, are packed at a time to bound memory.
//   The pairs of one expert may be in two or more waves. Experts with few pairs use columns, if the machine has the kernels.
//   columns: few tokens. Every row of src[1] is packed as a single column (kernels.h: cpu_gemv).
//   tiles: otherwise. Rows of src[1] are converted to the vec_dot_type of src[0]'s type. A tile is TILE_ROWS rows of an expert
//   times up to TILE_PAIRS rows of src[1].

#include "base/min.h"
#include "cpu/op/dots.h"
#include "cpu/op/gemm.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>

#define TILE_ROWS 32
#define TILE_PAIRS 16
#define WAVE_PAIRS 512

// use: index of the expert among the token's experts.
static inline int32_t expert_of(const struct ggml_tensor *ids, int64_t use, int64_t token) {
    int32_t id;
    memcpy(&id, (const char *) ids->data + (size_t) use * ids->nb[0] + (size_t) token * ids->nb[1], sizeof id);
    return id;
}

static bool experts_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    if (a == NULL || b == NULL || ids == NULL || op->type != GGML_TYPE_F32 || op->nb[0] != sizeof(float)) {
        return false;
    }
    const bool fits = ids->type == GGML_TYPE_I32 && a->ne[0] == b->ne[0] && a->ne[3] == 1 && b->ne[3] == 1 && b->ne[1] > 0 &&
                      op->ne[0] == a->ne[1] && op->ne[1] == ids->ne[0] && op->ne[2] == ids->ne[1] && op->ne[2] == b->ne[2] &&
                      ggml_nelements(ids) <= INT32_MAX; // pairs are counted in 32 bits
    return fits && cpu_dot_supports(op);
}

enum method { TILES, COLUMNS, PANELS };

static enum method method_of(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const struct cpu_gemm *g = &k->gemm[a->type];
    const bool is_plain =
        b->type == GGML_TYPE_F32 && b->nb[0] == sizeof(float) && op->nb[1] % sizeof(float) == 0 && op->nb[2] % sizeof(float) == 0;
    const bool has_columns = is_plain && k->gemv[a->type].run != NULL;
    // An expert has at most one pair per token. Without columns, the average expert must have enough pairs.
    const int64_t n_pairs = has_columns ? op->ne[2] : op->ne[1] * op->ne[2] / max_i64(a->ne[2], 1);
    if (is_plain && g->run != NULL && (k->is_invariant || n_pairs >= g->min_cols)) {
        return PANELS;
    }
    return has_columns ? COLUMNS : TILES;
}

// ---- work memory, in this order: a wave of panels; packed or converted rows of src[1]; first pair of each expert; first panel
// ---- of each expert; the pairs; the memory of each task ----

struct work {
    enum method method;
    size_t panel_size, row_size;                                     // bytes of a panel, of a packed or converted row of src[1]
    size_t panels_size, rows_size, first_size, pairs_size, own_size; // bytes of each memory area
    int64_t wave;                                                    // panels per wave
    int32_t min_pairs;                                               // an expert with fewer pairs has no panels
    const char *panels;
    const char *rows; // packed or converted rows; NULL: src[1] itself
    int32_t *first;   // [n_expert + 1]: first pair of each expert
    int32_t *panel;   // [n_expert + 1]: first panel of each expert
    int32_t *pairs;   // [n_used * n_token]: n_used * token + use, sorted by expert
    char *own;        // this task's gathered rows or expert panels
};

static struct work work_for(enum method method, const struct cpu_kernels *k, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n = a->ne[0], n_pairs = op->ne[1] * op->ne[2];
    struct work w = {.method = method, .min_pairs = INT32_MAX};
    w.first_size = cpu_gemm_lines((size_t) (a->ne[2] + 1) * sizeof *w.first);
    w.pairs_size = cpu_gemm_lines((size_t) n_pairs * sizeof *w.pairs);
    if (w.method == PANELS) {
        const struct cpu_gemm *g = &k->gemm[a->type];
        const int64_t most = n_pairs / g->nr + a->ne[2];
        w.wave = min_i64(most, WAVE_PAIRS / g->nr);
        w.panel_size = cpu_gemm_y_size(g, n);
        w.panels_size = w.panel_size * (size_t) w.wave;
        w.own_size = cpu_gemm_x_size(g, n) * CPU_GEMM_X_PANELS;
        w.min_pairs = k->gemv[a->type].run != NULL ? g->min_cols : 1;
    }
    if (w.method == COLUMNS || (w.method == PANELS && w.min_pairs > 1)) {
        w.row_size = cpu_gemv_y_size(&k->gemv[a->type], n);
        w.rows_size = w.row_size * (size_t) ggml_nrows(b);
    } else if (w.method == TILES) {
        w.row_size = ggml_row_size(cpu_dot_type(op), n);
        w.rows_size = cpu_dot_is_ready(op) ? 0 : cpu_gemm_lines(w.row_size * (size_t) ggml_nrows(b));
        w.own_size = cpu_gemm_lines(w.row_size * TILE_PAIRS);
    }
    return w;
}

static struct work work_of(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    return work_for(method_of(k, op), k, op);
}

static size_t total_size(const struct work *w, int tasks) {
    return w->panels_size + w->rows_size + w->own_size * (size_t) tasks + 2 * w->first_size + w->pairs_size;
}

// Suffices for all tables of kernels.
static size_t work_size(const struct ggml_tensor *op, int tasks) {
    const struct cpu_kernels *const tables[] = {&cpu_kernels_best, &cpu_kernels_portable, &cpu_kernels_invariant};
    size_t most = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const struct work w = work_of(tables[i], op);
        most = max_size(most, total_size(&w, tasks));
    }
    return most;
}

// An op with fewer pairs or fewer experts may use another method, so the bound covers all methods.
static size_t work_bound(const struct ggml_tensor *op, int tasks) {
    const struct cpu_kernels *k = &cpu_kernels_best;
    const enum ggml_type type = op->src[0]->type;
    size_t most = work_size(op, tasks);
    for (enum method method = TILES; method <= PANELS; method++) {
        if ((method == PANELS && k->gemm[type].run == NULL) || (method == COLUMNS && k->gemv[type].run == NULL)) {
            continue;
        }
        const struct work w = work_for(method, k, op);
        most = max_size(most, total_size(&w, tasks));
    }
    return most;
}

static struct work work_open(const struct cpu_params *p, const struct ggml_tensor *op) {
    struct work w = work_of(p->k, op);
    char *at = p->work;
    w.panels = at;
    at += w.panels_size;
    w.rows = w.rows_size > 0 ? at : NULL;
    at += w.rows_size;
    w.first = (int32_t *) (void *) at;
    w.panel = (int32_t *) (void *) (at + w.first_size);
    w.pairs = (int32_t *) (void *) (at + 2 * w.first_size);
    w.own = at + 2 * w.first_size + w.pairs_size + w.own_size * (size_t) p->ith;
    return w;
}

// ---- pairs ----

// Sorts the pairs by expert. The pairs of an expert keep the order of tokens. If an expert index is out of range, reports an
// error and leaves all experts without pairs.
static void sort_pairs(const struct cpu_params *p, const struct ggml_tensor *op, struct work *w) {
    const struct ggml_tensor *ids = op->src[2];
    const int64_t n_expert = op->src[0]->ne[2], n_used = ids->ne[0], n_token = ids->ne[1];
    memset(w->first, 0, (size_t) (n_expert + 1) * sizeof *w->first);
    for (int64_t t = 0; t < n_token; t++) {
        for (int64_t u = 0; u < n_used; u++) {
            const int32_t id = expert_of(ids, u, t);
            if (id < 0 || id >= n_expert) {
                cpu_fail(p, "%s: token %" PRId64 " selects expert %d, there are %" PRId64 " experts", op->name, t, id, n_expert);
                memset(w->first, 0, (size_t) (n_expert + 1) * sizeof *w->first);
                memset(w->panel, 0, (size_t) (n_expert + 1) * sizeof *w->panel);
                return;
            }
            w->first[id]++;
        }
    }
    const int32_t nr = w->method == PANELS ? p->k->gemm[op->src[0]->type].nr : 1;
    int32_t sum = 0, panels = 0;
    // first[e] becomes the end of expert e's pairs. The next loop decrements first[e] to the start.
    for (int64_t e = 0; e <= n_expert; e++) {
        const int32_t n = e < n_expert ? w->first[e] : 0;
        w->panel[e] = panels;
        panels += n < w->min_pairs ? 0 : (n + nr - 1) / nr;
        sum += n;
        w->first[e] = sum;
    }
    for (int64_t i = n_used * n_token; i-- > 0;) {
        w->pairs[--w->first[expert_of(ids, i % n_used, i / n_used)]] = (int32_t) i;
    }
}

// row_of returns the index of the pair's row in src[1], source_row its address.
static int64_t row_of(const struct ggml_tensor *op, int32_t pair) {
    return pair / op->ne[1] * op->src[1]->ne[1] + pair % op->ne[1] % op->src[1]->ne[1];
}
static const char *source_row(const struct ggml_tensor *op, int32_t pair) {
    return cpu_row_at(op->src[1], pair % op->ne[1] % op->src[1]->ne[1], pair / op->ne[1], 0);
}
static float *result_row(const struct ggml_tensor *op, int32_t pair) {
    return (float *) (void *) cpu_row_at(op, pair % op->ne[1], pair / op->ne[1], 0);
}

// ---- panels ----

// Packs this task's share of panels i0 .. i1 - 1 of columns.
static void pack_wave(const struct cpu_params *p, const struct ggml_tensor *op, const struct work *w, int64_t i0, int64_t i1) {
    const struct cpu_gemm *g = &p->k->gemm[op->src[0]->type];
    int64_t e = 0; // expert of panel i
    for (int64_t i = i0 + cpu_chunk_next(p); i < i1; i = i0 + cpu_chunk_next(p)) {
        while (i >= w->panel[e + 1]) {
            e++;
        }
        const int32_t first = w->first[e] + (int32_t) (i - w->panel[e]) * g->nr, left = w->first[e + 1] - first;
        const int n = min_int(left, g->nr);
        const float *cols[CPU_GEMM_NR];
        for (int c = 0; c < n; c++) {
            cols[c] = (const float *) (const void *) source_row(op, w->pairs[first + c]);
        }
        g->pack_y(p->k, op->src[0]->ne[0], (char *) p->work + (size_t) (i - i0) * w->panel_size, cols, n);
    }
}

// Rows r0 .. r1 - 1 of expert e.
struct slab {
    int64_t e, r0, r1;
};

// Multiplies a slab with panels i[0] .. i[1] - 1 of its expert. first_packed: index of the panel at the start of w->panels,
// which is the first panel of the wave.
static void slab_multiply_panels(const struct cpu_params *p, struct ggml_tensor *op, const struct work *w, const struct slab *s,
    const int64_t i[2], int64_t first_packed) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t e = s->e, r0 = s->r0, r1 = s->r1, i0 = i[0], i1 = i[1];
    const struct cpu_gemm *g = &p->k->gemm[a->type];
    const int64_t n = a->ne[0];
    const size_t x_size = cpu_gemm_x_size(g, n);
    const bool reads_rows = cpu_gemm_has_rows(g, n, (i1 - i0) * g->nr);
    for (int64_t r = r0, j = 0; r < r1; r += g->mr, j++) {
        if (reads_rows && r1 - r >= g->mr) {
            continue;
        }
        g->pack_x(n, w->own + x_size * (size_t) j, cpu_row_at(a, r, e, 0), a->nb[1], r1 - r < g->mr ? (int) (r1 - r) : g->mr);
    }
    for (int64_t k = i0, step = 1; k < i1; k += step) {
        const int32_t *pairs = w->pairs + w->first[e] + (k - w->panel[e]) * g->nr;
        const int64_t left = w->pairs + w->first[e + 1] - pairs;
        if (reads_rows && (r1 - r0) % g->mr == 0) {
            step = cpu_gemm_rows_panels(g, i1 - k);
        }
        const int nc = (int) min_i64(left, step * g->nr);
        for (int64_t r = r0, j = 0; r < r1; r += g->mr, j++) {
            const int nr = r1 - r < g->mr ? (int) (r1 - r) : g->mr;
            const char *y = w->panels + w->panel_size * (size_t) (k - first_packed);
            float out[CPU_GEMM_MR * CPU_GEMM_NR];
            if (reads_rows && nr == g->mr) {
                g->rows.run(n, out, g->mr, cpu_row_at(a, r, e, 0), a->nb[1], y, nc);
            } else {
                g->run(n, out, g->mr, w->own + x_size * (size_t) j, nr, y, nc);
            }
            for (int c = 0; c < nc; c++) {
                memcpy(result_row(op, pairs[c]) + r, out + c * g->mr, (size_t) nr * sizeof(float));
            }
        }
    }
}

// ---- columns, tiles ----

static void convert_rows(const struct cpu_params *p, const struct ggml_tensor *op, const struct work *w) {
    const struct ggml_tensor *b = op->src[1];
    const enum ggml_type type = cpu_dot_type(op);
    float buf[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, b); cpu_piece_next(&it);) {
        const int64_t ir = it.at.i2 * b->ne[1] + it.at.i1;
        char *to = (char *) p->work + (size_t) ir * w->row_size + ggml_row_size(type, it.i0);
        p->k->traits[type].from_float(cpu_row_load(p->k, b, cpu_row(b, it.at), it.i0, it.n, buf), to, it.n);
    }
}

// With several columns, few rows at a time, so that the rows stay in a cache for all columns.
static void slab_multiply_columns(const struct cpu_params *p, struct ggml_tensor *op, const struct work *w,
    const struct slab *slab, const int32_t *pairs, int n) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t n_rows = n == 1 ? slab->r1 - slab->r0 : TILE_ROWS;
    for (int64_t r = slab->r0; r < slab->r1; r += n_rows) {
        const char *row = cpu_row_at(a, r, slab->e, 0);
        const int nr = (int) min_i64(slab->r1 - r, n_rows);
        for (int c = 0; c < n; c += CPU_GEMV_COLS) {
            const int nc = min_int(n - c, CPU_GEMV_COLS);
            float *s[CPU_GEMV_COLS];
            const void *columns[CPU_GEMV_COLS];
            for (int j = 0; j < nc; j++) {
                s[j] = result_row(op, pairs[c + j]) + r;
                columns[j] = w->rows + w->row_size * (size_t) row_of(op, pairs[c + j]);
            }
            cpu_gemv_columns(&p->k->gemv[a->type], a->ne[0], s, row, a->nb[1], nr, columns, nc);
        }
    }
}

static void slab_multiply_tile(const struct cpu_params *p, struct ggml_tensor *op, const struct work *w, const struct slab *slab,
    const int32_t *pairs, int n) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t r0 = slab->r0, r1 = slab->r1;
    const char *cols = w->own;
    float out[TILE_PAIRS * TILE_ROWS];
    for (int c = 0; c < n; c++) {
        const char *row = w->rows != NULL ? w->rows + w->row_size * (size_t) row_of(op, pairs[c]) : source_row(op, pairs[c]);
        if (n == 1) {
            cols = row;
        } else {
            memcpy(w->own + (size_t) c * w->row_size, row, w->row_size);
        }
    }
    cpu_dots(
        p->k, a->type, a->ne[0], out, TILE_ROWS, cpu_row_at(a, r0, slab->e, 0), a->nb[1], (int) (r1 - r0), cols, w->row_size, n);
    for (int c = 0; c < n; c++) {
        memcpy(result_row(op, pairs[c]) + r0, out + c * TILE_ROWS, (size_t) (r1 - r0) * sizeof(float));
    }
}

// Returns the rows of a tile. With columns, tiles with more rows are faster (gemv.c). So tiles grow while there are more than 8
// tiles per task.
static int64_t rows_of_tile(const struct cpu_params *p, const struct ggml_tensor *op, const struct work *w) {
    int64_t rows = TILE_ROWS;
    while (w->method != TILES && rows < 1024 && op->ne[0] * op->ne[1] / rows > 8 * p->nth) {
        rows *= 2;
    }
    return rows;
}

// Returns the number of pairs of an expert without panels, 0 for an expert with panels.
static int32_t pairs_of(const struct work *w, int64_t e) {
    return w->panel[e] < w->panel[e + 1] ? 0 : w->first[e + 1] - w->first[e];
}

// Multiplies the experts without panels. Returns the number of tiles, and in *next the first number of the chunk counter that this
// task has not used.
static int64_t run_tiles(const struct cpu_params *p, struct ggml_tensor *op, const struct work *w, int64_t *next) {
    const int64_t n_expert = op->src[0]->ne[2], ne0 = op->ne[0], rows = rows_of_tile(p, op, w);
    const int64_t n_slabs = (ne0 + rows - 1) / rows;
    int64_t e = 0, e_start = 0, i; // expert of tile i, its first tile
    for (i = cpu_chunk_next(p);; i = cpu_chunk_next(p)) {
        for (; e < n_expert; e++) {
            const int64_t e_tiles = n_slabs * ((pairs_of(w, e) + TILE_PAIRS - 1) / TILE_PAIRS);
            if (i < e_start + e_tiles) {
                break;
            }
            e_start += e_tiles;
        }
        if (e == n_expert) {
            *next = i;
            return e_start;
        }
        const int64_t r0 = (i - e_start) % n_slabs * rows;
        const struct slab slab = {e, r0, min_i64(ne0, r0 + rows)};
        const int64_t c0 = w->first[e] + (i - e_start) / n_slabs * TILE_PAIRS;
        const int64_t n = min_i64(w->first[e + 1] - c0, TILE_PAIRS);
        (w->method == TILES ? slab_multiply_tile : slab_multiply_columns)(p, op, w, &slab, w->pairs + c0, (int) n);
    }
}

// ---- panels and columns ----

// True if an expert has pairs but no panels.
static bool has_columns(const struct ggml_tensor *op, const struct work *w) {
    for (int64_t e = 0; e < op->src[0]->ne[2]; e++) {
        if (pairs_of(w, e) > 0) {
            return true;
        }
    }
    return false;
}

static void run_panels(const struct cpu_params *p, struct ggml_tensor *op, const struct work *w) {
    const struct cpu_gemm *g = &p->k->gemm[op->src[0]->type];
    BERTH_ASSERT(g->mr <= CPU_GEMM_MR && g->nr <= CPU_GEMM_NR);
    const int64_t n_expert = op->src[0]->ne[2], ne0 = op->ne[0], rows = (int64_t) CPU_GEMM_X_PANELS * g->mr;
    const int64_t n_slabs = (ne0 + rows - 1) / rows, n_panels = w->panel[n_expert];
    if (has_columns(op, w)) {
        cpu_gemv_pack(p, op->src[1], &p->k->gemv[op->src[0]->type], (char *) p->work + w->panels_size);
    }
    int64_t e0 = 0, i0 = 0; // first expert and panel of the wave
    do {
        const int64_t i1 = min_i64(n_panels, i0 + w->wave);
        pack_wave(p, op, w, i0, i1);
        cpu_barrier(p);
        while (e0 < n_expert && w->panel[e0 + 1] <= i0) {
            e0++;
        }
        int64_t e1 = e0;
        while (e1 < n_expert && w->panel[e1] < i1) {
            e1++;
        }
        // The first wave includes the experts without panels.
        int64_t n_tiles = 0, next = 0;
        if (i0 == 0) {
            n_tiles = run_tiles(p, op, w, &next);
        } else {
            next = cpu_chunk_next(p);
        }
        for (; next < n_tiles + (e1 - e0) * n_slabs; next = cpu_chunk_next(p)) {
            const int64_t i = next - n_tiles, e = e0 + i / n_slabs, r0 = i % n_slabs * rows;
            const int64_t part[2] = {max_i64(i0, w->panel[e]), min_i64(i1, w->panel[e + 1])};
            if (part[0] < part[1]) {
                slab_multiply_panels(p, op, w, &(struct slab){e, r0, min_i64(ne0, r0 + rows)}, part, i0);
            }
        }
        i0 = i1;
        if (i0 < n_panels) {
            cpu_barrier(p);
        }
    } while (i0 < n_panels);
}

static void experts_run(const struct cpu_params *p, struct ggml_tensor *op) {
    struct work w = work_open(p, op);
    if (w.method == COLUMNS) {
        cpu_gemv_pack(p, op->src[1], &p->k->gemv[op->src[0]->type], p->work);
    } else if (w.method == TILES && w.rows != NULL) {
        convert_rows(p, op, &w);
    }
    if (p->ith == 0) {
        sort_pairs(p, op, &w);
    }
    cpu_barrier(p);
    if (w.method == PANELS) {
        run_panels(p, op, &w);
    } else {
        int64_t next;
        run_tiles(p, op, &w, &next);
    }
}

// ---- ADD_ID: result = row of src[0] + the row of src[1] that ids select ----

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
        const int32_t id = expert_of(ids, it.at.i1, it.at.i2);
        if (id < 0 || id >= b->ne[1]) {
            cpu_fail(p, "%s: id %d is out of range: src[1] has %" PRId64 " rows", op->name, id, b->ne[1]);
            return;
        }
        char *row = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_a);
        const float *y = cpu_row_load(p->k, b, cpu_row_at(b, id, 0, 0), it.i0, it.n, buf_b);
        float *z = cpu_row_target(op, row, it.i0, buf_z);
        p->k->add(it.n, z, x, y);
        cpu_row_store(p->k, op, row, it.i0, it.n, z);
    }
}

const struct cpu_op_entry cpu_ops_experts[] = {
    {GGML_OP_MUL_MAT_ID, {.supports = experts_supports,
                             .n_tasks = cpu_dot_tasks,
                             .work_size = work_size,
                             .work_bound = work_bound,
                             .run = experts_run,
                             .uses = CPU_USE_DOT}},
    {GGML_OP_ADD_ID, {.supports = add_id_supports, .run = add_id_run, .uses = CPU_USE_ADD | CPU_USE_CONVERT}},
    CPU_OPS_END,
};

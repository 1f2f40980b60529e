// SPDX-License-Identifier: MIT
// moe.c: products that are not MUL_MAT: MUL_MAT_ID, where each row of src[1] goes through the matrices (experts) that ids name
// for its token, its companion ADD_ID, and OUT_PROD.
//
// MUL_MAT_ID: rows of src[1] are brought to the type src[0]'s dot products take, and the (row, expert) pairs are sorted by
// expert, all in work memory; then tasks take tiles of one expert: TILE_ROWS of its rows times up to TILE_PAIRS rows of src[1],
// which are gathered so that the micro-kernels find them at one stride.

#include "cpu/op/dots.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>

#define TILE_ROWS 32
#define TILE_PAIRS 16
#define TASK_FLOPS 131072

static enum ggml_type dot_type(const struct ggml_tensor *op) {
    return cpu_kernels_best.traits[op->src[0]->type].vec_dot_type;
}

// src[1] can be fed to the dot product as it is.
static bool is_ready(const struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    return b->type == dot_type(op) && b->nb[0] == ggml_type_size(b->type);
}

static bool id_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    if (a == NULL || b == NULL || ids == NULL || op->type != GGML_TYPE_F32 || op->nb[0] != sizeof(float)) {
        return false;
    }
    const struct cpu_kernels *k = &cpu_kernels_best;
    const bool fits = ids->type == GGML_TYPE_I32 && a->ne[0] == b->ne[0] && a->ne[3] == 1 && b->ne[3] == 1 && b->ne[1] > 0 &&
                      op->ne[0] == a->ne[1] && op->ne[1] == ids->ne[0] && op->ne[2] == ids->ne[1] && op->ne[2] == b->ne[2];
    return fits && k->traits[a->type].vec_dot != NULL && a->nb[0] == ggml_type_size(a->type) &&
           (is_ready(op) || (cpu_is_float(b->type) && k->traits[dot_type(op)].from_float != NULL));
}

static int id_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double n = (double) ggml_nelements(op) * (double) op->src[0]->ne[0] / TASK_FLOPS;
    return n < 1 ? 1 : n < n_threads ? (int) n : n_threads;
}

// ---- work memory: converted rows, first pair of each expert, pairs by expert, a tile of gathered rows a task ----

struct id_work {
    size_t row_size; // of src[1] in dot_type
    size_t rows_size, first_size, pairs_size, tile_size;
    const char *rows; // NULL: src[1] itself
    int32_t *first;   // [n_expert + 1]
    int32_t *pairs;   // [n_used * n_token]: n_used * token + use
};

static size_t lines(size_t size) {
    return (size + 63) / 64 * 64;
}

static struct id_work id_work(const struct ggml_tensor *op) {
    struct id_work w = {.row_size = ggml_row_size(dot_type(op), op->src[1]->ne[0])};
    w.rows_size      = is_ready(op) ? 0 : lines(w.row_size * (size_t) ggml_nrows(op->src[1]));
    w.first_size     = lines((size_t) (op->src[0]->ne[2] + 1) * sizeof *w.first);
    w.pairs_size     = lines((size_t) (op->ne[1] * op->ne[2]) * sizeof *w.pairs);
    w.tile_size      = lines(w.row_size * TILE_PAIRS);
    return w;
}

static size_t id_work_size(const struct ggml_tensor *op, int n_tasks) {
    const struct id_work w = id_work(op);
    return w.rows_size + w.first_size + w.pairs_size + w.tile_size * (size_t) n_tasks;
}

static void id_convert(const struct cpu_params *p, const struct ggml_tensor *op, const struct id_work *w) {
    const struct ggml_tensor *b = op->src[1];
    const enum ggml_type type   = dot_type(op);
    float buf[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, b); cpu_piece_next(&it);) {
        const int64_t ir = it.at.i2 * b->ne[1] + it.at.i1;
        char *to         = (char *) p->work + (size_t) ir * w->row_size + ggml_row_size(type, it.i0);
        p->k->traits[type].from_float(cpu_row_load(p->k, b, cpu_row(b, it.at), it.i0, it.n, buf), to, it.n);
    }
}

static int32_t id_of(const struct ggml_tensor *ids, int64_t use, int64_t token) {
    int32_t id;
    memcpy(&id, (const char *) ids->data + (size_t) use * ids->nb[0] + (size_t) token * ids->nb[1], sizeof id);
    return id;
}

// Counts, sums, places: pairs of an expert keep the order of tokens. An expert that is not there leaves no pairs at all.
static void id_sort(const struct cpu_params *p, const struct ggml_tensor *op, struct id_work *w) {
    const struct ggml_tensor *ids = op->src[2];
    const int64_t n_expert = op->src[0]->ne[2], n_used = ids->ne[0], n_token = ids->ne[1];
    memset(w->first, 0, (size_t) (n_expert + 1) * sizeof *w->first);
    for (int64_t t = 0; t < n_token; t++) {
        for (int64_t u = 0; u < n_used; u++) {
            const int32_t id = id_of(ids, u, t);
            if (id < 0 || id >= n_expert) {
                cpu_fail(p, "%s: token %" PRId64 " wants expert %d of %" PRId64, op->name, t, id, n_expert);
                memset(w->first, 0, (size_t) (n_expert + 1) * sizeof *w->first);
                return;
            }
            w->first[id]++;
        }
    }
    int32_t sum = 0;
    for (int64_t e = 0; e <= n_expert; e++) { // first[e]: where expert e ends; placing from the back makes it where it starts
        sum += e < n_expert ? w->first[e] : 0;
        w->first[e] = sum;
    }
    for (int64_t i = n_used * n_token; i-- > 0;) {
        w->pairs[--w->first[id_of(ids, i % n_used, i / n_used)]] = (int32_t) i;
    }
}

// ---- tiles ----

static const char *id_row(const struct ggml_tensor *op, const struct id_work *w, int32_t pair) {
    const struct ggml_tensor *b = op->src[1];
    const int64_t use = pair % op->ne[1], token = pair / op->ne[1], i1 = use % b->ne[1];
    return w->rows != NULL ? w->rows + (size_t) (token * b->ne[1] + i1) * w->row_size : cpu_row_at(b, i1, token, 0);
}

// Rows r0 to r1 of expert e for n pairs.
static void id_tile(const struct cpu_params *p, struct ggml_tensor *op, const struct id_work *w, int64_t e, int64_t r0,
    int64_t r1, const int32_t *pairs, int n, char *gathered) {
    const struct ggml_tensor *a = op->src[0];
    const char *rows = cpu_row_at(a, 0, e, 0), *cols = id_row(op, w, pairs[0]);
    float out[TILE_PAIRS * TILE_ROWS];
    for (int c = 0; c < n && n > 1; c++) {
        memcpy(gathered + (size_t) c * w->row_size, id_row(op, w, pairs[c]), w->row_size);
        cols = gathered;
    }
    cpu_dots(
        p->k, a->type, a->ne[0], out, TILE_ROWS, rows + (size_t) r0 * a->nb[1], a->nb[1], (int) (r1 - r0), cols, w->row_size, n);
    for (int c = 0; c < n; c++) {
        char *to = cpu_row_at(op, pairs[c] % op->ne[1], pairs[c] / op->ne[1], 0);
        memcpy(to + (size_t) r0 * sizeof(float), out + c * TILE_ROWS, (size_t) (r1 - r0) * sizeof(float));
    }
}

static void id_run(const struct cpu_params *p, struct ggml_tensor *op) {
    struct id_work w = id_work(op);
    char *at         = p->work;
    w.rows           = is_ready(op) ? NULL : at;
    w.first          = (int32_t *) (void *) (at + w.rows_size);
    w.pairs          = (int32_t *) (void *) (at + w.rows_size + w.first_size);
    char *gathered   = at + w.rows_size + w.first_size + w.pairs_size + w.tile_size * (size_t) p->ith;
    if (w.rows != NULL) {
        id_convert(p, op, &w);
    }
    if (p->ith == 0) {
        id_sort(p, op, &w);
    }
    cpu_barrier(p);
    const int64_t n_expert = op->src[0]->ne[2], ne0 = op->ne[0];
    const int64_t n_rows = (ne0 + TILE_ROWS - 1) / TILE_ROWS;
    int64_t e = 0, e_start = 0, e_tiles = 0; // the expert that tile i belongs to: i only grows
    for (int64_t i = cpu_chunk_next(p); e < n_expert; i = cpu_chunk_next(p)) {
        for (; e < n_expert; e++) {
            e_tiles = n_rows * ((w.first[e + 1] - w.first[e] + TILE_PAIRS - 1) / TILE_PAIRS);
            if (i < e_start + e_tiles) {
                break;
            }
            e_start += e_tiles;
        }
        if (e < n_expert) {
            const int64_t r0 = (i - e_start) % n_rows * TILE_ROWS, r1 = ne0 < r0 + TILE_ROWS ? ne0 : r0 + TILE_ROWS;
            const int64_t c0 = w.first[e] + (i - e_start) / n_rows * TILE_PAIRS;
            const int64_t n  = w.first[e + 1] - c0 < TILE_PAIRS ? w.first[e + 1] - c0 : TILE_PAIRS;
            id_tile(p, op, &w, e, r0, r1, w.pairs + c0, (int) n, gathered);
        }
    }
}

// ---- ADD_ID: a row of src[1], named by ids, to each row of src[0] ----

static bool add_id_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    return a != NULL && b != NULL && ids != NULL && cpu_is_float(a->type) && cpu_is_float(b->type) && cpu_is_float(op->type) &&
           ids->type == GGML_TYPE_I32 && ggml_are_same_shape(a, op) && a->ne[0] == b->ne[0] && a->ne[1] == ids->ne[0] &&
           a->ne[2] == ids->ne[1];
}

static void add_id_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    float buf_a[CPU_PIECE], buf_b[CPU_PIECE], buf_z[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        const int32_t id = id_of(ids, it.at.i1, it.at.i2);
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
    return fits && cpu_kernels_best.to_float[a->type] != NULL && (cpu_is_float(a->type) || a->nb[0] == ggml_type_size(a->type));
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
    {GGML_OP_MUL_MAT_ID,
        {.supports = id_supports, .n_tasks = id_n_tasks, .work_size = id_work_size, .run = id_run, .uses = CPU_USE_DOT}},
    {GGML_OP_ADD_ID, {.supports = add_id_supports, .run = add_id_run, .uses = CPU_USE_ADD | CPU_USE_CONVERT}},
    {GGML_OP_OUT_PROD, {.supports = out_supports, .n_tasks = out_n_tasks, .run = out_run, .uses = CPU_USE_MAD | CPU_USE_CONVERT}},
    CPU_OPS_END,
};

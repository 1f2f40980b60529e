// SPDX-License-Identifier: MIT
// attn.c: FLASH_ATTN_EXT: softmax(scale q k + slope mask) v without storing the matrix of scores (Dao et al., arXiv 2205.14135).
// A query is the vector of one token and one head. A group is the heads of q that share a head of k and v. A unit is up to q_rows
// queries of one group. A span is a part of the keys of a unit. An item is a unit and a span.
//   1. A task computes the sums of an item in tiles of K_ROWS keys. Units of groups with many queries use panels of f32
//      (kernels.h: cpu_gemm). Other units use dot products, so that a short prompt gives the same sums as single tokens.
//   2. Per query, a task keeps the largest score m, the sum s of exp(score - m), and the sum of exp(score - m) v.
//   3. The sums of the spans of a unit are joined.
// The number of spans does not depend on the number of tasks, so results do not either. Sums are f32. Queries are rounded to the
// vec_dot_type of k's type.

#include "base/min.h"
#include "cpu/op/dots.h"
#include "cpu/op/gemm.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <float.h>
#include <math.h>

#define Q_ROWS 16    // queries per unit with dot products
#define Q_PANELS 64  // maximum queries per unit with panels
#define Q_MANY 64    // minimum queries per group for panels
#define K_ROWS 64    // keys per tile
#define SPAN_MIN 256 // a unit has at most one span per SPAN_MIN keys (rounded up)
#define N_ITEMS 16   // maximum number of items if units have several spans

struct attn {
    const struct cpu_kernels *table;
    const struct ggml_tensor *q, *k, *v, *mask, *sinks;
    const struct cpu_gemm *g; // kernel for panels; NULL: dot products
    float scale, softcap, max_bias;
    int64_t d_k, d_v, n_kv;
    int64_t q_rows;            // queries per unit
    int64_t n_heads;           // heads of q per group; 1 if k and v have different numbers of heads
    int64_t n_groups;          // groups per sequence
    int64_t n_blocks, n_units; // units per group and sequence; units in total
    int64_t n_spans, span;     // spans per unit; keys per span
    size_t q_size;             // bytes of a query in the vec_dot_type of k's type
};

static enum ggml_type dot_type(const struct attn *a) {
    return cpu_kernels_portable.traits[a->k->type].vec_dot_type;
}

static struct attn attn_of(const struct cpu_kernels *k, const struct ggml_tensor *op) {
    struct attn a = {
        .table = k,
        .q = op->src[0],
        .k = op->src[1],
        .v = op->src[2],
        .mask = op->src[3],
        .sinks = op->src[4],
        .scale = param_f32(op, 0),
        .max_bias = param_f32(op, 1),
        .softcap = param_f32(op, 2),
    };
    a.d_k = a.k->ne[0];
    a.d_v = a.v->ne[0];
    a.n_kv = a.k->ne[1];
    a.n_heads = a.k->ne[2] == a.v->ne[2] ? a.q->ne[2] / a.k->ne[2] : 1;
    a.n_groups = a.q->ne[2] / a.n_heads;
    a.g = k->gemm[GGML_TYPE_F32].run != NULL && a.n_heads * a.q->ne[1] >= Q_MANY ? &k->gemm[GGML_TYPE_F32] : NULL;
    a.q_rows = a.g != NULL ? Q_PANELS / a.g->nr * a.g->nr : Q_ROWS;
    a.n_blocks = (a.n_heads * a.q->ne[1] + a.q_rows - 1) / a.q_rows;
    a.n_units = a.n_groups * a.q->ne[3] * a.n_blocks;
    a.q_size = ggml_row_size(dot_type(&a), a.d_k);
    const int64_t max_spans = (a.n_kv + SPAN_MIN - 1) / SPAN_MIN;
    const int64_t n_spans = a.n_units > 0 ? N_ITEMS / a.n_units : 1;
    a.n_spans = max_i64(1, min_i64(n_spans, max_spans));
    a.span = (a.n_kv + a.n_spans - 1) / a.n_spans;
    if (a.softcap != 0.0f) {
        a.scale /= a.softcap;
    }
    return a;
}

static bool attn_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
    if (q == NULL || k == NULL || v == NULL || !cpu_is_float(q->type) || op->type != GGML_TYPE_F32) {
        return false;
    }
    const struct cpu_kernels *kernels = &cpu_kernels_portable;
    const enum ggml_type dot = kernels->traits[k->type].vec_dot_type;
    if (kernels->traits[k->type].vec_dot == NULL || kernels->traits[dot].from_float == NULL ||
        kernels->to_float[v->type] == NULL) {
        return false;
    }
    const bool dense = k->nb[0] == ggml_type_size(k->type) && op->nb[0] == sizeof(float) &&
                       (cpu_is_float(v->type) || v->nb[0] == ggml_type_size(v->type));
    const bool fits = q->ne[0] == k->ne[0] && cpu_dot_is_length(k->ne[0]) && k->ne[0] % ggml_blck_size(dot) == 0 &&
                      k->ne[1] == v->ne[1] && k->ne[2] > 0 && v->ne[2] > 0 && k->ne[3] > 0 && v->ne[3] > 0 &&
                      q->ne[2] % k->ne[2] == 0 && q->ne[2] % v->ne[2] == 0 && q->ne[3] % k->ne[3] == 0 &&
                      q->ne[3] % v->ne[3] == 0 && op->ne[0] == v->ne[0] && op->ne[1] == q->ne[2] && op->ne[2] == q->ne[1] &&
                      op->ne[3] == q->ne[3];
    const bool mask_fits =
        mask == NULL || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(uint16_t) && mask->ne[0] >= k->ne[1] &&
                            mask->ne[1] >= q->ne[1] && mask->ne[2] > 0 && mask->ne[3] > 0);
    return dense && fits && mask_fits &&
           (sinks == NULL || (sinks->type == GGML_TYPE_F32 && sinks->ne[0] >= q->ne[2] && ggml_nrows(sinks) > 0));
}

static int attn_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double flops = (double) ggml_nelements(op) * (double) op->src[1]->ne[1];
    const double n = flops / 65536;
    return cpu_tasks_for(n, n_threads);
}

// ---- work memory ----

// Floats of the sums of one item: [sum of exp(score - m) v: q_rows * d_v][m: q_rows][s: q_rows].
static int64_t sums_floats(const struct attn *a) {
    return (int64_t) cpu_scratch_floats(a->q_rows * (a->d_v + 2));
}

// Memory of a task after its sums: offsets in floats. The scores, [q_rows][K_ROWS], are at offset 0.
struct layout {
    int64_t rows;     // rows of q, k or v as floats
    int64_t queries;  // in vec_dot_type; with panels: as columns
    int64_t keys;     // panels of rows: the keys of a tile
    int64_t values;   // panels of rows: v transposed
    int64_t weights;  // panels of columns: weights, one column per query
    int64_t product;  // [q_rows][d_v]
    int64_t x_k, x_v; // floats of one panel of rows: keys, values
    int64_t y_k, y_v; // floats of one panel of columns: queries, weights
    int64_t end;      // floats of the memory
    float *own;       // start of the memory
};

static struct layout layout_of(const struct attn *a) {
    const struct cpu_gemm *g = a->g;
    const int64_t d = max_i64(a->d_k, a->d_v);
    struct layout r = {.rows = a->q_rows * K_ROWS};
    r.queries = r.rows + (int64_t) cpu_scratch_floats(K_ROWS * d);
    if (g == NULL) {
        r.end = r.queries + (int64_t) (cpu_gemm_lines(a->q_size * Q_ROWS) / sizeof(float));
        return r;
    }
    r.x_k = (int64_t) (cpu_gemm_x_size(g, a->d_k) / sizeof(float));
    r.x_v = (int64_t) (cpu_gemm_x_size(g, K_ROWS) / sizeof(float));
    r.y_k = (int64_t) (cpu_gemm_y_size(g, a->d_k) / sizeof(float));
    r.y_v = (int64_t) (cpu_gemm_y_size(g, K_ROWS) / sizeof(float));
    r.keys = r.queries + r.y_k * (a->q_rows / g->nr);
    r.values = r.keys + r.x_k * ((K_ROWS + g->mr - 1) / g->mr);
    r.weights = r.values + r.x_v * ((a->d_v + g->mr - 1) / g->mr);
    r.product = r.weights + r.y_v * (a->q_rows / g->nr);
    r.end = r.product + (int64_t) cpu_scratch_floats(a->q_rows * a->d_v);
    return r;
}

static int64_t task_floats(const struct attn *a) {
    return sums_floats(a) + layout_of(a).end;
}

static size_t work_size_by(const struct cpu_kernels *k, const struct ggml_tensor *op, int n_tasks) {
    const struct attn a = attn_of(k, op);
    const int64_t joined = a.n_spans > 1 ? a.n_units * a.n_spans * sums_floats(&a) : 0;
    return (size_t) (joined + task_floats(&a) * n_tasks) * sizeof(float);
}

// Suffices for the best kernels and for the portable kernels.
static size_t attn_work_size(const struct ggml_tensor *op, int n_tasks) {
    const size_t best = work_size_by(&cpu_kernels_best, op, n_tasks), plain = work_size_by(&cpu_kernels_portable, op, n_tasks);
    return max_i64(best, plain);
}

// An op with fewer queries may have more spans per unit, or use no panels. The bound covers both.
static size_t attn_work_bound(const struct ggml_tensor *op, int n_tasks) {
    const struct attn best = attn_of(&cpu_kernels_best, op), plain = attn_of(&cpu_kernels_portable, op);
    const int64_t n_spans = (best.n_kv + SPAN_MIN - 1) / SPAN_MIN, n_items = ggml_nrows(best.q) * n_spans;
    const int64_t joined = n_spans > 1 ? min_i64(n_items, N_ITEMS) * sums_floats(&best) : 0;
    const int64_t own = max_i64(task_floats(&best), task_floats(&plain));
    return (size_t) (joined + own * n_tasks) * sizeof(float);
}

struct sums {
    float *v, *m, *s; // per query: sum of exp(score - m) v; m; s
};

static struct sums sums_at(const struct attn *a, float *at) {
    return (struct sums){.v = at, .m = at + a->q_rows * a->d_v, .s = at + a->q_rows * (a->d_v + 1)};
}

// ---- a unit ----

struct unit {
    int64_t group, seq;
    int64_t first;         // first query; heads of a token are adjacent
    int n;                 // queries
    float slope[Q_PANELS]; // factor of the mask (ALiBi), per query
};

static float slope_of(const struct attn *a, int64_t h) {
    if (!(a->max_bias > 0.0f)) {
        return 1.0f;
    }
    int64_t n = 1; // largest power of two <= number of heads
    while (n * 2 <= a->q->ne[2]) {
        n *= 2;
    }
    const float m0 = powf(2.0f, -a->max_bias / (float) n), m1 = powf(2.0f, -a->max_bias / 2.0f / (float) n);
    return h < n ? powf(m0, (float) (h + 1)) : powf(m1, (float) (2 * (h - n) + 1));
}

static struct unit unit_of(const struct attn *a, int64_t i) {
    struct unit u = {
        .group = i / a->n_blocks % a->n_groups, .seq = i / a->n_blocks / a->n_groups, .first = i % a->n_blocks * a->q_rows};
    const int64_t n = a->n_heads * a->q->ne[1] - u.first;
    u.n = (int) min_i64(n, a->q_rows);
    for (int j = 0; j < u.n; j++) {
        u.slope[j] = slope_of(a, u.group * a->n_heads + (u.first + j) % a->n_heads);
    }
    return u;
}

static int64_t unit_head(const struct attn *a, const struct unit *u, int j) {
    return u->group * a->n_heads + (u->first + j) % a->n_heads;
}

static int64_t unit_token(const struct attn *a, const struct unit *u, int j) {
    return (u->first + j) / a->n_heads;
}

// The elements of a mask row for a tile, as floats. Cached, because heads of a token often share a row.
struct bias {
    const char *row;
    bool is_zero; // all elements are 0; v is not set
    float v[K_ROWS];
};

static const char *mask_row(const struct attn *a, const struct unit *u, int j) {
    return cpu_row_at(a->mask, unit_token(a, u, j), unit_head(a, u, j) % a->mask->ne[2], u->seq % a->mask->ne[3]);
}

// Loads the mask of query j for keys k0 .. k0+n-1. If b already holds this row, does nothing.
static void bias_load(const struct attn *a, const struct unit *u, int j, int64_t k0, int n, struct bias *b) {
    const char *row = mask_row(a, u, j);
    if (row == b->row) {
        return;
    }
    const uint16_t *mask_f16 = (const uint16_t *) (const void *) row + k0;
    unsigned bits = 0;
    for (int i = 0; i < n; i++) {
        bits |= mask_f16[i];
    }
    b->row = row;
    b->is_zero = (bits & 0x7fff) == 0;
    if (!b->is_zero) {
        a->table->to_float[GGML_TYPE_F16](mask_f16, b->v, n);
    }
}

// Scales, caps and masks the scores of query j with n keys in place. If all scores become -inf, returns false.
static bool scores_finish(const struct attn *a, const struct unit *u, int j, const struct bias *b, int n, float *score) {
    a->table->scale(n, score, score, a->scale, 0.0f);
    if (a->softcap != 0.0f) {
        a->table->tanh(n, score, score);
        a->table->scale(n, score, score, a->softcap, 0.0f);
    }
    if (a->mask == NULL || b->is_zero) {
        return true;
    }
    const float slope = u->slope[j];
    int any = 0;
    for (int i = 0; i < n; i++) { // a masked key is ignored, even if its score is NaN or infinity
        const float v = score[i] + slope * b->v[i];
        score[i] = b->v[i] == -INFINITY ? -INFINITY : v;
    }
    for (int i = 0; i < n; i++) {
        any |= score[i] != -INFINITY;
    }
    return any != 0;
}

// Updates the sums of query j for n new scores and replaces each score by exp(score - m). The caller adds the weighted v.
static void scores_weigh(const struct attn *a, struct sums *t, int j, int n, float *score) {
    const float max = a->table->max(n, score);
    if (max > t->m[j]) {
        const float down = expf(t->m[j] - max); // 0 if m is -inf
        t->m[j] = max;
        t->s[j] *= down;
        a->table->scale(a->d_v, t->v + j * a->d_v, t->v + j * a->d_v, down, 0.0f);
    }
    t->s[j] += (float) a->table->exp_sum(n, score, score, t->m[j] == -INFINITY ? 0.0f : t->m[j]);
}

struct rows {
    const float *at;
    int64_t ld; // floats between rows
};

// Returns n rows as floats. The result may point to `rows` or to buf.
static struct rows rows_load(const struct attn *a, const struct ggml_tensor *t, const char *rows, int n, float *buf) {
    if (cpu_is_f32_dense(t) && t->nb[1] % sizeof(float) == 0) {
        return (struct rows){(const float *) (const void *) rows, (int64_t) (t->nb[1] / sizeof(float))};
    }
    const int64_t d = t->ne[0];
    for (int i = 0; i < n; i++) {
        const float *row = cpu_row_load(a->table, t, rows + (size_t) i * t->nb[1], 0, d, buf + i * d);
        if (row != buf + i * d) {
            memcpy(buf + i * d, row, (size_t) d * sizeof *row);
        }
    }
    return (struct rows){buf, d};
}

static const char *query_at(const struct attn *a, const struct unit *u, int j) {
    return cpu_row_at(a->q, unit_token(a, u, j), unit_head(a, u, j), u->seq);
}

static void query_load(const struct attn *a, const struct unit *u, int j, float *buf, char *to) {
    const float *row = cpu_row_load(a->table, a->q, query_at(a, u, j), 0, a->d_k, buf);
    a->table->traits[dot_type(a)].from_float(row, to, a->d_k);
}

// ---- panels ----

// Queries are rounded to the vec_dot_type of k's type first, as in units with dot products.
static void queries_pack(const struct attn *a, const struct unit *u, const struct layout *r) {
    float *own = r->own;
    const struct cpu_gemm *g = a->g;
    const enum ggml_type type = dot_type(a);
    char *rounded = (char *) (own + r->keys); // the panels of keys are not in use yet
    float *panel = own + r->queries;
    for (int j = 0; j < u->n; j += g->nr, panel += r->y_k) {
        const int n = min_int(u->n - j, g->nr);
        const float *cols[CPU_GEMM_NR];
        for (int i = 0; i < n; i++) {
            float *row = own + r->rows + i * a->d_k;
            cols[i] = row;
            if (type == GGML_TYPE_F32) {
                cols[i] = cpu_row_load(a->table, a->q, query_at(a, u, j + i), 0, a->d_k, row);
            } else {
                query_load(a, u, j + i, row, rounded);
                a->table->to_float[type](rounded, row, a->d_k);
            }
        }
        g->pack_y(a->table, a->d_k, panel, cols, n);
    }
}

struct panels {
    const float *at;
    int64_t floats; // floats of one panel
    int64_t n;      // rows or columns of all panels
};

// s[row + column * ld] = dot(row, column), for rows and columns of n elements.
static void panels_run(const struct cpu_gemm *g, int64_t n, float *s, int64_t ld, struct panels x, struct panels y) {
    for (int64_t j = 0; j < y.n; j += g->nr, y.at += y.floats) {
        const float *at = x.at;
        for (int64_t i = 0; i < x.n; i += g->mr, at += x.floats) {
            g->run(n, s + i + j * ld, ld, at, (int) min_i64(x.n - i, g->mr), y.at, (int) min_i64(y.n - j, g->nr));
        }
    }
}

static void scores_by_panels(const struct attn *a, const struct unit *u, const struct layout *r, const char *keys, int n) {
    const struct cpu_gemm *g = a->g;
    float *own = r->own;
    const struct rows x = rows_load(a, a->k, keys, n, own + r->rows);
    for (int i = 0; i < n; i += g->mr) {
        g->pack_x(
            a->d_k, own + r->keys + r->x_k * (i / g->mr), x.at + i * x.ld, (size_t) x.ld * sizeof *x.at, min_int(n - i, g->mr));
    }
    panels_run(
        g, a->d_k, own, K_ROWS, (struct panels){own + r->keys, r->x_k, n}, (struct panels){own + r->queries, r->y_k, u->n});
}

static bool are_finite(int64_t n, const float *x) {
    int n_nonfinite = 0;
    for (int64_t i = 0; i < n; i++) {
        n_nonfinite |= !(fabsf(x[i]) <= FLT_MAX);
    }
    return n_nonfinite == 0;
}

// Adds n weighted rows of v to the sums. If an element of v is not finite, adds nothing and returns false: 0 times that element
// would be NaN. The caller then uses the kernel `mix`, which skips rows with weight 0.
static bool values_by_panels(
    const struct attn *a, const struct unit *u, const struct layout *r, struct sums *t, const struct rows *v, int n) {
    const struct cpu_gemm *g = a->g;
    for (int i = 0; i < n; i++) {
        if (!are_finite(a->d_v, v->at + i * v->ld)) {
            return false;
        }
    }
    float *own = r->own;
    cpu_gemm_pack_transposed(n, (char *) (own + r->values), (size_t) r->x_v * sizeof(float), g->mr, (const char *) v->at,
        (size_t) v->ld * sizeof(float), a->d_v);
    for (int j = 0; j < u->n; j += g->nr) {
        const int n_cols = min_int(u->n - j, g->nr);
        const float *cols[CPU_GEMM_NR];
        for (int i = 0; i < n_cols; i++) {
            cols[i] = own + (j + i) * K_ROWS;
        }
        g->pack_y(a->table, n, own + r->weights + r->y_v * (j / g->nr), cols, n_cols);
    }
    const struct panels x = {own + r->values, r->x_v, a->d_v}, y = {own + r->weights, r->y_v, u->n};
    panels_run(g, n, own + r->product, a->d_v, x, y);
    a->table->add(u->n * a->d_v, t->v, t->v, own + r->product);
    return true;
}

// ---- tiles of keys ----

// True if the mask shows a key of k0 .. k0+n-1 to a query of the unit.
static bool is_visible(const struct attn *a, const struct unit *u, int64_t k0, int n) {
    const char *last = NULL;
    for (int j = 0; j < u->n && a->mask != NULL; j++) {
        const char *row = mask_row(a, u, j);
        const uint16_t *mask_f16 = (const uint16_t *) (const void *) row + k0;
        int hidden = 0;
        for (int i = 0; i < n && row != last; i++) {
            hidden += mask_f16[i] == 0xfc00; // -inf
        }
        if (row != last && hidden < n) {
            return true;
        }
        last = row;
    }
    return a->mask == NULL;
}

static void unit_run(const struct attn *a, const struct unit *u, int64_t k0, int64_t k1, struct sums *t, float *own) {
    const int64_t head = u->group * a->n_heads;
    const int64_t head_k = head / (a->q->ne[2] / a->k->ne[2]), head_v = head / (a->q->ne[2] / a->v->ne[2]);
    const bool has_keys = k0 < k1; // without keys, k and v may have no memory
    const char *keys = has_keys ? cpu_row_at(a->k, 0, head_k, u->seq / (a->q->ne[3] / a->k->ne[3])) : NULL;
    const char *values = has_keys ? cpu_row_at(a->v, 0, head_v, u->seq / (a->q->ne[3] / a->v->ne[3])) : NULL;
    struct layout r = layout_of(a);
    float *score = own;
    bool has_scores[Q_PANELS]; // per query: some score is not -inf
    r.own = own;
    if (a->g != NULL) {
        queries_pack(a, u, &r);
    } else {
        for (int j = 0; j < u->n; j++) {
            query_load(a, u, j, own + r.rows, (char *) (own + r.queries) + (size_t) j * a->q_size);
        }
    }
    a->table->fill(a->q_rows * a->d_v, t->v, 0.0f);
    a->table->fill(a->q_rows, t->m, -INFINITY);
    a->table->fill(a->q_rows, t->s, 0.0f);
    for (; k0 < k1; k0 += K_ROWS) {
        const int n = k1 - k0 < K_ROWS ? (int) (k1 - k0) : K_ROWS;
        const char *tile = keys + (size_t) k0 * a->k->nb[1];
        if (!is_visible(a, u, k0, n)) {
            continue;
        }
        if (a->g != NULL) {
            scores_by_panels(a, u, &r, tile, n);
        } else {
            cpu_dots(a->table, a->k->type, a->d_k, score, K_ROWS, tile, a->k->nb[1], n, (const char *) (own + r.queries),
                a->q_size, u->n);
        }
        bool any = false;
        struct bias b = {.row = NULL};
        for (int j = 0; j < u->n; j++) {
            if (a->mask != NULL) {
                bias_load(a, u, j, k0, n, &b);
            }
            has_scores[j] = scores_finish(a, u, j, &b, n, score + j * K_ROWS);
            any = any || has_scores[j];
            if (has_scores[j]) {
                scores_weigh(a, t, j, n, score + j * K_ROWS);
            }
        }
        for (int j = 0; any && j < u->n; j++) {
            if (!has_scores[j]) {
                a->table->fill(n, score + j * K_ROWS, 0.0f);
            }
        }
        if (any) {
            const struct rows v = rows_load(a, a->v, values + (size_t) k0 * a->v->nb[1], n, own + r.rows);
            if (a->g == NULL || !values_by_panels(a, u, &r, t, &v, n)) {
                a->table->mix(a->d_v, t->v, a->d_v, u->n, score, K_ROWS, v.at, v.ld, n);
            }
        }
    }
}

static void sums_join(const struct attn *a, int n, struct sums *t, const struct sums *other) {
    for (int j = 0; j < n; j++) {
        if (other->m[j] == -INFINITY && other->s[j] == 0.0f) {
            continue;
        }
        const float m = max_f32(other->m[j], t->m[j]);
        const float t_down = t->m[j] == m ? 1.0f : expf(t->m[j] - m),
                    other_down = other->m[j] == m ? 1.0f : expf(other->m[j] - m);
        a->table->scale(a->d_v, t->v + j * a->d_v, t->v + j * a->d_v, t_down, 0.0f);
        a->table->mad(a->d_v, t->v + j * a->d_v, other->v + j * a->d_v, other_down);
        t->s[j] = t->s[j] * t_down + other->s[j] * other_down;
        t->m[j] = m;
    }
}

static void unit_finish(const struct attn *a, struct ggml_tensor *op, const struct unit *u, struct sums *t) {
    for (int j = 0; j < u->n; j++) {
        const int64_t h = unit_head(a, u, j);
        float s = t->s[j], down = 1.0f;
        if (a->sinks != NULL) { // a sink is a score that adds to s but has no row of v
            const float sink = cpu_f32_at(a->sinks, h), m = max_f32(sink, t->m[j]);
            down = expf(t->m[j] - m);
            s = s * down + expf(sink - m);
        }
        float *y = (float *) (void *) cpu_row_at(op, h, unit_token(a, u, j), u->seq);
        a->table->scale(a->d_v, y, t->v + j * a->d_v, s == 0.0f ? 0.0f : down / s, 0.0f);
    }
}

static void attn_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct attn a = attn_of(p->k, op);
    float *joined = p->work;
    const int64_t n_each = sums_floats(&a), n_items = a.n_units * a.n_spans;
    float *own = joined + (a.n_spans > 1 ? n_items * n_each : 0) + task_floats(&a) * p->ith;
    for (int64_t i = cpu_chunk_next(p); i < n_items; i = cpu_chunk_next(p)) {
        const struct unit u = unit_of(&a, i / a.n_spans);
        const int64_t k0 = i % a.n_spans * a.span, k1 = min_i64(a.n_kv, k0 + a.span);
        struct sums t = sums_at(&a, a.n_spans > 1 ? joined + i * n_each : own);
        unit_run(&a, &u, k0, k1, &t, own + n_each);
        if (a.n_spans == 1) {
            unit_finish(&a, op, &u, &t);
        }
    }
    if (a.n_spans == 1) {
        return;
    }
    cpu_barrier(p);
    int64_t i, end;
    for (cpu_share(p, a.n_units, &i, &end); i < end; i++) {
        const struct unit u = unit_of(&a, i);
        struct sums t = sums_at(&a, joined + i * a.n_spans * n_each);
        for (int64_t r = 1; r < a.n_spans; r++) {
            const struct sums other = sums_at(&a, joined + (i * a.n_spans + r) * n_each);
            sums_join(&a, u.n, &t, &other);
        }
        unit_finish(&a, op, &u, &t);
    }
}

const struct cpu_op_entry cpu_ops_attn[] = {
    {GGML_OP_FLASH_ATTN_EXT, {.supports = attn_supports,
                                 .n_tasks = attn_n_tasks,
                                 .work_size = attn_work_size,
                                 .work_bound = attn_work_bound,
                                 .run = attn_run,
                                 .empty_srcs = 1 << 1 | 1 << 2 | 1 << 3, // k, v and mask may be empty: no keys
                                 .uses = CPU_USE_DOT_KEYS | CPU_USE_CONVERT | CPU_USE_MAD | CPU_USE_SCALE | CPU_USE_MAX |
                                         CPU_USE_EXP_SUM | CPU_USE_MIX}},
    CPU_OPS_END,
};

// SPDX-License-Identifier: MIT
// attn.c: LIGHTNING_INDEXER, at the end, and FLASH_ATTN_EXT: softmax(scale q k + slope mask) v without the matrix of scores (Dao
// et al., arXiv 2205.14135).
//   1. A unit is up to Q_ROWS queries that read the same keys: tokens of one head, and heads that share a head of k and v.
//   2. A unit walks the keys in tiles of K_ROWS. It keeps, per query, the largest score m, the sum s of exp(score - m), and the
//      sum of exp(score - m) v; when m grows, both sums are scaled down.
//   3. Few units over many keys are cut into runs of keys whose sums are joined at the end. How many does not depend on the
//      number of tasks, so results do not either.
// Sums are f32. Queries are rounded to the type that k's dot products take.

#include "cpu/op/dots.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>
#include <math.h>

#define Q_ROWS 16
#define K_ROWS 64
#define RUN_MIN 256 // keys that are worth a run of their own
#define N_ITEMS 16  // units are cut until there are so many items

struct attn {
    const struct ggml_tensor *q, *k, *v, *mask, *sinks;
    float scale, softcap, max_bias;
    int64_t d_k, d_v, n_kv;
    int64_t n_heads;           // heads of q that share a head of k and v
    int64_t n_groups;          // of heads
    int64_t n_blocks, n_units; // blocks of queries a group; units in all
    int64_t n_runs, run;       // runs a unit, keys a run
    size_t q_size;             // a query in the type k is multiplied with
};

static struct attn attn_of(const struct ggml_tensor *op) {
    struct attn a = {
        .q        = op->src[0],
        .k        = op->src[1],
        .v        = op->src[2],
        .mask     = op->src[3],
        .sinks    = op->src[4],
        .scale    = cpu_param_f32(op, 0),
        .max_bias = cpu_param_f32(op, 1),
        .softcap  = cpu_param_f32(op, 2),
    };
    a.d_k      = a.k->ne[0];
    a.d_v      = a.v->ne[0];
    a.n_kv     = a.k->ne[1];
    a.n_heads  = a.k->ne[2] == a.v->ne[2] ? a.q->ne[2] / a.k->ne[2] : 1;
    a.n_groups = a.q->ne[2] / a.n_heads;
    a.n_blocks = (a.n_heads * a.q->ne[1] + Q_ROWS - 1) / Q_ROWS;
    a.n_units  = a.n_groups * a.q->ne[3] * a.n_blocks;
    a.q_size   = ggml_row_size(cpu_kernels_portable.traits[a.k->type].vec_dot_type, a.d_k);
    // never more runs than there are keys for
    const int64_t most = (a.n_kv + RUN_MIN - 1) / RUN_MIN;
    a.n_runs           = a.n_units > 0 ? N_ITEMS / a.n_units : 1;
    a.n_runs           = a.n_runs > most ? most : a.n_runs;
    a.n_runs           = a.n_runs < 1 ? 1 : a.n_runs;
    a.run              = (a.n_kv + a.n_runs - 1) / a.n_runs;
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
    const enum ggml_type dot          = kernels->traits[k->type].vec_dot_type;
    if (kernels->traits[k->type].vec_dot == NULL || kernels->traits[dot].from_float == NULL ||
        kernels->to_float[v->type] == NULL) {
        return false;
    }
    const bool dense = k->nb[0] == ggml_type_size(k->type) && op->nb[0] == sizeof(float) &&
                       (cpu_is_float(v->type) || v->nb[0] == ggml_type_size(v->type));
    const bool fits = q->ne[0] == k->ne[0] && cpu_dot_is_length(k->ne[0]) && k->ne[1] == v->ne[1] && k->ne[2] > 0 &&
                      v->ne[2] > 0 && k->ne[3] > 0 && v->ne[3] > 0 && q->ne[2] % k->ne[2] == 0 && q->ne[2] % v->ne[2] == 0 &&
                      q->ne[3] % k->ne[3] == 0 && q->ne[3] % v->ne[3] == 0 && op->ne[0] == v->ne[0] && op->ne[1] == q->ne[2] &&
                      op->ne[2] == q->ne[1] && op->ne[3] == q->ne[3];
    const bool mask_fits =
        mask == NULL || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(uint16_t) && mask->ne[0] >= k->ne[1] &&
                            mask->ne[1] >= q->ne[1] && mask->ne[2] > 0 && mask->ne[3] > 0);
    return dense && fits && mask_fits &&
           (sinks == NULL || (sinks->type == GGML_TYPE_F32 && sinks->ne[0] >= q->ne[2] && ggml_nrows(sinks) > 0));
}

static int attn_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double flops = (double) ggml_nelements(op) * (double) op->src[1]->ne[1];
    const double n     = flops / 65536;
    return n < 1 ? 1 : n < n_threads ? (int) n : n_threads;
}

// ---- work memory ----

// What is known of Q_ROWS queries after some keys: [sum of weighted v: Q_ROWS * d_v][m: Q_ROWS][s: Q_ROWS]
static int64_t sums_floats(const struct attn *a) {
    return (int64_t) cpu_scratch_floats(Q_ROWS * a->d_v + 2 * Q_ROWS);
}

// A task's own: sums, then scores, a tile of v, a row of q, the queries in k's dot type.
static int64_t task_floats(const struct attn *a) {
    const int64_t queries = (int64_t) ((a->q_size * Q_ROWS + sizeof(float) - 1) / sizeof(float));
    return (int64_t) cpu_scratch_floats(sums_floats(a) + Q_ROWS * K_ROWS + K_ROWS * a->d_v + a->d_k + queries);
}

static size_t attn_work_size(const struct ggml_tensor *op, int n_tasks) {
    const struct attn a  = attn_of(op);
    const int64_t joined = a.n_runs > 1 ? a.n_units * a.n_runs * sums_floats(&a) : 0;
    return (size_t) (joined + task_floats(&a) * n_tasks) * sizeof(float);
}

// Fewer queries are fewer units, which are cut into more runs.
static size_t attn_work_most(const struct ggml_tensor *op, int n_tasks) {
    const struct attn a  = attn_of(op);
    const int64_t n_runs = (a.n_kv + RUN_MIN - 1) / RUN_MIN, n_items = ggml_nrows(a.q) * n_runs;
    const int64_t joined = n_runs > 1 ? (n_items < N_ITEMS ? n_items : N_ITEMS) * sums_floats(&a) : 0;
    return (size_t) (joined + task_floats(&a) * n_tasks) * sizeof(float);
}

struct sums {
    float *v, *m, *s;
};

static struct sums sums_at(const struct attn *a, float *at) {
    return (struct sums){.v = at, .m = at + Q_ROWS * a->d_v, .s = at + Q_ROWS * a->d_v + Q_ROWS};
}

// ---- a unit ----

struct unit {
    int64_t group, seq, first;
    int n;               // queries: first to first + n of the group's n_heads * n_token, heads of a token next to each other
    float slope[Q_ROWS]; // of the mask
};

static float slope_of(const struct attn *a, int64_t h) {
    if (!(a->max_bias > 0.0f)) {
        return 1.0f;
    }
    int64_t n = 1; // the largest power of two within the heads
    while (n * 2 <= a->q->ne[2]) {
        n *= 2;
    }
    const float m0 = powf(2.0f, -a->max_bias / (float) n), m1 = powf(2.0f, -a->max_bias / 2.0f / (float) n);
    return h < n ? powf(m0, (float) (h + 1)) : powf(m1, (float) (2 * (h - n) + 1));
}

static struct unit unit_of(const struct attn *a, int64_t i) {
    struct unit u = {
        .group = i / a->n_blocks % a->n_groups, .seq = i / a->n_blocks / a->n_groups, .first = i % a->n_blocks * Q_ROWS};
    const int64_t n = a->n_heads * a->q->ne[1] - u.first;
    u.n             = n < Q_ROWS ? (int) n : Q_ROWS;
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

// Scores of query j against n keys from k0 on, finished in place. False if none is above -inf.
static bool scores_finish(
    const struct cpu_params *p, const struct attn *a, const struct unit *u, int j, int64_t k0, int n, float *score) {
    p->k->scale(n, score, score, a->scale, 0.0f);
    if (a->softcap != 0.0f) {
        p->k->tanh(n, score, score);
        p->k->scale(n, score, score, a->softcap, 0.0f);
    }
    if (a->mask != NULL) {
        const int64_t h = unit_head(a, u, j);
        float bias[K_ROWS];
        const char *row = cpu_row_at(a->mask, unit_token(a, u, j), h % a->mask->ne[2], u->seq % a->mask->ne[3]);
        p->k->to_float[GGML_TYPE_F16](row + (size_t) k0 * sizeof(uint16_t), bias, n);
        const float slope = u->slope[j];
        int any           = 0;
        for (int i = 0; i < n; i++) { // a masked key is not there, whatever its score
            const float v = score[i] + slope * bias[i];
            score[i]      = bias[i] == -INFINITY ? -INFINITY : v;
        }
        for (int i = 0; i < n; i++) {
            any |= score[i] != -INFINITY;
        }
        return any != 0;
    }
    return true;
}

// m and s take n scores in; the scores become weights.
static void scores_weigh(const struct cpu_params *p, const struct attn *a, struct sums *t, int j, int n, float *score) {
    const float max = p->k->max(n, score);
    if (max > t->m[j]) {
        const float down = expf(t->m[j] - max); // 0 for the first
        t->m[j]          = max;
        t->s[j] *= down;
        p->k->scale(a->d_v, t->v + j * a->d_v, t->v + j * a->d_v, down, 0.0f);
    }
    t->s[j] += (float) p->k->exp_sum(n, score, score, t->m[j] == -INFINITY ? 0.0f : t->m[j]);
}

static void queries_load(const struct cpu_params *p, const struct attn *a, const struct unit *u, float *buf, char *queries) {
    const enum ggml_type type = p->k->traits[a->k->type].vec_dot_type;
    for (int j = 0; j < u->n; j++) {
        const char *row = cpu_row_at(a->q, unit_token(a, u, j), unit_head(a, u, j), u->seq);
        p->k->traits[type].from_float(cpu_row_load(p->k, a->q, row, 0, a->d_k, buf), queries + (size_t) j * a->q_size, a->d_k);
    }
}

// n rows of v as floats: where they lie, or in buf. Returns the floats from row to row.
static int64_t values_load(
    const struct cpu_params *p, const struct attn *a, const char *rows, int n, float *buf, const float **found) {
    if (a->v->type == GGML_TYPE_F32 && a->v->nb[0] == sizeof(float) && a->v->nb[1] % sizeof(float) == 0) {
        *found = (const float *) (const void *) rows;
        return (int64_t) (a->v->nb[1] / sizeof(float));
    }
    for (int i = 0; i < n; i++) {
        const float *row = cpu_row_load(p->k, a->v, rows + (size_t) i * a->v->nb[1], 0, a->d_v, buf + i * a->d_v);
        if (row != buf + i * a->d_v) {
            memcpy(buf + i * a->d_v, row, (size_t) a->d_v * sizeof *row);
        }
    }
    *found = buf;
    return a->d_v;
}

// Whether any query of the unit sees any of the n keys from k0 on.
static bool is_seen(const struct attn *a, const struct unit *u, int64_t k0, int n) {
    const char *last = NULL;
    for (int j = 0; j < u->n && a->mask != NULL; j++) {
        const char *row = cpu_row_at(a->mask, unit_token(a, u, j), unit_head(a, u, j) % a->mask->ne[2], u->seq % a->mask->ne[3]);
        const uint16_t *half = (const uint16_t *) (const void *) row + k0;
        int hidden           = 0;
        for (int i = 0; i < n && row != last; i++) {
            hidden += half[i] == 0xfc00; // -inf
        }
        if (row != last && hidden < n) {
            return true;
        }
        last = row;
    }
    return a->mask == NULL;
}

// Keys k0 to k1; t is empty at first.
static void unit_run(
    const struct cpu_params *p, const struct attn *a, const struct unit *u, int64_t k0, int64_t k1, struct sums *t, float *own) {
    const int64_t head   = u->group * a->n_heads;
    const int64_t head_k = head / (a->q->ne[2] / a->k->ne[2]), head_v = head / (a->q->ne[2] / a->v->ne[2]);
    const char *keys   = cpu_row_at(a->k, 0, head_k, u->seq / (a->q->ne[3] / a->k->ne[3]));
    const char *values = cpu_row_at(a->v, 0, head_v, u->seq / (a->q->ne[3] / a->v->ne[3]));
    float *score = own, *buf_v = score + Q_ROWS * K_ROWS, *buf_q = buf_v + K_ROWS * a->d_v;
    char *queries = (char *) (buf_q + a->d_k);
    bool live[Q_ROWS];
    queries_load(p, a, u, buf_q, queries);
    p->k->fill(Q_ROWS * a->d_v, t->v, 0.0f);
    p->k->fill(Q_ROWS, t->m, -INFINITY);
    p->k->fill(Q_ROWS, t->s, 0.0f);
    for (; k0 < k1; k0 += K_ROWS) {
        const int n = k1 - k0 < K_ROWS ? (int) (k1 - k0) : K_ROWS;
        if (!is_seen(a, u, k0, n)) {
            continue;
        }
        cpu_dots(
            p->k, a->k->type, a->d_k, score, K_ROWS, keys + (size_t) k0 * a->k->nb[1], a->k->nb[1], n, queries, a->q_size, u->n);
        bool any = false;
        for (int j = 0; j < u->n; j++) {
            live[j] = scores_finish(p, a, u, j, k0, n, score + j * K_ROWS);
            any     = any || live[j];
            if (live[j]) {
                scores_weigh(p, a, t, j, n, score + j * K_ROWS);
            }
        }
        if (any) {
            for (int j = 0; j < u->n; j++) {
                if (!live[j]) {
                    p->k->fill(n, score + j * K_ROWS, 0.0f);
                }
            }
            const float *v;
            const int64_t ld_v = values_load(p, a, values + (size_t) k0 * a->v->nb[1], n, buf_v, &v);
            p->k->mix(a->d_v, t->v, a->d_v, u->n, score, K_ROWS, v, ld_v, n);
        }
    }
}

// Adds the sums of other keys.
static void sums_join(const struct cpu_params *p, const struct attn *a, int n, struct sums *t, const struct sums *more) {
    for (int j = 0; j < n; j++) {
        if (more->m[j] == -INFINITY && more->s[j] == 0.0f) {
            continue;
        }
        const float m      = more->m[j] > t->m[j] ? more->m[j] : t->m[j];
        const float t_down = t->m[j] == m ? 1.0f : expf(t->m[j] - m), more_down = more->m[j] == m ? 1.0f : expf(more->m[j] - m);
        p->k->scale(a->d_v, t->v + j * a->d_v, t->v + j * a->d_v, t_down, 0.0f);
        p->k->mad(a->d_v, t->v + j * a->d_v, more->v + j * a->d_v, more_down);
        t->s[j] = t->s[j] * t_down + more->s[j] * more_down;
        t->m[j] = m;
    }
}

static void unit_finish(
    const struct cpu_params *p, const struct attn *a, struct ggml_tensor *op, const struct unit *u, struct sums *t) {
    for (int j = 0; j < u->n; j++) {
        const int64_t h = unit_head(a, u, j);
        float s = t->s[j], down = 1.0f;
        if (a->sinks != NULL) { // a key without a value
            const float sink = cpu_f32_at(a->sinks, h), m = sink > t->m[j] ? sink : t->m[j];
            down = expf(t->m[j] - m);
            s    = s * down + expf(sink - m);
        }
        float *y = (float *) (void *) cpu_row_at(op, h, unit_token(a, u, j), u->seq);
        p->k->scale(a->d_v, y, t->v + j * a->d_v, s == 0.0f ? 0.0f : down / s, 0.0f);
    }
}

static void attn_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct attn a  = attn_of(op);
    float *joined        = p->work;
    const int64_t n_each = sums_floats(&a), n_items = a.n_units * a.n_runs;
    float *own = joined + (a.n_runs > 1 ? n_items * n_each : 0) + task_floats(&a) * p->ith;
    for (int64_t i = cpu_chunk_next(p); i < n_items; i = cpu_chunk_next(p)) {
        const struct unit u = unit_of(&a, i / a.n_runs);
        const int64_t k0 = i % a.n_runs * a.run, k1 = a.n_kv < k0 + a.run ? a.n_kv : k0 + a.run;
        struct sums t = sums_at(&a, a.n_runs > 1 ? joined + i * n_each : own);
        unit_run(p, &a, &u, k0, k1, &t, own + n_each);
        if (a.n_runs == 1) {
            unit_finish(p, &a, op, &u, &t);
        }
    }
    if (a.n_runs == 1) {
        return;
    }
    cpu_barrier(p);
    int64_t i, end;
    for (cpu_share(p, a.n_units, &i, &end); i < end; i++) {
        const struct unit u = unit_of(&a, i);
        struct sums t       = sums_at(&a, joined + i * a.n_runs * n_each);
        for (int64_t r = 1; r < a.n_runs; r++) {
            const struct sums more = sums_at(&a, joined + (i * a.n_runs + r) * n_each);
            sums_join(p, &a, u.n, &t, &more);
        }
        unit_finish(p, &a, op, &u, &t);
    }
}

// ---- LIGHTNING_INDEXER: how much a token may want a key: sum over heads of weight * max(0, q k), plus the mask ----

#define I_HEADS 16
#define I_KEYS 32

static bool index_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *w = op->src[2], *mask = op->src[3];
    if (q == NULL || k == NULL || w == NULL || mask == NULL || q->type != GGML_TYPE_F32 || w->type != GGML_TYPE_F32 ||
        mask->type != GGML_TYPE_F16 || op->type != GGML_TYPE_F32) {
        return false;
    }
    const bool fits = q->ne[0] == k->ne[0] && cpu_dot_is_length(k->ne[0]) && k->ne[3] == q->ne[3] && w->ne[0] == q->ne[1] &&
                      w->ne[1] == q->ne[2] && w->ne[3] == q->ne[3] && mask->ne[0] == k->ne[2] && mask->ne[1] == q->ne[2] &&
                      mask->ne[3] > 0 && op->ne[0] == k->ne[2] && op->ne[1] == q->ne[2] && op->ne[3] == q->ne[3];
    return fits && q->nb[0] == sizeof(float) && op->nb[0] == sizeof(float) && mask->nb[0] == sizeof(uint16_t) &&
           cpu_kernels_portable.to_float[k->type] != NULL && (cpu_is_float(k->type) || k->nb[0] == ggml_type_size(k->type));
}

static int index_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double n = (double) ggml_nelements(op) * (double) op->src[0]->ne[0] * (double) op->src[0]->ne[1] / 131072;
    return n < 1 ? 1 : n < n_threads ? (int) n : n_threads;
}

static size_t index_work_size(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(I_KEYS * op->src[0]->ne[0], n_tasks);
}

// Scores of token t for the n keys from k0 on, which lie at `keys` as floats.
static void index_token(
    const struct cpu_params *p, struct ggml_tensor *op, int64_t t, int64_t seq, int64_t k0, int n, const float *keys) {
    const struct ggml_tensor *q = op->src[0], *w = op->src[2], *mask = op->src[3];
    const size_t key_size = (size_t) q->ne[0] * sizeof(float);
    float dots[I_HEADS * I_KEYS], bias[I_KEYS], *y = (float *) (void *) cpu_row_at(op, t, 0, seq) + k0;
    const char *weights = cpu_row_at(w, t, 0, seq), *masked = cpu_row_at(mask, t, 0, seq % mask->ne[3]);
    p->k->fill(n, y, 0.0f);
    for (int64_t h0 = 0; h0 < q->ne[1]; h0 += I_HEADS) {
        const int n_heads = q->ne[1] - h0 < I_HEADS ? (int) (q->ne[1] - h0) : I_HEADS;
        cpu_dots(p->k, GGML_TYPE_F32, q->ne[0], dots, I_KEYS, (const char *) keys, key_size, n, cpu_row_at(q, h0, t, seq),
            q->nb[1], n_heads);
        for (int h = 0; h < n_heads; h++) {
            const float weight = *(const float *) (const void *) (weights + (size_t) (h0 + h) * w->nb[0]);
            for (int i = 0; i < n; i++) {
                y[i] += (dots[h * I_KEYS + i] > 0.0f ? dots[h * I_KEYS + i] : 0.0f) * weight;
            }
        }
    }
    p->k->to_float[GGML_TYPE_F16](masked + (size_t) k0 * sizeof(uint16_t), bias, n);
    p->k->add(n, y, y, bias);
}

// A unit is a tile of keys of one sequence for all tokens: keys are widened once.
static void index_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *k = op->src[1];
    const int64_t d = k->ne[0], n_tiles = (op->ne[0] + I_KEYS - 1) / I_KEYS;
    float *keys = cpu_scratch(p, I_KEYS * d);
    int64_t i, end;
    for (cpu_share(p, n_tiles * op->ne[3], &i, &end); i < end; i++) {
        const int64_t k0 = i % n_tiles * I_KEYS, seq = i / n_tiles;
        const int n = op->ne[0] - k0 < I_KEYS ? (int) (op->ne[0] - k0) : I_KEYS;
        for (int j = 0; j < n; j++) {
            const float *x = cpu_row_load(p->k, k, cpu_row_at(k, 0, k0 + j, seq), 0, d, keys + j * d);
            if (x != keys + j * d) {
                memcpy(keys + j * d, x, (size_t) d * sizeof *x);
            }
        }
        for (int64_t t = 0; t < op->ne[1]; t++) {
            index_token(p, op, t, seq, k0, n, keys);
        }
    }
}

const struct cpu_op_entry cpu_ops_attn[] = {
    {GGML_OP_FLASH_ATTN_EXT, {.supports      = attn_supports,
                                 .n_tasks    = attn_n_tasks,
                                 .work_size  = attn_work_size,
                                 .work_most  = attn_work_most,
                                 .run        = attn_run,
                                 .empty_srcs = 1 << 1 | 1 << 2 | 1 << 3, // no keys
                                 .uses       = CPU_USE_DOT_KEYS | CPU_USE_CONVERT | CPU_USE_MAD | CPU_USE_SCALE | CPU_USE_MAX |
                                         CPU_USE_EXP_SUM | CPU_USE_MIX}},
    {GGML_OP_LIGHTNING_INDEXER, {.supports     = index_supports,
                                    .n_tasks   = index_n_tasks,
                                    .work_size = index_work_size,
                                    .run       = index_run,
                                    .uses      = CPU_USE_DOT_F32 | CPU_USE_ADD | CPU_USE_CONVERT}},
    CPU_OPS_END,
};

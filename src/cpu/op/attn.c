// SPDX-License-Identifier: MIT
// attn.c: FLASH_ATTN_EXT: softmax(scale q k + slope mask) v without storing the matrix of scores (Dao et al., arXiv 2205.14135).
// A query is the vector of one token and one head. A group is the heads of q that share a head of k and v. A unit is up to q_rows
// queries of one group, or of several groups and one token. A key is hidden from a query if the mask is -inf. A part is a run of
// queries of a unit that see about the same keys: the heads of one token, or several tokens of one sequence. The keys of a part are
// those that are not hidden from all of its queries. A span is a contiguous range of the keys of a part.
//   1. A task computes the sums of a span in tiles of K_ROWS keys. Keys hidden from the part take no time. A part with many
//      queries uses panels of f32 (kernels.h: cpu_gemm), other parts use dot products, so that a short prompt gives the same sums
//      as single tokens.
//   2. Per query, a task keeps the largest score m, the sum s of exp(score - m), and the sum of exp(score - m) v.
//   3. The sums of the spans of a part are joined in the order of the spans.
// The spans of a part depend on the number of heads and on the number of keys of the part only. So the result of a part does not
// depend on the number of tasks, the number of sequences, the size of the cache or the places of the keys in it. Sums are f32.
// Queries are rounded to the vec_dot_type of k's type.

#include "base/min.h"
#include "cpu/op/dots.h"
#include "cpu/op/gemm.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <float.h>
#include <math.h>

#define Q_ROWS 16      // queries per unit with dot products
#define Q_PANELS 64    // maximum queries per unit with panels
#define Q_MANY 64      // minimum queries per group for units with panels
#define PART_PANELS 16 // minimum queries per part for panels
#define K_ROWS 64      // keys per tile, bits of a word of a key set
#define SPAN_MIN 256   // a part has at most one span per SPAN_MIN keys (rounded up)
#define N_SPANS 32     // maximum spans of all groups of one token
#define N_FULL 16      // maximum spans of an op that are divided among tasks if its units are full
#define PART_SLACK 32  // see rows_fit
#define STEP_ROWS 32   // rows of k or v that a task without panels holds at a time
#define HIDDEN 0xfc00  // -inf as f16

struct attn {
    const struct cpu_kernels *table;
    const struct ggml_tensor *q, *k, *v, *mask, *sinks;
    const struct cpu_gemm *g; // kernel for panels; NULL: dot products
    float scale, softcap, max_bias;
    int64_t d_k, d_v, n_kv;
    int64_t full;              // maximum of q_rows for the method
    int64_t q_rows;            // maximum queries per unit
    int64_t n_heads;           // heads of q per group; 1 if k and v have different numbers of heads
    int64_t n_groups;          // groups per sequence
    bool is_apart;             // a unit has the queries of one token and unit_groups groups
    int64_t unit_groups;       // 1, or a divisor of n_groups
    int64_t n_blocks, n_units; // units per group and sequence; units in total
    int64_t max_sums;          // queries of N_FULL full units: maximum sums that tasks compute before they are joined
    int64_t n_spans;           // maximum spans per part
    int64_t n_words;           // words of a key set
    size_t q_size;             // bytes of a query in the vec_dot_type of k's type
};

static enum ggml_type dot_type(const struct attn *a) {
    return cpu_kernels_portable.traits[a->k->type].vec_dot_type;
}

// Returns the maximum number of spans of n keys.
static int64_t spans_of(int64_t n) {
    return max_i64(1, (n + SPAN_MIN - 1) / SPAN_MIN);
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
        .unit_groups = 1,
    };
    a.d_k = a.k->ne[0];
    a.d_v = a.v->ne[0];
    a.n_kv = a.k->ne[1];
    a.n_heads = a.k->ne[2] == a.v->ne[2] ? a.q->ne[2] / a.k->ne[2] : 1;
    a.n_groups = a.q->ne[2] / a.n_heads;
    const int64_t n_queries = a.n_heads * a.q->ne[1];
    if (!k->is_invariant && k->gemm[GGML_TYPE_F32].run != NULL && n_queries >= Q_MANY) {
        a.g = &k->gemm[GGML_TYPE_F32];
    }
    a.full = a.g != NULL ? Q_PANELS / a.g->nr * a.g->nr : Q_ROWS;
    a.max_sums = N_FULL * a.full;
    a.q_rows = clamp_i64(n_queries, 1, a.full);
    a.n_blocks = (n_queries + a.q_rows - 1) / a.q_rows;
    a.n_units = a.n_groups * a.q->ne[3] * a.n_blocks;
    a.q_size = ggml_row_size(dot_type(&a), a.d_k);
    a.n_words = a.mask != NULL ? (a.n_kv + K_ROWS - 1) / K_ROWS : 0;
    const int64_t max_spans = min_i64(N_SPANS / max_i64(1, a.n_groups), a.max_sums / max_i64(1, a.q->ne[2]));
    a.n_spans = clamp_i64(max_spans, 1, spans_of(a.n_kv));
    if (a.softcap != 0.0f) {
        a.scale /= a.softcap;
    }
    return a;
}

// Returns the largest divisor of n_groups that is at most `most`; 1 if each head has a mask.
static int64_t groups_of(const struct attn *a, int64_t most) {
    int64_t n = a->mask != NULL && a->mask->ne[2] > 1 ? 1 : clamp_i64(most, 1, a->n_groups);
    while (a->n_groups % n != 0) {
        n--;
    }
    return n;
}

// For tokens that see different keys: a unit becomes the queries of one token. A key of all groups is in one or two pages of memory,
// so a unit has several groups and computes a span of all of them before the next span. Several units per task remain.
static void attn_split(struct attn *a, int n_tasks) {
    if (a->n_heads > a->full) {
        return;
    }
    const int64_t n_tokens = a->q->ne[1] * a->q->ne[3], n_units = n_tasks > 1 ? 4 * n_tasks : 1;
    a->is_apart = true;
    a->unit_groups = groups_of(a, min_i64(a->full / a->n_heads, a->n_groups * n_tokens / n_units));
    a->q_rows = a->unit_groups * a->n_heads;
    a->n_units = a->n_groups / a->unit_groups * n_tokens;
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

// True if the spans of a part are divided among tasks. Otherwise, one task computes all spans of a unit.
static bool spans_are_shared(const struct attn *a, int n_tasks) {
    return n_tasks > 1 && a->n_spans > 1 && a->n_units * a->n_spans * a->q_rows <= a->max_sums;
}

static int attn_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double flops = (double) ggml_nelements(op) * (double) op->src[1]->ne[1];
    const double n = flops / 65536;
    return cpu_tasks_for(n, n_threads);
}

// ---- work memory ----

// Memory of a task: offsets in floats. The sums of a span of a unit are at offset 0. Values of which only one is in use at a time
// share memory.
struct layout {
    int64_t scores;   // [q_rows][K_ROWS]; also the floats of the sums in complete cache lines
    int64_t rows;     // rows of q, k or v as floats; rows of k that are not equally spaced in the cache; with panels: product
    int64_t queries;  // in vec_dot_type; with panels: packed as columns
    int64_t sets;     // two key sets
    int64_t panels;   // panels of rows: the keys of a tile, or v transposed
    int64_t weights;  // panels of columns: weights, one column per query
    int64_t x_k, x_v; // floats of one panel of rows: keys, values
    int64_t y_k, y_v; // floats of one panel of columns: queries, weights
    int64_t end;      // floats of the memory
    float *own;       // start of the memory
};

static int64_t floats_of(size_t size) {
    return (int64_t) (cpu_gemm_lines(size) / sizeof(float));
}

// Floats of the sums of one span of a unit: [sum of exp(score - m) v: q_rows * d_v][m: q_rows][s: q_rows].
static int64_t sums_floats(const struct attn *a) {
    return a->q_rows * (a->d_v + 2);
}

static struct layout layout_of(const struct attn *a) {
    const struct cpu_gemm *g = a->g;
    const int64_t d = max_i64(a->d_k, a->d_v);
    struct layout r = {.scores = (int64_t) cpu_scratch_floats(sums_floats(a))};
    r.rows = r.scores + a->q_rows * K_ROWS;
    r.queries = r.rows + (int64_t) cpu_scratch_floats((g != NULL ? K_ROWS : STEP_ROWS) * d);
    r.sets = r.queries + floats_of(a->q_size * (size_t) a->q_rows);
    if (g == NULL) {
        r.end = r.sets + floats_of((size_t) a->n_words * 2 * sizeof(uint64_t));
        return r;
    }
    const int64_t n_columns = (a->q_rows + g->nr - 1) / g->nr;
    r.x_k = (int64_t) (cpu_gemm_x_size(g, a->d_k) / sizeof(float));
    r.x_v = (int64_t) (cpu_gemm_x_size(g, K_ROWS) / sizeof(float));
    r.y_k = (int64_t) (cpu_gemm_y_size(g, a->d_k) / sizeof(float));
    r.y_v = (int64_t) (cpu_gemm_y_size(g, K_ROWS) / sizeof(float));
    r.sets = max_i64(r.sets, r.queries + r.y_k * n_columns);
    r.panels = r.sets + floats_of((size_t) a->n_words * 2 * sizeof(uint64_t));
    r.weights = r.panels + max_i64(r.x_k * ((K_ROWS + g->mr - 1) / g->mr), r.x_v * ((a->d_v + g->mr - 1) / g->mr));
    r.end = r.weights + r.y_v * n_columns;
    return r;
}

// Work memory: the memory of each task, and then either the sums of all spans, if these are divided among tasks, or sums of a
// second span per task. is_bound: a smaller op may divide its spans if this op does not.
static size_t work_size_by(const struct cpu_kernels *k, const struct ggml_tensor *op, int n_tasks, bool is_bound) {
    struct attn a = attn_of(k, op);
    const int64_t n_rows = a.n_units * a.q_rows;
    if (a.n_heads <= a.full) { // see attn_split
        a.q_rows = max_i64(a.q_rows, groups_of(&a, a.full / a.n_heads) * a.n_heads);
    }
    if (is_bound) {
        a.n_spans = min_i64(N_SPANS, spans_of(a.n_kv));
    }
    int64_t joined = 0;
    if (n_tasks > 1 && (is_bound || ggml_nrows(a.q) * a.n_spans <= a.max_sums)) {
        joined = min_i64(n_rows * a.n_spans, a.max_sums) * (a.d_v + 2);
    }
    const struct layout r = layout_of(&a);
    const int64_t after = a.n_spans > 1 ? max_i64(joined, r.scores * n_tasks) : 0;
    return (size_t) (r.end * n_tasks + after) * sizeof(float);
}

static size_t work_size_of(const struct ggml_tensor *op, int n_tasks, bool is_bound) {
    const size_t best = work_size_by(&cpu_kernels_best, op, n_tasks, is_bound);
    const size_t plain = work_size_by(&cpu_kernels_portable, op, n_tasks, is_bound);
    return max_size(max_size(best, plain), work_size_by(&cpu_kernels_invariant, op, n_tasks, is_bound));
}

static size_t attn_work_size(const struct ggml_tensor *op, int n_tasks) {
    return work_size_of(op, n_tasks, false);
}

// An op with fewer queries or groups may divide its spans among tasks, have more spans, or use no panels.
static size_t attn_work_bound(const struct ggml_tensor *op, int n_tasks) {
    return work_size_of(op, n_tasks, true);
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
    int64_t first;         // first query, heads of a token are adjacent; if is_apart: the token
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

static int64_t unit_head(const struct attn *a, const struct unit *u, int j) {
    return u->group * a->n_heads + (a->is_apart ? j : (u->first + j) % a->n_heads);
}

static int64_t unit_token(const struct attn *a, const struct unit *u, int j) {
    return a->is_apart ? u->first : (u->first + j) / a->n_heads;
}

// Units of tokens that see the same keys are adjacent. If is_apart, units of the same token are adjacent.
static struct unit unit_of(const struct attn *a, int64_t i) {
    struct unit u = {.n = (int) a->q_rows};
    if (a->is_apart) {
        const int64_t n = a->n_groups / a->unit_groups;
        u.group = i % n * a->unit_groups;
        u.first = i / n % a->q->ne[1];
        u.seq = i / n / a->q->ne[1];
    } else {
        u.group = i / a->n_blocks % a->n_groups;
        u.first = i % a->n_blocks * a->q_rows;
        u.seq = i / a->n_blocks / a->n_groups;
        u.n = (int) min_i64(a->n_heads * a->q->ne[1] - u.first, a->q_rows);
    }
    for (int j = 0; j < u.n; j++) {
        u.slope[j] = slope_of(a, unit_head(a, &u, j));
    }
    return u;
}

static const char *mask_row(const struct attn *a, const struct unit *u, int j) {
    return cpu_row_at(a->mask, unit_token(a, u, j), unit_head(a, u, j) % a->mask->ne[2], u->seq % a->mask->ne[3]);
}

// ---- parts ----

struct part {
    int first, n;          // queries of the unit
    int64_t n_keys;        // keys of the part
    const uint64_t *words; // the keys as a set: bit i of word w is key 64 w + i; NULL: all keys
};

// The key set of the last scanned mask row, and a second set for the union of the rows of a part. A task keeps them for all of its
// units, because the heads of a token often share a row.
struct sets {
    const char *row; // NULL: no row was scanned
    int64_t n_row;   // keys in of_row
    uint64_t *of_row, *of_union;
};

static struct sets sets_at(const struct attn *a, const struct layout *r) {
    uint64_t *words = (uint64_t *) (void *) (r->own + r->sets);
    return (struct sets){.of_row = words, .of_union = words + a->n_words};
}

// Returns the keys that n <= K_ROWS elements of a mask row do not hide, as bits.
static uint64_t word_scan(const uint16_t *mask_f16, int n) {
    uint16_t padded[K_ROWS];
    if (n < K_ROWS) {
        for (int i = 0; i < K_ROWS; i++) {
            padded[i] = i < n ? mask_f16[i] : HIDDEN;
        }
        mask_f16 = padded;
    }
    int n_hidden = 0;
    for (int i = 0; i < K_ROWS; i++) {
        n_hidden += mask_f16[i] == HIDDEN;
    }
    if (n_hidden == 0 || n_hidden == K_ROWS) {
        return n_hidden == 0 ? ~(uint64_t) 0 : 0;
    }
    uint8_t seen[K_ROWS];
    for (int i = 0; i < K_ROWS; i++) {
        seen[i] = mask_f16[i] != HIDDEN;
    }
    uint64_t word = 0;
    for (int i = 0; i < K_ROWS; i += 8) { // the product has the lowest bits of 8 bytes in its highest byte
        uint64_t bytes;
        memcpy(&bytes, seen + i, sizeof bytes);
        word |= (bytes * 0x0102040810204080u >> 56) << i;
    }
    return word;
}

static uint64_t row_word(const struct attn *a, const char *row, int64_t w) {
    return word_scan((const uint16_t *) (const void *) row + w * K_ROWS, (int) min_i64(a->n_kv - w * K_ROWS, K_ROWS));
}

static void row_scan(const struct attn *a, const char *row, struct sets *sets) {
    sets->row = row;
    sets->n_row = 0;
    for (int64_t w = 0; w < a->n_words; w++) {
        sets->of_row[w] = row_word(a, row, w);
        sets->n_row += __builtin_popcountll(sets->of_row[w]);
    }
}

static int64_t union_size(int64_t n_words, const uint64_t *x, const uint64_t *y) {
    int64_t n = 0;
    for (int64_t w = 0; w < n_words; w++) {
        n += __builtin_popcountll(x[w] | y[w]);
    }
    return n;
}

// True if n_rows mask rows that show n_seen keys in total, n_union of them different, make a part: the queries multiply at most a
// quarter more keys than they see, or at most PART_SLACK keys more each.
static bool rows_fit(int64_t n_rows, int64_t n_seen, int64_t n_union) {
    return 4 * n_rows * (n_union - PART_SLACK) <= 5 * n_seen;
}

// True if the first two tokens see different keys.
static bool are_apart(const struct attn *a) {
    if (a->mask == NULL || a->q->ne[1] < 2) {
        return false;
    }
    const char *row0 = cpu_row_at(a->mask, 0, 0, 0), *row1 = cpu_row_at(a->mask, 1, 0, 0);
    int64_t n_seen = 0, n_union = 0;
    for (int64_t w = 0; w < a->n_words; w++) {
        const uint64_t word0 = row_word(a, row0, w), word1 = row_word(a, row1, w);
        n_seen += __builtin_popcountll(word0) + __builtin_popcountll(word1);
        n_union += __builtin_popcountll(word0 | word1);
    }
    return !rows_fit(2, n_seen, n_union);
}

// Returns the part that starts at query j.
static struct part part_at(const struct attn *a, const struct unit *u, int j, struct sets *sets) {
    const int end = a->is_apart ? (j / (int) a->n_heads + 1) * (int) a->n_heads : u->n; // a part has queries of one group
    struct part part = {.first = j, .n = end - j, .n_keys = a->n_kv};
    if (a->mask == NULL) {
        return part;
    }
    const char *last = mask_row(a, u, j);
    if (last != sets->row) {
        row_scan(a, last, sets);
    }
    int64_t n_rows = 1, n_seen = sets->n_row;
    part.n_keys = sets->n_row;
    part.words = sets->of_row;
    for (part.n = 1; j + part.n < end; part.n++) {
        const char *row = mask_row(a, u, j + part.n);
        if (row == last) {
            continue;
        }
        if (a->table->is_invariant) { // the keys of a part are those of one token
            break;
        }
        if (n_rows++ == 1) {
            uint64_t *first = sets->of_row;
            sets->of_row = sets->of_union;
            sets->of_union = first;
        }
        row_scan(a, row, sets);
        const int64_t n_union = union_size(a->n_words, sets->of_union, sets->of_row);
        n_seen += sets->n_row;
        if (!rows_fit(n_rows, n_seen, n_union)) {
            break;
        }
        for (int64_t w = 0; w < a->n_words; w++) {
            sets->of_union[w] |= sets->of_row[w];
        }
        part.n_keys = n_union;
        last = row;
    }
    return part;
}

// Position in the keys of a part.
struct cursor {
    const uint64_t *words; // NULL: all keys
    int64_t at;            // without words: the next key; otherwise the index of the current word
    uint64_t left;         // keys of the current word that were not visited
};

static struct cursor cursor_at(const struct part *part, int64_t n_skipped) {
    struct cursor c = {.words = part->words, .at = n_skipped};
    if (c.words == NULL || n_skipped >= part->n_keys) {
        return c;
    }
    int n;
    for (c.at = 0; n_skipped >= (n = __builtin_popcountll(c.words[c.at])); c.at++) {
        n_skipped -= n;
    }
    for (c.left = c.words[c.at]; n_skipped > 0; n_skipped--) {
        c.left &= c.left - 1;
    }
    return c;
}

struct tile {
    int n;
    int64_t first, step; // key i is first + i * step, or key[i] if step is 0
    int64_t key[K_ROWS];
};

// Fills t with the next n keys.
static void tile_next(struct cursor *c, int n, struct tile *t) {
    t->n = n;
    t->step = 1;
    if (c->words == NULL || n <= 0) {
        t->first = c->at;
        c->at += n;
        return;
    }
    for (int i = 0; i < n; i++) {
        while (c->left == 0) {
            c->left = c->words[++c->at];
        }
        t->key[i] = c->at * K_ROWS + __builtin_ctzll(c->left);
        c->left &= c->left - 1;
    }
    t->first = t->key[0];
    t->step = n > 1 ? t->key[1] - t->key[0] : 1;
    for (int i = 2; i < n; i++) {
        if (t->key[i] - t->key[i - 1] != t->step) {
            t->step = 0;
            return;
        }
    }
}

static int64_t tile_key(const struct tile *t, int i) {
    return t->step > 0 ? t->first + i * t->step : t->key[i];
}

// ---- scores ----

// The elements of a mask row for a tile, as floats. Cached, because heads of a token often share a row.
struct bias {
    const char *row;
    bool is_zero; // all elements are 0; v is not set
    float v[K_ROWS];
};

// Loads the mask of query j for the keys of a tile. If b already holds this row, does nothing.
static void bias_load(const struct attn *a, const struct unit *u, int j, const struct tile *t, struct bias *b) {
    const char *row = mask_row(a, u, j);
    if (row == b->row) {
        return;
    }
    const uint16_t *mask_f16 = (const uint16_t *) (const void *) row;
    uint16_t gathered[K_ROWS];
    unsigned bits = 0;
    if (t->step == 1) {
        mask_f16 += t->first;
    } else {
        for (int i = 0; i < t->n; i++) {
            gathered[i] = mask_f16[tile_key(t, i)];
        }
        mask_f16 = gathered;
    }
    for (int i = 0; i < t->n; i++) {
        bits |= mask_f16[i];
    }
    b->row = row;
    b->is_zero = (bits & 0x7fff) == 0;
    if (!b->is_zero) {
        a->table->to_float[GGML_TYPE_F16](mask_f16, b->v, t->n);
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

// The rows of one head of k or v.
struct side {
    const struct ggml_tensor *t;
    const char *head; // row of key 0
    size_t row_size;
};

// Prefetches the rows of keys i .. i+n-1 of a tile. A row is short and far from the next row, so hardware does not prefetch it.
// Must be inlined: gcc deletes calls of a function that only prefetches.
static inline __attribute__((always_inline)) void rows_prefetch(const struct side *side, const struct tile *tile, int i, int n) {
    for (const int end = min_int(i + n, tile->n); i < end; i++) {
        const char *row = side->head + (size_t) tile_key(tile, i) * side->t->nb[1], *row_end = row + side->row_size;
        for (row -= (uintptr_t) row % CPU_GEMM_LINE; row < row_end; row += CPU_GEMM_LINE) {
            __builtin_prefetch(row, 0, 3);
        }
    }
}

// Returns rows i .. i+n-1 of a tile as floats, and prefetches these rows of tile `later` of the other side. The result may point
// to the tensor or to buf.
static struct rows rows_load(const struct attn *a, const struct side *side, const struct tile *tile, int i, int n,
    const struct side *other, const struct tile *later, float *buf) {
    const struct ggml_tensor *t = side->t;
    if (cpu_is_f32_dense(t) && t->nb[1] % sizeof(float) == 0 && tile->step > 0) {
        const char *first = side->head + (size_t) tile_key(tile, i) * t->nb[1];
        rows_prefetch(other, later, i, n);
        return (struct rows){(const float *) (const void *) first, tile->step * (int64_t) (t->nb[1] / sizeof(float))};
    }
    const int64_t d = t->ne[0];
    float *to = buf;
    for (const int end = i + n; i < end; i++, to += d) {
        rows_prefetch(other, later, i, 1);
        const float *row = cpu_row_load(a->table, t, side->head + (size_t) tile_key(tile, i) * t->nb[1], 0, d, to);
        if (row != to) {
            memcpy(to, row, (size_t) d * sizeof *row);
        }
    }
    return (struct rows){buf, d};
}

// Rounds query j of a unit to the vec_dot_type of k's type.
static void query_load(const struct attn *a, const struct unit *u, int j, float *buf, void *to) {
    const char *at = cpu_row_at(a->q, unit_token(a, u, j), unit_head(a, u, j), u->seq);
    a->table->traits[dot_type(a)].from_float(cpu_row_load(a->table, a->q, at, 0, a->d_k, buf), to, a->d_k);
}

static void queries_load(const struct attn *a, const struct unit *u, const struct part *part, const struct layout *r) {
    char *to = (char *) (r->own + r->queries);
    for (int j = 0; j < part->n; j++, to += a->q_size) {
        query_load(a, u, part->first + j, r->own + r->rows, to);
    }
}

// ---- panels ----

// Rounds and packs the queries of a part.
static void queries_pack(const struct attn *a, const struct unit *u, const struct part *part, const struct layout *r) {
    const struct cpu_gemm *g = a->g;
    const enum ggml_type type = dot_type(a);
    float *rounded = r->own + r->panels; // the panels of keys are not in use yet
    float *panel = r->own + r->queries;
    for (int j = 0; j < part->n; j += g->nr, panel += r->y_k) {
        const int n = min_int(part->n - j, g->nr);
        const float *cols[CPU_GEMM_NR];
        for (int i = 0; i < n; i++) {
            float *row = r->own + r->rows + i * a->d_k;
            cols[i] = row;
            if (type == GGML_TYPE_F32) {
                query_load(a, u, part->first + j + i, rounded, row);
            } else {
                query_load(a, u, part->first + j + i, row, rounded);
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

static void scores_by_panels(const struct attn *a, int n_queries, const struct layout *r, const struct rows *x, int n) {
    const struct cpu_gemm *g = a->g;
    const struct panels keys = {r->own + r->panels, r->x_k, n}, queries = {r->own + r->queries, r->y_k, n_queries};
    for (int i = 0; i < n; i += g->mr) {
        g->pack_x(a->d_k, r->own + r->panels + r->x_k * (i / g->mr), x->at + i * x->ld, (size_t) x->ld * sizeof *x->at,
            min_int(n - i, g->mr));
    }
    panels_run(g, a->d_k, r->own + r->scores, K_ROWS, keys, queries);
}

static bool are_finite(int64_t n, const float *x) {
    int n_nonfinite = 0;
    for (int64_t i = 0; i < n; i++) {
        n_nonfinite |= !(fabsf(x[i]) <= FLT_MAX);
    }
    return n_nonfinite == 0;
}

// Adds n weighted rows of v to the sums `to`. If an element of v is not finite, adds nothing and returns false: 0 times that
// element would be NaN. The caller then uses the kernel `mix`, which skips rows with weight 0.
static bool values_by_panels(
    const struct attn *a, int n_queries, const struct layout *r, float *to, const struct rows *v, int n) {
    const struct cpu_gemm *g = a->g;
    for (int i = 0; i < n; i++) {
        if (!are_finite(a->d_v, v->at + i * v->ld)) {
            return false;
        }
    }
    float *values = r->own + r->panels, *weights = r->own + r->weights;
    cpu_gemm_pack_transposed(
        n, (char *) values, (size_t) r->x_v * sizeof(float), g->mr, (const char *) v->at, (size_t) v->ld * sizeof(float), a->d_v);
    for (int j = 0; j < n_queries; j += g->nr) {
        const int n_cols = min_int(n_queries - j, g->nr);
        const float *cols[CPU_GEMM_NR];
        for (int i = 0; i < n_cols; i++) {
            cols[i] = r->own + r->scores + (j + i) * K_ROWS;
        }
        g->pack_y(a->table, n, weights + r->y_v * (j / g->nr), cols, n_cols);
    }
    float *product = r->own + r->rows; // the rows of v are packed
    panels_run(g, n, product, a->d_v, (struct panels){values, r->x_v, a->d_v}, (struct panels){weights, r->y_v, n_queries});
    a->table->add(n_queries * a->d_v, to, to, product);
    return true;
}

// ---- spans ----

// The heads of k and v that a part reads.
struct source {
    struct side k, v;
};

static struct source source_of(const struct attn *a, const struct unit *u, const struct part *part) {
    struct source from = {.k = {.t = a->k, .row_size = ggml_row_size(a->k->type, a->k->ne[0])},
        .v = {.t = a->v, .row_size = ggml_row_size(a->v->type, a->v->ne[0])}};
    if (a->n_kv > 0) { // without keys, k and v may have no memory
        const int64_t head = unit_head(a, u, part->first);
        from.k.head = cpu_row_at(a->k, 0, head / (a->q->ne[2] / a->k->ne[2]), u->seq / (a->q->ne[3] / a->k->ne[3]));
        from.v.head = cpu_row_at(a->v, 0, head / (a->q->ne[2] / a->v->ne[2]), u->seq / (a->q->ne[3] / a->v->ne[3]));
    }
    return from;
}

static bool uses_panels(const struct attn *a, const struct part *part) {
    return a->g != NULL && part->n >= PART_PANELS;
}

// Computes the scores of a tile and the queries of a part. Prefetches the rows of v.
static void tile_scores(
    const struct attn *a, const struct part *part, const struct layout *r, const struct source *from, const struct tile *tile) {
    float *rows = r->own + r->rows, *scores = r->own + r->scores;
    if (uses_panels(a, part)) {
        const struct rows x = rows_load(a, &from->k, tile, 0, tile->n, &from->v, tile, rows);
        scores_by_panels(a, part->n, r, &x, tile->n);
        return;
    }
    const size_t size = ggml_row_size(a->k->type, a->d_k);
    for (int i = 0; i < tile->n; i += STEP_ROWS) {
        const int n = min_int(tile->n - i, STEP_ROWS);
        const char *keys = from->k.head + (size_t) tile_key(tile, i) * a->k->nb[1];
        size_t step = (size_t) tile->step * a->k->nb[1];
        if (tile->step == 0) {
            for (int j = 0; j < n; j++) {
                memcpy((char *) rows + (size_t) j * size, from->k.head + (size_t) tile->key[i + j] * a->k->nb[1], size);
            }
            keys = (const char *) rows;
            step = size;
        }
        rows_prefetch(&from->v, tile, i, n);
        cpu_dots(a->table, a->k->type, a->d_k, scores + i, K_ROWS, keys, step, n, (const char *) (r->own + r->queries), a->q_size,
            part->n);
    }
}

static void sums_clear(const struct attn *a, const struct part *part, struct sums *t) {
    a->table->fill(part->n * a->d_v, t->v + part->first * a->d_v, 0.0f);
    a->table->fill(part->n, t->m + part->first, -INFINITY);
    a->table->fill(part->n, t->s + part->first, 0.0f);
}

// Adds a tile to the sums of a part. next: the next tile of the span; without keys at the end.
static void tile_run(const struct attn *a, const struct unit *u, const struct part *part, const struct layout *r,
    const struct source *from, const struct tile *tile, const struct tile *next, struct sums *t) {
    float *score = r->own + r->scores;
    bool has_scores[Q_PANELS]; // per query: some score is not -inf
    bool any = false;
    struct bias b = {.row = NULL};
    tile_scores(a, part, r, from, tile);
    for (int j = 0; j < part->n; j++) {
        if (a->mask != NULL) {
            bias_load(a, u, part->first + j, tile, &b);
        }
        has_scores[j] = scores_finish(a, u, part->first + j, &b, tile->n, score + j * K_ROWS);
        any = any || has_scores[j];
        if (has_scores[j]) {
            scores_weigh(a, t, part->first + j, tile->n, score + j * K_ROWS);
        }
    }
    for (int j = 0; any && j < part->n; j++) {
        if (!has_scores[j]) {
            a->table->fill(tile->n, score + j * K_ROWS, 0.0f);
        }
    }
    float *to = t->v + part->first * a->d_v;
    const int step = uses_panels(a, part) ? K_ROWS : STEP_ROWS;
    for (int i = 0; any && i < tile->n; i += step) {
        const int n = min_int(tile->n - i, step);
        const struct rows v = rows_load(a, &from->v, tile, i, n, &from->k, next, r->own + r->rows);
        if (!uses_panels(a, part) || !values_by_panels(a, part->n, r, to, &v, n)) {
            a->table->mix(a->d_v, to, a->d_v, part->n, score + i, K_ROWS, v.at, v.ld, n);
        }
    }
}

static int64_t part_spans(const struct attn *a, const struct part *part) {
    return min_i64(spans_of(part->n_keys), a->n_spans);
}

// Computes the sums of span i.
static void span_run(
    const struct attn *a, const struct unit *u, const struct part *part, const struct layout *r, int64_t i, struct sums *t) {
    const struct source from = source_of(a, u, part);
    const int64_t n_spans = part_spans(a, part), n_tiles = (part->n_keys + K_ROWS - 1) / K_ROWS;
    int64_t k = i * n_tiles / n_spans * K_ROWS; // index among the keys of the part
    const int64_t end = min_i64((i + 1) * n_tiles / n_spans * K_ROWS, part->n_keys);
    struct cursor c = cursor_at(part, k);
    struct tile tiles[2], *tile = &tiles[0], *next = &tiles[1];
    tile_next(&c, (int) min_i64(end - k, K_ROWS), tile);
    sums_clear(a, part, t);
    for (; k < end; k += K_ROWS) {
        tile_next(&c, (int) clamp_i64(end - k - K_ROWS, 0, K_ROWS), next);
        tile_run(a, u, part, r, &from, tile, next, t);
        struct tile *last = tile;
        tile = next;
        next = last;
    }
}

static void sums_join(const struct attn *a, const struct part *part, struct sums *t, const struct sums *other) {
    for (int j = part->first; j < part->first + part->n; j++) {
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

// ---- units ----

// Computes the sums of span `only` of each part of a unit. If `only` is negative, computes all spans and joins them; `next` has
// memory for the sums of a span.
static void unit_run(const struct attn *a, const struct unit *u, int64_t only, const struct layout *r, struct sets *sets,
    struct sums *t, struct sums *next) {
    for (int j = 0; j < u->n;) {
        const struct part part = part_at(a, u, j, sets);
        j += part.n;
        const int64_t n_spans = part_spans(a, &part);
        if (only >= n_spans) {
            sums_clear(a, &part, t);
            continue;
        }
        if (uses_panels(a, &part)) {
            queries_pack(a, u, &part, r);
        } else {
            queries_load(a, u, &part, r);
        }
        span_run(a, u, &part, r, max_i64(only, 0), t);
        for (int64_t i = 1; only < 0 && i < n_spans; i++) {
            span_run(a, u, &part, r, i, next);
            sums_join(a, &part, t, next);
        }
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

// Computes all spans of all units, then joins the spans of each unit. joined: memory for the sums of all spans.
static void run_spans(
    const struct cpu_params *p, const struct attn *a, struct ggml_tensor *op, const struct layout *r, float *joined) {
    const int64_t n_each = sums_floats(a);
    struct sets sets = sets_at(a, r);
    for (int64_t i = cpu_chunk_next(p); i < a->n_units * a->n_spans; i = cpu_chunk_next(p)) {
        const int64_t span = i / a->n_units, unit = i % a->n_units; // all units before the next span: see attn_split
        const struct unit u = unit_of(a, unit);
        struct sums t = sums_at(a, r->own);
        unit_run(a, &u, span, r, &sets, &t, NULL);
        memcpy(joined + (unit * a->n_spans + span) * n_each, r->own,
            (size_t) n_each * sizeof *joined); // tasks that write adjacent sums would be slow
    }
    cpu_barrier(p);
    int64_t i, end;
    for (cpu_share(p, a->n_units, &i, &end); i < end; i++) {
        const struct unit u = unit_of(a, i);
        const struct part all = {.n = u.n};
        struct sums t = sums_at(a, joined + i * a->n_spans * n_each);
        for (int64_t k = 1; k < a->n_spans; k++) {
            const struct sums other = sums_at(a, joined + (i * a->n_spans + k) * n_each);
            sums_join(a, &all, &t, &other);
        }
        unit_finish(a, op, &u, &t);
    }
}

static void attn_run(const struct cpu_params *p, struct ggml_tensor *op) {
    struct attn a = attn_of(p->k, op);
    if (a.q->ne[1] == 1 || are_apart(&a)) {
        attn_split(&a, p->nth);
    }
    struct layout r = layout_of(&a);
    float *after = (float *) p->work + r.end * p->nth; // see work_size_by
    r.own = (float *) p->work + r.end * p->ith;
    if (spans_are_shared(&a, p->nth)) {
        run_spans(p, &a, op, &r, after);
        return;
    }
    struct sets sets = sets_at(&a, &r);
    for (int64_t i = cpu_chunk_next(p); i < a.n_units; i = cpu_chunk_next(p)) {
        const struct unit u = unit_of(&a, i);
        const struct part all = {.n = u.n};
        struct sums t = sums_at(&a, r.own), next = sums_at(&a, after + r.scores * p->ith);
        if (a.unit_groups == 1) {
            unit_run(&a, &u, -1, &r, &sets, &t, &next);
        } else {
            unit_run(&a, &u, 0, &r, &sets, &t, NULL);
            for (int64_t k = 1; k < a.n_spans; k++) {
                unit_run(&a, &u, k, &r, &sets, &next, NULL);
                sums_join(&a, &all, &t, &next);
            }
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

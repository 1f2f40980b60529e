// SPDX-License-Identifier: MIT
// rope.c: ROPE, ROPE_BACK, and fusions of ROPE with the SET_ROWS that copies its rows into a cache.

#include "cuda/kernel/rope.h"

#include "core/graph.h"
#include "cuda/op/op.h"

#include <math.h>

enum { EARLY_TOKENS = 8 }; // largest number of tokens for which is_early is set; with more tokens, an early start does not matter

static bool mode_is_valid(const struct ggml_tensor *op) {
    const int32_t n_dims = param_i32(op, 1), mode = param_i32(op, 2), n_offs = param_i32(op, 15);
    const int32_t *s = &op->op_params[11];
    const bool multi = (mode & GGML_ROPE_TYPE_MROPE) != 0, vision = mode == GGML_ROPE_TYPE_VISION;
    if (n_dims <= 0 || n_dims > op->ne[0] || n_dims % 2 != 0 || (vision && (int64_t) n_dims * 2 != op->ne[0]) || n_offs < 0 ||
        n_offs % 2 != 0 || (int64_t) n_offs + n_dims > op->ne[0] || (n_offs > 0 && vision)) {
        return false;
    }
    if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX && mode != GGML_ROPE_TYPE_MROPE && !vision &&
        mode != GGML_ROPE_TYPE_IMROPE) {
        return false;
    }
    return !multi || (s[0] >= 0 && s[1] >= 0 && s[2] >= 0 && s[3] >= 0 && (s[0] > 0 || s[1] > 0 || s[2] > 0) &&
                         (int64_t) s[0] + s[1] + s[2] + s[3] <= op->ne[0]);
}

static bool rope_supports(CUDA_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *pos = op->src[1], *factors = op->src[2];
    if (a == NULL || pos == NULL || !cuda_is_float(a->type) || a->type != op->type || !ggml_are_same_shape(a, op) ||
        pos->type != GGML_TYPE_I32 || ggml_nrows(op) >= INT32_MAX || !mode_is_valid(op)) {
        return false;
    }
    const int32_t mode = param_i32(op, 2);
    const int64_t n_pos = (mode & GGML_ROPE_TYPE_MROPE) != 0 ? GGML_MROPE_SECTIONS * op->ne[2] : op->ne[2];
    const int64_t n_pairs = mode == GGML_ROPE_TYPE_VISION ? op->ne[0] / 2 : param_i32(op, 1) / 2;
    return pos->ne[0] >= n_pos && (factors == NULL || (factors->type == GGML_TYPE_F32 && factors->ne[0] >= n_pairs));
}

static struct cuda_rope_args args_of(const struct ggml_cgraph *graph, const struct ggml_tensor *op) {
    const int32_t n_dims = param_i32(op, 1), mode = param_i32(op, 2);
    const float freq_base = param_f32(op, 5), freq_scale = param_f32(op, 6), ext_factor = param_f32(op, 7);
    const struct ggml_tensor *factors = op->src[2];
    struct cuda_rope_args g = {.dst = cuda_view_of(op),
        .a = cuda_view_of(op->src[0]),
        .pos = op->src[1]->data,
        .pos_nb = (int64_t) op->src[1]->nb[0],
        .n_rows = ggml_nrows(op),
        .n_offs = param_i32(op, 15),
        .is_multi = (mode & GGML_ROPE_TYPE_MROPE) != 0,
        .is_vision = mode == GGML_ROPE_TYPE_VISION,
        .is_interleaved = mode == GGML_ROPE_TYPE_IMROPE,
        .step = powf(freq_base, -2.0f / (float) n_dims),
        .freq_scale = freq_scale,
        .ext_factor = ext_factor,
        .length = param_f32(op, 8),
        .sin_sign = op->op == GGML_OP_ROPE_BACK ? -1.0f : 1.0f};
    g.is_halves = g.is_multi || (mode & GGML_ROPE_TYPE_NEOX) != 0;
    g.n_pairs = (int32_t) (g.is_vision ? op->ne[0] / 2 : n_dims / 2);
    g.n_apart = g.is_halves ? n_dims / 2 : 1;
    if (g.is_vision) {
        g.n_apart = n_dims;
    }
    memcpy(g.sections, &op->op_params[11], sizeof g.sections);
    if (ext_factor != 0.0f) {
        g.length *= 1.0f + 0.1f * logf(1.0f / freq_scale);
    }
    ggml_rope_yarn_corr_dims(n_dims, param_i32(op, 4), freq_base, param_f32(op, 9), param_f32(op, 10), g.ramp);
    g.is_early =
        op->ne[2] <= EARLY_TOKENS && cuda_is_const(graph, op->src[1]) && (factors == NULL || cuda_is_const(graph, factors));
    if (factors != NULL) {
        g.factors = factors->data;
        g.factors_nb = (int64_t) factors->nb[0];
    }
    return g;
}

static enum ggml_status rope_launch(struct cuda_run *r, const struct cuda_rope_jobs *jobs, int n) {
    unsigned x = 32;
    int64_t n_rows = 0;
    for (int i = 0; i < n; i++) {
        while (x < 128 && (int32_t) x < jobs->job[i].n_pairs) {
            x *= 2;
        }
        n_rows = max_i64(n_rows, jobs->job[i].n_rows);
    }
    const unsigned y = 128 / x;
    const int64_t n_blocks = (n_rows + y - 1) / y;
    if (n_blocks == 0) {
        return GGML_STATUS_SUCCESS;
    }
    // The kernel reads and writes a row pair by pair, so it also works in place.
    const struct cuda_dims dims = {
        .grid = {(unsigned) min_i64(n_blocks, 1 << 20), (unsigned) n}, .block = {x, y}, .overlap = true};
    return n == 1 ? cuda_launch_one(r, "rope", dims, &jobs->job[0]) : cuda_launch_one(r, "rope_jobs", dims, jobs);
}

static enum ggml_status rope_run(struct cuda_run *r, struct ggml_tensor *op) {
    const struct cuda_rope_jobs jobs = {.job = {args_of(r->graph, op)}};
    return rope_launch(r, &jobs, 1);
}

// ---- fusion of ROPE, views of its result, and SET_ROWS: the rotated rows are written directly into the cache ----

// Returns the SET_ROWS that reads the result of the ROPE at node i through views that flatten it to one row per token. Stores in
// *n the number of nodes from the ROPE to the SET_ROWS, both included. Returns NULL if another node is between them.
static const struct ggml_tensor *set_rows_after(const struct ggml_cgraph *graph, int i, int *n) {
    const struct ggml_tensor *from = graph->nodes[i];
    for (int at = i + 1; at < graph->n_nodes && at < i + 4; at++) {
        const struct ggml_tensor *node = graph->nodes[at];
        if (!cuda_is_used_once(graph, from)) {
            return NULL;
        }
        if ((node->op == GGML_OP_RESHAPE || node->op == GGML_OP_VIEW) && node->src[0] == from &&
            ggml_nelements(node) == ggml_nelements(from) && ggml_is_contiguous(node) && node->view_offs == from->view_offs) {
            from = node;
            continue;
        }
        *n = at - i + 1;
        return node->op == GGML_OP_SET_ROWS && node->src[0] == from ? node : NULL;
    }
    return NULL;
}

// Returns whether a SET_ROWS writes rows of floats into a cache, by one row index per token.
static bool sets_cache_rows(const struct ggml_tensor *set) {
    return cuda_is_float(set->type) && cuda_is_float(set->src[0]->type) && set->ne[2] == 1 && set->ne[3] == 1 &&
           set->nb[0] == ggml_type_size(set->type) && ggml_nrows(set->src[1]) == 1 &&
           (set->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
}

// Returns the number of nodes from the ROPE at node i to its SET_ROWS, both included. 0: node i is not a ROPE whose rows go into
// the cache.
static int rope_set_at(const struct ggml_cgraph *graph, int i) {
    const struct ggml_tensor *rope = graph->nodes[i];
    int n = 0;
    if (rope->op != GGML_OP_ROPE || rope->ne[3] != 1 || !ggml_is_contiguous(rope)) {
        return 0;
    }
    const struct ggml_tensor *set = set_rows_after(graph, i, &n);
    if (set == NULL || !sets_cache_rows(set) || set->src[0]->ne[0] != rope->ne[0] * rope->ne[1] ||
        set->src[0]->ne[1] != rope->ne[2]) {
        return 0;
    }
    return cuda_overlap(set, rope->src[0]) ? 0 : n;
}

static int set_match(CUDA_DEV, const struct ggml_cgraph *graph, int i) {
    return rope_set_at(graph, i);
}

// Makes job g write its rows into the cache, as the SET_ROWS `set` does.
static void args_set_cache(const struct ggml_cgraph *graph, struct cuda_rope_args *g, const struct ggml_tensor *set) {
    const struct ggml_tensor *numbers = set->src[1];
    g->dst.p = set->data;
    g->dst.type = (int32_t) set->type;
    g->dst.nb[0] = (int64_t) set->nb[0];
    g->numbers = numbers->data;
    g->numbers_nb = (int64_t) numbers->nb[0];
    g->numbers_are_64 = numbers->type == GGML_TYPE_I64;
    g->to_nb1 = (int64_t) set->nb[1];
    g->to_ne1 = set->ne[1];
    g->is_early = g->is_early && cuda_is_const(graph, numbers);
}

static enum ggml_status set_run(struct cuda_run *r, const struct ggml_cgraph *graph, int i, int n) {
    struct cuda_rope_jobs jobs = {.job = {args_of(graph, graph->nodes[i])}};
    args_set_cache(graph, &jobs.job[0], graph->nodes[i + n - 1]);
    return rope_launch(r, &jobs, 1);
}

const struct cuda_fusion cuda_fusion_rope_set = {.name = "rope into the cache", .match = set_match, .run = set_run};

// ---- fusion in one launch: ROPE of queries; ROPE of keys and SET_ROWS into the cache; SET_ROWS of values into the cache ----

struct rope_qkv {
    const struct ggml_tensor *query, *key, *key_set, *value_set; // ROPE, ROPE, SET_ROWS, SET_ROWS
    int n;                                                       // number of nodes; 0: no fusion
};

// Returns the index of the first node from i on that is not a view.
static int next_computed(const struct ggml_cgraph *graph, int i) {
    while (i < graph->n_nodes && (graph->nodes[i]->op == GGML_OP_RESHAPE || graph->nodes[i]->op == GGML_OP_VIEW ||
                                     graph->nodes[i]->op == GGML_OP_PERMUTE || graph->nodes[i]->op == GGML_OP_TRANSPOSE)) {
        i++;
    }
    return i;
}

// Returns whether rows of values can be cut into heads of `head` elements, so that threads process them like keys.
static bool is_in_heads(const struct ggml_tensor *set, int64_t head) {
    const struct ggml_tensor *rows = set->src[0];
    return rows->ne[0] % head == 0 && rows->nb[0] == ggml_type_size(rows->type) && rows->ne[2] == 1 && rows->ne[3] == 1;
}

// Returns whether the three jobs are independent: no job writes what another job reads or writes. Queries may be rotated in
// place.
static bool may_run_together(const struct rope_qkv *t) {
    const struct ggml_tensor *out[] = {t->query, t->key_set, t->value_set};
    const struct ggml_tensor *in[] = {t->query->src[0], t->query->src[1], t->query->src[2], t->key->src[0], t->key->src[1],
        t->key->src[2], t->key_set->src[1], t->value_set->src[0], t->value_set->src[1]};
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < sizeof in / sizeof in[0]; j++) {
            const bool is_own = i == 0 && j == 0;
            if (in[j] != NULL && (is_own ? !cuda_may_write_over(out[i], in[j]) : cuda_overlap(out[i], in[j]))) {
                return false;
            }
        }
        for (int j = 0; j < i; j++) {
            if (cuda_overlap(out[i], out[j])) {
                return false;
            }
        }
    }
    return true;
}

// Returns the fusion that starts at node i. If no fusion starts there, n is 0.
static struct rope_qkv qkv_at(const struct ggml_cgraph *graph, int i) {
    struct rope_qkv t = {.query = graph->nodes[i]};
    const int key = next_computed(graph, i + 1);
    const int n_set = key < graph->n_nodes && t.query->op == GGML_OP_ROPE ? rope_set_at(graph, key) : 0;
    const int value = n_set > 0 ? next_computed(graph, key + n_set) : graph->n_nodes;
    if (value >= graph->n_nodes || graph->nodes[value]->op != GGML_OP_SET_ROWS) {
        return t;
    }
    t.key = graph->nodes[key];
    t.key_set = graph->nodes[key + n_set - 1];
    t.value_set = graph->nodes[value];
    if ((t.query->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && (t.key->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 &&
        sets_cache_rows(t.value_set) && is_in_heads(t.value_set, t.key->ne[0]) && may_run_together(&t)) {
        t.n = value - i + 1;
    }
    return t;
}

static int qkv_match(const struct cuda_device *dev, const struct ggml_cgraph *graph, int i) {
    const struct rope_qkv t = qkv_at(graph, i);
    return t.n > 0 && ggml_nelements(t.value_set->src[0]) < INT32_MAX && cuda_supports_op(dev, t.query) &&
                   cuda_supports_op(dev, t.key) && cuda_supports_op(dev, t.value_set)
               ? t.n
               : 0;
}

static enum ggml_status qkv_run(struct cuda_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct rope_qkv t = qkv_at(graph, i);
    const struct ggml_tensor *rows = t.value_set->src[0];
    const int64_t head = t.key->ne[0], n_heads = rows->ne[0] / head;
    struct cuda_rope_jobs jobs = {.job = {args_of(graph, t.query), args_of(graph, t.key),
                                      {.a = cuda_view_of(rows), .is_early = rows->ne[1] <= EARLY_TOKENS}}};
    struct cuda_rope_args *value = &jobs.job[2];
    (void) n;
    args_set_cache(graph, &jobs.job[1], t.key_set);
    value->a.ne[0] = head;
    value->a.ne[1] = n_heads;
    value->a.ne[2] = rows->ne[1];
    value->a.nb[2] = (int64_t) rows->nb[1];
    value->a.nb[1] = head * (int64_t) rows->nb[0];
    value->n_rows = n_heads * rows->ne[1];
    args_set_cache(graph, value, t.value_set);
    return rope_launch(r, &jobs, CUDA_ROPE_JOBS);
}

const struct cuda_fusion cuda_fusion_rope_qkv = {
    .name = "rope of queries and keys, keys and values into the cache", .match = qkv_match, .run = qkv_run};

const struct cuda_op_entry cuda_ops_rope[] = {
    {GGML_OP_ROPE, {.supports = rope_supports, .run = rope_run}},
    {GGML_OP_ROPE_BACK, {.supports = rope_supports, .run = rope_run}},
    CUDA_OPS_END,
};

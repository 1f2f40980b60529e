// SPDX-License-Identifier: MIT
// rope.c: ROPE, ROPE_BACK, and fusions of ROPE with the SET_ROWS that copies its rows into a cache.

#include "gpu/kernel/rope.h"

#include "core/graph.h"
#include "gpu/op/op.h"

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

static bool rope_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *pos = op->src[1], *factors = op->src[2];
    if (a == NULL || pos == NULL || !gpu_is_float(a->type) || a->type != op->type || !ggml_are_same_shape(a, op) ||
        pos->type != GGML_TYPE_I32 || ggml_nrows(op) >= INT32_MAX || !mode_is_valid(op)) {
        return false;
    }
    const int32_t mode = param_i32(op, 2);
    const int64_t n_pos = (mode & GGML_ROPE_TYPE_MROPE) != 0 ? GGML_MROPE_SECTIONS * op->ne[2] : op->ne[2];
    const int64_t n_pairs = mode == GGML_ROPE_TYPE_VISION ? op->ne[0] / 2 : param_i32(op, 1) / 2;
    return pos->ne[0] >= n_pos && (factors == NULL || (factors->type == GGML_TYPE_F32 && factors->ne[0] >= n_pairs));
}

static struct gpu_rope_args args_of(const struct ggml_cgraph *graph, const struct ggml_tensor *op) {
    const int32_t n_dims = param_i32(op, 1), mode = param_i32(op, 2);
    const float freq_base = param_f32(op, 5), freq_scale = param_f32(op, 6), ext_factor = param_f32(op, 7);
    const struct ggml_tensor *factors = op->src[2];
    struct gpu_rope_args g = {.dst = gpu_view_of(op),
        .a = gpu_view_of(op->src[0]),
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
        .magnitude = param_f32(op, 8),
        .sin_sign = op->op == GGML_OP_ROPE_BACK ? -1.0f : 1.0f};
    g.is_halves = g.is_multi || (mode & GGML_ROPE_TYPE_NEOX) != 0;
    g.n_pairs = (int32_t) (g.is_vision ? op->ne[0] / 2 : n_dims / 2);
    g.n_apart = g.is_halves ? n_dims / 2 : 1;
    if (g.is_vision) {
        g.n_apart = n_dims;
    }
    memcpy(g.sections, &op->op_params[11], sizeof g.sections);
    if (ext_factor != 0.0f) {
        g.magnitude *= 1.0f + 0.1f * logf(1.0f / freq_scale);
    }
    ggml_rope_yarn_corr_dims(n_dims, param_i32(op, 4), freq_base, param_f32(op, 9), param_f32(op, 10), g.ramp);
    g.is_early =
        op->ne[2] <= EARLY_TOKENS && gpu_is_const(graph, op->src[1]) && (factors == NULL || gpu_is_const(graph, factors));
    if (factors != NULL) {
        g.factors = factors->data;
        g.factors_nb = (int64_t) factors->nb[0];
    }
    return g;
}

static enum ggml_status rope_launch(struct gpu_run *r, const struct gpu_rope_jobs *jobs, int n) {
    unsigned x = 32;
    int64_t n_rows = 0;
    bool has_norm = false; // then a warp computes a row
    for (int i = 0; i < n; i++) {
        has_norm = has_norm || jobs->job[i].norm != NULL;
    }
    for (int i = 0; i < n; i++) {
        while (!has_norm && x < 128 && (int32_t) x < jobs->job[i].n_pairs) {
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
    const struct gpu_dims dims = {
        .grid = {(unsigned) min_i64(n_blocks, 1 << 20), (unsigned) n}, .block = {x, y}, .overlap = true};
    return n == 1 ? gpu_launch(r, "rope", dims, &jobs->job[0]) : gpu_launch(r, "rope_jobs", dims, jobs);
}

static enum ggml_status rope_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_rope_jobs jobs = {.job = {args_of(r->graph, op)}};
    return rope_launch(r, &jobs, 1);
}

// ---- fusion of ROPE, views of its result, and SET_ROWS: the rotated rows are written directly into the cache ----

static bool is_view(const struct ggml_tensor *t) {
    return t->op == GGML_OP_RESHAPE || t->op == GGML_OP_VIEW || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

// Returns the SET_ROWS that reads the result of the ROPE at node i through views that flatten it to one row per token. Stores in
// *n the number of nodes from the ROPE to the SET_ROWS, both included. Other views, for example of the cache, may be between them.
// Returns NULL if another node is between them.
static const struct ggml_tensor *set_rows_after(const struct ggml_cgraph *graph, int i, int *n) {
    enum { AHEAD = 6 }; // nodes to search
    const struct ggml_tensor *from = graph->nodes[i];
    for (int at = i + 1; at < graph->n_nodes && at <= i + AHEAD; at++) {
        const struct ggml_tensor *node = graph->nodes[at];
        if (!gpu_is_used_once(graph, from)) {
            return NULL;
        }
        if ((node->op == GGML_OP_RESHAPE || node->op == GGML_OP_VIEW) && node->src[0] == from &&
            ggml_nelements(node) == ggml_nelements(from) && ggml_is_contiguous(node) && node->view_offs == from->view_offs) {
            from = node;
            continue;
        }
        if (is_view(node) && node->src[0] != from) {
            continue;
        }
        *n = at - i + 1;
        return node->op == GGML_OP_SET_ROWS && node->src[0] == from ? node : NULL;
    }
    return NULL;
}

// Returns whether a SET_ROWS writes rows of floats into a cache, by one row index per token.
static bool sets_cache_rows(const struct ggml_tensor *set) {
    return gpu_is_float(set->type) && gpu_is_float(set->src[0]->type) && set->ne[2] == 1 && set->ne[3] == 1 &&
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
    return n;
}

static int set_match(GPU_DEV, const struct ggml_cgraph *graph, int i) {
    const int n = rope_set_at(graph, i);
    return n > 0 && !gpu_overlap(graph->nodes[i + n - 1], graph->nodes[i]->src[0]) ? n : 0;
}

// Makes job g write its rows into the cache, as the SET_ROWS `set` does.
static void args_set_cache(const struct ggml_cgraph *graph, struct gpu_rope_args *g, const struct ggml_tensor *set) {
    const struct ggml_tensor *numbers = set->src[1];
    g->dst.p = set->data;
    g->dst.type = (int32_t) set->type;
    g->dst.nb[0] = (int64_t) set->nb[0];
    g->numbers = numbers->data;
    g->numbers_nb = (int64_t) numbers->nb[0];
    g->numbers_are_64 = numbers->type == GGML_TYPE_I64;
    g->to_nb1 = (int64_t) set->nb[1];
    g->to_ne1 = set->ne[1];
    g->is_early = g->is_early && gpu_is_const(graph, numbers);
}

static enum ggml_status set_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    struct gpu_rope_jobs jobs = {.job = {args_of(graph, graph->nodes[i])}};
    args_set_cache(graph, &jobs.job[0], graph->nodes[i + n - 1]);
    return rope_launch(r, &jobs, 1);
}

const struct gpu_fusion gpu_fusion_rope_set = {.name = "rope into the cache", .match = set_match, .run = set_run};

// ---- fusion in one launch: [norm,] ROPE of queries; [norm,] ROPE of keys and SET_ROWS into the cache; SET_ROWS of values into the
// cache ----

// A ROPE, and the RMS_NORM of its heads with the MUL by weights before it.
struct rope_norm {
    const struct ggml_tensor *rope;
    const struct ggml_tensor *norm, *weights; // NULL: no norm
};

struct rope_qkv {
    struct rope_norm query, key;
    const struct ggml_tensor *key_set, *value_set; // SET_ROWS
    int n;                                         // number of nodes; 0: no fusion
};

// Returns the index of the first node from i on that is not a view.
static int next_computed(const struct ggml_cgraph *graph, int i) {
    while (i < graph->n_nodes && is_view(graph->nodes[i])) {
        i++;
    }
    return i;
}

// Returns the tensor whose rows are rotated.
static const struct ggml_tensor *rotated_of(const struct rope_norm *r) {
    return r->norm != NULL ? r->norm->src[0] : r->rope->src[0];
}

// Fills *r with the ROPE at node i, or with the RMS_NORM at node i, its MUL and the ROPE after them. Returns the index of the ROPE.
// Returns -1 if there is no match.
static int rope_norm_at(const struct ggml_cgraph *graph, int i, struct rope_norm *r) {
    *r = (struct rope_norm){.rope = gpu_node_at(graph, i, GGML_OP_ROPE)};
    if (r->rope != NULL) {
        return i;
    }
    const struct ggml_tensor *norm = gpu_node_at(graph, i, GGML_OP_RMS_NORM), *mul = gpu_node_at(graph, i + 1, GGML_OP_MUL);
    if (norm == NULL || mul == NULL || !gpu_is_used_once(graph, norm) || !gpu_is_used_once(graph, mul)) {
        return -1;
    }
    const int at = next_computed(graph, i + 2);
    const struct ggml_tensor *rope = gpu_node_at(graph, at, GGML_OP_ROPE), *weights = gpu_other_source(mul, norm);
    const int64_t head = norm->ne[0];
    if (rope == NULL || rope->src[0] != mul || weights == NULL || weights->type != GGML_TYPE_F32 || weights->ne[0] != head ||
        ggml_nelements(weights) != head || weights->nb[0] != sizeof(float) || norm->src[0]->type != GGML_TYPE_F32 ||
        head > GPU_ROPE_NORM_MAX || param_i32(rope, 1) != head || param_i32(rope, 2) == GGML_ROPE_TYPE_VISION) {
        return -1;
    }
    *r = (struct rope_norm){.rope = rope, .norm = norm, .weights = weights};
    return at;
}

// Returns whether rows of values can be cut into heads of `head` elements, so that threads process them like keys.
static bool is_in_heads(const struct ggml_tensor *set, int64_t head) {
    const struct ggml_tensor *rows = set->src[0];
    return rows->ne[0] % head == 0 && rows->nb[0] == ggml_type_size(rows->type) && rows->ne[2] == 1 && rows->ne[3] == 1;
}

// Returns whether the three jobs are independent: no job writes what another job reads or writes. Queries may be rotated in
// place.
static bool may_run_together(const struct rope_qkv *t) {
    const struct ggml_tensor *query = t->query.rope, *key = t->key.rope;
    const struct ggml_tensor *out[] = {query, t->key_set, t->value_set};
    const struct ggml_tensor *in[] = {rotated_of(&t->query), query->src[1], query->src[2], t->query.weights, rotated_of(&t->key),
        key->src[1], key->src[2], t->key.weights, t->key_set->src[1], t->value_set->src[0], t->value_set->src[1]};
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < sizeof in / sizeof in[0]; j++) {
            const bool is_own = i == 0 && j == 0;
            if (in[j] != NULL && (is_own ? !gpu_may_write_over(out[i], in[j]) : gpu_overlap(out[i], in[j]))) {
                return false;
            }
        }
        for (int j = 0; j < i; j++) {
            if (gpu_overlap(out[i], out[j])) {
                return false;
            }
        }
    }
    return true;
}

// Returns the fusion that starts at node i, without regard to addresses. If no fusion starts there, n is 0.
static struct rope_qkv qkv_at(const struct ggml_cgraph *graph, int i) {
    struct rope_qkv t = {.n = 0};
    const int query = rope_norm_at(graph, i, &t.query);
    const int key = query >= 0 ? rope_norm_at(graph, next_computed(graph, query + 1), &t.key) : -1;
    const int n_set = key >= 0 ? rope_set_at(graph, key) : 0;
    const int value = n_set > 0 ? next_computed(graph, key + n_set) : graph->n_nodes;
    t.value_set = gpu_node_at(graph, value, GGML_OP_SET_ROWS);
    if (t.value_set == NULL || !sets_cache_rows(t.value_set) || !is_in_heads(t.value_set, t.key.rope->ne[0])) {
        return t;
    }
    t.key_set = graph->nodes[key + n_set - 1];
    t.n = value - i + 1;
    return t;
}

static int qkv_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    const struct rope_qkv t = qkv_at(graph, i);
    return t.n > 0 && may_run_together(&t) && ggml_nelements(t.value_set->src[0]) < INT32_MAX &&
                   gpu_supports_op(dev, t.query.rope) && gpu_supports_op(dev, t.key.rope) && gpu_supports_op(dev, t.value_set)
               ? t.n
               : 0;
}

static struct gpu_rope_args norm_args_of(const struct ggml_cgraph *graph, const struct rope_norm *r) {
    struct gpu_rope_args g = args_of(graph, r->rope);
    if (r->norm != NULL) {
        g.a = gpu_view_of(r->norm->src[0]);
        g.norm = r->weights->data;
        g.eps = param_f32(r->norm, 0);
    }
    return g;
}

static enum ggml_status qkv_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct rope_qkv t = qkv_at(graph, i);
    const struct ggml_tensor *rows = t.value_set->src[0];
    const int64_t head = t.key.rope->ne[0], n_heads = rows->ne[0] / head;
    struct gpu_rope_jobs jobs = {.job = {norm_args_of(graph, &t.query), norm_args_of(graph, &t.key),
                                     {.a = gpu_view_of(rows), .is_early = rows->ne[1] <= EARLY_TOKENS}}};
    struct gpu_rope_args *value = &jobs.job[2];
    (void) n;
    args_set_cache(graph, &jobs.job[1], t.key_set);
    value->a.ne[0] = head;
    value->a.ne[1] = n_heads;
    value->a.ne[2] = rows->ne[1];
    value->a.nb[2] = (int64_t) rows->nb[1];
    value->a.nb[1] = head * (int64_t) rows->nb[0];
    value->n_rows = n_heads * rows->ne[1];
    args_set_cache(graph, value, t.value_set);
    return rope_launch(r, &jobs, GPU_ROPE_JOBS);
}

const struct gpu_fusion gpu_fusion_rope_qkv = {
    .name = "rope of queries and keys, keys and values into the cache", .match = qkv_match, .run = qkv_run};

void gpu_rope_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rope_qkv t = qkv_at(graph, i);
        if (t.n > 0 && t.query.norm != NULL) {
            gpu_keep(params, t.query.norm->src[0], graph->nodes[i + t.n - 1]);
        }
        if (t.n > 0 && t.key.norm != NULL) {
            gpu_keep(params, t.key.norm->src[0], graph->nodes[i + t.n - 1]);
        }
    }
}

const struct gpu_op_entry gpu_ops_rope[] = {
    {GGML_OP_ROPE, {.supports = rope_supports, .run = rope_run}},
    {GGML_OP_ROPE_BACK, {.supports = rope_supports, .run = rope_run}},
    GPU_OPS_END,
};

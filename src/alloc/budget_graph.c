// SPDX-License-Identifier: MIT
// budget_graph.c: builds a graph that stays within a memory limit. The solver (src/plan/budget) decides which ops are recomputed
// and which values are spilled; both become additional nodes of the graph. If the allocator requires more memory for this graph
// than the limit, the solver runs again with a lower limit.

#include "alloc/alloc.h"
#include "alloc/budget.h"
#include "base/min.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define N_TRIES 12
#define SPILL_FLOPS_PER_BYTE 4 // a copy reads and writes each byte

// A source that the rewrite replaced: tensor->src[slot] was src before.
struct undo {
    struct ggml_tensor *tensor;
    struct ggml_tensor *src;
    int slot;
};

struct rewrite {
    const struct graph_ops *o;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct berth_arrays mem;                          // owns the arrays below except undos
    struct ggml_tensor **current;                     // [n] tensor that holds the op's value now
    struct ggml_tensor **out;                         // [n] copy of the value in the spill pool
    bool *has_run;                                    // [n]
    struct ggml_tensor **view_copies, **view_copy_of; // [list.n] copy of a view, and the tensor that the copy is a view of
    struct undo *undos;
    size_t n_undos, undos_cap;
};

// Returns a tensor with the layout and op of t, without memory and sources. Its name is the name of t followed by `suffix`. If
// the name is too long, the part from t is cut.
static struct ggml_tensor *clone_new(struct rewrite *w, const struct ggml_tensor *t, const char *suffix) {
    struct ggml_tensor *clone = ggml_new_tensor(w->ctx, t->type, GGML_MAX_DIMS, t->ne);
    if (berth_is_poison(clone)) {
        return clone;
    }
    memcpy(clone->nb, t->nb, sizeof clone->nb);
    memcpy(clone->op_params, t->op_params, sizeof clone->op_params);
    clone->op = t->op;
    clone->flags =
        t->flags & ~(GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT | GGML_TENSOR_FLAG_PARAM | GGML_TENSOR_FLAG_LOSS);
    snprintf(clone->name, sizeof clone->name, "%.*s%s", (int) (sizeof clone->name - 1 - strlen(suffix)), t->name, suffix);
    return clone;
}

// Returns a node that copies `from` to the spill pool (BERTH_MOVE_OUT) or back (BERTH_MOVE_IN). `own` is the tensor of the
// caller's graph whose value is moved. The new node has the layout of `own`, and the name of `own` with a suffix.
static struct ggml_tensor *move_new(
    struct rewrite *w, const struct ggml_tensor *own, struct ggml_tensor *from, enum berth_move kind) {
    struct ggml_tensor *move =
        clone_new(w, own, kind == BERTH_MOVE_OUT ? BERTH_BUDGET_SUFFIX_SPILLED : BERTH_BUDGET_SUFFIX_RESTORED);
    if (berth_is_poison(move)) {
        return move;
    }
    memset(move->op_params, 0, sizeof move->op_params);
    move->op = GGML_OP_DUP;
    move->op_params[0] = (int32_t) kind;
    move->src[0] = from;
    return move;
}

// Returns the tensor that a reader of `src` must read at this point of the schedule: src itself, the current copy of its value,
// or a view of that copy.
static struct ggml_tensor *src_current(struct rewrite *w, struct ggml_tensor *src) {
    struct ggml_tensor *root = src;
    while (root->view_src != NULL) {
        root = root->view_src;
    }
    const int32_t i = record_list_find(&w->o->list, src), r = record_list_find(&w->o->list, root),
                  op = r < 0 ? -1 : w->o->op_of[r];
    if (op < 0 || w->current[op] == root) {
        return src;
    }
    if (src == root) {
        return w->current[op];
    }
    if (w->view_copy_of[i] != w->current[op]) {
        struct ggml_tensor *clone = clone_new(w, src, BERTH_BUDGET_SUFFIX_RECOMPUTED);
        clone->view_src = w->current[op];
        clone->view_offs = src->view_offs;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            clone->src[k] = src->src[k] == NULL ? NULL : src_current(w, src->src[k]);
        }
        w->view_copies[i] = clone;
        w->view_copy_of[i] = w->current[op];
    }
    return w->view_copies[i];
}

static bool src_set(struct rewrite *w, struct ggml_tensor *t, int slot, struct ggml_tensor *src) {
    if (t->src[slot] == src) {
        return true;
    }
    if (!BERTH_GROW(&w->undos, &w->undos_cap, w->n_undos + 1)) {
        return false;
    }
    w->undos[w->n_undos++] = (struct undo){t, t->src[slot], slot};
    t->src[slot] = src;
    return true;
}

static bool step_write(struct rewrite *w, const struct berth_budget_step *step) {
    const int32_t op = step->op;
    struct ggml_tensor *own = w->o->tensors[op];
    bool ok = true;
    if (step->kind == BERTH_BUDGET_SPILL) {
        w->out[op] = move_new(w, own, w->current[op], BERTH_MOVE_OUT);
        ggml_build_forward_expand(w->graph, w->out[op]);
        return true;
    }
    if (step->kind == BERTH_BUDGET_RESTORE) {
        w->current[op] = move_new(w, own, w->out[op], BERTH_MOVE_IN);
    } else if (!w->has_run[op]) {
        for (int k = 0; ok && k < GGML_MAX_SRC; k++) {
            ok = own->src[k] == NULL || src_set(w, own, k, src_current(w, own->src[k]));
        }
        w->has_run[op] = true;
    } else {
        struct ggml_tensor *clone = clone_new(w, own, BERTH_BUDGET_SUFFIX_RECOMPUTED);
        for (int32_t k = 0; k < GGML_MAX_SRC; k++) {
            clone->src[k] = own->src[k];
        }
        // The clone starts from the sources of the caller's graph, before src_set replaced them.
        for (size_t k = 0; k < w->n_undos; k++) {
            if (w->undos[k].tensor == own) {
                clone->src[w->undos[k].slot] = w->undos[k].src;
            }
        }
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            clone->src[k] = clone->src[k] == NULL ? NULL : src_current(w, clone->src[k]);
        }
        w->current[op] = clone;
    }
    ggml_build_forward_expand(w->graph, w->current[op]);
    return ok;
}

static void rewrite_undo(struct rewrite *w) {
    while (w->n_undos > 0) {
        const struct undo *u = &w->undos[--w->n_undos];
        u->tensor->src[u->slot] = u->src;
    }
}

static void rewrite_fini(struct rewrite *w) {
    berth_arrays_free(&w->mem);
    berth_free(w->undos);
}

// Returns an upper bound of the number of nodes.
static size_t nodes_bound(const struct graph_ops *o, const struct berth_budget_result *r) {
    size_t n = (size_t) o->list.n + 16;
    for (int64_t k = 0; k < r->n_steps; k++) {
        n += 1 + (size_t) o->n_views[r->steps[k].op];
    }
    return n;
}

static bool rewrite_init(struct rewrite *w, const struct graph_ops *o, const struct berth_budget_result *r) {
    const size_t n = nodes_bound(o, r);
    *w = (struct rewrite){.o = o};
    w->current = berth_arrays_new(&w->mem, (size_t) o->n, sizeof *w->current);
    w->out = berth_arrays_new(&w->mem, (size_t) o->n, sizeof *w->out);
    w->has_run = berth_arrays_new(&w->mem, (size_t) o->n, sizeof *w->has_run);
    w->view_copies = berth_arrays_new(&w->mem, (size_t) o->list.n, sizeof *w->view_copies);
    w->view_copy_of = berth_arrays_new(&w->mem, (size_t) o->list.n, sizeof *w->view_copy_of);
    if (w->mem.has_failed) {
        return false;
    }
    memcpy(w->current, o->tensors, (size_t) o->n * sizeof *w->current);
    w->ctx = ggml_init((struct ggml_init_params){
        .mem_size = n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false) + 4096, .no_alloc = true});
    w->graph = w->ctx == NULL ? NULL : ggml_new_graph_custom(w->ctx, n, false);
    return w->graph != NULL;
}

static bool rewrite_run(struct rewrite *w, struct ggml_cgraph *graph, const struct berth_budget_result *r) {
    for (int64_t k = 0; k < r->n_steps; k++) {
        if (!step_write(w, &r->steps[k])) {
            return false;
        }
    }
    // Adds the views that no node reads. All other nodes are already in the new graph.
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        ggml_build_forward_expand(w->graph, ggml_graph_node(graph, i));
    }
    return berth_graph_check(w->graph) == GGML_STATUS_SUCCESS;
}

// ---- pools ----

int berth_budget_pool_of(const struct ggml_tensor *node) {
    const enum berth_move kind = node == NULL ? BERTH_MOVE_NONE : berth_move_of(node);
    if (kind == BERTH_MOVE_NONE) {
        return -1;
    }
    return kind == BERTH_MOVE_OUT;
}

void berth_budget_pools(const struct ggml_cgraph *graph, int *node_buffer_ids, int64_t n) {
    for (int i = 0; graph != NULL && node_buffer_ids != NULL && i < n && i < graph->n_nodes; i++) {
        node_buffer_ids[i] = berth_budget_pool_of(graph->nodes[i]) == 1;
    }
}

// ---- retries with lower limits ----

struct task {
    struct graph_ops o;
    struct graph_sizes sizes;
    const struct berth_graph_budget_params *budget;
    struct ggml_cgraph *graph;
    int n_pools; // 2: values may be spilled
};

// Computes the bytes that the allocator requires in each pool.
static enum ggml_status pools_measure(const struct task *t, struct ggml_cgraph *graph, size_t *bytes) {
    ggml_backend_buffer_type_t bufts[] = {t->sizes.buft, t->budget->spill_buft};
    ggml_gallocr_t galloc = ggml_gallocr_new_n(bufts, t->n_pools);
    int *pools = berth_calloc((size_t) graph->n_nodes + (size_t) graph->n_leafs + 1, sizeof *pools);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (galloc != NULL && pools != NULL) {
        berth_budget_pools(graph, pools, graph->n_nodes);
        status = berth_gallocr_sizes(galloc, graph, pools, pools + graph->n_nodes, bytes);
    }
    berth_free(pools);
    ggml_gallocr_free(galloc);
    return status;
}

static bool limits_are_lowered(const struct task *t, const uint64_t *limits) {
    return limits[0] != t->budget->memory_limit || limits[1] != t->budget->spill_limit;
}

// Solves with the given limits and rewrites the graph. *bytes: the sizes that the allocator requires. The caller undoes a
// rejected rewrite. If the caller wants no search, *result is NULL.
static enum ggml_status task_try(
    struct task *t, const uint64_t *limits, struct rewrite *w, struct berth_budget_result **result, size_t *bytes) {
    const double cost = t->budget->spill_cost_per_byte > 0 ? t->budget->spill_cost_per_byte : SPILL_FLOPS_PER_BYTE;
    const struct berth_budget_pool pools[] = {{.limit = limits[0],
                                                  .may_spill = t->n_pools > 1,
                                                  .spill_to = 1,
                                                  .spill_cost_per_byte = cost,
                                                  .spill_cost_per_copy = BUDGET_FLOPS_PER_NODE},
        {.pool = 1, .limit = limits[1]}};
    const bool is_lowered = limits_are_lowered(t, limits);
    const struct berth_budget_params params = {.pools = pools,
        .n_pools = t->n_pools,
        .time_limit_us = t->budget->time_limit_us,
        .seed = t->budget->seed,
        .proof = is_lowered ? NULL : t->budget->proof,
        .proof_data = t->budget->proof_data};
    *w = (struct rewrite){0};
    const int64_t n = t->o.n;
    if (!is_lowered && t->budget->on_ops != NULL && !t->budget->on_ops(t->o.ops, n, &params, t->budget->user_data)) {
        return GGML_STATUS_SUCCESS;
    }
    enum ggml_status status = t->budget->steps == NULL
                                  ? berth_budget_solve(t->o.ops, n, &params, result)
                                  : berth_budget_check(t->o.ops, n, &params, t->budget->steps, t->budget->n_steps, result);
    if (status != GGML_STATUS_SUCCESS || !(*result)->fits) {
        return status;
    }
    status = GGML_STATUS_ALLOC_FAILED;
    if (rewrite_init(w, &t->o, *result) && rewrite_run(w, t->graph, *result)) {
        status = pools_measure(t, w->graph, bytes);
    }
    return status == GGML_STATUS_ALLOC_FAILED
               ? berth_fail(status, "out of memory for a graph of %" PRId64 " steps within %zu bytes", (*result)->n_steps,
                     (size_t) limits[0])
               : status;
}

static uint64_t limit_lower(uint64_t limit, uint64_t requested, uint64_t taken) {
    if (taken <= requested) {
        return limit;
    }
    const uint64_t less = max_u64(taken - requested, limit / 256 + 1);
    return limit > less ? limit - less : 0;
}

static enum ggml_status task_run(
    struct task *t, struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result) {
    const uint64_t requested[] = {t->budget->memory_limit, t->budget->spill_limit};
    uint64_t limits[] = {requested[0], requested[1]};
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int n = 0; n < N_TRIES; n++) {
        struct rewrite w;
        size_t bytes[2] = {0, 0};
        berth_budget_free(*result);
        *result = NULL;
        status = task_try(t, limits, &w, result, bytes);
        bool fits = false;
        if (status == GGML_STATUS_SUCCESS && *result == NULL) {
            return status;
        }
        if (status == GGML_STATUS_SUCCESS) {
            fits = (*result)->fits && bytes[0] <= requested[0] && bytes[1] <= requested[1];
        }
        if (fits) {
            *ctx = w.ctx;
            *out = w.graph;
            for (int64_t p = 0; p < (*result)->n_uses && p < 2; p++) {
                (*result)->uses[p].peak = bytes[p];
            }
        } else {
            rewrite_undo(&w);
            ggml_free(w.ctx);
        }
        rewrite_fini(&w);
        if (fits || status != GGML_STATUS_SUCCESS || !(*result)->fits) {
            break;
        }
        (*result)->fits = false;
        if (t->budget->steps != NULL) {
            break;
        }
        for (int p = 0; p < t->n_pools; p++) {
            limits[p] = limit_lower(limits[p], requested[p], bytes[p]);
        }
    }
    if (*result != NULL && limits_are_lowered(t, limits)) { // what is proven holds for the lowered limits only
        (*result)->proven = false;
        (*result)->cost_bound = (*result)->cost_once;
    }
    return status;
}

enum ggml_status berth_graph_budget(struct ggml_cgraph *graph, const struct berth_graph_budget_params *budget,
    struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result) {
    if (graph == NULL || budget == NULL || ctx == NULL || out == NULL || result == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_graph_budget: an argument is NULL");
    }
    *ctx = NULL;
    *out = NULL;
    *result = NULL;
    enum ggml_status status = berth_graph_check(graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct task t = {.budget = budget, .graph = graph, .n_pools = budget->spill_buft != NULL ? 2 : 1};
    t.sizes.buft = budget->buft == NULL ? ggml_backend_cpu_buffer_type() : budget->buft;
    t.sizes.align = ggml_backend_buft_get_alignment(t.sizes.buft);
    if (t.n_pools > 1 && budget->spill_buft == t.sizes.buft) {
        return berth_fail(GGML_STATUS_FAILED, "budget: values cannot be spilled from %s to %s, which is the same memory",
            ggml_backend_buft_name(t.sizes.buft), ggml_backend_buft_name(budget->spill_buft));
    }
    if (!(budget->spill_cost_per_byte >= 0 && budget->spill_cost_per_byte < 0x1p40)) {
        return berth_fail(GGML_STATUS_FAILED, "budget: spill_cost_per_byte is %g; it must be at least 0 and less than 2^40",
            budget->spill_cost_per_byte);
    }
    status = graph_ops_init(&t.o, graph, &t.sizes);
    if (status == GGML_STATUS_SUCCESS) {
        status = task_run(&t, ctx, out, result);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_budget_free(*result);
        *result = NULL;
    } else if (*result != NULL && budget->on_alive != NULL) {
        for (int64_t i = 0; i < (*result)->n_alive; i++) {
            const int32_t op = (*result)->alive[i];
            budget->on_alive(i, t.o.tensors[op], t.o.ops[op].size, budget->user_data);
        }
    }
    graph_ops_fini(&t.o);
    return status;
}

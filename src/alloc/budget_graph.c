// SPDX-License-Identifier: MIT
// budget_graph.c: a graph that keeps a budget: nodes in the order of the solver's schedule, what runs again and what moves as
// nodes of their own, and readers that look at the copy that is there. The allocator has the last word on bytes: where it needs
// more than the solver thought, the solver is asked for less.

#include "alloc/alloc.h"
#include "alloc/budget.h"
#include "base/min.h"

#include <stdio.h>
#include <string.h>

#define N_TRIES 12
#define FLOPS_A_BYTE 4 // of a move that the CPU makes: it reads and writes

// A source that was another before.
struct undo {
    struct ggml_tensor *tensor;
    struct ggml_tensor *src;
    int slot;
};

struct rewrite {
    const struct graph_ops *o;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct berth_arrays mem;              // of the following, but undos
    struct ggml_tensor **now;             // [n] the tensor that has the op's value
    struct ggml_tensor **out;             // [n] its copy in the other pool
    bool *has_run;                        // [n]
    struct ggml_tensor **look, **look_at; // [list.n] the copy of a view, and whose value it looks at
    struct undo *undos;
    size_t n_undos, undos_cap;
};

// A tensor of the same kind, without memory, that computes the same; its name ends with the word in the place of others.
static struct ggml_tensor *twin_new(struct rewrite *w, const struct ggml_tensor *t, const char *word) {
    struct ggml_tensor *twin = ggml_new_tensor(w->ctx, t->type, GGML_MAX_DIMS, t->ne);
    if (berth_is_poison(twin)) {
        return twin;
    }
    memcpy(twin->nb, t->nb, sizeof twin->nb);
    memcpy(twin->op_params, t->op_params, sizeof twin->op_params);
    twin->op = t->op;
    twin->flags = t->flags & ~(GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT | GGML_TENSOR_FLAG_PARAM | GGML_TENSOR_FLAG_LOSS);
    snprintf(twin->name, sizeof twin->name, "%.*s%s", (int) (sizeof twin->name - 1 - strlen(word)), t->name, word);
    return twin;
}

// A copy of the value, in the other pool or back. `own` is the tensor that the caller knows.
static struct ggml_tensor *move_new(
    struct rewrite *w, const struct ggml_tensor *own, struct ggml_tensor *from, enum berth_move kind) {
    struct ggml_tensor *move = twin_new(w, own, kind == BERTH_MOVE_OUT ? BERTH_BUDGET_MOVED_OUT : BERTH_BUDGET_MOVED_IN);
    if (berth_is_poison(move)) {
        return move;
    }
    memset(move->op_params, 0, sizeof move->op_params);
    move->op = GGML_OP_DUP;
    move->op_params[0] = (int32_t) kind;
    move->src[0] = from;
    return move;
}

// What a reader of `src` has to read now: itself, the copy of its value, or a view of the copy.
static struct ggml_tensor *src_now(struct rewrite *w, struct ggml_tensor *src) {
    struct ggml_tensor *root = src;
    while (root->view_src != NULL) {
        root = root->view_src;
    }
    const int32_t i = record_list_find(&w->o->list, src), r = record_list_find(&w->o->list, root),
                  op = r < 0 ? -1 : w->o->op_of[r];
    if (op < 0 || w->now[op] == root) {
        return src;
    }
    if (src == root) {
        return w->now[op];
    }
    if (w->look_at[i] != w->now[op]) {
        struct ggml_tensor *twin = twin_new(w, src, BERTH_BUDGET_RECOMPUTE);
        twin->view_src = w->now[op];
        twin->view_offs = src->view_offs;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            twin->src[k] = src->src[k] == NULL ? NULL : src_now(w, src->src[k]);
        }
        w->look[i] = twin;
        w->look_at[i] = w->now[op];
    }
    return w->look[i];
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
    if (step->kind == BERTH_BUDGET_OUT) {
        w->out[op] = move_new(w, own, w->now[op], BERTH_MOVE_OUT);
        ggml_build_forward_expand(w->graph, w->out[op]);
        return true;
    }
    if (step->kind == BERTH_BUDGET_IN) {
        w->now[op] = move_new(w, own, w->out[op], BERTH_MOVE_IN);
    } else if (!w->has_run[op]) {
        for (int k = 0; ok && k < GGML_MAX_SRC; k++) {
            ok = own->src[k] == NULL || src_set(w, own, k, src_now(w, own->src[k]));
        }
        w->has_run[op] = true;
    } else {
        struct ggml_tensor *twin = twin_new(w, own, BERTH_BUDGET_RECOMPUTE);
        for (int32_t k = 0; k < GGML_MAX_SRC; k++) {
            twin->src[k] = own->src[k]; // as first run: back to what the caller built
        }
        for (size_t k = 0; k < w->n_undos; k++) {
            if (w->undos[k].tensor == own) {
                twin->src[w->undos[k].slot] = w->undos[k].src;
            }
        }
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            twin->src[k] = twin->src[k] == NULL ? NULL : src_now(w, twin->src[k]);
        }
        w->now[op] = twin;
    }
    ggml_build_forward_expand(w->graph, w->now[op]);
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

// Nodes that a schedule may need: those of the graph, and each run or copy with a view for each view of its value.
static size_t nodes_most(const struct graph_ops *o, const struct berth_budget_result *r) {
    size_t n = (size_t) o->list.n + 16;
    for (size_t k = 0; k < r->n_steps; k++) {
        n += 1 + (size_t) o->n_views[r->steps[k].op];
    }
    return n;
}

static bool rewrite_init(struct rewrite *w, const struct graph_ops *o, const struct berth_budget_result *r) {
    const size_t n = nodes_most(o, r);
    *w = (struct rewrite){.o = o};
    w->now = berth_arrays_new(&w->mem, (size_t) o->n, sizeof *w->now);
    w->out = berth_arrays_new(&w->mem, (size_t) o->n, sizeof *w->out);
    w->has_run = berth_arrays_new(&w->mem, (size_t) o->n, sizeof *w->has_run);
    w->look = berth_arrays_new(&w->mem, (size_t) o->list.n, sizeof *w->look);
    w->look_at = berth_arrays_new(&w->mem, (size_t) o->list.n, sizeof *w->look_at);
    if (w->mem.has_failed) {
        return false;
    }
    memcpy(w->now, o->tensors, (size_t) o->n * sizeof *w->now);
    w->ctx = ggml_init((struct ggml_init_params){
        .mem_size = n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false) + 4096, .no_alloc = true});
    w->graph = w->ctx == NULL ? NULL : ggml_new_graph_custom(w->ctx, n, false);
    return w->graph != NULL;
}

// The schedule as a graph in a context of its own.
static bool rewrite_run(struct rewrite *w, struct ggml_cgraph *graph, const struct berth_budget_result *r) {
    for (size_t k = 0; k < r->n_steps; k++) {
        if (!step_write(w, &r->steps[k])) {
            return false;
        }
    }
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) { // views that nobody reads
        ggml_build_forward_expand(w->graph, ggml_graph_node(graph, i));
    }
    return berth_graph_check(w->graph) == GGML_STATUS_SUCCESS;
}

// ---- which pool ----

int berth_budget_pool_of(const struct ggml_tensor *node) {
    const enum berth_move kind = node == NULL ? BERTH_MOVE_NONE : berth_move_of(node);
    if (kind == BERTH_MOVE_NONE) {
        return -1;
    }
    return kind == BERTH_MOVE_OUT;
}

void berth_budget_pools(const struct ggml_cgraph *graph, int *node_buffer_ids, int n) {
    for (int i = 0; graph != NULL && node_buffer_ids != NULL && i < n && i < graph->n_nodes; i++) {
        node_buffer_ids[i] = berth_budget_pool_of(graph->nodes[i]) == 1;
    }
}

// ---- as many tries as it takes ----

struct task {
    struct graph_ops o;
    struct graph_sizes sizes;
    const struct berth_graph_budget_params *budget;
    struct ggml_cgraph *graph;
    int n_pools; // 2: values may move
};

// What the allocator needs in each pool.
static enum ggml_status bytes_of(const struct task *t, struct ggml_cgraph *graph, size_t *bytes) {
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

// Solves with so many bytes and rewrites; *bytes is what the allocator needs then. The caller undoes what does not please.
static enum ggml_status task_try(
    struct task *t, const uint64_t *limits, struct rewrite *w, struct berth_budget_result **result, size_t *bytes) {
    const double cost = t->budget->spill_cost > 0 ? t->budget->spill_cost : FLOPS_A_BYTE;
    const struct berth_budget_pool pools[] = {{.bytes = limits[0],
                                                  .may_spill = t->n_pools > 1,
                                                  .spill_to = 1,
                                                  .spill_per_byte = cost,
                                                  .spill_each = BUDGET_FLOPS_A_NODE},
        {.pool = 1, .bytes = limits[1]}};
    const struct berth_budget_params params = {
        .pools = pools, .n_pools = (size_t) t->n_pools, .time_us = t->budget->time_us, .seed = t->budget->seed};
    *w = (struct rewrite){0};
    const size_t n = (size_t) t->o.n;
    enum ggml_status status = t->budget->steps == NULL
                                  ? berth_budget_solve(t->o.ops, n, &params, result)
                                  : berth_budget_check(t->o.ops, n, &params, t->budget->steps, t->budget->n_steps, result);
    if (status != GGML_STATUS_SUCCESS || !(*result)->fits) {
        return status;
    }
    status = GGML_STATUS_ALLOC_FAILED;
    if (rewrite_init(w, &t->o, *result) && rewrite_run(w, t->graph, *result)) {
        status = bytes_of(t, w->graph, bytes);
    }
    return status == GGML_STATUS_ALLOC_FAILED ? berth_fail(status, "out of memory: a graph of %zu steps within %zu bytes",
                                                    (*result)->n_steps, (size_t) limits[0])
                                              : status;
}

// Less for the solver by what the allocator took too much.
static uint64_t limit_lower(uint64_t limit, uint64_t asked, uint64_t taken) {
    if (taken <= asked) {
        return limit;
    }
    const uint64_t less = max_u64(taken - asked, limit / 256 + 1);
    return limit > less ? limit - less : 0;
}

static enum ggml_status task_run(
    struct task *t, struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result) {
    const uint64_t asked[] = {t->budget->bytes, t->budget->spill_bytes};
    uint64_t limits[] = {asked[0], asked[1]};
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int n = 0; n < N_TRIES; n++) {
        struct rewrite w;
        size_t bytes[2] = {0, 0};
        berth_budget_free(*result);
        *result = NULL;
        status = task_try(t, limits, &w, result, bytes);
        bool fits = false;
        if (status == GGML_STATUS_SUCCESS) {
            fits = (*result)->fits && bytes[0] <= asked[0] && bytes[1] <= asked[1];
        }
        if (fits) {
            *ctx = w.ctx;
            *out = w.graph;
            for (size_t p = 0; p < (*result)->n_uses && p < 2; p++) {
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
            limits[p] = limit_lower(limits[p], asked[p], bytes[p]);
        }
    }
    return status;
}

enum ggml_status berth_graph_budget(struct ggml_cgraph *graph, const struct berth_graph_budget_params *budget,
    struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result) {
    if (graph == NULL || budget == NULL || ctx == NULL || out == NULL || result == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "budget: NULL");
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
        return berth_fail(GGML_STATUS_FAILED, "budget: values cannot move from %s to %s", ggml_backend_buft_name(t.sizes.buft),
            ggml_backend_buft_name(budget->spill_buft));
    }
    if (!(budget->spill_cost >= 0 && budget->spill_cost < 0x1p40)) {
        return berth_fail(GGML_STATUS_FAILED, "budget: moving a byte costs %g", budget->spill_cost);
    }
    status = graph_ops_init(&t.o, graph, &t.sizes);
    if (status == GGML_STATUS_SUCCESS) {
        status = task_run(&t, ctx, out, result);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_budget_free(*result);
        *result = NULL;
    } else if (budget->on_alive != NULL) {
        for (size_t i = 0; i < (*result)->n_alive; i++) {
            const int32_t op = (*result)->alive[i];
            budget->on_alive(i, t.o.tensors[op], t.o.ops[op].size, budget->user);
        }
    }
    graph_ops_fini(&t.o);
    return status;
}

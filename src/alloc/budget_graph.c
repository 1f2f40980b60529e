// SPDX-License-Identifier: MIT
// budget_graph.c: a graph that keeps a budget: nodes in the order of the solver's schedule, what runs again as nodes of their
// own, and readers that look at the copy that is there. The allocator has the last word on bytes: where it needs more than the
// solver thought, the solver is asked for less.

#include "alloc/alloc.h"
#include "alloc/budget.h"

#include <stdio.h>
#include <string.h>

#define N_TRIES 12

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
    struct ggml_tensor **now;             // [n] the tensor that has the op's value
    bool *has_run;                        // [n]
    struct ggml_tensor **look, **look_at; // [n_list] the copy of a view, and whose value it looks at
    struct undo *undos;
    size_t n_undos, undos_cap;
};

// A tensor of the same kind, without memory, that computes the same.
static struct ggml_tensor *twin_new(struct rewrite *w, const struct ggml_tensor *t) {
    struct ggml_tensor *twin = ggml_new_tensor(w->ctx, t->type, GGML_MAX_DIMS, t->ne);
    if (berth_is_poison(twin)) {
        return twin;
    }
    memcpy(twin->nb, t->nb, sizeof twin->nb);
    memcpy(twin->op_params, t->op_params, sizeof twin->op_params);
    twin->op    = t->op;
    twin->flags = t->flags & ~(GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT | GGML_TENSOR_FLAG_PARAM | GGML_TENSOR_FLAG_LOSS);
    snprintf(twin->name, sizeof twin->name, "%.*s%s", (int) (sizeof twin->name - sizeof BERTH_BUDGET_AGAIN), t->name,
        BERTH_BUDGET_AGAIN);
    return twin;
}

// What a reader of `src` has to read now: itself, the copy of its value, or a view of the copy.
static struct ggml_tensor *src_now(struct rewrite *w, struct ggml_tensor *src) {
    struct ggml_tensor *root = src;
    while (root->view_src != NULL) {
        root = root->view_src;
    }
    const int32_t i = graph_ops_find(w->o, src), r = graph_ops_find(w->o, root), op = r < 0 ? -1 : w->o->op_of[r];
    if (op < 0 || w->now[op] == root) {
        return src;
    }
    if (src == root) {
        return w->now[op];
    }
    if (w->look_at[i] != w->now[op]) {
        struct ggml_tensor *twin = twin_new(w, src);
        twin->view_src           = w->now[op];
        twin->view_offs          = src->view_offs;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            twin->src[k] = src->src[k] == NULL ? NULL : src_now(w, src->src[k]);
        }
        w->look[i]    = twin;
        w->look_at[i] = w->now[op];
    }
    return w->look[i];
}

static bool src_set(struct rewrite *w, struct ggml_tensor *t, int slot, struct ggml_tensor *src) {
    if (t->src[slot] == src) {
        return true;
    }
    if (!berth_grow((void **) &w->undos, &w->undos_cap, w->n_undos + 1, sizeof *w->undos)) {
        return false;
    }
    w->undos[w->n_undos++] = (struct undo){t, t->src[slot], slot};
    t->src[slot]           = src;
    return true;
}

static bool step_write(struct rewrite *w, int32_t op) {
    struct ggml_tensor *own = w->o->tensors[op];
    bool ok                 = true;
    if (!w->has_run[op]) {
        for (int k = 0; ok && k < GGML_MAX_SRC; k++) {
            ok = own->src[k] == NULL || src_set(w, own, k, src_now(w, own->src[k]));
        }
        w->has_run[op] = true;
    } else {
        struct ggml_tensor *twin = twin_new(w, own);
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
        const struct undo *u    = &w->undos[--w->n_undos];
        u->tensor->src[u->slot] = u->src;
    }
}

static void rewrite_fini(struct rewrite *w) {
    berth_free(w->now);
    berth_free(w->has_run);
    berth_free(w->look);
    berth_free(w->look_at);
    berth_free(w->undos);
}

// Nodes that a schedule may need: those of the graph, and each run with a view for each view of its value.
static size_t nodes_most(const struct graph_ops *o, const struct berth_budget_result *r) {
    size_t n = (size_t) o->n_list + 16;
    for (size_t k = 0; k < r->n_steps; k++) {
        n += 1 + (size_t) o->n_views[r->steps[k].op];
    }
    return n;
}

static bool rewrite_init(struct rewrite *w, const struct graph_ops *o, const struct berth_budget_result *r) {
    const size_t n = nodes_most(o, r);
    *w             = (struct rewrite){.o = o};
    w->now         = berth_calloc((size_t) o->n + 1, sizeof *w->now);
    w->has_run     = berth_calloc((size_t) o->n + 1, sizeof *w->has_run);
    w->look        = berth_calloc((size_t) o->n_list + 1, sizeof *w->look);
    w->look_at     = berth_calloc((size_t) o->n_list + 1, sizeof *w->look_at);
    if (w->now == NULL || w->has_run == NULL || w->look == NULL || w->look_at == NULL) {
        return false;
    }
    memcpy(w->now, o->tensors, (size_t) o->n * sizeof *w->now);
    w->ctx   = ggml_init((struct ggml_init_params){
          .mem_size = n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false) + 4096, .no_alloc = true});
    w->graph = w->ctx == NULL ? NULL : ggml_new_graph_custom(w->ctx, n, false);
    return w->graph != NULL;
}

// The schedule as a graph in a context of its own.
static bool rewrite_run(struct rewrite *w, struct ggml_cgraph *graph, const struct berth_budget_result *r) {
    bool ok = true;
    for (size_t k = 0; ok && k < r->n_steps; k++) {
        ok = step_write(w, r->steps[k].op);
    }
    for (int i = 0; ok && i < ggml_graph_n_nodes(graph); i++) { // views that nobody reads
        ggml_build_forward_expand(w->graph, ggml_graph_node(graph, i));
    }
    return ok && berth_graph_check(w->graph) == GGML_STATUS_SUCCESS;
}

static enum ggml_status bytes_of(const struct graph_sizes *sizes, struct ggml_cgraph *graph, size_t *bytes) {
    ggml_gallocr_t galloc = ggml_gallocr_new(sizes->buft);
    if (galloc == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    const enum ggml_status status = berth_gallocr_sizes(galloc, graph, NULL, NULL, bytes);
    ggml_gallocr_free(galloc);
    return status;
}

struct task {
    struct graph_ops o;
    struct graph_sizes sizes;
    const struct berth_graph_budget_params *budget;
    struct ggml_cgraph *graph;
};

// Solves with so many bytes and rewrites; *bytes is what the allocator needs then. The caller undoes what does not please.
static enum ggml_status attempt(
    struct task *t, uint64_t limit, struct rewrite *w, struct berth_budget_result **result, size_t *bytes) {
    const struct berth_budget_pool pool     = {.bytes = limit};
    const struct berth_budget_params params = {
        .pools = &pool, .n_pools = 1, .time_us = t->budget->time_us, .seed = t->budget->seed};
    *w                      = (struct rewrite){0};
    enum ggml_status status = berth_budget_solve(t->o.ops, (size_t) t->o.n, &params, result);
    if (status != GGML_STATUS_SUCCESS || !(*result)->fits) {
        return status;
    }
    status = GGML_STATUS_ALLOC_FAILED;
    if (rewrite_init(w, &t->o, *result) && rewrite_run(w, t->graph, *result)) {
        status = bytes_of(&t->sizes, w->graph, bytes);
    }
    return status == GGML_STATUS_ALLOC_FAILED
               ? berth_fail(status, "out of memory: a graph of %zu steps within %zu bytes", (*result)->n_steps, (size_t) limit)
               : status;
}

static enum ggml_status task_run(
    struct task *t, struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result) {
    uint64_t limit          = t->budget->bytes;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int n = 0; n < N_TRIES; n++) {
        struct rewrite w;
        size_t bytes = 0;
        berth_budget_free(*result);
        *result         = NULL;
        status          = attempt(t, limit, &w, result, &bytes);
        const bool fits = status == GGML_STATUS_SUCCESS && (*result)->fits && bytes <= t->budget->bytes;
        if (fits) {
            *ctx                    = w.ctx;
            *out                    = w.graph;
            (*result)->uses[0].peak = bytes;
        } else {
            rewrite_undo(&w);
            ggml_free(w.ctx);
        }
        rewrite_fini(&w);
        if (fits || status != GGML_STATUS_SUCCESS || !(*result)->fits) {
            break;
        }
        (*result)->fits     = false;
        const uint64_t over = bytes - t->budget->bytes, less = over > limit / 256 ? over : limit / 256 + 1;
        limit = limit > less ? limit - less : 0;
    }
    return status;
}

enum ggml_status berth_graph_budget(struct ggml_cgraph *graph, const struct berth_graph_budget_params *budget,
    struct ggml_context **ctx, struct ggml_cgraph **out, struct berth_budget_result **result) {
    if (graph == NULL || budget == NULL || ctx == NULL || out == NULL || result == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "budget: NULL");
    }
    *ctx                    = NULL;
    *out                    = NULL;
    *result                 = NULL;
    enum ggml_status status = berth_graph_check(graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct task t = {.budget = budget, .graph = graph};
    t.sizes.buft  = budget->buft == NULL ? ggml_backend_cpu_buffer_type() : budget->buft;
    t.sizes.align = ggml_backend_buft_get_alignment(t.sizes.buft);
    status        = graph_ops_init(&t.o, graph, &t.sizes);
    if (status == GGML_STATUS_SUCCESS) {
        status = task_run(&t, ctx, out, result);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_budget_free(*result);
        *result = NULL;
    }
    graph_ops_fini(&t.o);
    return status;
}

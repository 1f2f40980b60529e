// SPDX-License-Identifier: MIT
// graph_copy.c: copies a graph to another backend, and compares the results of two backends. Copies with their own memory are in
// ctx_allocated; copies that are views are in ctx_unallocated. There is no recursion, so graphs may have any depth.

#include "backend/backend.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/optable.h"
#include "record/index.h"

struct copies {
    struct record_list from; // in order of discovery
    struct ggml_tensor **to; // [from.n] their copies
};

static struct ggml_tensor *copy_of(const struct copies *c, const struct ggml_tensor *tensor) {
    return tensor != NULL ? c->to[record_list_find(&c->from, tensor)] : NULL;
}

static void copies_fini(struct copies *c) {
    berth_record_list_fini(&c->from);
    berth_free(c->to);
}

static bool copies_find(struct copies *c, const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!berth_record_list_add(&c->from, graph->nodes[i])) {
            return false;
        }
    }
    if (!berth_record_list_close(&c->from)) {
        return false;
    }
    c->to = berth_calloc((size_t) c->from.n + 1, sizeof c->to[0]);
    return c->to != NULL;
}

static struct ggml_tensor *dup_layout(struct ggml_context *ctx, const struct ggml_tensor *src) {
    struct ggml_tensor *dst = ggml_new_tensor(ctx, src->type, GGML_MAX_DIMS, src->ne);
    if (dst == NULL || berth_poisoned(dst)) {
        return NULL;
    }
    memcpy(dst->nb, src->nb, sizeof dst->nb);
    memcpy(dst->op_params, src->op_params, sizeof dst->op_params);
    memcpy(dst->name, src->name, sizeof dst->name);
    dst->op = src->op;
    dst->flags = src->flags;
    return dst;
}

static bool copies_make(struct copies *c, const struct ggml_backend_graph_copy *out) {
    for (int32_t i = 0; i < c->from.n; i++) {
        const struct ggml_tensor *src = c->from.at[i];
        c->to[i] = dup_layout(src->view_src == NULL ? out->ctx_allocated : out->ctx_unallocated, src);
        if (c->to[i] == NULL) {
            return false;
        }
    }
    for (int32_t i = 0; i < c->from.n; i++) {
        const struct ggml_tensor *src = c->from.at[i];
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            c->to[i]->src[j] = copy_of(c, src->src[j]);
        }
        c->to[i]->view_src = copy_of(c, src->view_src);
        c->to[i]->view_offs = src->view_offs;
    }
    return true;
}

static bool copies_fill(const char *func, const struct copies *c) {
    for (int32_t i = 0; i < c->from.n; i++) {
        if (c->to[i]->view_src != NULL) {
            if (ggml_backend_view_init(c->to[i]) != GGML_STATUS_SUCCESS) {
                return false;
            }
            continue;
        }
        if (ggml_nbytes(c->from.at[i]) > 0 && !berth_tensor_copy(func, NULL, c->from.at[i], c->to[i], NULL)) {
            return false;
        }
    }
    return true;
}

// Returns false if the graph contains poison (the tensor that a constructor returns after an error) or a tensor without memory.
static bool is_placed(const char *func, const struct ggml_cgraph *graph, const struct copies *c) {
    char reason[320];
    if (berth_graph_check(graph) != GGML_STATUS_SUCCESS) {
        return false;
    }
    for (int32_t i = 0; i < c->from.n; i++) {
        if (ggml_nbytes(c->from.at[i]) > 0 &&
            berth_tensor_memory(c->from.at[i], ggml_nbytes(c->from.at[i]), reason, sizeof reason) == NULL) {
            return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "%s: %s; allocate the graph first", func, reason);
        }
    }
    return true;
}

static bool contexts_make(struct ggml_backend_graph_copy *out, const struct ggml_cgraph *graph, size_t n_tensors) {
    const size_t graph_size = graph->size > graph->n_nodes ? (size_t) graph->size : (size_t) graph->n_nodes;
    const size_t tensors = (n_tensors + 1) * ggml_tensor_overhead();
    out->ctx_allocated = ggml_init((struct ggml_init_params){
        .mem_size = tensors + ggml_graph_overhead_custom(graph_size, false),
        .no_alloc = true,
    });
    out->ctx_unallocated = ggml_init((struct ggml_init_params){.mem_size = tensors, .no_alloc = true});
    if (out->ctx_allocated == NULL || out->ctx_unallocated == NULL) {
        return false;
    }
    out->graph = ggml_new_graph_custom(out->ctx_allocated, graph_size, false);
    return out->graph != NULL;
}

// On failure all fields are NULL and the last error is set.
struct ggml_backend_graph_copy ggml_backend_graph_copy(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct ggml_backend_graph_copy out = {0};
    struct copies c = {0};
    if (backend == NULL || graph == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_graph_copy: the %s is NULL", backend == NULL ? "backend" : "graph");
        return out;
    }
    if (!copies_find(&c, graph)) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_graph_copy: out of memory for a list of %d tensors", c.from.n);
        goto fail;
    }
    if (!is_placed(__func__, graph, &c) || !contexts_make(&out, graph, (size_t) c.from.n) || !copies_make(&c, &out)) {
        goto fail;
    }
    out.buffer = ggml_backend_alloc_ctx_tensors(out.ctx_allocated, backend);
    if (out.buffer == NULL || !copies_fill(__func__, &c)) {
        goto fail;
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        out.graph->nodes[i] = copy_of(&c, graph->nodes[i]);
    }
    out.graph->n_nodes = graph->n_nodes;
    out.graph->order = graph->order;
    copies_fini(&c);
    return out;

fail:
    copies_fini(&c);
    ggml_backend_graph_copy_free(out);
    return (struct ggml_backend_graph_copy){0};
}

void ggml_backend_graph_copy_free(struct ggml_backend_graph_copy copy) {
    ggml_backend_buffer_free(copy.buffer);
    ggml_free(copy.ctx_allocated);
    ggml_free(copy.ctx_unallocated);
}

// ---- comparison of two backends ----

// backend1 computes the graph itself, backend2 computes a copy. Each backend continues with its own results. If the caller
// selects no nodes, each node is computed and reported separately. Otherwise the complete graph is computed first.

static bool is_selected(const struct ggml_tensor *node, const struct ggml_tensor *const *selected, size_t n_selected) {
    for (size_t i = 0; i < n_selected; i++) {
        if (selected[i] == node) {
            return true;
        }
    }
    return false;
}

static bool moves_no_data(const struct ggml_tensor *node) {
    const struct berth_op_info *info = berth_op_info(node->op);
    return info != NULL && info->is_empty;
}

static bool compute_both(ggml_backend_t backend1, struct ggml_cgraph *g1, ggml_backend_t backend2, struct ggml_cgraph *g2) {
    if (ggml_backend_graph_compute(backend1, g1) != GGML_STATUS_SUCCESS) {
        return false;
    }
    return ggml_backend_graph_compute(backend2, g2) == GGML_STATUS_SUCCESS;
}

static bool compare_nodes(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *g1, struct ggml_cgraph *g2,
    ggml_backend_eval_callback callback, void *user_data) {
    for (int i = 0; i < g1->n_nodes; i++) {
        struct ggml_cgraph one1 = ggml_graph_view(g1, i, i + 1), one2 = ggml_graph_view(g2, i, i + 1);
        if (!compute_both(backend1, &one1, backend2, &one2)) {
            return false;
        }
        if (!moves_no_data(g1->nodes[i]) && !callback(i, g1->nodes[i], g2->nodes[i], user_data)) {
            return true;
        }
    }
    return true;
}

// False: copying or computing failed. If the callback stops the comparison, the result is true.
bool ggml_backend_compare_graph_backend(ggml_backend_t backend1, ggml_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data, const struct ggml_tensor *const *test_nodes, size_t num_test_nodes) {
    if (callback == NULL || (test_nodes == NULL && num_test_nodes > 0)) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "ggml_backend_compare_graph_backend: the %s NULL",
            callback == NULL ? "callback is" : "selected nodes are");
    }
    struct ggml_backend_graph_copy copy = ggml_backend_graph_copy(backend2, graph);
    if (copy.graph == NULL) {
        return false;
    }
    bool ok;
    if (num_test_nodes == 0) {
        ok = compare_nodes(backend1, backend2, graph, copy.graph, callback, user_data);
    } else {
        ok = compute_both(backend1, graph, backend2, copy.graph);
        for (int i = 0; ok && i < graph->n_nodes; i++) {
            if (is_selected(graph->nodes[i], test_nodes, num_test_nodes) &&
                !callback(i, graph->nodes[i], copy.graph->nodes[i], user_data)) {
                break;
            }
        }
    }
    ggml_backend_graph_copy_free(copy);
    return ok;
}

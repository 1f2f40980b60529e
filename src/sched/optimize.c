// SPDX-License-Identifier: MIT
// optimize.c: lets backends change the order of the nodes within their splits (graph_optimize) and request longer lifetimes.
//
// With add_alloc_dep, a backend requests that a tensor keeps its memory until a later node has run, for example because the later
// node runs concurrently with a reader of the tensor. plan.c applies the requests. During graph_optimize, copies replace the
// sources on other backends, as they do when the split is computed.

#include "sched/sched.h"

#include <string.h>

static bool reorder_init(struct sched_cached *cached) {
    const size_t n = (size_t) cached->rec.n_nodes;
    if (cached->is_reordered) {
        return true;
    }
    if (!BERTH_GROW(&cached->nodes, &cached->nodes_cap, n) || !BERTH_GROW(&cached->order, &cached->order_cap, n)) {
        return false;
    }
    memcpy(cached->nodes, cached->rec.tensors, n * sizeof cached->nodes[0]);
    for (int32_t i = 0; i < cached->rec.n_nodes; i++) {
        cached->order[i] = i;
    }
    cached->is_reordered = true;
    return true;
}

// ---- lifetime requests ----

struct requester {
    struct sched_cached *cached;
    const struct sched_split *split;
    const char *backend;
    enum ggml_status status; // failure of the first invalid request
};

static int32_t copy_of(const struct sched_cached *cached, const struct ggml_tensor *t) {
    const size_t n_slots = (size_t) cached->n_slots;
    const bool is_copy = cached->n_copies > 0 && (uintptr_t) t >= (uintptr_t) cached->tensors &&
                         (uintptr_t) t < (uintptr_t) (cached->tensors + (size_t) cached->n_copies * n_slots);
    return is_copy ? (int32_t) ((size_t) (t - cached->tensors) / n_slots) : -1;
}

static void add_alloc_dep(void *user_data, struct ggml_tensor *tensor, struct ggml_tensor *until) {
    struct requester *req = user_data;
    struct sched_cached *cached = req->cached;
    if (req->status != GGML_STATUS_SUCCESS) {
        return;
    }
    struct sched_dep dep = {
        .row = tensor != NULL ? berth_record_find(&cached->rec, tensor) : -1,
        .copy = tensor != NULL ? copy_of(cached, tensor) : -1,
        .until = until != NULL ? berth_record_find(&cached->rec, until) : -1,
    };
    const bool is_known = dep.row >= 0 || dep.copy >= 0;
    if (!is_known || dep.until < req->split->i_start || dep.until >= req->split->i_end) {
        req->status = berth_fail(GGML_STATUS_FAILED, "scheduler: backend %s requests to keep %s until %s has run, but the %s",
            req->backend, berth_name_of(tensor), berth_name_of(until),
            is_known ? "second is not a node of its split" : "first is not a tensor of the graph");
        return;
    }
    if (!BERTH_GROW(&cached->deps, &cached->deps_cap, (size_t) cached->n_deps + 1)) {
        req->status = berth_fail(
            GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for %d lifetime requests of backends", cached->n_deps + 1);
        return;
    }
    cached->deps[cached->n_deps++] = dep;
}

// ---- orders ----

// Returns a row of node t for which is_listed is false, -1: none. A node that the graph lists twice has two rows.
static int32_t row_find_unlisted(
    struct sched_cached *cached, const struct sched_split *split, const struct ggml_tensor *t, const bool *is_listed) {
    int32_t r = berth_record_find(&cached->rec, t);
    const bool is_second =
        cached->rec.n_duplicates > 0 && r >= 0 && r < split->i_end && (r < split->i_start || is_listed[r - split->i_start]);
    for (int32_t i = split->i_start; is_second && i < split->i_end; i++) {
        if (cached->rec.tensors[i] == t && !is_listed[i - split->i_start]) {
            r = i;
        }
    }
    return r >= split->i_start && r < split->i_end && !is_listed[r - split->i_start] ? r : -1;
}

// Stores the order of the split's nodes that the backend chose. False unless every node of the split occurs exactly once.
static bool order_read(struct sched_cached *cached, const struct sched_split *split, bool *is_listed) {
    memset(is_listed, 0, (size_t) (split->i_end - split->i_start) * sizeof is_listed[0]);
    for (int32_t i = split->i_start; i < split->i_end; i++) {
        const int32_t r = row_find_unlisted(cached, split, cached->nodes[i], is_listed);
        if (r < 0) {
            return false;
        }
        is_listed[r - split->i_start] = true;
        cached->order[i] = r;
    }
    return true;
}

static enum ggml_status split_optimize(struct ggml_backend_sched *sched, struct sched_cached *cached, struct sched_split *split) {
    ggml_backend_t backend = sched->backends[split->backend];
    const int32_t n = split->i_end - split->i_start;
    if (backend->iface.graph_optimize == NULL || n == 0) {
        return GGML_STATUS_SUCCESS;
    }
    bool *is_listed = sched_scratch(sched, (size_t) n * sizeof *is_listed);
    if (is_listed == NULL || !reorder_init(cached)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the order of %d nodes", cached->rec.n_nodes);
    }
    struct ggml_cgraph view = sched_part(sched, cached, split->i_start, split->i_end);
    struct requester req = {.cached = cached, .split = split, .backend = ggml_backend_name(backend)};
    struct ggml_backend_graph_optimize_params params = {.add_alloc_dep = add_alloc_dep, .user_data = &req};
    sched_edges_to_copies(cached, split, 0);
    backend->iface.graph_optimize(backend, &view, &params); // backends for an older ggml have two parameters and ignore params
    sched_edges_to_graph(cached, split);
    if (req.status != GGML_STATUS_SUCCESS) {
        return req.status;
    }
    if (view.n_nodes != n || !order_read(cached, split, is_listed)) {
        return berth_fail(
            GGML_STATUS_FAILED, "scheduler: backend %s changed more than the order of its %d nodes", req.backend, n);
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status sched_optimize(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    cached->n_deps = 0;
    for (int32_t s = 0; s < cached->n_splits && status == GGML_STATUS_SUCCESS; s++) {
        status = split_optimize(sched, cached, &cached->splits[s]);
    }
    return status;
}

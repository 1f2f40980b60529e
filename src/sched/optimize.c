// SPDX-License-Identifier: MIT
// optimize.c: backends may put the nodes of a split into an order they like better (graph_optimize), and wish for a tensor to
// keep its memory until a later node has run, e.g. since they run both at once (add_alloc_dep). They see the sources as they will
// get them: copies in place of what crosses. All splits are through before memory is planned (plan.c), where a wish is a longer
// life.

#include "sched/sched.h"

#include <string.h>

// From now on the order may be another than the rows'.
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

// ---- wishes ----

struct requester {
    struct sched_cached *cached;
    const struct sched_split *split;
    const char *backend;
    enum ggml_status status; // of the first wish that cannot be met
};

static int32_t copy_of(const struct sched_cached *cached, const struct ggml_tensor *t) {
    const size_t n_slots = (size_t) cached->n_slots;
    const bool is_copy = cached->n_copies > 0 && (uintptr_t) t >= (uintptr_t) cached->tensors &&
                         (uintptr_t) t < (uintptr_t) (cached->tensors + (size_t) cached->n_copies * n_slots);
    return is_copy ? (int32_t) ((size_t) (t - cached->tensors) / n_slots) : -1;
}

static void add_alloc_dep(void *user_data, struct ggml_tensor *tensor, struct ggml_tensor *until) {
    struct requester *w = user_data;
    struct sched_cached *cached = w->cached;
    if (w->status != GGML_STATUS_SUCCESS) {
        return;
    }
    struct sched_dep dep = {
        .row = tensor != NULL ? berth_record_find(&cached->rec, tensor) : -1,
        .copy = tensor != NULL ? copy_of(cached, tensor) : -1,
        .until = until != NULL ? berth_record_find(&cached->rec, until) : -1,
    };
    const bool is_known = dep.row >= 0 || dep.copy >= 0;
    if (!is_known || dep.until < w->split->i_start || dep.until >= w->split->i_end) {
        w->status = berth_fail(GGML_STATUS_FAILED, "scheduler: backend %s wants to keep %s until %s has run, but %s", w->backend,
            berth_name_of(tensor), berth_name_of(until),
            is_known ? "the latter is no node of its split" : "the former is no tensor of the graph");
        return;
    }
    if (!BERTH_GROW(&cached->deps, &cached->deps_cap, (size_t) cached->n_deps + 1)) {
        w->status =
            berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for %d wishes of backends", cached->n_deps + 1);
        return;
    }
    cached->deps[cached->n_deps++] = dep;
}

// ---- orders ----

// The row of a node of the split that was not met yet, -1: none. A node that is listed twice has two.
static int32_t row_once(
    struct sched_cached *cached, const struct sched_split *split, const struct ggml_tensor *t, const bool *is_met) {
    int32_t r = berth_record_find(&cached->rec, t);
    const bool is_second =
        cached->rec.n_duplicates > 0 && r >= 0 && r < split->i_end && (r < split->i_start || is_met[r - split->i_start]);
    for (int32_t i = split->i_start; is_second && i < split->i_end; i++) {
        if (cached->rec.tensors[i] == t && !is_met[i - split->i_start]) {
            r = i;
        }
    }
    return r >= split->i_start && r < split->i_end && !is_met[r - split->i_start] ? r : -1;
}

// The rows of the nodes as the backend left them: each of the split, and each once.
static bool take_order(struct sched_cached *cached, const struct sched_split *split, bool *is_met) {
    memset(is_met, 0, (size_t) (split->i_end - split->i_start) * sizeof is_met[0]);
    for (int32_t i = split->i_start; i < split->i_end; i++) {
        const int32_t r = row_once(cached, split, cached->nodes[i], is_met);
        if (r < 0) {
            return false;
        }
        is_met[r - split->i_start] = true;
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
    bool *is_met = sched_scratch(sched, (size_t) n * sizeof *is_met);
    if (is_met == NULL || !reorder_init(cached)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the order of %d nodes", cached->rec.n_nodes);
    }
    struct ggml_cgraph view = sched_part(sched, cached, split->i_start, split->i_end);
    struct requester w = {.cached = cached, .split = split, .backend = ggml_backend_name(backend)};
    struct ggml_backend_graph_optimize_params params = {.add_alloc_dep = add_alloc_dep, .user_data = &w};
    sched_edges_to_copies(cached, split, 0);
    backend->iface.graph_optimize(backend, &view, &params); // those of older releases take two arguments and see the first two
    sched_edges_to_graph(cached, split);
    if (w.status != GGML_STATUS_SUCCESS) {
        return w.status;
    }
    if (view.n_nodes != n || !take_order(cached, split, is_met)) {
        return berth_fail(GGML_STATUS_FAILED, "scheduler: backend %s changed more than the order of its %d nodes", w.backend, n);
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

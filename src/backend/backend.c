// SPDX-License-Identifier: MIT
// backend.c: backends: compute, synchronize, and queries.
// A compute call first reports a stored failure of an earlier void function (failure.c).
// Then graph_check rejects graphs with poison or tensors without memory.

#include "backend/backend.h"
#include "berth-backend.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/span.h"

#include <string.h>

// ---- checks of a graph before a backend computes it ----

// All bytes of a tensor must be inside its memory (core/span.h).
// The CPU backend has the same checks and skips them for a checked graph (berth_backend_has_checked).

static enum ggml_status node_reject(
    const struct ggml_cgraph *graph, int i, const struct ggml_tensor *bad, enum berth_span_fault fault) {
    const struct ggml_tensor *node = graph->nodes[i];
    char text[320];
    berth_span_report(fault, bad, text, sizeof text);
    return berth_fail(GGML_STATUS_FAILED, "cannot compute node %d of %d, %s (%s): %s %s", i, graph->n_nodes, berth_name_of(node),
        ggml_op_name(node->op), bad == node ? "the result" : "source", text);
}

static bool has_poisoned_leaf(const struct ggml_cgraph *graph) {
    int32_t flags = 0;
    for (int i = 0; i < graph->n_leafs; i++) {
        flags |= graph->leafs[i]->flags;
    }
    return (flags & BERTH_FLAG_POISON) != 0;
}

// On failure, the reason is the last error. *has_empty: a source has no elements, which not every op supports.
static enum ggml_status graph_check(const struct ggml_cgraph *graph, bool *has_empty) {
    *has_empty = false;
    if (graph == NULL || has_poisoned_leaf(graph)) {
        return berth_graph_check(graph);
    }
    struct berth_span_walk walk = {0};
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i], *bad = node;
        if (BERTH_UNLIKELY(berth_poisoned(node))) {
            return berth_graph_check(graph);
        }
        if (berth_writes_host_weight(node)) {
            berth_weights_changed();
        }
        enum berth_span_fault fault = berth_span_walk_node(&walk, node);
        for (int s = 0, n = berth_span_n_src(node); fault <= BERTH_SPAN_EMPTY && s < n; s++) {
            if (node->src[s] != NULL) {
                bad = node->src[s];
                fault = berth_span_walk(&walk, bad);
                *has_empty |= fault == BERTH_SPAN_EMPTY;
            }
        }
        if (BERTH_UNLIKELY(fault > BERTH_SPAN_EMPTY)) {
            const struct berth_op_info *info = berth_op_info(node->op);
            if (info == NULL || !info->is_empty) { // readers of a view check its memory
                return node_reject(graph, i, bad, fault);
            }
        }
    }
    return GGML_STATUS_SUCCESS;
}

// ---- backends ----

ggml_guid_t ggml_backend_guid(ggml_backend_t backend) {
    return backend != NULL ? backend->guid : NULL;
}

const char *ggml_backend_name(ggml_backend_t backend) {
    return backend != NULL && backend->iface.get_name != NULL ? backend->iface.get_name(backend) : "NULL";
}

void ggml_backend_free(ggml_backend_t backend) {
    if (backend == NULL) {
        return;
    }
    berth_backend_forget(backend);
    berth_backend_is_gone(backend);
    if (backend->iface.free != NULL) {
        backend->iface.free(backend);
    }
}

ggml_backend_dev_t ggml_backend_get_device(ggml_backend_t backend) {
    return backend != NULL ? backend->device : NULL;
}

// ---- memory ----

ggml_backend_buffer_type_t ggml_backend_get_default_buffer_type(ggml_backend_t backend) {
    return ggml_backend_dev_buffer_type(ggml_backend_get_device(backend));
}

ggml_backend_buffer_t ggml_backend_alloc_buffer(ggml_backend_t backend, size_t size) {
    return ggml_backend_buft_alloc_buffer(ggml_backend_get_default_buffer_type(backend), size);
}

size_t ggml_backend_get_alignment(ggml_backend_t backend) {
    return ggml_backend_buft_get_alignment(ggml_backend_get_default_buffer_type(backend));
}

size_t ggml_backend_get_max_size(ggml_backend_t backend) {
    return ggml_backend_buft_get_max_size(ggml_backend_get_default_buffer_type(backend));
}

// ---- wait ----

void berth_backend_wait(ggml_backend_t backend) {
    if (backend != NULL && backend->iface.synchronize != NULL) {
        backend->iface.synchronize(backend);
    }
}

enum ggml_status berth_backend_synchronize(ggml_backend_t backend) {
    berth_backend_wait(backend);
    return berth_backend_report(backend);
}

void ggml_backend_synchronize(ggml_backend_t backend) {
    const enum ggml_status status = berth_backend_synchronize(backend);
    (void) status; // berth_last_error() has the text
}

// ---- compute ----

static enum ggml_status check_backend(const char *func, ggml_backend_t backend, bool is_supported) {
    if (backend == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: the backend is NULL", func);
    }
    if (!is_supported) {
        return berth_fail(GGML_STATUS_FAILED, "%s: backend %s does not implement it", func, ggml_backend_name(backend));
    }
    return GGML_STATUS_SUCCESS;
}

// The graph that this thread has checked and is passing to a backend.
static _Thread_local const struct ggml_cgraph *checked_graph;

bool berth_backend_has_checked(const struct ggml_cgraph *graph) {
    return graph != NULL && graph == checked_graph;
}

enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
    enum ggml_status status = check_backend(__func__, backend, backend != NULL && backend->iface.graph_compute != NULL);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    status = berth_backend_report(backend);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    bool has_empty = false;
    status = graph_check(cgraph, &has_empty);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    const struct ggml_cgraph *outer = checked_graph; // the computation may be nested: a custom op may compute another graph
    checked_graph = has_empty ? NULL : cgraph;
    status = backend->iface.graph_compute(backend, cgraph);
    checked_graph = outer;
    return status;
}

enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
    const enum ggml_status status = ggml_backend_graph_compute_async(backend, cgraph);
    const enum ggml_status sync_status = berth_backend_synchronize(backend);
    return status != GGML_STATUS_SUCCESS ? status : sync_status;
}

// ---- plans: a graph prepared once and computed many times ----

ggml_backend_graph_plan_t ggml_backend_graph_plan_create(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
    bool has_empty;
    if (check_backend(__func__, backend, backend != NULL && backend->iface.graph_plan_create != NULL) != GGML_STATUS_SUCCESS ||
        graph_check(cgraph, &has_empty) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    return backend->iface.graph_plan_create(backend, cgraph);
}

void ggml_backend_graph_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    if (plan != NULL && check_backend(__func__, backend, backend != NULL && backend->iface.graph_plan_free != NULL) == 0) {
        backend->iface.graph_plan_free(backend, plan);
    }
}

enum ggml_status ggml_backend_graph_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    enum ggml_status status = check_backend(__func__, backend, backend != NULL && backend->iface.graph_plan_compute != NULL);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (plan == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_graph_plan_compute: the plan is NULL");
    }
    status = berth_backend_report(backend);
    return status == GGML_STATUS_SUCCESS ? backend->iface.graph_plan_compute(backend, plan) : status;
}

// ---- queries that the device answers ----

bool ggml_backend_supports_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_dev_supports_op(ggml_backend_get_device(backend), op);
}

bool ggml_backend_supports_buft(ggml_backend_t backend, ggml_backend_buffer_type_t buft) {
    return ggml_backend_dev_supports_buft(ggml_backend_get_device(backend), buft);
}

bool ggml_backend_offload_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_dev_offload_op(ggml_backend_get_device(backend), op);
}

// ---- memory that backends require to compute a graph ----

// ggml's interface has no function for this memory. A backend may offer functions in its registry.
// Otherwise the size is unknown and nothing is reserved.

typedef size_t (*reserve_size_t)(ggml_backend_t backend, const struct ggml_cgraph *graph);
typedef enum ggml_status (*reserve_t)(ggml_backend_t backend, const struct ggml_cgraph *graph);
typedef void (*reserve_copies_t)(ggml_backend_t backend, size_t size);

static bool proc_find(ggml_backend_t backend, const char *name, void *to) {
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    void *proc = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), name);
    memcpy(
        to, &proc, sizeof proc); // ISO C has no cast from object to function pointers; on POSIX systems both have the same bits
    return proc != NULL;
}

// Returns NULL unless the backend belongs to a composite device. A composite device has no registry.
static const struct berth_composite_hooks *composite_hooks_of(ggml_backend_t backend) {
    const struct berth_composite_hooks *hooks = berth_composite_hooks_get();
    return hooks != NULL && hooks->is_backend(backend) ? hooks : NULL;
}

size_t berth_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    reserve_size_t size;
    const struct berth_composite_hooks *hooks = composite_hooks_of(backend);
    if (hooks != NULL && graph != NULL) {
        return hooks->reserve_size(backend, graph);
    }
    return backend != NULL && graph != NULL && proc_find(backend, "berth_backend_reserve_size", &size) ? size(backend, graph) : 0;
}

bool berth_backend_can_reserve(ggml_backend_t backend) {
    reserve_t reserve;
    return backend != NULL && proc_find(backend, "berth_backend_reserve", &reserve);
}

enum ggml_status berth_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    reserve_t reserve;
    if (backend == NULL || graph == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_backend_reserve: the %s is NULL", backend == NULL ? "backend" : "graph");
    }
    const struct berth_composite_hooks *hooks = composite_hooks_of(backend);
    if (hooks != NULL) {
        return hooks->reserve(backend, graph);
    }
    return proc_find(backend, "berth_backend_reserve", &reserve) ? reserve(backend, graph) : GGML_STATUS_SUCCESS;
}

void berth_backend_reserve_copies(ggml_backend_t backend, size_t size) {
    reserve_copies_t reserve;
    if (backend != NULL && proc_find(backend, "berth_backend_reserve_copies", &reserve)) {
        reserve(backend, size);
    }
}

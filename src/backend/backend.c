// SPDX-License-Identifier: MIT
// backend.c: backends: a device at work. Computing graphs and plans, waiting, and what the device answers for it.
// A compute first reports what an earlier void call could not (failure.c), then refuses what no backend may touch
// (graph_check.c), then runs: what reaches a backend lies in memory.

#include "backend/backend.h"

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

// ---- waiting ----

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

// ---- computing ----

static enum ggml_status may_compute(const char *func, ggml_backend_t backend, bool can) {
    if (backend == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: the backend is NULL", func);
    }
    if (!can) {
        return berth_fail(GGML_STATUS_FAILED, "%s: backend %s cannot do this", func, ggml_backend_name(backend));
    }
    return GGML_STATUS_SUCCESS;
}

// The graph that this thread has checked and is handing to a backend: the CPU's need not look again.
static _Thread_local const struct ggml_cgraph *checked_graph;

bool berth_backend_has_checked(const struct ggml_cgraph *graph) {
    return graph != NULL && graph == checked_graph;
}

enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
    enum ggml_status status = may_compute(__func__, backend, backend != NULL && backend->iface.graph_compute != NULL);
    bool has_empty = false;
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_backend_report(backend);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_backend_graph_check(cgraph, &has_empty);
    }
    if (status == GGML_STATUS_SUCCESS) {
        const struct ggml_cgraph *outer = checked_graph; // of an op that computes
        checked_graph = has_empty ? NULL : cgraph;
        status = backend->iface.graph_compute(backend, cgraph);
        checked_graph = outer;
    }
    return status;
}

enum ggml_status ggml_backend_graph_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
    const enum ggml_status status = ggml_backend_graph_compute_async(backend, cgraph);
    const enum ggml_status late = berth_backend_synchronize(backend);
    return status != GGML_STATUS_SUCCESS ? status : late;
}

// ---- plans: a graph prepared once and computed many times ----

ggml_backend_graph_plan_t ggml_backend_graph_plan_create(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
    bool has_empty;
    if (may_compute(__func__, backend, backend != NULL && backend->iface.graph_plan_create != NULL) != GGML_STATUS_SUCCESS ||
        berth_backend_graph_check(cgraph, &has_empty) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    return backend->iface.graph_plan_create(backend, cgraph);
}

void ggml_backend_graph_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    if (plan != NULL && may_compute(__func__, backend, backend != NULL && backend->iface.graph_plan_free != NULL) == 0) {
        backend->iface.graph_plan_free(backend, plan);
    }
}

enum ggml_status ggml_backend_graph_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    enum ggml_status status = may_compute(__func__, backend, backend != NULL && backend->iface.graph_plan_compute != NULL);
    if (status == GGML_STATUS_SUCCESS && plan == NULL) {
        status = berth_fail(GGML_STATUS_FAILED, "ggml_backend_graph_plan_compute: the plan is NULL");
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_backend_report(backend);
    }
    return status == GGML_STATUS_SUCCESS ? backend->iface.graph_plan_compute(backend, plan) : status;
}

// ---- what its device answers ----

bool ggml_backend_supports_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_dev_supports_op(ggml_backend_get_device(backend), op);
}

bool ggml_backend_supports_buft(ggml_backend_t backend, ggml_backend_buffer_type_t buft) {
    return ggml_backend_dev_supports_buft(ggml_backend_get_device(backend), buft);
}

bool ggml_backend_offload_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_dev_offload_op(ggml_backend_get_device(backend), op);
}

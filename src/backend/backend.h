// SPDX-License-Identifier: MIT
// backend.h: functions that the files of src/backend share, and those that schedulers and backends use beyond ggml's API. Every
// public function accepts NULL: a query returns NULL, 0 or false; an action fails with an error.
#pragma once

#include "base/base.h"
#include "ggml-backend-impl.h"

// ---- failures of functions that return void (failure.c) ----

// Reports a failure of a function that returns void: logs the text and sets it as the last error. If backend is not NULL and has no
// stored failure, the text is also stored as its failure. Backends call it too, for example when a device rejects a copy.
BERTH_API void berth_backend_fail(ggml_backend_t backend, const char *fmt, ...) BERTH_PRINTF(2, 3);
// If the backend has a stored failure, removes it, makes it the last error and returns GGML_STATUS_FAILED.
BERTH_API enum ggml_status berth_backend_report(ggml_backend_t backend) BERTH_MUST_USE;
// Waits for the backend's work and then reports a stored failure: ggml_backend_synchronize with a status.
BERTH_API enum ggml_status berth_backend_synchronize(ggml_backend_t backend) BERTH_MUST_USE;

void berth_backend_forget(ggml_backend_t backend);
// Waits for the backend's work and reports nothing.
void berth_backend_wait(ggml_backend_t backend);

// ---- lists of backends (backend_lifetime.c) ----

struct berth_backend_list {
    ggml_backend_t *backends; // [n] ggml_backend_free sets the entry of its backend to NULL
    int n;
    struct berth_backend_list *next; // next watched list
};

// Watches the list until berth_backend_unwatch, which also accepts a list that is not watched.
void berth_backend_watch(struct berth_backend_list *list);
void berth_backend_unwatch(struct berth_backend_list *list);
void berth_backend_is_gone(ggml_backend_t backend);

// ---- buffers in host memory (host.c) ----

// Functions of host buffers. The buffer's context is the address of its first byte. The table has no free_buffer.
extern const struct ggml_backend_buffer_i berth_host_iface;

// ---- memory of tensors ----

// Returns the buffer that holds a tensor's bytes; for a view, the buffer of its source. NULL: no memory yet.
static inline ggml_backend_buffer_t berth_tensor_buffer(const struct ggml_tensor *tensor) {
    return tensor->view_src != NULL ? tensor->view_src->buffer : tensor->buffer;
}

// Returns the tensor's buffer if the first n_bytes of the tensor can be read or written. Otherwise returns NULL and writes the
// cause to reason, which has `size` bytes: the tensor is NULL or poison, has no memory, or the source of the view or the buffer
// ends earlier.
ggml_backend_buffer_t berth_tensor_memory(
    const struct ggml_tensor *tensor, size_t n_bytes, char *reason, size_t size) BERTH_MUST_USE;

// Returns true if this thread is computing the graph through ggml_backend_graph_compute_async, whose checks the graph has passed,
// and no source is empty. The CPU backend, which also computes graphs that did not pass these checks, then skips its own.
BERTH_API bool berth_backend_has_checked(const struct ggml_cgraph *graph);

// Host memory for copies between two devices that cannot access each other's memory.
struct berth_staging {
    void *bytes;
    size_t size;
};

// Copies src to dst and waits. Returns false if the copy is rejected; the failure is stored with backend, which may be NULL. A copy
// through the host uses staging, or allocates memory if staging is NULL or too small.
bool berth_tensor_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst,
    const struct berth_staging *staging);

// ---- composite devices (src/meta, a higher level) ----

struct record;
struct lifetimes;
struct berth_plan_report;

// The memory that a plan requires on each device of a composite device. src/meta extends this struct.
struct berth_layout {
    size_t base;  // offset of its first address in the buffer
    size_t bytes; // sum over all devices
};

struct berth_layout_params {
    const int32_t *pool_of; // [n_buffers] pool of each buffer
    int pool;
    int64_t time_limit_us;
    struct berth_plan_report *report; // report of the device that requires most memory
};

struct berth_composite_hooks {
    // Passes the usage on to the buffers of the devices.
    void (*set_usage)(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);
    bool (*is_composite)(ggml_backend_buffer_type_t buft);
    ggml_backend_buffer_t (*alloc_ctx)(struct ggml_context *ctx, ggml_backend_buffer_type_t buft);
    bool (*is_backend)(ggml_backend_t backend);
    enum ggml_status (*reserve)(ggml_backend_t backend, const struct ggml_cgraph *graph); // as berth_backend_reserve
    size_t (*reserve_size)(ggml_backend_t backend, const struct ggml_cgraph *graph);
    // Plans the memory of a graph for each device. It sets a different offset, relative to the layout's base, for each item of the
    // pool. If a device would need more than one buffer, *out is NULL, and the caller uses one plan for all devices instead.
    enum ggml_status (*layout_new)(ggml_backend_buffer_type_t buft, struct record *rec, const struct lifetimes *lives,
        const struct berth_layout_params *params, uint64_t *offsets, struct berth_layout **out);
    void (*layout_free)(struct berth_layout *layout);
    ggml_backend_buffer_t (*layout_buffer)(ggml_backend_buffer_type_t buft); // new buffer for layouts, without memory yet
    // Ensures that each device has enough memory for this layout. is_exact: memory that is larger than required shrinks. *is_moved:
    // some memory was replaced. On failure the memory has the same sizes as before.
    bool (*layout_ensure_memory)(ggml_backend_buffer_t buffer, struct berth_layout *layout, bool is_exact, bool *is_moved);
    size_t (*layout_bytes)(ggml_backend_buffer_t buffer); // memory of the buffer on all devices
};

// The first composite device sets the hooks.
void berth_composite_hooks_set(const struct berth_composite_hooks *functions);
const struct berth_composite_hooks *berth_composite_hooks_get(void); // NULL: there is no composite device

// Returns a name for messages; it is never NULL or empty.
static inline const char *berth_name_of(const struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return "(NULL)";
    }
    return tensor->name[0] != '\0' ? tensor->name : "(unnamed)";
}

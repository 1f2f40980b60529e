// SPDX-License-Identifier: MIT
// backend.h: functions that src/backend shares, and functions for schedulers and backends beyond ggml's API.
// Every public function accepts NULL. A query then returns NULL, 0 or false. An action fails with an error.
#pragma once

#include "base/base.h"
#include "core/optable.h"
#include "ggml-backend-impl.h"

#include <stdatomic.h>

// ---- failures of functions that return void (failure.c) ----

// Reports a failure of a void function: logs the text and sets the last error.
// If backend is not NULL and has no stored failure yet, the text is stored for the next compute or synchronize.
BERTH_API void berth_backend_fail(ggml_backend_t backend, const char *fmt, ...) BERTH_PRINTF(2, 3);
// If the backend has a stored failure, removes it, sets the last error and returns GGML_STATUS_FAILED.
BERTH_API enum ggml_status berth_backend_report(ggml_backend_t backend) BERTH_MUST_USE;
// ggml_backend_synchronize with a status: waits, then reports a stored failure.
BERTH_API enum ggml_status berth_backend_synchronize(ggml_backend_t backend) BERTH_MUST_USE;

// Removes the stored failure of the backend without reporting it.
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
// Sets the entries of the backend in all watched lists to NULL.
void berth_backend_is_gone(ggml_backend_t backend);

// ---- buffers in host memory (host.c) ----

// Functions of host buffers. The buffer's context is the address of its first byte. The table has no free_buffer.
extern const struct ggml_backend_buffer_i berth_host_iface;

// ---- weights of the host ----

// Counts changes of weights in memory of the host by functions of this library: writes, and freed buffers.
BERTH_API uint64_t berth_weights_epoch(void);
void berth_weights_changed(void);
// Call it before the buffer's memory is written or freed.
static inline void berth_buffer_changes(ggml_backend_buffer_t buffer) {
    if (buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS && ggml_backend_buft_is_host(buffer->buft)) {
        berth_weights_changed();
    }
}

// Returns true if the node writes into a weight of the host.
static inline bool berth_writes_host_weight(const struct ggml_tensor *node) {
    const struct ggml_tensor *base = node->view_src;
    if (base == NULL || base->buffer == NULL || base->buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
        return false;
    }
    const struct berth_op_info *info = berth_op_info(node->op);
    const bool is_view = info != NULL && info->is_empty;
    return !is_view && ggml_backend_buft_is_host(base->buffer->buft);
}

// ---- memory that can be given back (reclaim.c) ----

// Memory that can be freed at any time, because it only makes the program faster. Its owner locks the entry during calls that use
// the memory.
struct berth_holder {
    // Frees memory of buft. Returns false if there is none.
    bool (*reclaim)(struct berth_holder *holder, ggml_backend_buffer_type_t buft);
    atomic_bool is_held;
    uint64_t id; // order of berth_holder_add
    struct berth_holder *next;
};
void berth_holder_add(struct berth_holder *holder);
void berth_holder_remove(struct berth_holder *holder); // the caller holds it
void berth_holder_hold(struct berth_holder *holder);   // waits while its memory is reclaimed
void berth_holder_let_go(struct berth_holder *holder);
// Asks all holders that are not held. Returns true if one of them has freed memory of buft.
bool berth_reclaim(ggml_backend_buffer_type_t buft);
// Between these calls, berth_reclaim of this thread frees nothing and returns false. Use them for an allocation that the caller
// does not depend on. The calls may be nested.
void berth_reclaim_pause(void);
void berth_reclaim_resume(void);

// ---- weights that are read from a file while a graph runs (stream_graph.c) ----

// Memory that a program gave to a buffer may hold mapped weights. Call both with the same arguments.
void berth_weights_add(const void *at, size_t size);
void berth_weights_remove(const void *at, size_t size);

struct berth_weights;
// The CPU backend calls this before a graph. Returns NULL if the graph runs as usual: there are no mapped weights, they fit into
// memory, or another graph uses the stream.
BERTH_API struct berth_weights *berth_weights_begin(const struct ggml_cgraph *graph);
// Waits for the weights of node i. Returns 0, or the errno of a failed read; all threads get the same answer. If reading failed, the
// node must not run, because an access to its weights may end the process.
BERTH_API int berth_weights_wait(struct berth_weights *s, int i);
// All nodes before node i have run; i may be the number of nodes. One thread calls this.
BERTH_API void berth_weights_done(struct berth_weights *s, int i);
BERTH_API void berth_weights_end(struct berth_weights *s);

// ---- memory of tensors ----

// For a view, returns the buffer of its source. Returns NULL if the tensor has no memory yet.
static inline ggml_backend_buffer_t berth_tensor_buffer(const struct ggml_tensor *tensor) {
    return tensor->view_src != NULL ? tensor->view_src->buffer : tensor->buffer;
}

// Returns the tensor's buffer if the first n_bytes can be accessed.
// Otherwise returns NULL and writes the cause to reason, which has `size` bytes.
ggml_backend_buffer_t berth_tensor_memory(
    const struct ggml_tensor *tensor, size_t n_bytes, char *reason, size_t size) BERTH_MUST_USE;

// Returns true while ggml_backend_graph_compute_async computes this graph in this thread and has checked it. The CPU backend then
// skips its own checks. Returns false if some source has no elements, because the CPU backend must then check whether the op
// supports such a source.
BERTH_API bool berth_backend_has_checked(const struct ggml_cgraph *graph);

// Returns true if the backend has a function that berth_backend_reserve calls.
bool berth_backend_can_reserve(ggml_backend_t backend);
// Makes the backend allocate the memory that ggml_backend_tensor_set_async of up to `size` bytes requires. Without that memory, the
// copies are slower. Does nothing if the backend requires none.
BERTH_API void berth_backend_reserve_copies(ggml_backend_t backend, size_t size);

// Host memory for copies between two devices that cannot access each other's memory.
struct berth_staging {
    void *bytes;
    size_t size;
};

// Copies src to dst and waits for the copy. If the copy is rejected, returns false and stores the failure with backend, which may
// be NULL. A copy through the host uses staging. If staging is NULL or too small, memory is allocated.
bool berth_tensor_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst,
    const struct berth_staging *staging);

// ---- composite devices (src/meta, a higher level) ----

struct record;
struct lifetimes;
struct berth_plan_report;

// The memory that a plan requires on each device of a composite device. src/meta extends this struct.
struct berth_layout {
    size_t base;  // offset of the layout's first address in the buffer
    size_t bytes; // memory of the layout on all devices together
};

struct berth_layout_params {
    const int32_t *pool_of; // [n_buffers] pool of each buffer
    int pool;
    int64_t time_limit_us;
    struct berth_plan_report *report; // report of the device that requires most memory
};

// Functions of src/meta that the lower levels call.
struct berth_composite_hooks {
    void (*set_usage)(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);
    bool (*is_composite)(ggml_backend_buffer_type_t buft);
    ggml_backend_buffer_t (*alloc_ctx)(struct ggml_context *ctx, ggml_backend_buffer_type_t buft);
    bool (*is_backend)(ggml_backend_t backend);
    enum ggml_status (*reserve)(ggml_backend_t backend, const struct ggml_cgraph *graph); // as berth_backend_reserve
    size_t (*reserve_size)(ggml_backend_t backend, const struct ggml_cgraph *graph);
    // Plans the items of a pool for each device. Sets a different offset for each item, relative to the layout's base. If a
    // device would need more than one buffer, sets *out to NULL; the caller then uses one plan for all devices.
    enum ggml_status (*layout_new)(ggml_backend_buffer_type_t buft, struct record *rec, const struct lifetimes *lives,
        const struct berth_layout_params *params, uint64_t *offsets, struct berth_layout **out);
    void (*layout_free)(struct berth_layout *layout);
    ggml_backend_buffer_t (*layout_buffer)(ggml_backend_buffer_type_t buft); // new buffer for layouts, without memory yet
    // Allocates the memory that the layout requires on each device. is_exact: larger memory shrinks to the required size. Sets
    // *is_moved to true if some memory was replaced. On failure the sizes are unchanged.
    bool (*layout_ensure_memory)(ggml_backend_buffer_t buffer, struct berth_layout *layout, bool is_exact, bool *is_moved);
    size_t (*layout_bytes)(ggml_backend_buffer_t buffer); // memory of the buffer on all devices
};

// The first composite device sets the hooks.
void berth_composite_hooks_set(const struct berth_composite_hooks *functions);
const struct berth_composite_hooks *berth_composite_hooks_get(void); // NULL: there is no composite device

// Never returns NULL or "".
static inline const char *berth_name_of(const struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return "(NULL)";
    }
    return tensor->name[0] != '\0' ? tensor->name : "(unnamed)";
}

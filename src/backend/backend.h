// SPDX-License-Identifier: MIT
// backend.h: what the files of the interface share, and what schedulers and backends may use of it beyond ggml's API.
// Every public function takes NULL: a question is answered with NULL, 0 or false; an action is refused with an error.
#pragma once

#include "base/base.h"
#include "ggml-backend-impl.h"

// ---- failures of calls that cannot report (failure.c) ----

// For functions that return void: logs the text, keeps it as the last error and, unless backend is NULL, as that backend's
// failure if it has none yet. Backends call it too, e.g. where a device refuses a copy.
BERTH_API void berth_backend_fail(ggml_backend_t backend, const char *fmt, ...) BERTH_PRINTF(2, 3);
// The backend's kept failure, if any, becomes the last error and is forgotten. GGML_STATUS_FAILED if there was one.
BERTH_API enum ggml_status berth_backend_report(ggml_backend_t backend) BERTH_MUST_USE;
// Waits for the backend's work and reports: ggml_backend_synchronize with a status.
BERTH_API enum ggml_status berth_backend_synchronize(ggml_backend_t backend) BERTH_MUST_USE;

void berth_backend_forget(ggml_backend_t backend);
// Waits for the backend's work, reports nothing.
void berth_backend_wait(ggml_backend_t backend);

// ---- backends that others keep (backend_lifetime.c) ----

struct berth_backend_list {
    ggml_backend_t *backends; // [n]; NULL from the moment on that ggml_backend_free is called with it
    int n;
    struct berth_backend_list *next; // of all that are watched
};

// Until berth_backend_unwatch; one that is not watched may be given to that, too.
void berth_backend_watch(struct berth_backend_list *list);
void berth_backend_unwatch(struct berth_backend_list *list);
void berth_backend_is_gone(ggml_backend_t backend);

// ---- buffers in memory that the host reaches (host.c) ----

extern const struct ggml_backend_buffer_i berth_host_iface; // context: first byte, which belongs to somebody else

// ---- tensors and their memory ----

// The buffer that holds a tensor's bytes: a view's is that of its source. NULL: no memory yet.
static inline ggml_backend_buffer_t berth_tensor_buffer(const struct ggml_tensor *tensor) {
    return tensor->view_src != NULL ? tensor->view_src->buffer : tensor->buffer;
}

// NULL with the reason in reason (of size bytes) if the first n_bytes of the tensor cannot be read or written: NULL, poison, no
// memory, or a view or buffer that ends before.
ggml_backend_buffer_t berth_tensor_memory(
    const struct ggml_tensor *tensor, size_t n_bytes, char *reason, size_t size) BERTH_MUST_USE;

// For backends that check by themselves what they are handed past this interface: whether that has been done, and no source
// was empty.
BERTH_API bool berth_backend_has_checked(const struct ggml_cgraph *graph);

// Memory of the host for bytes on their way between two devices that know nothing of each other.
struct berth_staging {
    void *bytes;
    size_t size;
};

// Copies src to dst and waits. False: refused; kept with backend, which may be NULL. What goes through the host takes memory
// there, unless staging, which may be NULL, is large enough.
bool berth_tensor_copy(const char *func, ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst,
    const struct berth_staging *staging);

// ---- devices made of several, which are of a higher level ----

struct record;
struct lifetimes;
struct berth_plan_report;

// What each device needs of a plan by itself; what follows is its maker's.
struct berth_layout {
    size_t base;  // of its addresses in the buffer
    size_t bytes; // on all devices
};

struct berth_layout_params {
    const int32_t *pool_of; // [buffers]
    int pool;
    int64_t budget_us;
    struct berth_plan_report *report; // of the device that needs most
};

struct berth_composite_hooks {
    void (*set_usage)(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage); // on to the parts, if it has any
    bool (*is_composite)(ggml_backend_buffer_type_t buft);
    ggml_backend_buffer_t (*alloc_ctx)(struct ggml_context *ctx, ggml_backend_buffer_type_t buft);
    bool (*is_backend)(ggml_backend_t backend);
    enum ggml_status (*reserve)(ggml_backend_t backend, const struct ggml_cgraph *graph); // as berth_backend_reserve
    size_t (*reserve_size)(ggml_backend_t backend, const struct ggml_cgraph *graph);
    // Memory of graphs: each device has its own plan. Offsets of the items of pool, from the layout's base on, no two the same.
    // *out NULL: a device wants more than one buffer; the plan of the whole serves.
    enum ggml_status (*layout_new)(ggml_backend_buffer_type_t buft, struct record *rec, const struct lifetimes *lives,
        const struct berth_layout_params *params, uint64_t *offsets, struct berth_layout **out);
    void (*layout_free)(struct berth_layout *layout);
    ggml_backend_buffer_t (*layout_buffer)(ggml_backend_buffer_type_t buft); // that layouts lie in, without memory yet
    // Memory on each device for this layout, too. is_exact: and no more, if it has to grow. On failure it holds as much as
    // before.
    bool (*layout_ensure_memory)(ggml_backend_buffer_t buffer, struct berth_layout *layout, bool is_exact, bool *is_moved);
    size_t (*layout_bytes)(ggml_backend_buffer_t buffer); // that the buffer has on all devices
};

// Told by the first such device.
void berth_composite_hooks_set(const struct berth_composite_hooks *functions);
const struct berth_composite_hooks *berth_composite_hooks_get(void); // NULL: there is no such device

// A name for messages: never NULL, never empty.
static inline const char *berth_name_of(const struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return "(NULL)";
    }
    return tensor->name[0] != '\0' ? tensor->name : "(unnamed)";
}

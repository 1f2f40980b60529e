// SPDX-License-Identifier: MIT
// ggml-backend-impl.h: the tables that a backend fills in. For authors of backends; docs/dev/adding-a-backend.md is the guide.
//
// A backend fills in one table per object: registry, device, buffer type, buffer, backend. Each object is a struct with its table
// (iface) and a context pointer, which belongs to the backend. A member that may be NULL is marked as optional.
//
// Berth guarantees before it calls a function of a table:
//   - Offsets and sizes are inside the tensor. The tensor has memory. The caller's pointer is not NULL.
//   - The two tensors of a copy have the same type, extents and strides.
//   - A graph contains no poison tensor (berth.h). Every node that is computed, and each of its sources, is in memory.
//
// The backend guarantees:
//   - It never ends the process. It reports a failure by a status, NULL or false.
//   - It does its work in the order in which it receives it.
//   - Its functions of registries, devices and buffer types can be called from any thread. Functions of one backend are called
//     from one thread at a time.
//
// In this header, sizes, offsets and strides are in bytes.
#pragma once

#include "ggml-backend.h"

// The version of the tables below. A library refuses a backend of another version. GGML_MAX_NAME is part of it, because it
// changes the layout of tensors.
#define GGML_BACKEND_API_VERSION (2 + (GGML_MAX_NAME - 64) * 1000)

#ifdef __cplusplus
extern "C" {
#endif

// Functions of a buffer type.
struct ggml_backend_buffer_type_i {
    // Returns the name. Required.
    const char *(*get_name)(ggml_backend_buffer_type_t);
    // Allocates a buffer of at least 1 byte and wraps it by ggml_backend_buffer_init. Returns NULL on failure. Required.
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t);
    // Returns the alignment of tensors, a power of two. Required.
    size_t (*get_alignment)(ggml_backend_buffer_type_t);
    // Returns the largest size of one buffer. Optional: without it, there is no limit.
    size_t (*get_max_size)(ggml_backend_buffer_type_t);
    // Returns the bytes that a tensor takes, ggml_nbytes or more. Optional: without it, ggml_nbytes is used.
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t, const struct ggml_tensor *);
    // Returns whether the host can use the addresses directly. Optional: without it, the host cannot.
    bool (*is_host)(ggml_backend_buffer_type_t);
};

// A buffer type. The backend owns it; it must exist as long as the backend library is loaded.
struct ggml_backend_buffer_type {
    struct ggml_backend_buffer_type_i iface; // its functions
    ggml_backend_dev_t device;               // its device; NULL: host memory that belongs to no device
    void *context;                           // for the backend
};

// Functions of a buffer. A buffer of size 0 has no functions.
struct ggml_backend_buffer_i {
    // Frees the memory and the context, but not the struct. Optional, for memory that belongs to somebody else.
    void (*free_buffer)(ggml_backend_buffer_t);
    // Returns the first address, aligned and not NULL. Required, except for a buffer in which no tensor is placed.
    void *(*get_base)(ggml_backend_buffer_t);
    // Prepares a tensor, view or not, that has just got its address in the buffer. A failure takes the address away. Optional.
    enum ggml_status (*init_tensor)(ggml_backend_buffer_t, struct ggml_tensor *);
    // Sets bytes of the tensor: value, offset, size. Optional: without it, ggml_backend_tensor_memset is refused.
    void (*memset_tensor)(ggml_backend_buffer_t, struct ggml_tensor *, uint8_t, size_t, size_t);
    // Writes bytes to the tensor: source, offset, size. It is complete when it returns. Required.
    void (*set_tensor)(ggml_backend_buffer_t, struct ggml_tensor *, const void *, size_t, size_t);
    // Reads bytes of the tensor: destination, offset, size. It is complete when it returns. Required.
    void (*get_tensor)(ggml_backend_buffer_t, const struct ggml_tensor *, void *, size_t, size_t);
    // Writes several pieces: source, offset, size, number of pieces, stride in the tensor, stride in the source. Optional:
    // without it, set_tensor is called per piece.
    void (*set_tensor_2d)(ggml_backend_buffer_t, struct ggml_tensor *, const void *, size_t, size_t, size_t, size_t, size_t);
    // Reads several pieces: destination, offset, size, number of pieces, stride in the tensor, stride in the destination.
    // Optional: without it, get_tensor is called per piece.
    void (*get_tensor_2d)(ggml_backend_buffer_t, const struct ggml_tensor *, void *, size_t, size_t, size_t, size_t, size_t);
    // Copies the source, in any buffer, to the destination in this buffer. Returns false if it cannot; the data then pass through
    // host memory. Optional.
    bool (*cpy_tensor)(ggml_backend_buffer_t, const struct ggml_tensor *, struct ggml_tensor *);
    // Sets every byte of the buffer. Optional: without it, ggml_backend_buffer_clear is refused.
    void (*clear)(ggml_backend_buffer_t, uint8_t);
    // Drops the state that the backend keeps for the buffer's tensors. Optional: without it, there is no such state.
    void (*reset)(ggml_backend_buffer_t);
};

// A buffer. ggml_backend_buffer_init creates it, ggml_backend_buffer_free frees it.
struct ggml_backend_buffer {
    struct ggml_backend_buffer_i iface;   // its functions
    ggml_backend_buffer_type_t buft;      // its type
    void *context;                        // for the backend
    size_t size;                          // bytes
    enum ggml_backend_buffer_usage usage; // its purpose
};

// The requests that a backend can make while it optimises a graph.
struct ggml_backend_graph_optimize_params {
    // Requests that the tensor keeps its memory until the node `until` of the same graph has run. Pass user_data on.
    void (*add_alloc_dep)(void *user_data, struct ggml_tensor *tensor, struct ggml_tensor *until);
    void *user_data; // for add_alloc_dep
};

// Functions of a backend. The backend may compute asynchronously only if it has `synchronize`. It must have read the graph and
// its tensor structs when graph_compute returns.
struct ggml_backend_i {
    // Returns the name. Required.
    const char *(*get_name)(ggml_backend_t);
    // Frees the backend, its struct included. Required.
    void (*free)(ggml_backend_t);
    // Like set_tensor of a buffer, in the order of work. Optional: without it, Berth waits and calls set_tensor.
    void (*set_tensor_async)(ggml_backend_t, struct ggml_tensor *, const void *, size_t, size_t);
    // Like get_tensor of a buffer, in the order of work. Optional: without it, Berth waits and calls get_tensor.
    void (*get_tensor_async)(ggml_backend_t, const struct ggml_tensor *, void *, size_t, size_t);
    // Like set_tensor_2d of a buffer, in the order of work. Optional: without it, set_tensor_async is called per piece.
    void (*set_tensor_2d_async)(ggml_backend_t, struct ggml_tensor *, const void *, size_t, size_t, size_t, size_t, size_t);
    // Like get_tensor_2d of a buffer, in the order of work. Optional: without it, get_tensor_async is called per piece.
    void (*get_tensor_2d_async)(ggml_backend_t, const struct ggml_tensor *, void *, size_t, size_t, size_t, size_t, size_t);
    // Copies a tensor of the first backend to a tensor of the second, which is this one: after the work of the first, before the
    // next work of the second. Returns false if it cannot; Berth then waits for both and copies. Optional.
    bool (*cpy_tensor_async)(ggml_backend_t, ggml_backend_t, const struct ggml_tensor *, struct ggml_tensor *);
    // Waits until all work is complete. Optional: without it, all functions must be complete when they return.
    void (*synchronize)(ggml_backend_t);
    // Prepares a graph to be computed many times. Returns NULL on failure. Optional: a backend has all functions of plans or
    // none.
    ggml_backend_graph_plan_t (*graph_plan_create)(ggml_backend_t, const struct ggml_cgraph *);
    // Frees a plan. Optional, with graph_plan_create.
    void (*graph_plan_free)(ggml_backend_t, ggml_backend_graph_plan_t);
    // Adapts a plan to a changed graph. Berth does not call it. Optional.
    void (*graph_plan_update)(ggml_backend_t, ggml_backend_graph_plan_t, const struct ggml_cgraph *);
    // Computes a plan. Optional, with graph_plan_create.
    enum ggml_status (*graph_plan_compute)(ggml_backend_t, ggml_backend_graph_plan_t);
    // Computes a graph. It skips ops that move no data. Required.
    enum ggml_status (*graph_compute)(ggml_backend_t, struct ggml_cgraph *);
    // Puts the event after the work that the backend has now. Optional: without it, the backend has no events.
    void (*event_record)(ggml_backend_t, ggml_backend_event_t);
    // Lets the backend wait for the event before its next work. Optional: without it, the host waits.
    void (*event_wait)(ggml_backend_t, ggml_backend_event_t);
    // May change the order of the nodes of a split and request longer lifetimes. The scheduler calls it once per split of a new
    // graph, before memory is planned. Any other change to the graph is an error. Optional.
    void (*graph_optimize)(ggml_backend_t, struct ggml_cgraph *, struct ggml_backend_graph_optimize_params *);
};

// A backend. init_backend of the device creates it; `free` of its table frees it, this struct included.
struct ggml_backend {
    ggml_guid_t guid;            // 16 bytes that identify the kind of backend
    struct ggml_backend_i iface; // its functions
    ggml_backend_dev_t device;   // its device
    void *context;               // for the backend
};

// An event. event_new of the device creates it.
struct ggml_backend_event {
    struct ggml_backend_device *device; // its device
    void *context;                      // for the backend
};

// Functions of a device.
struct ggml_backend_device_i {
    // Returns the name, such as "CUDA0". Required.
    const char *(*get_name)(ggml_backend_dev_t);
    // Returns a text for users. Optional.
    const char *(*get_description)(ggml_backend_dev_t);
    // Stores the free and the total bytes of memory. The pointers are not NULL. Optional: without it, both are 0.
    void (*get_memory)(ggml_backend_dev_t, size_t *, size_t *);
    // Returns the kind of the device. Required.
    enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
    // Fills in the properties, which are all 0 before. Required.
    void (*get_props)(ggml_backend_dev_t, struct ggml_backend_dev_props *);
    // Creates a backend. The text is the params argument of ggml_backend_dev_init and may be NULL. Returns NULL on failure.
    // Required.
    ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char *);
    // Returns the buffer type that the device computes on. Required. A device that works on host memory can return
    // ggml_backend_cpu_buffer_type().
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
    // Returns a type of host memory that the device copies fast. Optional.
    ggml_backend_buffer_type_t (*get_host_buffer_type)(ggml_backend_dev_t);
    // Creates a buffer over host memory: address, size, size of the largest tensor. Returns NULL on failure. Optional: without
    // it, the device cannot use such memory.
    ggml_backend_buffer_t (*buffer_from_host_ptr)(ggml_backend_dev_t, void *, size_t, size_t);
    // Returns whether graph_compute computes this node, for its types, extents and strides. The answer must be true for ops that
    // move no data (NONE, RESHAPE, VIEW, PERMUTE, TRANSPOSE). Required.
    bool (*supports_op)(ggml_backend_dev_t, const struct ggml_tensor *);
    // Returns whether the device can use tensors in buffers of this type without a copy. Required.
    bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
    // Returns whether the device prefers to run this node although its weight is in host memory. Optional.
    bool (*offload_op)(ggml_backend_dev_t, const struct ggml_tensor *);
    // Creates an event. Returns NULL on failure. Optional: a device has all three functions of events or none.
    ggml_backend_event_t (*event_new)(ggml_backend_dev_t);
    // Frees an event. Optional, with event_new.
    void (*event_free)(ggml_backend_dev_t, ggml_backend_event_t);
    // Blocks the calling thread until the recorded work is complete. Optional, with event_new.
    void (*event_synchronize)(ggml_backend_dev_t, ggml_backend_event_t);
};

// A device. The backend library owns it; it must exist as long as the library is loaded.
struct ggml_backend_device {
    struct ggml_backend_device_i iface; // its functions
    ggml_backend_reg_t reg;             // its registry
    void *context;                      // for the backend
};

// Functions of a registry.
struct ggml_backend_reg_i {
    // Returns the name, such as "CUDA". Required.
    const char *(*get_name)(ggml_backend_reg_t);
    // Returns the number of devices. Required.
    size_t (*get_device_count)(ggml_backend_reg_t);
    // Returns a device. The index is below the count. Required.
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t, size_t);
    // Returns the address of a further function by its name, or NULL. Optional.
    void *(*get_proc_address)(ggml_backend_reg_t, const char *);
};

// A registry. The backend library owns it; it must exist as long as the library is loaded.
struct ggml_backend_reg {
    int api_version;                 // GGML_BACKEND_API_VERSION
    struct ggml_backend_reg_i iface; // its functions
    void *context;                   // for the backend
};

// Type of the exported function ggml_backend_init: returns the registry of a loadable backend, or NULL if it cannot be used.
typedef ggml_backend_reg_t (*ggml_backend_init_t)(void);

// Type of the exported function ggml_backend_score: returns how well this build of a backend suits the machine. The build with
// the highest score is loaded. 0 means that it cannot run here.
typedef int (*ggml_backend_score_t)(void);

// ---- buffers, for backends ----

// Returns whether a buffer type may request more than ggml_nbytes for a result of this op.
GGML_API bool ggml_op_alloc_size_may_expand(enum ggml_op op);

// Creates a buffer struct with this table, context and size, and usage ANY. A backend calls it in alloc_buffer. Returns NULL
// if memory runs out; the context is then still the caller's to free.
GGML_API ggml_backend_buffer_t ggml_backend_buffer_init(
    ggml_backend_buffer_type_t buft, struct ggml_backend_buffer_i iface, void *context, size_t size);

// Copies src to dst by cpy_tensor of dst's buffer. Returns false if that buffer cannot do it, or if the tensors have no memory or
// different layouts.
GGML_API bool ggml_backend_buffer_copy_tensor(const struct ggml_tensor *src, struct ggml_tensor *dst);

// Combines n_buffers buffers into one, which owns them: freeing it frees them. Tensors are placed in the single buffers. Returns
// NULL on failure; the buffers are then still the caller's.
GGML_API ggml_backend_buffer_t ggml_backend_multi_buffer_alloc_buffer(ggml_backend_buffer_t *buffers, size_t n_buffers);

// Returns whether ggml_backend_multi_buffer_alloc_buffer created the buffer.
GGML_API bool ggml_backend_buffer_is_multi_buffer(ggml_backend_buffer_t buffer);

// Sets the usage of all buffers that a combined buffer owns. It is refused for other buffers. ggml_backend_buffer_set_usage calls
// it.
GGML_API void ggml_backend_multi_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);

// Sets the usage of the parts of a composite device's buffer. It does nothing for other buffers. ggml_backend_buffer_set_usage
// calls it.
GGML_API void ggml_backend_meta_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);

// ---- composite devices ----

// Returns whether the backend belongs to a composite device.
GGML_API bool ggml_backend_is_meta(ggml_backend_t backend);

// Returns whether the buffer belongs to a composite device.
GGML_API bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t buf);

// Returns whether the buffer type belongs to a composite device.
GGML_API bool ggml_backend_buft_is_meta(ggml_backend_buffer_type_t buft);

// Returns the number of backends that the backend of a composite device uses. Returns 0 for other backends.
GGML_API size_t ggml_backend_meta_n_backends(ggml_backend_t meta_backend);

// Returns the backend that a composite device uses on part `index`. It belongs to the composite backend. Returns NULL if there is
// none.
GGML_API ggml_backend_t ggml_backend_meta_simple_backend(ggml_backend_t meta_backend, size_t index);

// Like ggml_backend_alloc_ctx_tensors_from_buft, for the buffer type of a composite device: each part gets memory for its share
// of the tensors. ggml_backend_alloc_ctx_tensors_from_buft calls it.
GGML_API struct ggml_backend_buffer *ggml_backend_meta_alloc_ctx_tensors_from_buft(
    struct ggml_context *ctx, ggml_backend_buffer_type_t buft);

#ifdef __cplusplus
}
#endif

// A loadable backend exports ggml_backend_init. GGML_BACKEND_DL_IMPL(reg_fn) defines it; reg_fn returns the registry. A backend
// with several builds also exports ggml_backend_score, which GGML_BACKEND_DL_SCORE_IMPL(score_fn) defines. Without
// GGML_BACKEND_DL both macros define nothing.
#ifdef GGML_BACKEND_DL
#    ifdef __cplusplus
#        define GGML_BACKEND_DL_C extern "C"
#    else
#        define GGML_BACKEND_DL_C
#    endif
#    ifdef _WIN32
#        define GGML_BACKEND_DL_EXPORT __declspec(dllexport)
#    else
#        define GGML_BACKEND_DL_EXPORT __attribute__((visibility("default")))
#    endif
#    define GGML_BACKEND_DL_IMPL(reg_fn) \
        GGML_BACKEND_DL_C GGML_BACKEND_DL_EXPORT ggml_backend_reg_t ggml_backend_init(void); \
        ggml_backend_reg_t ggml_backend_init(void) { \
            return reg_fn(); \
        }
#    define GGML_BACKEND_DL_SCORE_IMPL(score_fn) \
        GGML_BACKEND_DL_C GGML_BACKEND_DL_EXPORT int ggml_backend_score(void); \
        int ggml_backend_score(void) { \
            return score_fn(); \
        }
#else
#    define GGML_BACKEND_DL_IMPL(reg_fn)
#    define GGML_BACKEND_DL_SCORE_IMPL(score_fn)
#endif

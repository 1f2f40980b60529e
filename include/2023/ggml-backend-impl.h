// SPDX-License-Identifier: MIT
// 2023/ggml-backend-impl.h: the tables that a backend of 2023 fills in, and the structs whose fields programs read, in the
// layout of the date that BERTH_2023 selects.
#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *ggml_backend_buffer_type_context_t;
typedef void *ggml_backend_buffer_context_t;
typedef void *ggml_backend_context_t;

// ---- buffer types ----

#if BERTH_2023 >= 202402
// get_max_size, get_alloc_size and is_host may be NULL.
struct ggml_backend_buffer_type_i {
    const char *(*GGML_CALL get_name)(ggml_backend_buffer_type_t buft);
    ggml_backend_buffer_t (*GGML_CALL alloc_buffer)(ggml_backend_buffer_type_t buft, size_t size);
    size_t (*GGML_CALL get_alignment)(ggml_backend_buffer_type_t buft);
    size_t (*GGML_CALL get_max_size)(ggml_backend_buffer_type_t buft);
    size_t (*GGML_CALL get_alloc_size)(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor);
    bool (*GGML_CALL supports_backend)(ggml_backend_buffer_type_t buft, ggml_backend_t backend);
    bool (*GGML_CALL is_host)(ggml_backend_buffer_type_t buft); // whether the host can read and write the memory directly
};
#elif BERTH_2023 >= 202312
// get_alloc_size may be NULL.
struct ggml_backend_buffer_type_i {
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t buft, size_t size);
    size_t (*get_alignment)(ggml_backend_buffer_type_t buft);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t buft, struct ggml_tensor *tensor);
    bool (*supports_backend)(ggml_backend_buffer_type_t buft, ggml_backend_t backend);
};
#endif
#if BERTH_2023 >= 202312
struct ggml_backend_buffer_type {
    struct ggml_backend_buffer_type_i iface;
    ggml_backend_buffer_type_context_t context;
};
#endif

// ---- buffers ----

#if BERTH_2023 >= 202402
// All members except get_base, set_tensor and get_tensor may be NULL.
struct ggml_backend_buffer_i {
    const char *(*GGML_CALL get_name)(ggml_backend_buffer_t buffer);
    void (*GGML_CALL free_buffer)(ggml_backend_buffer_t buffer);
    void *(*GGML_CALL get_base)(ggml_backend_buffer_t buffer);
    void (*GGML_CALL init_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
    void (*GGML_CALL set_tensor)(
        ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*GGML_CALL get_tensor)(
        ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
    // Called on the destination's buffer. Returns false if it cannot copy.
    bool (*GGML_CALL cpy_tensor)(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst);
    void (*GGML_CALL clear)(ggml_backend_buffer_t buffer, uint8_t value);
    void (*GGML_CALL reset)(ggml_backend_buffer_t buffer); // drops the state of all tensors that init_tensor received
};
#elif BERTH_2023 >= 202312
// All members except get_base, set_tensor and get_tensor may be NULL.
struct ggml_backend_buffer_i {
    void (*free_buffer)(ggml_backend_buffer_t buffer);
    void *(*get_base)(ggml_backend_buffer_t buffer);
    void (*init_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
    void (*set_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*get_tensor)(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
    void (*cpy_tensor_from)(
        ggml_backend_buffer_t buffer, struct ggml_tensor *src, struct ggml_tensor *dst); // called on dst's buffer
    void (*cpy_tensor_to)(
        ggml_backend_buffer_t buffer, struct ggml_tensor *src, struct ggml_tensor *dst); // called on src's buffer
};
#else
// All members except get_base may be NULL.
struct ggml_backend_buffer_i {
    void (*free_buffer)(ggml_backend_buffer_t buffer);
    void *(*get_base)(ggml_backend_buffer_t buffer);
    size_t (*get_alloc_size)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor); // called before a tensor gets its address
    void (*init_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);      // called after a tensor gets its address
    void (*free_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);      // called before the memory is freed
};
#endif

// Only ggml_backend_buffer_init creates this struct.
struct ggml_backend_buffer {
    size_t berth[32]; // Berth's own part: tensors point here, so today's functions read it
    struct ggml_backend_buffer_i iface;
#if BERTH_2023 >= 202312
    ggml_backend_buffer_type_t buft;
#else
    ggml_backend_t backend;
#endif
    ggml_backend_buffer_context_t context;
    size_t size;
#if BERTH_2023 >= 202402
    enum ggml_backend_buffer_usage usage;
#endif
};

#if BERTH_2023 >= 202312
GGML_API GGML_CALL ggml_backend_buffer_t BERTH_2023_AT(buffer_init)(
    ggml_backend_buffer_type_t buft, struct ggml_backend_buffer_i iface, ggml_backend_buffer_context_t context, size_t size);
#else
GGML_API ggml_backend_buffer_t BERTH_2023_AT(buffer_init)(
    struct ggml_backend *backend, struct ggml_backend_buffer_i iface, ggml_backend_buffer_context_t context, size_t size);
#endif
#if BERTH_2023 >= 202402
// Copies by the destination's buffer. Returns false if that buffer cannot.
GGML_API bool BERTH_2023_AT(buffer_copy_tensor)(const struct ggml_tensor *src, struct ggml_tensor *dst);
// Combines several buffers into one, which owns them. Returns NULL if memory runs out; they are then still the caller's.
GGML_API GGML_CALL ggml_backend_buffer_t BERTH_2023_AT(multi_buffer_alloc_buffer)(
    ggml_backend_buffer_t *buffers, size_t n_buffers);
GGML_API GGML_CALL bool BERTH_2023_AT(buffer_is_multi_buffer)(ggml_backend_buffer_t buffer);
GGML_API GGML_CALL void BERTH_2023_AT(multi_buffer_set_usage)(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage);
#endif

// ---- backends ----

struct ggml_backend_i {
#if BERTH_2023 >= 202312
    const char *(*GGML_CALL get_name)(ggml_backend_t backend);
    void (*GGML_CALL free)(ggml_backend_t backend);
    ggml_backend_buffer_type_t (*GGML_CALL get_default_buffer_type)(ggml_backend_t backend);
    // These may be NULL: the functions of the buffer are used instead.
    void (*GGML_CALL set_tensor_async)(
        ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*GGML_CALL get_tensor_async)(
        ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
#    if BERTH_2023 >= 202402
    bool (*GGML_CALL cpy_tensor_async)(ggml_backend_t backend, const struct ggml_tensor *src, struct ggml_tensor *dst);
#    else
    void (*cpy_tensor_from_async)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
    void (*cpy_tensor_to_async)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
#    endif
    void (*GGML_CALL synchronize)(ggml_backend_t backend);
#else
    const char *(*get_name)(ggml_backend_t backend);
    void (*free)(ggml_backend_t backend);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_t backend, size_t size);
    size_t (*get_alignment)(ggml_backend_t backend);
    void (*set_tensor_async)(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*get_tensor_async)(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
    void (*synchronize)(ggml_backend_t backend);
    // These may be NULL. The first is called on the destination's backend, the second on the source's.
    void (*cpy_tensor_from)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
    void (*cpy_tensor_to)(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst);
#endif
#if BERTH_2023 >= 202402
    ggml_backend_graph_plan_t (*GGML_CALL graph_plan_create)(ggml_backend_t backend, const struct ggml_cgraph *cgraph);
#else
    ggml_backend_graph_plan_t (*graph_plan_create)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
#endif
    void (*GGML_CALL graph_plan_free)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    void (*GGML_CALL graph_plan_compute)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
#if BERTH_2023 >= 202402
    bool (*GGML_CALL graph_compute)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
#else
    void (*graph_compute)(ggml_backend_t backend, struct ggml_cgraph *cgraph);
#endif
    bool (*GGML_CALL supports_op)(ggml_backend_t backend, const struct ggml_tensor *op);
};

struct ggml_backend {
    struct ggml_backend_i iface;
    ggml_backend_context_t context;
};

// ---- the registry (in libggml) ----

#if BERTH_2023 >= 202312
typedef ggml_backend_t (*GGML_CALL ggml_backend_init_fn)(const char *params, void *user_data);
// Registers a backend. The name is copied. A name that is already registered is refused.
GGML_API GGML_CALL void BERTH_2023_AT(register)(
    const char *name, ggml_backend_init_fn init_fn, ggml_backend_buffer_type_t default_buffer_type, void *user_data);
#endif

// ---- names of ggml's API ----

#ifndef BERTH_2023_IMPLEMENTATION
#    define ggml_backend_buffer_init BERTH_2023_AT(buffer_init)
#    define ggml_backend_buffer_copy_tensor BERTH_2023_AT(buffer_copy_tensor)
#    define ggml_backend_multi_buffer_alloc_buffer BERTH_2023_AT(multi_buffer_alloc_buffer)
#    define ggml_backend_buffer_is_multi_buffer BERTH_2023_AT(buffer_is_multi_buffer)
#    define ggml_backend_multi_buffer_set_usage BERTH_2023_AT(multi_buffer_set_usage)
#    define ggml_backend_register BERTH_2023_AT(register)
#endif

#ifdef __cplusplus
}
#endif

// SPDX-License-Identifier: MIT
// host.c: buffers in host memory: allocated ones ("CPU") and ones over the caller's memory ("CPU_Mapped").
// They live in the base, not in the CPU backend, because every backend copies through them. context = first byte.

#include "backend/backend.h"

#include <string.h>

#define HOST_ALIGN 32       // what tensors may rely on
#define HOST_ALLOC_ALIGN 64 // a cache line, and what vector loads like best

static void host_free(ggml_backend_buffer_t buffer) {
    berth_aligned_free(buffer->context);
}

static void *host_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static void host_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    (void) buffer;
    memset((char *) tensor->data + offset, value, size);
}

static void host_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) buffer;
    memmove((char *) tensor->data + offset, data, size);
}

static void host_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) buffer;
    memmove(data, (const char *) tensor->data + offset, size);
}

static bool host_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    if (!ggml_backend_buffer_is_host(berth_tensor_buffer(src))) {
        return false;
    }
    memmove(dst->data, src->data, ggml_nbytes(src));
    return true;
}

static void host_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(buffer->context, value, buffer->size);
}

static const struct ggml_backend_buffer_i owned_iface = {
    .free_buffer = host_free,
    .get_base = host_base,
    .memset_tensor = host_memset,
    .set_tensor = host_set,
    .get_tensor = host_get,
    .cpy_tensor = host_copy,
    .clear = host_clear,
};

const struct ggml_backend_buffer_i berth_host_iface = {
    .get_base = host_base,
    .memset_tensor = host_memset,
    .set_tensor = host_set,
    .get_tensor = host_get,
    .cpy_tensor = host_copy,
    .clear = host_clear,
};

// ---- types ----

static const char *owned_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "CPU";
}

static const char *mapped_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "CPU_Mapped";
}

static size_t host_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return HOST_ALIGN;
}

static bool host_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return true;
}

static ggml_backend_buffer_t host_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    void *memory = berth_aligned_alloc(HOST_ALLOC_ALIGN, size);
    if (memory == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory: cannot allocate a host buffer of %zu bytes", size);
        return NULL;
    }
#if BERTH_DEBUG >= 3
    memset(memory, 0xFF, size);
#endif
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buft, owned_iface, memory, size);
    if (buffer == NULL) {
        berth_aligned_free(memory);
    }
    return buffer;
}

ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type(void) {
    static struct ggml_backend_buffer_type type = {
        .iface =
            {
                .get_name = owned_name,
                .alloc_buffer = host_alloc,
                .get_alignment = host_alignment,
                .is_host = host_is_host,
            },
    };
    return &type;
}

// A buffer over the caller's memory, which stays the caller's and must outlive it.
ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t size) {
    static struct ggml_backend_buffer_type type = {
        .iface =
            {
                .get_name = mapped_name,
                .alloc_buffer = host_alloc,
                .get_alignment = host_alignment,
                .is_host = host_is_host,
            },
    };
    if (ptr == NULL || (uintptr_t) ptr % HOST_ALIGN != 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_cpu_buffer_from_ptr: %p is no address aligned to %d", ptr, HOST_ALIGN);
        return NULL;
    }
    return ggml_backend_buffer_init(&type, berth_host_iface, ptr, size);
}

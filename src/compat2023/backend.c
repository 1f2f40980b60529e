// SPDX-License-Identifier: MIT
// backend.c: the functions on 2023 buffers. today_* and type_* serve the current API. berth_2023_* serve programs.

#include "base/min.h"
#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

// The lowest address of buffers without memory.
#define MEASURE_BASE ((uintptr_t) 1 << 20)

static gen_buffer_t gen_of(ggml_backend_buffer_t today) {
    return (gen_buffer_t) (void *) today;
}

static const struct gen_date *date_of(gen_buffer_t buffer) {
    return gen_head(buffer)->date;
}

// ---- functions for the current API: `today` in a name means the current API ----

static void *today_base(ggml_backend_buffer_t buffer) {
    return gen_head(gen_of(buffer))->is_retired ? NULL : date_of(gen_of(buffer))->base(gen_of(buffer));
}

gen_buffer_t berth_2023_buffer_of(const struct ggml_backend_buffer *buffer) {
    return buffer != NULL && buffer->iface.get_base == today_base ? (gen_buffer_t) (void *) (uintptr_t) buffer : NULL;
}

bool berth_2023_has_memory(gen_buffer_t buffer, const struct ggml_tensor *tensor) {
    if (gen_head(buffer)->is_measure) {
        berth_fail(GGML_STATUS_FAILED,
            "tensor %s has no memory: it was only measured, or its buffer was replaced by a larger one", tensor->name);
        return false;
    }
    return true;
}

static void today_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    if (berth_2023_has_memory(gen_of(buffer), tensor)) {
        date_of(gen_of(buffer))->set(gen_of(buffer), tensor, data, offset, size);
    }
}

static void today_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    if (!berth_2023_has_memory(gen_of(buffer), tensor)) {
        memset(data, 0, size);
        return;
    }
    date_of(gen_of(buffer))->get(gen_of(buffer), tensor, data, offset, size);
}

static void today_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    uint8_t piece[256];
    memset(piece, value, sizeof piece);
    for (size_t at = 0; at < size; at += sizeof piece) {
        today_set(buffer, tensor, piece, offset + at, min_size(size - at, sizeof piece));
    }
}

static enum ggml_status today_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    berth_2023_buffer_init_tensor(gen_of(buffer), tensor);
    return GGML_STATUS_SUCCESS;
}

static void today_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    if (gen_head(gen_of(buffer))->is_measure || !date_of(gen_of(buffer))->clear(gen_of(buffer), value)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_buffer_clear: a buffer of %s cannot be cleared",
            berth_2023_buffer_name(gen_of(buffer)));
    }
}

static void today_reset(ggml_backend_buffer_t buffer) {
    if (!gen_head(gen_of(buffer))->is_retired) {
        date_of(gen_of(buffer))->reset(gen_of(buffer));
    }
}

static void today_free(ggml_backend_buffer_t buffer) {
    if (!gen_head(gen_of(buffer))->is_retired) {
        date_of(gen_of(buffer))->release(gen_of(buffer));
    }
}

static gen_source_t source_of(ggml_backend_buffer_type_t type) {
    gen_buffer_t buffer = type->context;
    return date_of(buffer)->source_of(buffer);
}

static const char *type_name(ggml_backend_buffer_type_t type) {
    return date_of(type->context)->source_name(source_of(type));
}

gen_buffer_t berth_2023_buffer_of_type(const struct ggml_backend_buffer_type *type) {
    return type != NULL && type->iface.get_name == type_name ? type->context : NULL;
}

static size_t type_align(ggml_backend_buffer_type_t type) {
    return berth_2023_buffer_get_alignment(type->context);
}

static size_t type_max_size(ggml_backend_buffer_type_t type) {
    return date_of(type->context)->source_max_size(source_of(type));
}

static size_t type_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor) {
    return berth_2023_buffer_get_alloc_size(type->context, (struct ggml_tensor *) (uintptr_t) tensor);
}

static bool type_is_host(ggml_backend_buffer_type_t type) {
    return date_of(type->context)->is_host(source_of(type));
}

void berth_2023_buffer_head(gen_buffer_t buffer, const struct gen_date *date, size_t align, size_t size) {
    *gen_head(buffer) = (struct gen_head){
        .today =
            {
                .iface = {.free_buffer = today_free,
                    .get_base = today_base,
                    .init_tensor = today_init_tensor,
                    .memset_tensor = today_memset,
                    .set_tensor = today_set,
                    .get_tensor = today_get,
                    .clear = today_clear,
                    .reset = today_reset},
                .buft = &gen_head(buffer)->type,
                .size = size,
            },
        .type =
            {
                .iface = {.get_name = type_name,
                    .get_alignment = type_align,
                    .get_max_size = type_max_size,
                    .get_alloc_size = type_alloc_size,
                    .is_host = type_is_host},
                .context = buffer,
            },
        .date = date,
        .align = align > 0 ? align : 1,
    };
}

// ---- functions for programs ----
// A 2023 program may also pass a buffer of the current API: ggml_backend_graph_copy returns one.

void berth_2023_buffer_free(gen_buffer_t buffer) {
    ggml_backend_buffer_free(gen_today(buffer));
}

void berth_2023_buffer_retire(gen_buffer_t buffer) {
    date_of(buffer)->release(buffer);
    gen_head(buffer)->is_retired = true;
    gen_head(buffer)->is_measure = true;
    gen_head(buffer)->today.size = 0;
}

size_t berth_2023_buffer_get_alignment(gen_buffer_t buffer) {
    if (berth_2023_buffer_of(gen_today(buffer)) == NULL) {
        return buffer != NULL ? ggml_backend_buffer_get_alignment(gen_today(buffer)) : 1;
    }
    return gen_head(buffer)->align;
}

void *berth_2023_buffer_get_base(gen_buffer_t buffer) {
    if (berth_2023_buffer_of(gen_today(buffer)) == NULL) {
        return ggml_backend_buffer_get_base(gen_today(buffer));
    }
    return today_base(gen_today(buffer));
}

size_t berth_2023_buffer_get_size(gen_buffer_t buffer) {
    if (berth_2023_buffer_of(gen_today(buffer)) == NULL) {
        return ggml_backend_buffer_get_size(gen_today(buffer));
    }
    return gen_head(buffer)->is_retired ? 0 : date_of(buffer)->size(buffer);
}

size_t berth_2023_buffer_get_alloc_size(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return 0;
    }
    if (berth_2023_buffer_of(gen_today(buffer)) == NULL) {
        return buffer != NULL ? ggml_backend_buffer_get_alloc_size(gen_today(buffer), tensor) : ggml_nbytes(tensor);
    }
    const size_t min_alloc_size = ggml_nbytes(tensor);
    return gen_head(buffer)->is_retired ? min_alloc_size : max_size(date_of(buffer)->alloc_size(buffer, tensor), min_alloc_size);
}

void berth_2023_buffer_init_tensor(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (berth_2023_buffer_of(gen_today(buffer)) != NULL && !gen_head(buffer)->is_retired) {
        date_of(buffer)->init_tensor(buffer, tensor);
    }
}

void berth_2023_buffer_free_tensor(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (berth_2023_buffer_of(gen_today(buffer)) != NULL && !gen_head(buffer)->is_retired) {
        date_of(buffer)->free_tensor(buffer, tensor);
    }
}

const char *berth_2023_buffer_name(gen_buffer_t buffer) {
    if (berth_2023_buffer_of(gen_today(buffer)) == NULL || gen_head(buffer)->is_retired) {
        return ggml_backend_buffer_name(gen_today(buffer));
    }
    return date_of(buffer)->buffer_name(buffer);
}

size_t berth_2023_buffer_get_max_size(gen_buffer_t buffer) {
    return ggml_backend_buffer_get_max_size(gen_today(buffer));
}

void berth_2023_buffer_clear(gen_buffer_t buffer, uint8_t value) {
    ggml_backend_buffer_clear(gen_today(buffer), value);
}

bool berth_2023_buffer_is_host(gen_buffer_t buffer) {
    return ggml_backend_buffer_is_host(gen_today(buffer));
}

void berth_2023_buffer_reset(gen_buffer_t buffer) {
    ggml_backend_buffer_reset(gen_today(buffer));
}

void berth_2023_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    ggml_backend_tensor_set(tensor, data, offset, size);
}

// If the tensor has no memory, returns NaN (bytes of 0xff).
void berth_2023_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    if (data != NULL && tensor != NULL && (berth_poisoned(tensor) || tensor->data == NULL)) {
        memset(data, 0xff, size);
    }
    ggml_backend_tensor_get(tensor, data, offset, size);
}

void berth_2023_tensor_copy(struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (src == NULL || dst == NULL || src == dst) {
        return;
    }
    if (!ggml_are_same_shape(src, dst) || !ggml_are_same_stride(src, dst) || src->type != dst->type) {
        berth_fail(
            GGML_STATUS_FAILED, "ggml_backend_tensor_copy: %s and %s differ in type, shape or strides", src->name, dst->name);
        return;
    }
    gen_buffer_t from = berth_2023_buffer_of(berth_tensor_buffer(src)), to = berth_2023_buffer_of(berth_tensor_buffer(dst));
    if ((from != NULL && !berth_2023_has_memory(from, src)) || (to != NULL && !berth_2023_has_memory(to, dst))) {
        return;
    }
    gen_buffer_t own = to != NULL ? to : from;
    if (own == NULL || !date_of(own)->copy(src, dst)) {
        (void) berth_tensor_copy("ggml_backend_tensor_copy", NULL, src, dst, NULL);
    }
}

void berth_2023_tensor_alloc(gen_buffer_t buffer, struct ggml_tensor *tensor, void *addr) {
    (void) ggml_backend_tensor_alloc(gen_today(buffer), tensor, addr);
}

// A view is always in the buffer of its source, so `buffer` is unused.
void berth_2023_view_init(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    (void) buffer;
    (void) ggml_backend_view_init(tensor);
}

void berth_2023_graph_copy_free(struct ggml_backend_graph_copy copy) {
    ggml_backend_graph_copy_free(copy);
}

void *berth_2023_measure_base(size_t align) {
    return (void *) ((MEASURE_BASE + align - 1) / align * align);
}

// ---- computing ----

static enum ggml_status placed_check(const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i]->data == NULL && ggml_nelements(graph->nodes[i]) > 0) {
            return berth_fail(
                GGML_STATUS_FAILED, "node %d, %s, has no memory: its allocator was too small", i, berth_name_of(graph->nodes[i]));
        }
    }
    return GGML_STATUS_SUCCESS;
}

void berth_2023_spoil(const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        struct ggml_tensor *t = graph->nodes[i];
        gen_buffer_t buffer = t != NULL && !berth_poisoned(t) ? berth_2023_buffer_of(t->buffer) : NULL;
        if (buffer != NULL && t->view_src == NULL && t->op != GGML_OP_NONE && t->data != NULL && !gen_head(buffer)->is_measure) {
            ggml_backend_tensor_memset(t, 0xff, 0, ggml_nbytes(t));
        }
    }
}

enum ggml_status berth_2023_compute(const struct gen_date *date, gen_backend_t backend, struct ggml_cgraph *graph) {
    enum ggml_status status = berth_graph_check(graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = placed_check(graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = date->compute(backend, graph);
    }
    if (status != GGML_STATUS_SUCCESS && graph != NULL) {
        berth_2023_spoil(graph);
    }
    return status;
}

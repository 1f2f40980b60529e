// SPDX-License-Identifier: MIT
// backend.c: buffers and backends of 2023: those that a program defines itself, and today's behind the interface of then.

#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

#define DEFAULT_ALIGN 32

// All of a buffer: what programs see, and what is only ours.
struct full {
    struct gen_buffer pub;
    struct ggml_backend_buffer_type type; // of today, for this buffer alone
    size_t align;
    void *base;      // of buffers over memory
    bool is_measure; // there is no memory behind its addresses, or no more
};

_Static_assert(sizeof(struct ggml_backend_buffer) <= sizeof((struct gen_buffer *) 0)->today, "today's buffer fits");

static struct full *full_of(gen_buffer_t buffer) {
    return (struct full *) (void *) buffer;
}

// ---- what today's functions see ----

static void *today_base(ggml_backend_buffer_t buffer) {
    return berth_2023_buffer_get_base((gen_buffer_t) (void *) buffer);
}

gen_buffer_t berth_2023_buffer_of(const struct ggml_backend_buffer *buffer) {
    return buffer != NULL && buffer->iface.get_base == today_base ? (gen_buffer_t) (void *) (uintptr_t) buffer : NULL;
}

static gen_backend_t backend_of(ggml_backend_buffer_t buffer) {
    return ((gen_buffer_t) (void *) buffer)->backend;
}

static bool has_memory(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor) {
    if (full_of((gen_buffer_t) (void *) buffer)->is_measure) {
        berth_fail(GGML_STATUS_FAILED, "tensor %s has no memory: it was only measured, or its buffer grew since", tensor->name);
        return false;
    }
    return true;
}

void berth_2023_buffer_is_measure(gen_buffer_t buffer) {
    full_of(buffer)->is_measure = true;
}

static void today_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    gen_backend_t backend = backend_of(buffer);
    if (!has_memory(buffer, tensor)) {
        return;
    }
    if (backend == NULL || backend->iface.set_tensor_async == NULL) {
        memcpy((char *) tensor->data + offset, data, size);
        return;
    }
    backend->iface.set_tensor_async(backend, tensor, data, offset, size);
    berth_2023_synchronize(backend);
}

static void today_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    gen_backend_t backend = backend_of(buffer);
    if (!has_memory(buffer, tensor)) {
        memset(data, 0, size);
        return;
    }
    if (backend == NULL || backend->iface.get_tensor_async == NULL) {
        memcpy(data, (const char *) tensor->data + offset, size);
        return;
    }
    backend->iface.get_tensor_async(backend, tensor, data, offset, size);
    berth_2023_synchronize(backend);
}

static void today_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    uint8_t piece[256];
    memset(piece, value, sizeof piece);
    for (size_t at = 0; at < size; at += sizeof piece) {
        today_set(buffer, tensor, piece, offset + at, size - at < sizeof piece ? size - at : sizeof piece);
    }
}

static const char *type_name(ggml_backend_buffer_type_t type) {
    gen_buffer_t buffer = type->context;
    return buffer->backend != NULL ? berth_2023_name(buffer->backend) : "CPU";
}

gen_backend_t berth_2023_backend_of_type(ggml_backend_buffer_type_t type) {
    return type != NULL && type->iface.get_name == type_name ? ((gen_buffer_t) type->context)->backend : NULL;
}

static size_t type_align(ggml_backend_buffer_type_t type) {
    return berth_2023_buffer_get_alignment(type->context);
}

static size_t type_alloc_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor) {
    return berth_2023_buffer_get_alloc_size(type->context, (struct ggml_tensor *) (uintptr_t) tensor);
}

static bool type_is_host(ggml_backend_buffer_type_t type) {
    gen_buffer_t buffer = type->context;
    return buffer->backend == NULL || berth_2023_is_cpu(buffer->backend);
}

// ---- buffers ----

gen_buffer_t berth_2023_buffer_init(
    struct gen_backend *backend, struct gen_buffer_i iface, ggml_backend_buffer_context_t context, size_t size) {
    struct full *full = berth_calloc(1, sizeof *full);
    if (full == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_buffer_init: out of memory for a buffer of %zu bytes", size);
        return NULL;
    }
    full->pub.iface   = iface;
    full->pub.backend = backend;
    full->pub.context = context;
    full->pub.size    = size;
    full->type        = (struct ggml_backend_buffer_type){
               .iface = {.get_name = type_name, .get_alignment = type_align, .get_alloc_size = type_alloc_size, .is_host = type_is_host},
               .context = full};
    full->align = backend != NULL ? berth_2023_get_alignment(backend) : DEFAULT_ALIGN;

    const struct ggml_backend_buffer today = {
        .iface = {.get_base = today_base, .memset_tensor = today_memset, .set_tensor = today_set, .get_tensor = today_get},
        .buft  = &full->type,
        .size  = size,
    };
    memcpy(full->pub.today, &today, sizeof today);
    return &full->pub;
}

static void *over_base(gen_buffer_t buffer) {
    return full_of(buffer)->base;
}

gen_buffer_t berth_2023_buffer_over(gen_backend_t backend, void *base, size_t size, size_t align) {
    gen_buffer_t buffer = berth_2023_buffer_init(backend, (struct gen_buffer_i){.get_base = over_base}, NULL, size);
    if (buffer != NULL) {
        full_of(buffer)->base  = base;
        full_of(buffer)->align = align;
    }
    return buffer;
}

void berth_2023_buffer_free(gen_buffer_t buffer) {
    if (buffer != NULL && buffer->iface.free_buffer != NULL) {
        buffer->iface.free_buffer(buffer);
    }
    berth_free(buffer);
}

void berth_2023_buffer_retire(gen_buffer_t buffer) {
    if (buffer->iface.free_buffer != NULL) {
        buffer->iface.free_buffer(buffer);
    }
    buffer->iface               = (struct gen_buffer_i){0};
    buffer->size                = 0;
    full_of(buffer)->is_measure = true;
}

size_t berth_2023_buffer_get_alignment(gen_buffer_t buffer) {
    return buffer != NULL ? full_of(buffer)->align : 1;
}

void *berth_2023_buffer_get_base(gen_buffer_t buffer) {
    return buffer != NULL && buffer->iface.get_base != NULL ? buffer->iface.get_base(buffer) : NULL;
}

size_t berth_2023_buffer_get_size(gen_buffer_t buffer) {
    return buffer != NULL ? buffer->size : 0;
}

size_t berth_2023_buffer_get_alloc_size(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return 0;
    }
    const size_t least = ggml_nbytes(tensor);
    const size_t size =
        buffer != NULL && buffer->iface.get_alloc_size != NULL ? buffer->iface.get_alloc_size(buffer, tensor) : least;
    return size > least ? size : least;
}

void berth_2023_buffer_init_tensor(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (buffer != NULL && buffer->iface.init_tensor != NULL) {
        buffer->iface.init_tensor(buffer, tensor);
    }
}

void berth_2023_buffer_free_tensor(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (buffer != NULL && buffer->iface.free_tensor != NULL) {
        buffer->iface.free_tensor(buffer, tensor);
    }
}

// ---- backends ----

gen_backend_t berth_2023_get_backend(const struct ggml_tensor *tensor) {
    gen_buffer_t buffer = tensor != NULL ? berth_2023_buffer_of(berth_tensor_buffer(tensor)) : NULL;
    return buffer != NULL ? buffer->backend : NULL;
}

const char *berth_2023_name(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_name != NULL ? backend->iface.get_name(backend) : "NULL";
}

void berth_2023_free(gen_backend_t backend) {
    if (backend != NULL && backend->iface.free != NULL) {
        backend->iface.free(backend);
    }
}

gen_buffer_t berth_2023_alloc_buffer(gen_backend_t backend, size_t size) {
    if (backend == NULL || backend->iface.alloc_buffer == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_alloc_buffer: no backend");
        return NULL;
    }
    return backend->iface.alloc_buffer(backend, size);
}

size_t berth_2023_get_alignment(gen_backend_t backend) {
    const size_t align = backend != NULL && backend->iface.get_alignment != NULL ? backend->iface.get_alignment(backend) : 1;
    return align > 0 ? align : 1;
}

// A backend has one kind of buffer then: the type stands for the backend.
ggml_backend_buffer_type_t berth_2023_get_default_buffer_type(gen_backend_t backend) {
    return (ggml_backend_buffer_type_t) (void *) backend;
}

void berth_2023_tensor_set_async(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    gen_backend_t backend = berth_2023_get_backend(tensor);
    if (backend == NULL || backend->iface.set_tensor_async == NULL) {
        berth_2023_tensor_set(tensor, data, offset, size);
    } else if (has_memory(berth_tensor_buffer(tensor), tensor)) {
        backend->iface.set_tensor_async(backend, tensor, data, offset, size);
    }
}

void berth_2023_tensor_get_async(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    gen_backend_t backend = berth_2023_get_backend(tensor);
    if (backend == NULL || backend->iface.get_tensor_async == NULL) {
        berth_2023_tensor_get(tensor, data, offset, size);
    } else if (has_memory(berth_tensor_buffer(tensor), tensor)) {
        backend->iface.get_tensor_async(backend, tensor, data, offset, size);
    }
}

void berth_2023_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    ggml_backend_tensor_set(tensor, data, offset, size);
}

// What has no memory is no number.
void berth_2023_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    if (data != NULL && tensor != NULL && (berth_poisoned(tensor) || tensor->data == NULL)) {
        memset(data, 0xff, size);
    }
    ggml_backend_tensor_get(tensor, data, offset, size);
}

void berth_2023_synchronize(gen_backend_t backend) {
    if (backend != NULL && backend->iface.synchronize != NULL) {
        backend->iface.synchronize(backend);
    }
}

void berth_2023_tensor_copy(struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (src == NULL || dst == NULL || src == dst) {
        return;
    }
    if (!ggml_are_same_shape(src, dst) || !ggml_are_same_stride(src, dst) || src->type != dst->type) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_tensor_copy: %s and %s are not of one layout", src->name, dst->name);
        return;
    }
    gen_backend_t from = berth_2023_get_backend(src), to = berth_2023_get_backend(dst);
    if (to != NULL && to->iface.cpy_tensor_from != NULL) {
        to->iface.cpy_tensor_from(to, src, dst);
    } else if (from != NULL && from->iface.cpy_tensor_to != NULL) {
        from->iface.cpy_tensor_to(from, src, dst);
    } else {
        const size_t size = ggml_nbytes(src);
        void *copy        = berth_malloc(size);
        if (copy == NULL && size > 0) {
            berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_tensor_copy: out of memory for %zu bytes", size);
            return;
        }
        berth_2023_tensor_get(src, copy, 0, size);
        berth_2023_tensor_set(dst, copy, 0, size);
        berth_free(copy);
    }
}

// ---- computing ----

static enum ggml_status is_placed(const struct ggml_cgraph *graph) {
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
        gen_buffer_t buffer   = t != NULL && !berth_poisoned(t) ? berth_2023_buffer_of(t->buffer) : NULL;
        if (buffer != NULL && t->view_src == NULL && t->op != GGML_OP_NONE && t->data != NULL && !full_of(buffer)->is_measure) {
            ggml_backend_tensor_memset(t, 0xff, 0, ggml_nbytes(t));
        }
    }
}

struct wrap {
    struct gen_backend pub;
    ggml_backend_t today;
    enum ggml_status status; // of the last computation
};

static const char *wrap_name(gen_backend_t backend) {
    return ggml_backend_name(((struct wrap *) backend->context)->today);
}

static bool is_wrap(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_name == wrap_name;
}

enum ggml_status berth_2023_graph_compute_status(gen_backend_t backend, struct ggml_cgraph *graph) {
    if (backend == NULL || backend->iface.graph_compute == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_graph_compute: no backend, or one that computes nothing");
    }
    enum ggml_status status = berth_graph_check(graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = is_placed(graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        backend->iface.graph_compute(backend, graph);
        status = is_wrap(backend) ? ((struct wrap *) backend->context)->status : GGML_STATUS_SUCCESS;
    }
    if (status != GGML_STATUS_SUCCESS && graph != NULL) {
        berth_2023_spoil(graph);
    }
    return status;
}

void berth_2023_graph_compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    (void) berth_2023_graph_compute_status(backend, graph);
}

ggml_backend_graph_plan_t berth_2023_graph_plan_create(gen_backend_t backend, struct ggml_cgraph *graph) {
    return backend != NULL && backend->iface.graph_plan_create != NULL ? backend->iface.graph_plan_create(backend, graph) : NULL;
}

void berth_2023_graph_plan_free(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    if (backend != NULL && backend->iface.graph_plan_free != NULL && plan != NULL) {
        backend->iface.graph_plan_free(backend, plan);
    }
}

void berth_2023_graph_plan_compute(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    if (backend != NULL && backend->iface.graph_plan_compute != NULL && plan != NULL) {
        backend->iface.graph_plan_compute(backend, plan);
    }
}

bool berth_2023_supports_op(gen_backend_t backend, const struct ggml_tensor *op) {
    return backend != NULL && backend->iface.supports_op != NULL && backend->iface.supports_op(backend, op);
}

// ---- today's backends ----

static void wrap_free(gen_backend_t backend) {
    struct wrap *w = backend->context;
    ggml_backend_free(w->today);
    berth_free(w);
}

static void wrap_buffer_free(gen_buffer_t buffer) {
    ggml_backend_buffer_free(buffer->context);
}

static void *wrap_buffer_base(gen_buffer_t buffer) {
    return ggml_backend_buffer_get_base(buffer->context);
}

static size_t wrap_buffer_alloc_size(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    return ggml_backend_buffer_get_alloc_size(buffer->context, tensor);
}

static gen_buffer_t wrap_alloc_buffer(gen_backend_t backend, size_t size) {
    static const struct gen_buffer_i iface = {
        .free_buffer = wrap_buffer_free, .get_base = wrap_buffer_base, .get_alloc_size = wrap_buffer_alloc_size};
    ggml_backend_buffer_t today = ggml_backend_alloc_buffer(((struct wrap *) backend->context)->today, size);
    gen_buffer_t buffer         = today != NULL ? berth_2023_buffer_init(backend, iface, today, size) : NULL;
    if (buffer == NULL) {
        ggml_backend_buffer_free(today);
    }
    return buffer;
}

static size_t wrap_alignment(gen_backend_t backend) {
    return ggml_backend_get_alignment(((struct wrap *) backend->context)->today);
}

static void wrap_synchronize(gen_backend_t backend) {
    ggml_backend_synchronize(((struct wrap *) backend->context)->today);
}

static ggml_backend_graph_plan_t wrap_plan_create(gen_backend_t backend, struct ggml_cgraph *graph) {
    return ggml_backend_graph_plan_create(((struct wrap *) backend->context)->today, graph);
}

static void wrap_plan_free(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    ggml_backend_graph_plan_free(((struct wrap *) backend->context)->today, plan);
}

static void wrap_plan_compute(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    struct wrap *w = backend->context;
    w->status      = ggml_backend_graph_plan_compute(w->today, plan);
}

static void wrap_graph_compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    struct wrap *w = backend->context;
    w->status      = ggml_backend_graph_compute(w->today, graph);
}

static bool wrap_supports_op(gen_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_supports_op(((struct wrap *) backend->context)->today, op);
}

// Of memory that the host reads and writes; takes the backend over. NULL, and the backend is freed, if that is in vain.
gen_backend_t berth_2023_wrap(ggml_backend_t today) {
    struct wrap *w = today != NULL ? berth_calloc(1, sizeof *w) : NULL;
    if (w == NULL || !ggml_backend_buft_is_host(ggml_backend_get_default_buffer_type(today))) {
        berth_fail(GGML_STATUS_FAILED, "a backend of 2023: no backend, out of memory, or its memory is not the host's");
        ggml_backend_free(today);
        berth_free(w);
        return NULL;
    }
    w->today       = today;
    w->pub.context = w;
    w->pub.iface   = (struct gen_backend_i){
          .get_name           = wrap_name,
          .free               = wrap_free,
          .alloc_buffer       = wrap_alloc_buffer,
          .get_alignment      = wrap_alignment,
          .synchronize        = wrap_synchronize,
          .graph_plan_create  = wrap_plan_create,
          .graph_plan_free    = wrap_plan_free,
          .graph_plan_compute = wrap_plan_compute,
          .graph_compute      = wrap_graph_compute,
          .supports_op        = wrap_supports_op,
    };
    return &w->pub;
}

ggml_backend_t berth_2023_wrapped(gen_backend_t backend) {
    return is_wrap(backend) ? ((struct wrap *) backend->context)->today : NULL;
}

bool berth_2023_is_cpu(gen_backend_t backend) {
    return is_wrap(backend); // only backends of host memory are wrapped
}

gen_buffer_t berth_2023_cpu_buffer_from_ptr(gen_backend_t backend, void *ptr, size_t size) {
    return berth_2023_buffer_over(backend, ptr, size, DEFAULT_ALIGN);
}

// SPDX-License-Identifier: MIT
// date.h: buffers, buffer types and backends of one date, BERTH_2023, over the structs that programs fill or read: those that a
// program defines itself, and the CPU's. Compiled once per date (date_*.c); AT(name) is the date's name of a function.
//
// Until November 2023 a backend allocates buffers, and knows sizes and copies; since then a buffer type allocates, and buffers
// set, get and copy. A source is a backend there and a buffer type here, so that most functions are the same.

#define BERTH_2023_LAYOUT
#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

#define AT(name) BERTH_2023_AT(name)
#define HAS_BUFT (BERTH_2023 >= 202312)
#define IS_2024 (BERTH_2023 >= 202402)

// What tensors in memory of the CPU are aligned to.
#if IS_2024
#    define CPU_ALIGN 32
#else
#    define CPU_ALIGN 64
#endif

_Static_assert(sizeof(struct gen_head) <= sizeof((struct gen_buffer *) 0)->berth, "the head fits");

static const struct gen_date date;

// ---- sources ----

#if HAS_BUFT
static gen_source_t source_of(gen_buffer_t buffer) {
    return buffer->buft;
}

static gen_source_t default_source(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_default_buffer_type != NULL ? backend->iface.get_default_buffer_type(backend)
                                                                             : NULL;
}

static gen_buffer_t source_alloc(gen_source_t source, size_t size) {
    if (source == NULL || source->iface.alloc_buffer == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_buft_alloc_buffer: no buffer type, or one that allocates nothing");
        return NULL;
    }
    return source->iface.alloc_buffer(source, size);
}

static size_t source_align(gen_source_t source) {
    const size_t align = source != NULL && source->iface.get_alignment != NULL ? source->iface.get_alignment(source) : 1;
    return align > 0 ? align : 1;
}

static size_t source_alloc_size(gen_source_t source, const struct ggml_tensor *tensor) {
    const size_t least = ggml_nbytes(tensor);
    size_t size = least;
    if (source != NULL && source->iface.get_alloc_size != NULL) {
        size = source->iface.get_alloc_size(source, (struct ggml_tensor *) (uintptr_t) tensor);
    }
    return size > least ? size : least;
}

static bool source_reads(gen_backend_t backend, gen_source_t source) {
    return source != NULL && source->iface.supports_backend != NULL && source->iface.supports_backend(source, backend);
}
#else
static gen_source_t source_of(gen_buffer_t buffer) {
    return (gen_source_t) (void *) buffer->backend;
}

static gen_backend_t backend_of(gen_source_t source) {
    return (gen_backend_t) (void *) source;
}

static gen_source_t default_source(gen_backend_t backend) {
    return (gen_source_t) (void *) backend;
}

static gen_buffer_t source_alloc(gen_source_t source, size_t size) {
    gen_backend_t backend = backend_of(source);
    if (backend == NULL || backend->iface.alloc_buffer == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_alloc_buffer: no backend, or one that allocates nothing");
        return NULL;
    }
    return backend->iface.alloc_buffer(backend, size);
}

static size_t source_align(gen_source_t source) {
    gen_backend_t backend = backend_of(source);
    const size_t align = backend != NULL && backend->iface.get_alignment != NULL ? backend->iface.get_alignment(backend) : 1;
    return align > 0 ? align : 1;
}

// Only a buffer knows: one of one byte is asked.
static size_t source_alloc_size(gen_source_t source, const struct ggml_tensor *tensor) {
    gen_buffer_t sample = source_alloc(source, 1);
    const size_t size = berth_2023_buffer_get_alloc_size(sample, (struct ggml_tensor *) (uintptr_t) tensor);
    berth_2023_buffer_free(sample);
    return size;
}

static bool source_reads(gen_backend_t backend, gen_source_t source) {
    return backend_of(source) == backend || (AT(is_cpu)(backend) && (source == NULL || AT(is_cpu)(backend_of(source))));
}
#endif

static size_t source_max_size(gen_source_t source) {
#if IS_2024
    if (source != NULL && source->iface.get_max_size != NULL) {
        return source->iface.get_max_size(source);
    }
#endif
    (void) source;
    return SIZE_MAX;
}

// ---- buffers ----

#if HAS_BUFT
gen_buffer_t AT(buffer_init)(gen_source_t owner, struct gen_buffer_i iface, ggml_backend_buffer_context_t context, size_t size) {
#else
gen_buffer_t AT(buffer_init)(gen_backend_t owner, struct gen_buffer_i iface, ggml_backend_buffer_context_t context, size_t size) {
#endif
    gen_buffer_t buffer = berth_calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_buffer_init: out of memory for a buffer of %zu bytes", size);
        return NULL;
    }
    berth_2023_buffer_head(buffer, &date, owner != NULL ? source_align((gen_source_t) (void *) owner) : CPU_ALIGN, size);
    buffer->iface = iface;
    buffer->context = context;
    buffer->size = size;
#if HAS_BUFT
    buffer->buft = owner;
#else
    buffer->backend = owner;
#endif
    return buffer;
}

static void *buffer_base(gen_buffer_t buffer) {
    return buffer->iface.get_base != NULL ? buffer->iface.get_base(buffer) : NULL;
}

static size_t buffer_size(gen_buffer_t buffer) {
    return buffer->size;
}

static size_t buffer_alloc_size(gen_buffer_t buffer, struct ggml_tensor *tensor) {
#if HAS_BUFT
    return source_alloc_size(buffer->buft, tensor);
#else
    return buffer->iface.get_alloc_size != NULL ? buffer->iface.get_alloc_size(buffer, tensor) : 0;
#endif
}

static void buffer_init_tensor(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    if (buffer->iface.init_tensor != NULL) {
        buffer->iface.init_tensor(buffer, tensor);
    }
}

static void buffer_free_tensor(gen_buffer_t buffer, struct ggml_tensor *tensor) {
#if HAS_BUFT
    (void) buffer; // init_tensor has no counterpart any more
    (void) tensor;
#else
    if (buffer->iface.free_tensor != NULL) {
        buffer->iface.free_tensor(buffer, tensor);
    }
#endif
}

static void buffer_set(gen_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
#if HAS_BUFT
    if (buffer->iface.set_tensor != NULL) {
        buffer->iface.set_tensor(buffer, tensor, data, offset, size);
        return;
    }
#else
    gen_backend_t backend = buffer->backend;
    if (backend != NULL && backend->iface.set_tensor_async != NULL) {
        backend->iface.set_tensor_async(backend, tensor, data, offset, size);
        AT(synchronize)(backend);
        return;
    }
#endif
    memcpy((char *) tensor->data + offset, data, size);
}

static void buffer_get(gen_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
#if HAS_BUFT
    if (buffer->iface.get_tensor != NULL) {
        buffer->iface.get_tensor(buffer, tensor, data, offset, size);
        return;
    }
#else
    gen_backend_t backend = buffer->backend;
    if (backend != NULL && backend->iface.get_tensor_async != NULL) {
        backend->iface.get_tensor_async(backend, tensor, data, offset, size);
        AT(synchronize)(backend);
        return;
    }
#endif
    memcpy(data, (const char *) tensor->data + offset, size);
}

// The buffer of a tensor if it is one of this date, else NULL.
static gen_buffer_t buffer_of(const struct ggml_tensor *tensor) {
    gen_buffer_t buffer = tensor != NULL ? berth_2023_buffer_of(berth_tensor_buffer(tensor)) : NULL;
    return buffer != NULL && gen_head(buffer)->date == &date ? buffer : NULL;
}

// The destination's side is asked first, then the source's; each gets itself, and not the other side or its context.
static bool buffer_copy(struct ggml_tensor *src, struct ggml_tensor *dst) {
    gen_buffer_t from = buffer_of(src), to = buffer_of(dst);
#if IS_2024
    if (ggml_backend_buffer_is_host(berth_tensor_buffer(src)) || ggml_backend_buffer_is_host(berth_tensor_buffer(dst))) {
        return false; // one call of set_tensor or get_tensor
    }
    (void) from;
    return to != NULL && to->iface.cpy_tensor != NULL && to->iface.cpy_tensor(to, src, dst);
#elif HAS_BUFT
    if (to != NULL && to->iface.cpy_tensor_from != NULL) {
        to->iface.cpy_tensor_from(to, src, dst);
        return true;
    }
    if (from != NULL && from->iface.cpy_tensor_to != NULL) {
        from->iface.cpy_tensor_to(from, src, dst);
        return true;
    }
    return false;
#else
    gen_backend_t reader = to != NULL ? to->backend : NULL, writer = from != NULL ? from->backend : NULL;
    if (reader != NULL && reader->iface.cpy_tensor_from != NULL) {
        reader->iface.cpy_tensor_from(reader, src, dst);
        return true;
    }
    if (writer != NULL && writer->iface.cpy_tensor_to != NULL) {
        writer->iface.cpy_tensor_to(writer, src, dst);
        return true;
    }
    return false;
#endif
}

static bool buffer_clear(gen_buffer_t buffer, uint8_t value) {
#if IS_2024
    if (buffer->iface.clear != NULL) {
        buffer->iface.clear(buffer, value);
        return true;
    }
#endif
    if (!berth_2023_buffer_is_host(buffer) || buffer_base(buffer) == NULL) {
        return false;
    }
    memset(buffer_base(buffer), value, buffer->size);
    return true;
}

static void buffer_reset(gen_buffer_t buffer) {
#if IS_2024
    if (buffer->iface.reset != NULL) {
        buffer->iface.reset(buffer);
    }
#else
    (void) buffer;
#endif
}

static void buffer_release(gen_buffer_t buffer) {
    if (buffer->iface.free_buffer != NULL) {
        buffer->iface.free_buffer(buffer);
    }
    buffer->iface = (struct gen_buffer_i){0};
    buffer->size = 0;
}

static const char *source_name(gen_source_t source);

static const char *buffer_name(gen_buffer_t buffer) {
#if IS_2024
    if (buffer->iface.get_name != NULL) {
        return buffer->iface.get_name(buffer);
    }
#endif
    return source_name(source_of(buffer));
}

static bool buffer_pulls_ops(gen_buffer_t buffer) {
#if IS_2024
    return buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS ||
           gen_head(buffer)->today.usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
#else
    (void) buffer;
    return true;
#endif
}

// ---- memory of the host ----

static void *host_base(gen_buffer_t buffer) {
    return buffer->context;
}

#if HAS_BUFT
static void host_set(gen_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) buffer;
    memcpy((char *) tensor->data + offset, data, size);
}

static void host_get(gen_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) buffer;
    memcpy(data, (const char *) tensor->data + offset, size);
}
#endif

#if IS_2024
static const char *host_name(gen_buffer_t buffer) {
    (void) buffer;
    return "CPU";
}

static void host_clear(gen_buffer_t buffer, uint8_t value) {
    memset(buffer_base(buffer), value, buffer->size);
}
#endif

// The caller's memory, which starts at the context.
static struct gen_buffer_i host_iface(void) {
    return (struct gen_buffer_i) {
        .get_base = host_base,
#if HAS_BUFT
        .set_tensor = host_set, .get_tensor = host_get,
#endif
#if IS_2024
        .get_name = host_name, .clear = host_clear,
#endif
    };
}

// Memory of Berth's: the context is a buffer of today.
static void cpu_free(gen_buffer_t buffer) {
    ggml_backend_buffer_free(buffer->context);
}

static void *cpu_base(gen_buffer_t buffer) {
    return ggml_backend_buffer_get_base(buffer->context);
}

#if HAS_BUFT
static gen_buffer_t cpu_alloc(gen_source_t owner, size_t size) {
#else
static gen_buffer_t cpu_alloc(gen_backend_t owner, size_t size) {
#endif
    struct gen_buffer_i iface = host_iface();
    ggml_backend_buffer_t today = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    iface.free_buffer = cpu_free;
    iface.get_base = cpu_base;
    gen_buffer_t buffer = today != NULL ? AT(buffer_init)(owner, iface, today, size) : NULL;
    if (buffer == NULL) {
        ggml_backend_buffer_free(today);
    }
    return buffer;
}

#if HAS_BUFT
static size_t cpu_alignment(gen_source_t source) {
    (void) source;
    return CPU_ALIGN;
}

static bool cpu_supports_backend(gen_source_t source, gen_backend_t backend) {
    (void) source;
    return AT(is_cpu)(backend);
}

#    if IS_2024
static const char *cpu_type_name(gen_source_t source) {
    (void) source;
    return "CPU";
}

static bool cpu_is_host(gen_source_t source) {
    (void) source;
    return true;
}
#    endif

gen_source_t AT(cpu_buffer_type)(void) {
    static struct gen_source type = {
        .iface =
            {
#    if IS_2024
                .get_name = cpu_type_name,
                .is_host = cpu_is_host,
#    endif
                .alloc_buffer = cpu_alloc,
                .get_alignment = cpu_alignment,
                .supports_backend = cpu_supports_backend,
            },
    };
    return &type;
}

gen_buffer_t AT(cpu_buffer_from_ptr)(void *ptr, size_t size) {
    return AT(buffer_init)(AT(cpu_buffer_type)(), host_iface(), ptr, size);
}
#else
gen_buffer_t AT(cpu_buffer_from_ptr)(gen_backend_t backend, void *ptr, size_t size) {
    return AT(buffer_init)(backend, host_iface(), ptr, size);
}
#endif

static bool source_is_host(gen_source_t source) {
#if IS_2024
    return source != NULL && source->iface.is_host != NULL && source->iface.is_host(source);
#elif HAS_BUFT
    return source == AT(cpu_buffer_type)();
#else
    return source == NULL || AT(is_cpu)(backend_of(source));
#endif
}

static const char *source_name(gen_source_t source) {
#if IS_2024
    return source != NULL && source->iface.get_name != NULL ? source->iface.get_name(source) : "NULL";
#elif HAS_BUFT
    return source_is_host(source) ? "CPU" : "a buffer type"; // they had no names
#else
    return source != NULL ? AT(name)(backend_of(source)) : "CPU";
#endif
}

// ---- measuring ----

static void *measure_base(gen_buffer_t buffer) {
    return berth_2023_measure_base(gen_head(buffer)->align);
}

#if HAS_BUFT
static gen_buffer_t source_measure(gen_source_t source) {
    if (source == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new_measure_from_buft: no buffer type");
        return NULL;
    }
    return AT(buffer_init)(source, (struct gen_buffer_i){.get_base = measure_base}, NULL, SIZE_MAX / 2);
}
#else
// Tensors are as large as in a buffer of the backend: a buffer of one byte is there to be asked. Its memory is not touched.

static void measure_free(gen_buffer_t buffer) {
    berth_2023_buffer_free(buffer->context);
}

static size_t measure_alloc_size(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    return berth_2023_buffer_get_alloc_size(buffer->context, tensor);
}

static gen_buffer_t source_measure(gen_source_t source) {
    static const struct gen_buffer_i iface = {
        .free_buffer = measure_free, .get_base = measure_base, .get_alloc_size = measure_alloc_size};
    gen_buffer_t sample = source_alloc(source, 1);
    if (sample == NULL) {
        return NULL;
    }
    gen_buffer_t buffer = AT(buffer_init)(backend_of(source), iface, sample, SIZE_MAX / 2);
    if (buffer == NULL) {
        berth_2023_buffer_free(sample);
    }
    return buffer;
}
#endif

// ---- backends ----

const char *AT(name)(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_name != NULL ? backend->iface.get_name(backend) : "NULL";
}

void AT(free)(gen_backend_t backend) {
    if (backend != NULL && backend->iface.free != NULL) {
        backend->iface.free(backend);
    }
}

gen_buffer_t AT(alloc_buffer)(gen_backend_t backend, size_t size) {
    return source_alloc(default_source(backend), size);
}

size_t AT(get_alignment)(gen_backend_t backend) {
    return source_align(default_source(backend));
}

void AT(synchronize)(gen_backend_t backend) {
    if (backend != NULL && backend->iface.synchronize != NULL) {
        backend->iface.synchronize(backend);
    }
}

static void set_async(gen_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    gen_buffer_t buffer = buffer_of(tensor);
    if (backend == NULL || backend->iface.set_tensor_async == NULL || buffer == NULL) {
        berth_2023_tensor_set(tensor, data, offset, size);
    } else if (berth_2023_has_memory(buffer, tensor)) {
        backend->iface.set_tensor_async(backend, tensor, data, offset, size);
    }
}

static void get_async(gen_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    gen_buffer_t buffer = buffer_of(tensor);
    if (backend == NULL || backend->iface.get_tensor_async == NULL || buffer == NULL) {
        berth_2023_tensor_get(tensor, data, offset, size);
    } else if (berth_2023_has_memory(buffer, tensor)) {
        backend->iface.get_tensor_async(backend, tensor, data, offset, size);
    }
}

#if HAS_BUFT
void AT(tensor_set_async)(gen_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    set_async(backend, tensor, data, offset, size);
}

void AT(tensor_get_async)(gen_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    get_async(backend, tensor, data, offset, size);
}

// Whether the backend itself has begun the copy. It is asked only for memory that it reaches.
static bool copy_begun(gen_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst) {
    gen_buffer_t from = buffer_of(src), to = buffer_of(dst);
    if (backend == NULL || from == NULL || to == NULL || !source_reads(backend, from->buft) || !source_reads(backend, to->buft) ||
        !berth_2023_has_memory(from, src) || !berth_2023_has_memory(to, dst)) {
        return false;
    }
#    if IS_2024
    return backend->iface.cpy_tensor_async != NULL && backend->iface.cpy_tensor_async(backend, src, dst);
#    else
    if (backend->iface.cpy_tensor_from_async != NULL) {
        backend->iface.cpy_tensor_from_async(backend, src, dst);
        return true;
    }
    if (backend->iface.cpy_tensor_to_async != NULL) {
        backend->iface.cpy_tensor_to_async(backend, src, dst);
        return true;
    }
    return false;
#    endif
}

void AT(tensor_copy_async)(gen_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (src == NULL || dst == NULL || src == dst) {
        return;
    }
    if (!ggml_are_same_shape(src, dst) || !ggml_are_same_stride(src, dst) || !copy_begun(backend, src, dst)) {
        AT(synchronize)(backend);
        berth_2023_tensor_copy(src, dst);
    }
}
#else
gen_backend_t AT(get_backend)(const struct ggml_tensor *tensor) {
    gen_buffer_t buffer = buffer_of(tensor);
    return buffer != NULL ? buffer->backend : NULL;
}

void AT(tensor_set_async)(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    set_async(AT(get_backend)(tensor), tensor, data, offset, size);
}

void AT(tensor_get_async)(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    get_async(AT(get_backend)(tensor), tensor, data, offset, size);
}
#endif

bool AT(supports_op)(gen_backend_t backend, const struct ggml_tensor *op) {
    return backend != NULL && backend->iface.supports_op != NULL && backend->iface.supports_op(backend, op);
}

ggml_backend_graph_plan_t AT(graph_plan_create)(gen_backend_t backend, struct ggml_cgraph *graph) {
    return backend != NULL && backend->iface.graph_plan_create != NULL ? backend->iface.graph_plan_create(backend, graph) : NULL;
}

void AT(graph_plan_free)(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    if (backend != NULL && backend->iface.graph_plan_free != NULL && plan != NULL) {
        backend->iface.graph_plan_free(backend, plan);
    }
}

void AT(graph_plan_compute)(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    if (backend != NULL && backend->iface.graph_plan_compute != NULL && plan != NULL) {
        backend->iface.graph_plan_compute(backend, plan);
    }
}

// ---- today's backends ----

struct wrap {
    struct gen_backend pub;
    ggml_backend_t today;
    enum ggml_status status; // of the last computation
};

static struct wrap *wrap_of(gen_backend_t backend) {
    return backend->context;
}

static const char *wrap_name(gen_backend_t backend) {
    return ggml_backend_name(wrap_of(backend)->today);
}

static void wrap_free(gen_backend_t backend) {
    struct wrap *w = wrap_of(backend);
    ggml_backend_free(w->today);
    berth_free(w);
}

#if HAS_BUFT
static gen_source_t wrap_buffer_type(gen_backend_t backend) {
    (void) backend;
    return AT(cpu_buffer_type)();
}
#else
static size_t wrap_alignment(gen_backend_t backend) {
    (void) backend;
    return CPU_ALIGN;
}
#endif

static void wrap_synchronize(gen_backend_t backend) {
    ggml_backend_synchronize(wrap_of(backend)->today);
}

#if IS_2024
static ggml_backend_graph_plan_t wrap_plan_create(gen_backend_t backend, const struct ggml_cgraph *graph) {
#else
static ggml_backend_graph_plan_t wrap_plan_create(gen_backend_t backend, struct ggml_cgraph *graph) {
#endif
    return ggml_backend_graph_plan_create(wrap_of(backend)->today, (struct ggml_cgraph *) (uintptr_t) graph);
}

static void wrap_plan_free(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    ggml_backend_graph_plan_free(wrap_of(backend)->today, plan);
}

static void wrap_plan_compute(gen_backend_t backend, ggml_backend_graph_plan_t plan) {
    wrap_of(backend)->status = ggml_backend_graph_plan_compute(wrap_of(backend)->today, plan);
}

#if IS_2024
static bool wrap_graph_compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    wrap_of(backend)->status = ggml_backend_graph_compute(wrap_of(backend)->today, graph);
    return wrap_of(backend)->status == GGML_STATUS_SUCCESS;
}
#else
static void wrap_graph_compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    wrap_of(backend)->status = ggml_backend_graph_compute(wrap_of(backend)->today, graph);
}
#endif

static bool wrap_supports_op(gen_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_supports_op(wrap_of(backend)->today, op);
}

gen_backend_t AT(wrap)(struct berth_today_backend *backend) {
    ggml_backend_t today = (ggml_backend_t) (void *) backend;
    struct wrap *w = today != NULL ? berth_calloc(1, sizeof *w) : NULL;
    if (w == NULL || !ggml_backend_buft_is_host(ggml_backend_get_default_buffer_type(today))) {
        berth_fail(GGML_STATUS_FAILED, "a backend of 2023: no backend, out of memory, or its memory is not the host's");
        ggml_backend_free(today);
        berth_free(w);
        return NULL;
    }
    w->today = today;
    w->pub.context = w;
    w->pub.iface = (struct gen_backend_i) {
        .get_name = wrap_name, .free = wrap_free,
#if HAS_BUFT
        .get_default_buffer_type = wrap_buffer_type,
#else
        .alloc_buffer = cpu_alloc, .get_alignment = wrap_alignment,
#endif
        .synchronize = wrap_synchronize, .graph_plan_create = wrap_plan_create, .graph_plan_free = wrap_plan_free,
        .graph_plan_compute = wrap_plan_compute, .graph_compute = wrap_graph_compute, .supports_op = wrap_supports_op,
    };
    return &w->pub;
}

// Only backends of host memory are wrapped.
bool AT(is_cpu)(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_name == wrap_name;
}

// What the wrapped backend's library offers by name, NULL: nothing.
static void *wrap_proc(gen_backend_t backend, const char *name) {
    if (!AT(is_cpu)(backend)) {
        berth_fail(GGML_STATUS_FAILED, "%s: backend %s is not the CPU's", name, AT(name)(backend));
        return NULL;
    }
    return ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(ggml_backend_get_device(wrap_of(backend)->today)), name);
}

void AT(cpu_set_n_threads)(gen_backend_t backend, int n_threads) {
    void *proc = wrap_proc(backend, "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t set;
    memcpy(&set, &proc, sizeof set); // ISO C has no cast from data to functions
    if (proc != NULL) {
        set(wrap_of(backend)->today, n_threads);
    }
}

#if HAS_BUFT
void AT(cpu_set_abort_callback)(gen_backend_t backend, ggml_abort_callback callback, void *data) {
    void *proc = wrap_proc(backend, "ggml_backend_set_abort_callback");
    ggml_backend_set_abort_callback_t set;
    memcpy(&set, &proc, sizeof set);
    if (proc != NULL) {
        set(wrap_of(backend)->today, callback, data);
    }
}

gen_source_t AT(cpu_hbm_buffer_type)(void) {
    return AT(cpu_buffer_type)();
}
#endif

// ---- computing ----

static enum ggml_status compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    if (backend == NULL || backend->iface.graph_compute == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_graph_compute: no backend, or one that computes nothing");
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
#if IS_2024
    if (!backend->iface.graph_compute(backend, graph)) {
        status = GGML_STATUS_FAILED;
    }
#else
    backend->iface.graph_compute(backend, graph);
#endif
    if (AT(is_cpu)(backend)) {
        return wrap_of(backend)->status;
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_fail(status, "ggml_backend_graph_compute: backend %s failed", AT(name)(backend));
    }
    return status;
}

enum ggml_status AT(graph_compute_status)(gen_backend_t backend, struct ggml_cgraph *graph) {
    return berth_2023_compute(&date, backend, graph);
}

#if IS_2024
bool AT(graph_compute)(gen_backend_t backend, struct ggml_cgraph *graph) {
    return berth_2023_compute(&date, backend, graph) == GGML_STATUS_SUCCESS;
}
#else
void AT(graph_compute)(gen_backend_t backend, struct ggml_cgraph *graph) {
    const enum ggml_status status = berth_2023_compute(&date, backend, graph);
    (void) status; // berth_last_error() has the text
}
#endif

// ---- the date ----

static const struct gen_date date = {
    .number = BERTH_2023,
    .base = buffer_base,
    .size = buffer_size,
    .alloc_size = buffer_alloc_size,
    .init_tensor = buffer_init_tensor,
    .free_tensor = buffer_free_tensor,
    .set = buffer_set,
    .get = buffer_get,
    .copy = buffer_copy,
    .clear = buffer_clear,
    .reset = buffer_reset,
    .release = buffer_release,
    .buffer_name = buffer_name,
    .pulls_ops = buffer_pulls_ops,
    .source_of = source_of,
    .source_name = source_name,
    .alloc = source_alloc,
    .measure = source_measure,
    .source_align = source_align,
    .source_alloc_size = source_alloc_size,
    .source_max_size = source_max_size,
    .is_host = source_is_host,
    .reads = source_reads,
    .name = AT(name),
    .is_cpu = AT(is_cpu),
    .supports_op = AT(supports_op),
    .compute = compute,
    .synchronize = AT(synchronize),
};

// ---- allocators ----

// Over the caller's memory, or where there is none.
static gen_tallocr_t tallocr_over_host(void *base, size_t size, size_t alignment, bool is_measure) {
#if HAS_BUFT
    gen_buffer_t buffer = AT(cpu_buffer_from_ptr)(base, size);
#else
    gen_buffer_t buffer = AT(cpu_buffer_from_ptr)(NULL, base, size);
#endif
    if (buffer != NULL) {
        gen_head(buffer)->align = alignment;
    }
    return berth_2023_tallocr_over(buffer, true, is_measure, NULL);
}

gen_tallocr_t AT(tallocr_new)(void *data, size_t size, size_t alignment) {
    if (data == NULL || alignment == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new: no memory, or an alignment of 0");
        return NULL;
    }
    return tallocr_over_host(data, size, alignment, false);
}

// At an address that is as badly aligned as the caller's memory may be.
gen_tallocr_t AT(tallocr_new_measure)(size_t alignment) {
    if (alignment == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new_measure: an alignment of 0");
        return NULL;
    }
    const uintptr_t aligned = (uintptr_t) berth_2023_measure_base(alignment);
    return tallocr_over_host((void *) (alignment > 1 ? aligned + 1 : aligned), SIZE_MAX / 2, alignment, true);
}

static gen_tallocr_t tallocr_from(gen_source_t source, size_t size) {
    return berth_2023_tallocr_over(source_alloc(source, size), true, false, source);
}

static gen_tallocr_t tallocr_measure(gen_source_t source) {
    return berth_2023_tallocr_over(source_measure(source), true, true, NULL);
}

gen_tallocr_t AT(tallocr_new_from_backend)(gen_backend_t backend, size_t size) {
    return tallocr_from(default_source(backend), size);
}

gen_tallocr_t AT(tallocr_new_measure_from_backend)(gen_backend_t backend) {
    return tallocr_measure(default_source(backend));
}

ggml_allocr_t AT(allocr_new)(void *data, size_t size, size_t alignment) {
    return berth_2023_allocr_over(AT(tallocr_new)(data, size, alignment));
}

ggml_allocr_t AT(allocr_new_measure)(size_t alignment) {
    return berth_2023_allocr_over(AT(tallocr_new_measure)(alignment));
}

ggml_allocr_t AT(allocr_new_from_backend)(gen_backend_t backend, size_t size) {
    return berth_2023_allocr_over(AT(tallocr_new_from_backend)(backend, size));
}

ggml_allocr_t AT(allocr_new_measure_from_backend)(gen_backend_t backend) {
    return berth_2023_allocr_over(AT(tallocr_new_measure_from_backend)(backend));
}

// ---- the scheduler ----

static gen_sched_t sched_over(gen_backend_t *backends, gen_source_t *bufts, int n_backends) {
    if (backends == NULL || n_backends <= 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_new: no backends");
        return NULL;
    }
    gen_source_t *sources = berth_calloc((size_t) n_backends, sizeof *sources);
    for (int b = 0; b < n_backends && sources != NULL; b++) {
        sources[b] = bufts != NULL && bufts[b] != NULL ? bufts[b] : default_source(backends[b]);
    }
    gen_sched_t sched = sources != NULL ? berth_2023_sched_over(&date, backends, sources, n_backends) : NULL;
    berth_free(sources);
    return sched;
}

#if IS_2024
gen_sched_t AT(sched_new)(gen_backend_t *backends, gen_source_t *bufts, int n_backends, size_t graph_size) {
    (void) graph_size; // graphs of any size are scheduled
    return sched_over(backends, bufts, n_backends);
}
#else
gen_sched_t AT(sched_new)(gen_backend_t *backends, int n_backends) {
    return sched_over(backends, NULL, n_backends);
}
#endif

#if BERTH_2023 == 202312 // for the default of headers that serve several dates
gen_sched_t AT(sched_new_of)(gen_backend_t *backends, gen_source_t *bufts, int n_backends, size_t graph_size) {
    (void) graph_size;
    return sched_over(backends, bufts, n_backends);
}
#endif

gen_source_t AT(get_default_buffer_type)(gen_backend_t backend) {
    return default_source(backend);
}

// ---- since buffer types ----

#if HAS_BUFT
gen_source_t AT(buffer_get_type)(gen_buffer_t buffer) {
    return berth_2023_buffer_of(gen_today(buffer)) != NULL ? buffer->buft : NULL;
}

gen_buffer_t AT(buft_alloc_buffer)(gen_source_t buft, size_t size) {
    return source_alloc(buft, size);
}

size_t AT(buft_get_alignment)(gen_source_t buft) {
    return source_align(buft);
}

size_t AT(buft_get_alloc_size)(gen_source_t buft, struct ggml_tensor *tensor) {
    return tensor != NULL ? source_alloc_size(buft, tensor) : 0;
}

bool AT(buft_supports_backend)(gen_source_t buft, gen_backend_t backend) {
    return source_reads(backend, buft);
}

gen_tallocr_t AT(tallocr_new_from_buft)(gen_source_t buft, size_t size) {
    return tallocr_from(buft, size);
}

gen_tallocr_t AT(tallocr_new_measure_from_buft)(gen_source_t buft) {
    return tallocr_measure(buft);
}

struct ggml_backend_graph_copy AT(graph_copy)(gen_backend_t backend, struct ggml_cgraph *graph) {
    struct gen_facade facade;
    berth_2023_facade_init(&facade, &date, backend, default_source(backend));
    const struct ggml_backend_graph_copy copy = ggml_backend_graph_copy(facade.source != NULL ? &facade.backend : NULL, graph);
    berth_2023_facade_fini(&facade);
    return copy;
}

const char *AT(buft_name)(gen_source_t buft) {
    return source_name(buft);
}

size_t AT(buft_get_max_size)(gen_source_t buft) {
    return source_max_size(buft);
}

bool AT(buft_is_host)(gen_source_t buft) {
    return source_is_host(buft);
}

size_t AT(get_max_size)(gen_backend_t backend) {
    return source_max_size(default_source(backend));
}

static bool compare(gen_backend_t backend1, gen_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data) {
    struct gen_facade one, two;
    berth_2023_facade_init(&one, &date, backend1, default_source(backend1));
    berth_2023_facade_init(&two, &date, backend2, default_source(backend2));
    const bool is_done = ggml_backend_compare_graph_backend(
        one.source != NULL ? &one.backend : NULL, two.source != NULL ? &two.backend : NULL, graph, callback, user_data, NULL, 0);
    berth_2023_facade_fini(&one);
    berth_2023_facade_fini(&two);
    return is_done;
}
#endif

#if IS_2024
bool AT(compare_graph_backend)(gen_backend_t backend1, gen_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data) {
    return compare(backend1, backend2, graph, callback, user_data);
}

bool AT(buffer_copy_tensor)(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    gen_buffer_t to = buffer_of(dst);
    return to != NULL && to->iface.cpy_tensor != NULL && berth_2023_has_memory(to, dst) && to->iface.cpy_tensor(to, src, dst);
}

// One made of several: the context is the same of today's.

static const char *multi_name(gen_buffer_t buffer) {
    (void) buffer;
    return "several buffers";
}

static void multi_free(gen_buffer_t buffer) {
    ggml_backend_buffer_free(buffer->context);
}

static void multi_clear(gen_buffer_t buffer, uint8_t value) {
    ggml_backend_buffer_clear(buffer->context, value);
}

static void multi_reset(gen_buffer_t buffer) {
    ggml_backend_buffer_reset(buffer->context);
}

// Empty; NULL: out of memory.
static gen_buffer_t multi_new(gen_source_t source) {
    static const struct gen_buffer_i iface = {
        .get_name = multi_name, .free_buffer = multi_free, .clear = multi_clear, .reset = multi_reset};
    return AT(buffer_init)(source, iface, NULL, 0);
}

static void multi_set(gen_buffer_t buffer, ggml_backend_buffer_t today) {
    buffer->context = today;
    buffer->size = today->size;
    gen_head(buffer)->today.size = today->size;
}

gen_buffer_t AT(multi_buffer_alloc_buffer)(gen_buffer_t *buffers, size_t n_buffers) {
    gen_buffer_t multi = multi_new(buffers != NULL && n_buffers > 0 ? AT(buffer_get_type)(buffers[0]) : NULL);
    if (multi == NULL) {
        return NULL;
    }
    ggml_backend_buffer_t today = ggml_backend_multi_buffer_alloc_buffer((ggml_backend_buffer_t *) (void *) buffers, n_buffers);
    if (today == NULL) {
        berth_free(multi);
        return NULL;
    }
    multi_set(multi, today);
    return multi;
}

bool AT(buffer_is_multi_buffer)(gen_buffer_t buffer) {
    return berth_2023_buffer_of(gen_today(buffer)) != NULL && buffer->iface.free_buffer == multi_free;
}

void AT(multi_buffer_set_usage)(gen_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    if (!AT(buffer_is_multi_buffer)(buffer)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_set_usage: the buffer is not made of several");
        return;
    }
    ggml_backend_multi_buffer_set_usage(buffer->context, usage);
}

#elif HAS_BUFT
void AT(compare_graph_backend)(gen_backend_t backend1, gen_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data) {
    const bool is_done = compare(backend1, backend2, graph, callback, user_data);
    (void) is_done; // berth_last_error() has the text
}
#endif

#if HAS_BUFT
void AT(buffer_set_usage)(gen_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    ggml_backend_buffer_set_usage(gen_today(buffer), usage);
#    if IS_2024
    if (berth_2023_buffer_of(gen_today(buffer)) != NULL) {
        buffer->usage = usage;
    }
    if (AT(buffer_is_multi_buffer)(buffer)) {
        AT(multi_buffer_set_usage)(buffer, usage);
    }
#    endif
}
#endif

gen_buffer_t AT(alloc_ctx_tensors_from_buft)(struct ggml_context *ctx, gen_source_t buft) {
    struct gen_facade facade;
    berth_2023_facade_init(&facade, &date, NULL, buft);
    if (buft == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_alloc_ctx_tensors: no backend, or no buffer type");
        return NULL;
    }
#if IS_2024
    gen_buffer_t multi = multi_new(buft); // before any tensor has its place
    if (multi == NULL) {
        return NULL;
    }
#endif
    ggml_backend_buffer_t today = ggml_backend_alloc_ctx_tensors_from_buft(ctx, &facade.buft);
#if IS_2024
    if (ggml_backend_buffer_is_multi_buffer(today)) {
        multi_set(multi, today);
        return multi;
    }
    berth_free(multi);
#endif
    return (gen_buffer_t) (void *) today;
}

gen_buffer_t AT(alloc_ctx_tensors)(struct ggml_context *ctx, gen_backend_t backend) {
    return AT(alloc_ctx_tensors_from_buft)(ctx, default_source(backend));
}

// SPDX-License-Identifier: MIT
// date_buffer.h: part of date.h: sources of buffers, buffers, host memory, and measuring.
// A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM).

// ---- sources ----

static owner_t owner_of(gen_source_t source) {
    return (owner_t) (void *) source;
}

static gen_source_t source_of(gen_buffer_t buffer) {
    return (gen_source_t) (void *) buffer->OWNER;
}

static gen_buffer_t source_alloc(gen_source_t source, size_t size) {
    owner_t owner = owner_of(source);
    if (owner == NULL || owner->iface.alloc_buffer == NULL) {
        berth_fail(GGML_STATUS_FAILED, ALLOC_NAME ": the " OWNER_NAME " is NULL or has no alloc_buffer function");
        return NULL;
    }
    return owner->iface.alloc_buffer(owner, size);
}

static size_t source_align(gen_source_t source) {
    owner_t owner = owner_of(source);
    return owner != NULL && owner->iface.get_alignment != NULL ? max_size(owner->iface.get_alignment(owner), 1) : 1;
}

#if HAS_BUFT
static gen_source_t default_source(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_default_buffer_type != NULL ? backend->iface.get_default_buffer_type(backend)
                                                                             : NULL;
}

static size_t source_alloc_size(gen_source_t source, const struct ggml_tensor *tensor) {
    const size_t min_alloc_size = ggml_nbytes(tensor);
    if (source == NULL || source->iface.get_alloc_size == NULL) {
        return min_alloc_size;
    }
    return max_size(source->iface.get_alloc_size(source, (struct ggml_tensor *) (uintptr_t) tensor), min_alloc_size);
}

// True if the backend can read buffers of the source.
static bool source_reads(gen_backend_t backend, gen_source_t source) {
    return source != NULL && source->iface.supports_backend != NULL && source->iface.supports_backend(source, backend);
}
#else
static gen_source_t default_source(gen_backend_t backend) {
    return (gen_source_t) (void *) backend;
}

// At date 202311, only a buffer can compute the size of a tensor. So this function allocates a buffer of one byte.
static size_t source_alloc_size(gen_source_t source, const struct ggml_tensor *tensor) {
    gen_buffer_t sample = source_alloc(source, 1);
    const size_t size = berth_2023_buffer_get_alloc_size(sample, (struct ggml_tensor *) (uintptr_t) tensor);
    berth_2023_buffer_free(sample);
    return size;
}

// True if the backend can read buffers of the source.
static bool source_reads(gen_backend_t backend, gen_source_t source) {
    return owner_of(source) == backend || (AT(is_cpu)(backend) && (source == NULL || AT(is_cpu)(owner_of(source))));
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

gen_buffer_t AT(buffer_init)(owner_t owner, struct gen_buffer_i iface, ggml_backend_buffer_context_t context, size_t size) {
    gen_buffer_t buffer = berth_calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_buffer_init: out of memory for a buffer of %zu bytes", size);
        return NULL;
    }
    berth_2023_buffer_head(buffer, &date, owner != NULL ? source_align((gen_source_t) (void *) owner) : CPU_ALIGN, size);
    buffer->iface = iface;
    buffer->context = context;
    buffer->size = size;
    buffer->OWNER = owner;
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
    (void) buffer; // from December 2023 on, buffers have no free_tensor function
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

// Returns NULL if the tensor's buffer does not belong to this date.
static gen_buffer_t buffer_of(const struct ggml_tensor *tensor) {
    gen_buffer_t buffer = tensor != NULL ? berth_2023_buffer_of(berth_tensor_buffer(tensor)) : NULL;
    return buffer != NULL && gen_head(buffer)->date == &date ? buffer : NULL;
}

static bool buffer_copy(struct ggml_tensor *src, struct ggml_tensor *dst) {
    gen_buffer_t from = buffer_of(src), to = buffer_of(dst);
#if IS_2024
    if (ggml_backend_buffer_is_host(berth_tensor_buffer(src)) || ggml_backend_buffer_is_host(berth_tensor_buffer(dst))) {
        return false; // the caller then copies with one call of set_tensor or get_tensor
    }
    (void) from;
    return to != NULL && to->iface.cpy_tensor != NULL && to->iface.cpy_tensor(to, src, dst);
#else
#    if HAS_BUFT
    gen_buffer_t reader = to, writer = from;
#    else
    gen_backend_t reader = to != NULL ? to->backend : NULL, writer = from != NULL ? from->backend : NULL;
#    endif
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

// True: ops that read leaves in this buffer should run on the buffer's backend.
static bool buffer_pulls_ops(gen_buffer_t buffer) {
#if IS_2024
    return buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS ||
           gen_head(buffer)->today.usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
#else
    (void) buffer;
    return true;
#endif
}

// ---- host memory ----

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

// The interface of buffers over memory of the caller. Their context is the address of the memory.
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

// Functions of buffers whose memory Berth allocates. Their context is a buffer of the current API.
static void cpu_free(gen_buffer_t buffer) {
    ggml_backend_buffer_free(buffer->context);
}

static void *cpu_base(gen_buffer_t buffer) {
    return ggml_backend_buffer_get_base(buffer->context);
}

static gen_buffer_t cpu_alloc(owner_t owner, size_t size) {
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
    return source == NULL || AT(is_cpu)(owner_of(source));
#endif
}

static const char *source_name(gen_source_t source) {
#if IS_2024
    return source != NULL && source->iface.get_name != NULL ? source->iface.get_name(source) : "NULL";
#elif HAS_BUFT
    return source_is_host(source) ? "CPU" : "a buffer type"; // buffer types have no names at this date
#else
    return source != NULL ? AT(name)(owner_of(source)) : "CPU";
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
// At date 202311, only a buffer can compute the size that a tensor needs in it. So the context of a measuring buffer is a sample:
// a buffer of one byte from the same backend. The sample computes the sizes. Its memory is not accessed.

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
    gen_buffer_t buffer = AT(buffer_init)(owner_of(source), iface, sample, SIZE_MAX / 2);
    if (buffer == NULL) {
        berth_2023_buffer_free(sample);
    }
    return buffer;
}
#endif

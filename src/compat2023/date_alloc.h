// SPDX-License-Identifier: MIT
// date_alloc.h: part of date.h: allocators, the scheduler, copies and comparisons of graphs, and multi-buffers.
// A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM).

// ---- allocators ----

// is_measure: `base` is only an address, without memory.
static gen_tallocr_t tallocr_over_host(void *base, size_t size, size_t alignment, bool is_measure) {
    gen_buffer_t buffer = AT(buffer_init)(HOST_OWNER, host_iface(), base, size);
    if (buffer != NULL) {
        gen_head(buffer)->align = alignment;
    }
    return berth_2023_tallocr_over(buffer, true, is_measure, NULL);
}

gen_tallocr_t AT(tallocr_new)(void *data, size_t size, size_t alignment) {
    if (data == NULL || alignment == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new: the memory is NULL or the alignment is 0");
        return NULL;
    }
    return tallocr_over_host(data, size, alignment, false);
}

// The base address is one byte after an aligned address, so the measured size includes the largest padding that the caller's
// memory can need at its start.
gen_tallocr_t AT(tallocr_new_measure)(size_t alignment) {
    if (alignment == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new_measure: the alignment is 0");
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
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_new: the list of backends is empty");
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
    (void) graph_size; // the scheduler has no limit on the size of graphs
    return sched_over(backends, bufts, n_backends);
}
#else
gen_sched_t AT(sched_new)(gen_backend_t *backends, int n_backends) {
    return sched_over(backends, NULL, n_backends);
}
#endif

#if BERTH_2023 == 202312 // default date: also has the 2024 form of sched_new
gen_sched_t AT(sched_new_of)(gen_backend_t *backends, gen_source_t *bufts, int n_backends, size_t graph_size) {
    (void) graph_size;
    return sched_over(backends, bufts, n_backends);
}
#endif

gen_source_t AT(get_default_buffer_type)(gen_backend_t backend) {
    return default_source(backend);
}

// ---- functions of the dates with buffer types ----

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

done_t AT(compare_graph_backend)(gen_backend_t backend1, gen_backend_t backend2, struct ggml_cgraph *graph,
    ggml_backend_eval_callback callback, void *user_data) {
    struct gen_facade one, two;
    berth_2023_facade_init(&one, &date, backend1, default_source(backend1));
    berth_2023_facade_init(&two, &date, backend2, default_source(backend2));
    const bool is_done = ggml_backend_compare_graph_backend(
        one.source != NULL ? &one.backend : NULL, two.source != NULL ? &two.backend : NULL, graph, callback, user_data, NULL, 0);
    berth_2023_facade_fini(&one);
    berth_2023_facade_fini(&two);
    RETURN_DONE(is_done);
}
#endif

#if IS_2024
bool AT(buffer_copy_tensor)(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    gen_buffer_t to = buffer_of(dst);
    return to != NULL && to->iface.cpy_tensor != NULL && berth_2023_has_memory(to, dst) && to->iface.cpy_tensor(to, src, dst);
}

// A multi-buffer of this date wraps a multi-buffer of the current API. The context of the wrapper is the wrapped multi-buffer.

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
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_multi_buffer_set_usage: the buffer is not a multi-buffer");
        return;
    }
    ggml_backend_multi_buffer_set_usage(buffer->context, usage);
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
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_alloc_ctx_tensors: the backend is NULL or has no buffer type");
        return NULL;
    }
#if IS_2024
    gen_buffer_t multi = multi_new(buft); // allocated before any tensor is placed, so that a failure changes nothing
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

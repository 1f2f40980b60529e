// SPDX-License-Identifier: MIT
// date_backend.h: part of date.h: backends, wrappers that present current backends as 2023 backends, and computing.
// A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM).

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

// Returns false if the copy was not started.
static bool try_copy_async(gen_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst) {
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
    if (!ggml_are_same_shape(src, dst) || !ggml_are_same_stride(src, dst) || !try_copy_async(backend, src, dst)) {
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

// ---- wrappers of current backends ----

struct wrap {
    struct gen_backend pub;
    ggml_backend_t today;
    enum ggml_status status; // result of the last computation
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

static done_t wrap_graph_compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    wrap_of(backend)->status = ggml_backend_graph_compute(wrap_of(backend)->today, graph);
    RETURN_DONE(wrap_of(backend)->status == GGML_STATUS_SUCCESS);
}

static bool wrap_supports_op(gen_backend_t backend, const struct ggml_tensor *op) {
    return ggml_backend_supports_op(wrap_of(backend)->today, op);
}

gen_backend_t AT(wrap)(struct berth_today_backend *backend) {
    ggml_backend_t today = (ggml_backend_t) (void *) backend;
    struct wrap *w = today != NULL ? berth_calloc(1, sizeof *w) : NULL;
    if (w == NULL || !ggml_backend_buft_is_host(ggml_backend_get_default_buffer_type(today))) {
        berth_fail(GGML_STATUS_FAILED,
            "cannot wrap a backend for the 2023 API: it is NULL, it does not use host memory, or out of memory");
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

// Every wrapped backend is a CPU backend, because only backends with host memory are wrapped.
bool AT(is_cpu)(gen_backend_t backend) {
    return backend != NULL && backend->iface.get_name == wrap_name;
}

static void *wrap_proc(gen_backend_t backend, const char *name) {
    if (!AT(is_cpu)(backend)) {
        berth_fail(GGML_STATUS_FAILED, "%s: backend %s is not the CPU backend", name, AT(name)(backend));
        return NULL;
    }
    return ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(ggml_backend_get_device(wrap_of(backend)->today)), name);
}

void AT(cpu_set_n_threads)(gen_backend_t backend, int n_threads) {
    void *proc = wrap_proc(backend, "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t set;
    memcpy(&set, &proc, sizeof set); // ISO C has no cast from data pointers to function pointers
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

static enum ggml_status backend_compute(gen_backend_t backend, struct ggml_cgraph *graph) {
    if (backend == NULL || backend->iface.graph_compute == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_graph_compute: the backend is NULL or has no graph_compute function");
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

done_t AT(graph_compute)(gen_backend_t backend, struct ggml_cgraph *graph) {
    RETURN_DONE(berth_2023_compute(&date, backend, graph) == GGML_STATUS_SUCCESS);
}

// SPDX-License-Identifier: MIT
// backend.c: the CPU backend. Computing is synchronous. Work memory grows to the size that the largest graph required, and is
// kept. The thread pool is given by the user, or created for the first graph with more than one thread.

#include "cpu/cpu.h"

#include "backend/backend.h"
#include "base/min.h"
#include "berth-cpu.h"
#include "core/graph.h"
#include "cpu/pool.h"
#include "ggml-backend-impl.h"

#include <string.h>

#pragma weak berth_backend_has_checked // weak: absent if libggml-base is not Berth's

struct cpu_backend {
    int n_threads;
    struct ggml_threadpool *pool;     // given by the user, or NULL
    struct ggml_threadpool *own_pool; // created by the backend; NULL until needed
    uint8_t *work;
    size_t work_size;
    ggml_abort_callback abort_callback;
    void *abort_data;
    bool use_ref;
    bool batch_invariant;
};

struct cpu_backend_plan {
    struct ggml_cplan plan;
    struct ggml_cgraph graph;
};

static ggml_guid cpu_guid = {0xb1, 0x27, 0x3e, 0x5c, 0x90, 0x44, 0x4f, 0x0e, 0x8d, 0x1b, 0x62, 0x65, 0x72, 0x74, 0x68, 0x01};

static const char *backend_name(ggml_backend_t backend) {
    (void) backend;
    return "CPU";
}

static void backend_free(ggml_backend_t backend) {
    struct cpu_backend *b = backend->context;
    ggml_threadpool_free(b->own_pool);
    shim_aligned_free(b->work);
    shim_free(b);
    shim_free(backend);
}

// Returns the pool for n threads. NULL: cpu_graph_compute borrows a pool if n > 1.
static struct ggml_threadpool *backend_pool(struct cpu_backend *b, int n) {
    if (b->pool != NULL || n <= 1) {
        return b->pool;
    }
    if (b->own_pool == NULL || ggml_threadpool_get_n_threads(b->own_pool) < n) {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(max_int(b->n_threads, n));
        ggml_threadpool_free(b->own_pool);
        b->own_pool = ggml_threadpool_new(&params);
    }
    return b->own_pool;
}

static struct ggml_cplan backend_plan(struct cpu_backend *b, const struct ggml_cgraph *graph) {
    struct ggml_cplan plan = ggml_graph_plan(graph, b->n_threads, b->pool);
    plan.threadpool = backend_pool(b, plan.n_threads);
    plan.abort_callback = b->abort_callback;
    plan.abort_callback_data = b->abort_data;
    plan.use_ref = b->use_ref;
    return plan;
}

// Fails if the caller is an op of a graph that this backend computes.
static enum ggml_status backend_check_unused(const struct cpu_backend *b) {
    return cpu_is_busy_with(b)
               ? shim_error(GGML_STATUS_FAILED,
                     "CPU: an op of the running graph computes on the backend that runs the graph; use another backend")
               : GGML_STATUS_SUCCESS;
}

static enum ggml_status work_grow(struct cpu_backend *b, size_t size) {
    if (size <= b->work_size) {
        return GGML_STATUS_SUCCESS;
    }
    shim_aligned_free(b->work);
    b->work = shim_aligned_alloc(64, size);
    b->work_size = b->work != NULL ? size : 0;
    return b->work != NULL ? GGML_STATUS_SUCCESS
                           : shim_error(GGML_STATUS_ALLOC_FAILED, "CPU: out of memory for %zu bytes of work memory", size);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct cpu_backend *b = backend->context;
    if (backend_check_unused(b) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    struct ggml_cplan plan = backend_plan(b, graph);
    if (work_grow(b, plan.work_size) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    plan.work_data = b->work;
    const bool is_checked = berth_backend_has_checked != NULL && berth_backend_has_checked(graph);
    return cpu_graph_compute(graph, &plan, b->batch_invariant, b, is_checked);
}

static ggml_backend_graph_plan_t plan_create(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    struct cpu_backend_plan *p = shim_malloc(sizeof *p);
    if (p == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "CPU: out of memory for a graph plan");
        return NULL;
    }
    p->plan = backend_plan(backend->context, graph);
    p->graph = *graph;
    if (p->plan.work_size > 0) {
        p->plan.work_data = shim_aligned_alloc(64, p->plan.work_size);
        if (p->plan.work_data == NULL) {
            shim_error(GGML_STATUS_ALLOC_FAILED, "CPU: out of memory for %zu bytes of work memory", p->plan.work_size);
            shim_free(p);
            return NULL;
        }
    }
    return p;
}

static void plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    (void) backend;
    struct cpu_backend_plan *p = plan;
    if (p != NULL) {
        shim_aligned_free(p->plan.work_data);
        shim_free(p);
    }
}

static enum ggml_status plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    struct cpu_backend_plan *p = plan;
    if (p == NULL) {
        return shim_error(GGML_STATUS_FAILED, "CPU: no graph plan to compute");
    }
    if (backend_check_unused(backend->context) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    // Since the plan was created, pool and tensors may have changed. So cpu_graph_compute checks the tensors (false).
    struct cpu_backend *b = backend->context;
    p->plan.threadpool = backend_pool(b, p->plan.n_threads);
    return cpu_graph_compute(&p->graph, &p->plan, b->batch_invariant, b, false);
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .graph_plan_create = plan_create,
    .graph_plan_free = plan_free,
    .graph_plan_compute = plan_compute,
    .graph_compute = backend_compute,
};

ggml_backend_t ggml_backend_cpu_init(void) {
    cpu_init();
    struct cpu_backend *b = shim_calloc(1, sizeof *b);
    ggml_backend_t backend = shim_calloc(1, sizeof *backend);
    if (b == NULL || backend == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "CPU: out of memory for a backend");
        shim_free(b);
        shim_free(backend);
        return NULL;
    }
    b->n_threads = GGML_DEFAULT_N_THREADS;
    b->batch_invariant = cpu_batch_invariant_default;
    *backend = (struct ggml_backend){.guid = &cpu_guid, .iface = backend_iface, .device = cpu_device(), .context = b};
    return backend;
}

bool ggml_backend_is_cpu(ggml_backend_t backend) {
    return backend != NULL &&
           (backend->guid == &cpu_guid || (backend->guid != NULL && memcmp(backend->guid, cpu_guid, sizeof cpu_guid) == 0));
}

// If this is not a CPU backend, sets an error and returns NULL.
static struct cpu_backend *backend_of(ggml_backend_t backend, const char *func) {
    if (!ggml_backend_is_cpu(backend)) {
        shim_error(GGML_STATUS_FAILED, "%s: not a CPU backend", func);
        return NULL;
    }
    return backend->context;
}

void ggml_backend_cpu_set_n_threads(ggml_backend_t backend_cpu, int n_threads) {
    struct cpu_backend *b = backend_of(backend_cpu, __func__);
    if (b != NULL) {
        b->n_threads = min_int(max_int(n_threads, 1), GGML_MAX_N_THREADS);
    }
}

void ggml_backend_cpu_set_threadpool(ggml_backend_t backend_cpu, ggml_threadpool_t threadpool) {
    struct cpu_backend *b = backend_of(backend_cpu, __func__);
    if (b == NULL) {
        return;
    }
    if (b->pool != NULL && b->pool != threadpool) {
        ggml_threadpool_pause(b->pool);
    }
    b->pool = threadpool;
}

void ggml_backend_cpu_set_abort_callback(
    ggml_backend_t backend_cpu, ggml_abort_callback abort_callback, void *abort_callback_data) {
    struct cpu_backend *b = backend_of(backend_cpu, __func__);
    if (b != NULL) {
        b->abort_callback = abort_callback;
        b->abort_data = abort_callback_data;
    }
}

void ggml_backend_cpu_set_use_ref(ggml_backend_t backend_cpu, bool use_ref) {
    struct cpu_backend *b = backend_of(backend_cpu, __func__);
    if (b != NULL) {
        b->use_ref = use_ref;
    }
}

void berth_cpu_set_batch_invariant(ggml_backend_t backend, bool batch_invariant) {
    struct cpu_backend *b = backend_of(backend, __func__);
    if (b != NULL) {
        b->batch_invariant = batch_invariant;
    }
}

size_t berth_cpu_work_size(ggml_backend_t backend) {
    const struct cpu_backend *b = backend_of(backend, __func__);
    return b != NULL ? b->work_size : 0;
}

size_t berth_cpu_graph_work_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    const struct cpu_backend *b = backend_of(backend, __func__);
    return b != NULL ? ggml_graph_plan(graph, b->n_threads, b->pool).work_size : 0;
}

// berth_cpu_reserve runs this job on all threads, so that each thread allocates its thread-local storage before the first graph.
static void job_empty(void *arg, int ith) {
    (void) ith;
    (void) cpu_is_busy_with(arg);
}

enum ggml_status berth_cpu_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    struct cpu_backend *b = backend_of(backend, __func__);
    if (b == NULL || graph == NULL || backend_check_unused(b) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    struct ggml_threadpool *pool = backend_pool(b, b->n_threads);
    const int n = pool != NULL ? cpu_pool_restart_after_fork(pool) : 1;
    if (n > 1) {
        cpu_pool_run(pool, n, job_empty, NULL);
    }
    return work_grow(b, cpu_graph_work_bound(graph, b->n_threads));
}

size_t berth_cpu_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    const struct cpu_backend *b = backend_of(backend, __func__);
    return b != NULL && graph != NULL ? cpu_graph_work_bound(graph, b->n_threads) : 0;
}

const char *berth_cpu_isa(void) {
    cpu_init();
    return cpu_kernels_best.tier;
}

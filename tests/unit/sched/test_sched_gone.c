// SPDX-License-Identifier: MIT
// test_sched_gone.c: programs that free their backends before the scheduler, as libllama does, with and without work in flight.
// Each backend is in separate pages that are unmapped when it is freed, so a use after free is a fault.

#include "support/device_graph.h"

enum { N = 64, N_BACKENDS = 3 };

// A rig is a scheduler over two test devices and the CPU, with a graph.
struct rig {
    struct device dev[2];
    ggml_backend_t backends[N_BACKENDS];
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *out;
    ggml_backend_sched_t sched;
};

static int n_freed;

static void *pages_map(size_t size) {
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    return pages;
}

// A backend waits for its own work when it is freed.
static void backend_free_pages(ggml_backend_t backend) {
    if (backend->iface.synchronize != NULL) {
        backend->iface.synchronize(backend);
    }
    munmap(backend, sizeof *backend);
    n_freed++;
}

static void rig_init(struct rig *r, bool is_async, bool parallel) {
    memset(r, 0, sizeof *r);
    for (int d = 0; d < 2; d++) {
        device_init(&r->dev[d], d == 0 ? "first" : "second");
        r->dev[d].is_async = r->dev[d].has_events = r->dev[d].copies_async = is_async;
        r->dev[d].delay_us = is_async ? 2000 : 0;
        ggml_backend_t backend = pages_map(sizeof *backend);
        *backend = *device_start(&r->dev[d]);
        backend->iface.free = backend_free_pages;
        r->backends[d] = backend;
    }
    r->backends[2] = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(r->backends[2], 1);
    r->sched = ggml_backend_sched_new(r->backends, NULL, N_BACKENDS, 64, parallel, true);
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    r->ctx = ggml_init(params);
    r->graph = ggml_new_graph(r->ctx);
    r->x = ggml_new_tensor_1d(r->ctx, GGML_TYPE_F32, N);
    ggml_set_input(r->x);
    r->out = r->x;
    for (int i = 0; i < 9; i++) {
        r->out = ggml_scale(r->ctx, r->out, 2.0f);
        ggml_backend_sched_set_tensor_backend(r->sched, r->out, r->backends[i % 2]);
    }
    ggml_set_output(r->out);
    ggml_build_forward_expand(r->graph, r->out);
}

static void fill(struct ggml_tensor *t, float value) {
    float values[N];
    for (int i = 0; i < N; i++) {
        values[i] = value;
    }
    ggml_backend_tensor_set(t, values, 0, sizeof values);
}

static void rig_fini(struct rig *r) {
    for (int d = 0; d < 2; d++) {
        assert_int_equal(r->dev[d].n_buffers, 0);
        device_stop(&r->dev[d]);
    }
    ggml_free(r->ctx);
}

static void free_backends(struct rig *r, int n) {
    for (int b = 0; b < n; b++) {
        ggml_backend_free(r->backends[b]);
    }
}

// Frees the backends, then the scheduler. kind: 0: no graph was computed; 1: a graph was computed, and the program waited for it;
// 2: the graph is still in flight.
static void free_in_order(int kind, bool is_async, bool parallel) {
    static struct rig r;
    rig_init(&r, is_async, parallel);
    if (kind > 0) {
        assert_true(ggml_backend_sched_alloc_graph(r.sched, r.graph));
        fill(r.x, 1.0f);
        assert_int_equal(ggml_backend_sched_graph_compute_async(r.sched, r.graph), GGML_STATUS_SUCCESS);
    }
    if (kind == 1) {
        ggml_backend_sched_synchronize(r.sched);
        float value;
        ggml_backend_tensor_get(r.out, &value, 0, sizeof value);
        assert_true(value == 512.0f);
    }
    n_freed = 0;
    free_backends(&r, N_BACKENDS);
    assert_int_equal(n_freed, 2);
    ggml_backend_sched_free(r.sched);
    rig_fini(&r);
}

static void backends_are_freed_first(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) {
        free_in_order(kind, false, false);
        free_in_order(kind, true, false);
        free_in_order(kind, true, true);
    }
}

// The program waits for all work, then frees the backends without ggml_backend_free. The scheduler must not use the backends any
// more.
static void backends_are_freed_without_notice(void **state) {
    (void) state;
    static struct rig r;
    for (int parallel = 0; parallel < 2; parallel++) {
        rig_init(&r, true, parallel == 1);
        assert_true(ggml_backend_sched_alloc_graph(r.sched, r.graph));
        assert_int_equal(ggml_backend_sched_graph_compute(r.sched, r.graph), GGML_STATUS_SUCCESS);
        for (int b = 0; b < 2; b++) {
            r.backends[b]->iface.free(r.backends[b]);
        }
        ggml_backend_sched_free(r.sched);
        ggml_backend_free(r.backends[2]);
        rig_fini(&r);
    }
}

// The scheduler is freed first, with work in flight: it waits until the work is done.
static void work_is_waited_for(void **state) {
    (void) state;
    static struct rig r;
    rig_init(&r, true, false);
    assert_true(ggml_backend_sched_alloc_graph(r.sched, r.graph));
    assert_int_equal(ggml_backend_sched_graph_compute_async(r.sched, r.graph), GGML_STATUS_SUCCESS);
    ggml_backend_sched_free(r.sched);
    assert_int_equal(r.dev[0].stream.n_pending + r.dev[1].stream.n_pending, 0);
    free_backends(&r, N_BACKENDS);
    rig_fini(&r);
}

// Two schedulers share a backend that is freed. Both fail with an error that contains the backend's number, and call no backend.
static void nothing_runs_on_a_freed_backend(void **state) {
    (void) state;
    static struct rig r;
    rig_init(&r, false, false);
    ggml_backend_sched_t other = ggml_backend_sched_new(r.backends + 1, NULL, 2, 64, false, true);
    assert_true(ggml_backend_sched_alloc_graph(r.sched, r.graph));
    ggml_backend_t second = r.backends[1];
    ggml_backend_free(second);
    assert_int_equal(ggml_backend_sched_graph_compute(r.sched, r.graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "backend 1 of 3 has been freed"));
    assert_int_equal(ggml_backend_sched_graph_compute(other, r.graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "backend 0 of 2 has been freed"));
    assert_false(ggml_backend_sched_reserve(r.sched, r.graph));
    assert_false(ggml_backend_sched_alloc_graph(r.sched, r.graph));
    assert_null(ggml_backend_sched_get_backend(r.sched, 1));
    assert_null(ggml_backend_sched_get_buffer_type(r.sched, NULL));
    ggml_backend_sched_synchronize(r.sched);
    ggml_backend_sched_reset(r.sched);
    berth_sched_set_n_copies(r.sched, 2);
    ggml_backend_sched_free(r.sched);
    ggml_backend_sched_free(other);
    ggml_backend_free(r.backends[0]);
    ggml_backend_free(r.backends[2]);
    rig_fini(&r);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_are_freed_first),
        cmocka_unit_test(backends_are_freed_without_notice),
        cmocka_unit_test(work_is_waited_for),
        cmocka_unit_test(nothing_runs_on_a_freed_backend),
    };
    return cmocka_run_group_tests_name("sched_gone", tests, NULL, NULL);
}

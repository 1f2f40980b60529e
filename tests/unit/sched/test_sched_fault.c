// SPDX-License-Identifier: MIT
// test_sched_fault.c: a failure in or below the scheduler is returned as a status with the name of the backend, leaks no memory,
// and does not prevent the next graph from being computed.

#include "support/device_graph.h"

enum { WIDTH = 16, CHAIN = 12 };

// A rig is a scheduler over three test devices and the CPU, with a graph.
struct rig {
    struct device dev[3];
    ggml_backend_t cpu, backends[4];
    ggml_backend_sched_t sched;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *out;
    int width;
};

// Builds a chain of CHAIN ops from x to out. Each op doubles its source and runs on the next backend.
static void graph_new(struct rig *r, int width) {
    struct ggml_init_params params = {.mem_size = 1 << 18, .no_alloc = true};
    r->ctx = ggml_init(params);
    r->graph = ggml_new_graph_custom(r->ctx, 64, false);
    r->width = width;
    struct ggml_tensor *t = r->x = ggml_new_tensor_1d(r->ctx, GGML_TYPE_F32, width);
    ggml_set_input(t);
    for (int i = 0; i < CHAIN; i++) {
        t = ggml_scale(r->ctx, t, 2.0f);
    }
    ggml_set_output(t);
    r->out = t;
    ggml_build_forward_expand(r->graph, t);
}

static void graph_renew(struct rig *r, int width) {
    ggml_free(r->ctx);
    graph_new(r, width);
}

static void choose(struct rig *r) {
    for (int i = 0; i < CHAIN; i++) {
        ggml_backend_sched_set_tensor_backend(r->sched, ggml_graph_node(r->graph, i), r->backends[i % 4]);
    }
}

static void rig_init(struct rig *r, bool async, bool parallel) {
    memset(r, 0, sizeof *r);
    for (int d = 0; d < 3; d++) {
        static const char *const names[] = {"alpha", "beta", "gamma"};
        device_init(&r->dev[d], names[d]);
        r->dev[d].is_async = async;
        r->dev[d].has_events = async;
        r->dev[d].copies_async = async && d != 1;
        r->dev[d].delay_us = 20;
        r->backends[d] = device_start(&r->dev[d]);
    }
    r->cpu = r->backends[3] = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(r->cpu, 1);
    r->sched = ggml_backend_sched_new(r->backends, NULL, 4, 64, parallel, false);
    graph_new(r, WIDTH);
}

static void rig_fini(struct rig *r) {
    ggml_backend_sched_free(r->sched);
    ggml_free(r->ctx);
    for (int d = 0; d < 3; d++) {
        assert_int_equal(r->dev[d].n_buffers, 0);
        device_stop(&r->dev[d]);
    }
    ggml_backend_free(r->cpu);
}

// Resets the scheduler, places the graph and computes it with x = value. Returns the first status that is not a success.
static enum ggml_status compute(struct rig *r, float value) {
    static float values[1 << 16];
    ggml_backend_sched_reset(r->sched);
    choose(r);
    if (!ggml_backend_sched_alloc_graph(r->sched, r->graph)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    for (int i = 0; i < r->width; i++) {
        values[i] = value;
    }
    ggml_backend_tensor_set(r->x, values, 0, (size_t) r->width * sizeof values[0]);
    return ggml_backend_sched_graph_compute(r->sched, r->graph);
}

static void assert_works(struct rig *r, float value) {
    const enum ggml_status status = compute(r, value);
    if (status != GGML_STATUS_SUCCESS) {
        fail_msg("status %d: %s", status, berth_last_error());
    }
    float got[2];
    ggml_backend_tensor_get(r->out, got, 0, sizeof got);
    assert_true(got[0] == value * (1 << CHAIN) && got[1] == got[0]);
}

// ---- host memory ----

// Each allocation fails once. Afterwards all memory of the scheduler and of its devices is freed.
static void every_allocation_may_fail(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) { // one graph at a time; several in flight; several in flight with threads
        struct rig r;
        rig_init(&r, kind > 1, kind > 0); // this rig makes the allocations that a process makes only once
        assert_works(&r, 1.0f);
        rig_fini(&r);
        bool was_hit = true;
        int64_t n = 0;
        while (was_hit) {
            n++;
            berth_alloc_watch(true);
            rig_init(&r, kind > 1, kind > 0);
            ggml_backend_sched_free(r.sched);
            const int64_t before = berth_alloc_made();
            berth_alloc_fail_at(n);
            r.sched = ggml_backend_sched_new(r.backends, NULL, 4, 64, kind > 0, false);
            enum ggml_status status = r.sched != NULL ? compute(&r, 1.0f) : GGML_STATUS_ALLOC_FAILED;
            was_hit = berth_alloc_made() - before >= n - 1; // the allocation that fails is not counted
            berth_alloc_fail_at(0);
            if (status != GGML_STATUS_SUCCESS) {
                assert_true(was_hit && strlen(berth_last_error()) > 0);
            }
            if (r.sched != NULL) {
                ggml_backend_sched_synchronize(r.sched); // reports a failure that a backend has stored
                assert_works(&r, 3.0f);
            }
            rig_fini(&r);
            if (berth_alloc_alive() != 0) {
                fail_msg("%lld allocations are left when number %lld fails", (long long) berth_alloc_alive(), (long long) n);
            }
            berth_alloc_watch(false);
        }
        assert_true(n > 40);
        print_message("each of %lld allocations failed once\n", (long long) n - 1);
    }
}

// Each allocation of a reservation fails once. After a reservation that succeeds, smaller graphs are computed without allocation.
static void every_allocation_of_a_reservation_may_fail(void **state) {
    (void) state;
    for (int kind = 0; kind < 2; kind++) { // one graph at a time; several in flight
        int64_t n = 0;
        for (bool is_complete = false; !is_complete;) {
            n++;
            struct rig r;
            berth_alloc_watch(true);
            rig_init(&r, false, kind > 0);
            choose(&r);
            const int64_t before = berth_alloc_made();
            berth_alloc_fail_at(n);
            const bool is_reserved = ggml_backend_sched_reserve(r.sched, r.graph);
            is_complete = berth_alloc_made() - before < n - 1; // the allocation that fails is not counted
            berth_alloc_fail_at(0);
            assert_true(is_reserved || strlen(berth_last_error()) > 0);
            for (int width = WIDTH; width > WIDTH - 4; width--) { // more graphs than the scheduler caches
                graph_renew(&r, width);
                const int64_t before_graph = berth_alloc_made();
                assert_works(&r, 1.0f);
                assert_true(!is_reserved || berth_alloc_made() == before_graph);
            }
            assert_true(is_reserved || !is_complete);
            rig_fini(&r);
            assert_int_equal(berth_alloc_alive(), 0);
            berth_alloc_watch(false);
        }
        assert_true(n > 20);
    }
}

// ---- device memory ----

// The graphs have different sizes, and the size of a buffer is limited, so that a device allocates many buffers. The allocation
// of each buffer fails once.
static void every_buffer_may_fail(void **state) {
    (void) state;
    static const int widths[] = {WIDTH, 3000, 14000, WIDTH, 15000};
    for (int run = 0; run < 6; run++) {
        const bool parallel = run % 2 != 0;
        const int d = run / 2;
        bool was_hit = true;
        int n_failed = 0;
        for (int n = 1; was_hit; n++) {
            struct rig r;
            berth_alloc_watch(true);
            rig_init(&r, false, parallel);
            for (int k = 0; k < 3; k++) {
                r.dev[k].max_size = 1 << 16;
            }
            ggml_backend_sched_free(r.sched); // a scheduler reads max_size only once
            r.sched = ggml_backend_sched_new(r.backends, NULL, 4, 64, parallel, false);
            r.dev[d].fail_alloc_at = n;
            for (int i = 0; i < 5; i++) {
                graph_renew(&r, widths[i]);
                if (compute(&r, 1.0f) != GGML_STATUS_SUCCESS) {
                    assert_false(parallel); // with several graphs in flight, the scheduler retries with fewer
                    n_failed++;
                    graph_renew(&r, WIDTH);
                }
                assert_works(&r, 2.0f);
            }
            was_hit = r.dev[d].fail_alloc_at == 0;
            rig_fini(&r);
            assert_int_equal(berth_alloc_alive(), 0);
            berth_alloc_watch(false);
            if (!was_hit) {
                assert_true(n > 3 && (parallel || n_failed > 0));
                print_message("%d buffers of device %d, parallel %d: %d graphs refused\n", n - 1, d, parallel, n_failed);
            }
        }
    }
}

static void a_graph_too_large_is_forgotten(void **state) {
    (void) state;
    struct rig r;
    rig_init(&r, false, false);
    assert_works(&r, 1.0f);
    r.dev[1].max_size = 4096; // chunk size: a larger tensor cannot be allocated
    ggml_free(r.ctx);
    graph_new(&r, 1 << 15);
    r.dev[0].fail_alloc_at = 1;
    const enum ggml_status status = compute(&r, 1.0f);
    (void) status; // the old buffer may have been freed
    ggml_free(r.ctx);
    graph_new(&r, WIDTH);
    r.dev[0].fail_alloc_at = 0;
    assert_works(&r, 4.0f);
    rig_fini(&r);
}

// ---- compute and copy ----

static void a_failed_compute_is_reported(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) { // synchronous; in a thread; in a pipeline
        for (int d = 0; d < 3; d++) {
            for (int at = 1; at <= 3; at++) {
                struct rig r;
                rig_init(&r, kind > 0, kind > 1);
                assert_works(&r, 1.0f);
                r.dev[d].fail_compute_at = at;
                const enum ggml_status status = compute(&r, 2.0f);
                assert_int_equal(status, GGML_STATUS_FAILED);
                assert_non_null(strstr(berth_last_error(), r.dev[d].name));
                assert_works(&r, 3.0f);
                rig_fini(&r);
            }
        }
    }
}

static void a_failed_copy_is_reported(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) {
        struct rig r;
        rig_init(&r, kind > 0, kind > 1);
        assert_works(&r, 1.0f);
        r.dev[1].fail_set_at = 2; // beta has no copy function: the host writes
        const enum ggml_status status = compute(&r, 2.0f);
        assert_int_equal(status, GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "beta"));
        assert_works(&r, 3.0f);
        rig_fini(&r);
    }
}

// Computes the next graph of a pipeline. Returns false if it failed with the device's name in the error.
static bool submit(struct rig *r, const struct device *failing) {
    float values[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        values[i] = 1.0f;
    }
    ggml_backend_sched_reset(r->sched);
    choose(r);
    if (!ggml_backend_sched_alloc_graph(r->sched, r->graph)) {
        fail_msg("%s", berth_last_error());
    }
    ggml_backend_tensor_set(r->x, values, 0, sizeof values);
    if (ggml_backend_sched_graph_compute_async(r->sched, r->graph) == GGML_STATUS_SUCCESS) {
        return true;
    }
    assert_non_null(strstr(berth_last_error(), failing->name));
    return false;
}

// Several graphs are in flight, and one fails at one of its splits or copies, each in turn. A later graph or synchronize returns
// the status, with the device's name in the error. No memory is leaked, and the next graph is correct.
static void a_pipeline_survives_a_failure(void **state) {
    (void) state;
    enum { GRAPHS = 6, KINDS = 3 };
    int n_reported = 0;
    for (int run = 0; run < 3 * KINDS * GRAPHS * 3; run++) {
        const int d = run % 3, kind = run / 3 % KINDS, graph = run / 3 / KINDS % GRAPHS, at = 1 + run / 3 / KINDS / GRAPHS;
        struct rig r;
        berth_alloc_watch(true);
        rig_init(&r, true, true);
        struct device *dev = &r.dev[d];
        atomic_int *fails = kind == 0 ? &dev->fail_compute_at : kind == 1 ? &dev->fail_set_at : &dev->fail_copy_at;
        bool went_on = true;
        for (int i = 0; i < GRAPHS && went_on; i++) {
            if (i == graph) {
                *fails = at;
            }
            went_on = submit(&r, dev);
        }
        if (went_on) { // synchronize must report the failure, unless the device made too few calls to fail (*fails > 0)
            const enum ggml_status status = berth_sched_synchronize(r.sched);
            assert_int_equal(status, *fails == 0 ? GGML_STATUS_FAILED : GGML_STATUS_SUCCESS);
            assert_true(status == GGML_STATUS_SUCCESS || strstr(berth_last_error(), dev->name) != NULL);
            n_reported += status != GGML_STATUS_SUCCESS;
        }
        n_reported += !went_on;
        *fails = 0;
        assert_works(&r, 5.0f);
        rig_fini(&r);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
    }
    print_message("%d failures in pipelines\n", n_reported);
    assert_true(n_reported > 100);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_of_a_reservation_may_fail),
        cmocka_unit_test(every_buffer_may_fail),
        cmocka_unit_test(a_graph_too_large_is_forgotten),
        cmocka_unit_test(a_failed_compute_is_reported),
        cmocka_unit_test(a_failed_copy_is_reported),
        cmocka_unit_test(a_pipeline_survives_a_failure),
    };
    return cmocka_run_group_tests_name("sched_fault", tests, NULL, NULL);
}

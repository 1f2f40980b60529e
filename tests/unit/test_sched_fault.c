// SPDX-License-Identifier: MIT
// test_sched_fault.c: what fails in or below the scheduler is a status with the backend's name, loses no memory, and leaves a
// scheduler that computes the next graph.

#include "support/device_graph.h"

enum { WIDTH = 16, CHAIN = 12 };

struct rig {
    struct device dev[3];
    ggml_backend_t cpu, backends[4];
    ggml_backend_sched_t sched;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *out;
    int width;
};

// x through all backends in turns, CHAIN ops, each doubling.
static void graph_new(struct rig *r, int width) {
    struct ggml_init_params params = {.mem_size = 1 << 18, .no_alloc = true};
    r->ctx                         = ggml_init(params);
    r->graph                       = ggml_new_graph_custom(r->ctx, 64, false);
    r->width                       = width;
    struct ggml_tensor *t = r->x = ggml_new_tensor_1d(r->ctx, GGML_TYPE_F32, width);
    ggml_set_input(t);
    for (int i = 0; i < CHAIN; i++) {
        t = ggml_scale(r->ctx, t, 2.0f);
    }
    ggml_set_output(t);
    r->out = t;
    ggml_build_forward_expand(r->graph, t);
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
        r->dev[d].is_async     = async;
        r->dev[d].has_events   = async;
        r->dev[d].copies_async = async && d != 1;
        r->dev[d].delay_us     = 20;
        r->backends[d]         = device_start(&r->dev[d]);
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

// The whole way of one graph. The first status that is not a success.
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

// ---- memory of the host ----

// Work memory of the CPU backends outlives the scheduler: one block each.
static int64_t r_alive(const struct rig *r) {
    return (int64_t) (sizeof r->backends / sizeof r->backends[0]);
}

static void every_allocation_may_fail(void **state) {
    (void) state;
    for (int parallel = 0; parallel < 2; parallel++) {
        for (int64_t n = 1; n < 10000; n++) {
            struct rig r;
            memset(&r, 0, sizeof r);
            rig_init(&r, false, parallel != 0);
            ggml_backend_sched_free(r.sched);
            berth_alloc_watch(true);
            berth_alloc_fail_at(n);
            r.sched                 = ggml_backend_sched_new(r.backends, NULL, 4, 64, parallel != 0, false);
            enum ggml_status status = r.sched != NULL ? compute(&r, 1.0f) : GGML_STATUS_ALLOC_FAILED;
            const bool hit          = berth_alloc_made() >= n - 1; // the one that fails is not made
            berth_alloc_fail_at(0);
            if (r.sched != NULL) {
                const int n_copies = ggml_backend_sched_get_n_copies(r.sched);
                assert_true(status == GGML_STATUS_SUCCESS || n_copies <= 4);
                ggml_backend_sched_synchronize(r.sched); // what a backend keeps is told
                assert_works(&r, 3.0f);
            }
            ggml_backend_sched_free(r.sched);
            r.sched = NULL;
            if (berth_alloc_alive() > r_alive(&r)) {
                fail_msg("%lld allocations are left when number %lld fails", (long long) berth_alloc_alive(), (long long) n);
            }
            berth_alloc_watch(false);
            rig_fini(&r);
            if (!hit) {
                assert_int_equal(status, GGML_STATUS_SUCCESS);
                print_message("each of %lld allocations failed once\n", (long long) n - 1);
                break;
            }
        }
    }
}

// ---- memory of devices ----

static void every_buffer_may_fail(void **state) {
    (void) state;
    for (int parallel = 0; parallel < 2; parallel++) {
        for (int d = 0; d < 3; d++) {
            struct rig r;
            rig_init(&r, false, parallel != 0);
            r.dev[d].fail_alloc_at  = 1;
            enum ggml_status status = compute(&r, 1.0f);
            // with copies to give up it is tried again with fewer
            assert_int_equal(status, parallel ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED);
            assert_int_equal(ggml_backend_sched_get_n_copies(r.sched), parallel ? 3 : 1);
            assert_works(&r, 2.0f);
            rig_fini(&r);
        }
    }
}

static void a_graph_too_large_is_forgotten(void **state) {
    (void) state;
    struct rig r;
    rig_init(&r, false, false);
    assert_works(&r, 1.0f);
    r.dev[1].max_size = 4096; // chunks of it: a tensor of more cannot be had
    ggml_free(r.ctx);
    graph_new(&r, 1 << 15);
    r.dev[0].fail_alloc_at        = 1;
    const enum ggml_status status = compute(&r, 1.0f);
    (void) status; // the old buffer may go to make room
    ggml_free(r.ctx);
    graph_new(&r, WIDTH);
    r.dev[0].fail_alloc_at = 0;
    assert_works(&r, 4.0f);
    rig_fini(&r);
}

// ---- computing and copying ----

static void a_failed_compute_is_told(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) { // at once; in a thread; in a pipeline
        for (int d = 0; d < 3; d++) {
            for (int at = 1; at <= 3; at++) {
                struct rig r;
                rig_init(&r, kind > 0, kind > 1);
                assert_works(&r, 1.0f);
                r.dev[d].fail_compute_at      = at;
                const enum ggml_status status = compute(&r, 2.0f);
                assert_int_equal(status, GGML_STATUS_FAILED);
                assert_non_null(strstr(berth_last_error(), r.dev[d].name));
                assert_works(&r, 3.0f);
                rig_fini(&r);
            }
        }
    }
}

static void a_failed_copy_is_told(void **state) {
    (void) state;
    for (int kind = 0; kind < 3; kind++) {
        struct rig r;
        rig_init(&r, kind > 0, kind > 1);
        assert_works(&r, 1.0f);
        r.dev[1].fail_set_at          = 2; // beta has no copies of its own: the host writes
        const enum ggml_status status = compute(&r, 2.0f);
        assert_int_equal(status, GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "beta"));
        assert_works(&r, 3.0f);
        rig_fini(&r);
    }
}

// Several graphs in flight, the one in the middle fails: it is told at the next synchronize.
static void a_pipeline_survives_a_failure(void **state) {
    (void) state;
    struct rig r;
    rig_init(&r, true, true);
    const float one[WIDTH] = {1};
    for (int i = 0; i < 6; i++) {
        ggml_backend_sched_reset(r.sched);
        choose(&r);
        if (!ggml_backend_sched_alloc_graph(r.sched, r.graph)) {
            break;
        }
        ggml_backend_tensor_set(r.x, one, 0, sizeof one);
        if (i == 2) {
            r.dev[2].fail_compute_at = 1;
        }
        if (ggml_backend_sched_graph_compute_async(r.sched, r.graph) != GGML_STATUS_SUCCESS) {
            assert_non_null(strstr(berth_last_error(), "gamma"));
            r.dev[2].fail_compute_at = 0;
            break;
        }
        if (i == 5) {
            assert_int_equal(berth_sched_synchronize(r.sched), GGML_STATUS_FAILED);
            assert_non_null(strstr(berth_last_error(), "gamma"));
        }
    }
    ggml_backend_sched_synchronize(r.sched);
    assert_works(&r, 5.0f);
    rig_fini(&r);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_buffer_may_fail),
        cmocka_unit_test(a_graph_too_large_is_forgotten),
        cmocka_unit_test(a_failed_compute_is_told),
        cmocka_unit_test(a_failed_copy_is_told),
        cmocka_unit_test(a_pipeline_survives_a_failure),
    };
    return cmocka_run_group_tests_name("sched_fault", tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// test_sched_early.c: weights of the host that are copied to a device while it computes (src/sched/early.c): results, order, memory
// limits, failures, and when copies are not early.

#include "support/host_weights.h"

static void all_weights_but_the_first_are_copied_early(void **state) {
    struct host_world *t = *state;
    for (int run = 1; run <= 3; run++) {
        host_check(t);
        assert_int_equal(t->dev.n_async_sets, run * (N_WEIGHTS - 1));
    }
    assert_int_equal(host_count_explained(t, "split before"), N_WEIGHTS - 1);
    struct berth_sched_stats stats;
    berth_sched_stats(t->sched, &stats);
    assert_int_equal(stats.n_copied, 3 * (N_WEIGHTS + 1)); // and x
    assert_int_equal(stats.n_planned, 1);
}

static void wait_until(atomic_int *counter, int n) {
    while (atomic_load(counter) < n) { // the test's time limit ends this loop if the counter does not reach n
        usleep(1000);
    }
}

// While the device cannot compute, the copy for the second split ends, because it needs none of the device's results. The copy for
// the third split does not start: the first split may use its memory.
static void a_copy_runs_beside_the_split_before(void **state) {
    struct host_world *t = *state;
    const float *want = host_expected(t);
    static float result[N * N];
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    pthread_mutex_lock(&t->dev.compute_lock);
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(t->sched, t->graph);
    wait_until(&t->dev.n_async_sets_done, 1);
    usleep(20000);
    const int n_done = t->dev.n_async_sets_done;
    pthread_mutex_unlock(&t->dev.compute_lock);
    assert_int_equal(status, GGML_STATUS_SUCCESS);
    assert_int_equal(n_done, 1);
    assert_int_equal(berth_sched_synchronize(t->sched), GGML_STATUS_SUCCESS);
    assert_int_equal(t->dev.n_async_sets_done, N_WEIGHTS - 1);
    ggml_backend_tensor_get(t->out, result, 0, sizeof result);
    assert_memory_equal(result, want, sizeof result);
}

static int n_done_beside_op; // copies that ended before the custom op did

static void wait_for_copy(struct ggml_tensor *to, const struct ggml_tensor *from, int ith, int nth, void *user) {
    const struct host_world *t = user;
    (void) ith, (void) nth;
    for (int i = 0; i < 5000 && atomic_load(&t->dev.n_async_sets_done) == 0; i++) {
        usleep(1000);
    }
    n_done_beside_op = atomic_load(&t->dev.n_async_sets_done);
    memcpy(to->data, from->data, ggml_nbytes(to));
}

// The CPU returns when it has computed. So the copy for the split of the device starts before the split of the CPU.
static void a_copy_runs_beside_the_cpu(void **state) {
    struct host_world *t = *state;
    struct ggml_tensor *own = ggml_map_custom1(t->ctx, t->x, wait_for_copy, 1, t);
    struct ggml_tensor *out = ggml_mul_mat(t->ctx, t->w[0], own);
    struct ggml_cgraph *graph = ggml_new_graph(t->ctx);
    ggml_set_output(out);
    ggml_build_forward_expand(graph, out);
    ggml_backend_sched_set_tensor_backend(t->sched, own, t->backends[1]);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, graph));
    assert_int_equal(ggml_backend_sched_get_n_splits(t->sched), 2);
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute(t->sched, graph), GGML_STATUS_SUCCESS);
    assert_int_equal(n_done_beside_op, 1);
}

// The program has queued a graph on the device, without the scheduler. It may use the memory of an early copy.
static void early_copies_wait_for_work_of_the_program(void **state) {
    struct host_world *t = *state;
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    struct ggml_context *own_ctx = ggml_init(params), *ctx = ggml_init(params);
    struct ggml_tensor *x = ggml_new_tensor_2d(own_ctx, GGML_TYPE_F32, N, N), *y = ggml_tanh(own_ctx, x);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(own_ctx, t->backends[0]);
    struct ggml_cgraph *own = ggml_new_graph(own_ctx), *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(own, y);
    struct ggml_tensor *out = ggml_mul_mat(ctx, t->w[1], ggml_tanh(ctx, ggml_mul_mat(ctx, t->w[0], x))); // x is on the device
    ggml_set_output(out);
    ggml_build_forward_expand(graph, out);
    rg_fill(x, 100);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, graph));

    pthread_mutex_lock(&t->dev.compute_lock);
    const enum ggml_status own_status = ggml_backend_graph_compute_async(t->backends[0], own);
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(t->sched, graph);
    usleep(20000);
    const int n_done = t->dev.n_async_sets_done;
    pthread_mutex_unlock(&t->dev.compute_lock);
    assert_int_equal(own_status, GGML_STATUS_SUCCESS);
    assert_int_equal(status, GGML_STATUS_SUCCESS);
    assert_int_equal(t->dev.n_async_sets, 1);
    assert_int_equal(n_done, 0);
    assert_int_equal(berth_sched_synchronize(t->sched), GGML_STATUS_SUCCESS);
    assert_int_equal(t->dev.n_async_sets_done, 1);
    ggml_backend_buffer_free(buffer);
    ggml_free(own_ctx);
    ggml_free(ctx);
}

// A weight that a node of the graph writes is copied after that node.
static void written_weights_are_copied_late(void **state) {
    struct host_world *t = *state;
    static float result[N * N], want[N * N];
    for (int run = 0; run < 2; run++) {
        host_sched_renew(t);
        rg_fill(t->w[2], 2);
        ggml_graph_clear(t->graph);
        ggml_build_forward_expand(t->graph, ggml_scale_inplace(t->ctx, t->w[2], 0.5f));
        ggml_build_forward_expand(t->graph, t->out);
        if (run == 0) {
            host_compute(t, result);
            continue;
        }
        for (int i = 0; i < ggml_graph_n_nodes(t->graph); i++) {
            ggml_backend_sched_set_tensor_backend(t->sched, ggml_graph_node(t->graph, i), t->backends[1]);
        }
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get(t->out, want, 0, sizeof want);
    }
    assert_int_equal(t->dev.n_async_sets, N_WEIGHTS - 1); // all except w[2]
    assert_memory_equal(result, want, sizeof result);
}

static void copies_are_late_where_they_must_be(void **state) {
    struct host_world *t = *state;
    static const char off[] = "BERTH_SCHED_EARLY_COPIES";
    setenv(off, "0", 1);
    host_sched_renew(t);
    unsetenv(off);
    host_check(t);
    assert_int_equal(t->dev.n_async_sets, 0);
    assert_int_equal(host_count_explained(t, "split before"), 0);

    t->dev.backend.iface.event_wait = NULL; // a device without events
    host_sched_renew(t);
    host_check(t);
    assert_int_equal(t->dev.n_async_sets, 0);
    t->dev.backend.iface.event_wait = device_event_wait;

    host_sched_renew(t);
    berth_sched_set_n_copies(t->sched, 2); // with several graphs in flight, copies have memory of their own
    host_check(t);
    assert_int_equal(t->dev.n_async_sets, 0);

    host_sched_renew(t); // while the scheduler traces, it waits after each split
    assert_int_equal(berth_sched_trace_start(t->sched), GGML_STATUS_SUCCESS);
    host_check(t);
    assert_int_equal(t->dev.n_async_sets, 0);
    FILE *file = tmpfile();
    assert_int_equal(berth_sched_trace_stop(t->sched, file), GGML_STATUS_SUCCESS);
    fclose(file);
    host_check(t);
    assert_int_equal(t->dev.n_async_sets, N_WEIGHTS - 1);
}

static void early_copies_end_where_memory_does_not_suffice(void **state) {
    struct host_world *t = *state;
    size_t early[2], late[2];
    ggml_backend_sched_reserve_size(t->sched, t->graph, early);
    setenv("BERTH_SCHED_EARLY_COPIES", "0", 1);
    host_sched_renew(t);
    unsetenv("BERTH_SCHED_EARLY_COPIES");
    ggml_backend_sched_reserve_size(t->sched, t->graph, late);
    assert_true(late[0] < early[0] && late[0] + ggml_nbytes(t->w[0]) >= early[0]);

    host_sched_renew(t);
    berth_sched_set_memory_limit(t->sched, t->backends[0], early[0] - 1);
    host_check(t);
    assert_int_equal(host_count_explained(t, "split before"), 0);
    assert_int_equal(ggml_backend_sched_get_buffer_size(t->sched, t->backends[0]), late[0]);
    assert_true(ggml_backend_sched_reserve(t->sched, t->graph));

    host_sched_renew(t);
    t->dev.fail_alloc_at = 1; // the device has no memory for early copies
    assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
    assert_int_equal(ggml_backend_sched_get_buffer_size(t->sched, t->backends[0]), late[0]);
    host_check(t);
    assert_int_equal(t->dev.n_async_sets, 0);

    host_sched_renew(t);
    berth_sched_set_memory_limit(t->sched, t->backends[0], late[0] - 1);
    assert_false(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    assert_non_null(strstr(berth_last_error(), "memory limit"));
}

static void every_failing_copy_is_reported(void **state) {
    struct host_world *t = *state;
    host_check(t);
    for (int at = 1; at <= N_WEIGHTS + 1; at++) { // x, and all weights
        ggml_backend_sched_reset(t->sched);
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        t->dev.fail_set_at = at;
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "device"));
        assert_int_equal(t->dev.fail_set_at, 0);
        host_check(t);
    }
}

// A split that fails while copies for the next one run: the copies end before compute returns.
static void copies_end_before_a_failure_is_returned(void **state) {
    struct host_world *t = *state;
    host_check(t);
    for (int at = 1; at <= N_WEIGHTS; at++) {
        ggml_backend_sched_reset(t->sched);
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        t->dev.fail_compute_at = at;
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_FAILED);
        assert_int_equal(t->dev.n_async_sets, t->dev.n_async_sets_done);
        host_check(t);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_weights_but_the_first_are_copied_early, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_copy_runs_beside_the_split_before, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_copy_runs_beside_the_cpu, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(early_copies_wait_for_work_of_the_program, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(written_weights_are_copied_late, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(copies_are_late_where_they_must_be, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(early_copies_end_where_memory_does_not_suffice, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(every_failing_copy_is_reported, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(copies_end_before_a_failure_is_returned, host_setup, host_teardown),
    };
    return cmocka_run_group_tests_name("test_sched_early", tests, NULL, NULL);
}

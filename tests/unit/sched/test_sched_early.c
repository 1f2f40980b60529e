// SPDX-License-Identifier: MIT
// test_sched_early.c: weights of the host that are copied to a device while it computes (src/sched/early.c): results, order, memory
// limits, failures, and when copies are not early.

#include "support/device_graph.h"

enum { N = 64, N_WEIGHTS = 6 };

struct world {
    struct device dev;
    ggml_backend_t backends[2]; // the device, the CPU
    struct ggml_context *weights_ctx, *ctx;
    ggml_backend_buffer_t buffer; // the weights, in host memory
    struct ggml_tensor *w[N_WEIGHTS], *x, *out;
    struct ggml_cgraph *graph;
    ggml_backend_sched_t sched;
};

// out = w[5] * (... * (w[0] * x))
static void graph_new(struct world *t) {
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    t->ctx = ggml_init(params);
    t->graph = ggml_new_graph(t->ctx);
    t->x = ggml_set_name(ggml_new_tensor_2d(t->ctx, GGML_TYPE_F32, N, N), "x");
    ggml_set_input(t->x);
    t->out = t->x;
    for (int i = 0; i < N_WEIGHTS; i++) {
        t->out = ggml_tanh(t->ctx, ggml_mul_mat(t->ctx, t->w[i], t->out));
    }
    ggml_set_output(t->out);
    ggml_build_forward_expand(t->graph, t->out);
}

static int setup(void **state) {
    static struct world world;
    struct world *t = &world;
    memset(t, 0, sizeof *t);
    device_init(&t->dev, "device");
    t->dev.is_async = t->dev.has_events = true;
    t->dev.offload_batch = 2;
    t->backends[0] = device_start(&t->dev);
    t->backends[1] = ggml_backend_cpu_init();
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    t->weights_ctx = ggml_init(params);
    for (int i = 0; i < N_WEIGHTS; i++) {
        t->w[i] = ggml_format_name(ggml_new_tensor_2d(t->weights_ctx, GGML_TYPE_F32, N, N), "w%d", i);
    }
    t->buffer = ggml_backend_alloc_ctx_tensors(t->weights_ctx, t->backends[1]);
    ggml_backend_buffer_set_usage(t->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int i = 0; i < N_WEIGHTS; i++) {
        rg_fill(t->w[i], (uint64_t) i);
    }
    graph_new(t);
    t->sched = ggml_backend_sched_new(t->backends, NULL, 2, 64, false, true);
    *state = t;
    return t->sched != NULL ? 0 : -1;
}

static int teardown(void **state) {
    struct world *t = *state;
    ggml_backend_sched_free(t->sched);
    ggml_free(t->ctx);
    ggml_free(t->weights_ctx);
    ggml_backend_buffer_free(t->buffer);
    const int n_buffers = t->dev.n_buffers;
    device_stop(&t->dev);
    ggml_backend_free(t->backends[1]);
    return n_buffers == 0 ? 0 : -1;
}

static void graph_renew(struct world *t) {
    ggml_free(t->ctx);
    graph_new(t);
}

static void renew_sched(struct world *t) {
    ggml_backend_sched_free(t->sched);
    t->sched = ggml_backend_sched_new(t->backends, NULL, 2, 64, false, true);
    assert_non_null(t->sched);
    graph_renew(t);
}

static void compute(struct world *t, float *result) {
    ggml_backend_sched_reset(t->sched);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t->out, result, 0, ggml_nbytes(t->out));
}

// Computes with a scheduler that has only the CPU, and makes a new graph.
static const float *expected(struct world *t) {
    static float result[N * N];
    graph_renew(t);
    ggml_backend_sched_t sched = ggml_backend_sched_new(&t->backends[1], NULL, 1, 64, false, false);
    assert_true(ggml_backend_sched_alloc_graph(sched, t->graph));
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute(sched, t->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t->out, result, 0, sizeof result);
    ggml_backend_sched_free(sched);
    graph_renew(t);
    return result;
}

static void check_result(struct world *t) {
    static float result[N * N];
    const float *want = expected(t);
    compute(t, result);
    assert_memory_equal(result, want, sizeof result);
}

// The number of inputs that the explained graph copies early.
static int n_explained(struct world *t) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_sched_explain_text(t->sched, file), GGML_STATUS_SUCCESS);
    assert_int_equal(fclose(file), 0);
    int n = 0;
    for (const char *at = strstr(text, "split before"); at != NULL; at = strstr(at + 1, "split before")) {
        n++;
    }
    free(text);
    return n;
}

static void all_weights_but_the_first_are_copied_early(void **state) {
    struct world *t = *state;
    for (int run = 1; run <= 3; run++) {
        check_result(t);
        assert_int_equal(t->dev.n_async_sets, run * (N_WEIGHTS - 1));
    }
    assert_int_equal(n_explained(t), N_WEIGHTS - 1);
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
    struct world *t = *state;
    const float *want = expected(t);
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

// The program has queued a graph on the device, without the scheduler. It may use the memory of an early copy.
static void early_copies_wait_for_work_of_the_program(void **state) {
    struct world *t = *state;
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
    struct world *t = *state;
    static float result[N * N], want[N * N];
    for (int run = 0; run < 2; run++) {
        renew_sched(t);
        rg_fill(t->w[2], 2);
        ggml_graph_clear(t->graph);
        ggml_build_forward_expand(t->graph, ggml_scale_inplace(t->ctx, t->w[2], 0.5f));
        ggml_build_forward_expand(t->graph, t->out);
        if (run == 0) {
            compute(t, result);
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
    struct world *t = *state;
    static const char off[] = "BERTH_SCHED_EARLY_COPIES";
    setenv(off, "0", 1);
    renew_sched(t);
    unsetenv(off);
    check_result(t);
    assert_int_equal(t->dev.n_async_sets, 0);
    assert_int_equal(n_explained(t), 0);

    t->dev.backend.iface.event_wait = NULL; // a device without events
    renew_sched(t);
    check_result(t);
    assert_int_equal(t->dev.n_async_sets, 0);
    t->dev.backend.iface.event_wait = device_event_wait;

    renew_sched(t);
    berth_sched_set_n_copies(t->sched, 2); // with several graphs in flight, copies have memory of their own
    check_result(t);
    assert_int_equal(t->dev.n_async_sets, 0);

    renew_sched(t); // while the scheduler traces, it waits after each split
    assert_int_equal(berth_sched_trace_start(t->sched), GGML_STATUS_SUCCESS);
    check_result(t);
    assert_int_equal(t->dev.n_async_sets, 0);
    FILE *file = tmpfile();
    assert_int_equal(berth_sched_trace_stop(t->sched, file), GGML_STATUS_SUCCESS);
    fclose(file);
    check_result(t);
    assert_int_equal(t->dev.n_async_sets, N_WEIGHTS - 1);
}

static void early_copies_end_where_memory_does_not_suffice(void **state) {
    struct world *t = *state;
    size_t early[2], late[2];
    ggml_backend_sched_reserve_size(t->sched, t->graph, early);
    setenv("BERTH_SCHED_EARLY_COPIES", "0", 1);
    renew_sched(t);
    unsetenv("BERTH_SCHED_EARLY_COPIES");
    ggml_backend_sched_reserve_size(t->sched, t->graph, late);
    assert_true(late[0] < early[0] && late[0] + ggml_nbytes(t->w[0]) >= early[0]);

    renew_sched(t);
    berth_sched_set_memory_limit(t->sched, t->backends[0], early[0] - 1);
    check_result(t);
    assert_int_equal(n_explained(t), 0);
    assert_int_equal(ggml_backend_sched_get_buffer_size(t->sched, t->backends[0]), late[0]);
    assert_true(ggml_backend_sched_reserve(t->sched, t->graph));

    renew_sched(t);
    t->dev.fail_alloc_at = 1; // the device has no memory for early copies
    assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
    assert_int_equal(ggml_backend_sched_get_buffer_size(t->sched, t->backends[0]), late[0]);
    check_result(t);
    assert_int_equal(t->dev.n_async_sets, 0);

    renew_sched(t);
    berth_sched_set_memory_limit(t->sched, t->backends[0], late[0] - 1);
    assert_false(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    assert_non_null(strstr(berth_last_error(), "memory limit"));
}

static void every_failing_copy_is_reported(void **state) {
    struct world *t = *state;
    check_result(t);
    for (int at = 1; at <= N_WEIGHTS + 1; at++) { // x, and all weights
        ggml_backend_sched_reset(t->sched);
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        t->dev.fail_set_at = at;
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "device"));
        assert_int_equal(t->dev.fail_set_at, 0);
        check_result(t);
    }
}

// A split that fails while copies for the next one run: the copies end before compute returns.
static void copies_end_before_a_failure_is_returned(void **state) {
    struct world *t = *state;
    check_result(t);
    for (int at = 1; at <= N_WEIGHTS; at++) {
        ggml_backend_sched_reset(t->sched);
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        t->dev.fail_compute_at = at;
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_FAILED);
        assert_int_equal(t->dev.n_async_sets, t->dev.n_async_sets_done);
        check_result(t);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_weights_but_the_first_are_copied_early, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copy_runs_beside_the_split_before, setup, teardown),
        cmocka_unit_test_setup_teardown(early_copies_wait_for_work_of_the_program, setup, teardown),
        cmocka_unit_test_setup_teardown(written_weights_are_copied_late, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_are_late_where_they_must_be, setup, teardown),
        cmocka_unit_test_setup_teardown(early_copies_end_where_memory_does_not_suffice, setup, teardown),
        cmocka_unit_test_setup_teardown(every_failing_copy_is_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_end_before_a_failure_is_returned, setup, teardown),
    };
    return cmocka_run_group_tests_name("test_sched_early", tests, NULL, NULL);
}

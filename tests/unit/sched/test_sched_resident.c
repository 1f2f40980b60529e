// SPDX-License-Identifier: MIT
// test_sched_resident.c: copies of weights of the host that stay in the memory of a device (src/sched/resident.c): results, copied
// bytes, limits, changed weights, failures.

#include "support/host_weights.h"

#include "backend/backend.h"

#include <pthread.h>

#define ALL ((size_t) 1 << 30)

static size_t weight_size(struct host_world *t) {
    return ggml_nbytes(t->w[0]);
}

static void resident_init(struct host_world *t, size_t limit) {
    berth_sched_set_resident_limit(t->sched, t->backends[0], limit);
}

static struct berth_sched_stats stats_of(struct host_world *t) {
    struct berth_sched_stats stats;
    berth_sched_stats(t->sched, &stats);
    return stats;
}

// Computes once and returns the number of copied tensors.
static int64_t copies_counted(struct host_world *t) {
    const int64_t before = stats_of(t).n_copied;
    host_check(t);
    return stats_of(t).n_copied - before;
}

// Computes one column, which the device does not offload, and returns the number of ops that the device computed.
static int single_counted(struct host_world *t) {
    const int n_columns = t->n_columns, before = t->dev.n_computes;
    t->n_columns = 1;
    host_check(t);
    t->n_columns = n_columns;
    return t->dev.n_computes - before;
}

static void weights_are_copied_once(void **state) {
    struct host_world *t = *state;
    resident_init(t, ALL);
    assert_int_equal(single_counted(t), 0); // on the host, because nothing has been copied yet
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(host_count_explained(t, ", becomes resident"), 0);
    assert_int_equal(stats_of(t).resident_size, N_WEIGHTS * weight_size(t));
    for (int run = 0; run < 3; run++) {
        assert_int_equal(copies_counted(t), 1); // x
        assert_true(single_counted(t) > 0);
    }
    assert_int_equal(host_count_explained(t, ", resident"), N_WEIGHTS);
    assert_int_equal(ggml_backend_sched_get_n_splits(t->sched), 1);
    resident_init(t, 0);
    assert_int_equal(stats_of(t).resident_size, 0);
    assert_int_equal(single_counted(t), 0);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
}

// The program computes the same graph again and again, without a reset.
static void a_graph_changes_its_splits_when_copies_are_filled(void **state) {
    struct host_world *t = *state;
    static float result[N * N];
    const float *want = host_expected(t);
    resident_init(t, ALL);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    for (int run = 0; run < 3; run++) {
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get(t->out, result, 0, sizeof result);
        assert_memory_equal(result, want, sizeof result);
        assert_int_equal(ggml_backend_sched_get_n_splits(t->sched), run == 0 ? N_WEIGHTS : 1);
        memset(result, 0, sizeof result);
    }
}

static void the_first_weights_are_resident_within_the_limit(void **state) {
    struct host_world *t = *state;
    size_t size_without = 0;
    for (int n = 0; n <= N_WEIGHTS; n++) {
        host_sched_renew(t);
        resident_init(t, (size_t) n * weight_size(t) + 1);
        assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
        assert_int_equal(copies_counted(t), N_WEIGHTS + 1 - n);
        assert_int_equal(stats_of(t).resident_size, (size_t) n * weight_size(t));
        assert_int_equal(single_counted(t) > 0, n > 0);
        assert_int_equal(copies_counted(t), N_WEIGHTS + 1 - n);
        const size_t size = ggml_backend_sched_get_buffer_size(t->sched, t->backends[0]);
        if (n == 0) {
            size_without = size;
        }
        assert_true(n < N_WEIGHTS ? size <= size_without : size < size_without); // resident copies have memory of their own
    }
}

static void the_environment_sets_the_limit(void **state) {
    struct host_world *t = *state;
    static const char name[] = "BERTH_SCHED_RESIDENT";
    setenv(name, "64K", 1);
    host_sched_renew(t);
    host_check(t);
    assert_int_equal(stats_of(t).resident_size, 64 << 10);
    setenv(name, "many", 1);
    host_sched_renew(t);
    unsetenv(name);
    host_check(t);
    assert_int_equal(stats_of(t).resident_size, 0);
    resident_init(t, 0);
    berth_sched_set_resident_limit(t->sched, t->backends[1], ALL);
    assert_non_null(strstr(berth_last_error(), "host"));
    berth_sched_set_resident_limit(t->sched, NULL, ALL);
    assert_non_null(strstr(berth_last_error(), "does not belong"));
}

// Half of the memory that is free once the compute buffers of the first graph are allocated.
static void the_automatic_limit_is_half_of_the_free_memory(void **state) {
    struct host_world *t = *state;
    t->dev.n_total = t->dev.n_free = 8 * weight_size(t) + 2;
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(stats_of(t).resident_size, 0); // the default of a device that cannot reserve
    resident_init(t, BERTH_SCHED_RESIDENT_AUTO);
    assert_int_equal(single_counted(t), 0); // copies no weights, so it has no resident copies
    t->dev.n_free -= 2 * weight_size(t);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(stats_of(t).resident_size, 3 * weight_size(t));
    t->dev.n_free = t->dev.n_total;
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1 - 3);
    assert_int_equal(stats_of(t).resident_size, 3 * weight_size(t));

    setenv("BERTH_SCHED_RESIDENT", "auto", 1);
    host_sched_renew(t);
    unsetenv("BERTH_SCHED_RESIDENT");
    host_check(t);
    assert_int_equal(stats_of(t).resident_size, 0);
}

// A graph that copies no weight fills the copies before it runs, and then runs on the device.
static void a_small_batch_fills_reserved_copies(void **state) {
    struct host_world *t = *state;
    for (int run = 0; run < 2; run++) {
        host_sched_renew(t);
        resident_init(t, run == 0 ? ALL : 2 * weight_size(t));
        assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
        const int64_t n_before = stats_of(t).n_copied;
        assert_true(single_counted(t) > 0);
        assert_int_equal(stats_of(t).n_copied - n_before, run == 0 ? N_WEIGHTS + 1 : 2 + 2); // with x, and back to the host
        assert_true(single_counted(t) > 0);
        assert_int_equal(copies_counted(t), run == 0 ? 1 : N_WEIGHTS - 2 + 1);
    }
    for (int at = 1; at <= N_WEIGHTS; at++) {
        host_sched_renew(t);
        resident_init(t, ALL);
        assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
        t->n_columns = 1;
        host_graph_renew(t);
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        t->dev.fail_set_at = at;
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_FAILED);
        t->dev.fail_set_at = 0;
        assert_true(single_counted(t) > 0);
        t->n_columns = N;
        assert_int_equal(copies_counted(t), 1);
    }
}

// ---- memory that another allocation needs ----

static bool alloc_is_possible(struct host_world *t) {
    t->dev.fail_alloc_at = 1;
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(&t->dev.buft, 64);
    const bool is_possible = buffer != NULL;
    t->dev.fail_alloc_at = 0;
    ggml_backend_buffer_free(buffer);
    return is_possible;
}

static void a_failed_allocation_frees_resident_copies(void **state) {
    struct host_world *t = *state;
    static float result[N * N];
    resident_init(t, ALL);
    host_check(t);
    host_check(t);
    host_graph_renew(t);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    assert_true(stats_of(t).resident_size > 0);
    assert_true(alloc_is_possible(t));
    assert_int_equal(stats_of(t).resident_size, 0);
    assert_int_equal(host_count_explained(t, "resident"), 0);
    const float *want = host_expected(t);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t->out, result, 0, sizeof result);
    assert_memory_equal(result, want, sizeof result);
    assert_false(alloc_is_possible(t)); // nothing is left to free
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(stats_of(t).resident_size, 0);
}

// The memory of an allocated graph changes before it is computed. Its inputs stay.
static void inputs_survive_freed_copies(void **state) {
    struct host_world *t = *state;
    static float result[N * N], want[N * N];
    memcpy(want, host_expected(t), sizeof want);
    resident_init(t, ALL);
    host_check(t);
    host_check(t);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    assert_true(alloc_is_possible(t));
    assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t->out, result, 0, sizeof result);
    assert_memory_equal(result, want, sizeof result);
    assert_int_equal(ggml_backend_sched_get_n_splits(t->sched), N_WEIGHTS);
}

static bool alloc_while_running(struct ggml_tensor *tensor, bool ask, void *user) {
    struct host_world *t = user;
    (void) tensor;
    assert_false(alloc_is_possible(t));
    return !ask;
}

static void a_running_graph_keeps_its_copies(void **state) {
    struct host_world *t = *state;
    resident_init(t, ALL);
    host_check(t);
    const int64_t size = stats_of(t).resident_size;
    ggml_backend_sched_set_eval_callback(t->sched, alloc_while_running, t);
    host_check(t);
    ggml_backend_sched_set_eval_callback(t->sched, NULL, NULL);
    assert_int_equal(stats_of(t).resident_size, size);
    assert_int_equal(copies_counted(t), 1);
}

// Freeing the copies would wait for the backends, which the program may be using or freeing.
static void copies_of_graphs_in_flight_are_kept(void **state) {
    struct host_world *t = *state;
    resident_init(t, ALL);
    host_check(t);
    host_graph_renew(t);
    ggml_backend_sched_reset(t->sched);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute_async(t->sched, t->graph), GGML_STATUS_SUCCESS);
    assert_false(alloc_is_possible(t));
    assert_int_equal(stats_of(t).resident_size, N_WEIGHTS * weight_size(t));
    ggml_backend_sched_synchronize(t->sched);
    assert_true(alloc_is_possible(t));
    assert_int_equal(stats_of(t).resident_size, 0);
}

// A buffer that the program can do without frees no copies of other schedulers.
static void optional_allocations_free_no_copies(void **state) {
    struct host_world *t = *state;
    ggml_backend_sched_t first = t->sched;
    resident_init(t, ALL);
    host_check(t);
    const int64_t size = stats_of(t).resident_size;
    assert_true(size > 0);

    setenv("BERTH_SCHED_EARLY_COPIES", "0", 1);
    t->sched = ggml_backend_sched_new(t->backends, NULL, 2, 64, false, true);
    unsetenv("BERTH_SCHED_EARLY_COPIES");
    assert_non_null(t->sched);
    resident_init(t, ALL);
    t->dev.fail_alloc_at = 1; // resident copies
    t->n_columns = 2;
    host_check(t);
    assert_int_equal(t->dev.fail_alloc_at, 0);
    assert_int_equal(stats_of(t).resident_size, 0);
    t->dev.fail_alloc_at = 1; // a larger compute buffer beside the old one
    t->n_columns = N;
    host_check(t);
    assert_int_equal(t->dev.fail_alloc_at, 0);
    ggml_backend_sched_free(t->sched);
    t->sched = first;
    assert_int_equal(stats_of(t).resident_size, size);
    assert_true(alloc_is_possible(t));
    assert_int_equal(stats_of(t).resident_size, 0);
}

// ---- calls inside other calls ----

static void stats_are_read(ggml_backend_sched_t sched, struct ggml_cgraph *graph, const size_t *sizes, void *user) {
    (void) graph;
    (void) sizes;
    berth_sched_stats(sched, user);
}

static void a_callback_may_call_the_scheduler(void **state) {
    struct host_world *t = *state;
    struct berth_sched_stats stats = {0};
    resident_init(t, ALL);
    assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
    berth_sched_on_plan(stats_are_read, &stats);
    assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
    berth_sched_on_plan(NULL, NULL);
    assert_int_equal(stats.resident_size, N_WEIGHTS * weight_size(t));
    host_check(t);
    assert_true(alloc_is_possible(t)); // no call holds the scheduler
}

struct reclaimer {
    struct host_world *t;
    atomic_bool stop;
    atomic_int n_freed;
};

static void *reclaim_often(void *user) {
    struct reclaimer *r = user;
    while (!atomic_load(&r->stop)) {
        atomic_fetch_add(&r->n_freed, berth_reclaim(&r->t->dev.buft));
        sched_yield();
    }
    return NULL;
}

// Another thread frees the copies at any time between and during calls.
static void copies_are_freed_by_another_thread(void **state) {
    struct host_world *t = *state;
    struct reclaimer r = {.t = t};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, reclaim_often, &r), 0);
    for (int run = 0; run < 100; run++) {
        if (run % 4 == 0) {
            resident_init(t, ALL);
        }
        host_check(t);
        single_counted(t);
    }
    for (int run = 0; run < 10000 && atomic_load(&r.n_freed) == 0; run++) {
        resident_init(t, ALL);
        host_check(t);
    }
    host_sched_renew(t);
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&r.n_freed) > 0);
}

// ---- changes ----

// Each way in which a program changes weights: the next graph has the new values.
static void changed_weights_are_copied_again(void **state) {
    struct host_world *t = *state;
    static float bytes[N * N];
    resident_init(t, ALL);
    host_check(t);
    assert_int_equal(copies_counted(t), 1);

    rg_fill(t->w[1], 77); // ggml_backend_tensor_set
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(copies_counted(t), 1);
    ggml_backend_tensor_memset(t->w[2], 0, 0, 64);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    ggml_backend_tensor_copy(t->w[1], t->w[3]);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    ggml_backend_tensor_get(t->w[1], bytes, 0, sizeof bytes); // reading changes nothing
    assert_int_equal(copies_counted(t), 1);
    ggml_backend_buffer_clear(t->buffer, 0);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);

    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true}; // a node of a graph without a scheduler
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *view = ggml_view_1d(ctx, t->w[1], N, 0), *half = ggml_scale_inplace(ctx, view, 0.5f);
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_SUCCESS);
    ggml_build_forward_expand(graph, view);
    assert_int_equal(ggml_backend_graph_compute(t->backends[1], graph), GGML_STATUS_SUCCESS);
    assert_int_equal(copies_counted(t), 1);
    assert_int_equal(ggml_backend_view_init(half), GGML_STATUS_SUCCESS);
    ggml_build_forward_expand(graph, half);
    assert_int_equal(ggml_backend_graph_compute(t->backends[1], graph), GGML_STATUS_SUCCESS);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    ggml_free(ctx);
}

// Other weights at other addresses, in a graph that is otherwise equal.
static void other_weights_are_not_mistaken_for_resident_ones(void **state) {
    struct host_world *t = *state;
    resident_init(t, ALL);
    host_check(t);
    host_check(t);
    struct ggml_tensor *w = t->w[0];
    t->w[0] = t->w[1];
    t->w[1] = w;
    host_check(t);
    assert_int_equal(copies_counted(t), 1);
}

static void written_weights_are_not_resident(void **state) {
    struct host_world *t = *state;
    static float result[N * N], want[N * N];
    for (int run = 0; run < 2; run++) {
        host_sched_renew(t);
        resident_init(t, run == 0 ? ALL : 0);
        rg_fill(t->w[2], 2);
        host_compute(t, run == 0 ? result : want); // fills all copies
        host_graph_renew(t);
        for (int k = 0; k < 3; k++) { // each graph halves the weight
            ggml_graph_clear(t->graph);
            ggml_build_forward_expand(t->graph, ggml_scale_inplace(t->ctx, t->w[2], 0.5f));
            ggml_build_forward_expand(t->graph, t->out);
            const int64_t n_before = stats_of(t).n_copied;
            host_compute(t, run == 0 ? result : want);
            if (run == 0) {
                assert_int_equal(stats_of(t).n_copied - n_before, 2); // x and the written weight
            }
            host_graph_renew(t);
        }
    }
    assert_memory_equal(result, want, sizeof result);
}

// A graph of the scheduler writes a weight that has a resident copy: through another tensor at the same address, or because the
// graph has the form of an earlier graph that writes another weight.
static void copies_follow_writes_of_cached_graphs(void **state) {
    struct host_world *t = *state;
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *alias = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N, N);
    assert_int_equal(ggml_backend_tensor_alloc(t->buffer, alias, t->w[1]->data), GGML_STATUS_SUCCESS);
    resident_init(t, ALL);
    host_check(t);
    struct ggml_tensor *const written[] = {alias, t->w[2], t->w[3], t->w[4], alias};
    for (size_t k = 0; k < sizeof written / sizeof written[0]; k++) {
        host_graph_renew(t);
        ggml_graph_clear(t->graph);
        ggml_build_forward_expand(t->graph, ggml_scale_inplace(t->ctx, written[k], 0.5f));
        ggml_backend_sched_reset(t->sched);
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
        host_check(t);
        host_check(t);
    }
    ggml_free(ctx);
}

static void missing_memory_ends_resident_copies(void **state) {
    struct host_world *t = *state;
    resident_init(t, ALL);
    t->dev.fail_alloc_at = 1; // the resident copies
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(stats_of(t).resident_size, 0);

    setenv("BERTH_SCHED_EARLY_COPIES", "0", 1);
    host_sched_renew(t);
    unsetenv("BERTH_SCHED_EARLY_COPIES");
    resident_init(t, ALL);
    t->dev.fail_alloc_at = 2; // the compute buffer
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
    assert_int_equal(stats_of(t).resident_size, 0);
    assert_int_equal(t->dev.n_buffers, 1);
}

static void every_failing_copy_is_repeated(void **state) {
    struct host_world *t = *state;
    for (int at = 1; at <= N_WEIGHTS + 1; at++) { // x, and all weights
        host_sched_renew(t);
        resident_init(t, ALL);
        assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
        rg_fill(t->x, 100);
        t->dev.fail_set_at = at;
        assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_FAILED);
        assert_int_equal(copies_counted(t), N_WEIGHTS + 1);
        assert_int_equal(copies_counted(t), 1);
    }
}

// The device computes the graph of one column, which needs more memory, only after the copies have been filled.
static void a_reserve_covers_the_time_before_and_after(void **state) {
    struct host_world *t = *state;
    resident_init(t, ALL);
    for (int k = 0; k < 2; k++) {
        t->n_columns = k == 0 ? 2 : 1;
        t->n_repeats = k == 0 ? 1 : N;
        host_graph_renew(t);
        assert_true(ggml_backend_sched_reserve(t->sched, t->graph));
    }
    const int n_buffers = t->dev.n_buffers;
    assert_int_equal(stats_of(t).resident_size, N_WEIGHTS * weight_size(t));
    for (int run = 0; run < 6; run++) {
        const int n_before = t->dev.n_computes;
        t->n_columns = run % 2 == 0 ? 2 : 1;
        t->n_repeats = run % 2 == 0 ? 1 : N;
        t->dev.fail_alloc_at = 1;
        host_check(t);
        assert_int_equal(t->dev.fail_alloc_at, 1);
        assert_true(t->dev.n_computes > n_before);
    }
    t->dev.fail_alloc_at = 0;
    assert_int_equal(t->dev.n_buffers, n_buffers);
}

// Measuring allocates nothing.
static void measuring_adds_no_copies(void **state) {
    struct host_world *t = *state;
    size_t sizes[2];
    resident_init(t, ALL);
    ggml_backend_sched_reserve_size(t->sched, t->graph, sizes);
    assert_int_equal(stats_of(t).resident_size, 0);
    assert_int_equal(t->dev.n_buffers, 0);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(weights_are_copied_once, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_graph_changes_its_splits_when_copies_are_filled, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(the_first_weights_are_resident_within_the_limit, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(the_environment_sets_the_limit, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(the_automatic_limit_is_half_of_the_free_memory, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_small_batch_fills_reserved_copies, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_failed_allocation_frees_resident_copies, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(inputs_survive_freed_copies, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_running_graph_keeps_its_copies, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(copies_of_graphs_in_flight_are_kept, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(optional_allocations_free_no_copies, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_callback_may_call_the_scheduler, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(copies_are_freed_by_another_thread, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(changed_weights_are_copied_again, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(other_weights_are_not_mistaken_for_resident_ones, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(written_weights_are_not_resident, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(copies_follow_writes_of_cached_graphs, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(missing_memory_ends_resident_copies, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(every_failing_copy_is_repeated, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_reserve_covers_the_time_before_and_after, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(measuring_adds_no_copies, host_setup, host_teardown),
    };
    return cmocka_run_group_tests_name("test_sched_resident", tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// prop_budget_graph.c: random graphs under memory limits, with spills and recomputations. The results have the same bits as
// without a limit, and the memory stays within the limits. Tests run on one CPU backend with files, and on simulated devices with
// the scheduler. BERTH_SEED=n repeats a run.

#include "prop/budget_deep.h"

// ---- one backend, two buffer types ----

static ggml_gallocr_t pools_alloc(struct limited *u) {
    ggml_backend_buffer_type_t bufts[] = {u->params.buft, u->params.spill_buft};
    const int n = ggml_graph_n_nodes(u->graph);
    ggml_gallocr_t galloc = ggml_gallocr_new_n(bufts, 2);
    int *ids = calloc(2 * (size_t) n + 64, sizeof *ids);
    berth_budget_pools(u->graph, ids, n);
    assert_true(ggml_gallocr_reserve_n(galloc, u->graph, ids, ids + n));
    assert_true(ggml_gallocr_alloc_graph(galloc, u->graph));
    free(ids);
    if (!berth_gallocr_verify(galloc, u->graph)) {
        fail_msg("%s", berth_last_error());
    }
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), u->r->uses[0].peak);
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 1), u->r->uses[1].peak);
    assert_true(u->r->uses[0].peak <= u->params.memory_limit && u->r->uses[1].peak <= u->params.spill_limit);
    return galloc;
}

static void files_check(uint64_t seed, int depth, ggml_backend_t cpu, ggml_backend_buffer_type_t files, struct tally *t) {
    struct deep d;
    struct limited u;
    size_t size;
    const size_t unlimited_size = plain_run(seed, depth, cpu, &size);
    deep_init(&d, seed, depth, cpu);
    limited_init(&u, d.graph, seed, unlimited_size, ggml_backend_cpu_buffer_type(), files);
    if (u.graph != NULL) {
        ggml_gallocr_t galloc = pools_alloc(&u);
        deep_fill(&d, seed);
        assert_int_equal(ggml_backend_graph_compute(cpu, u.graph), GGML_STATUS_SUCCESS);
        results_compare(seed, depth, size, deep_results(&d, got));
        ggml_gallocr_free(galloc);
    }
    limited_fini(&u, t);
    deep_fini(&d);
}

static void test_files(void **state) {
    (void) state;
    struct tally t = {0};
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_buffer_type_t files = berth_file_buffer_type_new("/tmp");
    const uint64_t seed = check_seed(31);
    for (int i = 0; i < 24; i += check_step()) {
        files_check(seed + (uint64_t) i, 2 + i % (MAX_DEPTH - 1), cpu, files, &t);
    }
    berth_file_buffer_type_free(files);
    ggml_backend_free(cpu);
    printf("%zu within the limit, %zu spilled, %zu read back, %zu recomputed\n", t.n_kept, t.n_out, t.n_in, t.n_recomputed);
    const size_t part = check_step() == 1 ? 1 : 12; // a build that runs few seeds may get few spills
    assert_true(t.n_kept >= 12 / part && t.n_out >= 20 / part && t.n_in >= t.n_out && t.n_recomputed >= 5 / part);
    ggml_backend_buffer_type_t nowhere = berth_file_buffer_type_new("/nonexistent/folder");
    assert_null(ggml_backend_buft_alloc_buffer(nowhere, 4096));
    assert_non_null(strstr(berth_last_error(), "cannot create a file of 4096 bytes in /nonexistent/folder"));
    berth_file_buffer_type_free(nowhere);
    assert_null(berth_file_buffer_type_new(""));
}

// Ops that write into existing tensors run only once, and the tensors that they write are not spilled.
static void test_writes(void **state) {
    (void) state;
    static struct rg_world alone, world;
    static char bytes[2][RG_RESULT_SIZE];
    struct tally t = {0};
    ggml_backend_buffer_type_t files = berth_file_buffer_type_new("/tmp");
    const uint64_t seed = check_seed(33);
    for (int i = 0; i < 25; i++) {
        const struct rg_params p = {.seed = seed + (uint64_t) i, .n_nodes = 12 + i % 60};
        struct rg_graph g[2];
        struct limited u;
        rg_world_init(&alone, &p, false);
        rg_world_init(&world, &p, false);
        rg_graph_init(&g[0], &alone, &p, p.seed);
        rg_graph_init(&g[1], &world, &p, p.seed);
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        assert_true(ggml_gallocr_alloc_graph(galloc, g[0].graph));
        rg_set_inputs(&g[0], p.seed);
        assert_int_equal(ggml_backend_graph_compute(alone.cpu, g[0].graph), GGML_STATUS_SUCCESS);
        const size_t unlimited_size = ggml_gallocr_get_buffer_size(galloc, 0), size = rg_results(&g[0], &alone, bytes[0]);
        limited_init(&u, g[1].graph, p.seed, unlimited_size, ggml_backend_cpu_buffer_type(), files);
        if (u.graph != NULL) {
            ggml_gallocr_t own = pools_alloc(&u);
            rg_set_inputs(&g[1], p.seed);
            assert_int_equal(ggml_backend_graph_compute(world.cpu, u.graph), GGML_STATUS_SUCCESS);
            assert_int_equal(rg_results(&g[1], &world, bytes[1]), size);
            assert_memory_equal(bytes[0], bytes[1], size);
            ggml_gallocr_free(own);
        }
        limited_fini(&u, &t);
        ggml_gallocr_free(galloc);
        ggml_free(g[0].ctx);
        ggml_free(g[1].ctx);
        rg_world_fini(&alone);
        rg_world_fini(&world);
    }
    berth_file_buffer_type_free(files);
    printf("%zu within the limit, %zu spilled, %zu read back, %zu recomputed\n", t.n_kept, t.n_out, t.n_in, t.n_recomputed);
    assert_true(t.n_kept >= 15 && t.n_out >= 1);
}

// ---- over devices, by the scheduler ----

struct pair {
    struct device devices[2];
    ggml_backend_t backends[3];
    int n;
};

static void pair_init(struct pair *p, uint64_t seed) {
    struct check_rng rng = check_rng_new(seed ^ 0xDE71CE);
    p->n = 1 + (int) check_rng_below(&rng, 2);
    for (int i = 0; i < p->n; i++) {
        device_init(&p->devices[i], i == 0 ? "own" : "other");
        p->devices[i].is_async = check_rng_below(&rng, 3) != 0;
        p->devices[i].has_events = p->devices[i].is_async && check_rng_below(&rng, 2) == 0;
        p->devices[i].copies_async = p->devices[i].is_async && check_rng_below(&rng, 2) == 0;
        p->devices[i].delay_us = check_rng_below(&rng, 5) == 0 ? 50 : 0;
        p->backends[i] = device_start(&p->devices[i]);
    }
    p->backends[p->n] = ggml_backend_cpu_init();
}

static void pair_fini(struct pair *p) {
    for (int i = 0; i < p->n; i++) {
        assert_int_equal(p->devices[i].n_buffers, 0);
        device_stop(&p->devices[i]);
    }
    ggml_backend_free(p->backends[p->n]);
}

// Values are spilled to the second device or, without one, to the host.
static void sched_compute(
    struct limited *u, struct deep *d, struct pair *p, uint64_t seed, int depth, size_t size, struct tally *t) {
    const bool is_parallel = seed % 8 == 7;
    ggml_backend_t own = p->backends[0], other = p->backends[1];
    ggml_backend_sched_t sched = ggml_backend_sched_new(p->backends, NULL, p->n + 1, 4096, is_parallel, false);
    struct berth_sched_stats stats;
    for (int run = 0; run < 3; run++) {
        sched_begin(sched, u, own, other, seed);
        for (int i = 0; i < ggml_graph_n_nodes(u->graph); i++) {
            struct ggml_tensor *node = ggml_graph_node(u->graph, i);
            assert_ptr_equal(ggml_backend_sched_get_tensor_backend(sched, node), berth_budget_pool_of(node) == 1 ? other : own);
        }
        deep_fill(d, seed);
        assert_int_equal(ggml_backend_sched_graph_compute(sched, u->graph), GGML_STATUS_SUCCESS);
        results_compare(seed, depth, size, deep_results(d, got));
    }
    berth_sched_stats(sched, &stats);
    assert_true(
        stats.n_copied <= 3 * (int64_t) (1 + u->r->n_spilled + u->r->n_restored)); // the input and each copy, once per run
    t->n_over += !is_parallel && (ggml_backend_sched_get_buffer_size(sched, own) > u->params.memory_limit ||
                                     (p->n == 2 && ggml_backend_sched_get_buffer_size(sched, other) > u->params.spill_limit));
    ggml_backend_sched_free(sched);
}

static void test_devices(void **state) {
    (void) state;
    struct tally t = {0};
    const uint64_t seed = check_seed(32);
    for (int i = 0; i < 24; i += check_step()) {
        struct deep d;
        struct limited u;
        struct pair p;
        size_t size;
        const int depth = 2 + i % (MAX_DEPTH - 1);
        pair_init(&p, seed + (uint64_t) i);
        const size_t unlimited_size = plain_run(seed + (uint64_t) i, depth, p.backends[0], &size);
        deep_init(&d, seed + (uint64_t) i, depth, p.backends[0]);
        limited_init(&u, d.graph, seed + (uint64_t) i, unlimited_size, ggml_backend_get_default_buffer_type(p.backends[0]),
            ggml_backend_get_default_buffer_type(p.backends[1]));
        if (u.graph != NULL) {
            sched_compute(&u, &d, &p, seed + (uint64_t) i, depth, size, &t);
        }
        limited_fini(&u, &t);
        deep_fini(&d);
        pair_fini(&p);
    }
    printf("%zu within the limit, %zu spilled, %zu read back, %zu recomputed, %zu above the limit\n", t.n_kept, t.n_out, t.n_in,
        t.n_recomputed, t.n_over);
    const size_t part = check_step() == 1 ? 1 : 12; // a build that runs few seeds may get few spills
    assert_true(t.n_kept >= 12 / part && t.n_out >= 20 / part && t.n_in >= t.n_out && t.n_recomputed >= 5 / part);
    assert_int_equal(t.n_over, 0);
}

// ---- failures ----

static void test_no_memory(void **state) {
    (void) state;
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_buffer_type_t files = berth_file_buffer_type_new("/tmp");
    size_t size;
    const size_t unlimited_size = plain_run(7, 8, cpu, &size);
    bool is_over = false;
    for (int64_t at = 1; !is_over; at += 1 + at * check_step() / 8) {
        struct deep d;
        deep_init(&d, 7, 8, cpu);
        const struct berth_graph_budget_params params = {.memory_limit = unlimited_size * 3 / 4,
            .spill_buft = files,
            .spill_limit = unlimited_size,
            .spill_cost_per_byte = 0.01};
        struct ggml_context *ctx = NULL;
        struct ggml_cgraph *graph = NULL;
        struct berth_budget_result *r = NULL;
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        const enum ggml_status status = berth_graph_budget(d.graph, &params, &ctx, &graph, &r);
        is_over = berth_alloc_made() < at && status == GGML_STATUS_SUCCESS;
        berth_alloc_fail_at(0);
        assert_true(status == GGML_STATUS_SUCCESS || (ctx == NULL && graph == NULL && r == NULL));
        assert_true(!is_over || (graph != NULL && r->n_spilled > 0));
        berth_budget_free(r);
        ggml_free(ctx);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        deep_fini(&d);
    }
    berth_file_buffer_type_free(files);
    ggml_backend_free(cpu);
}

static void test_refused(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true}), *own = NULL;
    struct ggml_cgraph *graph = ggml_new_graph(ctx), *out = NULL;
    struct berth_budget_result *r = NULL;
    ggml_build_forward_expand(graph, ggml_sqr(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64)));
    struct berth_graph_budget_params params = {.memory_limit = 4096, .spill_buft = ggml_backend_cpu_buffer_type()};
    assert_int_equal(berth_graph_budget(graph, &params, &own, &out, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "cannot be spilled from CPU to CPU"));
    params.spill_buft = NULL;
    params.spill_cost_per_byte = -1;
    assert_int_equal(berth_graph_budget(graph, &params, &own, &out, &r), GGML_STATUS_FAILED);
    assert_int_equal(berth_budget_pool_of(NULL), -1);
    assert_int_equal(berth_budget_pool_of(ggml_graph_node(graph, 0)), -1);
    ggml_free(ctx);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

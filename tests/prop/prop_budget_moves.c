// SPDX-License-Identifier: MIT
// prop_budget_moves.c: spills with the scheduler: between CPU memory and files, between device and host memory, and between the
// memories of two devices. The results have the same bits as without a limit. Nothing is allocated after reserve. Each allocation
// and each copy fails once. BERTH_SEED=n repeats a run.

#include "prop/budget_deep.h"

static void test_files(void **state) {
    (void) state;
    struct tally t = {0};
    ggml_backend_t backends[] = {ggml_backend_cpu_init(), ggml_backend_cpu_init()};
    ggml_backend_buffer_type_t files = berth_file_buffer_type_new("/tmp");
    ggml_backend_buffer_type_t bufts[] = {ggml_backend_cpu_buffer_type(), files};
    const uint64_t seed = check_seed(34);
    ggml_backend_cpu_set_n_threads(backends[0], 1);
    for (uint64_t s = seed; s < seed + 24; s += (uint64_t) check_step()) {
        struct deep d;
        struct limited u;
        size_t size;
        const int depth = 2 + (int) (s % (MAX_DEPTH - 1));
        const size_t whole = plain_run(s, depth, backends[0], &size);
        deep_init(&d, s, depth, backends[0]);
        limited_init(&u, d.graph, s, whole, bufts[0], files);
        ggml_backend_sched_t sched = ggml_backend_sched_new(backends, bufts, 2, 4096, false, false);
        for (int run = 0; run < 2 && u.graph != NULL; run++) {
            sched_begin(sched, &u, backends[0], backends[1], s);
            deep_fill(&d, s);
            assert_int_equal(ggml_backend_sched_graph_compute(sched, u.graph), GGML_STATUS_SUCCESS);
            results_compare(s, depth, size, deep_results(&d, got));
            t.n_over += ggml_backend_sched_get_buffer_size(sched, backends[0]) > u.params.bytes ||
                        ggml_backend_sched_get_buffer_size(sched, backends[1]) > u.params.spill_bytes;
        }
        ggml_backend_sched_free(sched);
        limited_fini(&u, &t);
        deep_fini(&d);
    }
    berth_file_buffer_type_free(files);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    printf("%zu within the limit, %zu spilled, %zu read back, %zu recomputed, %zu above the limit\n", t.n_kept, t.n_out, t.n_in,
        t.n_recomputed, t.n_over);
    const size_t part = check_step() == 1 ? 1 : 12; // with few cases, all may be of one kind
    assert_true(t.n_kept >= 12 / part && t.n_out >= 20 / part && t.n_in >= t.n_out);
    assert_int_equal(t.n_over, 0);
}

enum { N_FAR = 24 };

// Makes a graph whose values are read again in reverse order, after much other computation.
static void far_init(struct deep *d, ggml_backend_t backend) {
    deep_weights(d, backend);
    d->x = ggml_new_tensor_2d(d->ctx, GGML_TYPE_F32, WIDTH, 64);
    ggml_set_input(d->x);
    struct ggml_tensor *forward[N_FAR] = {d->x}, *t = d->x;
    for (int i = 1; i < N_FAR; i++) {
        t = forward[i] = ggml_tanh(d->ctx, ggml_mul_mat(d->ctx, d->w[i % N_WEIGHTS], t));
    }
    for (int i = N_FAR - 1; i > 0; i--) {
        t = ggml_mul_mat(d->ctx, d->w[i % N_WEIGHTS], ggml_add(d->ctx, t, forward[i]));
    }
    d->out[d->n_out++] = ggml_sum_rows(d->ctx, ggml_view_2d(d->ctx, t, WIDTH, 1, t->nb[1], 0));
    ggml_set_output(d->out[0]);
    ggml_build_forward_expand(d->graph, d->out[0]);
}

// Limits the graph to half of its memory. A spill costs less than two products.
static struct berth_graph_budget_params far_params(
    const struct deep *d, ggml_backend_buffer_type_t own, ggml_backend_buffer_type_t other) {
    ggml_gallocr_t galloc = ggml_gallocr_new(own);
    size_t whole = 0;
    ggml_gallocr_reserve_n_size(galloc, d->graph, NULL, NULL, &whole);
    ggml_gallocr_free(galloc);
    return (struct berth_graph_budget_params){
        .bytes = whole / 2, .buft = own, .spill_buft = other, .spill_bytes = whole, .spill_cost = 8};
}

// ---- allocations and failures ----

// Spills from the CPU to files, from a device to the host, or from one device to another.
enum rig_kind { RIG_FILES, RIG_HOST, RIG_PAIR, RIG_N };

// The backends, the graph and its memory limit for one kind.
struct rig {
    enum rig_kind kind;
    struct device dev, other;
    ggml_backend_t backends[3];
    ggml_backend_buffer_type_t bufts[3];
    int n_backends;
    struct deep d;
    struct limited u;
};

static ggml_backend_t rig_device(struct device *dev, const char *name, bool copies_async) {
    device_init(dev, name);
    dev->is_async = dev->has_events = true;
    dev->copies_async = copies_async;
    return device_start(dev);
}

static void rig_init(struct rig *r, enum rig_kind kind) {
    *r = (struct rig){.kind = kind, .n_backends = kind == RIG_PAIR ? 3 : 2};
    r->backends[0] = kind == RIG_FILES ? ggml_backend_cpu_init() : rig_device(&r->dev, "far", kind == RIG_PAIR);
    r->backends[1] = kind == RIG_PAIR ? rig_device(&r->other, "farther", true) : ggml_backend_cpu_init();
    r->backends[2] = kind == RIG_PAIR ? ggml_backend_cpu_init() : NULL;
    for (int i = 0; i < r->n_backends; i++) {
        if (ggml_backend_is_cpu(r->backends[i])) {
            ggml_backend_cpu_set_n_threads(r->backends[i], 1);
        }
        r->bufts[i] = ggml_backend_get_default_buffer_type(r->backends[i]);
    }
    r->bufts[1] = kind == RIG_FILES ? berth_file_buffer_type_new("/tmp") : r->bufts[1];
    far_init(&r->d, r->backends[0]);
    r->u.params = far_params(&r->d, r->bufts[0], r->bufts[1]);
    assert_int_equal(berth_graph_budget(r->d.graph, &r->u.params, &r->u.ctx, &r->u.graph, &r->u.r), GGML_STATUS_SUCCESS);
    assert_true(r->u.r->fits && r->u.r->n_out >= 5);
}

static void rig_fini(struct rig *r) {
    berth_budget_free(r->u.r);
    ggml_free(r->u.ctx);
    deep_fini(&r->d);
    for (int i = 0; i < r->n_backends; i++) {
        if (r->backends[i] == &r->dev.backend || r->backends[i] == &r->other.backend) {
            device_stop(r->backends[i]->context);
        } else {
            ggml_backend_free(r->backends[i]);
        }
    }
    if (r->kind == RIG_FILES) {
        berth_file_buffer_type_free(r->bufts[1]);
    }
}

static ggml_backend_sched_t rig_sched(struct rig *r) {
    return ggml_backend_sched_new(r->backends, r->bufts, r->n_backends, 4096, false, false);
}

// Reserves or computes a step. False: an allocation failed.
static bool rig_step(struct rig *r, ggml_backend_sched_t sched, bool reserve, char *result) {
    ggml_backend_sched_reset(sched);
    for (int i = 0; i < ggml_graph_n_nodes(r->u.graph); i++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(r->u.graph, i), r->backends[0]);
    }
    berth_sched_set_moves(sched, r->u.graph, r->backends[0], r->backends[1]);
    if (reserve) {
        return ggml_backend_sched_reserve(sched, r->u.graph);
    }
    if (!ggml_backend_sched_alloc_graph(sched, r->u.graph)) {
        return false;
    }
    deep_fill(&r->d, 9);
    if (ggml_backend_sched_graph_compute(sched, r->u.graph) != GGML_STATUS_SUCCESS) {
        return false;
    }
    deep_results(&r->d, result);
    return true;
}

// A reserved graph is computed without any allocation.
static void no_alloc_check(enum rig_kind kind) {
    static struct rig r;
    char results[2][64] = {{0}};
    const int n_steps = (kind == RIG_PAIR ? 200 : 1000) / CHECK_PART;
    rig_init(&r, kind);
    ggml_backend_sched_t sched = rig_sched(&r);
    assert_true(rig_step(&r, sched, true, NULL));
    assert_true(rig_step(&r, sched, false, results[0])); // storing the assignment of nodes to backends allocates once
    berth_alloc_watch(true);
    for (int i = 0; i < n_steps; i++) {
        berth_alloc_fail_at(1);
        assert_true(rig_step(&r, sched, false, results[1]));
        assert_memory_equal(results[0], results[1], sizeof results[0]);
    }
    berth_alloc_fail_at(0);
    assert_int_equal(berth_alloc_made(), 0);
    berth_alloc_watch(false);
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

static void test_no_alloc(void **state) {
    (void) state;
    for (int kind = 0; kind < RIG_N; kind++) {
        no_alloc_check((enum rig_kind) kind);
    }
}

// Clears the pointers into memory of a scheduler that was freed.
static void rig_forget(struct rig *r) {
    for (int i = 0; i < ggml_graph_n_nodes(r->u.graph); i++) {
        ggml_graph_node(r->u.graph, i)->data = NULL;
        ggml_graph_node(r->u.graph, i)->buffer = NULL;
    }
    r->d.x->data = NULL;
    r->d.x->buffer = NULL;
}

// Each allocation fails once: the step fails with a status or gives the same bits, and nothing leaks.
static void memory_check(enum rig_kind kind) {
    static struct rig r;
    char results[2][64] = {{0}};
    bool is_over = false;
    rig_init(&r, kind);
    ggml_backend_sched_t first = rig_sched(&r);
    assert_true(rig_step(&r, first, false, results[0]));
    ggml_backend_sched_free(first);
    rig_forget(&r);
    for (int64_t at = 1; !is_over; at++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        ggml_backend_sched_t sched = rig_sched(&r);
        const bool ok = sched != NULL && rig_step(&r, sched, true, NULL) && rig_step(&r, sched, false, results[1]);
        is_over = ok && berth_alloc_made() < at;
        berth_alloc_fail_at(0);
        assert_true(!ok || memcmp(results[0], results[1], sizeof results[0]) == 0);
        ggml_backend_sched_free(sched);
        rig_forget(&r);
        ggml_backend_synchronize(r.backends[0]);
        berth_backend_forget(r.backends[0]);
        berth_alloc_watch(false);
    }
    rig_fini(&r);
}

static void test_no_memory(void **state) {
    (void) state;
    for (int kind = 0; kind < RIG_N; kind++) {
        memory_check((enum rig_kind) kind);
    }
}

// If a device loses a copy, the computation fails, and the next one is correct.
static void test_lost(void **state) {
    (void) state;
    static struct rig r;
    char results[2][64] = {{0}};
    rig_init(&r, RIG_PAIR);
    ggml_backend_sched_t sched = rig_sched(&r);
    assert_true(rig_step(&r, sched, false, results[0]));
    for (int at = 1; at < 6; at++) {
        r.dev.fail_copy_at = at;
        assert_false(rig_step(&r, sched, false, results[1]));
        assert_non_null(strstr(berth_last_error(), "far lost a copy of"));
        r.dev.fail_copy_at = 0;
        assert_true(rig_step(&r, sched, false, results[1]));
        assert_memory_equal(results[0], results[1], sizeof results[0]);
    }
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

// ---- several graphs, several pairs of pools ----

enum { N_LANES = 5 };

// A graph on one backend whose values are spilled to another.
struct lane {
    struct deep d;
    struct limited u;
    int own, other; // indices of backends in struct yard
    char want[64];
};

// Two devices, the host, and all graphs.
struct yard {
    struct device devices[2];
    ggml_backend_t backends[3];
    struct lane lanes[N_LANES];
};

static void lane_init(struct lane *l, struct yard *y, int own, int other, int part) {
    ggml_backend_buffer_type_t from = ggml_backend_get_default_buffer_type(y->backends[own]),
                               to = ggml_backend_get_default_buffer_type(y->backends[other]);
    *l = (struct lane){.own = own, .other = other};
    far_init(&l->d, y->backends[own]);
    l->u.params = far_params(&l->d, from, to);
    l->u.params.bytes -= l->u.params.bytes / 8 * (uint64_t) part; // a lower limit requires more spills
    assert_int_equal(berth_graph_budget(l->d.graph, &l->u.params, &l->u.ctx, &l->u.graph, &l->u.r), GGML_STATUS_SUCCESS);
    assert_true(l->u.r->fits && l->u.r->n_out >= 5);
}

// Computes the expected results on the CPU, without a limit.
static void lane_expect(struct lane *l, uint64_t seed) {
    struct deep d;
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    far_init(&d, cpu);
    assert_true(ggml_gallocr_alloc_graph(galloc, d.graph));
    deep_fill(&d, seed);
    assert_int_equal(ggml_backend_graph_compute(cpu, d.graph), GGML_STATUS_SUCCESS);
    deep_results(&d, l->want);
    deep_fini(&d);
    ggml_gallocr_free(galloc);
    ggml_backend_free(cpu);
}

static void yard_init(struct yard *y, bool is_async, bool copies_async) {
    *y = (struct yard){0};
    for (int i = 0; i < 2; i++) {
        device_init(&y->devices[i], i == 0 ? "left" : "right");
        y->devices[i].is_async = y->devices[i].has_events = is_async;
        y->devices[i].copies_async = copies_async;
        y->backends[i] = device_start(&y->devices[i]);
    }
    y->backends[2] = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(y->backends[2], 1);
    lane_init(&y->lanes[0], y, 0, 2, 0);
    lane_init(&y->lanes[1], y, 1, 2, 1);
    lane_init(&y->lanes[2], y, 0, 2, 2);
    lane_init(&y->lanes[3], y, 0, 1, 1);
    lane_init(&y->lanes[4], y, 1, 0, 0);
    for (int i = 0; i < N_LANES; i++) {
        lane_expect(&y->lanes[i], 9 + (uint64_t) i);
    }
}

static void yard_fini(struct yard *y) {
    for (int i = 0; i < N_LANES; i++) {
        berth_budget_free(y->lanes[i].u.r);
        ggml_free(y->lanes[i].u.ctx);
        deep_fini(&y->lanes[i].d);
    }
    ggml_backend_free(y->backends[2]);
    device_stop(&y->devices[0]);
    device_stop(&y->devices[1]);
}

static bool lane_step(struct yard *y, int i, ggml_backend_sched_t sched) {
    struct lane *l = &y->lanes[i];
    char result[64] = {0};
    ggml_backend_sched_reset(sched);
    for (int k = 0; k < ggml_graph_n_nodes(l->u.graph); k++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(l->u.graph, k), y->backends[l->own]);
    }
    berth_sched_set_moves(sched, l->u.graph, y->backends[l->own], y->backends[l->other]);
    if (!ggml_backend_sched_alloc_graph(sched, l->u.graph)) {
        return false;
    }
    deep_fill(&l->d, 9 + (uint64_t) i);
    if (ggml_backend_sched_graph_compute(sched, l->u.graph) != GGML_STATUS_SUCCESS) {
        return false;
    }
    deep_results(&l->d, result);
    assert_memory_equal(l->want, result, sizeof result);
    return true;
}

// Different graphs alternate in one scheduler: with as many spills as before, with more, over another pair of pools. Each gives its
// own results.
static void test_alternating_graphs(void **state) {
    (void) state;
    static const int turns[] = {0, 0, 2, 0, 2, 1, 0, 1, 0, 1, 3, 4, 3, 0, 4, 2, 1, 2, 3, 3, 0, 2, 2, 4, 1, 1};
    static struct yard y;
    yard_init(&y, true, true);
    assert_true(y.lanes[2].u.r->n_out + y.lanes[2].u.r->n_in > y.lanes[0].u.r->n_out + y.lanes[0].u.r->n_in);
    ggml_backend_sched_t sched = ggml_backend_sched_new(y.backends, NULL, 3, 4096, false, false);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        if (!lane_step(&y, turns[i], sched)) {
            fail_msg("turn %zu, graph %d: %s", i, turns[i], berth_last_error());
        }
    }
    ggml_backend_sched_free(sched);
    yard_fini(&y);
}

// Spills from one device to another and back, with devices of every kind. The memory stays within both limits. A lost copy is an
// error, and the next step is correct.
static void test_two_devices(void **state) {
    (void) state;
    static struct yard y;
    for (int kind = 0; kind < 3; kind++) { // synchronous; a queue; a queue that also copies between devices
        yard_init(&y, kind > 0, kind > 1);
        for (int i = 3; i < N_LANES; i++) {
            const struct lane *l = &y.lanes[i];
            ggml_backend_sched_t sched = ggml_backend_sched_new(y.backends, NULL, 3, 4096, false, false);
            for (int run = 0; run < 3; run++) {
                assert_true(lane_step(&y, i, sched));
            }
            assert_true(ggml_backend_sched_get_buffer_size(sched, y.backends[l->own]) <= l->u.params.bytes);
            assert_true(ggml_backend_sched_get_buffer_size(sched, y.backends[l->other]) <= l->u.params.spill_bytes);
            assert_true(ggml_backend_sched_get_buffer_size(sched, y.backends[l->other]) > 0);
            assert_int_equal(y.devices[l->own].n_async_copies > 0, kind == 2);
            for (int at = 1; kind == 2 && at < 4; at++) {
                y.devices[l->own].fail_copy_at = at;
                assert_false(lane_step(&y, i, sched));
                assert_non_null(strstr(berth_last_error(), "lost a copy of"));
                y.devices[l->own].fail_copy_at = 0;
                assert_true(lane_step(&y, i, sched));
            }
            ggml_backend_sched_free(sched);
        }
        yard_fini(&y);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_no_alloc),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_alternating_graphs),
        cmocka_unit_test(test_two_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

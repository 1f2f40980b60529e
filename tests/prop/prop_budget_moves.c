// SPDX-License-Identifier: MIT
// prop_budget_moves.c: spills with the scheduler: CPU memory to files, device to host, device to device. The results have the
// same bits as without a memory limit. After reserve, computing allocates nothing. BERTH_SEED=n repeats a run.

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
        const size_t unlimited_size = plain_run(s, depth, backends[0], &size);
        deep_init(&d, s, depth, backends[0]);
        limited_init(&u, d.graph, s, unlimited_size, bufts[0], files);
        ggml_backend_sched_t sched = ggml_backend_sched_new(backends, bufts, 2, 4096, false, false);
        for (int run = 0; run < 2 && u.graph != NULL; run++) {
            sched_begin(sched, &u, backends[0], backends[1], s);
            deep_fill(&d, s);
            assert_int_equal(ggml_backend_sched_graph_compute(sched, u.graph), GGML_STATUS_SUCCESS);
            results_compare(s, depth, size, deep_results(&d, got));
            t.n_over += ggml_backend_sched_get_buffer_size(sched, backends[0]) > u.params.memory_limit ||
                        ggml_backend_sched_get_buffer_size(sched, backends[1]) > u.params.spill_limit;
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
    const size_t part = check_step() == 1 ? 1 : 12; // a build that runs few seeds may get few spills
    assert_true(t.n_kept >= 12 / part && t.n_out >= 20 / part && t.n_in >= t.n_out);
    assert_int_equal(t.n_over, 0);
}

enum { N_REVERSED = 24 };

// Builds a chain of N_REVERSED values, and then ops that read these values in reverse order, as a backward pass does.
static void reversed_init(struct deep *d, ggml_backend_t backend) {
    deep_weights(d, backend);
    d->x = ggml_new_tensor_2d(d->ctx, GGML_TYPE_F32, WIDTH, 64);
    ggml_set_input(d->x);
    struct ggml_tensor *forward[N_REVERSED] = {d->x}, *t = d->x;
    for (int i = 1; i < N_REVERSED; i++) {
        t = forward[i] = ggml_tanh(d->ctx, ggml_mul_mat(d->ctx, d->w[i % N_WEIGHTS], t));
    }
    for (int i = N_REVERSED - 1; i > 0; i--) {
        t = ggml_mul_mat(d->ctx, d->w[i % N_WEIGHTS], ggml_add(d->ctx, t, forward[i]));
    }
    d->out[d->n_out++] = ggml_sum_rows(d->ctx, ggml_view_2d(d->ctx, t, WIDTH, 1, t->nb[1], 0));
    ggml_set_output(d->out[0]);
    ggml_build_forward_expand(d->graph, d->out[0]);
}

// The limit is half of the memory that the graph needs. Recomputing a value often takes several products (MUL_MAT). With
// spill_cost_per_byte = 8, copying a value out and back costs less than two products, so spilling is mostly cheaper.
static struct berth_graph_budget_params reversed_params(
    const struct deep *d, ggml_backend_buffer_type_t own, ggml_backend_buffer_type_t other) {
    ggml_gallocr_t galloc = ggml_gallocr_new(own);
    size_t unlimited_size = 0;
    ggml_gallocr_reserve_n_size(galloc, d->graph, NULL, NULL, &unlimited_size);
    ggml_gallocr_free(galloc);
    return (struct berth_graph_budget_params){.memory_limit = unlimited_size / 2,
        .buft = own,
        .spill_buft = other,
        .spill_limit = unlimited_size,
        .spill_cost_per_byte = 8};
}

// ---- allocations and failures ----

// Where values are spilled to: from the CPU's memory to files, from a device to the host, or from a device to another device.
enum rig_kind { RIG_FILES, RIG_HOST, RIG_PAIR, RIG_N };

// The backends of one kind, and a graph that runs on backend 0 and spills to buffer type 1.
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
    reversed_init(&r->d, r->backends[0]);
    r->u.params = reversed_params(&r->d, r->bufts[0], r->bufts[1]);
    assert_int_equal(berth_graph_budget(r->d.graph, &r->u.params, &r->u.ctx, &r->u.graph, &r->u.r), GGML_STATUS_SUCCESS);
    assert_true(r->u.r->fits && r->u.r->n_spilled >= 5);
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

// False: an allocation or a copy failed.
static bool rig_step(struct rig *r, ggml_backend_sched_t sched, bool reserve, char *result) {
    ggml_backend_sched_reset(sched);
    for (int i = 0; i < ggml_graph_n_nodes(r->u.graph); i++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(r->u.graph, i), r->backends[0]);
    }
    berth_sched_set_spill_backends(sched, r->u.graph, r->backends[0], r->backends[1]);
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
static void no_alloc_after_reserve_check(enum rig_kind kind) {
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

static void test_no_alloc_after_reserve(void **state) {
    (void) state;
    for (int kind = 0; kind < RIG_N; kind++) {
        no_alloc_after_reserve_check((enum rig_kind) kind);
    }
}

// Removes all addresses from the graph, after the scheduler that owned the memory was freed.
static void rig_forget(struct rig *r) {
    for (int i = 0; i < ggml_graph_n_nodes(r->u.graph); i++) {
        ggml_graph_node(r->u.graph, i)->data = NULL;
        ggml_graph_node(r->u.graph, i)->buffer = NULL;
    }
    r->d.x->data = NULL;
    r->d.x->buffer = NULL;
}

// Each allocation fails once: computing fails with a status or gives the same bits.
static void failed_allocs_check(enum rig_kind kind) {
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

static void test_failed_allocs(void **state) {
    (void) state;
    for (int kind = 0; kind < RIG_N; kind++) {
        failed_allocs_check((enum rig_kind) kind);
    }
}

// If a copy fails on a device, the computation fails, and the next computation is correct.
static void test_lost_copies(void **state) {
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

// ---- several graphs in one scheduler, which spill between different devices ----

enum { N_SPILL_CASES = 5 };

// A graph that runs on one backend and whose values are spilled to another.
struct spill_case {
    struct deep d;
    struct limited u;
    int own, other; // indices of backends in struct case_set
    char want[64];
};

struct case_set {
    struct device devices[2];
    ggml_backend_t backends[3];
    struct spill_case cases[N_SPILL_CASES];
};

static void spill_case_init(struct spill_case *c, struct case_set *set, int own, int other, int part) {
    ggml_backend_buffer_type_t from = ggml_backend_get_default_buffer_type(set->backends[own]),
                               to = ggml_backend_get_default_buffer_type(set->backends[other]);
    *c = (struct spill_case){.own = own, .other = other};
    reversed_init(&c->d, set->backends[own]);
    c->u.params = reversed_params(&c->d, from, to);
    c->u.params.memory_limit -= c->u.params.memory_limit / 8 * (uint64_t) part; // a lower limit requires more spills
    assert_int_equal(berth_graph_budget(c->d.graph, &c->u.params, &c->u.ctx, &c->u.graph, &c->u.r), GGML_STATUS_SUCCESS);
    assert_true(c->u.r->fits && c->u.r->n_spilled >= 5);
}

static void spill_case_expect(struct spill_case *c, uint64_t seed) {
    struct deep d;
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    reversed_init(&d, cpu);
    assert_true(ggml_gallocr_alloc_graph(galloc, d.graph));
    deep_fill(&d, seed);
    assert_int_equal(ggml_backend_graph_compute(cpu, d.graph), GGML_STATUS_SUCCESS);
    deep_results(&d, c->want);
    deep_fini(&d);
    ggml_gallocr_free(galloc);
    ggml_backend_free(cpu);
}

static void case_set_init(struct case_set *set, bool is_async, bool copies_async) {
    *set = (struct case_set){0};
    for (int i = 0; i < 2; i++) {
        device_init(&set->devices[i], i == 0 ? "left" : "right");
        set->devices[i].is_async = set->devices[i].has_events = is_async;
        set->devices[i].copies_async = copies_async;
        set->backends[i] = device_start(&set->devices[i]);
    }
    set->backends[2] = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(set->backends[2], 1);
    spill_case_init(&set->cases[0], set, 0, 2, 0);
    spill_case_init(&set->cases[1], set, 1, 2, 1);
    spill_case_init(&set->cases[2], set, 0, 2, 2);
    spill_case_init(&set->cases[3], set, 0, 1, 1);
    spill_case_init(&set->cases[4], set, 1, 0, 0);
    for (int i = 0; i < N_SPILL_CASES; i++) {
        spill_case_expect(&set->cases[i], 9 + (uint64_t) i);
    }
}

static void case_set_fini(struct case_set *set) {
    for (int i = 0; i < N_SPILL_CASES; i++) {
        berth_budget_free(set->cases[i].u.r);
        ggml_free(set->cases[i].u.ctx);
        deep_fini(&set->cases[i].d);
    }
    ggml_backend_free(set->backends[2]);
    device_stop(&set->devices[0]);
    device_stop(&set->devices[1]);
}

static bool spill_case_step(struct case_set *set, int i, ggml_backend_sched_t sched) {
    struct spill_case *c = &set->cases[i];
    char result[64] = {0};
    ggml_backend_sched_reset(sched);
    for (int k = 0; k < ggml_graph_n_nodes(c->u.graph); k++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(c->u.graph, k), set->backends[c->own]);
    }
    berth_sched_set_spill_backends(sched, c->u.graph, set->backends[c->own], set->backends[c->other]);
    if (!ggml_backend_sched_alloc_graph(sched, c->u.graph)) {
        return false;
    }
    deep_fill(&c->d, 9 + (uint64_t) i);
    if (ggml_backend_sched_graph_compute(sched, c->u.graph) != GGML_STATUS_SUCCESS) {
        return false;
    }
    deep_results(&c->d, result);
    assert_memory_equal(c->want, result, sizeof result);
    return true;
}

// Graphs with different numbers of spills, between different devices, alternate in one scheduler. All results must be correct.
static void test_alternating_graphs(void **state) {
    (void) state;
    static const int turns[] = {0, 0, 2, 0, 2, 1, 0, 1, 0, 1, 3, 4, 3, 0, 4, 2, 1, 2, 3, 3, 0, 2, 2, 4, 1, 1};
    static struct case_set set;
    case_set_init(&set, true, true);
    assert_true(
        set.cases[2].u.r->n_spilled + set.cases[2].u.r->n_restored > set.cases[0].u.r->n_spilled + set.cases[0].u.r->n_restored);
    ggml_backend_sched_t sched = ggml_backend_sched_new(set.backends, NULL, 3, 4096, false, false);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        if (!spill_case_step(&set, turns[i], sched)) {
            fail_msg("turn %zu, graph %d: %s", i, turns[i], berth_last_error());
        }
    }
    ggml_backend_sched_free(sched);
    case_set_fini(&set);
}

// The memory stays within both limits. If a copy fails, the computation fails, and the next computation is correct.
static void test_two_devices(void **state) {
    (void) state;
    static struct case_set set;
    for (int kind = 0; kind < 3; kind++) { // 0: synchronous, 1: asynchronous, 2: asynchronous with copies between devices
        case_set_init(&set, kind > 0, kind > 1);
        for (int i = 3; i < N_SPILL_CASES; i++) {
            const struct spill_case *c = &set.cases[i];
            ggml_backend_sched_t sched = ggml_backend_sched_new(set.backends, NULL, 3, 4096, false, false);
            for (int run = 0; run < 3; run++) {
                assert_true(spill_case_step(&set, i, sched));
            }
            assert_true(ggml_backend_sched_get_buffer_size(sched, set.backends[c->own]) <= c->u.params.memory_limit);
            assert_true(ggml_backend_sched_get_buffer_size(sched, set.backends[c->other]) <= c->u.params.spill_limit);
            assert_true(ggml_backend_sched_get_buffer_size(sched, set.backends[c->other]) > 0);
            assert_int_equal(set.devices[c->own].n_async_copies > 0, kind == 2);
            for (int at = 1; kind == 2 && at < 4; at++) {
                set.devices[c->own].fail_copy_at = at;
                assert_false(spill_case_step(&set, i, sched));
                assert_non_null(strstr(berth_last_error(), "lost a copy of"));
                set.devices[c->own].fail_copy_at = 0;
                assert_true(spill_case_step(&set, i, sched));
            }
            ggml_backend_sched_free(sched);
        }
        case_set_fini(&set);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_no_alloc_after_reserve),
        cmocka_unit_test(test_failed_allocs),
        cmocka_unit_test(test_lost_copies),
        cmocka_unit_test(test_alternating_graphs),
        cmocka_unit_test(test_two_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

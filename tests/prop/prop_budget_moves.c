// SPDX-License-Identifier: MIT
// Moves beside nodes: a thread copies between the CPU's memory and files, a second queue of a device between its memory and the
// host's, such queues of two devices between theirs. The same bits as in a row; copies meet nodes; a step takes less time;
// nothing is allocated behind reserve; each allocation and copies fail once. BERTH_SEED=n repeats one run.

#include "prop/budget_deep.h"

#include <dirent.h>

// The CPU's own memory and files, with a thread that copies between them.
static void test_thread(void **state) {
    (void) state;
    struct tally t = {0};
    ggml_backend_t backends[] = {ggml_backend_cpu_init(), ggml_backend_cpu_init()};
    ggml_backend_buffer_type_t files = berth_file_buffer_type_new("/tmp");
    ggml_backend_buffer_type_t bufts[] = {ggml_backend_cpu_buffer_type(), files};
    const uint64_t seed = check_seed(34);
    ggml_backend_cpu_set_n_threads(backends[0], 1);
    for (uint64_t s = seed; s < seed + 24; s += (uint64_t) check_step()) {
        struct deep d;
        struct under u;
        size_t size;
        const int depth = 2 + (int) (s % (MAX_DEPTH - 1));
        const size_t whole = plain_run(s, depth, backends[0], &size);
        deep_init(&d, s, depth, backends[0]);
        under_init(&u, d.graph, s, whole, bufts[0], files);
        ggml_backend_sched_t sched = ggml_backend_sched_new(backends, bufts, 2, 4096, false, false);
        for (int run = 0; run < 4 && u.graph != NULL; run++) {
            berth_sched_set_overlap(sched, run != 2);
            sched_begin(sched, &u, backends[0], backends[1], s);
            deep_fill(&d, s);
            assert_int_equal(ggml_backend_sched_graph_compute(sched, u.graph), GGML_STATUS_SUCCESS);
            same_check(s, depth, size, deep_results(&d, got));
            struct berth_sched_stats stats;
            berth_sched_get_stats(sched, &stats);
            assert_int_equal(stats.n_beside, (run < 2 ? run + 1 : run) * (int64_t) (u.r->n_out + u.r->n_in));
            t.n_over += ggml_backend_sched_get_buffer_size(sched, backends[0]) > u.params.bytes ||
                        ggml_backend_sched_get_buffer_size(sched, backends[1]) > u.params.spill_bytes;
        }
        ggml_backend_sched_free(sched);
        under_fini(&u, &t);
        deep_fini(&d);
    }
    berth_file_buffer_type_free(files);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    printf("%zu kept, %zu out, %zu in, %zu again, %zu above\n", t.n_kept, t.n_out, t.n_in, t.n_again, t.n_over);
    const size_t part = check_step() == 1 ? 1 : 12; // of few any may be of one kind
    assert_true(t.n_kept >= 12 / part && t.n_out >= 20 / part && t.n_in >= t.n_out);
    assert_int_equal(t.n_over, 0);
}

// ---- copies beside nodes ----

enum { N_FAR = 24 };

// Values that are wanted again in the opposite order, with much to compute between.
static void far_init(struct deep *d, ggml_backend_t backend) {
    deep_weights(d, backend);
    d->x = ggml_new_tensor_2d(d->ctx, GGML_TYPE_F32, WIDTH, 64);
    ggml_set_input(d->x);
    struct ggml_tensor *there[N_FAR] = {d->x}, *t = d->x;
    for (int i = 1; i < N_FAR; i++) {
        t = there[i] = ggml_tanh(d->ctx, ggml_mul_mat(d->ctx, d->w[i % N_WEIGHTS], t));
    }
    for (int i = N_FAR - 1; i > 0; i--) {
        t = ggml_mul_mat(d->ctx, d->w[i % N_WEIGHTS], ggml_add(d->ctx, t, there[i]));
    }
    d->out[d->n_out++] = ggml_sum_rows(d->ctx, ggml_view_2d(d->ctx, t, WIDTH, 1, t->nb[1], 0));
    ggml_set_output(d->out[0]);
    ggml_build_forward_expand(d->graph, d->out[0]);
}

// Half the memory; a move costs less than two products.
static struct berth_graph_budget_params far_params(
    const struct deep *d, ggml_backend_buffer_type_t own, ggml_backend_buffer_type_t other) {
    ggml_gallocr_t galloc = ggml_gallocr_new(own);
    size_t whole = 0;
    ggml_gallocr_reserve_n_size(galloc, d->graph, NULL, NULL, &whole);
    ggml_gallocr_free(galloc);
    return (struct berth_graph_budget_params){
        .bytes = whole / 2, .buft = own, .spill_buft = other, .spill_bytes = whole, .spill_cost = 8};
}

// Seconds of one step on a device that takes its time to copy and to compute.
static double far_run(
    struct device *dev, ggml_backend_t other, ggml_backend_t cpu, bool overlap, char *result, struct berth_budget_result *told) {
    struct deep d;
    ggml_backend_t backends[] = {&dev->backend, other, cpu};
    struct under u = {0};
    far_init(&d, backends[0]);
    u.params = far_params(&d, &dev->buft, ggml_backend_get_default_buffer_type(other));
    assert_int_equal(berth_graph_budget(d.graph, &u.params, &u.ctx, &u.graph, &u.r), GGML_STATUS_SUCCESS);
    assert_true(u.r->fits && u.r->n_out >= 5);
    *told = *u.r;
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, other == cpu ? 2 : 3, 4096, false, false);
    berth_sched_set_overlap(sched, overlap);
    sched_begin(sched, &u, backends[0], other, 0);
    deep_fill(&d, 5);
    const int64_t begin_us = ggml_time_us();
    assert_int_equal(ggml_backend_sched_graph_compute(sched, u.graph), GGML_STATUS_SUCCESS);
    const double seconds = (double) (ggml_time_us() - begin_us) / 1e6;
    assert_true(ggml_backend_sched_get_buffer_size(sched, backends[0]) <= u.params.bytes);
    deep_results(&d, result);
    ggml_backend_sched_free(sched);
    berth_budget_free(u.r);
    ggml_free(u.ctx);
    deep_fini(&d);
    return seconds;
}

// A copy on a queue of its own waits until a node runs beside it: all do but those for which there is no room. Times are told,
// and judged where a machine is quiet (bench-moves).
static void beside_check(struct device *dev, ggml_backend_t other, ggml_backend_t cpu) {
    struct berth_budget_result told;
    char results[3][64] = {{0}};
    dev->meet_us = 2000000;
    dev->compute_us = 2500;
    far_run(dev, other, cpu, true, results[0], &told);
    const int n_moves = (int) (told.n_out + told.n_in);
    printf("%d moves, %d met a node, %d did not\n", n_moves, dev->n_met, dev->n_missed);
    assert_true(dev->n_met + dev->n_missed == n_moves && dev->n_met >= n_moves / 2); // a busy machine may be late with some
    dev->meet_us = 0;
    dev->copy_us = 4000;
    const double in_row = far_run(dev, other, cpu, false, results[1], &told),
                 beside = far_run(dev, other, cpu, true, results[2], &told);
    printf("%.3f s in a row, %.3f s beside: %.2f\n", in_row, beside, beside / in_row);
    assert_memory_equal(results[0], results[1], sizeof results[0]);
    assert_memory_equal(results[0], results[2], sizeof results[0]);
    assert_true(told.cost_beside < told.cost && told.cost_beside >= told.cost_once);
}

// To the host's memory, and to another device's.
static void test_beside(void **state) {
    (void) state;
    static struct device devices[3];
    ggml_backend_t cpu = ggml_backend_cpu_init();
    for (int i = 0; i < 3; i++) {
        device_init(&devices[i], i == 0 ? "far" : i == 1 ? "left" : "right");
        devices[i].is_async = devices[i].has_events = devices[i].copies_host = true;
        devices[i].copies_async = i > 0;
        device_start(&devices[i]);
    }
    beside_check(&devices[0], cpu, cpu);
    devices[2].meets = &devices[1];
    beside_check(&devices[1], &devices[2].backend, cpu);
    for (int i = 0; i < 3; i++) {
        device_stop(&devices[i]);
    }
    ggml_backend_free(cpu);
}

// ---- what it takes ----

// Copies by a thread to files, by a queue of a device to the host, or by queues of two devices.
enum rig_kind { RIG_FILES, RIG_HOST, RIG_PAIR, RIG_N };

struct rig {
    enum rig_kind kind;
    struct device dev, other;
    ggml_backend_t backends[3];
    ggml_backend_buffer_type_t bufts[3];
    int n_backends;
    struct deep d;
    struct under u;
};

static ggml_backend_t rig_device(struct device *dev, const char *name, bool copies_async) {
    device_init(dev, name);
    dev->is_async = dev->has_events = dev->copies_host = true;
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

// Splits, reserves and computes a step; false: somebody had no memory.
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

// A graph that was reserved is computed with no allocation at all, its moves beside its nodes.
static void promise_check(enum rig_kind kind) {
    static struct rig r;
    char results[2][64] = {{0}};
    struct berth_sched_stats stats;
    const int n_steps = (kind == RIG_PAIR ? 200 : 1000) / CHECK_PART;
    rig_init(&r, kind);
    ggml_backend_sched_t sched = rig_sched(&r);
    assert_true(rig_step(&r, sched, true, NULL));
    assert_true(rig_step(&r, sched, false, results[0])); // the program's own choices take room once
    berth_alloc_watch(true);
    for (int i = 0; i < n_steps; i++) {
        berth_alloc_fail_at(1);
        assert_true(rig_step(&r, sched, false, results[1]));
        assert_memory_equal(results[0], results[1], sizeof results[0]);
    }
    berth_alloc_fail_at(0);
    assert_int_equal(berth_alloc_made(), 0);
    berth_alloc_watch(false);
    berth_sched_get_stats(sched, &stats);
    assert_int_equal(stats.n_beside, (int64_t) (n_steps + 1) * (int64_t) (r.u.r->n_out + r.u.r->n_in));
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

static void test_promise(void **state) {
    (void) state;
    for (int kind = 0; kind < RIG_N; kind++) {
        promise_check((enum rig_kind) kind);
    }
}

// Memory of a scheduler that is gone is nobody's.
static void rig_forget(struct rig *r) {
    for (int i = 0; i < ggml_graph_n_nodes(r->u.graph); i++) {
        ggml_graph_node(r->u.graph, i)->data = NULL;
        ggml_graph_node(r->u.graph, i)->buffer = NULL;
    }
    r->d.x->data = NULL;
    r->d.x->buffer = NULL;
}

// Each allocation fails once: a status, or the same bits; and nothing is lost.
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

// A copy that a device loses is told of when the graph is waited for, and the next computation is sound.
static void lost_check(enum rig_kind kind) {
    static struct rig r;
    char results[2][64] = {{0}};
    rig_init(&r, kind);
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

static void test_lost(void **state) {
    (void) state;
    lost_check(RIG_HOST);
    lost_check(RIG_PAIR);
}

// ---- when there is no copier ----

static int64_t n_beside(ggml_backend_sched_t sched) {
    struct berth_sched_stats stats;
    berth_sched_get_stats(sched, &stats);
    return stats.n_beside;
}

// A device that has no event left: the graph runs with its moves in a row, and beside when it is split with events again.
static void test_no_event(void **state) {
    (void) state;
    static struct rig r;
    char results[2][64] = {{0}};
    rig_init(&r, RIG_HOST);
    ggml_backend_sched_t first = rig_sched(&r);
    assert_true(rig_step(&r, first, false, results[0]));
    ggml_backend_sched_free(first);
    rig_forget(&r);
    const int64_t n_moves = (int64_t) (r.u.r->n_out + r.u.r->n_in);
    for (int at = 1; at <= 4; at++) { // the first is the copier's own, the others are those of moves
        ggml_backend_sched_t sched = rig_sched(&r);
        r.dev.fail_event_at = at;
        memset(results[1], 0, sizeof results[1]);
        if (!rig_step(&r, sched, false, results[1])) {
            fail_msg("event %d: %s", at, berth_last_error());
        }
        assert_memory_equal(results[0], results[1], sizeof results[0]);
        assert_int_equal(n_beside(sched), 0);
        r.dev.fail_event_at = 0;
        berth_sched_set_overlap(sched, false); // what is known was split without
        berth_sched_set_overlap(sched, true);
        assert_true(rig_step(&r, sched, false, results[1]));
        assert_memory_equal(results[0], results[1], sizeof results[0]);
        assert_int_equal(n_beside(sched), n_moves);
        ggml_backend_sched_free(sched);
        rig_forget(&r);
    }
    rig_fini(&r);
}

static int n_threads(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

// A thread that was waited for is in the list a moment longer.
static void threads_check(int want) {
    for (int i = 0; i < 1000 && n_threads() != want; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(n_threads(), want);
}

// Who wants no overlap has no thread and no queue for it.
static void closed_check(enum rig_kind kind) {
    static struct rig r;
    char results[2][64] = {{0}};
    rig_init(&r, kind);
    const int before = n_threads();
    ggml_backend_sched_t sched = rig_sched(&r);
    assert_true(rig_step(&r, sched, false, results[0]));
    const int64_t beside = n_beside(sched);
    assert_true(beside > 0);
    threads_check(before + (kind == RIG_PAIR ? 2 : 1)); // of the copier, or of each device's second queue
    berth_sched_set_overlap(sched, false);
    threads_check(before);
    for (int i = 0; i < 2; i++) {
        assert_true(rig_step(&r, sched, false, results[1]));
        assert_memory_equal(results[0], results[1], sizeof results[0]);
    }
    assert_int_equal(n_beside(sched), beside);
    threads_check(before);
    berth_sched_set_overlap(sched, true);
    assert_true(rig_step(&r, sched, false, results[1]));
    assert_memory_equal(results[0], results[1], sizeof results[0]);
    assert_int_equal(n_beside(sched), 2 * beside);
    ggml_backend_sched_free(sched);
    threads_check(before);
    rig_fini(&r);
}

static void test_closed(void **state) {
    (void) state;
    for (int kind = 0; kind < RIG_N; kind++) {
        closed_check((enum rig_kind) kind);
    }
}

// ---- several graphs, several pairs ----

enum { N_LANES = 5 };

// Two devices and the host; a graph on one of them whose values move to another.
struct lane {
    struct deep d;
    struct under u;
    int own, other; // of the yard's backends
    char want[64];
};

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
    l->u.params.bytes -= l->u.params.bytes / 8 * (uint64_t) part; // less room, more moves
    assert_int_equal(berth_graph_budget(l->d.graph, &l->u.params, &l->u.ctx, &l->u.graph, &l->u.r), GGML_STATUS_SUCCESS);
    assert_true(l->u.r->fits && l->u.r->n_out >= 5);
}

// What the graph is without a budget, on the CPU.
static void lane_want(struct lane *l, uint64_t seed) {
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
        y->devices[i].is_async = y->devices[i].has_events = y->devices[i].copies_host = is_async;
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
        lane_want(&y->lanes[i], 9 + (uint64_t) i);
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

// Graphs take turns in one scheduler: with as many moves as before, with more, over another pair, over one without a copier. Each
// gives its own results, whether its moves run beside or, since the copier is another's by now, in a row.
static void test_turns(void **state) {
    (void) state;
    static const int turns[] = {0, 0, 2, 0, 2, 1, 0, 1, 0, 1, 3, 4, 3, 0, 4, 2, 1, 2, 3, 3, 0, 2, 2, 4, 1, 1};
    static struct yard y;
    int64_t n_moves[N_LANES], n_pair = 0;
    yard_init(&y, true, true);
    for (int i = 0; i < N_LANES; i++) {
        n_moves[i] = (int64_t) (y.lanes[i].u.r->n_out + y.lanes[i].u.r->n_in);
    }
    assert_true(n_moves[2] > n_moves[0]); // the room grows
    ggml_backend_sched_t sched = ggml_backend_sched_new(y.backends, NULL, 3, 4096, false, false);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        const int64_t before = n_beside(sched);
        if (!lane_step(&y, turns[i], sched)) {
            fail_msg("turn %zu, graph %d: %s", i, turns[i], berth_last_error());
        }
        const int64_t n = n_beside(sched) - before;
        assert_true(n == 0 || n == n_moves[turns[i]]);
        assert_true(i > 4 || n > 0); // one pair: all beside
        n_pair += turns[i] >= 3 ? n : 0;
    }
    assert_true(n_pair > 0); // between two devices too
    printf("moves: %d, %d and %d to the host, %d and %d between devices; %d beside\n", (int) n_moves[0], (int) n_moves[1],
        (int) n_moves[2], (int) n_moves[3], (int) n_moves[4], (int) n_beside(sched));
    ggml_backend_sched_free(sched);
    yard_fini(&y);
}

// From a device's memory to another device's and back, by devices of every kind: within both budgets, and a copy that is lost is
// an error after which the next step is sound.
static void test_two_devices(void **state) {
    (void) state;
    static struct yard y;
    for (int kind = 0; kind < 3; kind++) { // done when it returns; a queue; a queue that copies between devices too
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
            assert_int_equal(n_beside(sched), kind == 2 ? 3 * (int64_t) (l->u.r->n_out + l->u.r->n_in) : 0);
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
        cmocka_unit_test(test_thread),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_no_event),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_two_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

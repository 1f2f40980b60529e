// SPDX-License-Identifier: MIT
// test_sched_stale.c: graphs that the program changes after they were allocated, before the first computation or between two
// computations. The result must be that of the changed graph, not that of the planned one. The graph allocator is tested in the
// same way, but there the program allocates the graph again after the change.

#include "support/device_net.h"

// The graph is a = 2x, b = 3a, c = 5b, d = 7c, e = d + a, out = e + b. Few tensors are alive at the same time, so most addresses
// are used several times.
struct chain {
    struct ggml_tensor *x, *a, *b, *c, *d, *e, *out;
};

static struct chain chain_new(struct net *n) {
    struct chain t = {.x = input(n, 1)};
    t.a = named(ggml_scale(n->ctx, t.x, 2.0f), "a");
    t.b = named(ggml_scale(n->ctx, t.a, 3.0f), "b");
    t.c = named(ggml_scale(n->ctx, t.b, 5.0f), "c");
    t.d = named(ggml_scale(n->ctx, t.c, 7.0f), "d");
    t.e = named(ggml_add(n->ctx, t.d, t.a), "e");
    t.out = named(ggml_add(n->ctx, t.e, t.b), "out");
    ggml_set_output(t.out);
    ggml_build_forward_expand(n->graph, t.out);
    return t;
}

// A change of the chain, and the expected value of one of its tensors for x = 1.
struct change {
    const char *name;
    void (*make)(struct net *n, struct chain *t);
    struct ggml_tensor *(*of)(struct chain *t);
    float expected;
};

static struct ggml_tensor *of_out(struct chain *t) {
    return t->out;
}

static struct ggml_tensor *of_b(struct chain *t) {
    return t->b;
}

static struct ggml_tensor *of_c(struct chain *t) {
    return t->c;
}

static void edge_to_c(struct net *n, struct chain *t) {
    (void) n;
    t->out->src[1] = t->c; // c was dead, and its memory was reused
}

static void edge_to_x(struct net *n, struct chain *t) {
    (void) n;
    t->out->src[1] = t->x; // x holds bytes that the program wrote
}

static void output_b(struct net *n, struct chain *t) {
    (void) n;
    ggml_set_output(t->b);
}

static void output_c(struct net *n, struct chain *t) {
    (void) n;
    ggml_set_output(t->c);
}

static void factor(struct net *n, struct chain *t) {
    (void) n;
    const float by = 11.0f;
    memcpy(t->d->op_params, &by, sizeof by);
}

static void another_op(struct net *n, struct chain *t) {
    (void) n;
    t->e->op = GGML_OP_SUB;
}

// Adds a node in the middle of the list, so that out = e + b + c.
static void another_node(struct net *n, struct chain *t) {
    struct ggml_tensor *sum = ggml_add(n->ctx, t->e, t->c), **nodes = n->graph->nodes;
    sum->flags |= GGML_TENSOR_FLAG_COMPUTE;
    nodes[n->graph->n_nodes++] = t->out;
    nodes[n->graph->n_nodes - 2] = sum;
    t->out->src[0] = sum;
}

// Lists e before d and exchanges their sources: e = c + a, d = 7e, out = d + b.
static void another_order(struct net *n, struct chain *t) {
    n->graph->nodes[3] = t->e;
    n->graph->nodes[4] = t->d;
    t->e->src[0] = t->c;
    t->d->src[0] = t->e;
    t->out->src[0] = t->d;
}

// Makes c a view of b with the memory of b. A program does this for a node that it runs in place.
static void a_view(struct net *n, struct chain *t) {
    (void) n;
    t->c->view_src = t->b;
    t->c->data = t->b->data;
}

static const struct change changes[] = {
    {"an edge", edge_to_c, of_out, 242.0f},
    {"an edge to an input", edge_to_x, of_out, 213.0f},
    {"an output", output_b, of_b, 6.0f},
    {"a later output", output_c, of_c, 30.0f},
    {"a parameter", factor, of_out, 338.0f},
    {"an op", another_op, of_out, 214.0f},
    {"a node", another_node, of_out, 248.0f},
    {"an order", another_order, of_out, 230.0f},
    {"a view", a_view, of_out, 242.0f},
};

enum { CHANGES = sizeof changes / sizeof changes[0] };

static void expect(const struct change *change, struct chain *t, float value) {
    if (value != change->expected) {
        fail_msg("%s changed: %s is %g, not %g", change->name, change->of(t)->name, (double) value, (double) change->expected);
    }
}

static void clean(struct net *n) {
    ggml_backend_sched_reset(n->sched);
    ggml_free(n->ctx);
    graph_new(n);
}

// Places the nodes alternately on n_used backends. 1: all nodes are on the CPU.
static void spread(struct net *n, const struct chain *t, int n_used) {
    struct ggml_tensor *nodes[] = {t->a, t->b, t->c, t->d, t->e, t->out};
    for (int i = 0; i < 6; i++) {
        ggml_backend_sched_set_tensor_backend(n->sched, nodes[i], n->backends[n_used == 1 ? 2 : i % n_used]);
    }
}

static void run(struct net *n, const struct change *change, int n_used) {
    struct chain t = chain_new(n);
    spread(n, &t, n_used);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(t.x, 1.0f);
    change->make(n, &t);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    expect(change, &t, first_of(change->of(&t)));
    clean(n);

    t = chain_new(n); // change between two computations
    spread(n, &t, n_used);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    for (int k = 0; k < 3; k++) {
        fill(t.x, 1.0f);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(t.out) == 218.0f);
    }
    fill(t.x, 1.0f);
    change->make(n, &t);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        expect(change, &t, first_of(change->of(&t)));
        fill(t.x, 1.0f);
    }
    clean(n);
}

static void changed_graphs_give_their_own_results(void **state) {
    struct net *n = *state;
    for (int i = 0; i < CHANGES; i++) {
        run(n, &changes[i], 1);
        run(n, &changes[i], 2);
        run(n, &changes[i], 3);
    }
}

static void changed_graphs_give_their_own_results_in_flight(void **state) {
    struct net *n = *state;
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, true, true);
    for (int i = 0; i < CHANGES; i++) {
        run(n, &changes[i], 3);
    }
}

// Unchanged graphs are not planned again.
static void graphs_that_stay_are_not_planned(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n);
    spread(n, &t, 3);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    for (int k = 0; k < 5; k++) {
        fill(t.x, (float) k);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(t.out) == 218.0f * (float) k);
    }
    struct berth_sched_stats stats;
    berth_sched_stats(n->sched, &stats);
    assert_int_equal(stats.n_planned, 1);
    assert_int_equal(stats.n_cache_hits, 0);
}

// A weight that the program moves between two computations is read at its new address.
static void moved_weights_are_read_where_they_are(void **state) {
    struct net *n = *state;
    struct ggml_tensor *weight = ggml_new_tensor_1d(n->weights_ctx, GGML_TYPE_F32, N), *x = input(n, 1);
    struct ggml_tensor *out = ggml_add(n->ctx, x, weight);
    const size_t size = ggml_nbytes(weight);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(n->cpu, 4 * size);
    char *base = ggml_backend_buffer_get_base(buffer);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, weight, base), GGML_STATUS_SUCCESS);
    fill(weight, 3.0f);
    ggml_set_output(out);
    ggml_build_forward_expand(n->graph, out);
    ggml_backend_sched_set_tensor_backend(n->sched, out, n->backends[0]);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    for (int k = 0; k < 3; k++) {
        fill(x, 1.0f);
        weight->data = base + (size_t) k * size;
        fill(weight, 3.0f + (float) k);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(out) == 4.0f + (float) k);
    }
    ggml_backend_sched_reset(n->sched);
    ggml_backend_buffer_free(buffer);
}

// The changed graph is larger: the buffers are replaced, and the inputs keep their contents.
static void inputs_outlive_a_larger_plan(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(t.x, 1.0f);
    struct ggml_tensor *wide = ggml_repeat_4d(n->ctx, t.out, N, 256, 1, 1), *sum = ggml_scale(n->ctx, wide, 2.0f);
    ggml_set_output(sum);
    ggml_build_forward_expand(n->graph, sum);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(sum) == 436.0f);
}

// A graph is computed without a new allocation: its inputs keep their addresses, or their contents are moved.
static void inputs_stay_without_alloc(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    for (int k = 1; k < 9; k++) {
        fill(t.x, (float) k);
        if (k % 2 == 0) {
            ggml_backend_sched_reset(n->sched);
        }
        if (k > 4) {
            spread(n, &t, k % 3 + 1);
        }
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(t.out) == 218.0f * (float) k);
    }
}

static void every_allocation_may_fail(void **state) {
    struct net *n = *state;
    bool was_hit = true;
    int64_t k = 0;
    while (was_hit) {
        k++;
        struct chain t = chain_new(n);
        spread(n, &t, 3);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        fill(t.x, 1.0f);
        edge_to_c(n, &t);
        berth_alloc_watch(true);
        berth_alloc_fail_at(k);
        const enum ggml_status status = ggml_backend_sched_graph_compute(n->sched, n->graph);
        was_hit = berth_alloc_made() >= k - 1;
        berth_alloc_fail_at(0);
        berth_alloc_watch(false);
        assert_true(status == GGML_STATUS_SUCCESS ? first_of(t.out) == 242.0f : was_hit && strlen(berth_last_error()) > 0);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        fill(t.x, 2.0f);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(t.out) == 484.0f);
        clean(n);
        ggml_backend_sched_free(n->sched); // a scheduler that was used before has its lists and would allocate little
        n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    }
    assert_true(k > 5);
}

// ---- graph allocator ----

static void changed_graphs_are_planned_by_the_allocator(void **state) {
    struct net *n = *state;
    for (int i = 0; i < CHANGES; i++) {
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        struct chain t = chain_new(n);
        assert_true(ggml_gallocr_alloc_graph(galloc, n->graph));
        fill(t.x, 1.0f);
        assert_int_equal(ggml_backend_graph_compute(n->cpu, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(t.out) == 218.0f);
        changes[i].make(n, &t);
        for (int k = 0; k < 2; k++) {
            assert_true(ggml_gallocr_alloc_graph(galloc, n->graph));
            fill(t.x, 1.0f);
            assert_int_equal(ggml_backend_graph_compute(n->cpu, n->graph), GGML_STATUS_SUCCESS);
            expect(&changes[i], &t, first_of(changes[i].of(&t)));
        }
        ggml_gallocr_free(galloc);
        ggml_free(n->ctx);
        graph_new(n);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        NET_TEST(changed_graphs_give_their_own_results),
        NET_TEST(changed_graphs_give_their_own_results_in_flight),
        NET_TEST(graphs_that_stay_are_not_planned),
        NET_TEST(moved_weights_are_read_where_they_are),
        NET_TEST(inputs_outlive_a_larger_plan),
        NET_TEST(inputs_stay_without_alloc),
        NET_TEST(every_allocation_may_fail),
        NET_TEST(changed_graphs_are_planned_by_the_allocator),
    };
    return cmocka_run_group_tests_name("sched_stale", tests, NULL, NULL);
}

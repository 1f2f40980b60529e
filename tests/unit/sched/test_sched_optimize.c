// SPDX-License-Identifier: MIT
// test_sched_optimize.c: devices that reorder the nodes of their splits and request lifetimes (graph_optimize): the graph that they
// see, correct results, memory that is kept, and invalid requests, which are rejected.

#include "support/device_net.h"

// The device asks the scheduler (add_alloc_dep) to keep the memory of one tensor until a later node, `until`, is computed. KEEP_A
// is the normal case. A foreign tensor is not part of the split. SWAP and DUPLICATE change the list of nodes instead.
enum request { NO_REQUEST, KEEP_A, KEEP_COPY, KEEP_LATER, KEEP_LEAF, UNTIL_FOREIGN, KEEP_FOREIGN, UNTIL_NULL, SWAP, DUPLICATE };

static struct {
    enum request request;
    struct ggml_tensor *a, *until, *foreign, *leaf;
    const struct ggml_tensor *copy; // copy of a tensor from another backend, as the device sees it
    int n_calls, n_nodes;
    bool has_params;
} asked;

static void optimize(ggml_backend_t backend, struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    (void) backend;
    asked.n_calls++;
    asked.n_nodes += graph->n_nodes;
    asked.has_params = params != NULL && params->add_alloc_dep != NULL;
    asked.copy = graph->nodes[0]->src[0];
    bool has_until = false;
    for (int i = 0; i < graph->n_nodes; i++) {
        has_until = has_until || graph->nodes[i] == asked.until;
    }
    if (!has_until) {
        return;
    }
    switch (asked.request) {
        case NO_REQUEST: break;
        case KEEP_A: params->add_alloc_dep(params->user_data, asked.a, asked.until); break;
        case KEEP_COPY: params->add_alloc_dep(params->user_data, graph->nodes[0]->src[0], asked.until); break;
        case KEEP_LATER: params->add_alloc_dep(params->user_data, asked.until, asked.a); break;
        case KEEP_LEAF: params->add_alloc_dep(params->user_data, asked.leaf, asked.until); break;
        case UNTIL_FOREIGN: params->add_alloc_dep(params->user_data, asked.a, asked.foreign); break;
        case KEEP_FOREIGN: params->add_alloc_dep(params->user_data, asked.foreign, asked.until); break;
        case UNTIL_NULL: params->add_alloc_dep(params->user_data, asked.a, NULL); break;
        case SWAP:
        case DUPLICATE: {
            struct ggml_tensor *first = graph->nodes[0];
            graph->nodes[0] = graph->nodes[1];
            graph->nodes[1] = asked.request == SWAP ? first : graph->nodes[1];
            break;
        }
    }
}

// On the first device: a = 2x, b = 3x, c = a + b, then four scales. x is on the CPU.
struct chain {
    struct ggml_tensor *x, *a, *b, *c, *scale[4];
};

static struct chain chain_new(struct net *n, enum request request) {
    struct chain t = {.x = input(n, 1)};
    t.a = named(ggml_scale(n->ctx, t.x, 2.0f), "a");
    t.b = named(ggml_scale(n->ctx, t.x, 3.0f), "b");
    t.c = named(ggml_add(n->ctx, t.a, t.b), "c");
    for (int i = 0; i < 4; i++) {
        t.scale[i] = named(ggml_scale(n->ctx, i == 0 ? t.c : t.scale[i - 1], 2.0f), "scale");
    }
    ggml_set_output(t.scale[3]);
    ggml_build_forward_expand(n->graph, t.scale[3]);
    for (int i = 0; i < ggml_graph_n_nodes(n->graph); i++) {
        ggml_backend_sched_set_tensor_backend(n->sched, ggml_graph_node(n->graph, i), n->backends[0]);
    }
    n->dev[0].backend.iface.graph_optimize = optimize;
    memset(&asked, 0, sizeof asked);
    asked.request = request;
    asked.a = t.a;
    asked.until = t.scale[2];
    asked.leaf = n->graph->leafs[0];
    asked.foreign = ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, 1);
    return t;
}

static void chain_run(struct net *n, struct chain *t) {
    fill(t->x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(t->scale[3]) == 80.0f);
}

static bool overlaps(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    const char *x = a->data, *y = b->data;
    return a->buffer == b->buffer && x < y + ggml_nbytes(b) && y < x + ggml_nbytes(a);
}

// Returns true if a node that is written after a, up to `until`, overlaps the kept tensor.
static bool is_overwritten(const struct chain *t, const struct ggml_tensor *kept) {
    return overlaps(kept, t->b) || overlaps(kept, t->c) || overlaps(kept, t->scale[0]) || overlaps(kept, t->scale[1]) ||
           overlaps(kept, t->scale[2]);
}

// Makes a new graph and a scheduler without cached graphs. A cache hit would not call the device.
static void renew(struct net *n, bool parallel) {
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, parallel, true);
    ggml_free(n->ctx);
    graph_new(n);
}

static void forget(struct net *n) {
    renew(n, false);
}

static void kept_memory_is_not_shared(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n, NO_REQUEST);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_true(asked.has_params && asked.n_calls == 1 && asked.n_nodes == 7);
    assert_true(is_overwritten(&t, t.a)); // without a request, the memory of a is reused
    chain_run(n, &t);
    const size_t plain = ggml_backend_sched_get_buffer_size(n->sched, n->backends[0]);
    forget(n);

    t = chain_new(n, KEEP_A);
    for (int run = 0; run < 3; run++) {
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        assert_false(is_overwritten(&t, t.a));
        chain_run(n, &t);
        assert_true(first_of(t.a) == 2.0f); // no node of its split has overwritten it
        ggml_backend_sched_reset(n->sched);
        for (int i = 0; i < ggml_graph_n_nodes(n->graph); i++) {
            ggml_backend_sched_set_tensor_backend(n->sched, ggml_graph_node(n->graph, i), n->backends[0]);
        }
    }
    assert_int_equal(asked.n_calls, 1); // the request is part of the plan
    assert_true(ggml_backend_sched_get_buffer_size(n->sched, n->backends[0]) <= plain + 2 * ggml_nbytes(t.a));
}

static void copies_can_be_kept(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n, KEEP_COPY);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_true(asked.copy != t.x && asked.copy->buffer->buft == &n->dev[0].buft);
    assert_false(is_overwritten(&t, asked.copy) || overlaps(asked.copy, t.a));
    chain_run(n, &t);
    forget(n);
    t = chain_new(n, NO_REQUEST);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_true(is_overwritten(&t, asked.copy));
}

// A leaf can be kept: it has its memory before the first node. Here a leaf of the device is the first leaf of the graph.
static void a_leaf_can_be_kept(void **state) {
    struct net *n = *state;
    for (enum request request = NO_REQUEST; request <= KEEP_LEAF; request += KEEP_LEAF) {
        struct chain t = chain_new(n, request);
        ggml_backend_sched_set_tensor_backend(n->sched, t.x, n->backends[0]);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        assert_int_equal(is_overwritten(&t, t.x), request == NO_REQUEST);
        chain_run(n, &t);
        forget(n);
    }
}

// Keeping a tensor that is computed later has no effect. Several graphs in flight make no difference.
static void requests_of_all_kinds(void **state) {
    struct net *n = *state;
    for (int parallel = 0; parallel < 2; parallel++) {
        for (enum request request = NO_REQUEST; request <= KEEP_LATER; request++) {
            renew(n, parallel == 1);
            struct chain t = chain_new(n, request);
            assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
            assert_true(request != KEEP_A || !is_overwritten(&t, t.a));
            chain_run(n, &t);
        }
    }
}

static void another_order_is_run(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n, SWAP);
    for (int run = 0; run < 3; run++) {
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        chain_run(n, &t);
    }
    assert_ptr_equal(ggml_graph_node(n->graph, 0), t.a); // the caller's graph is unchanged
}

// Two nodes of a chain are exchanged together with their edges. Row by row the new graph equals the old one, but each tensor keeps
// the address of its old position. So the tensors must be placed again.
static void exchanged_nodes_run_in_order(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 1), *t[3];
    for (int i = 0; i < 3; i++) {
        t[i] = named(ggml_scale(n->ctx, i == 0 ? x : t[i - 1], 2.0f), "scale");
        ggml_set_output(t[i]);
    }
    ggml_build_forward_expand(n->graph, t[2]);
    for (int i = 0; i < 3; i++) {
        ggml_backend_sched_set_tensor_backend(n->sched, t[i], n->backends[0]);
    }
    n->dev[0].backend.iface.graph_optimize = optimize;
    memset(&asked, 0, sizeof asked);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(t[2]) == 8.0f);
    n->graph->nodes[0] = t[1];
    n->graph->nodes[1] = t[0];
    t[1]->src[0] = x;
    t[0]->src[0] = t[1];
    t[2]->src[0] = t[0];
    fill(x, 3.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(t[2]) == 24.0f);
}

static void invalid_requests_are_rejected(void **state) {
    struct net *n = *state;
    static const struct {
        enum request request;
        const char *text;
    } cases[] = {
        {UNTIL_FOREIGN, "second is not a node of its split"},
        {UNTIL_NULL, "second is not a node of its split"},
        {KEEP_FOREIGN, "first is not a tensor of the graph"},
        {DUPLICATE, "more than the order"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chain t = chain_new(n, cases[i].request);
        assert_false(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        assert_non_null(strstr(berth_last_error(), cases[i].text));
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_FAILED);
        assert_false(ggml_backend_sched_reserve(n->sched, n->graph));
        asked.request = NO_REQUEST; // the next graph can be computed
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        chain_run(n, &t);
        forget(n);
    }
}

// The node until which a tensor is kept must be in the split for which the device is called. The kept tensor may be in an earlier
// split.
static void a_request_stays_in_its_split(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n, KEEP_A);
    ggml_backend_sched_set_tensor_backend(n->sched, t.scale[0], n->backends[1]);
    asked.until = t.scale[3]; // a is in the first split, `until` in the third
    asked.foreign = t.c;
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_false(overlaps(t.a, t.scale[1]) || overlaps(t.a, t.scale[2]) || overlaps(t.a, t.scale[3]));
    chain_run(n, &t);
    assert_true(first_of(t.a) == 2.0f);
    forget(n);
    t = chain_new(n, UNTIL_FOREIGN);
    ggml_backend_sched_set_tensor_backend(n->sched, t.scale[0], n->backends[1]);
    asked.foreign = t.c; // in the first split, requested by the third
    assert_false(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_non_null(strstr(berth_last_error(), "second is not a node of its split"));
}

// graph_optimize as a plugin of an older release has it, with two arguments.
static void optimize_2(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend;
    asked.n_calls++;
    asked.n_nodes += graph->n_nodes;
}

static void two_arguments_suffice(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n, NO_REQUEST);
    void (*two)(ggml_backend_t, struct ggml_cgraph *) = optimize_2;
    memcpy(&n->dev[0].backend.iface.graph_optimize, &two, sizeof two);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    chain_run(n, &t);
    assert_true(asked.n_calls == 1 && asked.n_nodes == 7);
}

static void every_allocation_may_fail(void **state) {
    struct net *n = *state;
    bool was_hit = true;
    for (int64_t k = 1; was_hit; k++) {
        struct chain t = chain_new(n, KEEP_A);
        berth_alloc_watch(true);
        berth_alloc_fail_at(k);
        const bool ok = ggml_backend_sched_alloc_graph(n->sched, n->graph);
        was_hit = berth_alloc_made() >= k - 1;
        berth_alloc_fail_at(0);
        berth_alloc_watch(false);
        assert_true(ok || was_hit);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        assert_false(is_overwritten(&t, t.a));
        chain_run(n, &t);
        forget(n);
    }
}

// ---- order between backends ----

// Two tensors of the caller share bytes, which only the program knows. The first device writes there and the second reads, without
// a copy.
static void hidden_bytes_are_waited_for(void **state) {
    struct net *n = *state;
    for (int parallel = 0; parallel < 2; parallel++) {
        struct device dev[2];
        ggml_backend_t backends[3] = {0};
        for (int d = 0; d < 2; d++) {
            device_init(&dev[d], d == 0 ? "left" : "right");
            dev[d].is_async = dev[d].has_events = dev[d].reads_host = true;
            dev[d].delay_us = d == 0 ? 20000 : 0;
            backends[d] = device_start(&dev[d]);
        }
        backends[2] = n->cpu;
        ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, 3, 64, parallel == 1, true);
        struct ggml_tensor *to = ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, N),
                           *from = ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, N);
        struct ggml_tensor *w = ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, N);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(n->cpu, 4 * ggml_nbytes(to));
        char *base = ggml_backend_buffer_get_base(buffer);
        assert_int_equal(ggml_backend_tensor_alloc(buffer, to, base), GGML_STATUS_SUCCESS);
        assert_int_equal(ggml_backend_tensor_alloc(buffer, from, base), GGML_STATUS_SUCCESS);
        assert_int_equal(ggml_backend_tensor_alloc(buffer, w, base + 2 * ggml_nbytes(to)), GGML_STATUS_SUCCESS);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        struct ggml_tensor *write = ggml_scale_inplace(n->ctx, to, 2.0f), *read = ggml_add(n->ctx, from, w);
        struct ggml_cgraph *graph = ggml_new_graph(n->ctx);
        ggml_set_output(read);
        ggml_build_forward_expand(graph, write);
        ggml_build_forward_expand(graph, read);
        ggml_backend_sched_set_tensor_backend(sched, write, backends[0]);
        ggml_backend_sched_set_tensor_backend(sched, read, backends[1]);
        assert_true(ggml_backend_sched_alloc_graph(sched, graph));
        assert_int_equal(ggml_backend_sched_get_n_splits(sched), 2);
        for (int run = 0; run < 5; run++) {
            fill(to, 4.0f);
            fill(w, 1.0f);
            assert_int_equal(ggml_backend_sched_graph_compute(sched, graph), GGML_STATUS_SUCCESS);
            assert_true(first_of(read) == 9.0f);
        }
        ggml_backend_sched_free(sched);
        ggml_backend_buffer_free(buffer);
        for (int d = 0; d < 2; d++) {
            device_stop(&dev[d]);
        }
    }
}

// The nodes of a later split are counted from the split's first node.
static void a_later_split_keeps_all_nodes(void **state) {
    struct net *n = *state;
    struct chain t = chain_new(n, DUPLICATE);
    ggml_backend_sched_set_tensor_backend(n->sched, t.a, n->backends[1]);
    assert_false(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_non_null(strstr(berth_last_error(), "more than the order"));
    asked.request = KEEP_A;
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_int_equal(ggml_backend_sched_get_n_splits(n->sched), 2);
    chain_run(n, &t);
}

static void custom_unused(struct ggml_tensor *dst, int ith, int nth, void *user) {
    (void) dst, (void) ith, (void) nth, (void) user;
}

// The graph has many more rows and copies than nodes.
static void requests_among_many_sources(void **state) {
    struct net *n = *state;
    struct ggml_tensor *src[9], *sums[2];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 9; k++) {
            src[k] = input(n, 1);
        }
        sums[i] = ggml_custom_4d(n->ctx, GGML_TYPE_F32, N, 1, 1, 1, src, 9, custom_unused, 1, NULL);
        ggml_backend_sched_set_tensor_backend(n->sched, sums[i], n->backends[0]);
    }
    struct ggml_tensor *out = ggml_add(n->ctx, sums[0], sums[1]);
    ggml_backend_sched_set_tensor_backend(n->sched, out, n->backends[0]);
    ggml_set_output(out);
    ggml_build_forward_expand(n->graph, out);
    n->dev[0].backend.iface.graph_optimize = optimize;
    memset(&asked, 0, sizeof asked);
    asked.request = KEEP_A;
    asked.a = sums[0];
    asked.until = out;
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_int_equal(asked.n_calls, 1);
    assert_false(overlaps(sums[0], out));
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        NET_TEST(kept_memory_is_not_shared),
        NET_TEST(copies_can_be_kept),
        NET_TEST(a_leaf_can_be_kept),
        NET_TEST(a_later_split_keeps_all_nodes),
        NET_TEST(requests_among_many_sources),
        NET_TEST(requests_of_all_kinds),
        NET_TEST(another_order_is_run),
        NET_TEST(exchanged_nodes_run_in_order),
        NET_TEST(invalid_requests_are_rejected),
        NET_TEST(a_request_stays_in_its_split),
        NET_TEST(two_arguments_suffice),
        NET_TEST(every_allocation_may_fail),
        NET_TEST(hidden_bytes_are_waited_for),
    };
    return cmocka_run_group_tests_name("sched_optimize", tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// test_alloc.c: the graph allocator: addresses, plans that match their graph, sizes, and failures.

#include "support/check.h"

#include "core/graph.h"
#include "ggml-alloc.h"
#include "ggml-cpu.h"
#include "support/device_full.h"

static int setup(void **state) {
    (void) state;
    full_init();
    check_quiet();
    berth_clear_error();
    return 0;
}

static struct ggml_context *new_context(size_t n_tensors) {
    return ggml_init((struct ggml_init_params){
        .mem_size = n_tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensors, false), .no_alloc = true});
}

static struct ggml_tensor *floats(struct ggml_context *ctx, int64_t n, const char *name) {
    return ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n), name);
}

static void set(struct ggml_tensor *t, float value) {
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *) t->data)[i] = value + (float) i;
    }
}

static void run(struct ggml_cgraph *graph) {
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 1);
    assert_int_equal(ggml_backend_graph_compute(cpu, graph), GGML_STATUS_SUCCESS);
    ggml_backend_free(cpu);
}

static ggml_gallocr_t on_host(void) {
    return ggml_gallocr_new(ggml_backend_cpu_buffer_type());
}

// ---- a plan matches its graph ----

struct test_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *out;
};

// Builds the chain x -> a -> b -> c -> d -> e of tensors of the same size. The last node adds a to e if `moved` is set, otherwise
// d to e. Both graphs have the same counts and sizes, but one edge differs.
static struct test_graph two_ways(bool moved) {
    struct test_graph w = {.ctx = new_context(32)};
    w.graph = ggml_new_graph_custom(w.ctx, 32, false);
    w.x = floats(w.ctx, 64, "x");
    ggml_set_input(w.x);
    struct ggml_tensor *a = ggml_set_name(ggml_cont(w.ctx, w.x), "a"), *b = ggml_set_name(ggml_cont(w.ctx, a), "b");
    struct ggml_tensor *c = ggml_set_name(ggml_cont(w.ctx, b), "c"), *d = ggml_set_name(ggml_cont(w.ctx, c), "d");
    struct ggml_tensor *e = ggml_set_name(ggml_cont(w.ctx, d), "e");
    w.out = ggml_add(w.ctx, e, moved ? a : d);
    ggml_set_output(w.out);
    ggml_build_forward_expand(w.graph, w.out);
    return w;
}

static void moved_edge_is_a_new_plan(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    for (int k = 0; k < 6; k++) { // the two graphs alternate, and the allocator keeps both plans
        struct test_graph w = two_ways(k % 2 == 1);
        assert_true(ggml_gallocr_alloc_graph(galloc, w.graph));
        assert_true(berth_gallocr_verify(galloc, w.graph));
        set(w.x, 3);
        run(w.graph);
        for (int i = 0; i < 64; i++) {
            assert_float_equal(((float *) w.out->data)[i], 2.0f * (3.0f + (float) i), 0);
        }
        ggml_free(w.ctx);
    }
    ggml_gallocr_free(galloc);
}

// Builds out = a + b + r. p and a are copies of x, and r is a copy of p. If `twice` is set, b and a are the same tensor, and the
// graph lists this tensor a second time after r, the last reader of p. Otherwise b is another copy of x.
static struct test_graph listed_twice(bool twice) {
    struct test_graph w = {.ctx = new_context(32)};
    w.graph = ggml_new_graph_custom(w.ctx, 32, false);
    w.x = floats(w.ctx, 64, "x");
    ggml_set_input(w.x);
    struct ggml_tensor *p = ggml_cont(w.ctx, w.x), *a = ggml_cont(w.ctx, w.x), *r = ggml_cont(w.ctx, p);
    struct ggml_tensor *b = twice ? a : ggml_cont(w.ctx, w.x);
    w.out = ggml_add(w.ctx, ggml_add(w.ctx, a, b), r);
    ggml_set_output(w.out);
    ggml_build_forward_expand(w.graph, w.out);
    struct ggml_tensor *nodes[] = {p, a, r, b, w.out->src[0], w.out};
    memcpy(w.graph->nodes, nodes, sizeof nodes);
    w.graph->n_nodes = 6;
    return w;
}

static void listed_twice_is_another_graph(void **state) {
    (void) state;
    for (int order = 0; order < 2; order++) {
        ggml_gallocr_t galloc = on_host();
        for (int k = 0; k < 6; k++) {
            struct test_graph w = listed_twice((k + order) % 2 == 1);
            assert_true(ggml_gallocr_alloc_graph(galloc, w.graph));
            assert_true(berth_gallocr_verify(galloc, w.graph));
            set(w.x, 5);
            run(w.graph);
            assert_float_equal(((float *) w.out->data)[1], 18, 0);
            ggml_free(w.ctx);
        }
        ggml_gallocr_free(galloc);
    }
}

// Returns the size of the buffer for a graph with two results of one input. If `twice` is set, the graph has one result, which is
// listed twice.
static size_t size_of_pair(ggml_gallocr_t galloc, bool twice) {
    struct ggml_context *ctx = new_context(32);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 32, false);
    struct ggml_tensor *x = floats(ctx, 64, "x"), *a = ggml_cont(ctx, x), *b = twice ? a : ggml_cont(ctx, x);
    ggml_build_forward_expand(graph, ggml_concat(ctx, a, b, 0));
    if (twice) {
        graph->nodes[2] = graph->nodes[1];
        graph->nodes[1] = a;
        graph->n_nodes = 3;
    }
    size_t size = 0;
    ggml_gallocr_reserve_n_size(galloc, graph, NULL, NULL, &size);
    ggml_free(ctx);
    return size;
}

static void listed_twice_is_another_size(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    assert_int_equal(size_of_pair(galloc, false), 4 * 256);
    assert_int_equal(size_of_pair(galloc, true), 3 * 256);
    assert_int_equal(size_of_pair(galloc, false), 4 * 256);
    ggml_gallocr_free(galloc);
}

// Returns the size of the buffer for a graph whose second node reads a tensor that the graph does not list. If is_read_first is
// set, the first node reads this tensor, too.
static size_t size_with_unlisted(ggml_gallocr_t galloc, bool is_read_first) {
    struct ggml_context *ctx = new_context(32);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 32, false);
    struct ggml_tensor *x = floats(ctx, 64, "x"), *z = floats(ctx, 64, "z");
    struct ggml_tensor *a = ggml_concat(ctx, x, z, 0), *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    a->src[1] = is_read_first ? z : NULL;
    b->op = GGML_OP_MUL_MAT;
    b->src[0] = a;
    b->src[1] = z;
    graph->nodes[0] = a;
    graph->nodes[1] = b;
    graph->leafs[0] = x;
    graph->n_nodes = 2;
    graph->n_leafs = 1;
    size_t size = 0;
    ggml_gallocr_reserve_n_size(galloc, graph, NULL, NULL, &size);
    ggml_free(ctx);
    return size;
}

static void missing_edge_is_a_new_plan(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    assert_int_equal(size_with_unlisted(galloc, true), 256 * 4);
    assert_int_equal(size_with_unlisted(galloc, false), 200 * 4);
    assert_int_equal(size_with_unlisted(galloc, true), 256 * 4);
    ggml_gallocr_free(galloc);
}

// The offset of a view is not part of the plan; each graph's view has its own address.
static void moved_views_use_the_plan(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    for (int k = 0; k < 6; k++) {
        struct test_graph w = {.ctx = new_context(32)};
        w.graph = ggml_new_graph_custom(w.ctx, 32, false);
        w.x = floats(w.ctx, 64, "x");
        struct ggml_tensor *y = ggml_sqr(w.ctx, w.x), *v = ggml_view_1d(w.ctx, y, 8, (size_t) k * 32);
        w.out = ggml_cont(w.ctx, v);
        ggml_set_output(w.out);
        ggml_build_forward_expand(w.graph, w.out);
        berth_alloc_watch(true);
        assert_true(ggml_gallocr_alloc_graph(galloc, w.graph));
        assert_true(k == 0 || berth_alloc_made() == 0);
        berth_alloc_watch(false);
        assert_ptr_equal(v->data, (char *) y->data + k * 32);
        assert_true(berth_gallocr_verify(galloc, w.graph));
        set(w.x, 0);
        run(w.graph);
        assert_float_equal(((float *) w.out->data)[1], (8 * k + 1) * (8 * k + 1), 0);
        ggml_free(w.ctx);
    }
    ggml_gallocr_free(galloc);
}

// Builds y = relu(x) and out = first half of y + second half of y. Both halves are views of y. x has n elements.
static struct test_graph shaped(int64_t n) {
    struct test_graph w = {.ctx = new_context(32)};
    w.graph = ggml_new_graph_custom(w.ctx, 32, false);
    w.x = floats(w.ctx, n, "x");
    ggml_set_input(w.x);
    struct ggml_tensor *y = ggml_cont(w.ctx, ggml_relu(w.ctx, w.x));
    struct ggml_tensor *a = ggml_view_1d(w.ctx, y, n / 2, 0), *b = ggml_view_1d(w.ctx, y, n / 2, (size_t) n / 2 * 4);
    w.out = ggml_add(w.ctx, a, b);
    ggml_set_output(w.out);
    ggml_build_forward_expand(w.graph, w.out);
    return w;
}

static void smaller_graphs_use_the_plan(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    struct test_graph big = shaped(512);
    assert_true(ggml_gallocr_reserve(galloc, big.graph));
    const size_t size = ggml_gallocr_get_buffer_size(galloc, 0);
    for (int64_t n = 512; n >= 8; n /= 2) {
        for (int k = 0; k < 2; k++) {
            struct test_graph w = shaped(n);
            assert_true(ggml_gallocr_alloc_graph(galloc, w.graph));
            assert_true(berth_gallocr_verify(galloc, w.graph));
            set(w.x, 1);
            run(w.graph);
            assert_float_equal(((float *) w.out->data)[0], 2.0f + (float) (n / 2), 0);
            ggml_free(w.ctx);
        }
    }
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), size);
    assert_true(ggml_gallocr_alloc_graph(galloc, big.graph));
    struct test_graph bigger = shaped(1024);
    assert_true(ggml_gallocr_alloc_graph(galloc, bigger.graph)); // the buffers grow automatically
    assert_true(ggml_gallocr_get_buffer_size(galloc, 0) > size);
    // The tensors of the first graph still refer to the replaced buffer. If the allocator took that buffer for memory of the
    // caller, it would leave the tensors there. It must place the graph again.
    assert_true(ggml_gallocr_alloc_graph(galloc, big.graph));
    assert_true(berth_gallocr_verify(galloc, big.graph));
    assert_ptr_equal(big.x->buffer, bigger.x->buffer);
    set(big.x, 1);
    run(big.graph);
    assert_float_equal(((float *) big.out->data)[0], 2.0f + 256.0f, 0);
    ggml_free(big.ctx);
    ggml_free(bigger.ctx);
    ggml_gallocr_free(galloc);
}

// ---- memory that stays or is shared ----

static void outputs_and_their_views_stay(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context(64);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    struct ggml_tensor *x = floats(ctx, 64, "x");
    struct ggml_tensor *y = ggml_cont(ctx, x);
    struct ggml_tensor *view = ggml_reshape_2d(ctx, y, 8, 8); // an output that is a view, and is also read
    ggml_set_output(view);
    struct ggml_tensor *z = ggml_scale(ctx, view, 2);
    for (int i = 0; i < 8; i++) {
        z = ggml_cont(ctx, z);
    }
    ggml_set_output(z);
    ggml_build_forward_expand(graph, z);
    ggml_gallocr_t galloc = on_host();
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    set(x, 5);
    run(graph);
    assert_float_equal(((float *) view->data)[7], 12, 0);
    assert_float_equal(((float *) z->data)[7], 24, 0);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void in_place_rules(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context(64);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    struct ggml_tensor *x = floats(ctx, 64, "x");
    struct ggml_tensor *a = ggml_relu(ctx, x), *b = ggml_reshape_2d(ctx, a, 8, 8), *c = ggml_neg(ctx, b),
                       *d = ggml_norm(ctx, c, 0);
    ggml_build_forward_expand(graph, d);
    ggml_gallocr_t galloc = on_host();
    size_t size;
    assert_int_equal(berth_gallocr_sizes(galloc, graph, NULL, NULL, &size), GGML_STATUS_SUCCESS);
    assert_int_equal(size, 2 * 256); // x and d: a and c take over the memory of x, c through the view b
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_ptr_equal(a->data, x->data);
    assert_ptr_equal(c->data, x->data);
    assert_ptr_not_equal(d->data, c->data);
    struct berth_gallocr_params o = berth_gallocr_params_default();
    o.inplace_via_views = false;
    berth_gallocr_set_params(galloc, &o);
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_ptr_not_equal(c->data, b->data);
    assert_true(berth_gallocr_verify(galloc, graph));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// An in_place callback that depends on a parameter which the plan does not store.
static bool norm_by_zero(const struct ggml_tensor *node, int i_src, void *user) {
    (void) i_src;
    (void) user;
    return node->op == GGML_OP_NORM && node->op_params[0] == 0;
}

static void in_place_callback_is_called_again(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    struct berth_gallocr_params options = berth_gallocr_params_default();
    options.inplace = norm_by_zero;
    berth_gallocr_set_params(galloc, &options);
    for (int k = 0; k < 6; k++) {
        struct ggml_context *ctx = new_context(32);
        struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 32, false);
        struct ggml_tensor *x = floats(ctx, 64, "x"), *y = ggml_cont(ctx, x), *z = ggml_norm(ctx, y, k % 2 == 0 ? 0 : 1);
        ggml_set_output(z);
        ggml_build_forward_expand(graph, z);
        assert_true(ggml_gallocr_alloc_graph(galloc, graph));
        assert_true(berth_gallocr_verify(galloc, graph));
        assert_true(k > 0 || y->data == z->data);
        assert_true(k % 2 == 0 || y->data != z->data);
        ggml_free(ctx);
    }
    ggml_gallocr_free(galloc);
}

static bool any_cast(const struct ggml_tensor *node, int i_src, void *user) {
    (void) i_src, (void) user;
    return node->op == GGML_OP_CPY;
}

// A cast has itself as a source, which stands for its destination. The cast does not count as a reader of itself: a result that no
// node reads stays allocated.
static void unread_casts_stay(void **state) {
    (void) state;
    for (int n_readers = 0; n_readers < 2; n_readers++) {
        for (int via_rule = 0; via_rule < 2; via_rule++) {
            struct ggml_context *ctx = new_context(64);
            struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
            struct ggml_tensor *x = floats(ctx, 64, "x");
            struct ggml_tensor *cast = ggml_cast(ctx, x, GGML_TYPE_F32), *y = x;
            ggml_set_input(x);
            ggml_build_forward_expand(graph, cast);
            for (int i = 0; i < 5; i++) {
                y = ggml_sqr(ctx, i == 2 && n_readers > 0 ? ggml_add(ctx, y, cast) : ggml_cont(ctx, y));
            }
            ggml_build_forward_expand(graph, y);
            ggml_gallocr_t galloc = on_host();
            struct berth_gallocr_params o = berth_gallocr_params_default();
            o.inplace = via_rule ? any_cast : NULL;
            berth_gallocr_set_params(galloc, &o);
            assert_true(ggml_gallocr_alloc_graph(galloc, graph));
            assert_true(berth_gallocr_verify(galloc, graph));
            set(x, 3);
            run(graph);
            assert_true(n_readers > 0 || *(float *) cast->data == 3);
            ggml_gallocr_free(galloc);
            ggml_free(ctx);
        }
    }
}

static void unread_memory_comes_back(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context(64);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    struct ggml_tensor *x = floats(ctx, 64, "x");
    for (int i = 0; i < 10; i++) {
        ggml_build_forward_expand(graph, ggml_reshape_2d(ctx, ggml_cont(ctx, x), 8, 8)); // no node reads the results
    }
    ggml_gallocr_t galloc = on_host();
    size_t size;
    assert_int_equal(berth_gallocr_sizes(galloc, graph, NULL, NULL, &size), GGML_STATUS_SUCCESS);
    assert_int_equal(size, 11 * 256);
    struct berth_gallocr_params o = berth_gallocr_params_default();
    o.free_unread = true;
    berth_gallocr_set_params(galloc, &o);
    assert_int_equal(berth_gallocr_sizes(galloc, graph, NULL, NULL, &size), GGML_STATUS_SUCCESS);
    assert_int_equal(size, 2 * 256);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void odd_graphs(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context(64);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    ggml_gallocr_t galloc = on_host();
    assert_true(ggml_gallocr_reserve(galloc, graph)); // an empty graph
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 0);
    struct ggml_tensor *none = floats(ctx, 0, "none"), *still = ggml_cont(ctx, none);
    ggml_build_forward_expand(graph, still); // only tensors of 0 bytes
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_non_null(none->data);
    assert_non_null(still->buffer);
    run(graph);
    float theirs[64];
    struct ggml_tensor *x = floats(ctx, 64, "x"), *w = floats(ctx, 64, "w");
    w->data = theirs; // memory of the caller
    struct ggml_tensor *y = ggml_add(ctx, x, w), *v = ggml_view_1d(ctx, w, 8, 0);
    ggml_build_forward_expand(graph, y);
    ggml_build_forward_expand(graph, ggml_cont(ctx, v));
    graph->leafs[graph->n_leafs++] = y; // a leaf that is a node, and a leaf listed twice
    graph->leafs[graph->n_leafs++] = x;
    graph->nodes[graph->n_nodes++] = y; // a node listed twice
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    assert_ptr_equal(w->data, theirs);
    assert_ptr_equal(v->data, theirs);
    assert_null(v->buffer);
    graph->n_nodes--;
    set(x, 1);
    set(w, 1);
    run(graph);
    assert_float_equal(((float *) y->data)[1], 4, 0);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// ---- large graphs ----

// The graph computes n results of different sizes. The first pass reads every second result for the last time. After this pass
// the memory between the other results is free, so n / 2 holes exist at the same time.
static void many_holes(void **state) {
    (void) state;
    enum { n = 700 };
    struct ggml_context *ctx = new_context(5 * n);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 4 * n, false);
    struct ggml_tensor *x = floats(ctx, 64 * (n + 1), "x"), *t[n], *sum = NULL;
    for (int i = 0; i < n; i++) {
        t[i] = ggml_cont(ctx, ggml_view_1d(ctx, x, 8 * (1 + i % 7), 0));
        ggml_build_forward_expand(graph, t[i]);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = pass; i < n; i += 2) {
            struct ggml_tensor *one = ggml_view_1d(ctx, t[i], 8, 0);
            sum = sum == NULL ? ggml_cont(ctx, one) : ggml_add(ctx, sum, one);
            ggml_build_forward_expand(graph, sum);
        }
    }
    ggml_set_output(sum);
    ggml_gallocr_t galloc = on_host();
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    set(x, 1);
    run(graph);
    assert_float_equal(((float *) sum->data)[0], n, 0);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void million_nodes(void **state) {
    (void) state;
    enum { n = 1000000 };
    struct ggml_context *ctx = new_context(n + 16);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, n + 16, false);
    struct ggml_tensor *x = floats(ctx, 8, "x"), *y = x;
    for (int i = 0; i < n / 4; i++) {
        struct ggml_tensor *a = ggml_sqr(ctx, y), *b = ggml_cont(ctx, y);
        y = ggml_cont(ctx, ggml_add(ctx, a, b));
    }
    ggml_build_forward_expand(graph, y);
    assert_int_equal(graph->n_nodes, n);
    ggml_gallocr_t galloc = on_host();
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    assert_true(ggml_gallocr_get_buffer_size(galloc, 0) <= 4 * 32);
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

static void chunks_and_shared_types(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context(64);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    struct ggml_tensor *t[16], *sum = NULL;
    int node_ids[64], leaf_ids[64];
    for (int i = 0; i < 16; i++) {
        t[i] = floats(ctx, 16, "t");
        sum = sum == NULL ? t[i] : ggml_add(ctx, sum, t[i]);
    }
    ggml_build_forward_expand(graph, sum);
    for (int i = 0; i < 64; i++) {
        node_ids[i] = i % 2;
        leaf_ids[i] = i % 2;
    }
    fake.max_size = 128; // a buffer holds two tensors
    ggml_backend_buffer_type_t types[2] = {&fake.buft, &fake.buft};
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 2);
    size_t sizes[2];
    ggml_gallocr_reserve_n_size(galloc, graph, node_ids, leaf_ids, sizes);
    assert_int_equal(sizes[0], 16 * 64);
    assert_int_equal(sizes[1], 0); // both entries are the same buffer type, which has one pool
    assert_true(ggml_gallocr_reserve_n(galloc, graph, node_ids, leaf_ids));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 16 * 64);
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 1), 0);
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    assert_int_equal(full.n_init, 16 + 15);
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_int_equal(full.n_init, 16 + 15); // init_tensor is called once per tensor
    ggml_gallocr_free(galloc);

    // A tensor that is larger than the limit still gets a buffer.
    struct test_graph large = shaped(64);
    struct ggml_backend_buffer_type low = *ggml_backend_cpu_buffer_type();
    low.iface.get_max_size = fake.buft.iface.get_max_size;
    low.context = &fake;
    galloc = ggml_gallocr_new(&low);
    assert_true(ggml_gallocr_reserve(galloc, large.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, large.graph));
    assert_true(berth_gallocr_verify(galloc, large.graph));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 2 * 256);
    ggml_gallocr_free(galloc);
    ggml_free(large.ctx);

    // Two types: the buffer of each tensor must be given.
    ggml_backend_buffer_type_t other[2] = {&fake.buft, ggml_backend_cpu_buffer_type()};
    galloc = ggml_gallocr_new_n(other, 2);
    assert_false(ggml_gallocr_alloc_graph(galloc, graph));
    assert_non_null(strstr(berth_last_error(), "reserve_n first"));
    node_ids[3] = 2;
    assert_false(ggml_gallocr_reserve_n(galloc, graph, node_ids, leaf_ids));
    assert_non_null(strstr(berth_last_error(), "node 3 has buffer id 2; the allocator has 2 buffers"));
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// ---- growth ----

static size_t align_4(ggml_backend_buffer_type_t type) {
    return (void) type, 4;
}

// Builds a graph with n inputs that are all alive until the end. sizes: floats per input.
static struct test_graph inputs_of(const int64_t *sizes, int n) {
    struct test_graph w = {.ctx = new_context(32)};
    w.graph = ggml_new_graph_custom(w.ctx, 32, false);
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *x = floats(w.ctx, sizes[i], "x");
        ggml_set_input(x);
        ggml_set_output(x);
        ggml_build_forward_expand(w.graph, ggml_reshape_1d(w.ctx, x, sizes[i]));
    }
    return w;
}

// Allocates the graph. Asserts that the plan is valid and that the buffer then has `size` bytes.
static void holds(ggml_gallocr_t galloc, struct ggml_cgraph *graph, size_t size) {
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), size);
}

// A buffer consists of chunks of at most 32 bytes. If a new graph needs more memory, the buffer gets the size that a new
// allocator would give it. If graphs alternate, the size becomes stable.
static void growing_takes_what_a_fresh_one_would(void **state) {
    (void) state;
    struct ggml_backend_buffer_type small = *ggml_backend_cpu_buffer_type();
    fake.max_size = 32;
    small.iface.get_max_size = fake.buft.iface.get_max_size;
    small.context = &fake;
    small.iface.get_alignment = align_4;
    const int64_t one[] = {6}, two[] = {5, 5}, four[] = {8, 8, 8, 2}, least[] = {1};
    struct test_graph a = inputs_of(one, 1), b = inputs_of(two, 2), c = inputs_of(four, 4), d = inputs_of(least, 1);
    ggml_gallocr_t galloc = ggml_gallocr_new(&small);
    holds(galloc, a.graph, 24);
    holds(galloc, b.graph, 40); // not 24 + 20
    holds(galloc, a.graph, 44); // chunks of 24 and 20 bytes: the plans of `a` and `b` are both kept
    holds(galloc, b.graph, 44);
    holds(galloc, c.graph, 104); // three chunks and a smaller one
    holds(galloc, d.graph, 104); // a smaller graph frees nothing
    holds(galloc, a.graph, 104);
    ggml_gallocr_free(galloc);

    // An item that exceeds the limit changes the plan from two chunks to one. The next graph has several chunks again.
    const int64_t half[] = {4, 5, 2}, large[] = {25};
    struct test_graph e = inputs_of(half, 3), f = inputs_of(large, 1), g = inputs_of(four, 4);
    galloc = ggml_gallocr_new(&small);
    holds(galloc, e.graph, 44);
    holds(galloc, f.graph, 100); // one chunk, larger than the type's limit
    holds(galloc, g.graph, 104);
    ggml_gallocr_free(galloc);

    // The chunks have enough bytes in total, but one of them is too small.
    const int64_t uneven[] = {6, 4};
    struct test_graph h = inputs_of(uneven, 2), i = inputs_of(two, 2), j = inputs_of(one, 1), k = inputs_of(uneven, 2);
    galloc = ggml_gallocr_new(&small);
    holds(galloc, h.graph, 40);
    holds(galloc, i.graph, 40); // not 24 + 20
    ggml_gallocr_free(galloc);
    galloc = ggml_gallocr_new(&small);
    holds(galloc, j.graph, 24);
    holds(galloc, k.graph, 40); // an additional chunk
    ggml_gallocr_free(galloc);
    struct ggml_context *all[] = {a.ctx, b.ctx, c.ctx, d.ctx, e.ctx, f.ctx, g.ctx, h.ctx, i.ctx, j.ctx, k.ctx};
    for (size_t n = 0; n < sizeof all / sizeof all[0]; n++) {
        ggml_free(all[n]);
    }
}

// ---- failures ----

static void known_graphs_allocate_nothing(void **state) {
    (void) state;
    ggml_gallocr_t galloc = on_host();
    struct test_graph a = two_ways(false), b = two_ways(false), c = shaped(256), d = shaped(128);
    assert_true(ggml_gallocr_alloc_graph(galloc, a.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, c.graph));
    berth_alloc_watch(true);
    assert_true(ggml_gallocr_alloc_graph(galloc, a.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, b.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, c.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, d.graph));
    assert_int_equal(berth_alloc_made(), 0);
    berth_alloc_watch(false);
    ggml_free(a.ctx);
    ggml_free(b.ctx);
    ggml_free(c.ctx);
    ggml_free(d.ctx);
    ggml_gallocr_free(galloc);
}

// Every allocation fails once. After the failure the allocator still has its old memory, and the next attempt succeeds.
static void each_allocation_fails(void **state) {
    (void) state;
    ggml_backend_buffer_type_t types[2] = {ggml_backend_cpu_buffer_type(), &fake.buft};
    const int ids[64] = {0, 1, 0, 1, 0, 1};
    int n_failures = 0;
    int64_t n_made = 1;
    for (int64_t n = 1; n <= n_made; n++) {
        berth_alloc_watch(true);
        struct test_graph small = shaped(64), big = shaped(4096), other = two_ways(true);
        ggml_gallocr_t galloc = ggml_gallocr_new_n(types, 2);
        assert_true(ggml_gallocr_reserve_n(galloc, small.graph, ids, ids));
        assert_true(ggml_gallocr_alloc_graph(galloc, small.graph));
        const size_t before[2] = {ggml_gallocr_get_buffer_size(galloc, 0), ggml_gallocr_get_buffer_size(galloc, 1)};

        const int64_t n_before = berth_alloc_made();
        berth_alloc_fail_at(n);
        const bool ok = ggml_gallocr_reserve_n(galloc, big.graph, ids, ids) && ggml_gallocr_alloc_graph(galloc, big.graph) &&
                        ggml_gallocr_reserve_n(galloc, other.graph, ids, ids) && ggml_gallocr_alloc_graph(galloc, other.graph);
        berth_alloc_fail_at(0);
        n_failures += !ok;
        n_made = ok ? berth_alloc_made() - n_before : n + 1;
        for (int i = 0; i < 2; i++) {
            assert_true(ggml_gallocr_get_buffer_size(galloc, i) >= before[i]);
        }
        assert_true(ggml_gallocr_alloc_graph(galloc, small.graph)); // its plan still exists
        assert_true(berth_gallocr_verify(galloc, small.graph));
        assert_true(ggml_gallocr_reserve_n(galloc, big.graph, ids, ids));
        assert_true(ggml_gallocr_alloc_graph(galloc, big.graph));
        assert_true(berth_gallocr_verify(galloc, big.graph));
        ggml_gallocr_free(galloc);
        ggml_free(small.ctx);
        ggml_free(big.ctx);
        ggml_free(other.ctx);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
    }
    printf("%d failures in %lld allocations\n", n_failures, (long long) n_made);
    assert_true(n_failures > 10);
}

static void full_device(void **state) {
    (void) state;
    ggml_gallocr_t galloc = ggml_gallocr_new(&fake.buft);
    struct test_graph small = shaped(64), big = shaped(4096);
    assert_true(ggml_gallocr_alloc_graph(galloc, small.graph));
    const size_t size = ggml_gallocr_get_buffer_size(galloc, 0);
    fake.max_size = size; // set after the allocator was created: the device is full
    assert_false(ggml_gallocr_reserve(galloc, big.graph));
    assert_non_null(strstr(berth_last_error(), "cannot allocate a compute buffer"));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), size);
    assert_false(ggml_gallocr_alloc_graph(galloc, big.graph));
    assert_null(big.x->data);
    assert_true(ggml_gallocr_alloc_graph(galloc, small.graph));
    assert_true(berth_gallocr_verify(galloc, small.graph));
    fake.max_size = 0;
    assert_true(ggml_gallocr_alloc_graph(galloc, big.graph));
    full.fail_init = 2;
    struct test_graph second = shaped(4096);
    assert_false(ggml_gallocr_alloc_graph(galloc, second.graph));
    assert_true(ggml_gallocr_alloc_graph(galloc, second.graph));
    assert_true(berth_gallocr_verify(galloc, second.graph));
    ggml_free(small.ctx);
    ggml_free(big.ctx);
    ggml_free(second.ctx);
    ggml_gallocr_free(galloc);
}

static void wrong_calls(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context(16);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 16, false);
    ggml_backend_buffer_type_t none = NULL;
    ggml_gallocr_t galloc = on_host();
    assert_null(ggml_gallocr_new(NULL));
    assert_null(ggml_gallocr_new_n(&none, 1));
    assert_null(ggml_gallocr_new_n(NULL, 0));
    assert_false(ggml_gallocr_reserve(NULL, graph));
    assert_false(ggml_gallocr_reserve(galloc, NULL));
    assert_false(ggml_gallocr_alloc_graph(galloc, NULL));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 1), 0);
    assert_int_equal(ggml_gallocr_get_buffer_size(NULL, 0), 0);
    ggml_build_forward_expand(graph, ggml_add(ctx, floats(ctx, 2, "a"), floats(ctx, 3, "b")));
    assert_false(ggml_gallocr_alloc_graph(galloc, graph)); // the sum is poison, because its sources have different shapes
    assert_non_null(strstr(berth_last_error(), "ggml_add"));
    ggml_gallocr_free(NULL);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(moved_edge_is_a_new_plan, setup),
        cmocka_unit_test_setup(listed_twice_is_another_graph, setup),
        cmocka_unit_test_setup(listed_twice_is_another_size, setup),
        cmocka_unit_test_setup(missing_edge_is_a_new_plan, setup),
        cmocka_unit_test_setup(moved_views_use_the_plan, setup),
        cmocka_unit_test_setup(smaller_graphs_use_the_plan, setup),
        cmocka_unit_test_setup(outputs_and_their_views_stay, setup),
        cmocka_unit_test_setup(in_place_rules, setup),
        cmocka_unit_test_setup(in_place_callback_is_called_again, setup),
        cmocka_unit_test_setup(unread_casts_stay, setup),
        cmocka_unit_test_setup(unread_memory_comes_back, setup),
        cmocka_unit_test_setup(odd_graphs, setup),
        cmocka_unit_test_setup(many_holes, setup),
        cmocka_unit_test_setup(million_nodes, setup),
        cmocka_unit_test_setup(chunks_and_shared_types, setup),
        cmocka_unit_test_setup(growing_takes_what_a_fresh_one_would, setup),
        cmocka_unit_test_setup(known_graphs_allocate_nothing, setup),
        cmocka_unit_test_setup(each_allocation_fails, setup),
        cmocka_unit_test_setup(full_device, setup),
        cmocka_unit_test_setup(wrong_calls, setup),
    };
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}

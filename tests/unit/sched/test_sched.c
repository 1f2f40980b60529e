// SPDX-License-Identifier: MIT
// test_sched.c: on which backend the scheduler places ops and why, which tensors it copies, and when it plans anew.
// test_sched_explain.c tests the reports of the scheduler.

#include "support/device_net.h"

// ---- placement ----

static void weights_attract_their_ops(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x), *b = ggml_mul_mat(n->ctx, n->w[1], a);
    struct ggml_tensor *c = ggml_mul_mat(n->ctx, n->w[2], b);
    split(n, c);
    assert_on(n, x, 2, BERTH_SCHED_INPUT);
    assert_on(n, a, 0, BERTH_SCHED_WEIGHT);
    assert_on(n, b, 1, BERTH_SCHED_WEIGHT);
    assert_on(n, c, 2, BERTH_SCHED_WEIGHT);
    assert_on(n, n->w[1], 1, BERTH_SCHED_PLACED);
    assert_int_equal(ggml_backend_sched_get_n_splits(n->sched), 3);
    ggml_backend_sched_reset(n->sched);
    assert_null(ggml_backend_sched_get_tensor_backend(n->sched, a));
}

// An op with weights on two devices runs on the device of the larger weight.
static void the_largest_weight_decides(void **state) {
    struct net *n = *state;
    struct ggml_tensor *small = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, N, 1);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(n->backends[1], ggml_nbytes(small));
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, small, ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    struct ggml_tensor *a = ggml_mul_mat(n->ctx, small, n->w[0]), *b = ggml_mul_mat(n->ctx, n->w[0], small);
    ggml_build_forward_expand(n->graph, a);
    split(n, b);
    assert_on(n, a, 0, BERTH_SCHED_WEIGHT);
    assert_on(n, b, 0, BERTH_SCHED_WEIGHT);
    ggml_backend_sched_reset(n->sched);
    ggml_backend_buffer_free(buffer);
}

static void the_callers_choice_wins(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x), *b = ggml_sqr(n->ctx, a);
    ggml_backend_sched_set_tensor_backend(n->sched, b, n->backends[1]);
    assert_ptr_equal(ggml_backend_sched_get_tensor_backend(n->sched, b), n->backends[1]);
    split(n, b);
    assert_on(n, b, 1, BERTH_SCHED_CALLER);
    ggml_backend_sched_reset(n->sched);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_on(n, b, 0, BERTH_SCHED_EXPANSION);
}

// The graph computes r = a2 + a and s = norm(r). The border is where the graph changes from the first device to the second. Nodes
// of the second device read r and s. If s runs on the second device, only r is copied. Every other border copies more bytes.
static void the_border_is_where_fewest_bytes_cross(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x), *a2 = ggml_mul_mat(n->ctx, n->w[0], a);
    struct ggml_tensor *r = named(ggml_add(n->ctx, a2, a), "r"), *s = named(ggml_rms_norm(n->ctx, r, 1e-5f), "s");
    struct ggml_tensor *t = ggml_mul_mat(n->ctx, n->w[1], s), *u = ggml_add(n->ctx, t, r);
    split(n, u);
    assert_on(n, r, 0, BERTH_SCHED_EXPANSION);
    assert_on(n, s, 1, BERTH_SCHED_EXPANSION);
    assert_on(n, u, 1, BERTH_SCHED_EXPANSION);
}

// The first device computes a, the second device computes b. With g0 = a + b on the first device, b and then g0 would be copied.
// With g0 on the second device, only a is copied.
static void the_border_knows_the_first_reader(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *b = ggml_mul_mat(n->ctx, n->w[1], x), *a = ggml_mul_mat(n->ctx, n->w[0], x);
    struct ggml_tensor *g0 = named(ggml_add(n->ctx, a, b), "g0"), *g1 = named(ggml_add(n->ctx, g0, b), "g1");
    ggml_build_forward_expand(n->graph, b);
    split(n, ggml_mul_mat(n->ctx, n->w[1], g1));
    assert_on(n, g0, 1, BERTH_SCHED_EXPANSION);
    assert_on(n, g1, 1, BERTH_SCHED_EXPANSION);
}

// The cache is in memory of the second device. Its reader t runs there, so that the cache is not copied.
static void the_border_counts_memory_that_is_placed(void **state) {
    struct net *n = *state;
    struct ggml_tensor *cache = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, N, 2);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(n->backends[1], ggml_nbytes(cache));
    assert_int_equal(ggml_backend_tensor_alloc(buffer, cache, ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    struct ggml_tensor *a = ggml_mul_mat(n->ctx, n->w[0], input(n, 2)), *s = named(ggml_scale(n->ctx, a, 2.0f), "s");
    struct ggml_tensor *t = named(ggml_add(n->ctx, s, cache), "t");
    split(n, ggml_mul_mat(n->ctx, n->w[1], t));
    assert_on(n, s, 0, BERTH_SCHED_EXPANSION);
    assert_on(n, t, 1, BERTH_SCHED_EXPANSION);
    ggml_backend_sched_reset(n->sched);
    ggml_backend_buffer_free(buffer);
}

static void big_batches_are_offloaded(void **state) {
    struct net *n = *state;
    n->dev[1].offload_batch = 32;
    struct ggml_tensor *few = ggml_mul_mat(n->ctx, n->w[2], input(n, 2)), *many = ggml_mul_mat(n->ctx, n->w[2], input(n, 32));
    ggml_build_forward_expand(n->graph, few);
    split(n, many);
    assert_on(n, few, 2, BERTH_SCHED_WEIGHT);
    assert_on(n, many, 1, BERTH_SCHED_OFFLOAD);
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, false); // op_offload = false
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_on(n, many, 2, BERTH_SCHED_WEIGHT);
}

static void the_least_batch_can_be_set(void **state) {
    struct net *n = *state;
    n->dev[1].offload_batch = 2;
    struct ggml_tensor *few = ggml_mul_mat(n->ctx, n->w[2], input(n, 31)), *many = ggml_mul_mat(n->ctx, n->w[2], input(n, 32));
    ggml_backend_sched_free(n->sched);
    setenv("GGML_OP_OFFLOAD_MIN_BATCH", "32", 1);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    unsetenv("GGML_OP_OFFLOAD_MIN_BATCH");
    ggml_build_forward_expand(n->graph, few);
    split(n, many);
    assert_on(n, few, 2, BERTH_SCHED_WEIGHT);
    assert_on(n, many, 1, BERTH_SCHED_OFFLOAD);
}

static void fallbacks_have_different_reasons(void **state) {
    struct net *n = *state;
    n->dev[0].supports = no_tanh;
    struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x), *b = named(ggml_tanh(n->ctx, a), "b");
    split(n, ggml_sqr(n->ctx, b));
    assert_int_equal(berth_sched_reason(n->sched, b), BERTH_SCHED_FALLBACK_OP);
    berth_sched_set_strict(n->sched, true);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "fallback: op not supported by first"));
    assert_false(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    berth_sched_set_strict(n->sched, false);

    n->dev[0].supports = no_f16;
    ggml_free(n->ctx);
    graph_new(n);
    x = input(n, 2);
    a = ggml_mul_mat(n->ctx, n->w[0], x);
    struct ggml_tensor *h = ggml_cast(n->ctx, a, GGML_TYPE_F16);
    b = named(ggml_cast(n->ctx, h, GGML_TYPE_F32), "b");
    split(n, ggml_sqr(n->ctx, b));
    assert_int_equal(berth_sched_reason(n->sched, b), BERTH_SCHED_FALLBACK_TYPE);
}

static void an_op_without_a_backend_is_rejected(void **state) {
    struct net *n = *state;
    n->dev[0].supports = no_tanh;
    ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends, NULL, 1, 64, false, false);
    struct ggml_tensor *b = named(ggml_tanh(n->ctx, input(n, 2)), "tanh of x");
    ggml_build_forward_expand(n->graph, b);
    assert_false(ggml_backend_sched_alloc_graph(sched, n->graph));
    assert_non_null(strstr(berth_last_error(), "tanh of x"));
    assert_int_equal(ggml_backend_sched_graph_compute(sched, n->graph), GGML_STATUS_FAILED);
    ggml_backend_sched_free(sched);
}

// ---- compute ----

// Returns true if only buffer and data of the tensor changed. The scheduler must not write any other byte of the struct: other
// threads may read the other fields at the same time, and other libraries may keep data in extra and padding.
static bool differs_only_in_memory(const struct ggml_tensor *t, const struct ggml_tensor *before) {
    struct ggml_tensor now = *t;
    now.buffer = before->buffer;
    now.data = before->data;
    return memcmp(&now, before, sizeof now) == 0;
}

// The scheduler does not change the tensors of the caller's graph, except for buffer and data.
static void the_graph_stays_the_callers(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *a = ggml_sqr(n->ctx, x), *b = ggml_scale(n->ctx, a, 2.0f);
    ggml_set_output(b);
    ggml_build_forward_expand(n->graph, b);
    const struct ggml_tensor x_before = *x, a_before = *a, b_before = *b;
    for (int run = 0; run < 4; run++) {
        ggml_backend_sched_reset(n->sched);
        ggml_backend_sched_set_tensor_backend(n->sched, a, n->backends[0]);
        ggml_backend_sched_set_tensor_backend(n->sched, b, n->backends[1]);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        fill(x, (float) run);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_true(first_of(b) == 2.0f * (float) (run * run));
        assert_true(
            differs_only_in_memory(x, &x_before) && differs_only_in_memory(a, &a_before) && differs_only_in_memory(b, &b_before));
    }
    struct berth_sched_stats stats;
    berth_sched_stats(n->sched, &stats);
    assert_int_equal(stats.n_planned, 1);
    assert_int_equal(stats.n_cache_hits, 3);
    assert_int_equal(stats.n_copied, 8);
    // No allocation in between: the same memory and the same splits are used.
    fill(x, 5.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(b) == 50.0f);
}

// After a node writes to a tensor, copies of that tensor are renewed: later readers get the new bytes.
static void copies_are_renewed_after_writes(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 1), *a = ggml_scale(n->ctx, x, 2.0f);
    struct ggml_tensor *before = ggml_scale(n->ctx, a, 1.0f), *write = ggml_scale_inplace(n->ctx, a, 10.0f);
    struct ggml_tensor *after = ggml_scale(n->ctx, a, 1.0f);
    struct ggml_tensor *all[] = {a, before, write, after};
    for (int i = 0; i < 4; i++) {
        ggml_build_forward_expand(n->graph, all[i]);
        ggml_set_output(all[i]);
    }
    ggml_backend_sched_set_tensor_backend(n->sched, a, n->backends[0]);
    ggml_backend_sched_set_tensor_backend(n->sched, before, n->backends[1]);
    ggml_backend_sched_set_tensor_backend(n->sched, after, n->backends[1]);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_ptr_equal(ggml_backend_sched_get_tensor_backend(n->sched, write), n->backends[0]);
    fill(x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(before) == 2.0f);
    assert_true(first_of(after) == 20.0f);
}

static void readers_share_a_copy(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 1), *a = ggml_scale(n->ctx, x, 2.0f), *b = ggml_scale(n->ctx, x, 3.0f);
    struct ggml_tensor *c = ggml_add(n->ctx, a, b);
    ggml_set_output(c);
    ggml_build_forward_expand(n->graph, c);
    for (int i = 0; i < 3; i++) {
        ggml_backend_sched_set_tensor_backend(n->sched, ggml_graph_node(n->graph, i), n->backends[0]);
    }
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1.0f);
    const int n_sets = n->dev[0].n_sets;
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_int_equal(n->dev[0].n_sets, n_sets + 1);
    assert_true(first_of(c) == 5.0f);
}

// Two graphs have equal counts and sizes but differ in one edge.
static void a_moved_edge_is_another_graph(void **state) {
    struct net *n = *state;
    struct ggml_cgraph *graph[2] = {n->graph, ggml_new_graph(n->ctx)};
    struct ggml_tensor *x[2], *out[2];
    for (int g = 0; g < 2; g++) {
        x[g] = input(n, 1);
        struct ggml_tensor *a = ggml_scale(n->ctx, x[g], 2.0f), *b = ggml_scale(n->ctx, a, 3.0f),
                           *c = ggml_scale(n->ctx, b, 5.0f);
        struct ggml_tensor *d = ggml_scale(n->ctx, g == 0 ? c : b, 7.0f), *e = ggml_add(n->ctx, d, g == 0 ? a : c);
        out[g] = ggml_add(n->ctx, e, g == 0 ? b : a);
        ggml_set_output(out[g]);
        ggml_build_forward_expand(graph[g], out[g]);
    }
    const float expected[2] = {2 * 3 * 5 * 7 + 2 + 6, 2 * 3 * 7 + 30 + 2};
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    for (int run = 0; run < 12; run++) {
        const int g = run % 2;
        if (run % 4 < 2) {
            ggml_backend_sched_reset(n->sched);
            assert_true(ggml_backend_sched_alloc_graph(n->sched, graph[g]));
            fill(x[g], 1.0f);
            assert_int_equal(ggml_backend_sched_graph_compute(n->sched, graph[g]), GGML_STATUS_SUCCESS);
        } else {
            for (int i = 0; i < ggml_graph_n_nodes(graph[g]); i++) { // removes the scheduler's addresses
                ggml_graph_node(graph[g], i)->buffer = NULL;
                ggml_graph_node(graph[g], i)->data = NULL;
            }
            x[g]->buffer = NULL;
            x[g]->data = NULL;
            assert_true(ggml_gallocr_alloc_graph(galloc, graph[g]));
            fill(x[g], 1.0f);
            assert_int_equal(ggml_backend_graph_compute(n->cpu, graph[g]), GGML_STATUS_SUCCESS);
        }
        assert_true(first_of(out[g]) == expected[g]);
        for (int i = 0; i < ggml_graph_n_nodes(graph[g]); i++) {
            ggml_graph_node(graph[g], i)->buffer = NULL;
            ggml_graph_node(graph[g], i)->data = NULL;
        }
        x[g]->buffer = NULL;
        x[g]->data = NULL;
    }
    ggml_gallocr_free(galloc);
}

struct watch {
    int n_asked, n_seen, stop_after;
    const struct ggml_tensor *last;
};

static bool watch(struct ggml_tensor *t, bool ask, void *user) {
    struct watch *w = user;
    if (ask) {
        w->n_asked++;
        return w->n_asked % 2 == 0;
    }
    w->last = t;
    return ++w->n_seen != w->stop_after;
}

static void nodes_can_be_watched(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 1), *t = x, *chain[9];
    for (int i = 0; i < 9; i++) {
        t = chain[i] = ggml_scale(n->ctx, t, 2.0f);
        ggml_backend_sched_set_tensor_backend(n->sched, t, n->backends[i / 3]);
        ggml_set_output(t);
    }
    ggml_build_forward_expand(n->graph, t);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1.0f);
    struct watch w = {0};
    ggml_backend_sched_set_eval_callback(n->sched, watch, &w);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_int_equal(w.n_asked, 9);
    assert_int_equal(w.n_seen, 4);
    assert_ptr_equal(w.last, chain[7]);
    assert_true(first_of(t) == 512.0f);
    w = (struct watch){.stop_after = 2}; // stops the graph
    fill(x, 2.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_int_equal(w.n_seen, 2);
    assert_true(first_of(chain[3]) == 32.0f);
    assert_true(first_of(t) == 512.0f);
}

// ---- memory ----

static int n_lines;

static void count_growth(enum ggml_log_level level, const char *text, void *user) {
    (void) level;
    (void) user;
    n_lines += strstr(text, "needs more memory than was reserved") != NULL;
}

static void larger_graphs_are_planned_anew(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *y = ggml_mul_mat(n->ctx, n->w[0], x);
    ggml_set_output(y);
    ggml_build_forward_expand(n->graph, y);
    size_t sizes[3];
    ggml_backend_sched_reserve_size(n->sched, n->graph, sizes);
    assert_true(sizes[0] > 0 && sizes[2] > 0);
    assert_int_equal(ggml_backend_sched_get_buffer_size(n->sched, n->backends[0]), 0);
    assert_true(ggml_backend_sched_reserve(n->sched, n->graph));
    assert_int_equal(ggml_backend_sched_get_buffer_size(n->sched, n->backends[0]), sizes[0]);
    assert_null(y->data);
    struct ggml_cgraph *large = ggml_new_graph(n->ctx);
    struct ggml_tensor *x2 = input(n, 64), *y2 = ggml_mul_mat(n->ctx, n->w[0], x2);
    ggml_set_output(y2);
    ggml_build_forward_expand(large, y2);
    n_lines = 0;
    ggml_log_set(count_growth, NULL);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, large));
    check_quiet();
    assert_int_equal(n_lines, 1);
    ggml_backend_sched_reset(n->sched);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
}

// ---- arguments ----

static void null_is_accepted(void **state) {
    struct net *n = *state;
    assert_null(ggml_backend_sched_new(NULL, NULL, 1, 0, false, false));
    assert_null(ggml_backend_sched_new(n->backends, NULL, 0, 0, false, false));
    ggml_backend_sched_free(NULL);
    ggml_backend_sched_reset(NULL);
    ggml_backend_sched_synchronize(NULL);
    ggml_backend_sched_split_graph(n->sched, NULL);
    ggml_backend_sched_set_eval_callback(NULL, NULL, NULL);
    ggml_backend_sched_set_tensor_backend(n->sched, NULL, n->cpu);
    ggml_backend_sched_reserve_size(NULL, NULL, NULL);
    assert_false(ggml_backend_sched_reserve(n->sched, NULL));
    assert_false(ggml_backend_sched_alloc_graph(NULL, n->graph));
    assert_int_equal(ggml_backend_sched_graph_compute(NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(ggml_backend_sched_get_n_backends(NULL), 0);
    assert_int_equal(ggml_backend_sched_get_n_backends(n->sched), 3);
    assert_ptr_equal(ggml_backend_sched_get_backend(n->sched, 1), n->backends[1]);
    assert_null(ggml_backend_sched_get_backend(n->sched, 3));
    assert_null(ggml_backend_sched_get_buffer_type(n->sched, NULL));
    assert_ptr_equal(ggml_backend_sched_get_buffer_type(n->sched, n->backends[0]), &n->dev[0].buft);
    assert_null(ggml_backend_sched_get_tensor_backend(n->sched, NULL));
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS); // an empty graph
    ggml_build_forward_expand(n->graph, ggml_add(n->ctx, input(n, 1), input(n, 3))); // poison: the shapes do not match
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_FAILED);
}

// ---- threads ----

// Computes `half`, every second row of a weight, times two. All threads share the tensor `half`. It is a view, and therefore a node
// of each thread's graph.
static void *compute_alone(void *user) {
    struct ggml_tensor *half = user;
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_sched_t sched = ggml_backend_sched_new(&cpu, NULL, 1, 64, false, false);
    const char *wrong = NULL;
    ggml_backend_cpu_set_n_threads(cpu, 1);
    for (int run = 0; run < 40 && wrong == NULL; run++) {
        struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
        struct ggml_context *ctx = ggml_init(params);
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        struct ggml_tensor *y = ggml_scale(ctx, half, 2.0f);
        for (int i = 0; i < run % 3; i++) {
            y = ggml_scale(ctx, y, 1.0f);
        }
        ggml_set_output(y);
        ggml_build_forward_expand(graph, y);
        ggml_backend_sched_reset(sched);
        float expected[2], got[2];
        wrong = !ggml_backend_sched_alloc_graph(sched, graph)                           ? "alloc"
                : ggml_backend_sched_graph_compute(sched, graph) != GGML_STATUS_SUCCESS ? "compute"
                                                                                        : NULL;
        if (wrong == NULL) {
            ggml_backend_tensor_get(half, expected, half->nb[1], sizeof expected);
            ggml_backend_tensor_get(y, got, y->nb[1], sizeof got);
            wrong = got[0] == 2 * expected[0] && got[1] == 2 * expected[1] ? NULL : "result";
        }
        ggml_free(ctx);
    }
    ggml_backend_sched_free(sched);
    ggml_backend_free(cpu);
    return (void *) (uintptr_t) wrong;
}

static void threads_may_share_tensors(void **state) {
    enum { THREADS = 4 };
    struct net *n = *state;
    struct ggml_tensor *half = ggml_view_2d(n->weights_ctx, n->w[2], N, N / 2, 2 * n->w[2]->nb[1], 0);
    assert_int_equal(ggml_backend_view_init(half), GGML_STATUS_SUCCESS);
    ggml_build_forward_expand(n->graph, half); // sets the flags of half now, so that no thread has to
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, compute_alone, half), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

// ---- size ----

static void many_backends_and_splits(void **state) {
    (void) state;
    enum { BACKENDS = 32, SPLITS = 10000 };
    static struct device devices[BACKENDS];
    ggml_backend_t backends[BACKENDS];
    for (int d = 0; d < BACKENDS - 1; d++) {
        char name[16];
        snprintf(name, sizeof name, "dev%d", d);
        device_init(&devices[d], name);
        backends[d] = device_start(&devices[d]);
    }
    backends[BACKENDS - 1] = ggml_backend_cpu_init();
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, BACKENDS, 16, false, false);
    struct ggml_init_params params = {
        .mem_size = (SPLITS + 16) * ggml_tensor_overhead() + ggml_graph_overhead_custom(SPLITS + 16, false), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, SPLITS + 16, false);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8), *t = x;
    ggml_set_input(x);
    for (int i = 0; i < SPLITS; i++) {
        t = i % 2 == 0 ? ggml_scale(ctx, t, 2.0f) : ggml_scale(ctx, t, 0.5f);
        ggml_backend_sched_set_tensor_backend(sched, t, backends[i * 7 % BACKENDS]);
    }
    ggml_set_output(t);
    ggml_build_forward_expand(graph, t);
    assert_true(ggml_backend_sched_alloc_graph(sched, graph));
    assert_int_equal(ggml_backend_sched_get_n_splits(sched), SPLITS);
    fill(x, 3.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(sched, graph), GGML_STATUS_SUCCESS);
    assert_true(first_of(t) == 3.0f);
    ggml_backend_sched_free(sched);
    ggml_free(ctx);
    for (int d = 0; d < BACKENDS - 1; d++) {
        device_stop(&devices[d]);
    }
    ggml_backend_free(backends[BACKENDS - 1]);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        NET_TEST(weights_attract_their_ops),
        NET_TEST(the_largest_weight_decides),
        NET_TEST(the_callers_choice_wins),
        NET_TEST(the_border_is_where_fewest_bytes_cross),
        NET_TEST(the_border_knows_the_first_reader),
        NET_TEST(the_border_counts_memory_that_is_placed),
        NET_TEST(big_batches_are_offloaded),
        NET_TEST(the_least_batch_can_be_set),
        NET_TEST(fallbacks_have_different_reasons),
        NET_TEST(an_op_without_a_backend_is_rejected),
        NET_TEST(the_graph_stays_the_callers),
        NET_TEST(copies_are_renewed_after_writes),
        NET_TEST(readers_share_a_copy),
        NET_TEST(a_moved_edge_is_another_graph),
        NET_TEST(nodes_can_be_watched),
        NET_TEST(larger_graphs_are_planned_anew),
        NET_TEST(null_is_accepted),
        NET_TEST(threads_may_share_tensors),
        cmocka_unit_test(many_backends_and_splits),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// test_sched_edge.c: unusual and wrong uses of the scheduler: missing arguments, full streams, buffers that reject tensors, inputs
// in the program's memory, views that are listed before their source.

#include "support/device_net.h"

#include <unistd.h>

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

static void calls_with_missing_arguments(void **state) {
    struct net *n = *state;
    ggml_backend_sched_t s = n->sched;
    struct ggml_tensor *x = input(n, 2);
    struct berth_plan_report report;
    struct berth_sched_stats stats = {.n_planned = 7};
    size_t sizes[3];
    check_quiet();
    assert_int_equal(ggml_backend_sched_get_n_backends(NULL) + ggml_backend_sched_get_n_splits(NULL), 0);
    assert_int_equal(ggml_backend_sched_get_n_copies(NULL), 0);
    assert_null(ggml_backend_sched_get_backend(NULL, 0));
    assert_null(ggml_backend_sched_get_backend(s, -1));
    assert_null(ggml_backend_sched_get_backend(s, 3));
    assert_ptr_equal(ggml_backend_sched_get_backend(s, 2), n->cpu);
    assert_null(ggml_backend_sched_get_buffer_type(NULL, n->cpu));
    assert_null(ggml_backend_sched_get_buffer_type(s, NULL));
    assert_int_equal(ggml_backend_sched_get_buffer_size(s, NULL), 0);
    ggml_backend_sched_set_tensor_backend(NULL, x, n->cpu);
    assert_error("the scheduler is NULL");
    ggml_backend_sched_set_tensor_backend(s, NULL, n->cpu);
    assert_error("the tensor is NULL");
    ggml_backend_sched_set_tensor_backend(s, x, NULL);
    assert_error("does not belong to the scheduler");
    berth_alloc_fail_at(1);
    ggml_backend_sched_set_tensor_backend(s, x, n->cpu);
    berth_alloc_fail_at(0);
    assert_error("out of memory for the choice of x");
    assert_int_equal(berth_sched_synchronize(s), GGML_STATUS_FAILED); // the failure was stored
    assert_null(ggml_backend_sched_get_tensor_backend(NULL, x));
    assert_null(ggml_backend_sched_get_tensor_backend(s, NULL));
    berth_clear_error();
    berth_sched_set_spill_backends(s, NULL, n->backends[0], n->cpu);
    assert_string_equal(berth_last_error(), ""); // nothing to do
    berth_sched_set_strict(NULL, true);
    berth_sched_set_strict(s, false); // no change
    berth_sched_set_memory_limit(s, NULL, 1);
    assert_error("does not belong to the scheduler");
    ggml_backend_t stranger = ggml_backend_cpu_init();
    berth_sched_set_memory_limit(s, stranger, 1);
    assert_error("does not belong to the scheduler");
    ggml_backend_free(stranger);
    berth_sched_set_n_copies(NULL, 1);
    berth_sched_set_n_copies(s, 0);
    assert_error("0 graphs in flight");
    berth_sched_stats(NULL, &stats);
    berth_sched_stats(s, NULL);
    assert_int_equal(stats.n_planned, 7);
    assert_int_equal(berth_sched_reason(NULL, x), BERTH_SCHED_NONE);
    assert_int_equal(berth_sched_reason(s, NULL), BERTH_SCHED_NONE);
    assert_string_equal(berth_sched_reason_name((enum berth_sched_reason) 99), "?");
    assert_string_equal(berth_sched_reason_name((enum berth_sched_reason) - 1), "?");
    assert_int_equal(berth_sched_explain_text(NULL, stdout), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_explain_json(NULL, stdout), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_explain_text(s, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(NULL, n->cpu, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(s, n->cpu, &report), GGML_STATUS_FAILED); // nothing was planned
    assert_int_equal(berth_sched_report(s, NULL, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_save(NULL, stdout), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_save(s, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_save(s, stdout), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_trace_start(NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_trace_stop(NULL, stdout), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_trace_stop(s, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_trace_stop(s, stdout), GGML_STATUS_FAILED);
    ggml_backend_sched_reserve_size(NULL, n->graph, sizes);
    ggml_backend_sched_reserve_size(s, n->graph, NULL);
    ggml_backend_sched_reserve_size(s, NULL, sizes);
    assert_int_equal(berth_sched_work_sizes(s, n->graph, NULL), GGML_STATUS_FAILED);
    berth_clear_error();
    assert_int_equal(berth_sched_work_sizes(NULL, n->graph, sizes), GGML_STATUS_FAILED);
    assert_error("the scheduler is NULL");
    assert_false(ggml_backend_sched_reserve(NULL, n->graph) || ggml_backend_sched_alloc_graph(s, NULL));
}

// ---- a callback that calls its scheduler ----

enum call {
    RESET,
    RESERVE,
    RESERVE_SIZE,
    WORK_SIZES,
    SPLIT,
    ALLOC,
    COMPUTE,
    COMPUTE_ASYNC,
    CHOOSE,
    STRICT,
    LIMIT,
    N_COPIES,
    TRACE_START,
    TRACE_STOP,
    FREE,
    N_CALLS
};

struct caller {
    struct net *net;
    struct ggml_cgraph *other; // not the graph that is computed
    enum call call;
    int n_calls, n_refused;
};

// Makes the call c->call. Returns true if the scheduler refused it.
static bool call_refused(struct caller *c) {
    ggml_backend_sched_t s = c->net->sched;
    size_t sizes[3] = {7, 7, 7};
    bool ok = true;
    berth_clear_error();
    switch (c->call) {
        case RESET: ggml_backend_sched_reset(s); break;
        case RESERVE: ok = !ggml_backend_sched_reserve(s, c->other); break;
        case RESERVE_SIZE: ggml_backend_sched_reserve_size(s, c->other, sizes); break;
        case WORK_SIZES: ok = berth_sched_work_sizes(s, c->other, sizes) == GGML_STATUS_FAILED; break;
        case SPLIT: ok = berth_sched_split(s, c->other) == GGML_STATUS_FAILED; break;
        case ALLOC: ok = !ggml_backend_sched_alloc_graph(s, c->other); break;
        case COMPUTE: ok = ggml_backend_sched_graph_compute(s, c->other) == GGML_STATUS_FAILED; break;
        case COMPUTE_ASYNC: ok = ggml_backend_sched_graph_compute_async(s, c->net->graph) == GGML_STATUS_FAILED; break;
        case CHOOSE: ggml_backend_sched_set_tensor_backend(s, ggml_graph_node(c->net->graph, 0), c->net->cpu); break;
        case STRICT: berth_sched_set_strict(s, true); break;
        case LIMIT: berth_sched_set_memory_limit(s, c->net->cpu, 1 << 20); break;
        case N_COPIES: berth_sched_set_n_copies(s, 2); break;
        case TRACE_START: ok = berth_sched_trace_start(s) == GGML_STATUS_FAILED; break;
        case TRACE_STOP: ok = berth_sched_trace_stop(s, stdout) == GGML_STATUS_FAILED; break;
        default: ggml_backend_sched_free(s); break;
    }
    return ok && strstr(berth_last_error(), "is computing a graph") != NULL;
}

static bool on_eval(struct ggml_tensor *t, bool ask, void *user_data) {
    struct caller *c = user_data;
    (void) t;
    c->n_calls++;
    c->n_refused += call_refused(c);
    ggml_backend_sched_synchronize(c->net->sched); // queries and waits are allowed
    assert_int_equal(ggml_backend_sched_get_n_backends(c->net->sched), 3);
    (void) ask;
    return true;
}

static void calls_from_the_eval_callback(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *y = x;
    check_quiet();
    for (int i = 0; i < 6; i++) {
        y = ggml_scale(n->ctx, i % 2 == 0 ? y : ggml_add(n->ctx, y, x), 2.0f);
        y = i == 3 ? ggml_mul_mat(n->ctx, n->w[1], y) : y;
    }
    ggml_set_output(y);
    ggml_build_forward_expand(n->graph, y);
    struct ggml_cgraph *other = ggml_new_graph_custom(n->ctx, 64, false);
    ggml_build_forward_expand(other, ggml_sqr(n->ctx, ggml_mul_mat(n->ctx, n->w[0], input(n, 3))));
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    const float expected = first_of(y);
    for (int call = 0; call < N_CALLS; call++) {
        struct caller c = {.net = n, .other = other, .call = (enum call) call};
        ggml_backend_sched_reset(n->sched);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        fill(x, 1);
        ggml_backend_sched_set_eval_callback(n->sched, on_eval, &c);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        ggml_backend_sched_set_eval_callback(n->sched, NULL, NULL);
        if (c.n_refused != c.n_calls || first_of(y) != expected) {
            fail_msg("call %d: %d of %d refused, %g in place of %g", call, c.n_refused, c.n_calls, first_of(y), expected);
        }
        berth_clear_error();
    }
}

// A callback may unregister itself; from the next split on it is not called.
static bool unregister_callback(struct ggml_tensor *t, bool ask, void *user_data) {
    struct caller *c = user_data;
    (void) t, (void) ask;
    c->n_calls++;
    ggml_backend_sched_set_eval_callback(c->net->sched, NULL, NULL);
    return true;
}

static void a_callback_unregisters_itself(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *y = ggml_mul_mat(n->ctx, n->w[1], ggml_sqr(n->ctx, ggml_mul_mat(n->ctx, n->w[0], x)));
    struct caller c = {.net = n};
    ggml_set_output(y);
    ggml_build_forward_expand(n->graph, y);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1);
    ggml_backend_sched_set_eval_callback(n->sched, unregister_callback, &c);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_in_range(c.n_calls, 1, 2 * ggml_graph_n_nodes(n->graph) - 1);
}

static void invalid_backends(void **state) {
    struct net *n = *state;
    check_quiet();
    assert_null(ggml_backend_sched_new(NULL, NULL, 1, 8, false, true));
    assert_null(ggml_backend_sched_new(n->backends, NULL, 0, 8, false, true));
    assert_null(ggml_backend_sched_new(n->backends, NULL, INT16_MAX + 1, 8, false, true));
    ggml_backend_t none[] = {n->backends[0], NULL};
    assert_null(ggml_backend_sched_new(none, NULL, 2, 8, false, true));
    assert_error("backend 1 of 2 is NULL");
    struct ggml_backend bare = {0}; // no device, and so no memory
    none[1] = &bare;
    assert_null(ggml_backend_sched_new(none, NULL, 2, 8, false, true));
    assert_error("has no buffer type");
    ggml_backend_buffer_type_t bufts[] = {&n->dev[0].buft, NULL};
    assert_null(ggml_backend_sched_new(none, bufts, 2, 8, false, true));
    for (int i = 1, made = 0; !made; i++) {
        assert_true(i < 100);
        berth_alloc_fail_at(i);
        ggml_backend_sched_t s = ggml_backend_sched_new(n->backends, NULL, 3, 64, true, true);
        berth_alloc_fail_at(0);
        made = s != NULL;
        ggml_backend_sched_free(s);
    }
}

static void run(struct net *n, struct ggml_tensor *x) {
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    if (x != NULL) {
        fill(x, 1.0f);
    }
    if (ggml_backend_sched_graph_compute(n->sched, n->graph) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
}

static void full_streams(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *b = ggml_mul_mat(n->ctx, n->w[1], ggml_mul_mat(n->ctx, n->w[0], x));
    check_quiet();
    ggml_set_output(b);
    ggml_build_forward_expand(n->graph, b);
    run(n, x);
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) {
        skip();
    }
    assert_int_equal(berth_sched_explain_text(n->sched, full), GGML_STATUS_FAILED);
    assert_error("writing to the stream failed");
    assert_int_equal(berth_sched_explain_json(n->sched, full), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_save(n->sched, full), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_trace_start(n->sched), GGML_STATUS_SUCCESS);
    run(n, x);
    assert_int_equal(berth_sched_trace_stop(n->sched, full), GGML_STATUS_FAILED);
    assert_error("writing to the stream failed");
    fclose(full);
    // If memory for an event of the trace runs out, the event is dropped and the loss is reported. The graph is still computed.
    assert_int_equal(berth_sched_trace_start(n->sched), GGML_STATUS_SUCCESS);
    berth_alloc_fail_at(1);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    berth_alloc_fail_at(0);
    FILE *nowhere = fopen("/dev/null", "w");
    assert_int_equal(berth_sched_trace_stop(n->sched, nowhere), GGML_STATUS_ALLOC_FAILED);
    assert_error("events are missing");
    fclose(nowhere);
}

// GGML_SCHED_DEBUG=2 does not disturb the graph. test_sched_explain.c tests the output.
static void debug_output(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *b = ggml_mul_mat(n->ctx, n->w[1], ggml_mul_mat(n->ctx, n->w[0], x));
    check_quiet();
    setenv("GGML_SCHED_DEBUG", "2", 1);
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    unsetenv("GGML_SCHED_DEBUG");
    split(n, b);
    run(n, x);
}

static enum ggml_status refuse(ggml_backend_buffer_t buffer, struct ggml_tensor *t) {
    (void) buffer;
    return strcmp(t->name, "no") == 0 ? GGML_STATUS_FAILED : GGML_STATUS_SUCCESS;
}

// The init_tensor of a device rejects one tensor: a node of the first device, a view, or a node of the second device. In the last
// round it rejects none.
static void buffers_that_reject_tensors(void **state) {
    struct net *n = *state;
    check_quiet();
    n->dev[0].buffer_iface.init_tensor = refuse;
    n->dev[1].buffer_iface.init_tensor = refuse;
    for (int what = 0; what < 4; what++) {
        struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x),
                           *v = ggml_view_2d(n->ctx, a, N, 1, a->nb[1], 0);
        struct ggml_tensor *c = ggml_mul_mat(n->ctx, n->w[1], v);
        named(what == 0 ? a : what == 1 ? v : what == 2 ? c : x, what == 3 ? "x" : "no");
        ggml_set_output(c);
        ggml_build_forward_expand(n->graph, c);
        const bool is_placed = ggml_backend_sched_alloc_graph(n->sched, n->graph);
        assert_int_equal(is_placed, what == 3);
        if (!is_placed) {
            assert_true(berth_last_error()[0] != '\0');
            berth_clear_error();
        }
        for (struct ggml_tensor *t = ggml_get_first_tensor(n->ctx); t != NULL; t = ggml_get_next_tensor(n->ctx, t)) {
            named(t, "yes");
        }
        run(n, x); // nothing prevents a later run
        ggml_backend_sched_reset(n->sched);
        ggml_free(n->ctx);
        graph_new(n);
    }
}

// An input in the program's memory without a buffer is copied to the device that reads it.
static void memory_of_the_program(void **state) {
    struct net *n = *state;
    check_quiet();
    struct ggml_context *own = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    struct ggml_tensor *x = named(ggml_new_tensor_2d(own, GGML_TYPE_F32, N, 2), "x"),
                       *half = ggml_view_2d(own, x, N, 1, x->nb[1], x->nb[1]);
    for (int i = 0; i < 2 * N; i++) {
        ((float *) x->data)[i] = i < N ? 1.0f : 2.0f;
    }
    fill(n->w[0], 1.0f);
    struct ggml_tensor *a = ggml_mul_mat(n->ctx, n->w[0], x), *b = ggml_mul_mat(n->ctx, n->w[0], half);
    ggml_set_output(a);
    ggml_set_output(b);
    ggml_build_forward_expand(n->graph, a);
    ggml_build_forward_expand(n->graph, b);
    run(n, NULL);
    assert_float_equal(first_of(a), N, 0);
    assert_float_equal(first_of(b), 2 * N, 0);
    half->view_offs = (size_t) 1 << 20; // after the end of the source
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_FAILED);
    assert_error("ends after");
    ggml_backend_sched_reset(n->sched);
    ggml_free(own);
}

// In a hand-made list of nodes, the view is listed before its source. The scheduler assigns the memory of both.
static void views_before_their_sources(void **state) {
    struct net *n = *state;
    check_quiet();
    struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x), *v = ggml_view_2d(n->ctx, a, N, 1, a->nb[1], 0);
    struct ggml_tensor *c = ggml_mul_mat(n->ctx, n->w[1], v);
    ggml_set_output(c);
    ggml_build_forward_expand(n->graph, c);
    struct ggml_tensor **nodes = ggml_graph_nodes(n->graph);
    const int n_nodes = ggml_graph_n_nodes(n->graph);
    for (int i = 0; i < n_nodes; i++) {
        if (nodes[i] == v) {
            memmove(nodes + 1, nodes, (size_t) i * sizeof *nodes);
            nodes[0] = v;
        }
    }
    run(n, x);
    fill(n->w[0], 1.0f);
    fill(n->w[1], 1.0f);
    run(n, x);
    assert_float_equal(first_of(c), N * N, 0);
}

// The edges of a graph were changed after it was built: a node reads a result that is computed later. The scheduler must reject the
// graph.
static void cycles_by_changed_edges(void **state) {
    struct net *n = *state;
    check_quiet();
    for (int kind = 0; kind < 3; kind++) {
        ggml_free(n->ctx);
        graph_new(n);
        struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x), *b = ggml_sqr(n->ctx, a);
        struct ggml_tensor *c = ggml_mul_mat(n->ctx, n->w[1], b), *d = ggml_add(n->ctx, a, c);
        struct ggml_tensor *v = ggml_view_2d(n->ctx, d, N, 2, d->nb[1], 0);
        ggml_build_forward_expand(n->graph, v);
        b->src[0] = kind == 0 ? d : kind == 1 ? b : v;
        size_t sizes[3];
        assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_FAILED);
        assert_error("cycle");
        assert_false(ggml_backend_sched_reserve(n->sched, n->graph));
        assert_false(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_FAILED);
        ggml_backend_sched_reserve_size(n->sched, n->graph, sizes);
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        berth_clear_error();
        assert_false(ggml_gallocr_reserve(galloc, n->graph));
        assert_error("cycle");
        assert_false(ggml_gallocr_alloc_graph(galloc, n->graph));
        b->src[0] = a;
        assert_true(ggml_gallocr_reserve(galloc, n->graph));
        assert_true(ggml_backend_sched_reserve(n->sched, n->graph));
        ggml_gallocr_free(galloc);
    }
}

// An op with a weight in host memory runs on a device if its batch has at least GGML_OP_OFFLOAD_MIN_BATCH tokens.
static void offloading(void **state) {
    struct net *n = *state;
    check_quiet();
    setenv("GGML_OP_OFFLOAD_MIN_BATCH", "4", 1);
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    n->dev[0].offload_batch = 2;
    struct ggml_tensor *ids = ggml_new_tensor_1d(n->ctx, GGML_TYPE_I32, 8);
    ggml_set_input(ids);
    struct ggml_tensor *rows = ggml_get_rows(n->ctx, n->w[2], ids);
    struct ggml_tensor *few = named(ggml_mul_mat(n->ctx, n->w[2], ggml_view_2d(n->ctx, rows, N, 2, rows->nb[1], 0)), "few");
    struct ggml_tensor *many = named(ggml_mul_mat(n->ctx, n->w[2], rows), "many");
    struct ggml_tensor *added = named(ggml_add(n->ctx, many, weight_of(n, 2, N, 1, 1)), "added");
    // For experts, the batch is the number of tokens, not of columns.
    struct ggml_tensor *experts = weight_of(n, 2, N, N / 2, 2);
    struct ggml_tensor *chosen[2], *by_id[2];
    for (int i = 0; i < 2; i++) {
        const int64_t n_tokens = i == 0 ? 2 : 4;
        chosen[i] = ggml_new_tensor_2d(n->ctx, GGML_TYPE_I32, 2, n_tokens);
        ggml_set_input(chosen[i]);
        struct ggml_tensor *x = ggml_view_3d(n->ctx, rows, N, 1, n_tokens, rows->nb[1], rows->nb[1], 0);
        by_id[i] = ggml_mul_mat_id(n->ctx, experts, x, chosen[i]);
        ggml_set_output(by_id[i]);
        ggml_build_forward_expand(n->graph, by_id[i]);
    }
    ggml_set_output(few);
    ggml_build_forward_expand(n->graph, few);
    split(n, added);
    assert_on(n, many, 0, BERTH_SCHED_OFFLOAD);
    assert_on(n, by_id[1], 0, BERTH_SCHED_OFFLOAD);
    assert_int_equal(ggml_backend_sched_get_tensor_backend(n->sched, by_id[0]) == n->cpu, true);
    assert_int_equal(ggml_backend_sched_get_tensor_backend(n->sched, few) == n->cpu, true);
    unsetenv("GGML_OP_OFFLOAD_MIN_BATCH");
}

// Returns the host bytes of a pipeline with four graphs in flight. If unread is not NULL, the graph also has an input that no op
// reads, which *unread receives.
static size_t pipeline_bytes(struct net *n, struct ggml_tensor **unread) {
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, true, true);
    struct ggml_tensor *out = ggml_sqr(n->ctx, ggml_mul_mat(n->ctx, n->w[2], input(n, 2)));
    if (unread != NULL) {
        *unread = named(ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, N, 60), "unread");
        ggml_set_input(*unread);
        ggml_build_forward_expand(n->graph, *unread);
        ggml_build_forward_expand(n->graph, ggml_view_1d(n->ctx, *unread, N, 0)); // a view is not an op
    }
    split(n, out);
    assert_int_equal(ggml_backend_sched_get_n_copies(n->sched), 4);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    return ggml_backend_sched_get_buffer_size(n->sched, n->cpu);
}

// An input that no op reads has one address in all graphs in flight. It shares its memory with no tensor, because the program may
// write it at any time.
static void an_input_that_no_op_reads(void **state) {
    struct net *n = *state;
    struct ggml_tensor *unread;
    const size_t without = pipeline_bytes(n, NULL);
    ggml_free(n->ctx);
    graph_new(n);
    const size_t with = pipeline_bytes(n, &unread);
    assert_int_equal(with - without, ggml_nbytes(unread));
    const char *begin = unread->data, *end = begin + ggml_nbytes(unread);
    for (int slot = 0; slot < 4; slot++) {
        fill(unread, (float) slot);
        assert_ptr_equal(unread->data, begin);
        for (int i = 0; i < ggml_graph_n_nodes(n->graph); i++) {
            const struct ggml_tensor *t = ggml_graph_node(n->graph, i);
            assert_true(t->view_src == unread || t->buffer != unread->buffer || (const char *) t->data >= end ||
                        (const char *) t->data + ggml_nbytes(t) <= begin);
        }
        assert_int_equal(ggml_backend_sched_graph_compute_async(n->sched, n->graph), GGML_STATUS_SUCCESS);
        ggml_backend_sched_reset(n->sched);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    }
    ggml_backend_sched_synchronize(n->sched);
}

// If no buffer type is given for a backend, the scheduler uses the default type of the backend. The report of a NULL backend
// fails.
static void missing_buffer_types(void **state) {
    struct net *n = *state;
    ggml_backend_buffer_type_t bufts[] = {&n->dev[0].buft, NULL, NULL};
    struct berth_plan_report report;
    check_quiet();
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, bufts, 3, 64, false, true);
    assert_ptr_equal(ggml_backend_sched_get_buffer_type(n->sched, n->backends[1]), &n->dev[1].buft);
    split(n, ggml_sqr(n->ctx, input(n, 2)));
    assert_true(ggml_backend_sched_reserve(n->sched, n->graph));
    assert_int_equal(berth_sched_report(n->sched, NULL, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(n->sched, n->cpu, &report), GGML_STATUS_SUCCESS);
}

// The sizes of a rejected graph are 0.
static void sizes_of_a_rejected_graph(void **state) {
    struct net *n = *state;
    size_t sizes[3] = {7, 7, 7};
    check_quiet();
    n->dev[0].supports = no_tanh;
    split(n, named(ggml_tanh(n->ctx, ggml_mul_mat(n->ctx, n->w[0], input(n, 2))), "b"));
    assert_int_equal(berth_sched_reason(n->sched, NULL), BERTH_SCHED_NONE);
    berth_sched_set_strict(n->sched, true);
    assert_int_equal(berth_sched_work_sizes(n->sched, n->graph, sizes), GGML_STATUS_FAILED);
    assert_error("b (TANH) would run on second");
    assert_int_equal(sizes[0] + sizes[1] + sizes[2], 0);
    berth_sched_set_strict(n->sched, false);
    assert_int_equal(berth_sched_work_sizes(n->sched, n->graph, sizes), GGML_STATUS_SUCCESS);
}

// In a graph without ops, a view of an input and an unread leaf get memory.
static void a_graph_without_ops(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *v = ggml_view_1d(n->ctx, x, N, x->nb[1]);
    struct ggml_tensor *leaf = named(ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, N), "leaf");
    check_quiet();
    ggml_build_forward_expand(n->graph, leaf);
    ggml_build_forward_expand(n->graph, v);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    assert_int_equal(ggml_backend_sched_get_n_splits(n->sched), 1);
    assert_on(n, leaf, 2, BERTH_SCHED_READER);
    assert_ptr_equal(v->data, (char *) x->data + x->nb[1]);
    assert_non_null(leaf->data);
    fill(x, 3.0f);
    fill(leaf, 4.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_float_equal(first_of(v), 3, 0);
    assert_float_equal(first_of(leaf), 4, 0);
}

// In each round of a pipeline, an input in the program's buffer keeps its address, and a view of another input has the address of
// that input plus its offset.
static void inputs_of_a_pipeline(void **state) {
    struct net *n = *state;
    struct ggml_context *own = ggml_init((struct ggml_init_params){.mem_size = 1 << 12, .no_alloc = true});
    struct ggml_tensor *x = named(ggml_new_tensor_2d(own, GGML_TYPE_F32, N, 2), "x");
    ggml_backend_buffer_t mem = ggml_backend_alloc_buffer(n->cpu, ggml_nbytes(x));
    check_quiet();
    assert_int_equal(ggml_backend_tensor_alloc(mem, x, ggml_backend_buffer_get_base(mem)), GGML_STATUS_SUCCESS);
    ggml_set_input(x);
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, true, true);
    struct ggml_tensor *in = input(n, 4), *half = ggml_view_2d(n->ctx, in, N, 2, in->nb[1], 2 * in->nb[1]);
    ggml_set_input(half);
    struct ggml_tensor *out = ggml_mul_mat(n->ctx, n->w[0], ggml_add(n->ctx, x, half));
    fill(n->w[0], 1.0f);
    split(n, out);
    assert_int_equal(ggml_backend_sched_get_n_copies(n->sched), 4);
    for (int round = 0; round < 6; round++) {
        ggml_backend_sched_reset(n->sched);
        assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
        assert_ptr_equal(x->data, ggml_backend_buffer_get_base(mem));
        assert_ptr_equal(half->data, (char *) in->data + 2 * in->nb[1]);
        fill(x, 1.0f);
        fill(in, (float) round);
        assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
        assert_float_equal(first_of(out), N * (1 + round), 0);
    }
    ggml_backend_sched_reset(n->sched);
    ggml_backend_buffer_free(mem);
    ggml_free(own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NET_TEST(calls_with_missing_arguments),
        NET_TEST(calls_from_the_eval_callback),
        NET_TEST(a_callback_unregisters_itself),
        NET_TEST(invalid_backends),
        NET_TEST(full_streams),
        NET_TEST(debug_output),
        NET_TEST(buffers_that_reject_tensors),
        NET_TEST(memory_of_the_program),
        NET_TEST(views_before_their_sources),
        NET_TEST(cycles_by_changed_edges),
        NET_TEST(offloading),
        NET_TEST(missing_buffer_types),
        NET_TEST(an_input_that_no_op_reads),
        NET_TEST(sizes_of_a_rejected_graph),
        NET_TEST(a_graph_without_ops),
        NET_TEST(inputs_of_a_pipeline),
    };
    return cmocka_run_group_tests_name("sched_odd", tests, NULL, NULL);
}

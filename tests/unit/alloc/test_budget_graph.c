// SPDX-License-Identifier: MIT
// test_budget_graph.c: graphs under a memory limit. Training steps give the same bits at every limit that can be met. Some graphs
// have views, or nodes that write into other tensors. A limit that cannot be met is reported, and the graph is unchanged.

#include "support/check.h"

#include "alloc/budget.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#define WIDTH 48
#define ROWS 64
#define LAYERS 6

struct net {
    struct ggml_context *weights, *ctx;
    struct ggml_tensor *x, *w[LAYERS], *acc[LAYERS], *loss;
    struct ggml_tensor *m[LAYERS], *v[LAYERS], *params; // of the optimiser, if the graph has its step
    bool has_step;
    struct ggml_cgraph *graph;
    ggml_backend_t backend;
    ggml_backend_buffer_t buffer;
};

// A deep net with views, its loss, the backward pass, and gradients that are accumulated in existing memory.
static void net_build(struct net *n) {
    n->ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 4 << 20, .no_alloc = true});
    n->graph = ggml_new_graph_custom(n->ctx, 2048, true);
    n->x = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, WIDTH, ROWS);
    ggml_set_input(n->x);
    struct ggml_tensor *t = n->x;
    for (int i = 0; i < LAYERS; i++) {
        t = ggml_silu(n->ctx, ggml_mul_mat(n->ctx, n->w[i], ggml_rms_norm(n->ctx, t, 1e-5f)));
        t = i % 2 == 0
                ? t
                : ggml_cont(n->ctx,
                      ggml_transpose(n->ctx, ggml_reshape_2d(n->ctx, ggml_cont(n->ctx, ggml_transpose(n->ctx, t)), ROWS, WIDTH)));
    }
    n->loss = ggml_sum(n->ctx, ggml_sqr(n->ctx, t));
    ggml_set_output(n->loss);
    ggml_set_loss(n->loss);
    ggml_build_forward_expand(n->graph, n->loss);
    struct ggml_tensor **places = calloc((size_t) ggml_graph_n_nodes(n->graph) + 1, sizeof(struct ggml_tensor *));
    for (int k = 0; k < ggml_graph_n_nodes(n->graph); k++) {
        for (int i = 0; i < LAYERS; i++) {
            places[k] = ggml_graph_node(n->graph, k) == n->w[i] ? n->acc[i] : places[k];
        }
    }
    ggml_build_backward_expand(n->ctx, n->graph, n->has_step ? NULL : places);
    free(places);
    for (int i = 0; n->has_step && i < LAYERS; i++) {
        struct ggml_tensor *grad = ggml_graph_get_grad(n->graph, n->w[i]);
        ggml_build_forward_expand(n->graph, ggml_opt_step_adamw(n->ctx, n->w[i], grad, n->m[i], n->v[i], n->params));
    }
    assert_int_equal(berth_graph_check(n->graph), GGML_STATUS_SUCCESS);
}

static void net_init(struct net *n, bool has_step) {
    *n = (struct net){.backend = ggml_backend_cpu_init(), .has_step = has_step};
    n->weights = ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 16, .no_alloc = true});
    for (int i = 0; i < LAYERS; i++) {
        n->w[i] = ggml_new_tensor_2d(n->weights, GGML_TYPE_F32, WIDTH, WIDTH);
        n->acc[i] = ggml_new_tensor_2d(n->weights, GGML_TYPE_F32, WIDTH, WIDTH);
        n->m[i] = ggml_new_tensor_2d(n->weights, GGML_TYPE_F32, WIDTH, WIDTH);
        n->v[i] = ggml_new_tensor_2d(n->weights, GGML_TYPE_F32, WIDTH, WIDTH);
        ggml_set_param(n->w[i]);
    }
    n->params = ggml_new_tensor_1d(n->weights, GGML_TYPE_F32, 7);
    n->buffer = ggml_backend_alloc_ctx_tensors(n->weights, n->backend);
    assert_non_null(n->buffer);
    net_build(n);
}

static void net_free(struct net *n) {
    ggml_backend_buffer_free(n->buffer);
    ggml_free(n->weights);
    ggml_free(n->ctx);
    ggml_backend_free(n->backend);
}

static void fill(struct ggml_tensor *t, uint64_t seed, float scale) {
    struct check_rng rng = check_rng_new(seed);
    float *values = malloc(ggml_nbytes(t));
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        values[i] = scale * ((float) check_rng_below(&rng, 2001) / 1000 - 1);
    }
    ggml_backend_tensor_set(t, values, 0, ggml_nbytes(t));
    free(values);
}

// Computes the graph and returns the bytes that it took. out receives the loss and all gradients, or the weights after the
// optimiser step.
static size_t net_compute(struct net *n, struct ggml_cgraph *graph, float *out) {
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(n->backend));
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    fill(n->x, 1, 1);
    for (int i = 0; i < LAYERS; i++) {
        fill(n->w[i], 2 + (uint64_t) i, 0.2f);
        fill(n->acc[i], 0, 0);
        fill(n->m[i], 0, 0);
        fill(n->v[i], 0, 0);
    }
    ggml_backend_tensor_set(n->params, (const float[7]){0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 10, 1000}, 0, 7 * sizeof(float));
    ggml_graph_reset(n->graph);
    assert_int_equal(ggml_backend_graph_compute(n->backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(n->loss, out, 0, sizeof *out);
    for (int i = 0; i < LAYERS; i++) {
        const struct ggml_tensor *made = n->has_step ? n->w[i] : n->acc[i];
        ggml_backend_tensor_get(made, out + 1 + i * WIDTH * WIDTH, 0, ggml_nbytes(made));
    }
    const size_t size = ggml_gallocr_get_buffer_size(galloc, 0);
    ggml_gallocr_free(galloc);
    return size;
}

#define N_OUT (1 + LAYERS * WIDTH * WIDTH)

// Limits the memory to 100%, 90%, ... 20% of the memory that the graph takes without a limit. The results have the same bits, and
// at least five of the limits can be met.
static void shares_compare(bool has_step) {
    struct net n;
    float *plain = malloc(N_OUT * sizeof *plain), *other = malloc(N_OUT * sizeof *other);
    net_init(&n, has_step);
    const size_t whole = net_compute(&n, n.graph, plain);
    assert_true(plain[0] > 0 && plain[1] != 0);
    net_free(&n);
    size_t n_kept = 0, n_recomputed = 0;
    for (size_t share = 100; share >= 20; share -= 10) {
        net_init(&n, has_step);
        const struct berth_graph_budget_params params = {.memory_limit = whole * share / 100, .seed = share};
        struct ggml_context *ctx = NULL;
        struct ggml_cgraph *graph = NULL;
        struct berth_budget_result *r = NULL;
        assert_int_equal(berth_graph_budget(n.graph, &params, &ctx, &graph, &r), GGML_STATUS_SUCCESS);
        assert_int_equal(r->fits, graph != NULL);
        const size_t size = net_compute(&n, graph != NULL ? graph : n.graph, other);
        assert_memory_equal(plain, other, N_OUT * sizeof *plain);
        assert_true(graph == NULL ? size == whole : size <= params.memory_limit);
        n_kept += graph != NULL;
        n_recomputed += r->n_recomputed;
        berth_budget_free(r);
        ggml_free(ctx);
        net_free(&n);
    }
    assert_true(n_kept >= 5);
    assert_true(n_recomputed > 0);
    free(plain);
    free(other);
}

static void test_same_bits(void **state) {
    (void) state;
    shares_compare(false);
}

// The optimiser step overwrites the weights that forward and backward pass read. Nodes that read them may be recomputed only before
// the step.
static void test_same_step(void **state) {
    (void) state;
    shares_compare(true);
}

// Nodes that write into the memory of other tensors, and the later readers of that memory, run once and in the given order.
static void test_writes(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1024);
    ggml_set_input(x);
    struct ggml_tensor *a = ggml_sqr(ctx, x), *b = ggml_scale(ctx, a, 2), *c = ggml_exp(ctx, b);
    struct ggml_tensor *wrote = ggml_set_1d_inplace(ctx, a, ggml_view_1d(ctx, c, 16, 0), 0);
    struct ggml_tensor *sum = ggml_add(ctx, ggml_add(ctx, wrote, c), b);
    ggml_set_output(sum);
    ggml_build_forward_expand(graph, sum);
    struct ggml_context *own = NULL;
    struct ggml_cgraph *out = NULL;
    struct berth_budget_result *r = NULL;
    for (uint64_t bytes = 4096; bytes <= 6 * 4096; bytes += 1024) {
        const struct berth_graph_budget_params params = {.memory_limit = bytes};
        assert_int_equal(berth_graph_budget(graph, &params, &own, &out, &r), GGML_STATUS_SUCCESS);
        int n_writes = 0;
        for (int i = 0; out != NULL && i < ggml_graph_n_nodes(out); i++) {
            n_writes += ggml_graph_node(out, i)->op == GGML_OP_SET;
            assert_true(ggml_graph_node(out, i) == a || ggml_graph_node(out, i)->op != GGML_OP_SQR);
        }
        assert_true(out == NULL || n_writes == 1);
        berth_budget_free(r);
        ggml_free(own);
        if (out != NULL) {
            break; // the solver changed the sources of the tensors: the graph cannot be used again
        }
    }
    assert_non_null(out);
    ggml_free(ctx);
}

static int32_t op_of(const struct graph_ops *o, const struct ggml_tensor *t) {
    for (int32_t i = 0; i < o->n; i++) {
        if (o->tensors[i] == t) {
            return i;
        }
    }
    fail_msg("the tensor is not an op");
    return -1;
}

// A result may take over the memory of a source of its layout that it reads once.
static void test_sources_in_place(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64), *y = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
    struct ggml_tensor *once = ggml_add(ctx, x, y), *twice = ggml_add(ctx, once, once);
    struct ggml_tensor *view = ggml_add(ctx, twice, ggml_view_1d(ctx, twice, 64, 0)),
                       *wide = ggml_repeat_4d(ctx, view, 128, 1, 1, 1);
    struct ggml_tensor *row = ggml_add(ctx, wide, y);
    ggml_build_forward_expand(graph, row);
    struct graph_ops o;
    const struct graph_sizes sizes = {ggml_backend_cpu_buffer_type(), 32};
    assert_int_equal(graph_ops_init(&o, graph, &sizes), GGML_STATUS_SUCCESS);
    assert_int_equal(o.ops[op_of(&o, once)].inplace, 3);  // x or y
    assert_int_equal(o.ops[op_of(&o, twice)].inplace, 0); // a source is read twice
    assert_int_equal(o.ops[op_of(&o, view)].inplace, 0);  // a source is also read through a view
    assert_int_equal(o.ops[op_of(&o, row)].inplace, 1);   // y is smaller
    assert_int_equal(o.ops[op_of(&o, row)].size, 128 * sizeof(float));
    assert_int_equal(o.ops[op_of(&o, row)].flags, BERTH_BUDGET_NO_SPILL); // a result is not spilled
    assert_int_equal(o.ops[op_of(&o, wide)].flags, 0);
    assert_int_equal(o.ops[op_of(&o, x)].flags, BERTH_BUDGET_INPUT);
    graph_ops_fini(&o);
    ggml_free(ctx);
}

// Each reader reads the newest copy of a value, also a reader that is recomputed itself.
static void test_copies_are_current(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
    struct ggml_tensor *a = ggml_sqr(ctx, x), *b = ggml_sqrt(ctx, a), *c = ggml_exp(ctx, b), *sum = ggml_add(ctx, c, b);
    ggml_set_input(x);
    ggml_set_output(sum);
    ggml_build_forward_expand(graph, sum);
    const struct berth_budget_step steps[] = {{.op = 0}, {.op = 0}, {.op = 1}, {.op = 2}, {.op = 0}, {.op = 1}, {.op = 3}};
    const struct berth_graph_budget_params params = {.memory_limit = UINT64_MAX, .steps = steps, .n_steps = 7};
    struct ggml_context *own = NULL;
    struct ggml_cgraph *out = NULL;
    struct berth_budget_result *r = NULL;
    assert_int_equal(berth_graph_budget(graph, &params, &own, &out, &r), GGML_STATUS_SUCCESS);
    assert_non_null(out);
    assert_int_equal(ggml_graph_n_nodes(out), 7);
    struct ggml_tensor *node[7];
    for (int i = 0; i < 7; i++) {
        node[i] = ggml_graph_node(out, i);
    }
    assert_true(node[0] == a && node[2] == b && node[3] == c && node[6] == sum);
    assert_int_equal(node[1]->op, GGML_OP_SQR);
    assert_ptr_equal(b->src[0], node[1]);
    assert_ptr_equal(c->src[0], b);
    assert_int_equal(node[4]->op, GGML_OP_SQR);
    assert_ptr_equal(node[4]->src[0], x);
    assert_int_equal(node[5]->op, GGML_OP_SQRT);
    assert_ptr_equal(node[5]->src[0], node[4]);
    assert_true(sum->src[0] == c && sum->src[1] == node[5]);
    berth_budget_free(r);
    ggml_free(own);
    ggml_free(ctx);
}

static void test_no_memory(void **state) {
    (void) state;
    for (int64_t at = 1;; at += CHECK_PART > 1 ? 1 + at / 8 : 1) {
        struct net n;
        net_init(&n, false);
        const struct berth_graph_budget_params params = {.memory_limit = (size_t) ROWS * WIDTH * 4 * 12};
        struct ggml_context *ctx = NULL;
        struct ggml_cgraph *graph = NULL;
        struct berth_budget_result *r = NULL;
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        const enum ggml_status status = berth_graph_budget(n.graph, &params, &ctx, &graph, &r);
        const bool is_over = berth_alloc_made() < at && status == GGML_STATUS_SUCCESS;
        berth_alloc_fail_at(0);
        berth_alloc_watch(false);
        assert_true(status == GGML_STATUS_SUCCESS || (ctx == NULL && graph == NULL && r == NULL));
        berth_budget_free(r);
        ggml_free(ctx);
        net_free(&n);
        if (is_over) {
            break;
        }
        at += at / 6; // there are thousands of allocations
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_step),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_sources_in_place),
        cmocka_unit_test(test_copies_are_current),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// test_cuda.c: tests the host side of the CUDA backend on a simulated driver (standin.h): buffers, streams, events, plans and
// captures, and copies between four devices. Two tests repeat a sequence of all functions, each time with another driver call or
// another allocation failing. Every failure must be reported, no object may be left, and other devices must keep working.

#include "standin_load.h"

#include "berth-backend.h"
#include "berth.h"
#include "cuda/backend.h"
#include "ggml-alloc.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct standin *st;                 // state of the simulated driver
static void (*reset)(void), (*drop)(void); // standin_reset and standin_drop (standin.h)

static void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) text, (void) user_data;
}

static int set_up(void **unused) {
    (void) unused;
    reset();
    return 0;
}

// Checks that no object of the driver is left.
static void check_nothing_left(void) {
    cuda_devices_reset();
    assert_int_equal(st->n_contexts, 0);
    assert_int_equal(st->n_modules, 0);
    assert_int_equal(st->n_streams, 0);
    assert_int_equal(st->n_events, 0);
    assert_int_equal(st->n_graphs, 0);
    assert_int_equal(st->n_execs, 0);
    assert_int_equal(st->n_buffers, 0);
    assert_int_equal(st->n_pinned, 0);
    assert_int_equal(st->n_registered, 0);
}

static int tear_down(void **unused) {
    (void) unused;
    st->fail_at = 0;
    memset(st->lost, 0, sizeof st->lost);
    check_nothing_left();
    return 0;
}

// ---- a small graph with a fusion, an op that uses the arena, and an op that uses extra bytes after its result ----

struct small {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *w, *y, *sum, *order;
    ggml_backend_buffer_t buffer;
};

static bool small_init(struct small *s, ggml_backend_t backend, int64_t n) {
    memset(s, 0, sizeof *s);
    s->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    if (s->ctx == NULL) {
        return false;
    }
    s->x = ggml_new_tensor_2d(s->ctx, GGML_TYPE_F32, n, 4);
    s->w = ggml_new_tensor_1d(s->ctx, GGML_TYPE_F32, n);
    s->y = ggml_silu(s->ctx, ggml_add(s->ctx, ggml_mul(s->ctx, ggml_rms_norm(s->ctx, s->x, 1e-5f), s->w), s->x));
    s->sum = ggml_sum(s->ctx, s->y);
    s->order = ggml_argsort(s->ctx, s->y, GGML_SORT_ORDER_ASC);
    s->graph = ggml_new_graph(s->ctx);
    ggml_build_forward_expand(s->graph, s->sum);
    ggml_build_forward_expand(s->graph, s->order);
    s->buffer = ggml_backend_alloc_ctx_tensors(s->ctx, backend);
    return s->buffer != NULL;
}

static void small_free(struct small *s) {
    ggml_backend_buffer_free(s->buffer);
    ggml_free(s->ctx);
}

// ---- devices and buffers ----

static void devices_are_listed(void **unused) {
    (void) unused;
    st->n_devices = 2;
    ggml_backend_reg_t reg = ggml_backend_cuda_reg();
    struct ggml_backend_dev_props props;
    assert_string_equal(ggml_backend_reg_name(reg), "CUDA");
    assert_int_equal(ggml_backend_reg_dev_count(reg), 2);
    ggml_backend_dev_t dev = ggml_backend_reg_dev_get(reg, 1);
    assert_string_equal(ggml_backend_dev_name(dev), "CUDA1");
    assert_ptr_equal(ggml_backend_dev_backend_reg(dev), reg);
    assert_int_equal(st->n_contexts, 0); // listing creates no context
    ggml_backend_dev_get_props(dev, &props);
    assert_int_equal(props.type, GGML_BACKEND_DEVICE_TYPE_GPU);
    assert_true(props.caps.async && props.caps.events && props.caps.host_buffer && props.caps.mmap_support);
    assert_false(props.caps.buffer_from_host_ptr);
    assert_string_equal(props.device_id, "0000:00:00.0");
    assert_int_equal(props.memory_total, (size_t) 1 << 30);
    assert_null(ggml_backend_reg_dev_get(reg, 2));
    assert_null(ggml_backend_cuda_init(2));
    assert_non_null(ggml_backend_reg_get_proc_address(reg, "ggml_backend_get_features"));
    assert_null(ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"));
}

static void buffers_hold_bytes(void **unused) {
    (void) unused;
    ggml_backend_buffer_type_t buft = ggml_backend_cuda_buffer_type(0);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(buft, 4096);
    assert_non_null(buffer);
    assert_false(ggml_backend_buffer_is_host(buffer));
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 4);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    float in[32], out[32] = {0}, plane[8] = {0};
    for (int i = 0; i < 32; i++) {
        in[i] = (float) i;
    }
    ggml_backend_tensor_set(t, in, 0, sizeof in);
    ggml_backend_tensor_get(t, out, 0, sizeof out);
    assert_memory_equal(in, out, sizeof in);
    ggml_backend_tensor_get_2d(t, plane, 4, 8, 4, 32, 8); // two columns of four rows
    assert_true(plane[0] == 1 && plane[1] == 2 && plane[2] == 9 && plane[7] == 26);
    ggml_backend_tensor_memset(t, 0, 4, 8);
    ggml_backend_tensor_get(t, out, 0, sizeof out);
    assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 3);
    ggml_backend_buffer_clear(buffer, 0);
    ggml_backend_tensor_get(t, out, 0, sizeof out);
    assert_true(out[31] == 0);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static void host_memory_is_pinned(void **unused) {
    (void) unused;
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cuda_host_buffer_type(), 1000);
    assert_non_null(buffer);
    assert_true(ggml_backend_buffer_is_host(buffer));
    assert_int_equal(st->n_pinned, 1);
    memset(ggml_backend_buffer_get_base(buffer), 1, 1000);
    ggml_backend_buffer_free(buffer);
    assert_int_equal(st->n_pinned, 0);
    static char mine[4096];
    assert_false(ggml_backend_cuda_register_host_buffer(mine, sizeof mine)); // only with the environment variable
    setenv("GGML_CUDA_REGISTER_HOST", "1", 1);
    assert_true(ggml_backend_cuda_register_host_buffer(mine, sizeof mine));
    ggml_backend_cuda_unregister_host_buffer(mine);
    unsetenv("GGML_CUDA_REGISTER_HOST");
    ggml_backend_dev_t dev = ggml_backend_reg_dev_get(ggml_backend_cuda_reg(), 0);
    buffer = ggml_backend_dev_buffer_from_host_ptr(dev, mine, sizeof mine, sizeof mine);
    assert_non_null(buffer);
    assert_int_equal(st->n_registered, 1);
    ggml_backend_buffer_free(buffer);
    assert_int_equal(st->n_registered, 0);
}

// ---- computing ----

static void graphs_are_captured(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct small s;
    assert_true(small_init(&s, backend, 8192));
    assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
    const long n_steps = st->n_launches;
    assert_true(n_steps > 90); // a row of 8,192 is sorted in many steps
    assert_int_equal(st->n_graph_launches, 0);
    assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
    assert_int_equal(st->n_graph_launches, 1);
    const long n_allocs = st->n_allocs;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
    }
    assert_int_equal(st->n_graph_launches, 1001);
    assert_int_equal(st->n_allocs, n_allocs); // computing allocates nothing
    assert_int_equal(st->n_instantiated, 1);
    assert_int_equal(st->n_launches, n_steps);
    assert_true(st->n_overlaps > 0);
    // A graph with another op parameter does not match the plan, so its steps are launched separately.
    memcpy(s.order->op_params, &(int32_t){GGML_SORT_ORDER_DESC}, sizeof(int32_t));
    assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
    assert_int_equal(st->n_launches, 2 * n_steps);
    char text[256];
    assert_true(cuda_backend_explain(backend, text, sizeof text) > 0);
    assert_string_equal(text, "norm with sum, weights and bias 1\n");
    small_free(&s);
    ggml_backend_free(backend);
}

// A graph that has one more source, after a NULL source, is another graph.
static void sources_after_null_are_compared(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 4, 2), *sinks = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2);
    struct ggml_tensor *y = ggml_soft_max_ext(ctx, x, NULL, 1.0f, 0.0f);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, ggml_neg(ctx, y));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    for (int has_sinks = 0; has_sinks < 2; has_sinks++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
        }
        assert_int_equal(st->n_execs, 1 + has_sinks);
        assert_int_equal(st->n_graph_launches, 2 + 2 * has_sinks);
        ggml_soft_max_add_sinks(y, sinks);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

static void oldest_plans_are_replaced(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct small s[GPU_MAX_PLANS + 4];
    for (int i = 0; i < GPU_MAX_PLANS + 4; i++) {
        assert_true(small_init(&s[i], backend, 64));
        for (int k = 0; k < 3; k++) {
            assert_int_equal(ggml_backend_graph_compute(backend, s[i].graph), GGML_STATUS_SUCCESS);
        }
    }
    assert_int_equal(st->n_execs, GPU_MAX_PLANS);
    assert_int_equal(st->n_updates, 4); // a plan that replaces another one updates its executable graph
    for (int i = 0; i < GPU_MAX_PLANS + 4; i++) {
        small_free(&s[i]);
    }
    ggml_backend_free(backend);
}

static void without_graphs_and_fusions(void **unused) {
    (void) unused;
    setenv("GGML_CUDA_DISABLE_GRAPHS", "1", 1);
    setenv("GGML_CUDA_DISABLE_FUSION", "1", 1);
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    unsetenv("GGML_CUDA_DISABLE_GRAPHS");
    unsetenv("GGML_CUDA_DISABLE_FUSION");
    struct small s;
    assert_true(small_init(&s, backend, 64));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
    }
    assert_int_equal(st->n_graph_launches, 0);
    assert_int_equal(st->n_launches, 3 * 7); // norm, mul, add, silu, two for the sum, sort
    small_free(&s);
    ggml_backend_free(backend);
}

// If the allocator has placed a result over memory that a fusion still reads, a shorter fusion is tried, or none is used.
static void placement_may_prevent_a_fusion(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 4), *w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
    struct ggml_tensor *sum = ggml_add(ctx, x, x), *norm = ggml_rms_norm(ctx, sum, 1e-5f), *out = ggml_mul(ctx, norm, w);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    char text[128];
    assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
    assert_int_equal(st->n_launches, 1); // sum, norm and product in one launch
    out->data = sum->data;
    assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
    assert_int_equal(st->n_launches, 3); // two more launches: sum and norm; product
    norm->data = sum->data;
    assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
    assert_int_equal(st->n_launches, 5); // two more launches: sum; norm and product
    assert_true(cuda_backend_explain(backend, text, sizeof text) > 0);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

// Products of the same columns that are not adjacent in the graph are computed together with the norm of the columns. Two products
// and their gate, and a product and its sum, are also computed together. k: elements of a column. n_each: launches of each of these
// fusions; 1: the launch reads the columns, so its result must not overwrite them.
static void compute_products(int64_t k, int64_t n_columns, long n_each) {
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    const long at_start = st->n_launches;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, n_columns);
    struct ggml_tensor *scale = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, k), *w[6];
    for (int i = 0; i < 6; i++) {
        w[i] = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_K, k, k);
    }
    struct ggml_tensor *y = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), scale);
    struct ggml_tensor *query = ggml_neg(ctx, ggml_mul_mat(ctx, w[0], y)), *key = ggml_abs(ctx, ggml_mul_mat(ctx, w[1], y));
    struct ggml_tensor *a = ggml_mul(ctx, query, ggml_mul(ctx, key, ggml_mul_mat(ctx, w[2], y)));
    struct ggml_tensor *b = ggml_swiglu_split(ctx, ggml_mul_mat(ctx, w[3], a), ggml_mul_mat(ctx, w[4], a));
    struct ggml_tensor *c = ggml_add(ctx, ggml_mul_mat(ctx, w[5], b), x);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, c);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    backend->iface.graph_optimize(backend, g, NULL);
    assert_ptr_equal(ggml_graph_node(g, 3)->src[0], w[1]);
    assert_ptr_equal(ggml_graph_node(g, 4)->src[0], w[2]);
    assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
    // norm and three products; neg, abs, two MUL; two products with a gate; one with a sum
    assert_int_equal(st->n_launches - at_start, n_each + 4 + n_each + n_each);
    const long before = st->n_launches;
    c->data = b->data; // the sum would overwrite the column that other threads still read
    assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
    assert_int_equal(st->n_launches - before, n_each + 4 + n_each + n_each + (n_each == 1));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

static void products_of_a_column_are_one_launch(void **unused) {
    (void) unused;
    compute_products(256, 1, 1);
}

// The first of the two launches converts the columns. There is one launch if the columns are few and short.
static void products_of_few_columns_are_one_or_two_launches(void **unused) {
    (void) unused;
    compute_products(256, 2, 1);
    compute_products(256, 16, 1);
    compute_products(2048, 8, 1);
    compute_products(2048, 9, 2);
    compute_products(256, 17, 2);
    compute_products(256, 128, 2);
}

// A kernel may read a constant tensor before the previous kernel ends (gpu_is_const). A weight that the graph writes is not
// constant. graph_optimize does not move a product that reads such a weight before the op that writes it.
static void written_weights_are_not_read_early(void **unused) {
    (void) unused;
    ggml_backend_t b = ggml_backend_cuda_init(0);
    struct ggml_context *c = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *x = ggml_new_tensor_1d(c, GGML_TYPE_F32, 64), *new_row = ggml_new_tensor_1d(c, GGML_TYPE_F32, 64);
    struct ggml_tensor *w[3];
    struct ggml_cgraph *g = ggml_new_graph(c);
    for (int i = 0; i < 3; i++) {
        w[i] = ggml_new_tensor_2d(c, GGML_TYPE_F32, 64, 8);
    }
    ggml_build_forward_expand(g, ggml_mul_mat(c, w[0], x));
    ggml_build_forward_expand(g, ggml_cpy(c, new_row, ggml_view_1d(c, w[1], 64, 0)));
    ggml_build_forward_expand(g, ggml_mul_mat(c, w[1], x));
    ggml_build_forward_expand(g, ggml_mul_mat(c, w[2], x));
    assert_true(gpu_is_const(g, w[0]));
    assert_false(gpu_is_const(g, w[1]));
    b->iface.graph_optimize(b, g, NULL);
    const int n = ggml_graph_n_nodes(g);
    assert_ptr_equal(ggml_graph_node(g, 1)->src[0], w[2]);
    assert_ptr_equal(ggml_graph_node(g, n - 1)->src[0], w[1]);
    ggml_free(c);
    ggml_backend_free(b);
}

// ROPE of queries, ROPE of keys into the cache of keys, and the copy of values into the cache of values are one launch, unless one
// of the three writes memory that another reads, or another op reads the rotated keys. Variant 0: one launch. Variant 1:
// another op reads the rotated keys. Variants 2 and 3: ROPE of queries writes the memory of the values or of the positions.
// Variant 4: one launch; a norm of the heads comes before ROPE, and the caches are views of the caches of two sequences. Variant 5:
// as variant 4, but ROPE of queries writes a part of the memory that their norm reads.
static void rope_and_cache_are_one_launch(void **unused) {
    (void) unused;
    enum { HEAD = 64, HEADS = 2, TOKENS = 3, WIDTH = HEAD * HEADS };
    static const int n_launches[] = {1, 5, 3, 3, 1, 5};
    for (int variant = 0; variant < 6; variant++) {
        const long before = st->n_launches;
        ggml_backend_t b = ggml_backend_cuda_init(0);
        struct ggml_context *c = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
        struct ggml_tensor *q = ggml_new_tensor_3d(c, GGML_TYPE_F32, HEAD, 2 * HEADS, TOKENS);
        struct ggml_tensor *k = ggml_new_tensor_3d(c, GGML_TYPE_F32, HEAD, HEADS, TOKENS);
        struct ggml_tensor *v = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDTH, TOKENS);
        struct ggml_tensor *pos = ggml_new_tensor_1d(c, GGML_TYPE_I32, TOKENS),
                           *to = ggml_new_tensor_1d(c, GGML_TYPE_I64, TOKENS);
        struct ggml_tensor *keys = ggml_new_tensor_3d(c, GGML_TYPE_F16, WIDTH, 4, 2),
                           *values = ggml_new_tensor_3d(c, GGML_TYPE_F16, WIDTH, 4, 2);
        struct ggml_cgraph *graph = ggml_new_graph(c);
        struct ggml_tensor *raw = q;
        keys = ggml_reshape_2d(c, keys, WIDTH, 8);
        values = ggml_reshape_2d(c, values, WIDTH, 8);
        if (variant < 4) { // the views come before ROPE
            ggml_build_forward_expand(graph, keys);
            ggml_build_forward_expand(graph, values);
        } else {
            struct ggml_tensor *weights = ggml_new_tensor_1d(c, GGML_TYPE_F32, HEAD);
            q = ggml_mul(c, ggml_rms_norm(c, q, 1e-5f), weights);
            k = ggml_mul(c, ggml_rms_norm(c, k, 1e-5f), weights);
        }
        struct ggml_tensor *rotated = ggml_rope(c, k, pos, HEAD, 0), *queries = ggml_rope(c, q, pos, HEAD, 0);
        ggml_build_forward_expand(graph, queries);
        ggml_build_forward_expand(graph, ggml_set_rows(c, keys, ggml_reshape_2d(c, rotated, WIDTH, TOKENS), to));
        ggml_build_forward_expand(graph, ggml_set_rows(c, values, v, to));
        if (variant == 1) {
            ggml_build_forward_expand(graph, ggml_silu(c, rotated));
        }
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(c, b);
        assert_non_null(buffer);
        if (variant == 2) {
            queries->data = v->data; // overwrites the values before they are read; no allocator would do this
        } else if (variant == 3) {
            queries->data = pos->data;
        } else if (variant == 5) {
            queries->data = (char *) raw->data + HEAD * sizeof(float);
        }
        assert_int_equal(ggml_backend_graph_compute(b, graph), GGML_STATUS_SUCCESS);
        assert_int_equal(st->n_launches - before, n_launches[variant]);
        ggml_backend_buffer_free(buffer);
        ggml_backend_free(b);
        ggml_free(c);
    }
}

static void host_tensors_are_refused(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *t = ggml_sqr(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 16));
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, t);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type());
    assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "host memory"));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

static void devices_copy_to_each_other(void **unused) {
    (void) unused;
    st->n_devices = 4;
    ggml_backend_t backends[4];
    ggml_backend_buffer_t buffers[4];
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_tensor *t[4];
    float in[16], out[16];
    for (int i = 0; i < 4; i++) {
        backends[i] = ggml_backend_cuda_init(i);
        buffers[i] = ggml_backend_alloc_buffer(backends[i], 1024);
        t[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 16);
        assert_int_equal(
            ggml_backend_tensor_alloc(buffers[i], t[i], ggml_backend_buffer_get_base(buffers[i])), GGML_STATUS_SUCCESS);
        in[4 * i] = in[4 * i + 1] = in[4 * i + 2] = in[4 * i + 3] = (float) i;
    }
    ggml_backend_event_t event = ggml_backend_event_new(ggml_backend_get_device(backends[0]));
    ggml_backend_tensor_set_async(backends[0], t[0], in, 0, sizeof in);
    ggml_backend_event_record(event, backends[0]);
    ggml_backend_event_wait(backends[1], event);
    ggml_backend_tensor_copy_async(backends[0], backends[1], t[0], t[1]);
    ggml_backend_tensor_copy_async(backends[1], backends[2], t[1], t[2]);
    ggml_backend_synchronize(backends[2]);
    ggml_backend_tensor_copy(t[2], t[3]);
    ggml_backend_tensor_get_async(backends[3], t[3], out, 0, sizeof out);
    ggml_backend_synchronize(backends[3]);
    ggml_backend_event_synchronize(event);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(st->used[2], 1024);
    ggml_backend_event_free(event);
    for (int i = 0; i < 4; i++) {
        ggml_backend_buffer_free(buffers[i]);
        ggml_backend_free(backends[i]);
    }
    ggml_free(ctx);
}

// A sum over four devices: checks the launches and copies, but not their order or the numbers, which the driver does not simulate.
static void devices_sum_a_tensor(void **unused) {
    (void) unused;
    st->n_devices = 4;
    ggml_backend_t backends[4];
    ggml_backend_buffer_t buffers[4];
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_tensor *t[4];
    for (int i = 0; i < 4; i++) {
        backends[i] = ggml_backend_cuda_init(i);
        buffers[i] = ggml_backend_alloc_buffer(backends[i], 1024);
        t[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
        assert_int_equal(
            ggml_backend_tensor_alloc(buffers[i], t[i], ggml_backend_buffer_get_base(buffers[i])), GGML_STATUS_SUCCESS);
    }
    void *comm = cuda_comm_init(backends, 4);
    assert_non_null(comm);
    assert_true(cuda_comm_allreduce(comm, t));
    assert_string_equal(st->last_kernel, "comm_sum");
    assert_int_equal(st->n_launches, 4);
    assert_int_equal(st->n_copies, 4);
    const long n_allocs = st->n_allocs;
    assert_true(cuda_comm_allreduce(comm, t));
    assert_int_equal(st->n_allocs, n_allocs);
    struct ggml_tensor *odd[4] = {t[0], t[1], t[2], ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 32)};
    assert_false(cuda_comm_allreduce(comm, odd));
    for (long n = 1; n < 60; n++) { // if the n-th driver call fails, the sum fails
        st->fail_at = n;
        st->fail_with = 1;
        const bool ok = cuda_comm_allreduce(comm, t);
        assert_true(ok == (st->fail_at > 0));
        st->fail_at = 0;
    }
    cuda_comm_free(comm);
    assert_true(ggml_backend_cuda_allreduce_tensor(backends, t, 4));
    ggml_backend_t cpu = ggml_backend_cpu_init();
    assert_null(cuda_comm_init((ggml_backend_t[]){backends[0], cpu}, 2));
    ggml_backend_free(cpu);
    for (int i = 0; i < 4; i++) {
        ggml_backend_buffer_free(buffers[i]);
        ggml_backend_free(backends[i]);
    }
    ggml_free(ctx);
}

// Splits the first weight by rows and the second by columns, so that the result is a sum over the devices.
static struct ggml_backend_meta_split_state share(const struct ggml_tensor *t, void *unused) {
    (void) unused;
    struct ggml_backend_meta_split_state state = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    if (strcmp(t->name, "up") == 0 || strcmp(t->name, "down") == 0) {
        state.axis = strcmp(t->name, "up") == 0 ? GGML_BACKEND_SPLIT_AXIS_1 : GGML_BACKEND_SPLIT_AXIS_0;
        for (int j = 0; j < 4; j++) {
            state.ne[j] = 64;
        }
    }
    return state;
}

// A composite device of four: each device holds a quarter of the weights and computes a part; cuda_comm_allreduce adds the parts.
static void devices_form_a_composite(void **unused) {
    (void) unused;
    st->n_devices = 4;
    ggml_backend_dev_t parts[4];
    for (size_t i = 0; i < 4; i++) {
        parts[i] = ggml_backend_reg_dev_get(ggml_backend_cuda_reg(), i);
    }
    ggml_backend_dev_t dev = ggml_backend_meta_device(parts, 4, share, NULL);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    assert_non_null(backend);
    struct ggml_context *weights = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *up = ggml_set_name(ggml_new_tensor_2d(weights, GGML_TYPE_F32, 64, 256), "up");
    struct ggml_tensor *down = ggml_set_name(ggml_new_tensor_2d(weights, GGML_TYPE_F32, 256, 64), "down");
    size_t before[4];
    memcpy(before, st->used, sizeof before);
    ggml_backend_buffer_t held = ggml_backend_alloc_ctx_tensors(weights, backend);
    assert_non_null(held);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(st->used[i] - before[i], 2 * 64 * 64 * sizeof(float));
    }
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 2);
    struct ggml_tensor *y = ggml_mul_mat(ctx, down, ggml_silu(ctx, ggml_mul_mat(ctx, up, x)));
    struct ggml_tensor *z = ggml_rms_norm(ctx, y, 1e-5f); // needs the complete sum
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, z);
    ggml_gallocr_t alloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    assert_true(ggml_gallocr_alloc_graph(alloc, graph));
    struct berth_meta_stats stats;
    for (int round = 1; round <= 3; round++) {
        const long n_launches = st->n_launches + st->n_graph_launches;
        assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
        // Each of the four devices has three launches: the nodes before the sum, the sum, the nodes after it.
        assert_true(st->n_launches + st->n_graph_launches >= n_launches + 4 * 3);
        assert_true(berth_meta_stats(backend, &stats));
        assert_int_equal(stats.n_sums, round);
        assert_int_equal(stats.summed_size, round * (int64_t) ggml_nbytes(y));
        assert_int_equal(stats.n_gathered, 0);
        assert_int_equal(stats.n_cache_misses, 1);
    }
    st->lost[2] = 999; // one of four devices is lost: the compute fails and reports it
    assert_int_not_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    assert_non_null(strstr(berth_last_error(), "CUDA2"));
    st->lost[2] = 0; // so that the simulated driver frees everything
    cuda_devices(&(int){0})[2].is_lost = false;
    ggml_gallocr_free(alloc);
    ggml_backend_buffer_free(held);
    ggml_backend_free(backend);
    ggml_free(ctx);
    ggml_free(weights);
    cuda_devices_reset();
    drop();
}

// ---- failures ----

static void out_of_memory_names_device_and_bytes(void **unused) {
    (void) unused;
    st->memory = 1 << 20;
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cuda_buffer_type(0), 2 << 20);
    assert_null(buffer);
    assert_non_null(strstr(berth_last_error(), "CUDA0"));
    assert_non_null(strstr(berth_last_error(), "2097152 bytes"));
    assert_non_null(strstr(berth_last_error(), "1048576 of 1048576 free"));
    assert_non_null(strstr(berth_last_error(), "CUDA_ERROR_OUT_OF_MEMORY"));
}

// BERTH_MEMORY limits the memory that a device reports and gives. Items that are no limit are ignored.
static void the_environment_limits_memory(void **unused) {
    (void) unused;
    static const struct {
        const char *text;
        size_t limit; // 0: none
    } cases[] = {
        {"CUDA1=1G,CUDA0=3M", 3 << 20}, {"3M", 3 << 20}, {"CUDA1=3M", 0}, {"CUDA0=many,=,CUDA0=0", 0}, {"", 0}, {"CUDA=1M", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("BERTH_MEMORY", cases[i].text, 1);
        const size_t limit = cases[i].limit, all = limit > 0 ? limit : st->memory;
        ggml_backend_buffer_type_t buft = ggml_backend_cuda_buffer_type(0);
        ggml_backend_dev_t dev = ggml_backend_buft_get_device(buft);
        size_t n_free, n_total;
        ggml_backend_buffer_t first = ggml_backend_buft_alloc_buffer(buft, 2 << 20);
        assert_non_null(first);
        ggml_backend_dev_memory(dev, &n_free, &n_total);
        assert_int_equal(n_total, all);
        assert_int_equal(n_free, all - (2 << 20));
        ggml_backend_buffer_t second = ggml_backend_buft_alloc_buffer(buft, (1 << 20) + 1);
        assert_int_equal(second == NULL, limit > 0);
        if (limit > 0) {
            assert_non_null(strstr(berth_last_error(), "BERTH_MEMORY allows 3145728 bytes, and 2097152 are in use"));
            second = ggml_backend_buft_alloc_buffer(buft, 1 << 20);
            assert_non_null(second);
        }
        ggml_backend_buffer_free(first);
        ggml_backend_buffer_free(second);
        ggml_backend_dev_memory(dev, &n_free, &n_total);
        assert_int_equal(n_free, all);
        cuda_devices_reset();
    }
    unsetenv("BERTH_MEMORY");
}

static void place_all(ggml_backend_sched_t sched, struct ggml_cgraph *g, ggml_backend_t backend) {
    for (int i = 0; i < ggml_graph_n_nodes(g); i++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(g, i), backend);
    }
}

// Either the reserve fails, or no later call fails. The test runs with many amounts of device memory, from too little to enough.
static void nothing_fails_after_a_reserve(void **unused) {
    (void) unused;
    int n_refused = 0, n_done = 0;
    for (size_t memory = 64 << 10; memory <= 4 << 20; memory += 64 << 10) {
        st->memory = memory;
        ggml_backend_t backends[] = {ggml_backend_cuda_init(0), ggml_backend_cpu_init()};
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
        struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8192, 16);
        ggml_set_input(x);
        struct ggml_tensor *y = ggml_sum(ctx, ggml_sqr(ctx, ggml_sqr(ctx, x)));
        struct ggml_cgraph *g = ggml_new_graph(ctx);
        ggml_build_forward_expand(g, y);
        ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, 2, 64, false, false);
        place_all(sched, g, backends[0]);
        if (ggml_backend_sched_reserve(sched, g)) {
            n_done++;
            ggml_backend_sched_reset(sched);
            place_all(sched, g, backends[0]);
            assert_true(ggml_backend_sched_alloc_graph(sched, g));
            for (int i = 0; i < 3; i++) {
                assert_int_equal(ggml_backend_sched_graph_compute(sched, g), GGML_STATUS_SUCCESS);
            }
        } else {
            n_refused++;
            assert_non_null(strstr(berth_last_error(), "cannot allocate the buffers of a graph"));
            assert_non_null(strstr(berth_last_error(), "CUDA0"));
        }
        ggml_backend_sched_free(sched);
        ggml_free(ctx);
        ggml_backend_free(backends[0]);
        ggml_backend_free(backends[1]);
    }
    assert_true(n_refused > 2 && n_done > 2);
}

static void a_lost_device_leaves_others_working(void **unused) {
    (void) unused;
    st->n_devices = 2;
    ggml_backend_t first = ggml_backend_cuda_init(0), second = ggml_backend_cuda_init(1), cpu = ggml_backend_cpu_init();
    struct small a, b, c;
    assert_true(small_init(&a, first, 64) && small_init(&b, second, 64) && small_init(&c, cpu, 64));
    assert_int_equal(ggml_backend_graph_compute(first, a.graph), GGML_STATUS_SUCCESS);
    st->lost[0] = 719;
    assert_int_not_equal(ggml_backend_graph_compute(first, a.graph), GGML_STATUS_SUCCESS);
    assert_non_null(strstr(berth_last_error(), "CUDA0"));
    assert_int_not_equal(ggml_backend_graph_compute(first, a.graph), GGML_STATUS_SUCCESS);
    assert_non_null(strstr(berth_last_error(), "lost"));
    float v = 1;
    ggml_backend_tensor_set(a.w, &v, 0, sizeof v); // must not crash on the lost device
    size_t n_free = 1, n_total = 1;
    ggml_backend_dev_memory(ggml_backend_get_device(first), &n_free, &n_total);
    assert_int_equal(n_free, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ggml_backend_graph_compute(second, b.graph), GGML_STATUS_SUCCESS);
        assert_int_equal(ggml_backend_graph_compute(cpu, c.graph), GGML_STATUS_SUCCESS);
    }
    st->lost[0] = 0; // so that the simulated driver frees everything
    cuda_devices(&(int){0})[0].is_lost = false;
    small_free(&a), small_free(&b), small_free(&c);
    ggml_backend_free(first), ggml_backend_free(second), ggml_backend_free(cpu);
    cuda_devices_reset();
    drop();
}

static void a_failed_set_fails_the_compute(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct small s;
    float v = 1;
    assert_true(small_init(&s, backend, 64));
    st->fail_at = 2; // the copy; the first call makes the context current
    st->fail_with = 1;
    ggml_backend_tensor_set(s.w, &v, 0, sizeof v);
    assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_FAILED);
    assert_int_equal(ggml_backend_graph_compute(backend, s.graph), GGML_STATUS_SUCCESS);
    small_free(&s);
    ggml_backend_free(backend);
}

// Calls the functions that a program calls, on two devices. Returns whether everything worked.
static bool use_all_functions(void) {
    bool ok = true;
    float v[4] = {1, 2, 3, 4}, w[4] = {0};
    ggml_backend_t one = ggml_backend_cuda_init(0), two = one != NULL ? ggml_backend_cuda_init(1) : NULL;
    struct small s = {0}, t = {0};
    ok = one != NULL && two != NULL && small_init(&s, one, 8192) && small_init(&t, two, 8192);
    ggml_backend_event_t event = ok ? ggml_backend_event_new(ggml_backend_get_device(one)) : NULL;
    ok = ok && event != NULL;
    ggml_backend_buffer_t host = ok ? ggml_backend_buft_alloc_buffer(ggml_backend_cuda_host_buffer_type(), 256) : NULL;
    if (ok) {
        ggml_backend_tensor_set(s.w, v, 0, sizeof v);
        ggml_backend_tensor_set_async(one, s.w, v, 0, sizeof v);
        for (int i = 0; i < 4 && ok; i++) {
            ok = ggml_backend_graph_compute(one, s.graph) == GGML_STATUS_SUCCESS;
        }
        ggml_backend_event_record(event, one);
        ggml_backend_event_wait(two, event);
        ggml_backend_tensor_copy_async(one, two, s.w, t.w);
        ok = ggml_backend_graph_compute(two, t.graph) == GGML_STATUS_SUCCESS && ok;
        ggml_backend_tensor_get_async(two, t.w, w, 0, sizeof w);
        ggml_backend_synchronize(two);
        ggml_backend_tensor_copy(t.w, s.w);
        ggml_backend_tensor_get(s.w, w, 0, sizeof w);
        ok = ggml_backend_graph_compute(one, s.graph) == GGML_STATUS_SUCCESS && ok;
        ok = ggml_backend_graph_compute(two, t.graph) == GGML_STATUS_SUCCESS && ok && memcmp(v, w, sizeof v) == 0;
    }
    ggml_backend_buffer_free(host);
    if (event != NULL) {
        ggml_backend_event_free(event);
    }
    small_free(&s), small_free(&t);
    ggml_backend_free(one), ggml_backend_free(two);
    return ok;
}

// The n-th driver call fails, for all n up to 400 and for every seventh n after that. Errors: 1, an ordinary error; 2, out of
// memory; 719, after which the device is lost; 12345, an error without a name.
static void every_call_may_fail(void **unused) {
    (void) unused;
    static const int errors[] = {1, 2, 719, 12345};
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        int n_failed = 0;
        for (long n = 1;; n += n < 400 ? 1 : 7) {
            reset();
            st->n_devices = 2;
            st->fail_at = n;
            st->fail_with = errors[e];
            const bool ok = use_all_functions();
            const bool is_over = st->fail_at > 0; // there were fewer than n calls
            st->fail_at = 0;
            n_failed += !ok;
            if (errors[e] == 719) { // the driver frees the objects of a lost device
                cuda_devices_reset();
                drop();
            } else {
                check_nothing_left();
            }
            if (is_over) {
                assert_true(ok);
                break;
            }
        }
        assert_true(n_failed > 50);
    }
}

static void every_allocation_may_fail(void **unused) {
    (void) unused;
    st->n_devices = 2;
    berth_alloc_watch(true);
    assert_true(use_all_functions());
    const int64_t n_all = berth_alloc_made();
    berth_alloc_watch(false);
    check_nothing_left();
    for (int64_t n = 1; n <= n_all; n++) {
        reset();
        st->n_devices = 2;
        berth_alloc_fail_at(n);
        use_all_functions();
        berth_alloc_fail_at(0);
        check_nothing_left();
    }
}

// After a reserve, the graph and smaller graphs with the same ops are computed without allocations, even if their plan is new.
static void reserved_graphs_need_no_memory(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct small s[GPU_MAX_PLANS + 4];
    for (int i = 0; i < GPU_MAX_PLANS + 4; i++) {
        assert_true(small_init(&s[i], backend, 4096 - 64 * i));
    }
    berth_alloc_fail_at(1);
    assert_int_equal(berth_backend_reserve(backend, s[0].graph), GGML_STATUS_ALLOC_FAILED);
    assert_non_null(strstr(berth_last_error(), "the plan of a graph of"));
    berth_alloc_fail_at(0);
    assert_int_equal(berth_backend_reserve(backend, s[0].graph), GGML_STATUS_SUCCESS);
    const long n_allocs = st->n_allocs;
    berth_alloc_fail_at(-1);
    for (int step = 0; step < 1000; step++) {
        assert_int_equal(ggml_backend_graph_compute(backend, s[step / 3 % (GPU_MAX_PLANS + 4)].graph), GGML_STATUS_SUCCESS);
    }
    berth_alloc_fail_at(0);
    assert_int_equal(st->n_allocs, n_allocs);
    assert_true(st->n_graph_launches > 600); // of three computes of a graph, the second and third launch a captured graph
    for (int i = 0; i < GPU_MAX_PLANS + 4; i++) {
        small_free(&s[i]);
    }
    ggml_backend_free(backend);
}

// The size that a backend reports for a reserve is the device memory that the reserve allocates.
static void the_size_of_a_reserve_is_known(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_K, 512, 64),
                       *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 512, 200);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, ggml_mul_mat(ctx, w, x));
    const size_t size = berth_backend_reserve_size(backend, g), used = st->used[0];
    assert_true(size >= 512 * 200 * 2); // the columns in f16
    assert_int_equal(berth_backend_reserve(backend, g), GGML_STATUS_SUCCESS);
    assert_int_equal(st->used[0] - used, size);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

// Returns the work memory of a product with n columns, or of attention with n queries over 8 n keys.
static size_t work_of(struct cuda_backend *b, enum ggml_type type, int64_t n, bool is_attention) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, type, 512, 64), *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 512, n);
    struct ggml_tensor *q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 128, n, 32), *k = ggml_new_tensor_3d(ctx, type, 128, 8 * n, 8);
    struct ggml_tensor *v = ggml_dup_tensor(ctx, k), *mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 8 * n, n);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(
        g, is_attention ? ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f, 0.0f, 0.0f) : ggml_mul_mat(ctx, w, x));
    const size_t size = gpu_graph_work_size(&b->plans, g);
    ggml_free(ctx);
    return size;
}

// The work memory of a graph is enough for every smaller graph, even if the smaller graph uses other kernels. Variants 0 to 3 are
// products with weights of four types. Variants 4 and 5 are attention with keys and values of F16 and of Q8_0.
static void smaller_graphs_need_no_more_memory(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    for (int variant = 0; variant < 6; variant++) {
        const bool is_attention = variant >= 4;
        const enum ggml_type type = variant % 4 == 0 ? GGML_TYPE_F16
                                    : variant == 1   ? GGML_TYPE_Q4_K
                                    : variant == 2   ? GGML_TYPE_F32
                                                     : GGML_TYPE_Q8_0;
        for (int64_t n = 2, before = 0; n < 300; n++) {
            const int64_t size = (int64_t) work_of(backend->context, type, n, is_attention);
            if (size < before) {
                print_error("%s, %s: %lld bytes for %lld columns, but %lld bytes for one column less\n", ggml_type_name(type),
                    is_attention ? "attention" : "product", (long long) size, (long long) n, (long long) before);
            }
            assert_true(size >= before);
            before = size;
        }
    }
    ggml_backend_free(backend);
}

// Computes a product with n columns (d = 0), or attention with n queries and head dimension d. Fails if a launch asks for more
// shared memory than the GPU has.
static void compute_one(ggml_backend_t backend, enum ggml_type type, int64_t n, int64_t d) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    struct ggml_tensor *y;
    if (d == 0) {
        y = ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, type, 4096, 64), ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4096, n));
    } else {
        struct ggml_tensor *k = ggml_new_tensor_3d(ctx, type, d, 400, 2);
        y = ggml_flash_attn_ext(
            ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, d, n, 8), k, ggml_dup_tensor(ctx, k), NULL, 1.0f, 0.0f, 0.0f);
    }
    ggml_build_forward_expand(g, y);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (ggml_backend_supports_op(backend, y) && ggml_backend_graph_compute(backend, g) != GGML_STATUS_SUCCESS) {
        fail_msg("%s of %s, %lld columns, heads of %lld: %s", ggml_op_name(y->op), ggml_type_name(type), (long long) n,
            (long long) d, berth_last_error());
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static void kernels_fit_every_gpu(void **unused) {
    (void) unused;
    static const int shared[] = {232448, 166912, 101376};
    static const enum ggml_type types[] = {
        GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};
    static const int64_t heads[] = {0, 64, 128, 256, 576};
    for (int i = 0; i < 3; i++) {
        cuda_devices_reset();
        st->shared = shared[i];
        st->major = i == 0 ? 9 : 8;
        ggml_backend_t backend = ggml_backend_cuda_init(0);
        assert_non_null(backend);
        for (int t = 0; t < 6; t++) {
            for (int h = 0; h < (t < 4 ? 5 : 1); h++) {
                for (int64_t n = 1; n <= 128; n *= 2) {
                    compute_one(backend, types[t], n, heads[h]);
                }
            }
        }
        ggml_backend_free(backend);
    }
}

// Attention supports every pair of cache types. Sequences with their own caches take one launch, and one that combines splits.
static void attention_reads_every_cache_type(void **unused) {
    (void) unused;
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL, GGML_TYPE_Q4_K};
    enum { N_TYPES = sizeof types / sizeof types[0], D = 256, N_SEQ = 5 };
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    for (int i = 0; i < N_TYPES * N_TYPES; i++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
        struct ggml_tensor *q = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, D, 1, 8, N_SEQ);
        struct ggml_tensor *k = ggml_new_tensor_4d(ctx, types[i / N_TYPES], D, 400, 2, N_SEQ);
        struct ggml_tensor *v = ggml_new_tensor_4d(ctx, types[i % N_TYPES], D, 400, 2, N_SEQ);
        struct ggml_tensor *mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, 400, 1, 1, N_SEQ);
        struct ggml_tensor *y = ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f, 0.0f, 0.0f);
        struct ggml_cgraph *g = ggml_new_graph(ctx);
        ggml_build_forward_expand(g, y);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        assert_true(ggml_backend_supports_op(backend, y));
        const long before = st->n_launches;
        assert_int_equal(ggml_backend_graph_compute(backend, g), GGML_STATUS_SUCCESS);
        assert_in_range(st->n_launches - before, 1, 2);
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    ggml_backend_free(backend);
}

// If the arena cannot be enlarged, it keeps its earlier size.
static void a_failed_reserve_keeps_the_earlier_one(void **unused) {
    (void) unused;
    ggml_backend_t backend = ggml_backend_cuda_init(0);
    struct cuda_backend *b = backend->context;
    const size_t first_size = 1 << 20;
    assert_true(cuda_arena_grow(b, first_size));
    st->memory = 2 << 20;
    assert_false(cuda_arena_grow(b, 4 << 20));
    assert_int_equal(b->arena_size, first_size);
    assert_non_null(b->arena);
    const long n_allocs = st->n_allocs;
    assert_true(cuda_arena_grow(b, first_size));
    assert_int_equal(st->n_allocs, n_allocs);
    ggml_backend_free(backend);
}

// ---- threads ----

static void *thread_main(void *arg) {
    const int i = *(const int *) arg;
    ggml_backend_t backend = ggml_backend_cuda_init(i % 2);
    struct small s;
    bool ok = backend != NULL && small_init(&s, backend, 64 + 64 * i);
    for (int k = 0; k < 20 && ok; k++) {
        ok = ggml_backend_graph_compute(backend, s.graph) == GGML_STATUS_SUCCESS;
    }
    small_free(&s);
    ggml_backend_free(backend);
    return ok ? arg : NULL;
}

static void threads_share_devices(void **unused) {
    (void) unused;
    st->n_devices = 2;
    pthread_t threads[4];
    int numbers[4];
    ggml_backend_cuda_reg();
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &numbers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        assert_non_null(ok);
    }
}

// ---- drivers that cannot be used, each in a separate process ----

static char logged[256];
static void log_keep(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    if (level == GGML_LOG_LEVEL_DEBUG && strncmp(text, "CUDA: no device", 15) == 0) {
        snprintf(logged, sizeof logged, "%s", text);
    }
}

// Returns 0 if no device is listed and the log contains these words.
static int lists_none(const char *words) {
    ggml_log_set(log_keep, NULL);
    return ggml_backend_reg_dev_count(ggml_backend_cuda_reg()) == 0 && strstr(logged, words) != NULL ? 0 : 1;
}

static void a_missing_device_is_not_an_error(void **state) {
    const char *self = *state;
    static const char *const cases[][3] = {{"BERTH_CUDA_DRIVER", "/nowhere/libcuda.so.1", "cannot load the driver"},
        {"STANDIN_INIT_ERROR", "100", "cuInit"}, {"STANDIN_VERSION", "11040", "11.4"},
        {"STANDIN_DEVICES", "0", "lists no device"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *old = strdup(getenv("BERTH_CUDA_DRIVER"));
        setenv(cases[i][0], cases[i][1], 1);
        const pid_t pid = fork();
        if (pid == 0) {
            execl(self, self, "--none", cases[i][2], (char *) NULL);
            _exit(9);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        unsetenv(cases[i][0]);
        setenv("BERTH_CUDA_DRIVER", old, 1);
        free(old);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--none") == 0) {
        return lists_none(argv[2]);
    }
    struct standin_functions f;
    if (!standin_load(&f)) {
        return 1;
    }
    st = f.state();
    reset = f.reset;
    drop = f.drop;
    ggml_log_set(log_drop, NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(devices_are_listed),
        TEST(buffers_hold_bytes),
        TEST(host_memory_is_pinned),
        TEST(graphs_are_captured),
        TEST(sources_after_null_are_compared),
        TEST(oldest_plans_are_replaced),
        TEST(without_graphs_and_fusions),
        TEST(placement_may_prevent_a_fusion),
        TEST(products_of_a_column_are_one_launch),
        TEST(products_of_few_columns_are_one_or_two_launches),
        TEST(written_weights_are_not_read_early),
        TEST(rope_and_cache_are_one_launch),
        TEST(host_tensors_are_refused),
        TEST(devices_copy_to_each_other),
        TEST(devices_sum_a_tensor),
        TEST(devices_form_a_composite),
        TEST(out_of_memory_names_device_and_bytes),
        TEST(the_environment_limits_memory),
        TEST(nothing_fails_after_a_reserve),
        TEST(a_lost_device_leaves_others_working),
        TEST(a_failed_set_fails_the_compute),
        TEST(every_call_may_fail),
        TEST(every_allocation_may_fail),
        TEST(reserved_graphs_need_no_memory),
        TEST(the_size_of_a_reserve_is_known),
        TEST(kernels_fit_every_gpu),
        TEST(attention_reads_every_cache_type),
        TEST(smaller_graphs_need_no_more_memory),
        TEST(a_failed_reserve_keeps_the_earlier_one),
        TEST(threads_share_devices),
        cmocka_unit_test_prestate(a_missing_device_is_not_an_error, argv[0]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

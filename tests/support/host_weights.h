// SPDX-License-Identifier: MIT
// host_weights.h: a graph of products with weights in memory of the host, for tests of schedulers that compute it on a device.
#pragma once

#include "support/device_graph.h"

enum { N = 64, N_WEIGHTS = 6 };

struct host_world {
    struct device dev;
    ggml_backend_t backends[2]; // the device, the CPU
    struct ggml_context *weights_ctx, *ctx;
    ggml_backend_buffer_t buffer; // the weights, in host memory
    struct ggml_tensor *w[N_WEIGHTS], *x, *out;
    struct ggml_cgraph *graph;
    int n_columns; // of x
    int n_repeats; // how often the result has the columns
    ggml_backend_sched_t sched;
};

// out = w[5] * (... * (w[0] * x))
static inline void host_graph_new(struct host_world *t) {
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    t->ctx = ggml_init(params);
    t->graph = ggml_new_graph(t->ctx);
    t->x = ggml_set_name(ggml_new_tensor_2d(t->ctx, GGML_TYPE_F32, N, t->n_columns), "x");
    ggml_set_input(t->x);
    t->out = t->x;
    for (int i = 0; i < N_WEIGHTS; i++) {
        t->out = ggml_tanh(t->ctx, ggml_mul_mat(t->ctx, t->w[i], t->out));
    }
    if (t->n_repeats > 1) {
        t->out = ggml_repeat_4d(t->ctx, t->out, N, t->n_columns * t->n_repeats, 1, 1);
    }
    ggml_set_output(t->out);
    ggml_build_forward_expand(t->graph, t->out);
}

static inline int host_setup(void **state) {
    static struct host_world world;
    struct host_world *t = &world;
    memset(t, 0, sizeof *t);
    device_init(&t->dev, "device");
    t->dev.is_async = t->dev.has_events = true;
    t->dev.offload_batch = 2;
    t->backends[0] = device_start(&t->dev);
    t->backends[1] = ggml_backend_cpu_init();
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    t->weights_ctx = ggml_init(params);
    for (int i = 0; i < N_WEIGHTS; i++) {
        t->w[i] = ggml_format_name(ggml_new_tensor_2d(t->weights_ctx, GGML_TYPE_F32, N, N), "w%d", i);
    }
    t->buffer = ggml_backend_alloc_ctx_tensors(t->weights_ctx, t->backends[1]);
    ggml_backend_buffer_set_usage(t->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int i = 0; i < N_WEIGHTS; i++) {
        rg_fill(t->w[i], (uint64_t) i);
    }
    t->n_columns = N;
    host_graph_new(t);
    t->sched = ggml_backend_sched_new(t->backends, NULL, 2, 64, false, true);
    *state = t;
    return t->sched != NULL ? 0 : -1;
}

static inline int host_teardown(void **state) {
    struct host_world *t = *state;
    ggml_backend_sched_free(t->sched);
    ggml_free(t->ctx);
    ggml_free(t->weights_ctx);
    ggml_backend_buffer_free(t->buffer);
    const int n_buffers = t->dev.n_buffers;
    device_stop(&t->dev);
    ggml_backend_free(t->backends[1]);
    return n_buffers == 0 ? 0 : -1;
}

static inline void host_graph_renew(struct host_world *t) {
    ggml_free(t->ctx);
    host_graph_new(t);
}

static inline void host_sched_renew(struct host_world *t) {
    ggml_backend_sched_free(t->sched);
    t->sched = ggml_backend_sched_new(t->backends, NULL, 2, 64, false, true);
    assert_non_null(t->sched);
    host_graph_renew(t);
}

static inline void host_compute(struct host_world *t, float *result) {
    ggml_backend_sched_reset(t->sched);
    assert_true(ggml_backend_sched_alloc_graph(t->sched, t->graph));
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute(t->sched, t->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t->out, result, 0, ggml_nbytes(t->out));
}

// Computes with a scheduler that has only the CPU, and makes a new graph.
static inline const float *host_expected(struct host_world *t) {
    static float result[N * N];
    host_graph_renew(t);
    ggml_backend_sched_t sched = ggml_backend_sched_new(&t->backends[1], NULL, 1, 64, false, false);
    assert_true(ggml_backend_sched_alloc_graph(sched, t->graph));
    rg_fill(t->x, 100);
    assert_int_equal(ggml_backend_sched_graph_compute(sched, t->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t->out, result, 0, ggml_nbytes(t->out));
    ggml_backend_sched_free(sched);
    host_graph_renew(t);
    return result;
}

static inline void host_check(struct host_world *t) {
    static float result[N * N];
    const float *want = host_expected(t);
    host_compute(t, result);
    assert_memory_equal(result, want, ggml_nbytes(t->out));
}

// Returns how often the explained graph has the words.
static inline int host_count_explained(struct host_world *t, const char *words) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_sched_explain_text(t->sched, file), GGML_STATUS_SUCCESS);
    assert_int_equal(fclose(file), 0);
    int n = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        n++;
    }
    free(text);
    return n;
}

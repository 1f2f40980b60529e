// SPDX-License-Identifier: MIT
// device_net.h: the fixture of scheduler tests: backends 0 and 1 are devices for tests (device.h), backend 2 is the CPU. Each
// backend has one weight.
#pragma once

#include "support/device_graph.h"

enum { N = 64 };

struct net {
    struct device dev[2];
    ggml_backend_t cpu, backends[3];
    struct ggml_context *ctx, *weights_ctx;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t buffers[3];
    struct ggml_tensor *w[3]; // one weight on each backend
    ggml_backend_sched_t sched;
};

// For device.supports: all ops except unary ones, such as tanh.
static inline bool no_tanh(const struct device *dev, const struct ggml_tensor *op) {
    (void) dev;
    return op->op != GGML_OP_UNARY;
}

static inline bool no_f16(const struct device *dev, const struct ggml_tensor *op) {
    (void) dev;
    return op->src[0] == NULL || op->src[0]->type != GGML_TYPE_F16;
}

static inline void graph_new(struct net *n) {
    struct ggml_init_params params = {.mem_size = 4 << 20, .no_alloc = true};
    n->ctx = ggml_init(params);
    n->graph = ggml_new_graph_custom(n->ctx, 4096, false);
}

static inline int setup(void **state) {
    static struct net net;
    struct net *n = &net;
    memset(n, 0, sizeof *n);
    for (int d = 0; d < 2; d++) {
        device_init(&n->dev[d], d == 0 ? "first" : "second");
        n->backends[d] = device_start(&n->dev[d]);
    }
    n->cpu = n->backends[2] = ggml_backend_cpu_init();
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    n->weights_ctx = ggml_init(params);
    for (int b = 0; b < 3; b++) {
        n->w[b] = ggml_new_tensor_2d(n->weights_ctx, GGML_TYPE_F32, N, N);
        n->buffers[b] = ggml_backend_alloc_buffer(n->backends[b], ggml_nbytes(n->w[b]));
        ggml_backend_buffer_set_usage(n->buffers[b], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ggml_format_name(n->w[b], "w%d", b);
        if (ggml_backend_tensor_alloc(n->buffers[b], n->w[b], ggml_backend_buffer_get_base(n->buffers[b])) != 0) {
            return -1;
        }
        rg_fill(n->w[b], (uint64_t) b);
    }
    graph_new(n);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    *state = n;
    return n->sched != NULL ? 0 : -1;
}

static inline int teardown(void **state) {
    struct net *n = *state;
    ggml_backend_sched_free(n->sched);
    ggml_free(n->ctx);
    ggml_free(n->weights_ctx);
    for (int b = 0; b < 3; b++) {
        ggml_backend_buffer_free(n->buffers[b]);
    }
    for (int d = 0; d < 2; d++) {
        if (n->dev[d].n_buffers != 0) {
            return -1;
        }
        device_stop(&n->dev[d]);
    }
    ggml_backend_free(n->cpu);
    return 0;
}

static inline struct ggml_tensor *named(struct ggml_tensor *t, const char *name) {
    return ggml_set_name(t, name);
}

static inline struct ggml_tensor *input(struct net *n, int rows) {
    struct ggml_tensor *x = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, N, rows);
    ggml_set_input(x);
    return named(x, "x");
}

// The weight uses the memory of n->w[b], so a test uses only one of the two.
static inline struct ggml_tensor *weight_of(struct net *n, int b, int64_t n0, int64_t n1, int64_t n2) {
    struct ggml_tensor *w = ggml_new_tensor_3d(n->weights_ctx, GGML_TYPE_F32, n0, n1, n2);
    assert_int_equal(ggml_backend_tensor_alloc(n->buffers[b], w, ggml_backend_buffer_get_base(n->buffers[b])), 0);
    return w;
}

static inline void split(struct net *n, struct ggml_tensor *out) {
    ggml_set_output(out);
    ggml_build_forward_expand(n->graph, out);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_SUCCESS);
}

static inline void assert_on(struct net *n, struct ggml_tensor *t, int b, enum berth_sched_reason reason) {
    ggml_backend_t backend = ggml_backend_sched_get_tensor_backend(n->sched, t);
    if (backend != n->backends[b] || berth_sched_reason(n->sched, t) != reason) {
        fail_msg(
            "%s is on %s: %s", t->name, ggml_backend_name(backend), berth_sched_reason_name(berth_sched_reason(n->sched, t)));
    }
}

static inline void fill(struct ggml_tensor *t, float value) {
    static float values[N * 64];
    for (int i = 0; i < ggml_nelements(t); i++) {
        values[i] = value;
    }
    ggml_backend_tensor_set(t, values, 0, ggml_nbytes(t));
}

static inline float first_of(const struct ggml_tensor *t) {
    float value;
    ggml_backend_tensor_get(t, &value, 0, sizeof value);
    return value;
}

#define NET_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

// SPDX-License-Identifier: MIT
// program.h: a small network for the test programs of the 2023 API.
#pragma once

#include "check.h"

// Scales by a number. ggml_scale itself has different parameters before and after 2024, which ops.c tests.
static inline struct ggml_tensor *scale_by(struct ggml_context *ctx, struct ggml_tensor *a, float s) {
    return berth_2023_ggml_scale_by(ctx, a, s);
}

enum { N = 64, N_LAYERS = 12 };

// Opens the CPU backend and drops its log lines.
static inline ggml_backend_t backend_open(int n_threads) {
    ggml_log_set(log_drop, NULL);
    ggml_backend_t backend = ggml_backend_cpu_init();
    CHECK(backend != NULL);
    ggml_backend_cpu_set_n_threads(backend, n_threads);
    return backend;
}

static inline void set_all(struct ggml_tensor *t, float value) {
    float values[N];
    for (int i = 0; i < N; i++) {
        values[i] = value;
    }
    ggml_backend_tensor_set(t, values, 0, ggml_nbytes(t));
}

// y = x; N_LAYERS times: y = relu(y + b) * 0.5 + y
struct model {
    struct ggml_context *ctx; // context of one evaluation
    struct ggml_tensor *x, *b, *y;
    struct ggml_cgraph *graph;
};

// Builds the model with the given b, or with a new one if b is NULL.
static inline struct model model_build_with(struct ggml_tensor *b) {
    const struct ggml_init_params params = {512 * 1024, NULL, true};
    struct model m;
    m.ctx = ggml_init(params);
    m.x = ggml_set_name(ggml_new_tensor_1d(m.ctx, GGML_TYPE_F32, N), "x");
    m.b = b != NULL ? b : ggml_set_name(ggml_new_tensor_1d(m.ctx, GGML_TYPE_F32, N), "b");
    m.y = m.x;
    for (int i = 0; i < N_LAYERS; i++) {
        struct ggml_tensor *h = ggml_relu(m.ctx, ggml_add(m.ctx, m.y, m.b));
        struct ggml_tensor *v = ggml_reshape_2d(m.ctx, ggml_cont(m.ctx, h), 8, N / 8);
        m.y = ggml_add(m.ctx, scale_by(m.ctx, ggml_reshape_1d(m.ctx, v, N), 0.5f), m.y);
    }
    m.graph = ggml_new_graph(m.ctx);
    ggml_build_forward_expand(m.graph, m.y);
    return m;
}

static inline struct model model_build(void) {
    return model_build_with(NULL);
}

static inline float model_expected(int i) {
    float y = (float) (i % 5) - 2.0f;
    for (int k = 0; k < N_LAYERS; k++) {
        const float h = y + 0.25f;
        y = (h > 0 ? h : 0) * 0.5f + y;
    }
    return y;
}

static inline void model_set(const struct model *m) {
    float x[N], b[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float) (i % 5) - 2.0f;
        b[i] = 0.25f;
    }
    ggml_backend_tensor_set(m->x, x, 0, sizeof x);
    ggml_backend_tensor_set(m->b, b, 0, sizeof b);
}

static inline void model_check(const struct model *m) {
    float y[N];
    ggml_backend_tensor_get(m->y, y, 0, sizeof y);
    for (int i = 0; i < N; i++) {
        CHECK(y[i] == model_expected(i));
    }
}

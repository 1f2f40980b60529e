// SPDX-License-Identifier: MIT
// speed.c: how fast a model will write, foretold from what its devices do. Writing a token reads every weight and the cache once,
// and memory is what that waits for; so each device is measured with one product of a matrix and a vector, in the type that most
// of the weights are of, large enough not to stay in a cache.

#include "model/model.h"

#include <string.h>

#define ROWS 4096
#define COLUMNS 4096
#define N_PRODUCTS 4
#define N_RUNS 3

// The type that most bytes of the weights are of.
static enum ggml_type main_type(const struct model *m) {
    size_t bytes[GGML_TYPE_COUNT] = {0};
    enum ggml_type best           = GGML_TYPE_F16;
    for (size_t i = 0; i < m->n_weights; i++) {
        bytes[m->weights[i].file->type] += ggml_nbytes(m->weights[i].file);
    }
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        best = bytes[t] > bytes[best] ? (enum ggml_type) t : best;
    }
    return best;
}

static double run_seconds(ggml_backend_t backend, struct ggml_cgraph *graph) {
    int64_t best = INT64_MAX;
    for (int i = 0; i <= N_RUNS; i++) { // the first wakes threads up
        const int64_t start = ggml_time_us();
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            return 0;
        }
        const int64_t us = ggml_time_us() - start;
        best             = i > 0 && us < best ? us : best;
    }
    return (double) (best > 0 ? best : 1) / 1e6;
}

// Bytes of weights a second, 0: not known.
static double device_speed(ggml_backend_t backend, enum ggml_type type) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = (4 * N_PRODUCTS + 4) * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    if (ctx == NULL) {
        return 0;
    }
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x     = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, COLUMNS);
    for (int i = 0; i < N_PRODUCTS; i++) {
        ggml_build_forward_expand(graph, ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, type, COLUMNS, ROWS), x));
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    double seconds               = 0;
    if (buffer != NULL) {
        ggml_backend_buffer_clear(buffer, 0);
        seconds = run_seconds(backend, graph);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return seconds > 0 ? N_PRODUCTS * (double) ggml_row_size(type, COLUMNS) * ROWS / seconds : 0;
}

// Of the bytes of a weight, those that a token reads.
static double read_bytes(const struct model *m, const struct model_weight *w) {
    const double bytes = (double) ggml_nbytes(w->file);
    if (w->file == m->token_embd) {
        return 0; // one row; as the output of a tied model it is counted apart
    }
    const bool is_experts = strstr(w->file->name, "_exps") != NULL && m->params.n_expert > 0;
    return is_experts ? bytes * (double) m->params.n_expert_used / (double) m->params.n_expert : bytes;
}

bool model_speed_measure(const struct model *m, struct model_devices *devices, struct model_speed *speed) {
    speed->n     = devices->n;
    speed->bytes = model_alloc_calloc((size_t) devices->n, sizeof *speed->bytes);
    for (int d = 0; speed->bytes != NULL && d < devices->n; d++) {
        speed->bytes[d] = device_speed(devices->backend[d], main_type(m));
    }
    return speed->bytes != NULL;
}

double model_speed_write(const struct model_speed *speed, const struct session *s) {
    const struct model *m = s->model;
    double seconds        = 0;
    if (m->llama != NULL) {
        return 0; // which weights a token reads is not known here
    }
    for (int d = 0; d < speed->n && d < s->devices->n; d++) {
        double bytes = (double) s->memory[d].cache / 2; // half full, on the way
        for (size_t i = 0; i < m->n_weights; i++) {
            const int64_t layer = m->weights[i].layer;
            bytes += layer >= 0 && m->layer_device[layer] == d ? read_bytes(m, &m->weights[i]) : 0;
        }
        if (m->is_tied && m->layer_device[m->params.n_layer] == d) {
            bytes += (double) ggml_nbytes(m->token_embd);
        }
        if (bytes > 0 && speed->bytes[d] <= 0) {
            return 0;
        }
        seconds += bytes > 0 ? bytes / speed->bytes[d] : 0;
    }
    return seconds > 0 ? 1 / seconds : 0;
}

void model_speed_fini(struct model_speed *speed) {
    model_alloc_free(speed->bytes);
    speed->bytes = NULL;
}

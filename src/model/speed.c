// SPDX-License-Identifier: MIT
// speed.c: predicts the decode speed of a model from measurements of its devices. Decode reads every weight once per step, which
// takes most of the time. Each type of weights is measured with products in the shapes of the model, with one column per sequence.
// On a CPU, the measured weights are twice as large as its last caches, at least 64 MiB and at most 512 MiB, unless the model is
// smaller. Every other op is assumed to take as long as a sum or a norm of a vector.
// The prediction is inaccurate for a model of a few MiB, where a third of the time is spent outside the products. model_speed_trial
// measures such a model by generating tokens.
// A GPU has large caches and starts a graph slowly, so its test is one graph with many times the bytes of a CPU's test.

#include "base/min.h"
#include "base/size.h"
#include "model/model.h"
#include "model/speed_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PRODUCTS 256 // largest number of products per test
#define N_ATTENTION 16 // attention ops in the test of a GPU
#define N_SMALL 64     // small ops per test
#define TRY_US 200000  // microseconds of a trial
#define TRY_TOKENS 8   // tokens that are timed together in a trial
#define TRY_MAX 256    // largest number of repetitions of a trial

// ---- weights read per token ----

// Returns how many of n experts a step of n_seq tokens reads, if each token selects n_used of them at random.
static int64_t experts_per_step(int64_t n, int64_t n_used, int64_t n_seq) {
    return (int64_t) round((double) n * (1 - pow(1 - (double) n_used / (double) n, (double) n_seq)));
}

// Counts the rows of all selected experts.
static int64_t rows_per_step(const struct model *m, const struct model_weight *w, int64_t n_seq) {
    const bool is_multiplied = w->layer >= 0 || (m->is_tied && w->slot == &m->token_embd);
    if (w->is_vector || !is_multiplied || w->slot == &m->position_embd || w->file->ne[1] < 2) {
        return 0;
    }
    const bool is_experts = w->file->ne[2] > 1 && m->params.n_expert > 0;
    const int64_t n_rows = w->file->ne[1] * w->file->ne[2];
    return is_experts ? n_rows / m->params.n_expert * experts_per_step(m->params.n_expert, m->params.n_expert_used, n_seq)
                      : n_rows;
}

// ---- tests ----

// In bytes.
struct sizes {
    size_t all;      // all weights, or all keys and values
    size_t matrix;   // largest matrix
    size_t piece;    // weights timed together; few, to avoid interference
    int n_attention; // attention ops per test
};

// Reads a line about the last cache of CPU 0. False: it is unknown.
static bool cache_line(const char *name, char *text, int size) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index3/%s", name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    const bool is_read = fgets(text, size, file) != NULL;
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return is_read;
}

// Counts the CPUs of a list such as "0-15,32-47".
static int64_t cpus_count(const char *list) {
    int64_t n = 0;
    while (*list >= '0' && *list <= '9') {
        char *end;
        const long first = strtol(list, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        n += last - first + 1;
        list = *end == ',' ? end + 1 : end;
    }
    return n;
}

// Returns the bytes of all last caches of the machine together; 0: unknown.
static size_t last_caches_size(void) {
    char size_text[32], cpus[256];
    uint64_t size = 0;
    if (!cache_line("size", size_text, sizeof size_text) || !berth_parse_size(size_text, &size) ||
        !cache_line("shared_cpu_list", cpus, sizeof cpus)) {
        return 0;
    }
    const int64_t n_caches = max_i64(model_n_cores() / max_i64(cpus_count(cpus), 1), 1);
    return (size_t) min_u64(size, (uint64_t) 1 << 32) * (size_t) min_i64(n_caches, 1024);
}

static struct sizes test_sizes(ggml_backend_t backend) {
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    size_t n_free = 0, n_all = 0;
    if (dev != NULL) {
        ggml_backend_dev_memory(dev, &n_free, &n_all);
    }
    const size_t most = (size_t) 512 << 20, all = min_size(n_free / 4, most);
    if (dev == NULL || ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_GPU) {
        const size_t least = (size_t) 64 << 20, least_piece = (size_t) 2 << 20;
        const size_t uncached = max_size(min_size(2 * last_caches_size(), all), least);
        return (struct sizes){.all = uncached,
            .matrix = (size_t) 4 << 20,
            .piece = max_size(uncached / (SPEED_TEST_PIECES / 2), least_piece),
            .n_attention = 1};
    }
    return (struct sizes){.all = all, .matrix = all / 8 + 1, .piece = most, .n_attention = N_ATTENTION};
}

// Returns bytes per second; 0: unknown.
static double type_speed(const struct model *m, ggml_backend_t backend, int64_t n_seq, enum ggml_type type) {
    const struct sizes sizes = test_sizes(backend);
    struct speed_test test;
    if (!speed_test_init(&test, N_PRODUCTS)) {
        return 0;
    }
    struct ggml_cgraph *graph = speed_test_piece(&test, N_PRODUCTS);
    size_t size = 0, piece = 0;
    int n_products = 0;
    for (size_t i = 0; i < m->n_weights && size < sizes.all && n_products < N_PRODUCTS; i++) {
        const struct model_weight *w = &m->weights[i];
        const size_t row = ggml_row_size(type, w->file->ne[0]);
        const int64_t all = w->file->type == type ? rows_per_step(m, w, n_seq) : 0;
        const int64_t most = row > 0 && row < sizes.matrix ? (int64_t) (sizes.matrix / row) : 1;
        const int64_t n = min_i64(all, most);
        if (n == 0) {
            continue;
        }
        if (piece >= sizes.piece && test.n_pieces < SPEED_TEST_PIECES) {
            graph = speed_test_piece(&test, N_PRODUCTS);
            piece = 0;
        }
        struct ggml_tensor *a = ggml_new_tensor_2d(test.ctx, type, w->file->ne[0], n);
        struct ggml_tensor *x = ggml_new_tensor_2d(test.ctx, GGML_TYPE_F32, w->file->ne[0], n_seq);
        ggml_build_forward_expand(graph, ggml_mul_mat(test.ctx, a, x));
        size += row * (size_t) n;
        piece += row * (size_t) n;
        n_products++;
    }
    const double seconds = size > 0 ? speed_test_run(&test, backend, 0) : 0;
    ggml_free(test.ctx);
    return seconds > 0 ? (double) size / seconds : 0;
}

bool model_speed_measure(const struct model *m, const struct model_devices *devices, int64_t n_seq, struct model_speed *speed) {
    speed->n = devices->n;
    speed->n_seq = n_seq;
    speed->devices = berth_calloc((size_t) devices->n, sizeof *speed->devices);
    for (int d = 0; speed->devices != NULL && d < devices->n; d++) {
        for (int t = 0; t < GGML_TYPE_COUNT; t++) {
            speed->devices[d].bytes[t] = type_speed(m, devices->backend[d], n_seq, (enum ggml_type) t);
        }
        speed->devices[d].node = speed_test_chain(devices->backend[d], N_SMALL, m->params.n_embd * n_seq) / N_SMALL;
    }
    return speed->devices != NULL;
}

void model_speed_fini(struct model_speed *speed) {
    berth_free(speed->devices);
    speed->devices = NULL;
}

// ---- prediction ----

// Counts ops that compute something and are not products.
static double small_ops_per_layer(const struct session *s) {
    int64_t n = 0;
    for (int i = 0; s->graph != NULL && i < ggml_graph_n_nodes(s->graph); i++) {
        switch (ggml_graph_node(s->graph, i)->op) {
            case GGML_OP_NONE:
            case GGML_OP_RESHAPE:
            case GGML_OP_VIEW:
            case GGML_OP_PERMUTE:
            case GGML_OP_TRANSPOSE:
            case GGML_OP_MUL_MAT:
            case GGML_OP_MUL_MAT_ID: break;
            default: n++;
        }
    }
    return (double) n / (double) (s->model->params.n_layer + 1);
}

// Returns seconds per layer and token with half of the context filled; 0: unknown. *n: attention ops in the graph.
static double attention_seconds(const struct session *s, ggml_backend_t backend, int *n) {
    const struct ggml_tensor *node = NULL;
    struct speed_test test;
    *n = 0;
    for (int i = 0; s->graph != NULL && i < ggml_graph_n_nodes(s->graph); i++) {
        if (ggml_graph_node(s->graph, i)->op == GGML_OP_FLASH_ATTN_EXT) {
            node = ggml_graph_node(s->graph, i);
            *n += 1;
        }
    }
    // Twice the number of nodes: speed_test_init reserves three sources per node, and an attention op has four.
    if (node == NULL || !speed_test_init(&test, 2 * N_ATTENTION)) {
        return 0;
    }
    const int64_t step = (s->params.n_ctx / 2 + KV_STEP - 1) / KV_STEP * KV_STEP, n_kv = min_i64(step, s->params.n_ctx);
    const struct ggml_tensor *const *src = (const struct ggml_tensor *const *) node->src;
    const struct sizes sizes = test_sizes(backend);
    struct ggml_cgraph *graph = speed_test_piece(&test, N_ATTENTION);
    size_t size = 0;
    int n_tests = 0;
    do {
        struct ggml_tensor *q = ggml_new_tensor_3d(test.ctx, GGML_TYPE_F32, src[0]->ne[0], 1, src[0]->ne[2]);
        struct ggml_tensor *k = ggml_new_tensor_3d(test.ctx, src[1]->type, src[1]->ne[0], n_kv, src[1]->ne[2]);
        struct ggml_tensor *v = ggml_new_tensor_3d(test.ctx, src[2]->type, src[2]->ne[0], n_kv, src[2]->ne[2]);
        struct ggml_tensor *mask = ggml_new_tensor_2d(test.ctx, GGML_TYPE_F16, n_kv, 1);
        ggml_build_forward_expand(graph, ggml_flash_attn_ext(test.ctx, q, k, v, mask, 0.1f, 0, 0));
        size += ggml_nbytes(k) + ggml_nbytes(v);
        n_tests++;
    } while (size < sizes.all && n_tests < sizes.n_attention);
    const double seconds = speed_test_run(&test, backend, 0);
    ggml_free(test.ctx);
    return seconds / n_tests;
}

double model_speed_predict(const struct model_speed *speed, const struct session *s) {
    const struct model *m = s->model;
    double seconds = 0;
    for (int d = 0; d < speed->n && d < s->devices->n; d++) {
        const struct device_speed *measured = &speed->devices[d];
        double bytes = 0, reading = 0;
        int n_attention = 0;
        const double attention =
            measured->node > 0 ? (double) speed->n_seq * attention_seconds(s, s->devices->backend[d], &n_attention) : 0;
        for (size_t i = 0; i < m->n_weights; i++) {
            const struct model_weight *w = &m->weights[i];
            const double size =
                (double) ggml_row_size(w->file->type, w->file->ne[0]) * (double) rows_per_step(m, w, speed->n_seq);
            if (size == 0 || (w->layer >= 0 ? model_weight_device(m, w) : m->layer_device[m->params.n_layer]) != d) {
                continue;
            }
            if (measured->bytes[w->file->type] <= 0) {
                return 0;
            }
            bytes += size;
            reading += size / measured->bytes[w->file->type];
        }
        for (int64_t i = 0; i <= m->params.n_layer; i++) {
            if (m->layer_device[i] == d) {
                seconds += small_ops_per_layer(s) * measured->node +
                           (i < m->params.n_layer ? attention * n_attention / (double) m->params.n_layer : 0);
            }
        }
        // If attention was not measured, the filled half of the cache counts like weights.
        const double cache = attention > 0 ? 0 : (double) speed->n_seq * (double) s->memory[d].cache / 2;
        seconds += bytes > 0 ? reading * (1 + cache / bytes) : 0;
    }
    return seconds > 0 ? (double) speed->n_seq / seconds : 0;
}

// ---- trial ----

double model_speed_trial(struct session *s, struct model_error *error) {
    int64_t half = s->params.n_ctx / 2;
    const int64_t n = min_i64(s->params.n_ctx - half, TRY_TOKENS);
    if (half / KV_STEP != (half + n - 1) / KV_STEP) {
        half = half / KV_STEP * KV_STEP; // all tokens use the same graph
    }
    const int64_t begin = ggml_time_us();
    double best = 0;
    bool ok = true;
    for (int i = 0; ok && i < TRY_MAX && (i < 4 || ggml_time_us() - begin < TRY_US); i++) {
        s->n_past = half; // the contents of the cache do not change the time
        const int64_t start = ggml_time_us();
        for (int64_t k = 0; ok && k < n; k++) {
            ok = session_decode(s, &(int32_t){0}, 1, error);
        }
        const double seconds = (double) (ggml_time_us() - start) / 1e6;
        if (i > 0 && (best == 0 || seconds < best)) { // the first repetition plans the graph
            best = seconds;
        }
    }
    session_reset(s);
    return ok && best > 0 ? (double) n / best : 0;
}

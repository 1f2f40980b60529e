// SPDX-License-Identifier: MIT
// speed_prompt.c: predicts the speed of a prompt. Each node of the batch's graph is measured on the device that the
// scheduler selects for it. Nodes of equal shapes are measured once. A copy to another device takes the time that the link needs for
// its bytes. Copies of weights run while earlier nodes compute, as sched/early.c describes.

#include "base/min.h"
#include "model/model.h"
#include "model/speed_test.h"

#include "berth-sched.h"

#include <math.h>
#include <string.h>

#define N_EQUAL 8                     // equal nodes per test, so that the start of a graph counts little
#define CPU_TOKENS 512                // largest prompt without a GPU, where larger batches are not much faster
#define CPU_FLOPS 4e9                 // largest product that a CPU computes in a test
#define GPU_FLOPS 1e12                // the same for a GPU
#define LONG_FLOPS 1e8                // a test of a CPU computes a larger product once
#define LONG_SIZE ((size_t) 1 << 20)  // the same for other ops, by the bytes of their results
#define MIN_ROWS 256                  // smallest number of rows of weights in a test
#define LINK_SIZE ((size_t) 64 << 20) // bytes of a copy that measures a link
#define N_LINK 4                      // copies per round
#define N_LINK_ROUNDS 3

struct node_speed {
    const struct ggml_tensor *node;
    ggml_backend_t backend;
    double seconds;
};

struct prompt {
    struct session *s;
    struct node_speed *nodes; // [n] one of each shape and backend
    int n;
    struct node_speed *copied; // [n_copied] tensors and the backends to which they are copied
    int n_copied;
    double *links; // [devices->n][2] bytes per second from host memory to the device, and back; 0: not measured
};

// ---- nodes ----

static bool is_gpu(ggml_backend_t backend) {
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    return dev != NULL && ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU;
}

static bool is_computed(const struct ggml_tensor *node) {
    switch (node->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return false;
        default: return ggml_nelements(node) > 0;
    }
}

static bool has_shape_of(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a == b || (a != NULL && b != NULL && a->type == b->type && ggml_are_same_shape(a, b));
}

static bool is_equal_node(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    bool is_equal = a->op == b->op && has_shape_of(a, b) && memcmp(a->op_params, b->op_params, sizeof a->op_params) == 0;
    for (int j = 0; is_equal && j < GGML_MAX_SRC; j++) {
        is_equal = has_shape_of(a->src[j], b->src[j]);
    }
    return is_equal;
}

static bool is_product(const struct ggml_tensor *node) {
    return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID;
}

// Returns the floating-point operations of a product or of attention, and 0 for other ops.
static double node_flops(const struct ggml_tensor *node) {
    if (node->op == GGML_OP_FLASH_ATTN_EXT) {
        return 4.0 * (double) ggml_nelements(node->src[0]) * (double) node->src[1]->ne[1];
    }
    return is_product(node) ? 2.0 * (double) node->src[0]->ne[0] * (double) ggml_nelements(node) : 0;
}

// Returns how many rows of the weights a test of the product has.
static int64_t test_rows(const struct ggml_tensor *node, ggml_backend_t backend) {
    const double flops = node_flops(node), most = is_gpu(backend) ? GPU_FLOPS : CPU_FLOPS;
    const int64_t n = node->src[0]->ne[1];
    return flops <= most ? n : min_i64(n, max_i64((int64_t) ((double) n * most / flops) / MIN_ROWS * MIN_ROWS, MIN_ROWS));
}

static struct ggml_tensor *tensor_like(struct ggml_context *ctx, const struct ggml_tensor *t) {
    return ggml_new_tensor(ctx, t->type, GGML_MAX_DIMS, t->ne);
}

// Selects experts in turn.
static bool ids_fill(struct ggml_tensor *ids, int64_t n_experts) {
    const int64_t n = ggml_nelements(ids);
    int32_t *data = berth_calloc((size_t) n, sizeof *data);
    for (int64_t i = 0; data != NULL && i < n; i++) {
        data[i] = (int32_t) (i % n_experts);
    }
    if (data != NULL) {
        ggml_backend_tensor_set(ids, data, 0, (size_t) n * sizeof *data);
    }
    berth_free(data);
    return data != NULL;
}

// Hides the keys behind each query.
static bool mask_fill(struct ggml_tensor *mask) {
    const int64_t n_keys = mask->ne[0], n = ggml_nelements(mask);
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
    ggml_fp16_t *data = berth_calloc((size_t) n, sizeof *data);
    for (int64_t i = 0; data != NULL && i < n; i++) {
        data[i] = i % n_keys > i / n_keys ? hidden : 0;
    }
    if (data != NULL) {
        ggml_backend_tensor_set(mask, data, 0, (size_t) n * sizeof *data);
    }
    berth_free(data);
    return data != NULL;
}

// user: the sources of the node.
static bool sources_fill(const struct speed_test *test, void *user) {
    struct ggml_tensor **src = user;
    switch (ggml_graph_node(test->pieces[0], 0)->op) {
        case GGML_OP_MUL_MAT_ID: return ids_fill(src[2], src[0]->ne[2]);
        case GGML_OP_FLASH_ATTN_EXT: return src[3] == NULL || src[3]->type != GGML_TYPE_F16 || mask_fill(src[3]);
        default: return true;
    }
}

// Returns the seconds of the node; 0: unknown.
static double node_measure(const struct ggml_tensor *node, ggml_backend_t backend) {
    struct speed_test test;
    if (!speed_test_init(&test, GGML_MAX_SRC + N_EQUAL)) {
        return 0;
    }
    struct ggml_tensor *src[GGML_MAX_SRC] = {NULL}, shape = *node;
    for (int j = 0; j < GGML_MAX_SRC && node->src[j] != NULL; j++) {
        struct ggml_tensor from = *node->src[j];
        if (j == 0 && is_product(node)) {
            shape.ne[0] = from.ne[1] = test_rows(node, backend);
        }
        src[j] = tensor_like(test.ctx, &from);
    }
    const bool is_long = node_flops(node) > LONG_FLOPS || ggml_nbytes(node) > LONG_SIZE;
    const int n = is_gpu(backend) || !is_long ? N_EQUAL : 1;
    struct ggml_cgraph *graph = speed_test_piece(&test, GGML_MAX_SRC + N_EQUAL);
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *copy = tensor_like(test.ctx, &shape);
        copy->op = node->op;
        memcpy(copy->op_params, node->op_params, sizeof copy->op_params);
        memcpy(copy->src, src, sizeof copy->src);
        ggml_build_forward_expand(graph, copy);
    }
    test.fill = sources_fill;
    test.fill_user = src;
    const double seconds = speed_test_run(&test, backend, 0);
    ggml_free(test.ctx);
    return seconds / n * (double) node->ne[0] / (double) shape.ne[0];
}

static double node_seconds(struct prompt *p, const struct ggml_tensor *node, ggml_backend_t backend) {
    for (int i = 0; i < p->n; i++) {
        if (p->nodes[i].backend == backend && is_equal_node(p->nodes[i].node, node)) {
            return p->nodes[i].seconds;
        }
    }
    p->nodes[p->n] = (struct node_speed){node, backend, node_measure(node, backend)};
    return p->nodes[p->n++].seconds;
}

// ---- copies ----

// Returns the bytes per second between pageable host memory and the device; 0: unknown. Several copies follow one another, as in
// a prompt.
static double link_measure(ggml_backend_t backend, bool is_out) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *t = ctx != NULL ? ggml_new_tensor_1d(ctx, GGML_TYPE_I8, (int64_t) LINK_SIZE) : NULL;
    ggml_backend_buffer_t buffer = t != NULL ? ggml_backend_alloc_ctx_tensors(ctx, backend) : NULL;
    void *host = buffer != NULL ? berth_calloc(1, LINK_SIZE) : NULL;
    int64_t best = 0;
    for (int round = 0; host != NULL && round < N_LINK_ROUNDS; round++) {
        memset(host, round + 1, LINK_SIZE); // so that all pages exist
        const int64_t start = ggml_time_us();
        for (int i = 0; i < N_LINK; i++) {
            if (is_out) {
                ggml_backend_tensor_get_async(backend, t, host, 0, LINK_SIZE);
            } else {
                ggml_backend_tensor_set_async(backend, t, host, 0, LINK_SIZE);
            }
        }
        ggml_backend_synchronize(backend);
        const int64_t us = max_i64(ggml_time_us() - start, 1);
        best = best == 0 ? us : min_i64(best, us);
    }
    berth_free(host);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return best > 0 ? 1e6 * N_LINK * (double) LINK_SIZE / (double) best : 0;
}

// Returns the seconds of a copy from one device to another. At most one of the two is the CPU.
static double copy_seconds(struct prompt *p, size_t size, ggml_backend_t from, ggml_backend_t to) {
    const bool is_out = !is_gpu(to);
    ggml_backend_t gpu = is_out ? from : to;
    int d = 0;
    while (d + 1 < p->s->devices->n && p->s->devices->backend[d] != gpu) {
        d++;
    }
    double *speed = &p->links[2 * d + is_out];
    if (*speed == 0) {
        *speed = link_measure(gpu, is_out);
    }
    return *speed > 0 ? (double) size / *speed : 0;
}

// Returns the backend that holds the tensor before the node `reader` reads it.
static ggml_backend_t tensor_home(const struct prompt *p, const struct ggml_tensor *t, ggml_backend_t reader) {
    if (t->buffer == NULL) { // a result or an input
        return ggml_backend_sched_get_tensor_backend(p->s->sched, (struct ggml_tensor *) (uintptr_t) t);
    }
    return ggml_backend_buffer_is_host(t->buffer) ? p->s->devices->backend[p->s->devices->n - 1] : reader;
}

static bool is_weight(const struct ggml_tensor *t) {
    return t->buffer != NULL && ggml_backend_buffer_get_usage(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

// Adds the seconds of the copies that the node waits for: *weights, which may begin early, and *values, which may not. A tensor is
// copied to a device once.
static void copies_add(struct prompt *p, struct ggml_tensor *node, ggml_backend_t backend, double *weights, double *values) {
    for (int j = 0; j < GGML_MAX_SRC && node->src[j] != NULL; j++) {
        const struct ggml_tensor *t = node->src[j]->view_src != NULL ? node->src[j]->view_src : node->src[j];
        ggml_backend_t home = tensor_home(p, t, backend);
        bool is_copied = home == NULL || home == backend;
        for (int k = 0; k < p->n_copied && !is_copied; k++) {
            is_copied = p->copied[k].node == t && p->copied[k].backend == backend;
        }
        if (!is_copied) {
            p->copied[p->n_copied++] = (struct node_speed){.node = t, .backend = backend};
            *(is_weight(t) ? weights : values) += copy_seconds(p, ggml_nbytes(node->src[j]), home, backend);
        }
    }
}

// ---- prediction ----

// Returns the seconds of the graph; 0: unknown.
static double graph_seconds(struct prompt *p) {
    double computed = 0, copied = 0; // when the last node and the last copy of weights end
    double begin = 0;                // when the last node that waited for weights began; the next copy may begin then
    for (int i = 0; i < ggml_graph_n_nodes(p->s->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(p->s->graph, i);
        ggml_backend_t backend = is_computed(node) ? ggml_backend_sched_get_tensor_backend(p->s->sched, node) : NULL;
        if (backend == NULL) {
            continue;
        }
        const double seconds = node_seconds(p, node, backend);
        double weights = 0, values = 0;
        copies_add(p, node, backend, &weights, &values);
        if (seconds <= 0) {
            return 0;
        }
        if (weights > 0) {
            copied = max_f64(copied, begin) + weights;
            computed = begin = max_f64(computed, copied);
        }
        computed += values + seconds;
    }
    return computed;
}

double model_speed_prompt(struct session *s, int64_t *n_tokens, struct model_error *error) {
    const int64_t n = s->devices->n > 1 ? s->params.n_batch : min_i64(s->params.n_batch, CPU_TOKENS);
    const int64_t n_kv = min_i64((n + KV_STEP - 1) / KV_STEP * KV_STEP, s->params.n_ctx);
    *n_tokens = s->params.compute_limit == 0 ? n : s->params.n_batch;
    // With a limit of compute memory, session_reserve has chosen what the largest graph recomputes, and this graph stays.
    if (s->params.compute_limit == 0 && !session_graph(s, n, n_kv, error)) {
        return 0;
    }
    if (berth_sched_split(s->sched, s->graph) != GGML_STATUS_SUCCESS) {
        model_fail(error, "%s", berth_last_error());
        return 0;
    }
    const size_t n_nodes = (size_t) ggml_graph_n_nodes(s->graph);
    struct prompt p = {.s = s,
        .nodes = berth_calloc(n_nodes, sizeof *p.nodes),
        .copied = berth_calloc(n_nodes * GGML_MAX_SRC, sizeof *p.copied),
        .links = berth_calloc(2 * (size_t) s->devices->n, sizeof *p.links)};
    const double seconds = p.nodes != NULL && p.copied != NULL && p.links != NULL ? graph_seconds(&p) : 0;
    berth_free(p.nodes);
    berth_free(p.copied);
    berth_free(p.links);
    return seconds > 0 ? (double) *n_tokens / seconds : 0;
}

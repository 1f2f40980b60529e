// SPDX-License-Identifier: MIT
// speed_prompt.c: predicts the speed of a prompt. Each node of the batch's graph is measured on the device that the scheduler
// selects for it. Nodes of equal shapes are measured once. A copy to another device takes the time that the link needs for its
// bytes. Copies of weights run while earlier nodes compute, as sched/early.c describes.

#include "base/min.h"
#include "model/model.h"
#include "model/speed_test.h"

#include "berth-sched.h"

#include <math.h>
#include <string.h>

#define CPU_TOKENS 512                // largest prompt without a GPU, where larger batches are not much faster
#define FIRST_FLOPS 1e9               // flops of the first test of a product or of attention
#define TEST_S 0.02                   // seconds of the second test
#define N_EQUAL 8                     // equal nodes per test of a short node, so that the start of a graph counts little
#define EQUAL_SIZE ((size_t) 8 << 20) // bytes of the largest result of such a node
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
    double *links; // [devices->n][2] bytes per second from host memory to the device, and back; 0: not measured, -1: failed
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

static struct ggml_tensor *tensor_like(struct ggml_context *ctx, const struct ggml_tensor *t) {
    return ggml_new_tensor(ctx, t->type, GGML_MAX_DIMS, t->ne);
}

// Copies the data to the tensor and frees it. False: data is NULL.
static bool data_give(struct ggml_tensor *t, void *data) {
    if (data == NULL) {
        return false;
    }
    ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    berth_free(data);
    return true;
}

// Sets the integers to 0, 1, ..., n - 1, 0, 1, ...
static bool numbers_fill(struct ggml_tensor *t, int64_t n) {
    const size_t n_all = (size_t) ggml_nelements(t), size = ggml_type_size(t->type);
    unsigned char *data = berth_calloc(n_all, size);
    for (size_t i = 0; data != NULL && i < n_all; i++) {
        const int64_t x = (int64_t) i % n;
        const int32_t x32 = (int32_t) x;
        memcpy(data + i * size, t->type == GGML_TYPE_I64 ? (const void *) &x : (const void *) &x32, size);
    }
    return data_give(t, data);
}

// Hides the keys after each query.
static bool mask_fill(struct ggml_tensor *mask) {
    const int64_t n_keys = mask->ne[0], n = ggml_nelements(mask);
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
    ggml_fp16_t *data = berth_calloc((size_t) n, sizeof *data);
    for (int64_t i = 0; data != NULL && i < n; i++) {
        data[i] = i % n_keys > i / n_keys ? hidden : 0;
    }
    return data_give(mask, data);
}

// user: the sources of the node.
static bool sources_fill(const struct speed_test *test, void *user) {
    struct ggml_tensor **src = user;
    switch (ggml_graph_node(test->pieces[0], 0)->op) {
        case GGML_OP_MUL_MAT_ID: return numbers_fill(src[2], src[0]->ne[2]);
        case GGML_OP_SET_ROWS: return numbers_fill(src[1], src[1]->ne[0]);
        case GGML_OP_FLASH_ATTN_EXT: return src[3] == NULL || src[3]->type != GGML_TYPE_F16 || mask_fill(src[3]);
        default: return true;
    }
}

// A node like another one, with fewer rows or heads.
struct test_node {
    struct ggml_tensor node, src[GGML_MAX_SRC];
    double share; // of the work of the other node
};

// Cuts a product to `most` flops by its rows, and attention by its heads. Cuts tables to the rows that the node reads or writes.
static void test_node_make(struct test_node *test, const struct ggml_tensor *node, double most) {
    const double flops = node_flops(node);
    test->node = *node;
    test->share = 1;
    for (int j = 0; j < GGML_MAX_SRC && node->src[j] != NULL; j++) {
        test->src[j] = *node->src[j];
    }
    if (is_product(node) && flops > most) {
        const int64_t n = node->src[0]->ne[1], cut = (int64_t) ((double) n * most / flops) / MIN_ROWS * MIN_ROWS;
        test->node.ne[0] = test->src[0].ne[1] = min_i64(n, max_i64(cut, MIN_ROWS));
        test->share = (double) test->node.ne[0] / (double) n;
    } else if (node->op == GGML_OP_FLASH_ATTN_EXT && flops > most) {
        const int64_t n_heads = node->src[0]->ne[2], n = node->src[1]->ne[2], per_key = n_heads / n;
        const int64_t cut = max_i64((int64_t) ((double) n * most / flops), 1);
        test->src[1].ne[2] = test->src[2].ne[2] = cut;
        test->node.ne[1] = test->src[0].ne[2] = cut * per_key;
        if (node->src[4] != NULL) { // sinks
            test->src[4].ne[0] = cut * per_key;
        }
        test->share = (double) cut / (double) n;
    } else if (node->op == GGML_OP_GET_ROWS) {
        test->src[0].ne[1] = min_i64(node->src[0]->ne[1], MIN_ROWS);
    } else if (node->op == GGML_OP_SET_ROWS) {
        test->node.ne[1] = test->src[2].ne[1] = min_i64(node->ne[1], node->src[1]->ne[0]);
    }
}

// Returns the seconds of a node, from a test of n equal nodes with at most `most` flops each. 0: unknown.
static double nodes_measure(const struct ggml_tensor *node, ggml_backend_t backend, int n, double most) {
    struct test_node like;
    struct speed_test test;
    if (!speed_test_init(&test, GGML_MAX_SRC + N_EQUAL)) {
        return 0;
    }
    test_node_make(&like, node, most);
    struct ggml_tensor *src[GGML_MAX_SRC] = {NULL};
    for (int j = 0; j < GGML_MAX_SRC && node->src[j] != NULL; j++) {
        src[j] = tensor_like(test.ctx, &like.src[j]);
    }
    struct ggml_cgraph *graph = speed_test_piece(&test, GGML_MAX_SRC + N_EQUAL);
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *copy = tensor_like(test.ctx, &like.node);
        copy->op = node->op;
        memcpy(copy->op_params, node->op_params, sizeof copy->op_params);
        memcpy(copy->src, src, sizeof copy->src);
        ggml_build_forward_expand(graph, copy);
    }
    test.fill = sources_fill;
    test.fill_user = src;
    const double seconds = speed_test_run(&test, backend, 0);
    ggml_free(test.ctx);
    return seconds / n / like.share;
}

// Returns the seconds of the node; 0: unknown. A small first test limits the time of the second one.
static double node_measure(const struct ggml_tensor *node, ggml_backend_t backend) {
    const double flops = node_flops(node), first = nodes_measure(node, backend, 1, FIRST_FLOPS);
    const double most = max_f64(first > 0 ? flops / first * TEST_S : 0, FIRST_FLOPS);
    const bool is_short = first < TEST_S / N_EQUAL && ggml_nbytes(node) <= EQUAL_SIZE;
    return first > 0 && (is_short || flops > FIRST_FLOPS) ? nodes_measure(node, backend, is_short ? N_EQUAL : 1, most) : first;
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
        if (best == 0 || us < best) {
            best = us;
        }
    }
    berth_free(host);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return best > 0 ? 1e6 * N_LINK * (double) LINK_SIZE / (double) best : 0;
}

// Returns the seconds of a copy from one device to another; negative: unknown. At most one of the two is the CPU.
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
    if (*speed <= 0) {
        *speed = -1;
    }
    return (double) size / *speed;
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
// copied to a device once. False: the speed of a link is unknown.
static bool copies_add(struct prompt *p, struct ggml_tensor *node, ggml_backend_t backend, double *weights, double *values) {
    for (int j = 0; j < GGML_MAX_SRC && node->src[j] != NULL; j++) {
        const struct ggml_tensor *t = node->src[j]->view_src != NULL ? node->src[j]->view_src : node->src[j];
        ggml_backend_t home = tensor_home(p, t, backend);
        bool is_copied = home == NULL || home == backend;
        for (int k = 0; k < p->n_copied && !is_copied; k++) {
            is_copied = p->copied[k].node == t && p->copied[k].backend == backend;
        }
        if (!is_copied) {
            p->copied[p->n_copied++] = (struct node_speed){.node = t, .backend = backend};
            const double seconds = copy_seconds(p, ggml_nbytes(node->src[j]), home, backend);
            if (seconds < 0) {
                return false;
            }
            *(is_weight(t) ? weights : values) += seconds;
        }
    }
    return true;
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
        if (seconds <= 0 || !copies_add(p, node, backend, &weights, &values)) {
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
    *n_tokens = n;
    if (s->params.compute_limit > 0 || !session_graph(s, n, n_kv, error)) {
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
    return seconds > 0 ? (double) n / seconds : 0;
}

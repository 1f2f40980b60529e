// SPDX-License-Identifier: MIT
// decode_main.c: measures how much time each part of a decode step takes on a GPU. The model is synthetic, with the layers of an
// 8B llama (width 4,096, 32 layers). The program measures a step of one token per sequence with all parts, with one or several
// parts left out, and with few parts alone (variants[]). Each sequence has its own keys.
//
//     cuda-decode FOLDER [TYPE [KEYS [DEVICE [SEQUENCES [PARTS]]]]]
//
// FOLDER holds the backends. PARTS: measure only variants whose names contain this word. "queued": computes are enqueued without waiting in between, which gives the time of the device alone.
// "synchronised": the program waits after each compute, like a program that must choose a token before the next step. Exit code:
// 0: all computes succeeded; 1: a compute failed or its result is not finite; 2: wrong usage; 77: no device.

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 4096, HEAD = 128, HEADS = 32, HEADS_KV = 8, HIDDEN = 14336, LAYERS = 32, VOCAB = 32000, N_TIMES = 20 };
enum { W_NORM, W_Q, W_K, W_V, W_O, W_GATE, W_UP, W_DOWN, N_WEIGHTS };
// The parts of a step, as bits. O: the product with the output weights of attention. HEAD_OUT: the product that gives the logits.
enum { QKV = 1, ROPE = 2, ATTN = 4, O = 8, GATE = 16, DOWN = 32, HEAD_OUT = 64, ALL = 127 };

static const struct {
    const char *name;
    int parts;
} variants[] = {
    {"whole", ALL},
    {"without q, k, v", ALL & ~QKV},
    {"without rope and cache", ALL & ~ROPE},
    {"without attention", ALL & ~ATTN},
    {"without rope, cache, attention", ALL & ~ATTN & ~ROPE},
    {"without o", ALL & ~O},
    {"without gate and up", ALL & ~GATE},
    {"without down", ALL & ~DOWN},
    {"without the output product", ALL & ~HEAD_OUT},
    {"q, k, v alone", QKV},
    {"gate and up alone", GATE},
    {"gate, up and down alone", GATE | DOWN},
};

struct rig {
    ggml_backend_t backends[2];
    struct ggml_context *ctx;
    ggml_backend_buffer_t memory;
    struct ggml_tensor *w[LAYERS][N_WEIGHTS], *cache_k[LAYERS], *cache_v[LAYERS], *out;
    // activations, position and cache row of each token, mask of attention, input of the product DOWN if GATE is left out
    struct ggml_tensor *x, *pos, *row, *mask, *hidden;
    enum ggml_type type;
    int n_keys, n_seq;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

// Builds one layer with the given parts. A part that is left out is replaced by a view or by an existing tensor of its shape.
static struct ggml_tensor *layer(
    const struct rig *r, struct ggml_context *c, struct ggml_cgraph *g, int i, int parts, struct ggml_tensor *x) {
    struct ggml_tensor *const *w = r->w[i];
    struct ggml_tensor *y = parts & (QKV | O) ? ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), w[W_NORM]) : x;
    struct ggml_tensor *stand_in = ggml_view_1d(c, y, HEAD * HEADS_KV * r->n_seq, 0);
    struct ggml_tensor *q = parts & QKV ? ggml_mul_mat(c, w[W_Q], y) : y,
                       *k = parts & QKV ? ggml_mul_mat(c, w[W_K], y) : stand_in;
    struct ggml_tensor *v = parts & QKV ? ggml_mul_mat(c, w[W_V], y) : stand_in;
    q = ggml_reshape_3d(c, q, HEAD, HEADS, r->n_seq);
    if (parts & ROPE) {
        q = ggml_rope(c, q, r->pos, HEAD, 0);
        k = ggml_rope(c, ggml_reshape_3d(c, k, HEAD, HEADS_KV, r->n_seq), r->pos, HEAD, 0);
        ggml_build_forward_expand(g, q);
        ggml_build_forward_expand(g, ggml_set_rows(c, r->cache_k[i], ggml_reshape_2d(c, k, HEAD * HEADS_KV, r->n_seq), r->row));
        ggml_build_forward_expand(g, ggml_set_rows(c, r->cache_v[i], ggml_reshape_2d(c, v, HEAD * HEADS_KV, r->n_seq), r->row));
    } else {
        ggml_build_forward_expand(g, q);
        ggml_build_forward_expand(g, k);
        ggml_build_forward_expand(g, v);
    }
    struct ggml_tensor *a = ggml_reshape_2d(c, q, WIDTH, r->n_seq);
    if (parts & ATTN) {
        const size_t row = r->cache_k[i]->nb[1], sequence = row * (size_t) r->n_keys;
        struct ggml_tensor *keys =
            ggml_view_4d(c, r->cache_k[i], HEAD, r->n_keys, HEADS_KV, r->n_seq, row, HEAD * 2, sequence, 0);
        struct ggml_tensor *values =
            ggml_view_4d(c, r->cache_v[i], HEAD, r->n_keys, HEADS_KV, r->n_seq, row, HEAD * 2, sequence, 0);
        q = ggml_permute(c, ggml_reshape_4d(c, q, HEAD, HEADS, 1, r->n_seq), 0, 2, 1, 3);
        a = ggml_flash_attn_ext(c, q, keys, values, r->mask, 0.088f, 0.0f, 0.0f);
        a = ggml_reshape_2d(c, a, WIDTH, r->n_seq);
    }
    x = parts & O ? ggml_add(c, ggml_mul_mat(c, w[W_O], a), x) : a;
    struct ggml_tensor *h = r->hidden;
    if (parts & GATE) {
        y = ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), w[W_NORM]);
        struct ggml_tensor *gate = ggml_mul_mat(c, w[W_GATE], y), *up = ggml_mul_mat(c, w[W_UP], y);
        h = ggml_swiglu_split(c, gate, up);
        ggml_build_forward_expand(g, h);
    }
    x = parts & DOWN ? ggml_add(c, ggml_mul_mat(c, w[W_DOWN], h), x) : x;
    ggml_build_forward_expand(g, x);
    return x;
}

static bool measure(const struct rig *r, const char *name, int parts) {
    struct ggml_init_params params = {.mem_size = 16u << 20, .no_alloc = true};
    struct ggml_context *c = ggml_init(params);
    struct ggml_cgraph *g = ggml_new_graph_custom(c, 4096, false);
    struct ggml_tensor *x = ggml_dup(c, r->x);
    for (int i = 0; i < LAYERS; i++) {
        x = layer(r, c, g, i, parts, x);
    }
    if (parts & HEAD_OUT) {
        x = ggml_mul_mat(c, r->out, ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), r->w[0][W_NORM]));
    }
    ggml_set_output(x);
    ggml_build_forward_expand(g, x);
    ggml_backend_sched_t sched = ggml_backend_sched_new((ggml_backend_t *) r->backends, NULL, 2, 4096, false, true);
    bool ok = sched != NULL && ggml_backend_sched_alloc_graph(sched, g);
    for (int i = 0; ok && i < 3; i++) {
        ok = ggml_backend_sched_graph_compute(sched, g) == GGML_STATUS_SUCCESS;
    }
    double queued = INFINITY, synchronised = INFINITY;
    for (int turn = 0; ok && turn < 4; turn++) {
        double t = now();
        for (int i = 0; i < N_TIMES; i++) {
            ok = ok && ggml_backend_sched_graph_compute_async(sched, g) == GGML_STATUS_SUCCESS;
        }
        ggml_backend_sched_synchronize(sched);
        queued = fmin(queued, (now() - t) / N_TIMES);
        t = now();
        for (int i = 0; i < N_TIMES; i++) {
            ok = ok && ggml_backend_sched_graph_compute(sched, g) == GGML_STATUS_SUCCESS;
        }
        synchronised = fmin(synchronised, (now() - t) / N_TIMES);
    }
    float value = NAN;
    if (ok) {
        ggml_backend_tensor_get(x, &value, 0, sizeof value);
    }
    ok = ok && isfinite(value);
    printf("%-32s queued %8.1f us, synchronised %8.1f us%s\n", name, 1e6 * queued, 1e6 * synchronised, ok ? "" : ", FAILED");
    fflush(stdout);
    ggml_backend_sched_free(sched);
    ggml_free(c);
    return ok;
}

// Fills a tensor with 64 different random rows, repeated: computing random numbers for all rows would take the host too long.
static void fill(struct ggml_tensor *t) {
    enum { N = 64 };
    const size_t row = ggml_row_size(t->type, t->ne[0]), n_rows = (size_t) ggml_nrows(t);
    float *f = malloc(sizeof *f * (size_t) t->ne[0] * N);
    char *q = malloc(row * n_rows);
    for (int64_t i = 0; f != NULL && i < t->ne[0] * N; i++) {
        f[i] = ((float) ((uint32_t) (i * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f) * 0.05f;
    }
    if (f == NULL || q == NULL) {
        exit(1);
    }
    if (t->type == GGML_TYPE_F32) {
        memcpy(q, f, row * (n_rows < N ? n_rows : N));
    } else {
        ggml_quantize_chunk(t->type, f, q, 0, N, t->ne[0], NULL);
    }
    for (size_t i = N; i < n_rows; i += N) {
        memcpy(q + row * i, q, row * (n_rows - i < N ? n_rows - i : N));
    }
    ggml_backend_tensor_set(t, q, 0, row * n_rows);
    free(f);
    free(q);
}

static bool rig_init(struct rig *r) {
    struct ggml_init_params params = {.mem_size = 1u << 20, .no_alloc = true};
    struct ggml_context *c = r->ctx = ggml_init(params);
    static const int shape[N_WEIGHTS][2] = {{WIDTH, 1}, {WIDTH, WIDTH}, {WIDTH, HEAD * HEADS_KV}, {WIDTH, HEAD * HEADS_KV},
        {WIDTH, WIDTH}, {WIDTH, HIDDEN}, {WIDTH, HIDDEN}, {HIDDEN, WIDTH}};
    for (int i = 0; i < LAYERS; i++) {
        for (int j = 0; j < N_WEIGHTS; j++) {
            r->w[i][j] = j == W_NORM ? ggml_new_tensor_1d(c, GGML_TYPE_F32, WIDTH)
                                     : ggml_new_tensor_2d(c, r->type, shape[j][0], shape[j][1]);
        }
        r->cache_k[i] = ggml_new_tensor_2d(c, GGML_TYPE_F16, HEAD * HEADS_KV, r->n_keys * r->n_seq);
        r->cache_v[i] = ggml_new_tensor_2d(c, GGML_TYPE_F16, HEAD * HEADS_KV, r->n_keys * r->n_seq);
    }
    r->out = ggml_new_tensor_2d(c, r->type, WIDTH, VOCAB);
    r->x = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDTH, r->n_seq);
    r->hidden = ggml_new_tensor_2d(c, GGML_TYPE_F32, HIDDEN, r->n_seq);
    r->pos = ggml_new_tensor_1d(c, GGML_TYPE_I32, r->n_seq);
    r->row = ggml_new_tensor_1d(c, GGML_TYPE_I64, r->n_seq);
    r->mask = ggml_new_tensor_4d(c, GGML_TYPE_F16, r->n_keys, 1, 1, r->n_seq);
    r->memory = ggml_backend_alloc_ctx_tensors(c, r->backends[0]);
    if (r->memory == NULL) {
        return false;
    }
    ggml_backend_buffer_clear(r->memory, 0);
    ggml_backend_buffer_set_usage(r->memory, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int i = 0; i < LAYERS; i++) {
        for (int j = 0; j < N_WEIGHTS; j++) {
            fill(r->w[i][j]);
        }
    }
    fill(r->out);
    fill(r->x);
    fill(r->hidden);
    for (int i = 0; i < r->n_seq; i++) {
        const int32_t pos = r->n_keys - 1;
        const int64_t row = (int64_t) r->n_keys * (i + 1) - 1;
        ggml_backend_tensor_set(r->pos, &pos, (size_t) i * sizeof pos, sizeof pos);
        ggml_backend_tensor_set(r->row, &row, (size_t) i * sizeof row, sizeof row);
    }
    return true;
}

int main(int n_args, char **args) {
    if (n_args < 2) {
        fputs("usage: cuda-decode FOLDER [TYPE [KEYS [DEVICE [SEQUENCES [PARTS]]]]]\n", stderr);
        return 2;
    }
    static struct rig r;
    r.type = GGML_TYPE_Q4_K;
    r.n_keys = n_args > 3 ? atoi(args[3]) : 2304;
    r.n_seq = n_args > 5 ? atoi(args[5]) : 1;
    for (int t = 0; n_args > 2 && t < GGML_TYPE_COUNT; t++) {
        const char *name = ggml_type_name((enum ggml_type) t);
        r.type = name != NULL && strcmp(name, args[2]) == 0 ? (enum ggml_type) t : r.type;
    }
    ggml_backend_load_all_from_path(args[1]);
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(n_args > 4 ? args[4] : "CUDA0");
    r.backends[0] = dev != NULL ? ggml_backend_dev_init(dev, NULL) : NULL;
    r.backends[1] = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (r.backends[0] == NULL || r.backends[1] == NULL) {
        puts("skipped: the device does not exist, or it cannot be opened");
        return 77;
    }
    if (r.n_keys < 1 || r.n_seq < 1 || !rig_init(&r)) {
        fputs("cuda-decode: cannot allocate the weights on the device\n", stderr);
        return 1;
    }
    printf("8B weights in %s, %d sequences, %d keys\n", ggml_type_name(r.type), r.n_seq, r.n_keys);
    bool ok = true;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        if (n_args < 7 || strstr(variants[i].name, args[6]) != NULL) {
            ok = measure(&r, variants[i].name, variants[i].parts) && ok;
        }
    }
    ggml_backend_buffer_free(r.memory);
    ggml_backend_free(r.backends[0]);
    ggml_backend_free(r.backends[1]);
    ggml_free(r.ctx);
    return ok ? 0 : 1;
}

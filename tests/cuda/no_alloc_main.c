// SPDX-License-Identifier: MIT
// no_alloc_main.c: checks that computing a graph allocates no GPU memory, if this graph or a larger one with the same ops was
// reserved before, and that repeated computes of many graphs give the results of the first compute:
//
//     cuda-promise FOLDER steps [DEVICE]   computes 1,000 steps over a dozen shapes; counts the backend's allocations, and prints
//                                          the free memory before and after
//     cuda-promise FOLDER fill [DEVICE]    repeats reserve and compute with less and less free memory, from "fits" to "does not
//                                          fit": the reserve may fail, but no compute after a successful reserve
//     cuda-promise FOLDER full [DEVICE]    fills all memory after the reserve, before the first compute
//     cuda-promise FOLDER replay [DEVICE]  computes many graphs of products, each four times: first launch by launch, then as a
//                                          captured graph. The backend has fewer places for captured graphs than there are graphs
//     cuda-promise FOLDER experts [DEVICE] computes products with experts that do not exist, which must be zeros
//
// FOLDER holds the backends. Exit code: 0: passed; 1: failed; 2: wrong usage; 77: no such device. tools/cuda-machine.sh runs this
// program.

#include "berth.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1024,
    HEAD = 128,
    HEADS = 8,
    HEADS_KV = 2,
    HIDDEN = 2816,
    KEYS = 2048,
    TOKENS = 512,
    N_SHAPES = 12,
    N_STEPS = 1000
};
enum { W_NORM, W_Q, W_K, W_V, W_O, W_GATE, W_UP, W_DOWN, N_WEIGHTS };

struct shape {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *in[4], *out;
};

struct rig {
    ggml_backend_dev_t dev;
    ggml_backend_t backends[2];
    struct ggml_context *ctx;
    ggml_backend_buffer_t memory;
    struct ggml_tensor *w[N_WEIGHTS], *cache_k, *cache_v;
    struct shape shapes[N_SHAPES];
};

static void shape_make(const struct rig *r, struct shape *s, int n, int n_kv) {
    struct ggml_init_params params = {.mem_size = 1 << 18, .no_alloc = true};
    struct ggml_context *c = s->ctx = ggml_init(params);
    struct ggml_tensor *x = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDTH, n), *pos = ggml_new_tensor_1d(c, GGML_TYPE_I32, n);
    struct ggml_tensor *rows = ggml_new_tensor_1d(c, GGML_TYPE_I64, n), *mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, n_kv, n);
    struct ggml_tensor *in[] = {x, pos, rows, mask};
    for (int i = 0; i < 4; i++) {
        s->in[i] = in[i];
        ggml_set_input(in[i]);
    }
    s->graph = ggml_new_graph_custom(c, 128, false);
    struct ggml_tensor *y = ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), r->w[W_NORM]);
    struct ggml_tensor *q = ggml_rope(c, ggml_reshape_3d(c, ggml_mul_mat(c, r->w[W_Q], y), HEAD, HEADS, n), pos, HEAD, 0);
    struct ggml_tensor *k = ggml_rope(c, ggml_reshape_3d(c, ggml_mul_mat(c, r->w[W_K], y), HEAD, HEADS_KV, n), pos, HEAD, 0);
    struct ggml_tensor *v = ggml_mul_mat(c, r->w[W_V], y);
    ggml_build_forward_expand(s->graph, q);
    ggml_build_forward_expand(s->graph, ggml_set_rows(c, r->cache_k, ggml_reshape_2d(c, k, HEAD * HEADS_KV, n), rows));
    ggml_build_forward_expand(s->graph, ggml_set_rows(c, r->cache_v, v, rows));
    struct ggml_tensor *keys = ggml_view_3d(c, r->cache_k, HEAD, n_kv, HEADS_KV, r->cache_k->nb[1], HEAD * 2, 0);
    struct ggml_tensor *values = ggml_view_3d(c, r->cache_v, HEAD, n_kv, HEADS_KV, r->cache_v->nb[1], HEAD * 2, 0);
    y = ggml_flash_attn_ext(c, ggml_permute(c, q, 0, 2, 1, 3), keys, values, mask, 0.088f, 0.0f, 0.0f);
    x = ggml_add(c, ggml_mul_mat(c, r->w[W_O], ggml_reshape_2d(c, y, HEAD * HEADS, n)), x);
    y = ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), r->w[W_NORM]);
    y = ggml_swiglu_split(c, ggml_mul_mat(c, r->w[W_GATE], y), ggml_mul_mat(c, r->w[W_UP], y));
    s->out = ggml_add(c, ggml_mul_mat(c, r->w[W_DOWN], y), x);
    ggml_set_output(s->out);
    ggml_build_forward_expand(s->graph, s->out);
}

static bool rig_init(struct rig *r, const char *folder, const char *device) {
    ggml_backend_load_all_from_path(folder);
    r->dev = ggml_backend_dev_by_name(device);
    r->backends[0] = r->dev != NULL ? ggml_backend_dev_init(r->dev, NULL) : NULL;
    r->backends[1] = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (r->backends[0] == NULL || r->backends[1] == NULL) {
        printf("skipped: no device %s with the backends in %s\n", device, folder);
        return false;
    }
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    struct ggml_context *c = r->ctx = ggml_init(params);
    static const int sizes[N_WEIGHTS][2] = {{WIDTH, 1}, {WIDTH, HEAD * HEADS}, {WIDTH, HEAD * HEADS_KV}, {WIDTH, HEAD * HEADS_KV},
        {HEAD * HEADS, WIDTH}, {WIDTH, HIDDEN}, {WIDTH, HIDDEN}, {HIDDEN, WIDTH}};
    for (int i = 0; i < N_WEIGHTS; i++) { // W_O is f16, so that cuBLAS is tested too if it is installed
        const enum ggml_type type = i == W_NORM ? GGML_TYPE_F32 : i == W_O ? GGML_TYPE_F16 : GGML_TYPE_Q4_K;
        r->w[i] = ggml_new_tensor_2d(c, type, sizes[i][0], sizes[i][1]);
    }
    r->cache_k = ggml_new_tensor_2d(c, GGML_TYPE_F16, HEAD * HEADS_KV, KEYS);
    r->cache_v = ggml_new_tensor_2d(c, GGML_TYPE_F16, HEAD * HEADS_KV, KEYS);
    r->memory = ggml_backend_alloc_ctx_tensors(c, r->backends[0]);
    if (r->memory == NULL) {
        return false;
    }
    ggml_backend_buffer_set_usage(r->memory, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_clear(r->memory, 0);
    return true;
}

static void shapes_make(struct rig *r) {
    static const int tokens[N_SHAPES] = {TOKENS, 1, 2, 8, 16, 17, 64, 200, 1, 511, TOKENS, 1};
    static const int n_keys[N_SHAPES] = {KEYS, KEYS, 512, 256, 600, 300, 256, 2048, 256, 1024, 512, 1024};
    for (int i = 0; i < N_SHAPES; i++) {
        shape_make(r, &r->shapes[i], tokens[i], n_keys[i]);
    }
}

static void shapes_free(struct rig *r) {
    for (int i = 0; i < N_SHAPES; i++) {
        ggml_free(r->shapes[i].ctx);
    }
}

static bool compute(ggml_backend_sched_t sched, const struct shape *s) {
    static char zeros[KEYS * TOKENS * 4];
    ggml_backend_sched_reset(sched);
    if (!ggml_backend_sched_alloc_graph(sched, s->graph)) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        ggml_backend_tensor_set(s->in[i], zeros, 0, ggml_nbytes(s->in[i]));
    }
    return ggml_backend_sched_graph_compute(sched, s->graph) == GGML_STATUS_SUCCESS;
}

static ggml_backend_sched_t sched_new(ggml_backend_t *backends) {
    return ggml_backend_sched_new(backends, NULL, 2, 256, false, true);
}

static size_t n_free(const struct rig *r) {
    size_t now = 0, total = 0;
    ggml_backend_dev_memory(r->dev, &now, &total);
    return now;
}

static int steps(struct rig *r) {
    size_t (*n_allocs)(ggml_backend_t);
    void *address = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(r->dev), "berth_backend_n_allocs");
    memcpy(&n_allocs, &address, sizeof n_allocs);
    shapes_make(r);
    ggml_backend_sched_t sched = sched_new(r->backends);
    if (address == NULL || !ggml_backend_sched_reserve(sched, r->shapes[0].graph)) {
        printf("the backend does not count allocations, or the reserve failed\n");
        return 1;
    }
    const size_t allocs = n_allocs(r->backends[0]), before = n_free(r);
    int n_failed = 0;
    for (int i = 0; i < N_STEPS; i++) {
        n_failed += !compute(sched, &r->shapes[(i * 7 + i / N_SHAPES * 5) % N_SHAPES]);
    }
    const size_t taken = n_allocs(r->backends[0]) - allocs, after = n_free(r);
    printf("%d steps over %d shapes after a reserve: %d failed, %zu allocations, free %zu before and %zu after "
           "(the driver allocates captured graphs itself)\n",
        N_STEPS, N_SHAPES, n_failed, taken, before, after);
    ggml_backend_sched_free(sched);
    shapes_free(r);
    return n_failed > 0 || taken > 0;
}

// Fills the GPU so that about `left` bytes are free. Returns NULL if it could not be filled.
static ggml_backend_buffer_t fill_to(const struct rig *r, size_t left) {
    const size_t now = n_free(r);
    return now > left ? ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(r->dev), now - left) : NULL;
}

static int fill(struct rig *r) {
    enum { N_LEVELS = 48, MIB = 1 << 20 };
    const size_t top = (size_t) 192 * MIB;
    int n_fit = 0, n_refused = 0, n_broken = 0;
    for (int i = N_LEVELS; i >= 0; i--) {
        ggml_backend_buffer_t filling = fill_to(r, top * (size_t) i / N_LEVELS);
        ggml_backend_t gpu = filling != NULL ? ggml_backend_dev_init(r->dev, NULL) : NULL;
        if (gpu == NULL) {
            n_refused += filling != NULL;
            ggml_backend_buffer_free(filling);
            continue;
        }
        ggml_backend_t backends[] = {gpu, r->backends[1]};
        shapes_make(r); // new tensors for each scheduler, because tensors keep the memory that a scheduler allocated for them
        ggml_backend_sched_t sched = sched_new(backends);
        if (ggml_backend_sched_reserve(sched, r->shapes[0].graph)) {
            n_fit++;
            for (int k = 0; k < 3 * N_SHAPES; k++) {
                n_broken += !compute(sched, &r->shapes[k % N_SHAPES]);
            }
        } else {
            n_refused++;
        }
        ggml_backend_sched_free(sched);
        shapes_free(r);
        ggml_backend_free(gpu);
        ggml_backend_buffer_free(filling);
    }
    printf("%d levels of free memory up to %zu MiB: %d fit, %d refused by the reserve, %d computes failed later\n", N_LEVELS + 1,
        top / MIB, n_fit, n_refused, n_broken);
    return n_broken > 0 || n_fit == 0 || n_refused == 0;
}

// The first launch of a kernel may allocate memory in the driver, so nothing is computed before the memory is full.
static int full(struct rig *r) {
    enum { N_FILLINGS = 64 };
    ggml_backend_buffer_t fillings[N_FILLINGS];
    int n_fillings = 0, n_failed = 0;
    shapes_make(r);
    ggml_backend_sched_t sched = sched_new(r->backends);
    if (!ggml_backend_sched_reserve(sched, r->shapes[0].graph)) {
        printf("the reserve failed: %s\n", berth_last_error());
        return 1;
    }
    const size_t before = n_free(r);
    for (size_t size = before; size >= 1 << 16 && n_fillings < N_FILLINGS; size /= 2) {
        fillings[n_fillings] = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(r->dev), size);
        n_fillings += fillings[n_fillings] != NULL;
    }
    const size_t after = n_free(r);
    for (int k = 0; k < 3 * N_SHAPES; k++) {
        if (!compute(sched, &r->shapes[k % N_SHAPES]) && n_failed++ == 0) {
            printf("the first failure: %s\n", berth_last_error());
        }
    }
    printf("%zu of %zu free bytes left after the reserve: %d of %d computes failed\n", after, before, n_failed, 3 * N_SHAPES);
    while (n_fillings > 0) {
        ggml_backend_buffer_free(fillings[--n_fillings]);
    }
    ggml_backend_sched_free(sched);
    shapes_free(r);
    return n_failed > 0;
}

// Fills y before each compute, so that a compute that does nothing is noticed.
static bool replay_equals_first(
    const struct rig *r, struct ggml_cgraph *graph, struct ggml_tensor *y, float *first, float *again) {
    for (int i = 0; i < 4; i++) {
        ggml_backend_tensor_memset(y, 0x3f, 0, ggml_nbytes(y));
        if (ggml_backend_graph_compute(r->backends[0], graph) != GGML_STATUS_SUCCESS) {
            return false;
        }
        ggml_backend_tensor_get(y, i == 0 ? first : again, 0, ggml_nbytes(y));
        if (i > 0 && memcmp(first, again, ggml_nbytes(y)) != 0) {
            return false;
        }
    }
    return true;
}

static int replay(struct rig *r) {
    enum { MAX_COLUMNS = 260, N_ROUNDS = 2 };
    static const int columns[] = {1, 2, 4, 5, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 192, 193, 200, MAX_COLUMNS};
    float *x = malloc(sizeof(float) * HIDDEN * MAX_COLUMNS), *first = malloc(sizeof(float) * HIDDEN * MAX_COLUMNS),
          *again = malloc(sizeof(float) * HIDDEN * MAX_COLUMNS);
    int n_graphs = 0, n_wrong = 0;
    for (int i = 0; i < HIDDEN * MAX_COLUMNS; i++) {
        x[i] = (float) (i % 2003 * 7919 % 2001 - 1000) / 1000.0f;
    }
    void *rows = malloc(ggml_row_size(GGML_TYPE_Q4_K, WIDTH) * HIDDEN);
    ggml_quantize_chunk(GGML_TYPE_Q4_K, x, rows, 0, MAX_COLUMNS, WIDTH, NULL);
    for (int i = MAX_COLUMNS; i < HIDDEN; i++) {
        memcpy((char *) rows + i * ggml_row_size(GGML_TYPE_Q4_K, WIDTH), rows, ggml_row_size(GGML_TYPE_Q4_K, WIDTH));
    }
    ggml_backend_tensor_set(r->w[W_UP], rows, 0, ggml_nbytes(r->w[W_UP]));
    for (int i = 0; i < N_ROUNDS * (int) (sizeof columns / sizeof columns[0]); i++, n_graphs++) {
        struct ggml_init_params params = {.mem_size = 1 << 18, .no_alloc = true};
        struct ggml_context *c = ggml_init(params);
        const int n = columns[(size_t) i % (sizeof columns / sizeof columns[0])];
        struct ggml_tensor *in = ggml_new_tensor_2d(c, GGML_TYPE_F32, WIDTH, n);
        struct ggml_tensor *y = ggml_scale(c, ggml_mul_mat(c, r->w[W_UP], in), 2.0f);
        struct ggml_cgraph *graph = ggml_new_graph_custom(c, 16, false);
        ggml_build_forward_expand(graph, y);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(c, r->backends[0]);
        ggml_backend_tensor_set(in, x, 0, ggml_nbytes(in));
        if (!replay_equals_first(r, graph, y, first, again)) {
            printf("%d columns: a repeated compute has another result than the first\n", n);
            n_wrong++;
        }
        ggml_backend_buffer_free(buffer);
        ggml_free(c);
    }
    printf("%d graphs computed four times each: %d with other results than the first\n", n_graphs, n_wrong);
    free(rows);
    free(again);
    free(first);
    free(x);
    return n_wrong > 0;
}

// Returns the number of wrong rows of a product of n_tokens columns of ones with experts of ones. Every third expert number is
// out of range.
static int experts_wrong(const struct rig *r, enum ggml_type type, int n_tokens) {
    enum { K = 256, ROWS = 40, N_EXPERTS = 4, N_USED = 3, MAX_TOKENS = 64 };
    struct ggml_init_params params = {.mem_size = 1 << 18, .no_alloc = true};
    struct ggml_context *c = ggml_init(params);
    struct ggml_tensor *w = ggml_new_tensor_3d(c, type, K, ROWS, N_EXPERTS);
    struct ggml_tensor *x = ggml_new_tensor_3d(c, GGML_TYPE_F32, K, 1, n_tokens);
    struct ggml_tensor *ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, N_USED, n_tokens);
    struct ggml_tensor *y = ggml_mul_mat_id(c, w, x, ids);
    struct ggml_cgraph *graph = ggml_new_graph_custom(c, 16, false);
    ggml_build_forward_expand(graph, y);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(c, r->backends[0]);
    static float ones[K * ROWS * N_EXPERTS + K * MAX_TOKENS], result[ROWS * N_USED * MAX_TOKENS];
    static char rows[sizeof ones];
    int32_t numbers[N_USED * MAX_TOKENS];
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        ones[i] = 1.0f;
    }
    for (int i = 0; i < N_USED * n_tokens; i++) {
        const int wrong = i % 2 == 0 ? -1 - i : N_EXPERTS + i;
        numbers[i] = i % 3 == 2 ? wrong : i % N_EXPERTS;
    }
    ggml_quantize_chunk(type, ones, rows, 0, ROWS * N_EXPERTS, K, NULL);
    ggml_backend_tensor_set(w, rows, 0, ggml_nbytes(w));
    ggml_backend_tensor_set(x, ones, 0, ggml_nbytes(x));
    ggml_backend_tensor_set(ids, numbers, 0, ggml_nbytes(ids));
    ggml_backend_tensor_memset(y, 0x3f, 0, ggml_nbytes(y));
    int n_wrong = N_USED * n_tokens;
    if (ggml_backend_graph_compute(r->backends[0], graph) == GGML_STATUS_SUCCESS) {
        ggml_backend_tensor_get(y, result, 0, ggml_nbytes(y));
        n_wrong = 0;
        for (int i = 0; i < N_USED * n_tokens; i++) {
            const float want = i % 3 == 2 ? 0.0f : K, first = result[i * ROWS], last = result[i * ROWS + ROWS - 1];
            n_wrong += first < want - 1.0f || first > want + 1.0f || last < want - 1.0f || last > want + 1.0f;
        }
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(c);
    return n_wrong;
}

static int experts(struct rig *r) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K};
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        n_wrong += experts_wrong(r, types[i], 2) + experts_wrong(r, types[i], 64);
    }
    printf("experts that do not exist: %d wrong rows\n", n_wrong);
    return n_wrong > 0;
}

int main(int argc, char **argv) {
    static struct rig r;
    static const struct {
        const char *name;
        int (*run)(struct rig *r);
    } modes[] = {{"steps", steps}, {"fill", fill}, {"full", full}, {"replay", replay}, {"experts", experts}};
    int (*run)(struct rig * r) = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0] && argc > 2; i++) {
        if (strcmp(argv[2], modes[i].name) == 0) {
            run = modes[i].run;
        }
    }
    if (run == NULL) {
        fprintf(stderr, "Usage: cuda-promise FOLDER steps|fill|full|replay|experts [DEVICE]\n");
        return 2;
    }
    if (!rig_init(&r, argv[1], argc > 3 ? argv[3] : "CUDA0")) {
        return 77;
    }
    return run(&r);
}

// SPDX-License-Identifier: MIT
// sched.c: measures the overhead of the scheduler, for Berth and the reference in one run, on one and on three backends:
//   new       time to split and allocate a new graph
//   hit       the same for a graph that equals the previous one
//   with run  hit, and the time to pass the splits to the backends; Berth then compares the graph once more
//   space     address space that creating and reserving a scheduler takes
// The graphs are chains of 100 to 100,000 nodes, in which every 32nd node reads a weight of the next backend. Then they are layers
// with views and a cache. Every graph is rebuilt before it is used, as programs do. Both sides use the same devices
// (support/device_plain.h), which compute nothing.
//
//     bench-sched [MAX_NODES]
#include "clock.h"
#include "support/device_plain.h"
#include "support/oracle.h"

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <malloc.h>

enum { WIDTH = 64, BLOCK = 32, MAX_BACKENDS = 3, MAX_RUNS = 41 };

#define FUNCTIONS(X) \
    X(ggml_init) \
    X(ggml_free) \
    X(ggml_new_tensor_1d) \
    X(ggml_new_graph_custom) \
    X(ggml_graph_overhead_custom) \
    X(ggml_build_forward_expand) \
    X(ggml_tensor_overhead) \
    X(ggml_mul) \
    X(ggml_add) \
    X(ggml_scale) \
    X(ggml_rms_norm) \
    X(ggml_mul_mat) \
    X(ggml_soft_max) \
    X(ggml_cpy) \
    X(ggml_cont) \
    X(ggml_view_1d) \
    X(ggml_view_2d) \
    X(ggml_reshape_1d) \
    X(ggml_reshape_2d) \
    X(ggml_transpose) \
    X(ggml_set_input) \
    X(ggml_set_output) \
    X(ggml_backend_buffer_init) \
    X(ggml_backend_buffer_free) \
    X(ggml_backend_buffer_get_base) \
    X(ggml_backend_buffer_set_usage) \
    X(ggml_backend_tensor_alloc) \
    X(ggml_backend_buft_alloc_buffer) \
    X(ggml_backend_sched_new) \
    X(ggml_backend_sched_free) \
    X(ggml_backend_sched_reserve) \
    X(ggml_backend_sched_reset) \
    X(ggml_backend_sched_alloc_graph) \
    X(ggml_backend_sched_graph_compute_async) \
    X(ggml_backend_sched_get_n_splits) \
    X(ggml_backend_sched_get_buffer_size)

// One implementation and its devices.
struct side {
#define X(f) __typeof__(f) *f;
    FUNCTIONS(X)
#undef X
    struct plain_device devices[MAX_BACKENDS];
    ggml_backend_t backends[MAX_BACKENDS];
    struct ggml_context *weights_ctx;
    struct ggml_tensor *weights[MAX_BACKENDS], *caches[MAX_BACKENDS];
    ggml_backend_buffer_t buffers[MAX_BACKENDS], cache_buffers[MAX_BACKENDS];
    void *memory;
    size_t memory_size;
    double seconds[MAX_RUNS], compute_seconds[MAX_RUNS];
    int n_splits;
};

static void side_load_own(struct side *s) {
#define X(f) s->f = f;
    FUNCTIONS(X)
#undef X
}

static bool side_load(struct side *s, void *handle) {
    bool all = true;
#define X(f) all = (*(void **) &s->f = dlsym(handle, #f)) != NULL && all;
    FUNCTIONS(X)
#undef X
    return all;
}

static bool side_init(struct side *s, int n_backends, int most_nodes) {
    s->weights_ctx = s->ggml_init((struct ggml_init_params){2 * MAX_BACKENDS * s->ggml_tensor_overhead(), NULL, true});
    for (int b = 0; b < n_backends; b++) {
        plain_device_init(&s->devices[b], s->ggml_backend_buffer_init, b == n_backends - 1);
        s->backends[b] = &s->devices[b].backend;
        s->weights[b] = s->ggml_new_tensor_1d(s->weights_ctx, GGML_TYPE_F32, WIDTH);
        s->buffers[b] = s->ggml_backend_buft_alloc_buffer(&s->devices[b].buft, WIDTH * sizeof(float));
        s->ggml_backend_buffer_set_usage(s->buffers[b], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        s->ggml_backend_tensor_alloc(s->buffers[b], s->weights[b], s->ggml_backend_buffer_get_base(s->buffers[b]));
        s->caches[b] = s->ggml_new_tensor_1d(s->weights_ctx, GGML_TYPE_F32, 4 * WIDTH);
        s->cache_buffers[b] = s->ggml_backend_buft_alloc_buffer(&s->devices[b].buft, 4 * WIDTH * sizeof(float));
        s->ggml_backend_tensor_alloc(s->cache_buffers[b], s->caches[b], s->ggml_backend_buffer_get_base(s->cache_buffers[b]));
    }
    const size_t n = (size_t) most_nodes + 64;
    s->memory_size = n * s->ggml_tensor_overhead() + s->ggml_graph_overhead_custom(n, false);
    s->memory = calloc(1, s->memory_size);
    return s->memory != NULL;
}

static void side_fini(struct side *s, int n_backends) {
    for (int b = 0; b < n_backends; b++) {
        s->ggml_backend_buffer_free(s->buffers[b]);
        s->ggml_backend_buffer_free(s->cache_buffers[b]);
    }
    s->ggml_free(s->weights_ctx);
    free(s->memory);
}

// ---- graphs ----

static bool has_layers; // true: graphs of layers; false: chains

// Layers with views, branches, and a cache that is written and read, SIDE * SIDE values per tensor. The first layers use the first
// backend, the next layers the second one, and so on.
static struct ggml_tensor *build_layers(
    struct side *s, struct ggml_context *ctx, struct ggml_cgraph *graph, struct ggml_tensor *x, int n_nodes, int n_backends) {
    enum { LAYER = 15, SIDE = 8, ROW = SIDE * sizeof(float) };
    const int n_layers = n_nodes / LAYER;
    for (int i = 0; i < n_layers; i++) {
        const int b = i * n_backends / n_layers;
        struct ggml_tensor *n = s->ggml_mul(ctx, s->ggml_rms_norm(ctx, x, 1e-5f), s->weights[b]), *cache = s->caches[b];
        struct ggml_tensor *k = s->ggml_scale(ctx, n, 0.5f),
                           *q = s->ggml_reshape_2d(ctx, s->ggml_scale(ctx, n, 2.0f), SIDE, SIDE);
        s->ggml_build_forward_expand(graph, s->ggml_cpy(ctx, k, s->ggml_view_1d(ctx, cache, WIDTH, WIDTH * sizeof(float))));
        struct ggml_tensor *scores =
            s->ggml_soft_max(ctx, s->ggml_mul_mat(ctx, s->ggml_view_2d(ctx, cache, SIDE, SIDE, ROW, 0), q));
        struct ggml_tensor *out = s->ggml_cont(ctx, s->ggml_transpose(ctx, scores));
        x = s->ggml_add(ctx, x, s->ggml_scale(ctx, s->ggml_reshape_1d(ctx, out, WIDTH), 0.5f));
        s->ggml_build_forward_expand(graph, x);
    }
    for (int i = n_layers * LAYER; i < n_nodes; i++) {
        x = s->ggml_scale(ctx, x, 0.5f);
    }
    return x;
}

static struct ggml_cgraph *build(struct side *s, struct ggml_context *ctx, int n_nodes, int n_backends, int most_nodes) {
    struct ggml_cgraph *graph = s->ggml_new_graph_custom(ctx, (size_t) most_nodes + 64, false);
    struct ggml_tensor *x = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, WIDTH), *start = x;
    s->ggml_set_input(x);
    if (has_layers) {
        x = build_layers(s, ctx, graph, x, n_nodes, n_backends);
        n_nodes = 0;
    }
    for (int i = 0; i < n_nodes; i++) {
        if (i % BLOCK == 0) {
            x = s->ggml_mul(ctx, x, s->weights[i / BLOCK % n_backends]);
            start = x;
        } else if (i % 8 == 7) {
            x = s->ggml_add(ctx, x, start);
        } else {
            x = s->ggml_scale(ctx, x, 0.5f);
        }
    }
    s->ggml_set_output(x);
    s->ggml_build_forward_expand(graph, x);
    return graph;
}

// Builds a graph of n_nodes, splits and allocates it (seconds), and passes its splits to the backends (compute_seconds).
static void alloc_one(struct side *s, ggml_backend_sched_t sched, int n_nodes, int n_backends, int most_nodes, int run) {
    struct ggml_context *ctx = s->ggml_init((struct ggml_init_params){s->memory_size, s->memory, true});
    struct ggml_cgraph *graph = build(s, ctx, n_nodes, n_backends, most_nodes);
    const double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    s->ggml_backend_sched_reset(sched);
    if (!s->ggml_backend_sched_alloc_graph(sched, graph)) {
        fprintf(stderr, "sched: allocating a graph of %d nodes failed\n", n_nodes);
        exit(1);
    }
    const double between = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    if (s->ggml_backend_sched_graph_compute_async(sched, graph) != GGML_STATUS_SUCCESS) {
        fprintf(stderr, "sched: computing a graph of %d nodes failed\n", n_nodes);
        exit(1);
    }
    s->compute_seconds[run] = clock_s(CLOCK_PROCESS_CPUTIME_ID) - between;
    s->seconds[run] = between - start;
    s->n_splits = s->ggml_backend_sched_get_n_splits(sched);
    s->ggml_free(ctx);
}

static size_t address_space(void) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    const int got = f != NULL ? fscanf(f, "%llu", &pages) : 0;
    if (f != NULL) {
        fclose(f);
    }
    return got == 1 ? (size_t) pages * (size_t) sysconf(_SC_PAGESIZE) : 0;
}

// The bytes of address space that new and reserve take, without compute buffers. The heap is trimmed first, because free memory in
// it would hide a part of these bytes.
static size_t space_here(struct side *s, int n_nodes, int n_backends) {
    struct ggml_context *ctx = s->ggml_init((struct ggml_init_params){s->memory_size, s->memory, true});
    struct ggml_cgraph *graph = build(s, ctx, n_nodes, n_backends, n_nodes);
    malloc_trim(0);
    const size_t before = address_space();
    ggml_backend_sched_t sched = s->ggml_backend_sched_new(s->backends, NULL, n_backends, (size_t) n_nodes + 64, false, false);
    size_t size = s->ggml_backend_sched_reserve(sched, graph) ? address_space() - before : 0;
    for (int b = 0; b < n_backends; b++) {
        const size_t buffer = s->ggml_backend_sched_get_buffer_size(sched, s->backends[b]);
        size -= buffer < size ? buffer : size;
    }
    return size;
}

// space_here in a new process, whose heap has not been used.
static size_t space_of(int i_side, int n_nodes, int n_backends) {
    char command[128];
    size_t size = 0;
    snprintf(command, sizeof command, "exec /proc/%ld/exe --space %d %d %d %d", (long) getpid(), i_side, n_nodes, n_backends,
        has_layers);
    FILE *f = popen(command, "r");
    const int got = f != NULL ? fscanf(f, "%zu", &size) : 0;
    if (f == NULL || pclose(f) != 0 || got != 1) {
        fprintf(stderr, "sched: no number from %s\n", command);
        exit(1);
    }
    return size;
}

// ---- comparisons ----

struct ratios {
    double fresh, again, run, space;
};

static void worse(double *most, double ratio) {
    if (ratio > *most) {
        *most = ratio;
    }
}

static void time_print(const char *what, const double *seconds, int n_sides, double *worst) {
    printf("%s %8.1f us", what, 1e6 * seconds[0]);
    if (n_sides > 1) {
        printf(" / %8.1f = %.2f", 1e6 * seconds[1], seconds[0] / seconds[1]);
        worse(worst, seconds[0] / seconds[1]);
    }
}

static void compare(int n_nodes, int n_backends, struct side *sides, int n_sides, struct ratios *worst) {
    const int n_runs = MAX_RUNS, most = n_nodes + 2 * MAX_RUNS;
    double fresh[2] = {0}, again[2] = {0}, run[2] = {0};
    size_t space[2] = {0};
    ggml_backend_sched_t sched[2];
    for (int k = 0; k < n_sides; k++) {
        if (!side_init(&sides[k], n_backends, most)) {
            exit(1);
        }
        space[k] = space_of(k, n_nodes, n_backends);
        sched[k] = sides[k].ggml_backend_sched_new(sides[k].backends, NULL, n_backends, (size_t) most + 64, false, false);
        alloc_one(&sides[k], sched[k], most, n_backends, most, 0); // plans and allocates the largest graph first
    }
    for (int i = 0; i < n_runs; i++) { // each graph has one node more than the previous one, so it is new
        for (int k = 0; k < n_sides; k++) {
            alloc_one(&sides[k], sched[k], n_nodes + i, n_backends, most, i);
        }
    }
    for (int k = 0; k < n_sides; k++) {
        fresh[k] = clock_median(sides[k].seconds, n_runs);
        alloc_one(&sides[k], sched[k], n_nodes, n_backends, most, 0);
    }
    for (int i = 0; i < n_runs; i++) {
        for (int k = 0; k < n_sides; k++) {
            alloc_one(&sides[k], sched[k], n_nodes, n_backends, most, i);
        }
    }
    for (int k = 0; k < n_sides; k++) {
        again[k] = clock_median(sides[k].seconds, n_runs);
        run[k] = again[k] + clock_median(sides[k].compute_seconds, n_runs);
    }
    printf("%s of %6d nodes, %d backend%s, %4d splits:", has_layers ? "layers" : "chain ", n_nodes, n_backends,
        n_backends > 1 ? "s" : " ", sides[0].n_splits);
    time_print(" new", fresh, n_sides, &worst->fresh);
    time_print(", hit", again, n_sides, &worst->again);
    time_print(", with run", run, n_sides, &worst->run);
    printf(", space %zu KiB", space[0] / 1024);
    if (n_sides > 1) {
        printf(" / %zu = %.3f", space[1] / 1024, (double) space[0] / (double) space[1]);
        worse(&worst->space, (double) space[0] / (double) space[1]);
        printf("%s", sides[0].n_splits == sides[1].n_splits ? "" : " (THE SPLITS DIFFER)");
    }
    printf("\n");
    for (int k = 0; k < n_sides; k++) {
        sides[k].ggml_backend_sched_free(sched[k]);
        side_fini(&sides[k], n_backends);
    }
}

int main(int argc, char **argv) {
    static struct side sides[2];
    void *base = oracle_load("libggml-base.so");
    const int n_sides = base != NULL && side_load(&sides[1], base) ? 2 : 1;
    const int most = argc > 1 ? atoi(argv[1]) : 100000;
    side_load_own(&sides[0]);
    if (n_sides == 1) {
        printf("sched: without the reference: %s\n", oracle_why());
    }
    if (argc == 6 && strcmp(argv[1], "--space") == 0) {
        has_layers = atoi(argv[5]) != 0;
        struct side *s = &sides[atoi(argv[2]) % n_sides];
        const int n_nodes = atoi(argv[3]), n_backends = atoi(argv[4]);
        if (!side_init(s, n_backends, n_nodes)) {
            return 1;
        }
        printf("%zu\n", space_here(s, n_nodes, n_backends));
        return 0;
    }
    for (int k = 0; k < 2; k++) {
        struct ratios worst = {0};
        has_layers = k == 1;
        for (int n_nodes = 100; n_nodes <= (has_layers && most > 10000 ? 10000 : most); n_nodes *= 10) {
            compare(n_nodes, 1, sides, n_sides, &worst);
            compare(n_nodes, MAX_BACKENDS, sides, n_sides, &worst);
        }
        if (n_sides == 2) {
            printf("%s, worst ratios, Berth / reference: new %.2f (goal: at most 0.7), hit %.2f (0.2), with run %.2f, "
                   "space %.3f (0.1)\n",
                has_layers ? "layers" : "chains", worst.fresh, worst.again, worst.run, worst.space);
        }
    }
    return 0;
}

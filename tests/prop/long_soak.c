// SPDX-License-Identifier: MIT
// long_soak.c: creates and frees contexts, graphs, schedulers and thread pools for a long time, with devices that fail at random.
// Results must stay correct. Memory, file descriptors and threads must not grow.
// BERTH_SOAK_MINUTES sets the duration, 1 by default (`make soak`).

#include "support/device_graph.h"

#include "ggml-cpu.h"
#include "gguf.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <time.h>

// ---- resources of the process ----

struct resources {
    long kib; // resident memory
    int n_files, n_threads;
};

static int entries_of(const char *path) {
    DIR *folder = opendir(path);
    int n = 0;
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

static struct resources resources_measure(void) {
    struct resources h = {0};
    malloc_trim(0);
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "VmRSS: %ld", &h.kib);
    }
    fclose(file);
    h.n_files = entries_of("/proc/self/fd");
    h.n_threads = entries_of("/proc/self/task");
    return h;
}

// ---- rounds ----

static struct rg_params any_params(struct check_rng *rng, uint64_t seed) {
    return (struct rg_params){.seed = seed,
        .n_nodes = 10 + (int) check_rng_below(rng, 150),
        .n_devices = 1 + (int) check_rng_below(rng, 4),
        .async = check_rng_below(rng, 2) == 0,
        .parallel = check_rng_below(rng, 3) == 0,
        .n_runs = 5};
}

static void failure_set(struct rg_world *w, struct check_rng *rng) {
    struct device *dev = &w->devices[check_rng_below(rng, (uint64_t) w->n_devices)];
    atomic_int *at[] = {&dev->fail_alloc_at, &dev->fail_compute_at, &dev->fail_set_at, &dev->fail_copy_at};
    atomic_store(at[check_rng_below(rng, 4)], 1 + (int) check_rng_below(rng, 6));
}

static void failures_clear(struct rg_world *w) {
    for (int i = 0; i < w->n_devices; i++) {
        struct device *dev = &w->devices[i];
        atomic_store(&dev->fail_alloc_at, 0);
        atomic_store(&dev->fail_compute_at, 0);
        atomic_store(&dev->fail_set_at, 0);
        atomic_store(&dev->fail_copy_at, 0);
    }
}

// Any status is allowed, but calls must return. Returns the number of failures.
static int round_of_failures(struct check_rng *rng, uint64_t seed) {
    static struct rg_world world;
    const struct rg_params p = any_params(rng, seed);
    int n_failed = 0;
    rg_world_init(&world, &p, true);
    ggml_backend_sched_t sched = ggml_backend_sched_new(world.backends, NULL, world.n_devices + 1, 64, p.parallel, false);
    assert_non_null(sched);
    for (int i = 0; i < 6; i++) {
        struct rg_graph g;
        rg_graph_init(&g, &world, &p, seed);
        failure_set(&world, rng);
        berth_alloc_fail_at(check_rng_below(rng, 2) == 0 ? 1 + (int64_t) check_rng_below(rng, 40) : 0);
        ggml_backend_sched_reset(sched);
        bool ok = ggml_backend_sched_alloc_graph(sched, g.graph);
        if (ok) {
            rg_set_inputs(&g, seed);
            ok = ggml_backend_sched_graph_compute(sched, g.graph) == GGML_STATUS_SUCCESS;
        }
        berth_alloc_fail_at(0);
        n_failed += !ok;
        (void) berth_sched_synchronize(sched);
        ggml_free(g.ctx);
    }
    failures_clear(&world);
    ggml_backend_sched_free(sched);
    rg_world_fini(&world);
    return n_failed;
}

static void round_of_threads(struct check_rng *rng) {
    const int n_threads = 1 + (int) check_rng_below(rng, 4), n = 1 + (int) check_rng_below(rng, 300);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 22});
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, 64);
    struct ggml_tensor *sum = ggml_sum(ctx, ggml_sqr(ctx, a));
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_threadpool_params pool = ggml_threadpool_params_default(n_threads);
    ggml_set_f32(a, 0.5f);
    ggml_build_forward_expand(graph, sum);
    struct ggml_threadpool *threads = ggml_threadpool_new(&pool);
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, n_threads);
    ggml_backend_cpu_set_threadpool(cpu, threads);
    assert_int_equal(ggml_backend_graph_compute(cpu, graph), GGML_STATUS_SUCCESS);
    assert_true(fabsf(*(float *) sum->data - 16.0f * (float) n) < 0.01f * (float) n);
    ggml_backend_free(cpu);
    ggml_threadpool_free(threads);
    ggml_free(ctx);
}

static void round_of_files(struct check_rng *rng) {
    struct gguf_context *g = gguf_init_empty();
    const uint64_t n = 1 + check_rng_below(rng, 60);
    for (uint64_t i = 0; i < n; i++) {
        char key[32];
        snprintf(key, sizeof key, "key.%d", (int) i);
        gguf_set_val_u64(g, key, i);
    }
    const size_t size = gguf_get_meta_size(g);
    char *bytes = malloc(size);
    assert_non_null(bytes);
    gguf_get_meta_data(g, bytes);
    struct gguf_context *reread = gguf_init_from_buffer(bytes, size, (struct gguf_init_params){0});
    assert_non_null(reread);
    assert_int_equal(gguf_get_n_kv(reread), n);
    gguf_free(reread);
    gguf_free(g);
    free(bytes);
}

static void resources_do_not_grow(void **state) {
    (void) state;
    const char *text = getenv("BERTH_SOAK_MINUTES");
    const double seconds = 60.0 * (text != NULL ? strtod(text, NULL) : 1.0);
    const uint64_t seed = check_seed(1);
    struct check_rng rng = check_rng_new(seed);
    const time_t begin = time(NULL);
    struct resources early = {0};
    int64_t n = 0, n_failed = 0;
    bool is_warm = false;
    for (; difftime(time(NULL), begin) < seconds; n++) {
        const struct rg_params p = any_params(&rng, seed + (uint64_t) n);
        rg_check(&p);
        n_failed += round_of_failures(&rng, seed + (uint64_t) n);
        round_of_threads(&rng);
        round_of_files(&rng);
        if (!is_warm && difftime(time(NULL), begin) >= seconds / 4) {
            early = resources_measure();
            is_warm = true;
        }
    }
    const struct resources late = resources_measure();
    print_message("%lld rounds, %lld calls failed as intended; resident %ld KiB then %ld, files %d then %d, threads %d then %d\n",
        (long long) n, (long long) n_failed, early.kib, late.kib, early.n_files, late.n_files, early.n_threads, late.n_threads);
    assert_true(n > 10 && n_failed > 0);
    assert_int_equal(late.n_files, early.n_files);
    assert_true(late.n_threads <= early.n_threads + 4); // an idle thread pool that Berth keeps may be larger than before
    assert_true(late.kib <= early.kib + early.kib / 20 + 2048);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(resources_do_not_grow)};
    return cmocka_run_group_tests_name("long_soak", tests, NULL, NULL);
}

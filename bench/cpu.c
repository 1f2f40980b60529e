// SPDX-License-Identifier: MIT
// cpu.c: measures the overhead of running a graph on the CPU, for Berth and for the reference in one process.
//   dispatch: the time per node of a chain of ops on one element (additions, multiplications by a number)
//   barrier:  the time per node of a chain of ops that all threads share
//   crowd:    a graph with one thread per processor, and with THREADS (default: four per processor); the ratio should be at most 1.5
// Usage: bench-cpu [THREADS]

#include "runner.h"

#include "berth-cpu.h"

#include <sched.h>

static double now_us(void) {
    return 1e6 * clock_s(CLOCK_MONOTONIC);
}

// The shortest of up to n_runs runs within two seconds, in microseconds.
static double best_us(const struct runner *r, struct ggml_cgraph *graph, int n_threads, int n_runs) {
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    struct ggml_threadpool *pool = r->pool_new(&params);
    struct ggml_cplan plan = r->plan(graph, n_threads, pool);
    plan.work_data = malloc(plan.work_size + 1);
    double best = 1e30;
    const double end = now_us() + 2e6;
    for (int i = 0; i < n_runs && (i < 2 || now_us() < end); i++) {
        const double start = now_us();
        if (r->compute(graph, &plan) != GGML_STATUS_SUCCESS) {
            printf("%s failed\n", r->name);
        }
        const double spent = now_us() - start;
        best = spent < best ? spent : best;
    }
    free(plan.work_data);
    r->pool_free(pool);
    return best;
}

static struct ggml_cgraph *chain(struct ggml_context *ctx, int64_t ne0, int64_t ne1, int n, bool is_scale) {
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne0, ne1);
    memset(a->data, 0, ggml_nbytes(a));
    struct ggml_tensor *h = a;
    for (int i = 0; i < n; i++) {
        h = is_scale ? ggml_scale_inplace(ctx, h, 0.5f) : ggml_add_inplace(ctx, h, a);
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, (size_t) n + 8, false);
    ggml_build_forward_expand(graph, h);
    return graph;
}

static struct ggml_cgraph *layers(struct ggml_context *ctx, int n) {
    struct ggml_tensor *h = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 512, 32);
    memset(h->data, 0, ggml_nbytes(h));
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 512, 512);
        memset(w->data, 0, ggml_nbytes(w));
        h = ggml_add(ctx, h, ggml_mul_mat(ctx, w, ggml_rms_norm(ctx, h, 1e-5f)));
    }
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, h);
    return graph;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    cpu_set_t set;
    const int n_cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const int n_crowd = argc > 1 ? atoi(argv[1]) : 4 * n_cpus;
    struct runner both[2] = {runner_berth()};
    const int n_runners = runner_reference(&both[1]) ? 2 : 1;
    if (n_runners == 1) {
        printf("without the reference: %s\n", oracle_why());
    }
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 256u << 20});
    struct ggml_cgraph *tiny = chain(ctx, 1, 1, 2000, false);
    struct ggml_cgraph *scale = chain(ctx, 1, 1, 2000, true);
    struct ggml_cgraph *wide = chain(ctx, 1024, 64, 500, false);
    struct ggml_cgraph *model = layers(ctx, 12);
    printf("%d processors, kernels %s\n", n_cpus, berth_cpu_isa());
    for (int i = 0; i < n_runners; i++) {
        const struct runner *r = &both[i];
        printf("%s\n", r->name);
        for (int n = 1; n <= n_cpus; n *= 2) {
            printf("  dispatch, %2d threads: %8.3f us per addition, %8.3f us per multiplication\n", n,
                best_us(r, tiny, n, 50) / 2000, best_us(r, scale, n, 50) / 2000);
            printf("  barrier,  %2d threads: %8.3f us per node\n", n, best_us(r, wide, n, 50) / 500);
        }
        const double fit = best_us(r, model, n_cpus, 40), crowd = best_us(r, model, n_crowd, 40);
        printf("  crowd:    %2d threads %.0f us, %2d threads %.0f us, ratio %.2f\n", n_cpus, fit, n_crowd, crowd, crowd / fit);
    }
    ggml_free(ctx);
    return 0;
}

// SPDX-License-Identifier: MIT
// test_cpu_compute.c: graphs on the CPU backend: repeated computes allocate nothing and start no threads, aborts and errors are
// reported, and results do not depend on the number of threads.

#include "support/check.h"

#include "berth-cpu.h"
#include "cpu/cpu.h"
#include "ggml-backend-impl.h"

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

// ---- counting allocations and threads of the process ----

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#endif
#ifndef SANITIZED
#    define SANITIZED 0
#endif

static atomic_int n_mallocs, n_threads_made;

#if defined(__GLIBC__) && !SANITIZED
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

// These functions replace those of libc. They count every allocation of this process, including those of libc itself.
void *malloc(size_t size) {
    atomic_fetch_add(&n_mallocs, 1);
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    atomic_fetch_add(&n_mallocs, 1);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size) {
    atomic_fetch_add(&n_mallocs, 1);
    return __libc_realloc(p, size);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &found, sizeof found);
    atomic_fetch_add(&n_threads_made, 1);
    return real(thread, attr, start, arg);
}
int posix_memalign(void **p, size_t align, size_t size) {
    atomic_fetch_add(&n_mallocs, 1);
    *p = __libc_memalign(align, size);
    return *p == NULL;
}
#endif

static int n_threads_now(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

// ---- a graph with ops of one and of several tasks, barriers within and between ops, and work memory ----

struct net {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *out;
};

static void fill(struct ggml_tensor *t, uint64_t seed) {
    struct check_rng rng = check_rng_new(seed);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *) t->data)[i] = (float) ((double) check_rng_next(&rng) / 1.8446744073709552e19 - 0.5);
    }
}

static struct net net_new(void) {
    struct net net = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 64u << 20})};
    net.x = ggml_new_tensor_2d(net.ctx, GGML_TYPE_F32, 256, 64);
    fill(net.x, 1);
    struct ggml_tensor *h = net.x;
    for (int i = 0; i < 6; i++) {
        struct ggml_tensor *w = ggml_new_tensor_2d(net.ctx, GGML_TYPE_F32, 256, 256);
        fill(w, (uint64_t) (10 + i));
        struct ggml_tensor *w16 = ggml_cast(net.ctx, w, GGML_TYPE_F16);
        struct ggml_tensor *n = ggml_rms_norm(net.ctx, h, 1e-5f);
        struct ggml_tensor *p = ggml_soft_max(net.ctx, ggml_mul_mat(net.ctx, w16, n));
        h = ggml_add(net.ctx, h, ggml_scale(net.ctx, p, 2.0f));
    }
    net.out = ggml_cont(net.ctx, ggml_transpose(net.ctx, h));
    net.graph = ggml_new_graph(net.ctx);
    ggml_build_forward_expand(net.graph, net.out);
    return net;
}

static enum ggml_status compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    return backend->iface.graph_compute(backend, graph);
}

static ggml_backend_t backend_new(int n_threads) {
    ggml_backend_t backend = ggml_backend_cpu_init();
    assert_non_null(backend);
    ggml_backend_cpu_set_n_threads(backend, n_threads);
    return backend;
}

static void backend_end(ggml_backend_t backend) {
    backend->iface.free(backend);
}

// ---- tests ----

static void repeated_computes_allocate_nothing(void **state) {
    (void) state;
    struct net net = net_new();
    ggml_backend_t backend = backend_new(4);
    assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS);
    struct ggml_cplan plan = ggml_graph_plan(net.graph, 4, NULL);
    assert_true(plan.n_threads > 1);
    plan.work_data = malloc(plan.work_size);
    assert_int_equal(ggml_graph_compute(net.graph, &plan), GGML_STATUS_SUCCESS);

    const size_t work = berth_cpu_work_size(backend);
    const int threads = n_threads_now();
    const int threads_made = atomic_load(&n_threads_made);
    const int mallocs = atomic_load(&n_mallocs);
    berth_alloc_watch(true);
    const int n_computes = SANITIZED ? 50 : 1000; // fewer with sanitizers, where allocations are not counted
    for (int i = 0; i < n_computes; i++) {
        if (compute(backend, net.graph) != GGML_STATUS_SUCCESS || ggml_graph_compute(net.graph, &plan) != GGML_STATUS_SUCCESS) {
            fail();
        }
    }
    const int mallocs_after = atomic_load(&n_mallocs);
    const int64_t berth_allocs = berth_alloc_made();
    berth_alloc_watch(false);
    const int threads_made_after = atomic_load(&n_threads_made);
    printf("%d computes on a backend and %d without: %d heap allocations, %d new threads, %zu bytes of work memory\n", n_computes,
        n_computes, mallocs_after - mallocs, threads_made_after - threads_made, work);
    assert_int_equal(mallocs_after, mallocs);
    assert_int_equal(berth_allocs, 0);
    assert_int_equal(threads_made_after, threads_made);
#if !SANITIZED
    assert_true(threads_made > 0); // the counter works
#endif
    assert_int_equal(n_threads_now(), threads);
    assert_int_equal(berth_cpu_work_size(backend), work);
    free(plan.work_data);
    backend_end(backend);
    ggml_free(net.ctx);
}

static double fastest_ms(ggml_backend_t backend, struct ggml_cgraph *graph) {
    double best = INFINITY;
    for (int i = 0; i < 20; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        assert_int_equal(compute(backend, graph), GGML_STATUS_SUCCESS);
        clock_gettime(CLOCK_MONOTONIC, &b);
        best = fmin(best, (double) (b.tv_sec - a.tv_sec) * 1e3 + (double) (b.tv_nsec - a.tv_nsec) * 1e-6);
    }
    return best;
}

// A backend with four threads per processor takes at most 1.5 times as long as a backend with one thread per processor. Other
// programs disturb the measurement, so one fast round is enough.
static void more_threads_than_processors_are_not_much_slower(void **state) {
    (void) state;
#if SANITIZED
    skip();
#endif
    const int n_cpus = (int) fmin((double) sysconf(_SC_NPROCESSORS_ONLN), GGML_MAX_N_THREADS / 4);
    struct net net = net_new();
    unsetenv("BERTH_CPU_OVERSUBSCRIBE");
    ggml_backend_t fitting = backend_new(n_cpus), oversubscribed = backend_new(4 * n_cpus);
    double ratio = INFINITY;
    for (int i = 0; i < 20 && ratio > 1.5; i++) {
        const double want = fastest_ms(fitting, net.graph);
        ratio = fmin(ratio, fastest_ms(oversubscribed, net.graph) / want);
    }
    printf("%d threads take %.2f times as long as %d\n", 4 * n_cpus, ratio, n_cpus);
    setenv("BERTH_CPU_OVERSUBSCRIBE", "1", 1);
    assert_true(ratio <= 1.5);
    backend_end(fitting);
    backend_end(oversubscribed);
    ggml_free(net.ctx);
}

static void threads_agree_to_the_bit(void **state) {
    (void) state;
    struct net net = net_new();
    const size_t size = ggml_nbytes(net.out);
    void *want = malloc(size);
    for (int n = 1; n <= 7; n++) {
        ggml_backend_t backend = backend_new(n);
        memset(net.out->data, 0xFF, size);
        assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS);
        if (n == 1) {
            memcpy(want, net.out->data, size);
        }
        assert_memory_equal(want, net.out->data, size);
        backend_end(backend);
    }
    free(want);
    ggml_free(net.ctx);
}

// Returns the bytes of work memory of TOP_K with k, or of ARGSORT if k is 0.
static size_t sort_work(int64_t n, int64_t n_rows, int k, int n_threads) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 14, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 4, false);
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n_rows);
    ggml_build_forward_expand(graph, k > 0 ? ggml_top_k(ctx, a, k) : ggml_argsort(ctx, a, GGML_SORT_ORDER_DESC));
    const size_t size = ggml_graph_plan(graph, n_threads, NULL).work_size;
    ggml_free(ctx);
    return size;
}

static void sorting_takes_memory_for_long_rows_only(void **state) {
    (void) state;
    assert_int_equal(sort_work(1024, 512, 0, 8), 0);
    assert_int_equal(sort_work(1024, 512, 1000, 8), 0);
    assert_int_equal(sort_work(256, 4096, 8, 8), 0);
    assert_int_equal(sort_work(151936, 64, 1024, 8), 0);
    assert_in_range(sort_work(151936, 1, 2048, 8), 1, 2 * 16 * 2048); // depends on k, not on the length of the row
    assert_in_range(sort_work(4096, 1, 0, 8), 1, 17 * 4096);          // one row: memory of one task
    assert_in_range(sort_work(151936, 1, 0, 8), 1, 4 * 151936 + 4096);
    assert_in_range(sort_work(151936, 1, 75968, 8), 1, 8 * 151936 + 4096);
}

// Returns whether a must come before b in a sorted row. NaN is larger than all numbers, and both zeros are equal.
static bool is_before(float a, float b, bool descending) {
    const float first = descending ? b : a, second = descending ? a : b;
    return isnan(second) ? !isnan(first) : first < second;
}

// Sorts rows that are longer than the limit for keys (KEYS_MAX in op/sort.c), with few or many different values, with NaN,
// infinities and zeros of both signs, in f32 and f16. Each index must occur once, and equal elements must keep their order.
static void long_rows_are_sorted(void **state) {
    (void) state;
    enum { ROW = 6000 };
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -NAN};
    static bool seen[ROW];
    for (int c = 0; c < 16; c++) {
        const bool descending = c & 1, is_f16 = c & 2, is_few = c & 4, is_top = c & 8;
        const int k = is_top ? ROW / 2 : ROW;
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
        struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ROW, 2);
        struct ggml_tensor *f16 = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, ROW, 2);
        float *values = x->data;
        struct check_rng rng = check_rng_new((uint64_t) c + 1);
        for (int i = 0; i < 2 * ROW; i++) {
            const uint64_t r = check_rng_next(&rng) >> 11;
            values[i] = r % 16 == 0 ? specials[r / 16 % 6] : is_few ? (float) (r % 3) : (float) (r % 60001) - 30000.0f;
        }
        ggml_fp32_to_fp16_row(values, f16->data, 2 * ROW);
        if (is_f16) {
            ggml_fp16_to_fp32_row(f16->data, values, 2 * ROW);
        }
        struct ggml_tensor *from = is_f16 ? f16 : x;
        struct ggml_tensor *t =
            is_top ? ggml_top_k(ctx, from, k) : ggml_argsort(ctx, from, descending ? GGML_SORT_ORDER_DESC : GGML_SORT_ORDER_ASC);
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, t);
        assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, 2), GGML_STATUS_SUCCESS);
        for (int row = 0; row < 2; row++) {
            int32_t *at = (int32_t *) t->data + row * k;
            const float *v = values + row * ROW;
            if (is_top) { // TOP_K swaps the first two
                const int32_t first = at[0];
                at[0] = at[1], at[1] = first;
            }
            memset(seen, 0, sizeof seen);
            for (int i = 0; i < k; i++) {
                assert_true(at[i] >= 0 && at[i] < ROW && !seen[at[i]]);
                seen[at[i]] = true;
                if (i > 0) {
                    assert_false(is_before(v[at[i]], v[at[i - 1]], descending || is_top));
                    assert_true(is_before(v[at[i - 1]], v[at[i]], descending || is_top) || at[i - 1] < at[i]);
                }
            }
            for (int i = 0; i < ROW; i++) { // elements that were left out must be smaller
                assert_false(!seen[i] && is_before(v[i], v[at[k - 1]], true));
            }
        }
        ggml_free(ctx);
    }
}

static void work_memory_is_known_before(void **state) {
    (void) state;
    struct net net = net_new();
    ggml_backend_t backend = backend_new(3);
    assert_int_equal(berth_cpu_work_size(backend), 0);
    const size_t need = berth_cpu_graph_work_size(backend, net.graph);
    assert_true(need >= 256 * 64 * 2);
    compute(backend, net.graph);
    assert_int_equal(berth_cpu_work_size(backend), need);
    backend_end(backend);

    struct ggml_cplan plan = ggml_graph_plan(net.graph, 3, NULL);
    assert_int_equal(plan.work_size, need);
    assert_int_equal(ggml_graph_compute(net.graph, &plan), GGML_STATUS_FAILED); // work_data is NULL
    plan.work_data = malloc(need);
    plan.work_size = need / 2;
    assert_int_equal(ggml_graph_compute(net.graph, &plan), GGML_STATUS_FAILED);
    free(plan.work_data);
    assert_int_equal(ggml_graph_compute_with_ctx(net.ctx, net.graph, 2), GGML_STATUS_SUCCESS);
    ggml_free(net.ctx);
}

static bool count_down(void *data) {
    return --*(int *) data == 0;
}

static void aborts_end_within_one_op(void **state) {
    (void) state;
    struct net net = net_new();
    for (int n = 1; n <= 4; n += 3) {
        ggml_backend_t backend = backend_new(n);
        int n_ops = 1 << 30;
        ggml_backend_cpu_set_abort_callback(backend, count_down, &n_ops);
        assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS);
        const int n_all = (1 << 30) - n_ops;
        for (int at = 1; at <= n_all; at++) {
            n_ops = at;
            assert_int_equal(compute(backend, net.graph), GGML_STATUS_ABORTED);
            assert_int_equal(n_ops, 0); // the callback is not called after it returned true
        }
        n_ops = n_all + 1;
        assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS);
        ggml_backend_cpu_set_abort_callback(backend, NULL, NULL);
        assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS);
        backend_end(backend);
    }
    ggml_free(net.ctx);
}

static void invalid_graphs_are_reported(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    ggml_backend_t backend = backend_new(2);
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 4);
    struct ggml_tensor *b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 7, 4);

    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_mul_mat(ctx, a, b));
    assert_int_equal(compute(backend, graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "poison"));

    struct ggml_tensor *invalid = ggml_sqr(ctx, a);
    invalid->op = GGML_OP_COUNT;
    graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, invalid);
    assert_int_equal(compute(backend, graph), GGML_STATUS_FAILED);
    invalid->op = GGML_OP_SQR;
    invalid->type = GGML_TYPE_I64;
    assert_int_equal(compute(backend, graph), GGML_STATUS_FAILED);
    invalid->type = GGML_TYPE_F32;
    void *data = a->data;
    a->data = NULL;
    assert_int_equal(compute(backend, graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "memory"));
    a->data = data;
    assert_int_equal(compute(backend, graph), GGML_STATUS_SUCCESS);

    struct ggml_tensor *past = ggml_view_2d(ctx, a, 8, 2, 3 * a->nb[1], a->nb[1]); // rows 1 and 4 of 4
    graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_cont(ctx, past));
    assert_int_equal(compute(backend, graph), GGML_STATUS_FAILED);
    past->nb[1] = 2 * a->nb[1];
    assert_int_equal(compute(backend, graph), GGML_STATUS_SUCCESS);

    assert_int_equal(ggml_graph_compute(NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(ggml_graph_plan(NULL, 4, NULL).work_size, 0);
    backend_end(backend);
    ggml_free(ctx);
}

static void bad_row_indices_fail_the_compute(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 16 << 20});
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 256, 100);
    struct ggml_tensor *rows = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1000);
    struct ggml_tensor *got = ggml_get_rows(ctx, a, rows);
    struct ggml_tensor *after = ggml_sqr(ctx, got);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, after);
    ggml_set_f32(a, 2.0f);
    ggml_set_i32(rows, 99);
    ggml_backend_t backend = backend_new(4);
    assert_int_equal(compute(backend, graph), GGML_STATUS_SUCCESS);
    assert_true(ggml_get_f32_1d(after, 77) == 4.0f);
    static const int32_t bad[] = {100, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        ggml_set_i32_1d(rows, 700, bad[i]);
        assert_int_equal(compute(backend, graph), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "GET_ROWS"));
    }
    ggml_set_i32_1d(rows, 700, 0);
    assert_int_equal(compute(backend, graph), GGML_STATUS_SUCCESS);
    backend_end(backend);
    ggml_free(ctx);
}

static void unflagged_nodes_are_skipped(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    struct ggml_tensor *b = ggml_sqr(ctx, a);
    struct ggml_tensor *c = ggml_sqr(ctx, b);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, c);
    ggml_set_f32(a, 2.0f);
    ggml_set_f32(b, 3.0f);
    b->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_SUCCESS);
    assert_true(ggml_get_f32_1d(c, 0) == 9.0f);
    ggml_free(ctx);
}

struct seen {
    atomic_int n[8];
    atomic_int nth;
};

static void custom(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata) {
    struct seen *seen = userdata;
    (void) dst, (void) a;
    atomic_fetch_add(&seen->n[ith], 1);
    atomic_store(&seen->nth, nth);
}

static void custom_ops_get_their_tasks(void **state) {
    (void) state;
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        for (int n_tasks = -1; n_tasks <= 6; n_tasks++) {
            if (n_tasks == 0) {
                continue;
            }
            struct seen seen = {0};
            struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
            struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
            struct ggml_cgraph *graph = ggml_new_graph(ctx);
            ggml_build_forward_expand(graph, ggml_map_custom1(ctx, a, custom, n_tasks, &seen));
            assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, n_threads), GGML_STATUS_SUCCESS);
            const int want = n_tasks == -1 || n_tasks > n_threads ? n_threads : n_tasks;
            assert_int_equal(atomic_load(&seen.nth), want);
            for (int i = 0; i < 8; i++) {
                assert_int_equal(atomic_load(&seen.n[i]), i < want);
            }
            ggml_free(ctx);
        }
    }
}

static void plans_compute_repeatedly(void **state) {
    (void) state;
    struct net net = net_new();
    ggml_backend_t backend = backend_new(3);
    ggml_backend_graph_plan_t plan = backend->iface.graph_plan_create(backend, net.graph);
    assert_non_null(plan);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(backend->iface.graph_plan_compute(backend, plan), GGML_STATUS_SUCCESS);
    }
    backend->iface.graph_plan_free(backend, plan);
    backend_end(backend);
    ggml_free(net.ctx);
}

static void pools_of_the_user_are_used(void **state) {
    (void) state;
    struct net net = net_new();
    ggml_backend_t backend = backend_new(4);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(2);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    const int before = n_threads_now();
    ggml_backend_cpu_set_threadpool(backend, pool);
    assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS); // 4 threads requested, the pool has 2
    assert_int_equal(n_threads_now(), before);
    ggml_backend_cpu_set_threadpool(backend, NULL);
    assert_int_equal(compute(backend, net.graph), GGML_STATUS_SUCCESS);
    backend_end(backend);
    ggml_threadpool_free(pool);
    ggml_free(net.ctx);
}

static void every_failed_allocation_is_survived(void **state) {
    (void) state;
    struct net net = net_new();
    bool all_well = false;
    for (int64_t n = 1; !all_well; n++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        ggml_backend_t backend = ggml_backend_cpu_init();
        if (backend != NULL) {
            const enum ggml_status a = compute(backend, net.graph);
            ggml_backend_graph_plan_t plan = backend->iface.graph_plan_create(backend, net.graph);
            const enum ggml_status b = plan != NULL ? backend->iface.graph_plan_compute(backend, plan) : GGML_STATUS_ALLOC_FAILED;
            backend->iface.graph_plan_free(backend, plan);
            backend_end(backend);
            // Repeat until there are fewer than n allocations.
            all_well = a == GGML_STATUS_SUCCESS && b == GGML_STATUS_SUCCESS && berth_alloc_made() < n;
        }
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        assert_true(n < 100);
    }
    ggml_free(net.ctx);
}

static void scalars_of_every_type(void **state) {
    (void) state;
    static const enum ggml_type types[] = {
        GGML_TYPE_I8, GGML_TYPE_I16, GGML_TYPE_I32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_F32};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    for (size_t i = 0; i < 6; i++) {
        struct ggml_tensor *t = ggml_new_tensor_2d(ctx, types[i], 5, 3);
        struct ggml_tensor *transposed = ggml_transpose(ctx, t);
        assert_ptr_equal(ggml_set_i32(t, 7), t);
        assert_int_equal(ggml_get_i32_1d(t, 14), 7);
        ggml_set_f32_1d(t, 6, -3.0f); // column 1 of row 1
        assert_true(ggml_get_f32_nd(transposed, 1, 1, 0, 0) == -3.0f);
        assert_int_equal(ggml_get_i32_1d(transposed, 1 * 3 + 1), -3);
        ggml_set_i32_nd(transposed, 2, 4, 0, 0, 11);
        assert_true(ggml_get_f32_1d(t, 2 * 5 + 4) == 11.0f);
        ggml_set_i32_1d(t, 15, 1); // out of range: refused
        assert_int_equal(ggml_get_i32_1d(t, -1), 0);
        assert_int_equal(ggml_get_i32_nd(t, 0, 3, 0, 0), 0);
    }
    assert_true(ggml_get_f32_1d(ggml_new_f32(ctx, 2.5f), 0) == 2.5f);
    assert_int_equal(ggml_get_i32_1d(ggml_new_i32(ctx, -8), 0), -8);
    assert_true(ggml_get_f32_1d(NULL, 0) == 0.0f);
    ggml_free(ctx);
}

static void the_device_reports_its_properties(void **state) {
    (void) state;
    ggml_backend_reg_t reg = ggml_backend_cpu_reg();
    assert_int_equal(reg->api_version, GGML_BACKEND_API_VERSION);
    assert_int_equal(reg->iface.get_device_count(reg), 1);
    assert_null(reg->iface.get_device(reg, 1));
    ggml_backend_dev_t dev = reg->iface.get_device(reg, 0);
    struct ggml_backend_dev_props props;
    dev->iface.get_props(dev, &props);
    assert_string_equal(props.name, "CPU");
    assert_true(props.memory_total >= props.memory_free && props.memory_free > 0);
    assert_true(props.caps.mmap_support && props.caps.buffer_from_host_ptr);
    static const char *const procs[] = {"ggml_backend_set_n_threads", "ggml_backend_dev_get_extra_bufts",
        "ggml_backend_get_features", "ggml_backend_set_abort_callback", "ggml_backend_cpu_numa_init", "ggml_backend_cpu_is_numa",
        "ggml_backend_cpu_set_use_ref", "ggml_backend_cpu_set_threadpool", "ggml_threadpool_new", "ggml_threadpool_free",
        "berth_cpu_work_size"};
    for (size_t i = 0; i < sizeof procs / sizeof procs[0]; i++) {
        assert_non_null(reg->iface.get_proc_address(reg, procs[i]));
    }
    assert_null(reg->iface.get_proc_address(reg, "no_such_thing"));
    assert_null(reg->iface.get_proc_address(reg, NULL));
    ggml_backend_t backend = dev->iface.init_backend(dev, NULL);
    assert_true(ggml_backend_is_cpu(backend));
    assert_false(ggml_backend_is_cpu(NULL));
    backend_end(backend);
}

int main(void) {
    check_quiet();
    setenv("BERTH_CPU_OVERSUBSCRIBE", "1", 1); // four threads even with two processors
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_computes_allocate_nothing),
        cmocka_unit_test(more_threads_than_processors_are_not_much_slower),
        cmocka_unit_test(threads_agree_to_the_bit),
        cmocka_unit_test(work_memory_is_known_before),
        cmocka_unit_test(sorting_takes_memory_for_long_rows_only),
        cmocka_unit_test(long_rows_are_sorted),
        cmocka_unit_test(aborts_end_within_one_op),
        cmocka_unit_test(invalid_graphs_are_reported),
        cmocka_unit_test(bad_row_indices_fail_the_compute),
        cmocka_unit_test(unflagged_nodes_are_skipped),
        cmocka_unit_test(custom_ops_get_their_tasks),
        cmocka_unit_test(plans_compute_repeatedly),
        cmocka_unit_test(pools_of_the_user_are_used),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(scalars_of_every_type),
        cmocka_unit_test(the_device_reports_its_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

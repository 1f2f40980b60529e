// SPDX-License-Identifier: MIT
// test_cpu_process.c: the threads of the CPU backend and the process around them: computes in a forked child, ops that compute a
// graph themselves, signals, and a process that exits during a compute.

#include "support/check.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

// Thread sanitizers do not support threads in a forked child.
#ifdef __SANITIZE_THREAD__
#    define SKIP_FORKS() skip()
#else
#    define SKIP_FORKS() ((void) 0)
#endif

#define N_THREADS 2
#define PATIENCE_S 60 // a child that runs longer counts as hung; slow machines need less

static struct ggml_context *arena(void) {
    check_quiet();
    setenv("BERTH_CPU_OVERSUBSCRIBE", "1", 1); // two threads on any machine
    return ggml_init((struct ggml_init_params){.mem_size = 64u << 20});
}

// A graph that is large enough for two threads, and its result.
struct sums {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *sum;
};

static struct sums sums_new(void) {
    struct sums s = {.ctx = arena()};
    struct ggml_tensor *a = ggml_new_tensor_2d(s.ctx, GGML_TYPE_F32, 1024, 256);
    for (int64_t i = 0; i < ggml_nelements(a); i++) {
        ((float *) a->data)[i] = 0.5f;
    }
    s.sum = ggml_sum(s.ctx, ggml_add(s.ctx, a, a));
    s.graph = ggml_new_graph(s.ctx);
    ggml_build_forward_expand(s.graph, s.sum);
    return s;
}

static bool is_right(const struct sums *s) {
    const bool right = *(const float *) s->sum->data == 1024.0f * 256.0f;
    *(float *) s->sum->data = 0.0f;
    return right;
}

// Returns whether condition(arg) is true in a forked child, within PATIENCE_S.
static bool in_child(bool (*condition)(void *arg), void *arg) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(PATIENCE_S);
        _exit(condition(arg) ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// ---- fork ----

struct on_backend {
    struct sums s;
    ggml_backend_t cpu;
};

static bool backend_computes(void *arg) {
    struct on_backend *b = arg;
    for (int i = 0; i < 3; i++) {
        if (ggml_backend_graph_compute(b->cpu, b->s.graph) != GGML_STATUS_SUCCESS || !is_right(&b->s)) {
            return false;
        }
    }
    return true;
}

static bool grandchild_computes(void *arg) {
    return backend_computes(arg) && in_child(backend_computes, arg);
}

static bool child_frees(void *arg) {
    struct on_backend *b = arg;
    ggml_backend_free(b->cpu);
    return true;
}

static void test_fork_with_a_pool_of_the_backend(void **state) {
    (void) state;
    SKIP_FORKS();
    struct on_backend b = {sums_new(), ggml_backend_cpu_init()};
    ggml_backend_cpu_set_n_threads(b.cpu, N_THREADS);
    assert_true(backend_computes(&b));
    assert_true(in_child(backend_computes, &b));
    assert_true(in_child(grandchild_computes, &b));
    assert_true(in_child(child_frees, &b));
    assert_true(backend_computes(&b));
    ggml_backend_free(b.cpu);
    ggml_free(b.s.ctx);
}

static void test_fork_with_a_pool_of_the_caller(void **state) {
    (void) state;
    SKIP_FORKS();
    struct on_backend b = {sums_new(), ggml_backend_cpu_init()};
    struct ggml_threadpool_params params = ggml_threadpool_params_default(N_THREADS);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    ggml_backend_cpu_set_n_threads(b.cpu, N_THREADS);
    ggml_backend_cpu_set_threadpool(b.cpu, pool);
    assert_true(backend_computes(&b));
    assert_true(in_child(backend_computes, &b));
    assert_true(backend_computes(&b));
    ggml_backend_free(b.cpu);
    ggml_threadpool_free(pool);
    ggml_free(b.s.ctx);
}

// Computes in the spare pool (cpu_pool_borrow in src/cpu/pool.c), because the caller passes no thread pool.
static bool spare_computes(void *arg) {
    struct sums *s = arg;
    return ggml_graph_compute_with_ctx(s->ctx, s->graph, N_THREADS) == GGML_STATUS_SUCCESS && is_right(s);
}

static void test_fork_with_the_spare_pool(void **state) {
    (void) state;
    SKIP_FORKS();
    struct sums s = sums_new();
    assert_true(spare_computes(&s));
    assert_true(in_child(spare_computes, &s));
    assert_true(spare_computes(&s));
    ggml_free(s.ctx);
}

// A thread computes continuously while another one forks. Locks that the first thread holds at the fork have no owner in the child.
static atomic_bool busy_end;

static void *keep_computing(void *arg) {
    while (!atomic_load(&busy_end)) {
        (void) ggml_graph_compute_with_ctx(((struct sums *) arg)->ctx, ((struct sums *) arg)->graph, N_THREADS);
        ggml_free(((struct sums *) arg)->ctx);
        *(struct sums *) arg = sums_new();
    }
    return NULL;
}

static void test_fork_while_another_thread_computes(void **state) {
    (void) state;
    SKIP_FORKS();
    struct sums theirs = sums_new(), mine = sums_new();
    pthread_t thread;
    atomic_store(&busy_end, false);
    assert_int_equal(pthread_create(&thread, NULL, keep_computing, &theirs), 0);
    for (int i = 0; i < 20; i++) {
        assert_true(in_child(spare_computes, &mine));
    }
    atomic_store(&busy_end, true);
    pthread_join(thread, NULL);
    ggml_free(theirs.ctx);
    ggml_free(mine.ctx);
}

// ---- ops that compute ----

static struct {
    ggml_backend_t cpu;
    struct ggml_threadpool *pool;
    struct ggml_cgraph *graph;
    enum ggml_status status;
    char error[256];
} inner;

static void op_that_computes(struct ggml_tensor *dst, int ith, int nth, void *data) {
    (void) dst, (void) nth, (void) data;
    if (ith != (data != NULL ? nth - 1 : 0)) {
        return;
    }
    if (inner.cpu != NULL) {
        inner.status = ggml_backend_graph_compute(inner.cpu, inner.graph);
    } else {
        struct ggml_cplan plan = ggml_graph_plan(inner.graph, N_THREADS, inner.pool);
        plan.work_data = calloc(1, plan.work_size + 1);
        inner.status = ggml_graph_compute(inner.graph, &plan);
        free(plan.work_data);
    }
    snprintf(inner.error, sizeof inner.error, "%s", berth_last_error());
}

static struct ggml_cgraph *outer_graph(struct ggml_context *ctx, bool on_a_worker) {
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1024, 256);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    memset(a->data, 0, ggml_nbytes(a));
    ggml_build_forward_expand(graph, ggml_custom_4d(ctx, GGML_TYPE_F32, 1024, 256, 1, 1, &a, 1, op_that_computes,
                                         GGML_N_TASKS_MAX, on_a_worker ? &inner : NULL));
    return graph;
}

static bool op_computes_on_its_backend(void *on_a_worker) {
    struct on_backend b = {sums_new(), ggml_backend_cpu_init()};
    struct ggml_cgraph *outer = outer_graph(b.s.ctx, on_a_worker != NULL);
    ggml_backend_cpu_set_n_threads(b.cpu, N_THREADS);
    inner.cpu = b.cpu;
    inner.graph = b.s.graph;
    const bool refused = ggml_backend_graph_compute(b.cpu, outer) == GGML_STATUS_SUCCESS && inner.status == GGML_STATUS_FAILED &&
                         strstr(inner.error, "computes on the backend") != NULL;
    return refused && backend_computes(&b);
}

static bool op_computes_on_its_pool(void *on_a_worker) {
    struct sums s = sums_new();
    struct ggml_threadpool_params params = ggml_threadpool_params_default(N_THREADS);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    struct ggml_cgraph *outer = outer_graph(s.ctx, on_a_worker != NULL);
    inner.cpu = NULL;
    inner.pool = pool;
    inner.graph = s.graph;
    struct ggml_cplan plan = ggml_graph_plan(outer, N_THREADS, pool);
    return ggml_graph_compute(outer, &plan) == GGML_STATUS_SUCCESS && inner.status == GGML_STATUS_FAILED &&
           strstr(inner.error, "thread pool") != NULL;
}

// An op may compute on another backend or on the spare pool.
static bool op_computes_elsewhere(void *on_a_worker) {
    struct on_backend b = {sums_new(), ggml_backend_cpu_init()};
    struct ggml_cgraph *outer = outer_graph(b.s.ctx, on_a_worker != NULL);
    ggml_backend_cpu_set_n_threads(b.cpu, N_THREADS);
    inner.cpu = ggml_backend_cpu_init();
    inner.graph = b.s.graph;
    ggml_backend_cpu_set_n_threads(inner.cpu, N_THREADS);
    const bool on_another =
        ggml_backend_graph_compute(b.cpu, outer) == GGML_STATUS_SUCCESS && inner.status == GGML_STATUS_SUCCESS && is_right(&b.s);
    inner.cpu = NULL;
    inner.pool = NULL;
    return on_another && ggml_backend_graph_compute(b.cpu, outer) == GGML_STATUS_SUCCESS && inner.status == GGML_STATUS_SUCCESS &&
           is_right(&b.s);
}

static void test_ops_that_compute(void **state) {
    (void) state;
    SKIP_FORKS();
    for (int i = 0; i < 2; i++) { // in children, so that a hang does not stop this process
        void *on_a_worker = i == 1 ? &inner : NULL;
        assert_true(in_child(op_computes_on_its_backend, on_a_worker));
        assert_true(in_child(op_computes_on_its_pool, on_a_worker));
        assert_true(in_child(op_computes_elsewhere, on_a_worker));
    }
}

// ---- signals ----

static pthread_t signalled;
static atomic_int n_signals;

static void record_thread(int number) {
    (void) number;
    signalled = pthread_self();
    atomic_fetch_add(&n_signals, 1);
}

static void test_workers_take_no_signals(void **state) {
    (void) state;
    struct sums s = sums_new();
    struct ggml_threadpool_params params = ggml_threadpool_params_default(4);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    signal(SIGUSR1, record_thread);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL); // only a worker could take it now
    atomic_store(&n_signals, 0);
    kill(getpid(), SIGUSR1);
    usleep(100000);
    assert_int_equal(atomic_load(&n_signals), 0);
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    assert_int_equal(atomic_load(&n_signals), 1);
    assert_true(pthread_equal(signalled, pthread_self()));
    signal(SIGUSR1, SIG_DFL);
    ggml_threadpool_free(pool);
    ggml_free(s.ctx);
}

// ---- the end of the process ----

static int exit_while_computing(void) {
    static struct sums theirs;
    theirs = sums_new();
    pthread_t thread;
    atomic_store(&busy_end, false);
    if (pthread_create(&thread, NULL, keep_computing, &theirs) != 0) {
        return 1;
    }
    usleep(20000);
    exit(0); // runs the destructors of the library
}

// Runs in a separate process, so that thread sanitizers can check it.
static bool exits_while_computing(void *arg) {
    (void) arg;
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);        // memory that a thread holds at the exit is not freed
    setenv("TSAN_OPTIONS", "report_thread_leaks=0", 1); // its threads are not joined
    return execl("/proc/self/exe", "test_cpu_process", "exit", (char *) NULL) == 0;
}

static void test_exit_while_the_spare_pool_computes(void **state) {
    (void) state;
    for (int i = 0; i < 5; i++) {
        assert_true(in_child(exits_while_computing, NULL));
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "exit") == 0) {
        return exit_while_computing();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_with_a_pool_of_the_backend),
        cmocka_unit_test(test_fork_with_a_pool_of_the_caller),
        cmocka_unit_test(test_fork_with_the_spare_pool),
        cmocka_unit_test(test_fork_while_another_thread_computes),
        cmocka_unit_test(test_ops_that_compute),
        cmocka_unit_test(test_workers_take_no_signals),
        cmocka_unit_test(test_exit_while_the_spare_pool_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

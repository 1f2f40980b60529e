// SPDX-License-Identifier: MIT
// test_cpu_pool.c: the thread pool: every job reaches every thread, idle threads sleep, and more threads than processors make
// progress.

#include "support/check.h"

#include "cpu/pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 8

static struct ggml_threadpool *pool_of(int n) {
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    assert_non_null(pool);
    assert_int_equal(ggml_threadpool_get_n_threads(pool), n);
    return pool;
}

struct counts {
    atomic_int n[MAX_THREADS];
};

static void count_job(void *arg, int ith) {
    struct counts *c = arg;
    atomic_fetch_add(&c->n[ith], 1);
}

static void every_thread_gets_every_job(void **state) {
    (void) state;
    for (int n = 1; n <= MAX_THREADS; n++) {
        struct ggml_threadpool *pool = pool_of(n);
        struct counts c = {0};
        int want[MAX_THREADS] = {0};
        for (int i = 0; i < 2000; i++) {
            const int m = 1 + i % n; // includes jobs for fewer threads than the pool has
            cpu_pool_run(pool, m, count_job, &c);
            for (int t = 0; t < m; t++) {
                want[t]++;
            }
        }
        for (int t = 0; t < MAX_THREADS; t++) {
            assert_int_equal(atomic_load(&c.n[t]), want[t]);
        }
        ggml_threadpool_free(pool);
    }
}

// ---- the barrier ----

struct steps {
    struct cpu_gate gate;
    int n;
    bool spin;
    int serial; // incremented by the last thread to arrive
    int seen[MAX_THREADS];
    atomic_int n_wrong;
};

static void step_serial(void *arg) {
    struct steps *s = arg;
    s->serial++;
}

static void step_job(void *arg, int ith) {
    struct steps *s = arg;
    for (int i = 0; i < 1000; i++) {
        s->seen[ith] = i;
        cpu_gate_pass(&s->gate, s->n, s->spin, step_serial, s);
        for (int t = 0; t < s->n; t++) {
            if (s->seen[t] != i || s->serial != 2 * i + 1) {
                atomic_fetch_add(&s->n_wrong, 1);
            }
        }
        cpu_gate_pass(&s->gate, s->n, s->spin, step_serial, s);
    }
}

static void no_thread_passes_the_barrier_early(void **state) {
    (void) state;
    struct ggml_threadpool *pool = pool_of(MAX_THREADS);
    for (int n = 2; n <= MAX_THREADS; n += 3) {
        for (int spin = 0; spin < 2; spin++) {
            struct steps s = {.n = n, .spin = spin};
            cpu_gate_init(&s.gate);
            cpu_pool_run(pool, n, step_job, &s);
            assert_int_equal(atomic_load(&s.n_wrong), 0);
            assert_int_equal(s.serial, 2000);
        }
    }
    ggml_threadpool_free(pool);
}

// ---- sleeping ----

static double process_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec * 1e-6;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void idle_threads_sleep(void **state) {
    (void) state;
    static const uint32_t polls[] = {0, 50, 100};
    for (size_t i = 0; i < 3; i++) {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(2);
        params.poll = polls[i];
        struct ggml_threadpool *pool = ggml_threadpool_new(&params);
        struct counts c = {0};
        cpu_pool_run(pool, 2, count_job, &c);
        sleep_ms(polls[i] == 100 ? 4 : 2);
        double spent = 100;
        // Measures up to ten times, because a thread that had to wait for a processor may still spin at first.
        for (int look = 0; look < 10 && spent >= 2.0; look++) {
            const double before = process_ms();
            sleep_ms(100);
            spent = process_ms() - before;
            printf("poll %u: %.3f ms of CPU in 100 ms\n", polls[i], spent);
        }
        assert_true(spent < 2.0);
        cpu_pool_run(pool, 2, count_job, &c); // the threads wake up again
        assert_int_equal(atomic_load(&c.n[1]), 2);
        ggml_threadpool_free(pool);
    }
}

static void paused_pools_compute(void **state) {
    (void) state;
    struct ggml_threadpool_params params = ggml_threadpool_params_default(3);
    params.paused = true;
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    struct counts c = {0};
    cpu_pool_run(pool, 3, count_job, &c);
    ggml_threadpool_pause(pool);
    cpu_pool_run(pool, 3, count_job, &c);
    ggml_threadpool_resume(pool);
    cpu_pool_run(pool, 3, count_job, &c);
    assert_int_equal(atomic_load(&c.n[2]), 3);
    ggml_threadpool_free(pool);
}

// ---- parameters ----

struct places {
    int n_cpus[MAX_THREADS], first[MAX_THREADS];
};

static void place_job(void *arg, int ith) {
    struct places *p = arg;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    p->n_cpus[ith] = CPU_COUNT(&set);
    for (int i = CPU_SETSIZE - 1; i >= 0; i--) {
        if (CPU_ISSET(i, &set)) {
            p->first[ith] = i;
        }
    }
}

static void affinity_binds(void **state) {
    (void) state;
    cpu_set_t before;
    sched_getaffinity(0, sizeof before, &before);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(2);
    int cpus[2] = {-1, -1}, n = 0;
    for (int i = 0; i < GGML_MAX_N_THREADS && n < 2; i++) {
        if (CPU_ISSET(i, &before)) {
            cpus[n++] = i;
            params.cpumask[i] = true;
        }
    }
    params.strict_cpu = true;
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    struct places p = {0};
    cpu_pool_run(pool, 2, place_job, &p);
    assert_int_equal(p.n_cpus[0], 1);
    assert_int_equal(p.n_cpus[1], 1);
    assert_int_equal(p.first[0], cpus[0]);
    assert_int_equal(p.first[1], cpus[n > 1]);
    assert_int_equal(cpu_pool_n_cpus(pool), n);
    ggml_threadpool_free(pool);
    sched_setaffinity(0, sizeof before, &before);
}

static void wrong_parameters_are_refused(void **state) {
    (void) state;
    struct ggml_threadpool_params params = ggml_threadpool_params_default(0);
    assert_null(ggml_threadpool_new(NULL));
    assert_null(ggml_threadpool_new(&params));
    params.n_threads = GGML_MAX_N_THREADS + 1;
    assert_null(ggml_threadpool_new(&params));
    ggml_threadpool_free(NULL);
    ggml_threadpool_pause(NULL);
    ggml_threadpool_resume(NULL);
    assert_int_equal(ggml_threadpool_get_n_threads(NULL), 0);
}

static void every_failed_allocation_is_survived(void **state) {
    (void) state;
    for (int64_t n = 1;; n++) {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(4);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        struct ggml_threadpool *pool = ggml_threadpool_new(&params);
        berth_alloc_fail_at(0);
        ggml_threadpool_free(pool);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        if (pool != NULL) {
            assert_true(n > 1);
            break;
        }
    }
}

// ---- the spare pool ----

static void borrowed_pools_are_kept(void **state) {
    (void) state;
    struct ggml_threadpool *a = cpu_pool_borrow(3);
    struct ggml_threadpool *b = cpu_pool_borrow(2); // while a is in use
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    struct counts c = {0};
    cpu_pool_run(a, 3, count_job, &c);
    cpu_pool_run(b, 2, count_job, &c);
    cpu_pool_return(a);
    cpu_pool_return(b);
    struct ggml_threadpool *same_pool = cpu_pool_borrow(5); // the pool grows
    assert_ptr_equal(same_pool, a);
    cpu_pool_run(same_pool, 5, count_job, &c);
    assert_int_equal(atomic_load(&c.n[0]), 3);
    assert_int_equal(atomic_load(&c.n[4]), 1);
    cpu_pool_return(same_pool);
}

static void forked_children_get_their_own_threads(void **state) {
    (void) state;
#ifdef __SANITIZE_THREAD__
    skip(); // thread sanitizers do not support threads in a forked child
#endif
    struct ggml_threadpool *pool = cpu_pool_borrow(3);
    cpu_pool_return(pool);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct counts c = {0};
        struct ggml_threadpool *mine = cpu_pool_borrow(3);
        cpu_pool_run(mine, 3, count_job, &c);
        cpu_pool_return(mine);
        _exit(atomic_load(&c.n[2]) == 1 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_gets_every_job),
        cmocka_unit_test(no_thread_passes_the_barrier_early),
        cmocka_unit_test(idle_threads_sleep),
        cmocka_unit_test(paused_pools_compute),
        cmocka_unit_test(affinity_binds),
        cmocka_unit_test(wrong_parameters_are_refused),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(borrowed_pools_are_kept),
        cmocka_unit_test(forked_children_get_their_own_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// pool.c: thread pools. Running a job allocates no memory and starts no thread.
// Terms:
//   - A worker is a thread that the pool started. The caller is thread 0.
//   - A ticket is a word that announces a job. Its upper bits are a counter. Its lower bits are the number n of threads of the
//     job.
//   - A lane is a ticket with the workers that watch it. Lane 0 has the workers with ith below the number of processors. Lane 1
//     has the other workers.
// Invariants:
//   1. The job (`job`, `arg`) is written before its ticket, with release order. The job stays valid until n_busy is 0.
//   2. n_busy counts the workers with ith < n that have not finished the job. The next ticket is written only after n_busy is 0.
//      So a worker with ith < n never misses the ticket. A worker with ith >= n may miss the ticket, but it never reads the job.
//   3. Before sleeping, a worker increments n_idle, then reads the ticket. A posting thread changes the ticket, then reads
//      n_idle. All four accesses are sequentially consistent, so no wake-up is lost.
// Idle workers spin for `poll` * 20 us (default of poll: 50), then sleep. Workers of lane 1 or of a paused pool never spin. A job
// for no more threads than processors does not wake lane 1.
//
// Threads do not survive a fork. The child process increments `generation` (after_fork). If the threads of a pool belong to an
// earlier generation, the pool restarts them before its next job. Workers block all signals except those they raise, such as
// SIGSEGV.

#include "cpu/pool.h"

#include "base/min.h"
#include "cpu/affinity.h"
#include "cpu/futex.h"
#include "cpu/numa.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TICKET_THREADS_MASK 1023u
#define TICKET_STEP 1024u
#define POLL_STEP_NS 20000
// A thread that waits for threads of the same job spins until GATE_SPIN_NS, yields until GATE_YIELD_NS, and then sleeps. A
// wake-up takes about GATE_YIELD_NS, so sleeping earlier would not pay.
#define GATE_SPIN_NS 30000
#define GATE_YIELD_NS 1000000
_Static_assert(GGML_MAX_N_THREADS <= TICKET_THREADS_MASK, "a ticket holds the number of threads");

struct worker {
    struct ggml_threadpool *pool;
    int ith;
    unsigned seen; // ticket of its lane when the thread was started
    bool on_node;  // the NUMA strategy has bound the thread; only the running thread itself uses this field
    pthread_t thread;
};

struct lane {
    _Alignas(64) atomic_uint ticket;
    atomic_uint n_idle; // threads that sleep until ticket changes
};

struct ggml_threadpool {
    pthread_mutex_t job_lock; // serialises jobs, pauses and growth
    atomic_int n_threads;     // includes the caller; read while the pool grows
    int n_started;            // workers[1 .. n_started-1] are running
    int n_cpus;               // processors that the pool can use if no NUMA strategy is set
    bool is_oversubscribed;   // BERTH_CPU_OVERSUBSCRIBE=1: n_cpus is GGML_MAX_N_THREADS
    atomic_uint born;         // value of `generation` when the threads were started
    struct ggml_threadpool_params params;
    bool has_mask;
    atomic_bool paused;
    pthread_t placed; // last caller bound as thread 0, if is_placed
    bool is_placed;
    cpu_set_t *caller_set; // caller's affinity to restore; NULL before first use

    cpu_job_t job;
    void *arg;
    bool stop; // the threads have to end
    struct worker *workers;

    struct lane lanes[2];            // 0: workers with ith < n_cpus; 1: workers with ith >= n_cpus
    _Alignas(64) atomic_uint n_busy; // workers still running; the caller waits for 0
    atomic_uint caller_waits;        // 1: the caller sleeps
};

// Number of forks since the library was loaded.
static atomic_uint generation;
static pthread_mutex_t renew_lock = PTHREAD_MUTEX_INITIALIZER; // serialises restarts of threads after a fork

static bool is_from_before_fork(const struct ggml_threadpool *pool) {
    return atomic_load_explicit(&pool->born, memory_order_acquire) != atomic_load_explicit(&generation, memory_order_relaxed);
}

// ---- the threads ----

// The mask of a pool has priority over the NUMA strategy, which may be set after the pool was created.
int cpu_pool_n_cpus(const struct ggml_threadpool *pool) {
    const struct cpu_numa *numa = pool->has_mask || pool->is_oversubscribed ? NULL : cpu_numa_active();
    return numa != NULL ? cpu_numa_n_cpus(numa) : pool->n_cpus;
}

static void apply_place(const struct ggml_threadpool *pool, int ith) {
    cpu_place_priority(pool->params.prio);
    if (pool->has_mask) {
        cpu_place_mask(&pool->params, ith);
    }
}

static struct lane *lane_of(struct ggml_threadpool *pool, int ith) {
    return &pool->lanes[ith >= pool->n_cpus];
}

static int64_t idle_spin_ns(const struct ggml_threadpool *pool, int ith) {
    if (ith >= cpu_pool_n_cpus(pool)) {
        return 0;
    }
    const uint32_t poll = pool->params.poll;
    return (int64_t) min_u32(poll, 100) * POLL_STEP_NS;
}

// Waits until the ticket of worker ith's lane differs from `seen`. Returns the new ticket.
static unsigned ticket_wait(struct ggml_threadpool *pool, int ith, unsigned seen) {
    struct lane *lane = lane_of(pool, ith);
    const int64_t spin_ns = idle_spin_ns(pool, ith);
    if (spin_ns > 0) {
        const int64_t end = park_now_ns() + spin_ns;
        do {
            for (int i = 0; i < 64; i++) {
                const unsigned now = atomic_load_explicit(&lane->ticket, memory_order_acquire);
                if (now != seen) {
                    return now;
                }
                park_relax();
            }
        } while (!atomic_load_explicit(&pool->paused, memory_order_relaxed) && park_now_ns() < end);
    }
    atomic_fetch_add(&lane->n_idle, 1);
    unsigned now;
    while ((now = atomic_load(&lane->ticket)) == seen) {
        park_wait(&lane->ticket, seen);
    }
    atomic_fetch_sub(&lane->n_idle, 1);
    return now;
}

static void job_leave(struct ggml_threadpool *pool) {
    if (atomic_fetch_sub(&pool->n_busy, 1) == 1 && atomic_load(&pool->caller_waits) != 0) {
        park_wake_all(&pool->n_busy);
    }
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct ggml_threadpool *pool = w->pool;
    unsigned seen = w->seen;
    apply_place(pool, w->ith);
    for (;;) {
        seen = ticket_wait(pool, w->ith, seen);
        if ((unsigned) w->ith >= (seen & TICKET_THREADS_MASK)) {
            continue;
        }
        const bool stop = pool->stop;
        if (!stop) {
            w->on_node = w->on_node || (!pool->has_mask && cpu_place_node(w->ith));
            pool->job(pool->arg, w->ith);
        }
        job_leave(pool);
        if (stop) {
            return NULL;
        }
    }
}

static void lane_post(struct lane *lane, int n) {
    const unsigned old = atomic_load(&lane->ticket);
    atomic_store(&lane->ticket, ((old & ~TICKET_THREADS_MASK) + TICKET_STEP) | (unsigned) n);
    if (atomic_load(&lane->n_idle) > 0) {
        park_wake_all(&lane->ticket);
    }
}

static void job_post(struct ggml_threadpool *pool, int n) {
    atomic_store(&pool->n_busy, (unsigned) n - 1);
    lane_post(&pool->lanes[0], n);
    if (n > pool->n_cpus) {
        lane_post(&pool->lanes[1], n);
    }
}

// Returns false when the thread should sleep.
static bool gate_keeps_waiting(int64_t start) {
    const int64_t ns = park_now_ns() - start;
    if (ns >= GATE_SPIN_NS) {
        sched_yield();
    }
    return ns < GATE_YIELD_NS;
}

static void job_wait(struct ggml_threadpool *pool, int n) {
    if (n <= cpu_pool_n_cpus(pool)) {
        const int64_t start = park_now_ns();
        do {
            for (int i = 0; i < 32; i++) {
                if (atomic_load_explicit(&pool->n_busy, memory_order_acquire) == 0) {
                    return;
                }
                park_relax();
            }
        } while (gate_keeps_waiting(start));
    }
    atomic_store(&pool->caller_waits, 1);
    unsigned left;
    while ((left = atomic_load(&pool->n_busy)) != 0) {
        park_wait(&pool->n_busy, left);
    }
    atomic_store(&pool->caller_waits, 0);
}

// Binds the caller for a job. Returns true if cpu_place_back must restore the caller's affinity after the job. If the
// affinity were not restored, threads that the caller starts later would inherit the job's affinity.
static bool caller_place(struct ggml_threadpool *pool) {
    if ((pool->has_mask || pool->params.prio != GGML_SCHED_PRIO_NORMAL) &&
        !(pool->is_placed && pthread_equal(pool->placed, pthread_self()))) {
        apply_place(pool, 0);
        pool->placed = pthread_self();
        pool->is_placed = true;
    }
    return !pool->has_mask && cpu_place_node_for_now(&pool->caller_set);
}

void cpu_pool_run(struct ggml_threadpool *pool, int n, cpu_job_t job, void *arg) {
    BERTH_ASSERT(n >= 1 && n <= pool->n_threads);
    pthread_mutex_lock(&pool->job_lock);
    const bool must_place_back = caller_place(pool);
    atomic_store_explicit(&pool->paused, false, memory_order_relaxed);
    pool->job = job;
    pool->arg = arg;
    if (n > 1) {
        job_post(pool, n);
    }
    job(arg, 0);
    if (n > 1) {
        job_wait(pool, n);
    }
    if (must_place_back) {
        cpu_place_back(pool->caller_set);
    }
    pthread_mutex_unlock(&pool->job_lock);
}

// ---- creating and destroying ----

static void pool_init(
    struct ggml_threadpool *pool, struct worker *workers, const struct ggml_threadpool_params *params, unsigned born) {
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->job_lock, NULL);
    pool->workers = workers;
    pool->params = *params;
    atomic_init(&pool->n_threads, 1);
    pool->n_started = 1;
    atomic_init(&pool->born, born);
    for (int i = 0; i < GGML_MAX_N_THREADS; i++) {
        pool->has_mask |= params->cpumask[i];
    }
    // Ops use at most n_cpus tasks (compute.c). Tests set BERTH_CPU_OVERSUBSCRIBE to make threads compete.
    const char *value = getenv("BERTH_CPU_OVERSUBSCRIBE");
    pool->is_oversubscribed = value != NULL && value[0] == '1';
    pool->n_cpus = pool->is_oversubscribed ? GGML_MAX_N_THREADS : cpu_place_n_cpus(params, pool->has_mask);
    atomic_init(&pool->paused, params->paused);
    for (int i = 0; i < 2; i++) {
        atomic_init(&pool->lanes[i].ticket, 0);
        atomic_init(&pool->lanes[i].n_idle, 0);
    }
    atomic_init(&pool->n_busy, 0);
    atomic_init(&pool->caller_waits, 0);
}

// Starts workers until the pool has n threads, including the caller. Returns false if the system started fewer.
static bool pool_grow(struct ggml_threadpool *pool, int n) {
    int err = 0;
    sigset_t previous, blocked;
    sigfillset(&blocked);
    const int own_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}; // SIGPROF: for profilers
    for (size_t i = 0; i < sizeof own_signals / sizeof own_signals[0]; i++) {
        sigdelset(&blocked, own_signals[i]);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &previous); // new threads inherit the creator's signal mask
    while (pool->n_started < n && err == 0) {
        struct worker *w = &pool->workers[pool->n_started];
        w->pool = pool;
        w->ith = pool->n_started;
        w->on_node = false;
        w->seen = atomic_load(&lane_of(pool, w->ith)->ticket);
        err = pthread_create(&w->thread, NULL, worker_main, w);
        pool->n_started += err == 0;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    atomic_store(&pool->n_threads, pool->n_started);
    if (err != 0) {
        shim_log(GGML_LOG_LEVEL_WARN, "cannot start thread %d of %d: %s", pool->n_started, n, strerror(err));
    }
    return err == 0;
}

static void pool_fini(struct ggml_threadpool *pool) {
    if (pool->n_started > 1 && !is_from_before_fork(pool)) {
        pool->stop = true;
        job_post(pool, pool->n_started);
        for (int i = 1; i < pool->n_started; i++) {
            pthread_join(pool->workers[i].thread, NULL);
        }
    }
    pool->n_started = 1;
    shim_free(pool->caller_set);
    pool->caller_set = NULL;
    atomic_store(&pool->n_threads, 1);
    pthread_mutex_destroy(&pool->job_lock);
}

int cpu_pool_restart_after_fork(struct ggml_threadpool *pool) {
    if (BERTH_UNLIKELY(is_from_before_fork(pool))) {
        pthread_mutex_lock(&renew_lock);
        if (is_from_before_fork(pool)) {
            const int n = atomic_load(&pool->n_threads);
            struct worker *workers = pool->workers;
            const struct ggml_threadpool_params params = pool->params;
            shim_free(pool->caller_set);
            pool_init(pool, workers, &params, atomic_load(&pool->born));
            pool_grow(pool, n); // on failure, the pool continues with fewer threads
            atomic_store(&pool->born, atomic_load(&generation));
        }
        pthread_mutex_unlock(&renew_lock);
    }
    return atomic_load_explicit(&pool->n_threads, memory_order_relaxed);
}

struct ggml_threadpool *ggml_threadpool_new(struct ggml_threadpool_params *params) {
    if (params == NULL || params->n_threads < 1 || params->n_threads > GGML_MAX_N_THREADS) {
        shim_error(GGML_STATUS_FAILED, "ggml_threadpool_new: n_threads is %d, must be 1 to %d",
            params != NULL ? params->n_threads : 0, GGML_MAX_N_THREADS);
        return NULL;
    }
    const size_t n = (size_t) params->n_threads;
    struct ggml_threadpool *pool = shim_aligned_alloc(64, sizeof *pool);
    struct worker *workers = shim_calloc(n, sizeof *workers);
    if (pool == NULL || workers == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "ggml_threadpool_new: out of memory for %zu threads", n);
        goto fail;
    }
    pool_init(pool, workers, params, atomic_load(&generation));
    if (!pool_grow(pool, params->n_threads)) {
        shim_error(GGML_STATUS_FAILED, "ggml_threadpool_new: cannot start %zu threads", n);
        pool_fini(pool);
        goto fail;
    }
    return pool;

fail:
    shim_free(workers);
    shim_aligned_free(pool);
    return NULL;
}

void ggml_threadpool_free(struct ggml_threadpool *threadpool) {
    if (threadpool == NULL) {
        return;
    }
    pool_fini(threadpool);
    shim_free(threadpool->workers);
    shim_aligned_free(threadpool);
}

int ggml_threadpool_get_n_threads(struct ggml_threadpool *threadpool) {
    return threadpool != NULL ? threadpool->n_threads : 0;
}

// A compute on a paused pool resumes the pool.
void ggml_threadpool_pause(struct ggml_threadpool *threadpool) {
    if (threadpool != NULL) {
        atomic_store(&threadpool->paused, true);
    }
}

void ggml_threadpool_resume(struct ggml_threadpool *threadpool) {
    if (threadpool != NULL) {
        atomic_store(&threadpool->paused, false);
    }
}

// ---- the spare pool (cpu_pool_borrow) ----

// Graphs that are computed without a thread pool of the program use the spare pool, one graph at a time. The spare pool is
// static, so that leak checkers do not report it.

static struct ggml_threadpool spare;
static struct worker spare_workers[GGML_MAX_N_THREADS];
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static bool spare_made, spare_taken;

static bool spare_take(int n_threads) {
    pthread_mutex_lock(&spare_lock);
    const bool mine = !spare_taken;
    if (mine) {
        if (!spare_made || is_from_before_fork(&spare)) {
            struct ggml_threadpool_params params = ggml_threadpool_params_default(1);
            shim_free(spare.caller_set);
            pool_init(&spare, spare_workers, &params, atomic_load(&generation));
            spare_made = true;
        }
        spare_taken = true;
        pool_grow(&spare, n_threads);
    }
    pthread_mutex_unlock(&spare_lock);
    return mine;
}

struct ggml_threadpool *cpu_pool_borrow(int n_threads) {
    if (n_threads > GGML_MAX_N_THREADS) {
        n_threads = GGML_MAX_N_THREADS;
    }
    if (spare_take(n_threads)) {
        return &spare;
    }
    struct ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    return ggml_threadpool_new(&params);
}

void cpu_pool_return(struct ggml_threadpool *pool) {
    if (pool != &spare) {
        ggml_threadpool_free(pool);
        return;
    }
    pthread_mutex_lock(&spare_lock);
    spare_taken = false;
    pthread_mutex_unlock(&spare_lock);
}

// Ends the spare pool before the library is unloaded, because its threads run code of the library. If a graph is being computed,
// the process exits without waiting. spare_taken stays true, so a graph that starts during the exit gets a new pool.
__attribute__((destructor)) static void spare_end(void) {
    pthread_mutex_lock(&spare_lock);
    if (spare_made && !spare_taken) {
        pool_fini(&spare);
        spare_made = false;
    }
    spare_taken = true;
    pthread_mutex_unlock(&spare_lock);
}

// The child process has only the thread that forked. Other threads may have held locks, so the locks are initialised anew.
static void after_fork(void) {
    atomic_fetch_add(&generation, 1);
    pthread_mutex_init(&renew_lock, NULL);
    pthread_mutex_init(&spare_lock, NULL);
    spare_taken = false;
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

// ---- the barrier ----

void cpu_gate_init(struct cpu_gate *g) {
    atomic_init(&g->n_arrived, 0);
    atomic_init(&g->phase, 0);
    atomic_init(&g->n_sleeping, 0);
}

static bool gate_spin(struct cpu_gate *g, unsigned phase) {
    const int64_t start = park_now_ns();
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&g->phase, memory_order_acquire) != phase) {
                return true;
            }
            park_relax();
        }
    } while (gate_keeps_waiting(start));
    return false;
}

void cpu_gate_pass(struct cpu_gate *g, int n, bool spin, void (*serial)(void *), void *arg) {
    const unsigned phase = atomic_load_explicit(&g->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&g->n_arrived, 1, memory_order_acq_rel) == (unsigned) n - 1) {
        atomic_store_explicit(&g->n_arrived, 0, memory_order_relaxed);
        if (serial != NULL) {
            serial(arg);
        }
        atomic_store(&g->phase, phase + 1);
        if (atomic_load(&g->n_sleeping) > 0) {
            park_wake_all(&g->phase);
        }
        return;
    }
    if (spin && gate_spin(g, phase)) {
        return;
    }
    atomic_fetch_add(&g->n_sleeping, 1);
    while (atomic_load(&g->phase) == phase) {
        park_wait(&g->phase, phase);
    }
    atomic_fetch_sub(&g->n_sleeping, 1);
}

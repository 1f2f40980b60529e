// SPDX-License-Identifier: MIT
// pool.h: thread pools, and the barrier between their threads.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <stdatomic.h>

typedef void (*cpu_job_t)(void *arg, int ith);

// Runs job(arg, ith) for ith in 0 .. n-1 and returns when all n calls have finished. ith = 0 runs on the calling thread. n <=
// ggml_threadpool_get_n_threads. Jobs of several callers run serially.
void cpu_pool_run(struct ggml_threadpool *pool, int n, cpu_job_t job, void *arg);
// Call before cpu_pool_run. After a fork, restarts the threads. Returns the number of threads.
int cpu_pool_restart_after_fork(struct ggml_threadpool *pool);
// Processors that the pool can use, by its mask, the NUMA strategy or the affinity of the process.
int cpu_pool_n_cpus(const struct ggml_threadpool *pool);

// Returns the spare pool of the process, or a new pool if the spare pool is in use. If the system cannot start more, the spare
// pool has fewer than n_threads threads. NULL: a new pool cannot be created.
struct ggml_threadpool *cpu_pool_borrow(int n_threads);
void cpu_pool_return(struct ggml_threadpool *pool);

// ---- barrier: spins briefly, then sleeps ----

struct cpu_gate {
    _Alignas(64) atomic_uint n_arrived;
    _Alignas(64) atomic_uint phase; // completed passes; the futex word
    atomic_uint n_sleeping;
};

void cpu_gate_init(struct cpu_gate *g);
// Waits for n threads. serial(arg), if not NULL, runs once on the last thread to arrive, before any thread leaves.
void cpu_gate_pass(struct cpu_gate *g, int n, bool spin, void (*serial)(void *), void *arg);

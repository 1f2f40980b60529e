// SPDX-License-Identifier: MIT
// pool.h: threads that wait for jobs, and the barrier between them. Knows no tensor.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <stdatomic.h>

typedef void (*cpu_job_t)(void *arg, int ith);

// Runs job(arg, ith) for ith in 0 .. n-1, number 0 on the calling thread, and returns when all are back. n is at most
// ggml_threadpool_get_n_threads. Jobs of several callers take turns.
void cpu_pool_run(struct ggml_threadpool *pool, int n, cpu_job_t job, void *arg);
// The pool's threads, made anew in a process that was forked from the one that made them: call it before cpu_pool_run.
int cpu_pool_ready(struct ggml_threadpool *pool);
// Processors the pool may use at once: its own affinity, or that of the process.
int cpu_pool_n_cpus(const struct ggml_threadpool *pool);

// A pool for a caller who brought none: the process's spare one, or a new one if that is taken. NULL: no memory or threads.
// The pool may have fewer threads than asked for.
struct ggml_threadpool *cpu_pool_borrow(int n_threads);
void cpu_pool_return(struct ggml_threadpool *pool);

// ---- barrier: spins shortly, then sleeps, so that more threads than processors make progress ----

struct cpu_gate {
    _Alignas(64) atomic_uint n_arrived;
    _Alignas(64) atomic_uint phase; // counts the times all arrived; the futex word
    atomic_uint n_sleeping;
};

void cpu_gate_init(struct cpu_gate *g);
// Waits for n threads. serial(arg), if not NULL, runs once, on the last to arrive, before any leaves.
void cpu_gate_pass(struct cpu_gate *g, int n, bool spin, void (*serial)(void *), void *arg);

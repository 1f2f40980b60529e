// SPDX-License-Identifier: MIT
// affinity.h: binds the calling thread to processors and sets its priority, according to the parameters of its pool or the NUMA
// strategy.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <sched.h>

// Returns the number of processors that threads with these parameters can use concurrently.
int cpu_place_n_cpus(const struct ggml_threadpool_params *params, bool has_mask);
// Binds the calling thread to the whole mask, or with strict_cpu to processor ith of the mask, modulo their number.
void cpu_place_mask(const struct ggml_threadpool_params *params, int ith);
void cpu_place_priority(enum ggml_sched_priority prio);

// Binds the calling thread to the NUMA node of thread ith (numa.c). Returns false if no NUMA strategy is active.
bool cpu_place_node(int ith);
// Binds the caller of a pool, which runs as thread 0, to the NUMA node of thread 0 until cpu_place_back. The caller may be a thread
// of the application. Stores its previous affinity in *own, which is allocated at the first call; the caller frees it. Returns
// false if no NUMA strategy is active, or if the affinity cannot be saved.
bool cpu_place_node_for_now(cpu_set_t **own);
void cpu_place_back(const cpu_set_t *own);

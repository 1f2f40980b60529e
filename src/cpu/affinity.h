// SPDX-License-Identifier: MIT
// affinity.h: binds the calling thread to processors and sets its priority.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <sched.h>

// Returns the number of processors that threads with these parameters can use concurrently.
int cpu_place_n_cpus(const struct ggml_threadpool_params *params, bool has_mask);
// Binds the calling thread to all n processors of the mask; with strict_cpu, to processor ith % n of the mask.
void cpu_place_mask(const struct ggml_threadpool_params *params, int ith);
void cpu_place_priority(enum ggml_sched_priority prio);

// Binds the calling thread to the NUMA node of thread ith (numa.c). Returns false if no NUMA strategy is active.
bool cpu_place_node(int ith);
// Binds the calling thread, thread 0 of a pool, to the NUMA node of thread 0. cpu_place_back restores the previous affinity from
// *saved. If *saved is NULL, allocates it; the owner of the pointer frees it. If no NUMA strategy is active, or the affinity
// cannot be saved, returns false.
bool cpu_place_node_for_now(cpu_set_t **saved);
void cpu_place_back(const cpu_set_t *saved);

// SPDX-License-Identifier: MIT
// affinity.h: binds the calling thread to processors and sets its priority, according to the parameters of its pool or the NUMA
// strategy.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <sched.h>

// Returns the number of processors that threads with these parameters can use concurrently.
int cpu_place_n_cpus(const struct ggml_threadpool_params *params, bool has_mask);
// Binds the calling thread to all processors of the mask. With strict_cpu, binds it to number ith % n of its n processors.
void cpu_place_mask(const struct ggml_threadpool_params *params, int ith);
void cpu_place_priority(enum ggml_sched_priority prio);

// Binds the calling thread to the NUMA node of thread ith (numa.c). Returns false if no NUMA strategy is active.
bool cpu_place_node(int ith);
// Binds the calling thread, which runs as thread 0 of a pool, to the NUMA node of thread 0. The thread may belong to the
// application, so cpu_place_back restores its previous affinity. Stores that affinity in *saved. If *saved is NULL, allocates it;
// the owner of the pointer frees it. Returns false if no NUMA strategy is active, or if the affinity cannot be saved.
bool cpu_place_node_for_now(cpu_set_t **saved);
void cpu_place_back(const cpu_set_t *saved);

// SPDX-License-Identifier: MIT
// affinity.h: binds the calling thread to processors, and sets its priority, as the parameters of its pool or the NUMA strategy
// say.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <sched.h>

// Processors that threads with these parameters may use at once.
int cpu_place_n_cpus(const struct ggml_threadpool_params *params, bool has_mask);
// The whole mask, or with strict_cpu the ith processor of it, counted in a ring.
void cpu_place_mask(const struct ggml_threadpool_params *params, int ith);
void cpu_place_priority(enum ggml_sched_priority prio);

// The node of thread ith (numa.c). False: there is no NUMA strategy.
bool cpu_place_node(int ith);
// Likewise for number 0, a thread that is not ours, until cpu_place_back. *own keeps the affinity it had; made once, the caller
// frees it.
bool cpu_place_node_for_now(cpu_set_t **own);
void cpu_place_back(const cpu_set_t *own);

// SPDX-License-Identifier: MIT
// numa.h: which processors the threads of a pool belong on, on a machine with several memory nodes. Knows no pool.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <sched.h>

struct cpu_numa;

// What a placement is made from; the running system's, but for tests.
struct cpu_numa_host {
    const char *root;         // holds `online` and node<N>/cpulist
    const cpu_set_t *allowed; // processors the process may use
    size_t allowed_size;      // bytes of it
    int cpu;                  // the caller runs on it
};

// NULL: one node or none, nothing to be placed by this strategy, no memory, or a tree that cannot be read; the last two are
// logged.
struct cpu_numa *cpu_numa_new(enum ggml_numa_strategy strategy, const struct cpu_numa_host *host) BERTH_MUST_USE;
void cpu_numa_free(struct cpu_numa *numa);

// The placement ggml_numa_init chose, NULL without one. It stays the same once there is one.
const struct cpu_numa *cpu_numa_active(void);
// Makes it that one and returns the one before, which only tests may free: threads could be looking at it.
struct cpu_numa *cpu_numa_activate(struct cpu_numa *numa);

// The processors of thread ith of a pool.
const cpu_set_t *cpu_numa_place(const struct cpu_numa *numa, int ith);
size_t cpu_numa_set_size(const struct cpu_numa *numa); // bytes of each such set
int cpu_numa_n_nodes(const struct cpu_numa *numa);     // of the machine, those without processors too
int cpu_numa_n_cpus(const struct cpu_numa *numa);      // in all places together

// The next range of a list as the kernel writes it ("0-3,8"), and *text behind it. 1: there is one, 0: the list is at its
// end, -1: it is no list.
int cpu_list_next(const char **text, int *first, int *last);

// SPDX-License-Identifier: MIT
// numa.h: chooses the processors for the threads of a pool on a machine with several NUMA nodes. affinity.c binds the threads.
// A placement is the list of processors of each thread.
#pragma once

#include "base/shim/shim.h"

#include "ggml-cpu.h"

#include <sched.h>

struct cpu_numa;

// Input of a placement: the running system, or test data.
struct cpu_numa_host {
    const char *root;         // the directory that holds `online` and node<N>/cpulist
    const cpu_set_t *allowed; // processors that the process may use
    size_t allowed_size;      // bytes of `allowed`
    int cpu;                  // processor on which the caller runs
};

// If host->root does not exist or lists at most one node, returns NULL. If the strategy selects no processor, memory is
// insufficient, or a file cannot be read, logs this and returns NULL.
struct cpu_numa *cpu_numa_new(enum ggml_numa_strategy strategy, const struct cpu_numa_host *host) BERTH_MUST_USE;
void cpu_numa_free(struct cpu_numa *numa);

// Returns the placement that ggml_numa_init chose; NULL: none. The placement never changes once it is set.
const struct cpu_numa *cpu_numa_active(void);
// Makes `numa` the active placement and returns the previous placement. Only tests may free the previous placement: threads may
// still use it.
struct cpu_numa *cpu_numa_activate(struct cpu_numa *numa);

// Returns the processors of thread ith of a pool.
const cpu_set_t *cpu_numa_place(const struct cpu_numa *numa, int ith);
size_t cpu_numa_set_size(const struct cpu_numa *numa); // bytes of each set
int cpu_numa_n_nodes(const struct cpu_numa *numa);     // includes nodes without processors
int cpu_numa_n_cpus(const struct cpu_numa *numa);      // processors in all sets

// Reads the next range of a Linux kernel list ("0-3,8") and advances *text. Returns 1: a range was read; 0: end of the list; -1:
// not a list.
int cpu_list_next(const char **text, int *first, int *last);

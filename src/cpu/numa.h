// SPDX-License-Identifier: MIT
// numa.h: chooses the processors on which the threads of a pool should run, on a machine with several NUMA nodes. The choice is
// called a placement. This module does not depend on pools: it numbers threads and does not bind them (affinity.c does).
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

// Returns NULL in five cases. Not logged: host->root does not exist, or it lists at most one node. Logged: the strategy selects no
// processor, memory is insufficient, or a file cannot be read.
struct cpu_numa *cpu_numa_new(enum ggml_numa_strategy strategy, const struct cpu_numa_host *host) BERTH_MUST_USE;
void cpu_numa_free(struct cpu_numa *numa);

// Returns the placement that ggml_numa_init chose; NULL if there is none. It never changes once it is set.
const struct cpu_numa *cpu_numa_active(void);
// Makes `numa` the active placement and returns the previous one. Threads may still use that one: only tests may free it.
struct cpu_numa *cpu_numa_activate(struct cpu_numa *numa);

// Returns the processors of thread ith of a pool.
const cpu_set_t *cpu_numa_place(const struct cpu_numa *numa, int ith);
size_t cpu_numa_set_size(const struct cpu_numa *numa); // bytes of each set
int cpu_numa_n_nodes(const struct cpu_numa *numa);     // nodes of the machine, including those without processors
int cpu_numa_n_cpus(const struct cpu_numa *numa);      // processors in all sets

// Reads the next range of a list in the format of the Linux kernel ("0-3,8"), and advances *text. Returns 1 if a range was read, 0
// at the end of the list, and -1 if the text is not a list.
int cpu_list_next(const char **text, int *first, int *last);

// SPDX-License-Identifier: MIT
// affinity.c: binds threads to processors and sets their priority (affinity.h). If the system refuses, a warning is logged and the
// thread runs unbound.

#include "cpu/affinity.h"

#include "cpu/numa.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

int cpu_place_n_cpus(const struct ggml_threadpool_params *params, bool has_mask) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        const long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n > 0 ? (int) n : 1;
    }
    if (!has_mask) {
        return CPU_COUNT(&set);
    }
    int n = 0;
    for (int i = 0; i < GGML_MAX_N_THREADS && i < CPU_SETSIZE; i++) {
        n += params->cpumask[i] && CPU_ISSET(i, &set);
    }
    return n > 0 ? n : 1;
}

void cpu_place_mask(const struct ggml_threadpool_params *params, int ith) {
    int in_mask[GGML_MAX_N_THREADS];
    int n = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < GGML_MAX_N_THREADS && i < CPU_SETSIZE; i++) {
        if (params->cpumask[i]) {
            in_mask[n++] = i;
            CPU_SET(i, &set);
        }
    }
    if (n == 0) {
        return;
    }
    if (params->strict_cpu) {
        CPU_ZERO(&set);
        CPU_SET(in_mask[ith % n], &set);
    }
    const int err = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (err != 0) {
        shim_log(GGML_LOG_LEVEL_WARN, "cannot bind thread %d to its processors: %s", ith, strerror(err));
    }
}

void cpu_place_priority(enum ggml_sched_priority prio) {
    static const struct {
        int policy, level;
    } policies[] = {{SCHED_BATCH, 0}, {SCHED_OTHER, 0}, {SCHED_FIFO, 40}, {SCHED_FIFO, 80}, {SCHED_FIFO, 90}};
    if (prio == GGML_SCHED_PRIO_NORMAL || prio < GGML_SCHED_PRIO_LOW || prio > GGML_SCHED_PRIO_REALTIME) {
        return;
    }
    const int i = prio - GGML_SCHED_PRIO_LOW;
    struct sched_param param = {.sched_priority = policies[i].level};
    const int err = pthread_setschedparam(pthread_self(), policies[i].policy, &param);
    if (err != 0) {
        shim_log(GGML_LOG_LEVEL_WARN, "cannot set thread priority %d: %s", (int) prio, strerror(err));
    }
}

static void thread_bind(size_t size, const cpu_set_t *set, int ith) {
    const int err = pthread_setaffinity_np(pthread_self(), size, set);
    if (err != 0) {
        shim_log(GGML_LOG_LEVEL_WARN, "cannot bind thread %d to its NUMA node: %s", ith, strerror(err));
    }
}

bool cpu_place_node(int ith) {
    const struct cpu_numa *numa = cpu_numa_active();
    if (numa != NULL) {
        thread_bind(cpu_numa_set_size(numa), cpu_numa_place(numa, ith), ith);
    }
    return numa != NULL;
}

bool cpu_place_node_for_now(cpu_set_t **saved) {
    const struct cpu_numa *numa = cpu_numa_active();
    if (numa == NULL) {
        return false;
    }
    const size_t size = cpu_numa_set_size(numa);
    if (*saved == NULL) {
        *saved = shim_calloc(1, size);
    }
    if (*saved == NULL || pthread_getaffinity_np(pthread_self(), size, *saved) != 0) {
        return false;
    }
    thread_bind(size, cpu_numa_place(numa, 0), 0);
    return true;
}

void cpu_place_back(const cpu_set_t *saved) {
    thread_bind(cpu_numa_set_size(cpu_numa_active()), saved, 0);
}

// SPDX-License-Identifier: MIT
// numa.c: whether the machine has several memory nodes. Threads are placed by the affinity of their pool, and memory by the
// system's policy (first touch, or numactl); a strategy is taken note of and changes neither.

#include "cpu/host.h"

#include "ggml-cpu.h"

#include <stdatomic.h>
#include <sys/stat.h>

static atomic_int n_nodes;

void ggml_numa_init(enum ggml_numa_strategy numa) {
    if (numa <= GGML_NUMA_STRATEGY_DISABLED || numa >= GGML_NUMA_STRATEGY_COUNT || atomic_load(&n_nodes) > 0) {
        return;
    }
    int n = 0;
    for (char path[64]; n < 1024; n++) {
        struct stat st;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", n);
        if (stat(path, &st) != 0) {
            break;
        }
    }
    atomic_store(&n_nodes, n);
}

bool ggml_is_numa(void) {
    return atomic_load(&n_nodes) > 1;
}

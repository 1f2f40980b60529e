// SPDX-License-Identifier: MIT
// scratch.h: divides work memory into one array of floats per task. No two arrays share a cache line.
#pragma once

#include "cpu/cpu.h"

#define CPU_SCRATCH_LINE 16 // floats per cache line

// Rounds n up to complete cache lines.
static inline size_t cpu_scratch_floats(int64_t n) {
    return ((size_t) n + CPU_SCRATCH_LINE - 1) / CPU_SCRATCH_LINE * CPU_SCRATCH_LINE;
}

static inline size_t cpu_scratch_size(int64_t n, int n_tasks) {
    return cpu_scratch_floats(n) * (size_t) n_tasks * sizeof(float);
}

static inline float *cpu_scratch(const struct cpu_params *p, int64_t n) {
    return (float *) p->work + cpu_scratch_floats(n) * (size_t) p->ith;
}

// SPDX-License-Identifier: MIT
// cpu.h: one CPU backend with one thread for a group of tests. cpu_open is the group's set-up, cpu_close its tear-down.
#pragma once

#include "support/check.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

static ggml_backend_t cpu;

static inline int cpu_open(void **state) {
    (void) state;
    check_quiet();
    cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 1);
    return cpu == NULL;
}

static inline int cpu_close(void **state) {
    (void) state;
    ggml_backend_free(cpu);
    return 0;
}

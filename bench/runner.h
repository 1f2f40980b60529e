// SPDX-License-Identifier: MIT
// runner.h: calls Berth's CPU backend and the reference's best one for this machine in one process.
#pragma once

#include "clock.h"
#include "support/oracle.h"

#include "ggml-cpu.h"

struct runner {
    const char *name;
    struct ggml_cplan (*plan)(const struct ggml_cgraph *, int, struct ggml_threadpool *);
    enum ggml_status (*compute)(struct ggml_cgraph *, struct ggml_cplan *);
    struct ggml_threadpool *(*pool_new)(struct ggml_threadpool_params *);
    void (*pool_free)(struct ggml_threadpool *);
    void *base, *cpu; // the reference's libraries
};

static inline struct runner runner_berth(void) {
    return (struct runner){.name = "berth",
        .plan = ggml_graph_plan,
        .compute = ggml_graph_compute,
        .pool_new = ggml_threadpool_new,
        .pool_free = ggml_threadpool_free};
}

static inline bool runner_symbol(void *lib, const char *name, void *function) {
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

// Loads the CPU library that the reference's own loader selects on this machine. False: there is none, oracle_why() has the reason.
static inline bool runner_reference(struct runner *r) {
    void (*init)(void) = NULL;
    r->base = oracle_load("libggml-base.so");
    r->cpu = oracle_load_cpu(&r->name);
    if (r->cpu == NULL || !runner_symbol(r->cpu, "ggml_cpu_init", &init) || !runner_symbol(r->cpu, "ggml_graph_plan", &r->plan) ||
        !runner_symbol(r->cpu, "ggml_graph_compute", &r->compute) ||
        !runner_symbol(r->cpu, "ggml_threadpool_new", &r->pool_new) ||
        !runner_symbol(r->cpu, "ggml_threadpool_free", &r->pool_free)) {
        return false;
    }
    init();
    return true;
}

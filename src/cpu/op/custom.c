// SPDX-License-Identifier: MIT
// custom.c: MAP_CUSTOM1 to 3 and CUSTOM: calls the user's function once per requested task, at most n_threads times. The function
// may rely on the number of tasks, so the number of tasks may exceed the number of processors.

#include "cpu/optable.h"

#include "core/custom.h"

#include <string.h>

// The four params structs have the same layout; only the type of the function differs.
static struct ggml_custom_op_params params_of(const struct ggml_tensor *op) {
    struct ggml_custom_op_params params;
    memcpy(&params, op->op_params, sizeof params);
    return params;
}

static bool custom_supports(const struct ggml_tensor *op) {
    return params_of(op).fun != NULL;
}

static int custom_tasks(const struct ggml_tensor *op, int n_threads) {
    const int n = params_of(op).n_tasks;
    return n == GGML_N_TASKS_MAX || n > n_threads ? n_threads : n;
}

static void map1_run(const struct cpu_params *p, struct ggml_tensor *op) {
    struct ggml_map_custom1_op_params params;
    memcpy(&params, op->op_params, sizeof params);
    params.fun(op, op->src[0], p->ith, p->nth, params.userdata);
}

static void map2_run(const struct cpu_params *p, struct ggml_tensor *op) {
    struct ggml_map_custom2_op_params params;
    memcpy(&params, op->op_params, sizeof params);
    params.fun(op, op->src[0], op->src[1], p->ith, p->nth, params.userdata);
}

static void map3_run(const struct cpu_params *p, struct ggml_tensor *op) {
    struct ggml_map_custom3_op_params params;
    memcpy(&params, op->op_params, sizeof params);
    params.fun(op, op->src[0], op->src[1], op->src[2], p->ith, p->nth, params.userdata);
}

static void custom_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_custom_op_params params = params_of(op);
    params.fun(op, p->ith, p->nth, params.userdata);
}

const struct cpu_op_entry cpu_ops_custom[] = {
    {GGML_OP_MAP_CUSTOM1,
        {.supports = custom_supports, .n_tasks = custom_tasks, .run = map1_run, .caller_tasks = true, .empty_srcs = ~0u}},
    {GGML_OP_MAP_CUSTOM2,
        {.supports = custom_supports, .n_tasks = custom_tasks, .run = map2_run, .caller_tasks = true, .empty_srcs = ~0u}},
    {GGML_OP_MAP_CUSTOM3,
        {.supports = custom_supports, .n_tasks = custom_tasks, .run = map3_run, .caller_tasks = true, .empty_srcs = ~0u}},
    {GGML_OP_CUSTOM,
        {.supports = custom_supports, .n_tasks = custom_tasks, .run = custom_run, .caller_tasks = true, .empty_srcs = ~0u}},
    CPU_OPS_END,
};

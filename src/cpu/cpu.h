// SPDX-License-Identifier: MIT
// cpu.h: the interface of op drivers (op/*.c): op-table entries, the parameters of tasks, and helpers to split work.
// A task is the share of an op that one thread computes.
//
// A family of ops is one file, op/<family>.c, that ends in
//
//     const struct cpu_op_entry cpu_ops_<family>[] = {
//         {GGML_OP_SUM, {.supports = sum_supports, .run = sum_run}},
//         CPU_OPS_END,
//     };
//
// A new family also needs one line in optable.h. An op without an entry is not supported.
#pragma once

#include "base/min.h"
#include "base/shim/shim.h"
#include "core/op_params.h"
#include "cpu/kernels.h"

#include "ggml-cpu.h"

struct cpu_team;

// The parameters of one task of an op.
struct cpu_params {
    int ith;                     // index of this task, 0 .. nth-1
    int nth;                     // tasks of the op, all running at the same time
    size_t work_size;            // bytes; at least the result of the op's work_size function
    void *work;                  // aligned to 64 bytes, shared by all tasks, undefined content
    const struct cpu_kernels *k; // the micro-kernels to use
    struct cpu_team *team;       // private to compute.c
};

// The kernels that an op calls, a bit per kernel. tier_report.c reports their tiers.
#define CPU_USES(X) \
    X(ADD, add) \
    X(SUB, sub) \
    X(MUL, mul) \
    X(DIV, div) \
    X(EXP, exp) \
    X(SILU, silu) \
    X(GELU, gelu) \
    X(GELU_QUICK, gelu_quick) \
    X(TANH, tanh) \
    X(SIGMOID, sigmoid) \
    X(SCALE, scale) \
    X(MAD, mad) \
    X(FILL, fill) \
    X(SUM, sum) \
    X(SUM_SQ, sum_sq) \
    X(MAX, max) \
    X(EXP_SUM, exp_sum) \
    X(MIX, mix) \
    X(ROTATE, rotate) \
    X(COS_SIN, cos_sin)
#define CPU_USE_BIT(name, slot) CPU_USE_BIT_##name,
enum { CPU_USES(CPU_USE_BIT) CPU_USE_BIT_COUNT };
#undef CPU_USE_BIT
#define CPU_USE_ENUM(name, slot) CPU_USE_##name = 1 << CPU_USE_BIT_##name,
enum cpu_use {
    CPU_USES(CPU_USE_ENUM) CPU_USE_DOT =
        1 << CPU_USE_BIT_COUNT,                      // vec_dot of src[0]'s type, and conversion of src[1] to its vec_dot_type
    CPU_USE_DOT_KEYS = 1 << (CPU_USE_BIT_COUNT + 1), // vec_dot of src[1]'s type, and conversion of src[0] to its vec_dot_type
    CPU_USE_DOT_F32 = 1 << (CPU_USE_BIT_COUNT + 2),
    CPU_USE_CONVERT = 1 << (CPU_USE_BIT_COUNT + 3), // conversion of sources and results that are not f32
    CPU_USE_RETYPE = 1 << (CPU_USE_BIT_COUNT + 4),  // copies: conversion only if the types of source and result differ
};
#undef CPU_USE_ENUM

struct cpu_op_row {
    bool (*supports)(const struct ggml_tensor *op);                 // NULL: always
    int (*n_tasks)(const struct ggml_tensor *op, int n_threads);    // 1 .. n_threads; NULL: cpu_tasks_by_size
    size_t (*work_size)(const struct ggml_tensor *op, int n_tasks); // bytes; NULL: none
    // Bytes that suffice for this op and for every op of the same kind with no larger extents; NULL: work_size
    size_t (*work_bound)(const struct ggml_tensor *op, int n_tasks);
    void (*run)(const struct cpu_params *p, struct ggml_tensor *op); // NULL: nothing to do (views)
    unsigned uses;                                                   // CPU_USE_* bits: the kernels that the op calls
    unsigned (*uses_by)(const struct ggml_tensor *op); // additional CPU_USE_* bits that depend on op_params; NULL: none
    bool caller_tasks;                                 // the user chooses n_tasks, so it may exceed the number of processors
    unsigned empty_srcs;                               // bit mask; bit i set: src[i] may be empty although the result is not
};

struct cpu_op_entry {
    enum ggml_op op;
    struct cpu_op_row row;
};
// clang-format off
#define CPU_OPS_END {GGML_OP_COUNT, {NULL, NULL, NULL, NULL, NULL, 0, NULL, false, 0}}
// clang-format on

// The entry of an op; NULL if there is none or if op is out of range.
extern const struct cpu_op_row *cpu_op_rows[GGML_OP_COUNT];
static inline const struct cpu_op_row *cpu_op_row(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? cpu_op_rows[op] : NULL;
}
// True if the CPU backend computes this op on its sources.
bool cpu_supports_op(const struct ggml_tensor *op);

// ---- inside an op (compute.c) ----

// Waits for all nth tasks of the op, and resets the chunk counter to 0.
void cpu_barrier(const struct cpu_params *p);
// Returns the next value of the chunk counter, which all tasks share. The counter starts at 0. Each number goes to one task.
int64_t cpu_chunk_next(const struct cpu_params *p);
// Reports that the op cannot be computed, for example because an index is out of range. The graph ends with GGML_STATUS_FAILED
// after this op. Only the first report is kept.
void cpu_fail(const struct cpu_params *p, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- splitting ----

// Returns one task per CPU_TASK_ELEMENTS elements of op or src[0], whichever is larger; at least 1, at most n_threads.
#define CPU_TASK_ELEMENTS 16384
int cpu_tasks_by_size(const struct ggml_tensor *op, int n_threads);
// Returns n, but at least 1 and at most n_threads.
static inline int cpu_tasks_for(double n, int n_threads) {
    if (n < 1) {
        return 1;
    }
    return n < n_threads ? (int) n : n_threads;
}
int cpu_tasks_one(const struct ggml_tensor *op, int n_threads);
int cpu_tasks_all(const struct ggml_tensor *op, int n_threads);

// Returns this task's even share of n units, [*i0, *i1).
static inline void cpu_share(const struct cpu_params *p, int64_t n, int64_t *i0, int64_t *i1) {
    if (p->nth == 1) { // a division is a large part of a small op
        *i0 = 0;
        *i1 = n;
        return;
    }
    const int64_t each = n / p->nth, remainder = n % p->nth;
    *i0 = each * p->ith + min_i64(p->ith, remainder);
    *i1 = *i0 + each + (p->ith < remainder);
}

// Position of row ir; ir counts rows over dimensions 1 to 3.
struct cpu_row_pos {
    int64_t i1, i2, i3;
};
static inline struct cpu_row_pos cpu_row_pos(const struct ggml_tensor *t, int64_t ir) {
    if (ir == 0) {
        return (struct cpu_row_pos){0};
    }
    const int64_t ne12 = t->ne[1] * t->ne[2];
    const int64_t i3 = ir / ne12;
    const int64_t i2 = (ir - i3 * ne12) / t->ne[1];
    return (struct cpu_row_pos){.i1 = ir - i3 * ne12 - i2 * t->ne[1], .i2 = i2, .i3 = i3};
}
static inline void cpu_row_step(const struct ggml_tensor *t, struct cpu_row_pos *at) {
    if (++at->i1 == t->ne[1]) {
        at->i1 = 0;
        if (++at->i2 == t->ne[2]) {
            at->i2 = 0;
            at->i3++;
        }
    }
}
// Returns NULL if t->data is NULL, which empty tensors may have.
static inline char *cpu_row_at(const struct ggml_tensor *t, int64_t i1, int64_t i2, int64_t i3) {
    const size_t at = (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3];
    return t->data != NULL ? (char *) t->data + at : NULL;
}
static inline char *cpu_row(const struct ggml_tensor *t, struct cpu_row_pos at) {
    return cpu_row_at(t, at.i1, at.i2, at.i3);
}
// Returns the row of t that broadcasts to position `at` of the result.
static inline char *cpu_row_repeat(const struct ggml_tensor *t, struct cpu_row_pos at) {
    return cpu_row_at(t, at.i1 % t->ne[1], at.i2 % t->ne[2], at.i3 % t->ne[3]);
}

// Inline copies of ggml's functions: for small graphs, library calls are too slow.
static inline bool cpu_is_empty(const struct ggml_tensor *t) {
    return (t->ne[0] == 0) | (t->ne[1] == 0) | (t->ne[2] == 0) | (t->ne[3] == 0);
}
// An op with an empty result does not run, so its sources need not be supported.
static inline bool cpu_row_supports(const struct cpu_op_row *row, const struct ggml_tensor *op) {
    return row->supports == NULL || cpu_is_empty(op) || row->supports(op);
}
static inline bool cpu_are_same_shape(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return ((a->ne[0] ^ b->ne[0]) | (a->ne[1] ^ b->ne[1]) | (a->ne[2] ^ b->ne[2]) | (a->ne[3] ^ b->ne[3])) == 0;
}
static inline bool cpu_are_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a->type == b->type && cpu_are_same_shape(a, b) &&
           ((a->nb[0] ^ b->nb[0]) | (a->nb[1] ^ b->nb[1]) | (a->nb[2] ^ b->nb[2]) | (a->nb[3] ^ b->nb[3])) == 0;
}

// ---- computing ----

// owner: the backend that computes, or NULL. is_checked: the caller has checked that all tensors are within their memory, and
// that a source is empty only if its op permits that. batch_invariant: see berth_cpu_set_batch_invariant.
enum ggml_status cpu_graph_compute(
    const struct ggml_cgraph *cgraph, const struct ggml_cplan *cplan, bool batch_invariant, const void *owner, bool is_checked);
// Returns bytes of work memory that suffice for all graphs with the same nodes and edges and no larger extents.
size_t cpu_graph_work_bound(const struct ggml_cgraph *graph, int n_threads);
// True if the calling thread runs an op of a graph that `resource` (a backend or thread pool) computes.
bool cpu_is_busy_with(const void *resource);

// ---- start ----

// Initialises the tables once. Every entry point of the library calls cpu_init.
void cpu_init(void);
void cpu_optable_init(void);

// The only CPU device (device.c).
ggml_backend_dev_t cpu_device(void);

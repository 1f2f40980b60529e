// SPDX-License-Identifier: MIT
// cpu.h: what an op driver (op/*.c) is made of: the row it registers, the parameters its tasks run with, and the ways to split
// its work. Drivers see tensors and tasks; the instructions are behind the kernel table (kernels.h).
//
// A family is one file, op/<family>.c, that ends in
//
//     const struct cpu_op_entry cpu_ops_<family>[] = {
//         {GGML_OP_SUM, {.supports = sum_supports, .run = sum_run}},
//         CPU_OPS_END,
//     };
//
// and one line in optable.c. An op without a row is not supported. A row is only run on tensors its supports() said yes to.
#pragma once

#include "base/min.h"
#include "base/shim/shim.h"
#include "core/op_params.h"
#include "cpu/kernels.h"

#include "ggml-cpu.h"

struct cpu_team;

// What one task of an op gets.
struct cpu_params {
    int ith;                     // this task ...
    int nth;                     // ... of so many; all of them run
    size_t work_size;            // bytes at work: at least what the row asked for
    void *work;                  // aligned to 64, shared by all tasks, undefined content
    const struct cpu_kernels *k; // the micro-kernels to use
    struct cpu_team *team;       // private to compute.c
};

// Kernels an op calls beside loops of its own, one bit each, so that berth_cpu_op_tier can tell who serves it (tier_report.c).
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
    X(TURN, turn) \
    X(COS_SIN, cos_sin)
#define CPU_USE_BIT(name, slot) CPU_USE_BIT_##name,
enum { CPU_USES(CPU_USE_BIT) CPU_USE_BIT_COUNT };
#undef CPU_USE_BIT
#define CPU_USE_ENUM(name, slot) CPU_USE_##name = 1 << CPU_USE_BIT_##name,
enum cpu_use {
    CPU_USES(CPU_USE_ENUM)
    // by type
    CPU_USE_DOT = 1 << CPU_USE_BIT_COUNT,            // dot products of src[0]'s type, and making src[1] fit
    CPU_USE_DOT_KEYS = 1 << (CPU_USE_BIT_COUNT + 1), // of src[1]'s type, and making src[0] fit
    CPU_USE_DOT_F32 = 1 << (CPU_USE_BIT_COUNT + 2),
    CPU_USE_CONVERT = 1 << (CPU_USE_BIT_COUNT + 3), // sources and results that are not f32
    CPU_USE_RETYPE = 1 << (CPU_USE_BIT_COUNT + 4),  // likewise, where the result's type is not the source's: copies
};
#undef CPU_USE_ENUM

struct cpu_op_row {
    bool (*supports)(const struct ggml_tensor *op);                  // NULL: always
    int (*n_tasks)(const struct ggml_tensor *op, int n_threads);     // 1 .. n_threads; NULL: cpu_tasks_by_size
    size_t (*work_size)(const struct ggml_tensor *op, int n_tasks);  // NULL: none
    size_t (*work_most)(const struct ggml_tensor *op, int n_tasks);  // of any op with no larger extents; NULL: work_size
    void (*run)(const struct cpu_params *p, struct ggml_tensor *op); // NULL: nothing to do (views)
    unsigned uses;                                                   // CPU_USE_ bits
    unsigned (*uses_by)(const struct ggml_tensor *op);               // more of them, by op_params; NULL: none
    bool caller_tasks;   // n_tasks is the caller's wish, not ours: more tasks than processors if it says so
    unsigned empty_srcs; // bit i: the row runs with a src[i] that has no elements, though the result has some
};

struct cpu_op_entry {
    enum ggml_op op;
    struct cpu_op_row row;
};
// clang-format off
#define CPU_OPS_END {GGML_OP_COUNT, {NULL, NULL, NULL, NULL, NULL, 0, NULL, false, 0}}
// clang-format on

// The row of an op, NULL if there is none. A number that is no op has none.
extern const struct cpu_op_row *cpu_op_rows[GGML_OP_COUNT];
static inline const struct cpu_op_row *cpu_op_row(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? cpu_op_rows[op] : NULL;
}
// Whether the CPU backend computes this tensor's op on these sources.
bool cpu_supports_op(const struct ggml_tensor *op);

// ---- inside an op (compute.c) ----

// Waits for all nth tasks of the op. The chunk counter starts again from 0.
void cpu_barrier(const struct cpu_params *p);
// 0, 1, 2, ... each to one task, since the op began or the last barrier: for work that does not split evenly.
int64_t cpu_chunk_next(const struct cpu_params *p);
// The op cannot be computed (an index out of range, say): the compute ends with GGML_STATUS_FAILED after this op. First text
// wins.
void cpu_fail(const struct cpu_params *p, const char *fmt, ...) BERTH_PRINTF(2, 3);

// ---- splitting ----

// As many tasks as the larger of op and src[0] feeds with CPU_TASK_ELEMENTS each.
#define CPU_TASK_ELEMENTS 16384
int cpu_tasks_by_size(const struct ggml_tensor *op, int n_threads);
// Tasks for n pieces of work.
static inline int cpu_tasks_for(double n, int n_threads) {
    if (n < 1) {
        return 1;
    }
    return n < n_threads ? (int) n : n_threads;
}
// One task, whatever the size.
int cpu_tasks_one(const struct ggml_tensor *op, int n_threads);
// All threads.
int cpu_tasks_all(const struct ggml_tensor *op, int n_threads);

// This task's even share [*i0, *i1) of n units.
static inline void cpu_share(const struct cpu_params *p, int64_t n, int64_t *i0, int64_t *i1) {
    if (p->nth == 1) { // a division is a good part of a small op
        *i0 = 0;
        *i1 = n;
        return;
    }
    const int64_t each = n / p->nth, more = n % p->nth;
    *i0 = each * p->ith + min_i64(p->ith, more);
    *i1 = *i0 + each + (p->ith < more);
}

// Position of row ir (dimensions 1 to 3 counted as one).
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
// To the next row, without a division.
static inline void cpu_row_step(const struct ggml_tensor *t, struct cpu_row_pos *at) {
    if (++at->i1 == t->ne[1]) {
        at->i1 = 0;
        if (++at->i2 == t->ne[2]) {
            at->i2 = 0;
            at->i3++;
        }
    }
}
// NULL if t has no memory, as tensors without elements may: their rows are asked for too.
static inline char *cpu_row_at(const struct ggml_tensor *t, int64_t i1, int64_t i2, int64_t i3) {
    const size_t at = (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3];
    return t->data != NULL ? (char *) t->data + at : NULL;
}
static inline char *cpu_row(const struct ggml_tensor *t, struct cpu_row_pos at) {
    return cpu_row_at(t, at.i1, at.i2, at.i3);
}
// The row of t that broadcasts to position `at` of the result.
static inline char *cpu_row_repeat(const struct ggml_tensor *t, struct cpu_row_pos at) {
    return cpu_row_at(t, at.i1 % t->ne[1], at.i2 % t->ne[2], at.i3 % t->ne[3]);
}

// What ggml's functions of these names say, without a call into its library: small graphs are made of such questions.
static inline bool cpu_is_empty(const struct ggml_tensor *t) {
    return (t->ne[0] == 0) | (t->ne[1] == 0) | (t->ne[2] == 0) | (t->ne[3] == 0);
}
// A result without elements asks nothing of its sources: it is not run.
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

// owner: the backend it is for, or NULL. is_checked: every tensor is known to lie in memory, and no source is empty.
enum ggml_status cpu_graph_compute(
    const struct ggml_cgraph *cgraph, const struct ggml_cplan *cplan, const void *owner, bool is_checked);
// Work memory that is enough for this graph, and for every one of its nodes and edges in which no extent is larger.
size_t cpu_graph_work_most(const struct ggml_cgraph *graph, int n_threads);
// Whether this thread is running an op of a graph that is computed for this backend or on this pool.
bool cpu_is_busy_with(const void *with);

// ---- start ----

// Fills the tables, once. Every entry point of the library calls it.
void cpu_init(void);
void cpu_optable_init(void);

// The one CPU device (device.c).
ggml_backend_dev_t cpu_device(void);

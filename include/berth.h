// SPDX-License-Identifier: MIT
// berth.h: what Berth offers beyond ggml's API: errors with their text, the memory planner, and hooks for tests.
#pragma once

#include "ggml.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- version ----

// "0.1.0"; ggml_version() answers with the version of ggml's API that is served.
BERTH_API const char *berth_version(void);

// ---- errors ----

// Text of the last error on this thread, "" if there was none. Valid until the next failure on this thread.
BERTH_API const char *berth_last_error(void);
BERTH_API void berth_clear_error(void);

// A constructor that fails returns its context's poison: a real tensor (F32, one element, no data) that spreads through every
// op and carries the first error. Planning or computing a graph that holds one fails with that message.
BERTH_API bool berth_is_poison(const struct ggml_tensor *tensor);
// The first error of a context, or "" if all is well. For a tensor: the message its poison carries, "" for a sound one.
BERTH_API const char *berth_context_error(const struct ggml_context *ctx);
BERTH_API const char *berth_poison_error(const struct ggml_tensor *tensor);
// GGML_STATUS_SUCCESS, or GGML_STATUS_FAILED with berth_last_error() set if the graph is full or holds poison.
BERTH_API enum ggml_status berth_graph_check(const struct ggml_cgraph *graph);

// ---- ops ----

// What an op is for.
enum berth_op_family {
    BERTH_OP_MATMUL,
    BERTH_OP_ATTENTION,
    BERTH_OP_NORM,
    BERTH_OP_ELEMENTWISE,
    BERTH_OP_ACTIVATION,
    BERTH_OP_MOVE,
    BERTH_OP_CONV,
    BERTH_OP_STATE,
    BERTH_OP_REDUCE,
    BERTH_OP_TRAIN,
    BERTH_OP_INPUT,
    BERTH_OP_OTHER,
    BERTH_OP_FAMILIES
};
// Of an op by its name: "MUL_MAT", "SILU", "UNARY:SILU".
BERTH_API enum berth_op_family berth_op_family(const char *name);
// A small tensor of an op to ask a device about: its sources are of types a and b, or b is the result's type. sub: which of
// GGML_OP_UNARY or GGML_OP_GLU. NULL for an op that has none, poison where the constructor says no.
BERTH_API struct ggml_tensor *berth_op_sample(
    struct ggml_context *ctx, enum ggml_op op, int sub, enum ggml_type a, enum ggml_type b);
// The work of one node as its shapes state it. All zero for a view, and for a node that is NULL or not an op.
struct berth_op_cost {
    double flops;         // a multiply-add is 2; 0 for ops that only move data
    double bytes_read;    // each source once; of tables and experts what is read at most
    double bytes_written; // the result, or the part of it that is written, and sources that the op updates
};
BERTH_API struct berth_op_cost berth_op_cost(const struct ggml_tensor *node);
// Whether a node has the sources of its op and their extents fit each other and its own, as constructors make them. False as well
// for ops of which that is not known. For nodes that no constructor made, such as those of another process.
BERTH_API bool berth_op_shape_holds(const struct ggml_tensor *node);
// What stands between the two types: "x" in "q4_0 x f32", "to" in "f32 to f16". NULL: only a matters.
BERTH_API const char *berth_op_relation(enum ggml_op op);

// ---- types ----

// What llama.cpp calls a file of mostly this type (the key general.file_type); -1: it has no number for it.
BERTH_API int berth_type_file_type(enum ggml_type type);

// ---- hooks for tests ----

// Makes the n-th allocation from now on fail, counted from 1 over all threads; later ones succeed again. -1: every one
// fails. 0 turns it off.
BERTH_API void berth_alloc_fail_at(int64_t n);
// While watched, allocations are counted: how many were made and how many are alive since the watch began.
BERTH_API void berth_alloc_watch(bool on);
BERTH_API int64_t berth_alloc_made(void);
BERTH_API int64_t berth_alloc_alive(void);

#ifdef __cplusplus
}
#endif

#include "berth-budget.h"
#include "berth-gguf.h"
#include "berth-plan.h"
#ifndef BERTH_2023 // programs of 2023 have other allocators and backends under the same names
#    include "berth-alloc.h"
#    include "berth-budget-graph.h"
#    include "berth-meta.h"
#    include "berth-opt.h"
#    include "berth-sched.h"
#endif

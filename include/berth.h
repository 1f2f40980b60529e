// SPDX-License-Identifier: MIT
// berth.h: Berth's API beyond ggml's: errors with their text, facts about ops, the memory planner, and hooks for tests. It
// includes the other berth-*.h headers, except berth-cpu.h and berth-mpi.h.
//
// General rules of all berth-*.h headers:
//   - Sizes, offsets and limits of memory are in bytes. A size is size or x_size; a limit is limit, memory_limit or x_limit.
//   - Times are in microseconds and end in _us: time_us is the time taken, time_limit_us the most time that a search may take.
//   - Counts are n_x and have the type int64_t, as do the numbers of steps and items. n_threads, n_copies and n_ranks are int, as
//     in the APIs of ggml and MPI. Arrays with one element per op (srcs, order, item_of) are int32_t to save memory.
//   - max_x limits a count. A struct of parameters ends in _params. The last argument of a callback is user_data.
//   - A query is named after its result, without "get": berth_sched_stats, berth_meta_stats, berth_gallocr_report.
//   - A function that fails returns a status, NULL or false and sets berth_last_error(). Most failures also log one line.
//   - Every function accepts NULL for an object. A query then returns NULL, 0 or false; an action is refused.
//   - A function is safe to call from several threads if they use different objects, unless its comment says otherwise.
#pragma once

#include "ggml.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- version ----

// Returns Berth's version as text, such as "1.0.0". ggml_version() returns the version of ggml's API that Berth provides.
BERTH_API const char *berth_version(void);

// ---- errors ----

// Returns the text of the last error of the calling thread, or "" if there was none. It is valid until the next failure on this
// thread.
BERTH_API const char *berth_last_error(void);

// Sets the last error of the calling thread to "".
BERTH_API void berth_clear_error(void);

// Returns whether the tensor is poison. A constructor that fails returns its context's poison tensor: F32, one element, no data.
// An op on poison is poison too. Planning or computing a graph with poison fails with the first error of the context.
BERTH_API bool berth_is_poison(const struct ggml_tensor *tensor);

// Returns the first error of a context, or "" if there was none. The text belongs to the context.
BERTH_API const char *berth_context_error(const struct ggml_context *ctx);

// Returns the error text that a poison tensor carries, or "" for other tensors. The text belongs to the tensor's context.
BERTH_API const char *berth_poison_error(const struct ggml_tensor *tensor);

// Returns GGML_STATUS_FAILED, with the text in berth_last_error(), if the graph is full or contains poison.
BERTH_API enum ggml_status berth_graph_check(const struct ggml_cgraph *graph);

// ---- ops ----

// The purpose of an op.
enum berth_op_family {
    BERTH_OP_MATMUL,      // matrix products
    BERTH_OP_ATTENTION,   // attention, softmax and RoPE
    BERTH_OP_NORM,        // normalisation
    BERTH_OP_ELEMENTWISE, // arithmetic per element
    BERTH_OP_ACTIVATION,  // activation functions and gated units
    BERTH_OP_MOVE,        // copies, views and rearrangements
    BERTH_OP_CONV,        // convolution, pooling and resampling
    BERTH_OP_STATE,       // recurrences with a state
    BERTH_OP_REDUCE,      // sums, maxima and sorting
    BERTH_OP_TRAIN,       // losses, gradients and optimiser steps
    BERTH_OP_INPUT,       // values that no op computes
    BERTH_OP_OTHER,       // everything else
    BERTH_OP_FAMILY_COUNT // number of families
};

// Returns the family of an op by its name: "MUL_MAT", "SILU" or "UNARY:SILU". Returns BERTH_OP_OTHER for unknown names.
BERTH_API enum berth_op_family berth_op_family(const char *name);

// Creates a small example tensor of an op in the context, for ggml_backend_dev_supports_op. Its sources have types a and b; for
// ops that convert, b is the type of the result. sub selects the function of GGML_OP_UNARY or GGML_OP_GLU. Returns NULL if the op
// has no example, poison if the constructor refuses these types.
BERTH_API struct ggml_tensor *berth_op_sample(
    struct ggml_context *ctx, enum ggml_op op, int sub, enum ggml_type a, enum ggml_type b);

// The work of one node, computed from its shapes. All members are 0 for a view, for NULL and for a node that is not an op.
struct berth_op_cost {
    double flops;        // floating-point operations; a multiply-add counts 2; 0 for ops that only move data
    double read_size;    // each source once; of tables and experts, the most that can be read
    double written_size; // the result, or the part of it that is written, and sources that the op updates
};

// Returns the work of one node.
BERTH_API struct berth_op_cost berth_op_cost(const struct ggml_tensor *node);

// Returns whether a node has the sources that its op requires, with extents that fit each other and the result. Returns false for
// ops whose rule is unknown. It serves nodes that no constructor made, such as those received from another process.
BERTH_API bool berth_op_shape_holds(const struct ggml_tensor *node);

// Returns the word between the types of an op in a report: "x" as in "q4_0 x f32", "to" as in "f32 to f16". Returns NULL if only
// the first type matters.
BERTH_API const char *berth_op_relation(enum ggml_op op);

// ---- types ----

// Returns llama.cpp's number for a file of mostly this type, the value of the key general.file_type. Returns -1 if there is none.
BERTH_API int berth_type_file_type(enum ggml_type type);

// ---- hooks for tests ----

// Makes allocation number n from now fail; it counts from 1 over all threads, and later allocations succeed. -1 makes every
// allocation fail. 0 ends this.
BERTH_API void berth_alloc_fail_at(int64_t n);

// Starts (on = true) or ends counting of allocations over all threads. Both counts are set to 0.
BERTH_API void berth_alloc_watch(bool on);

// Returns the number of allocations since berth_alloc_watch.
BERTH_API int64_t berth_alloc_made(void);

// Returns the number of allocations since berth_alloc_watch that are not freed.
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

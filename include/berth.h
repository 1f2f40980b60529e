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

// ---- types ----

// What llama.cpp calls a file of mostly this type (the key general.file_type); -1: it has no number for it.
BERTH_API int berth_type_file_type(enum ggml_type type);

// ---- hooks for tests ----

// Makes the n-th allocation from now on fail, counted from 1 over all threads; later ones succeed again. 0 turns it off.
BERTH_API void berth_alloc_fail_at(int64_t n);
// While watched, allocations are counted: how many were made and how many are alive since the watch began.
BERTH_API void berth_alloc_watch(bool on);
BERTH_API int64_t berth_alloc_made(void);
BERTH_API int64_t berth_alloc_alive(void);

#ifdef __cplusplus
}
#endif

#include "berth-gguf.h"
#include "berth-plan.h"
#ifndef BERTH_2023 // programs of 2023 have other allocators and backends under the same names
#    include "berth-alloc.h"
#    include "berth-sched.h"
#endif

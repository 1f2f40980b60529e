// SPDX-License-Identifier: MIT
// berth-cpu.h: work memory, batch invariance and kernels of Berth's CPU backend. The general rules of berth.h hold.
//
// A program that loads the backend at run time gets these functions by ggml_backend_reg_get_proc_address with the same names.
// Work memory is sized before a graph runs. The backend owns it and keeps it for the next graph.
#pragma once

#include "ggml-cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- work memory ----

// Returns the bytes of work memory that the backend holds now. Returns 0, with an error, for other backends.
GGML_BACKEND_API size_t berth_cpu_work_size(ggml_backend_t backend);

// Returns the bytes of work memory that the backend needs to compute this graph with its threads.
GGML_BACKEND_API size_t berth_cpu_graph_work_size(ggml_backend_t backend, const struct ggml_cgraph *graph);

// Returns the bytes of work memory that berth_cpu_reserve would hold for this graph. This covers every graph of the same form in
// which no extent is larger, so it can exceed berth_cpu_graph_work_size.
GGML_BACKEND_API size_t berth_cpu_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph);

// Allocates the work memory of berth_cpu_reserve_size and starts the threads. Computing such a graph then allocates nothing, with
// the number of threads that the backend has now. berth_backend_reserve calls it.
GGML_BACKEND_API enum ggml_status berth_cpu_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph);

// ---- batch invariance ----

// With true, the result of a token does not depend on the other tokens and sequences of the batch: a sequence has the same bits alone
// and together with others. This holds for MUL_MAT, MUL_MAT_ID, FLASH_ATTN_EXT and all ops that compute each row separately, if each
// sequence has its own cache. Few columns are then computed more slowly (docs/user/speed.md). The default is false, or true if
// BERTH_CPU_BATCH_INVARIANT=1 is in the environment. ggml_graph_compute, which has no backend, uses the default.
GGML_BACKEND_API void berth_cpu_set_batch_invariant(ggml_backend_t backend, bool batch_invariant);

// ---- instruction sets ----

// Returns the instruction-set tiers in use, such as "neon+dotprod", or "portable". BERTH_CPU_ISA in the environment selects the
// last tier. The text belongs to the library.
GGML_BACKEND_API const char *berth_cpu_isa(void);

// Stores the tiers whose kernels compute this op, newest first, such as "dotprod+portable". It stores "" for a view, which needs
// no kernel. The text is cut to text_size bytes. Returns false, and stores "", if the CPU does not support the op.
GGML_BACKEND_API bool berth_cpu_op_tier(const struct ggml_tensor *op, char *text, size_t text_size);

#ifdef __cplusplus
}
#endif

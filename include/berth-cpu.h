// SPDX-License-Identifier: MIT
// berth-cpu.h: what Berth's CPU backend tells beyond ggml-cpu.h. A program that loads the backend at run time asks the registry's
// proc address of the same name.
#pragma once

#include "ggml-cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// Work memory is sized before a graph runs, owned by the backend, and kept for the next one.
// Bytes the backend holds now; bytes it would need to compute this graph with its threads.
GGML_BACKEND_API size_t berth_cpu_work_size(ggml_backend_t backend);
GGML_BACKEND_API size_t berth_cpu_graph_work_size(ggml_backend_t backend, const struct ggml_cgraph *graph);

// Work memory and threads for this graph, and for every one of the same nodes and edges in which no extent is larger: with the
// threads that the backend has now, computing them takes no more memory. Work memory in bytes; likewise, taken. The scheduler's
// reserve calls the latter for each of its parts (berth_backend_reserve in berth-backend.h).
GGML_BACKEND_API size_t berth_cpu_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph);
GGML_BACKEND_API enum ggml_status berth_cpu_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph);

// The instruction-set tiers in use, "neon+dotprod", or "portable". BERTH_CPU_ISA in the environment chooses.
GGML_BACKEND_API const char *berth_cpu_isa(void);
// The tiers whose kernels compute this op, newest first: "dotprod+portable", or "" for a view, which takes none. Loops of an op's
// own are portable. False, and "", if the op is not supported.
GGML_BACKEND_API bool berth_cpu_op_tier(const struct ggml_tensor *op, char *text, size_t text_size);

#ifdef __cplusplus
}
#endif

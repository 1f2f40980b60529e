// SPDX-License-Identifier: MIT
// backend.h: one backend of a device: a stream, an arena for work memory, and the plans of its last graphs.
#pragma once

#include "cuda/staging.h"

#include "gpu/plan.h"

// What this backend records for a plan.
struct cuda_exec {
    CUgraphExec exec;  // the captured steps; NULL: not captured
    bool has_clusters; // a kernel of exec has clusters
};

struct cuda_backend {
    struct cuda_device *dev;
    CUstream stream;
    CUevent event; // for copies between backends
    void *arena;   // device memory; work memory of one step at a time; NULL: none
    size_t arena_size;
    struct gpu_plans plans;                                 // a plan is captured at its second compute
    struct cuda_exec execs[GPU_MAX_PLANS];                  // by index of the plan
    uint64_t n_captured, n_replayed, n_updated, n_launched; // for the log: CUDA graphs; kernels that were launched separately
    struct cuda_staging *staging;                           // NULL: not needed yet, or unavailable
    int n_staging_threads;                                  // 0: copies from host memory are made directly
    bool no_graphs;                                         // CUDA graphs are not used
};

// Makes the arena large enough for a step that requires `size` bytes. Returns false if memory is exhausted.
bool cuda_arena_grow(struct cuda_backend *b, size_t size) BERTH_MUST_USE;

enum ggml_status cuda_compute(struct cuda_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;

// Allocates work memory and a plan, so that a compute allocates no host or device memory.
enum ggml_status cuda_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) BERTH_MUST_USE;
size_t cuda_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph); // bytes of device memory
// Allocates staging memory if a copy of this size from pageable memory requires it. If that fails, such copies are made directly.
void cuda_backend_reserve_copies(ggml_backend_t backend, size_t size);
// Writes the fusions of the last computed graph into buf, one per line with its count. Returns the length of the text.
size_t cuda_backend_explain(ggml_backend_t backend, char *buf, size_t size);
size_t cuda_backend_n_allocs(ggml_backend_t backend);
// The build generates these: the GPUs that the kernels are compiled for, for example "800,860,890,900"; the newest of them
// except sm_90a, for example 90, PTX included; whether sm_90a is among them.
extern const char cuda_archs[];
extern const int cuda_newest_arch;
extern const bool cuda_has_90a;

// ---- sums over several backends (comm.c); the registry exports these functions by name ----

// Returns NULL if a backend is not a CUDA backend, if a device cannot access another device's memory, or if memory is exhausted.
void *cuda_comm_init(ggml_backend_t *backends, size_t n);
void cuda_comm_free(void *comm);
// tensors[i] is on backend i. Replaces each tensor by the sum of all tensors, in stream order. A tensor without
// GGML_TENSOR_FLAG_COMPUTE counts as zeros. Returns false if the sum was not computed.
bool cuda_comm_allreduce(void *comm, struct ggml_tensor **tensors);

// SPDX-License-Identifier: MIT
// cuda.h: what the op drivers of this backend alone (op/*.c) use, in addition to gpu/gpu.h. "The driver" without "op" is NVIDIA's
// driver. The stream of a run may be in capture into a CUDA graph, so run() of an op row makes no other driver calls.
#pragma once

#include "cuda/driver.h"
#include "gpu/gpu.h"

struct cuda_device;

// ---- properties of a device that ops read ----

struct cuda_traits {
    int index;            // number in the device name CUDA<index>
    int cc;               // compute capability: 80, 86, 89, 90, 100 ...
    int n_sm;             // multiprocessors
    size_t shared_max;    // bytes; the most shared memory that one block can use
    size_t l2_size;       // bytes
    bool integrated;      // the device uses the host's memory
    bool can_overlap;     // a kernel may start before the previous kernel ends
    bool has_kernels_90a; // can run the kernels that are compiled for sm_90a
};
const struct cuda_traits *cuda_traits(const struct gpu_device *dev);
const struct cuda_driver *cuda_api(const struct gpu_device *dev);

// ---- a run: one compute, or one capture, on one stream ----

struct cuda_run {
    struct gpu_run gpu; // first member: op drivers receive its address
    CUstream stream;
    uint64_t n_launches;
    bool has_clusters; // a launched kernel has clusters
    bool has_gap;      // the last work was not a kernel; forbids overlap
};

// ---- the functions of struct gpu_device_i ----

enum ggml_status cuda_launch(struct gpu_run *r, const char *kernel, struct gpu_dims dims, const void *arg, size_t arg_size);
enum ggml_status cuda_copy_bytes(struct gpu_run *r, void *to, const void *from, size_t size);
const char *cuda_why_unreachable(struct gpu_device *dev, const struct ggml_tensor *t);

const struct gpu_op_row *const *cuda_op_rows(void); // [GGML_OP_COUNT]
extern const struct gpu_fusion *const cuda_fusions[];

// ---- products ----

// Moves products that read the same column next to each other, so that they can be fused.
void cuda_mv_gather(struct ggml_cgraph *graph);
// As gpu_moe_keep, for the fusion of the products of experts.
void cuda_experts_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);

// ---- errors ----

// Sets the last error to the formatted text and the driver's text for `error`. If the error makes the context unusable, marks
// the device as lost. Never returns GGML_STATUS_SUCCESS.
enum ggml_status cuda_fail(struct cuda_device *dev, CUresult error, const char *fmt, ...) BERTH_PRINTF(3, 4);

// SPDX-License-Identifier: MIT
// cuda.h: the interface of op drivers (op/*.c). Op drivers are C code that receives tensors and launches kernels by name.
// Kernels (kernel/*.cu) receive only pointers, counts and strides. "The driver" without "op" is NVIDIA's driver.
//
// A family of ops is one file, op/<family>.c, that ends in
//
//     const struct cuda_op_entry cuda_ops_<family>[] = {
//         {GGML_OP_SCALE, {.supports = scale_supports, .run = scale_run}},
//         CUDA_OPS_END,
//     };
//
// and has one line in optable.c. An op without a row is not supported. run() is called only if supports() returned true and the
// result has elements. run() enqueues its work on the stream of the run. The stream may be in capture into a CUDA graph, so run()
// makes no other driver calls. run() uses only the tensors and the memory that extra_size and work_size requested.
#pragma once

#include "base/min.h"
#include "base/shim/shim.h"
#include "cuda/driver.h"

#include "ggml-backend-impl.h"

struct cuda_device;
struct cuda_backend;
struct cuda_op_row;

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
const struct cuda_traits *cuda_traits(const struct cuda_device *dev);
const struct cuda_driver *cuda_api(const struct cuda_device *dev);

// ---- a run: one compute, or one capture, on one stream ----

struct cuda_run {
    struct cuda_device *dev;
    const struct cuda_traits *traits;
    CUstream stream;
    const struct ggml_cgraph *graph;
    const struct cuda_op_row *row; // row of the node that runs; NULL for a fusion
    void *work;                    // the arena of the backend, aligned to 256; shared by all ops of the graph
    size_t work_size;              // bytes of the arena; at least the largest work_size() of the graph's nodes
    // An op may leave data in the arena for a later op of this run. The op sets `kept` to the tensor that the data was made from.
    // The op also sets kept_kind, a number that says which kind of data it left. cuda_work() sets `kept` to NULL.
    const struct ggml_tensor *kept;
    int kept_kind;
    uint64_t n_launches;
    bool has_clusters; // a launched kernel has clusters
    bool has_gap;      // the last work was not a kernel; forbids overlap
};

// Returns the work memory of an op. Returns NULL if `size` exceeds the arena, that is, if work_size() was too small.
void *cuda_work(struct cuda_run *r, size_t size);
// Returns the address of the bytes after the result that extra_size requested, aligned to 256.
void *cuda_extra(const struct ggml_tensor *op);

struct cuda_dims {
    unsigned grid[3]; // 0 counts as 1
    unsigned block[3];
    unsigned shared_size; // dynamic shared memory in bytes; above 48 KiB, cuda_launch raises the kernel's limit
    unsigned cluster;     // blocks along x that form a cluster; 0: none
    bool overlap;         // may start before the previous kernel ends; the kernel must call dep_wait() or wait_for_previous()
};
// Launches a kernel by its name. args: a pointer to each argument.
enum ggml_status cuda_launch(struct cuda_run *r, const char *kernel, struct cuda_dims dims, void **args) BERTH_MUST_USE;
enum ggml_status cuda_launch_one(struct cuda_run *r, const char *kernel, struct cuda_dims dims, const void *arg) BERTH_MUST_USE;
enum ggml_status cuda_copy_bytes(struct cuda_run *r, void *to, const void *from, size_t size) BERTH_MUST_USE;

// ---- op rows ----

// The first parameter of a function of an op row that does not use the device.
#define CUDA_DEV const struct cuda_device *dev __attribute__((unused))

struct cuda_op_row {
    bool (*supports)(const struct cuda_device *dev, const struct ggml_tensor *op); // NULL: always
    // Bytes after the result, planned by the allocator. Only for ops with ggml_op_alloc_size_may_expand().
    size_t (*extra_size)(const struct cuda_device *dev, const struct ggml_tensor *op); // NULL: none
    // Bytes of the backend's arena, which all ops share.
    size_t (*work_size)(const struct cuda_device *dev, const struct ggml_tensor *op); // NULL: none
    enum ggml_status (*run)(struct cuda_run *r, struct ggml_tensor *op);              // NULL: the op computes nothing (views)
    const char *kernel;  // kernel that cuda_elementwise_run (op/op.h) launches
    unsigned empty_srcs; // bit mask; bit i set: src[i] may be empty although the result is not
};

struct cuda_op_entry {
    enum ggml_op op;
    struct cuda_op_row row;
};
// clang-format off
#define CUDA_OPS_END {GGML_OP_COUNT, {NULL, NULL, NULL, NULL, NULL, 0}}
// clang-format on

// Returns the row of an op, or NULL if it has none.
const struct cuda_op_row *cuda_op_row(enum ggml_op op);
bool cuda_supports_op(const struct cuda_device *dev, const struct ggml_tensor *op);

// ---- fusions: consecutive nodes of a graph that one launch computes ----

struct cuda_fusion {
    const char *name; // "rms_norm+mul"
    // Returns the number of nodes in the fusion that starts at node i, including views. 0: no fusion starts there.
    int (*match)(const struct cuda_device *dev, const struct ggml_cgraph *graph, int i);
    enum ggml_status (*run)(struct cuda_run *r, const struct ggml_cgraph *graph, int i, int n);
};
// Returns all fusions, ended by NULL. Longer fusions come first.
const struct cuda_fusion *const *cuda_fusions(void);
// Returns how many nodes read the result of `node`; -1: unknown, or the result is read outside the graph.
int cuda_n_uses(const struct ggml_cgraph *graph, const struct ggml_tensor *node);
// Returns whether exactly one node reads the result of `node`, and nothing outside the graph does.
bool cuda_is_used_once(const struct ggml_cgraph *graph, const struct ggml_tensor *node);
// Returns whether `node` writes into the memory of `t`.
bool cuda_writes_into(const struct ggml_tensor *node, const struct ggml_tensor *t);
// Returns whether no node of the graph writes `t`. If so, a kernel may read `t` before the previous kernel ends.
bool cuda_is_const(const struct ggml_cgraph *graph, const struct ggml_tensor *t);
// Moves products that read the same column next to each other, so that they can be fused.
void cuda_mv_gather(struct ggml_cgraph *graph);
// Requests that sources of a fusion keep their memory until its last node, so that the fused kernel can read them while it writes
// its result. Called before memory is allocated.
void cuda_ssm_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
void cuda_moe_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
void cuda_experts_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
// Requests that t keeps its memory until the node `until`, unless t is not allocated with the graph.
void cuda_keep(struct ggml_backend_graph_optimize_params *params, const struct ggml_tensor *t, struct ggml_tensor *until);
// Returns the index of the first node from i on that computes elements. Returns n_nodes if there is none.
int cuda_next_computed(const struct ggml_cgraph *graph, int i);
// Returns node i if it is an `op` that is computed. Otherwise returns NULL.
struct ggml_tensor *cuda_node_at(const struct ggml_cgraph *graph, int i, enum ggml_op op);
bool cuda_overlap(const struct ggml_tensor *a, const struct ggml_tensor *b);
// For kernels in which each thread reads element i of `read` just before it writes element i of `result`. Returns whether the
// tensors are disjoint or have identical addresses and layouts.
bool cuda_may_write_over(const struct ggml_tensor *result, const struct ggml_tensor *read);

// ---- errors ----

// Sets the last error to the formatted text and the driver's text for `error`. If the error makes the context unusable, marks
// the device as lost. Never returns GGML_STATUS_SUCCESS.
enum ggml_status cuda_fail(struct cuda_device *dev, CUresult error, const char *fmt, ...) BERTH_PRINTF(3, 4);

// SPDX-License-Identifier: MIT
// cuda.h: what an op driver (op/*.c) is made of: the row it registers, the run it launches kernels in, and the memory it may use.
// Drivers see tensors and no instruction; kernels (kernel/*.cu) see pointers, counts and strides, and are launched by name.
//
// A family is one file, op/<family>.c, that ends in
//
//     const struct cuda_op_entry cuda_ops_<family>[] = {
//         {GGML_OP_SCALE, {.supports = scale_supports, .run = scale_run}},
//         CUDA_OPS_END,
//     };
//
// and one line in optable.c. An op without a row is not supported. A row is only run on tensors its supports() said yes to, with
// elements in the result. Everything a run does goes to its stream in order, and may be captured into a CUDA graph: no driver
// call but launches and asynchronous copies and sets on that stream, no memory but what was asked for beforehand.
#pragma once

#include "base/min.h"
#include "base/shim/shim.h"
#include "cuda/driver.h"

#include "ggml-backend-impl.h"

struct cuda_device;
struct cuda_backend;
struct cuda_op_row;

// ---- a device, as ops see it ----

struct cuda_traits {
    int index;            // of CUDA<index>
    int cc;               // compute capability: 80, 86, 89, 90, 100 ...
    int n_sm;             // multiprocessors
    size_t shared_max;    // bytes of shared memory that one block may be given
    size_t l2_size;       // bytes
    bool integrated;      // its memory is the host's
    bool can_overlap;     // programmatic dependent launch
    bool has_kernels_90a; // the kernels of sm_90a run here
};
const struct cuda_traits *cuda_traits(const struct cuda_device *dev);
const struct cuda_driver *cuda_api(const struct cuda_device *dev);

// ---- a run: one compute, or one capture, on one stream ----

struct cuda_run {
    struct cuda_device *dev;
    const struct cuda_traits *traits;
    CUstream stream;
    const struct ggml_cgraph *graph;
    const struct cuda_op_row *row; // of the node that runs; of a fusion NULL
    void *work;                    // the arena: as many bytes as the largest work_size of the graph's nodes, aligned to 256
    size_t work_size;
    // What the arena holds from an earlier node of this run, so that a later one can use it again: the first work_size bytes of
    // a node whose row set both. cuda_work() forgets it.
    const struct ggml_tensor *kept;
    int kept_kind;
    uint64_t n_launches;
    bool has_gap; // the last thing on the stream was no kernel: the next one must not overlap with it
};

// The op's share of the arena, NULL if the row has not asked for that much: that is a mistake in the row.
void *cuda_work(struct cuda_run *r, size_t size);
// The bytes behind the result that extra_size asked for, aligned to 256.
void *cuda_extra(const struct ggml_tensor *op);

struct cuda_dims {
    unsigned grid[3]; // 0 counts as 1
    unsigned block[3];
    unsigned shared_size; // dynamic; beyond 48 KiB the kernel is told so by itself
    unsigned cluster;     // blocks along x that form a cluster; 0: none
    bool overlap;         // the kernel calls dep_wait() (kernel/common.cuh) before it touches memory: it may start early
};
// Launches a kernel by its name. args: a pointer to each argument.
enum ggml_status cuda_launch(struct cuda_run *r, const char *kernel, struct cuda_dims dims, void **args) BERTH_MUST_USE;
// Likewise for a kernel with one argument, a struct.
enum ggml_status cuda_launch_one(struct cuda_run *r, const char *kernel, struct cuda_dims dims, const void *arg) BERTH_MUST_USE;
// On the run's stream.
enum ggml_status cuda_copy_bytes(struct cuda_run *r, void *to, const void *from, size_t size) BERTH_MUST_USE;

// ---- rows ----

// The first parameter of a row's functions, of which many do not ask what the device is.
#define CUDA_DEV const struct cuda_device *dev __attribute__((unused))

struct cuda_op_row {
    bool (*supports)(const struct cuda_device *dev, const struct ggml_tensor *op); // NULL: always
    // Bytes behind the result's own, planned by the allocator. Only for ops of which ggml_op_alloc_size_may_expand() is true.
    size_t (*extra_size)(const struct cuda_device *dev, const struct ggml_tensor *op); // NULL: none
    // Bytes of the backend's arena, free for other ops before and after.
    size_t (*work_size)(const struct cuda_device *dev, const struct ggml_tensor *op); // NULL: none
    enum ggml_status (*run)(struct cuda_run *r, struct ggml_tensor *op);              // NULL: nothing to do (views)
    const char *kernel;                                                               // of cuda_flat_run (op/op.h)
};

struct cuda_op_entry {
    enum ggml_op op;
    struct cuda_op_row row;
};
// clang-format off
#define CUDA_OPS_END {GGML_OP_COUNT, {NULL, NULL, NULL, NULL, NULL}}
// clang-format on

// The row of an op, NULL if there is none.
const struct cuda_op_row *cuda_op_row(enum ggml_op op);
bool cuda_supports_op(const struct cuda_device *dev, const struct ggml_tensor *op);

// ---- fusions: several nodes of a graph that follow each other, computed by one launch ----

struct cuda_fusion {
    const char *name; // "rms_norm+mul"
    // How many nodes from node i on it computes; 0: it does not apply. Nodes that are views count, and are not run.
    int (*match)(const struct cuda_device *dev, const struct ggml_cgraph *graph, int i);
    enum ggml_status (*run)(struct cuda_run *r, const struct ggml_cgraph *graph, int i, int n);
};
// All of them, the widest first; ended by a NULL name. They are listed in optable.c.
const struct cuda_fusion *const *cuda_fusions(void);
// How many nodes read a node's result; -1: not known, or it is read outside of the graph.
int cuda_n_uses(const struct ggml_cgraph *graph, const struct ggml_tensor *node);
// Whether node i's result is read by one node alone, and by nothing outside of the graph.
bool cuda_is_used_once(const struct ggml_cgraph *graph, const struct ggml_tensor *node);
// Whether a node writes into another tensor's memory.
bool cuda_writes_into(const struct ggml_tensor *node, const struct ggml_tensor *t);
// Whether no kernel of the graph writes a tensor that an op of it reads: then it may be read before the kernel ahead ends.
bool cuda_is_const(const struct ggml_cgraph *graph, const struct ggml_tensor *t);
// Products with the same column brought together: graph_optimize's part.
void cuda_mv_gather(struct ggml_cgraph *graph);
// Whether the bytes of the two tensors overlap at all.
bool cuda_overlap(const struct ggml_tensor *a, const struct ggml_tensor *b);
// A result may be written over `read` by a kernel whose threads read each element only just before they write it: they are
// apart, or they are the same bytes in the same order.
bool cuda_may_write_over(const struct ggml_tensor *result, const struct ggml_tensor *read);

// ---- errors ----

// The driver's words for `error` behind the text, as the last error; the device is lost for good if the error says so.
// Returns a status that is not GGML_STATUS_SUCCESS.
enum ggml_status cuda_fail(struct cuda_device *dev, CUresult error, const char *fmt, ...) BERTH_PRINTF(3, 4);

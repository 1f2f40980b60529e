// SPDX-License-Identifier: MIT
// gpu.h: what the GPU backends share: op drivers (op/*.c), fusions, and the plan of a graph. Op drivers are C code that receives
// tensors and launches kernels by name. Kernels belong to a backend. They receive only the structs of gpu/kernel/*.h, which hold
// addresses, counts and strides.
//
// A family of ops is one file, op/<family>.c, that ends in
//
//     const struct gpu_op_entry gpu_ops_<family>[] = {
//         {GGML_OP_SCALE, {.supports = scale_supports, .run = scale_run}},
//         GPU_OPS_END,
//     };
//
// and is declared below. A backend lists the families whose kernels it has, and its own ones (gpu_rows_gather). An op without a row is not supported. run() is
// called only if supports() returned true and the result has elements. run() enqueues its work in the order of the run. A backend
// may record this work and repeat it later, so run() has no other effect. run() uses only the tensors and the memory that
// extra_size and work_size requested.
#pragma once

#include "base/min.h"
#include "base/shim/shim.h"

#include "ggml-backend-impl.h"

#include <pthread.h>
#include <stdatomic.h>

struct gpu_device;
struct gpu_run;
struct gpu_op_row;
struct gpu_fusion;

// ---- a device: the first member of the struct with which a backend describes its device ----

struct gpu_dims {
    unsigned grid[3]; // 0 counts as 1
    unsigned block[3];
    unsigned shared_size; // dynamic shared memory in bytes; above 48 KiB, CUDA raises the kernel's limit
    unsigned cluster;     // CUDA: blocks along x that form a cluster; 0: none
    bool overlap;         // CUDA: may start before the previous kernel ends; the kernel calls dep_wait() or wait_for_previous()
};

// The functions of a backend that op drivers and plans call.
struct gpu_device_i {
    enum ggml_status (*launch)(struct gpu_run *r, const char *kernel, struct gpu_dims dims, const void *arg, size_t arg_size);
    enum ggml_status (*copy)(struct gpu_run *r, void *to, const void *from, size_t size);
    // Returns why the device cannot access the memory of a tensor; NULL: it can.
    const char *(*why_unreachable)(struct gpu_device *dev, const struct ggml_tensor *t);
};

struct gpu_device {
    const struct gpu_device_i *i;
    const char *name;                        // "CUDA0"
    const char *description;                 // product name
    size_t memory_limit;                     // bytes that BERTH_MEMORY allows; 0: no limit
    int n_units;                             // multiprocessors
    bool has_superblocks;                    // has the kernels that quantise to blocks of more than 32 elements
    const struct gpu_op_row *const *rows;    // [GGML_OP_COUNT]; NULL: the op is not supported
    const struct gpu_fusion *const *fusions; // ended by NULL. Longer fusions come first.

    struct ggml_backend_device ggml;      // its context is the device
    struct ggml_backend_buffer_type buft; // of buffers in the memory of the device; its context is the device
    atomic_bool has_failed;               // a call without a return value failed; the next compute must report it
    pthread_mutex_t lock;                 // protects arena_text, and the fields that a backend lists
    char arena_text[256];                 // why graph_optimize could not allocate an arena; "": no failure
};

// ---- limit.c ----

// Returns the bytes that BERTH_MEMORY allows the device, 0: no limit. The variable is a list of NAME=SIZE, or SIZE for every GPU,
// separated by commas.
size_t gpu_memory_limit(const char *name);
// Reduces the reported memory of the device to its limit. used: bytes that the process has allocated.
static inline void gpu_memory_apply_limit(const struct gpu_device *dev, size_t used, size_t *n_free, size_t *n_total) {
    if (dev->memory_limit > 0) {
        const size_t left = dev->memory_limit - min_size(used, dev->memory_limit);
        *n_free = min_size(*n_free, left);
        *n_total = min_size(*n_total, dev->memory_limit);
    }
}
// Returns true if `size` more bytes exceed the limit.
static inline bool gpu_memory_exceeds_limit(const struct gpu_device *dev, size_t used, size_t size) {
    return dev->memory_limit > 0 && (used > dev->memory_limit || size > dev->memory_limit - used);
}

// ---- device.c: the context of ggml's object is the device ----

static inline struct gpu_device *gpu_device_of(ggml_backend_dev_t dev) {
    return (struct gpu_device *) dev->context;
}
// Functions for the interfaces of devices and buffer types.
const char *gpu_dev_name(ggml_backend_dev_t dev);
const char *gpu_dev_description(ggml_backend_dev_t dev);
ggml_backend_buffer_type_t gpu_dev_buft(ggml_backend_dev_t dev);
bool gpu_dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op);
bool gpu_dev_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op);
const char *gpu_buft_name(ggml_backend_buffer_type_t buft);
size_t gpu_buft_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor);
// For ggml-cuda.h and ggml-vulkan.h. Without a device, the text is empty and the bytes are 0. Pointers may be NULL.
void gpu_description_copy(const struct gpu_device *dev, char *description, size_t size);
void gpu_memory_query(struct gpu_device *dev, size_t *n_free, size_t *n_total);

// graph_optimize cannot return a status. If it cannot allocate the arena of `size` bytes, it calls gpu_arena_fail. The next buffer
// allocation calls gpu_arena_check, which then returns false and sets the last error.
void gpu_arena_fail(struct gpu_device *dev, size_t size, const struct ggml_cgraph *graph);
bool gpu_arena_check(struct gpu_device *dev) BERTH_MUST_USE;
// Returns whether an environment variable is neither empty nor 0.
bool gpu_env_is_set(const char *name);

// ---- a run: one compute, or one recording, of a graph ----

struct gpu_run {
    struct gpu_device *dev;
    const struct ggml_cgraph *graph;
    const struct gpu_op_row *row; // row of the node that runs; NULL for a fusion
    void *work;                   // the arena of the backend, aligned to 256; shared by all ops of the graph
    size_t work_size;             // bytes of the arena; at least the largest work_size() of the graph's nodes
    // An op may leave data in the arena for a later op of this run. The op sets `kept` to the tensor that the data was made from.
    // The op also sets kept_kind, a number that says which kind of data it left. gpu_work() sets `kept` to NULL.
    const struct ggml_tensor *kept;
    int kept_kind;
};

// Returns the work memory of an op. Returns NULL if `size` exceeds the arena, that is, if work_size() was too small.
void *gpu_work(struct gpu_run *r, size_t size);
// Returns the address of the bytes after the result that extra_size requested, aligned to 256.
void *gpu_extra(const struct ggml_tensor *op);

// Launches a kernel by its name. arg: address of the struct that the kernel receives.
#define gpu_launch(r, kernel, dims, arg) (r)->dev->i->launch(r, kernel, dims, arg, sizeof *(arg))
static inline enum ggml_status gpu_copy_bytes(struct gpu_run *r, void *to, const void *from, size_t size) {
    return r->dev->i->copy(r, to, from, size);
}

// ---- op rows ----

// The first parameter of a function of an op row that does not use the device.
#define GPU_DEV const struct gpu_device *dev __attribute__((unused))

struct gpu_op_row {
    bool (*supports)(const struct gpu_device *dev, const struct ggml_tensor *op); // NULL: always
    // Bytes after the result, planned by the allocator. Only for ops with ggml_op_alloc_size_may_expand().
    size_t (*extra_size)(const struct gpu_device *dev, const struct ggml_tensor *op); // NULL: none
    // Bytes of the backend's arena, which all ops share.
    size_t (*work_size)(const struct gpu_device *dev, const struct ggml_tensor *op); // NULL: none
    enum ggml_status (*run)(struct gpu_run *r, struct ggml_tensor *op);              // NULL: the op computes nothing (views)
    const char *kernel;  // kernel that gpu_elementwise_run (op/op.h) launches
    unsigned empty_srcs; // bit mask; bit i set: src[i] may be empty although the result is not
};

struct gpu_op_entry {
    enum ggml_op op;
    struct gpu_op_row row;
};
// clang-format off
#define GPU_OPS_END {GGML_OP_COUNT, {NULL, NULL, NULL, NULL, NULL, 0}}
// clang-format on

// The families that backends share. A backend lists those whose kernels it has.
extern const struct gpu_op_entry gpu_ops_views[], gpu_ops_eltwise[], gpu_ops_norm[], gpu_ops_rope[], gpu_ops_rows[],
    gpu_ops_rearrange[], gpu_ops_reduce[], gpu_ops_conv[], gpu_ops_recur[], gpu_ops_ssm[], gpu_ops_train[];
extern const struct gpu_fusion gpu_fusion_norm, gpu_fusion_rope_qkv, gpu_fusion_rope_set, gpu_fusion_conv, gpu_fusion_scan,
    gpu_fusion_gate, gpu_fusion_router, gpu_fusion_expert_sum;

// Fills rows[GGML_OP_COUNT] with the rows of families, a list that ends with NULL.
void gpu_rows_gather(const struct gpu_op_row **rows, const struct gpu_op_entry *const *families);
// Returns the row of an op, or NULL if it has none.
static inline const struct gpu_op_row *gpu_op_row(const struct gpu_device *dev, enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? dev->rows[op] : NULL;
}
bool gpu_supports_op(const struct gpu_device *dev, const struct ggml_tensor *op);

// ---- fusions: consecutive nodes of a graph that one launch computes ----

struct gpu_fusion {
    const char *name; // "rms_norm+mul"
    // Returns the number of nodes in the fusion that starts at node i, including views. 0: no fusion starts there.
    int (*match)(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i);
    enum ggml_status (*run)(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n);
};
// Returns how many nodes read the result of `node`; -1: unknown, or the result is read outside the graph.
int gpu_n_uses(const struct ggml_cgraph *graph, const struct ggml_tensor *node);
// Returns whether exactly one node reads the result of `node`, and nothing outside the graph does.
bool gpu_is_used_once(const struct ggml_cgraph *graph, const struct ggml_tensor *node);
// Returns whether `node` writes into the memory of `t`.
bool gpu_writes_into(const struct ggml_tensor *node, const struct ggml_tensor *t);
// Returns whether no node of the graph writes `t`. If so, a kernel may read `t` before the previous kernel ends.
bool gpu_is_const(const struct ggml_cgraph *graph, const struct ggml_tensor *t);
// Requests that sources of a fusion keep their memory until its last node, so that the fused kernel can read them while it writes
// its result. Called before memory is allocated.
void gpu_rope_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
void gpu_ssm_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
void gpu_moe_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params);
// Requests that t keeps its memory until the node `until`, unless t is not allocated with the graph.
void gpu_keep(struct ggml_backend_graph_optimize_params *params, const struct ggml_tensor *t, struct ggml_tensor *until);
// Returns the index of the first node from i on that computes elements. Returns n_nodes if there is none.
int gpu_next_computed(const struct ggml_cgraph *graph, int i);
// Returns node i if it is an `op` that is computed. Otherwise returns NULL.
struct ggml_tensor *gpu_node_at(const struct ggml_cgraph *graph, int i, enum ggml_op op);
bool gpu_overlap(const struct ggml_tensor *a, const struct ggml_tensor *b);
// For kernels in which each thread reads element i of `read` just before it writes element i of `result`. Returns whether the
// tensors are disjoint or have identical addresses and layouts.
bool gpu_may_write_over(const struct ggml_tensor *result, const struct ggml_tensor *read);
// Returns whether an op moves no data: NONE, VIEW, RESHAPE, PERMUTE, TRANSPOSE.
bool gpu_is_view_op(enum ggml_op op);

// SPDX-License-Identifier: MIT
// program.h: a program is a list of steps that compute one graph on several devices.
// In a step, each device computes a sequence of nodes, or the devices exchange data. All tensors and states of a program are in
// one arena. A temporary tensor is a complete copy of a split tensor, a slice that is not a view, or an operand of a sum. The
// memory of temporary tensors is planned per device. All programs of a backend share one scratch buffer per device, because only
// one program runs at a time.
#pragma once

#include "alloc/lifetime.h"
#include "meta/meta.h"

enum meta_step_kind {
    META_COMPUTE, // computes nodes [from, to) of each device
    META_SUM,     // adds the parts of all devices; every device gets the sum
    META_MOVE,    // converts a tensor from one state to another through the host
    META_ZERO,    // sets parts to 0 on devices that have no term of a sum
};

struct meta_step {
    enum meta_step_kind kind;
    int32_t *from, *to;            // [n] META_COMPUTE: range of each device's nodes
    struct ggml_tensor *src, *dst; // [n] parts; META_ZERO: dst[j] is set to 0 if its op is not NONE
    const meta_state *src_state, *dst_state;
    struct ggml_tensor *shape;    // META_MOVE: the complete contiguous tensor
    struct ggml_tensor *shares;   // [n * n] META_SUM: at k * n + i, a view of share i of the part of device k
    struct ggml_tensor *operands; // [n * n] META_SUM: at k * n + i, memory on device k for a copy of device i's share k
    struct ggml_tensor *adds;     // [n * n] META_SUM: at k * n + i, the node on device k that adds this copy
    struct ggml_cgraph *graphs;   // [n] graphs of adds
};

// A temporary tensor.
struct meta_temp {
    struct ggml_tensor *parts; // [n] one per device
    int64_t first, last;       // first and last time of use, on the builder's clock
};

// A node that cannot be computed on split sources.
struct meta_cost {
    enum ggml_op op;
    char name[GGML_MAX_NAME];
    int64_t n_bytes; // bytes that each run moves between devices to make the node's sources complete
};

struct meta_arena {
    struct meta_block *last;
    size_t used;  // bytes used in the last block
    size_t taken; // bytes taken from all blocks since the last reset
};

// What the program assumes about one tensor of its graph. meta_program_matches checks the assumptions before a run.
struct meta_seen {
    void *data;                       // address of the tensor
    uint64_t buffer_id;               // meta_buffer.id of its buffer; 0: not a buffer of a composite device
    const meta_state *before, *after; // of a root: states before and after a run
};

// Memory of temporary tensors, one buffer per device. A zeroed struct is empty.
struct meta_scratch {
    ggml_backend_buffer_t parts[META_MAX];
    uint64_t id; // changes whenever a buffer is replaced
};

void meta_scratch_fini(struct meta_scratch *scratch);

struct meta_program {
    int n;
    bool is_made; // false: the program is empty, with reserved capacities
    struct record rec;
    struct meta_seen *seen; // [rec.n_rows]
    struct meta_row *rows;  // [rec.n_rows + 1] state of the builder (build.h), used only while the program is made
    size_t seen_cap, rows_cap;
    struct meta_arena arena;
    struct meta_step *steps;
    size_t n_steps, steps_cap;
    struct ggml_tensor **nodes[META_MAX];
    size_t n_nodes[META_MAX], nodes_cap[META_MAX];
    struct ggml_hash_set tensors[META_MAX]; // per device: its nodes and their sources
    int32_t *use_counts[META_MAX];          // per slot of tensors: number of readers, for backends that fuse ops
    uint64_t uid[META_MAX];
    struct meta_temp *temps;
    size_t n_temps, temps_cap;
    struct ggml_tensor **views; // views of temporary tensors; placed after planning
    size_t n_views, views_cap;
    struct berth_plan_item *items; // [n * n_temps] temporary tensors per device
    uint64_t *offsets;             // [n * n_temps]
    size_t items_cap, offsets_cap;
    uint64_t peak[META_MAX];
    struct meta_scratch *scratch;
    uint64_t scratch_id; // value of scratch->id when its temporary tensors were placed
    char *stage;         // host memory for moves
    size_t stage_size, stage_cap;
    struct meta_cost *costs;
    size_t n_costs, costs_cap;
    int64_t n_sums, summed_size, redistributed_size; // per run
    int64_t n_grown;                                 // number of rebuilds, each because the memory of a root had to grow
    uint64_t id, last_use;
};

void *meta_take(struct meta_arena *arena, size_t size); // zeroed; NULL: out of memory

struct meta_cached_plan;
// Plans of reserved graphs. A zeroed struct is empty.
struct meta_plan_cache {
    struct meta_cached_plan *list; // the newest first
};

// Makes the program of the graph. On entry, p is zeroed or the program of another graph, whose memory is reused.
enum ggml_status meta_program_make(struct meta_program *p, ggml_backend_t *backends, int n, const struct ggml_cgraph *graph,
    struct meta_scratch *scratch, const struct meta_plan_cache *plan_cache) BERTH_MUST_USE;
// Empties p and reserves the capacities of `like` for all its arrays: rows, steps, temporary tensors, nodes and arena. Returns
// false if out of memory.
bool meta_program_reserve_rows(struct meta_program *p, const struct meta_program *like) BERTH_MUST_USE;
struct ggml_cgraph meta_step_graph(struct meta_program *program, const struct meta_step *step, int j);
void meta_program_free(struct meta_program *program);
// Returns true if the program can run the graph: the record matches, and addresses, buffers and states are as in `seen`.
bool meta_program_matches(struct meta_program *program, const struct ggml_cgraph *graph);
// Stores the states that the roots have after a run in their buffers. Returns false if out of memory.
bool meta_program_record(struct meta_program *program) BERTH_MUST_USE;

// ---- reserve.c ----

// Returns a kept plan that has as many temporary tensors as p, with the same lifetimes and no smaller sizes. NULL: none.
const struct meta_cached_plan *meta_plan_cache_find(const struct meta_plan_cache *plan_cache, const struct meta_program *p);
uint64_t meta_cached_plan_apply(const struct meta_cached_plan *kept, int j, uint64_t *offsets); // returns the peak of device j
bool meta_plan_cache_add(struct meta_plan_cache *plan_cache, const struct meta_program *p) BERTH_MUST_USE;
void meta_plan_cache_fini(struct meta_plan_cache *plan_cache);
enum ggml_status meta_parts_reserve(ggml_backend_t *backends, struct meta_program *p) BERTH_MUST_USE;
// Reserves memory for the entries that a run of the program adds to the buffers of its tensors.
bool meta_entries_reserve(const struct meta_program *p) BERTH_MUST_USE;
// Returns the bytes of the largest share that is copied between devices in a sum.
size_t meta_share_size(const struct meta_program *p);

// ---- run.c ----

struct meta_crew; // the team of threads of a backend, one per device
// Functions for sums that the registry of a device offers; all NULL: no registry offers them.
struct meta_comm {
    void *ctx;
    void (*free)(void *ctx);
    bool (*allreduce)(void *ctx, struct ggml_tensor **tensors);
    // Allreduce as two functions; NULL: not offered. ask sends the request to the asynchronous devices. If the devices cannot do
    // the sum, ask sends nothing and returns false. join adds the part of the synchronous device.
    bool (*ask)(void *ctx, struct ggml_tensor **tensors);
    bool (*join)(void *ctx, struct ggml_tensor **tensors);
};

struct meta_crew *meta_crew_new(ggml_backend_t *backends, int n, const struct meta_comm *comm);
void meta_crew_free(struct meta_crew *crew);
// Reserves `size` bytes of staging memory per device, for copies between devices that cannot access each other's memory. Returns
// false if out of memory.
bool meta_crew_reserve(struct meta_crew *crew, size_t size) BERTH_MUST_USE;
enum ggml_status meta_crew_run(struct meta_crew *crew, struct meta_program *program) BERTH_MUST_USE;

// ---- how an op splits (rule.c) ----

struct meta_node {
    const struct ggml_tensor *t;
    int n;                                // number of devices
    const meta_state *have[GGML_MAX_SRC]; // current states of the sources; NULL: no such source
    const meta_state *want[GGML_MAX_SRC]; // states to which the sources must be converted
    meta_state out;                       // state of the result
    meta_state made[4];                   // storage for states in want
    int n_made;
};

// Sets want and out. Requires that all sources are mirrored or split. Returns false if the op cannot be computed on split
// sources; want and out are then mirrored.
bool meta_rule(struct meta_node *node);
// Requires partial sources. Returns true if each device can compute the op on its terms of the sums. The result is then partial.
bool meta_rule_sum(struct meta_node *node);

// ---- sizes of the items of a plan on each device (sizing.c) ----

struct meta_sizing {
    const struct meta_device *device;
    struct record *rec; // record of the graph; its rows refer to the items of `lives`
    const struct lifetimes *lives;
    const struct berth_layout_params *params;
    uint64_t *sizes; // [n * n_items] zeroed on entry: bytes of item i on device j at j * n_items + i
};

enum ggml_status meta_sizing_run(struct meta_sizing *s) BERTH_MUST_USE;

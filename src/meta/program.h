// SPDX-License-Identifier: MIT
// program.h: a graph as what each device does: runs of nodes of its own, and between them what all do together.
//
// Memory: a node's part lies where the graph's plan put the node, at the same offset on every device. What is beside the graph
// (whole copies, slices that are no views, operands of sums) is temporary and planned for each device by itself; a device's
// scratch buffer is as large as the largest of these plans, and serves all programs of a backend, of which one runs at a time.
// All part tensors and states of a program live in one arena.
#pragma once

#include "alloc/lifetime.h"
#include "meta/meta.h"

enum meta_step_kind {
    META_COMPUTE, // nodes [from, to) of each device
    META_SUM,     // what every device has is added up, everywhere
    META_MOVE,    // a tensor from one state to another, through the host
    META_ZERO,    // the parts of devices that have no term of a sum
};

struct meta_step {
    enum meta_step_kind kind;
    int32_t *from, *to;            // [n] META_COMPUTE
    struct ggml_tensor *src, *dst; // [n] parts; META_ZERO: dst, where op is not NONE
    const meta_state *src_state, *dst_state;
    struct ggml_tensor *shape;    // META_MOVE: the whole, without gaps
    struct ggml_tensor *shares;   // [n * n] META_SUM: share i of part k at k * n + i
    struct ggml_tensor *operands; // [n * n] likewise: where device k takes in share k of device i
    struct ggml_tensor *adds;     // [n * n] and adds it
    struct ggml_cgraph *graphs;   // [n] of adds
};

// A tensor beside the graph, or several views of one.
struct meta_temp {
    struct ggml_tensor *parts; // [n]
    int64_t first, last;       // steps of the builder's clock
};

// An op whose split could not be carried.
struct meta_cost {
    enum ggml_op op;
    char name[GGML_MAX_NAME];
    int64_t n_bytes; // moved a run, so that it has whole sources
};

struct meta_arena {
    struct meta_block *last;
    size_t used;  // of the last
    size_t taken; // of all, since it was empty
};

// What a root was when the program was made.
struct meta_seen {
    void *data;
    uint64_t buffer_id;
    const meta_state *before, *after; // states
};

// Memory of temporary tensors, a buffer a device. Zeroed: there is none.
struct meta_scratch {
    ggml_backend_buffer_t parts[META_MAX];
    uint64_t id; // another one whenever a part has moved
};

void meta_scratch_fini(struct meta_scratch *scratch);

struct meta_program {
    int n;
    bool is_made; // false: there is room for one, and nothing else
    struct record rec;
    struct meta_seen *seen; // [rec.n_rows]
    struct meta_row *rows;  // [rec.n_rows + 1] while it is made
    size_t seen_cap, rows_cap;
    struct meta_arena arena;
    struct meta_step *steps;
    size_t n_steps, steps_cap;
    struct ggml_tensor **nodes[META_MAX];
    size_t n_nodes[META_MAX], nodes_cap[META_MAX];
    struct ggml_hash_set tensors[META_MAX];
    int32_t *use_counts[META_MAX];
    uint64_t uid[META_MAX];
    struct meta_temp *temps;
    size_t n_temps, temps_cap;
    struct ggml_tensor **views; // of temporary tensors, in the order they were made
    size_t n_views, views_cap;
    struct berth_plan_item *items; // [n * n_temps] what each device keeps of them, and where
    uint64_t *offsets;             // [n * n_temps]
    size_t items_cap, offsets_cap;
    uint64_t peak[META_MAX];
    struct meta_scratch *scratch;
    uint64_t scratch_id; // of the scratch that its temporary tensors lie in
    char *stage;         // host memory that moves go through
    size_t stage_size, stage_cap;
    struct meta_cost *costs;
    size_t n_costs, costs_cap;
    int64_t n_sums, sum_bytes, move_bytes; // a run
    int64_t n_grown;                       // roots that got more memory while it was made
    uint64_t id, last_use;
};

void *meta_take(struct meta_arena *arena, size_t size); // zeroed; NULL: out of memory

struct meta_cached_plan;
// Plans of graphs that were reserved; zeroed: none.
struct meta_plan_cache {
    struct meta_cached_plan *list; // the newest first
};

// Makes p, which is zeroed or of another graph, the program of this one. What it has of memory is used again.
enum ggml_status meta_program_make(struct meta_program *p, ggml_backend_t *backends, int n, const struct ggml_cgraph *graph,
    struct meta_scratch *scratch, const struct meta_plan_cache *keep) BERTH_MUST_USE;
// Room for a program like another one; of p itself nothing is left. False: out of memory.
bool meta_program_reserve_rows(struct meta_program *p, const struct meta_program *like) BERTH_MUST_USE;
// A program's graph of device j from a META_COMPUTE step on.
struct ggml_cgraph meta_step_graph(struct meta_program *program, const struct meta_step *step, int j);
void meta_program_free(struct meta_program *program);
// Is it the program of this graph, where its tensors are now?
bool meta_program_is(struct meta_program *program, const struct ggml_cgraph *graph);
// Graph memory holds what the program has computed.
bool meta_program_note(struct meta_program *program) BERTH_MUST_USE;

// ---- reserve.c ----

// The plan of temporary tensors that are as these, or nowhere smaller. NULL: none is known.
const struct meta_cached_plan *meta_plan_cache_find(const struct meta_plan_cache *keep, const struct meta_program *p);
uint64_t meta_cached_plan_apply(const struct meta_cached_plan *kept, int j, uint64_t *offsets); // the peak of device j
bool meta_plan_cache_add(struct meta_plan_cache *keep, const struct meta_program *p) BERTH_MUST_USE;
void meta_plan_cache_fini(struct meta_plan_cache *keep);
// All that a run of the program takes of its parts' backends.
enum ggml_status meta_parts_reserve(ggml_backend_t *backends, struct meta_program *p) BERTH_MUST_USE;
// Room in the buffers of the program's tensors for what is noted after a run.
bool meta_notes_reserve(const struct meta_program *p) BERTH_MUST_USE;
// The largest piece that goes from one device to another in a sum.
size_t meta_share_size(const struct meta_program *p);

// ---- run.c ----

struct meta_crew; // a thread a device
// What the parts' registry offers for sums; all NULL: nothing.
struct meta_comm {
    void *ctx;
    void (*free)(void *ctx);
    bool (*allreduce)(void *ctx, struct ggml_tensor **tensors);
    // The same in two halves, if the registry has them: what is asked of devices that do not keep their caller waiting (false:
    // they cannot, and nothing was asked), and what the one that does adds to it.
    bool (*ask)(void *ctx, struct ggml_tensor **tensors);
    bool (*join)(void *ctx, struct ggml_tensor **tensors);
};

struct meta_crew *meta_crew_new(ggml_backend_t *backends, int n, const struct meta_comm *comm);
void meta_crew_free(struct meta_crew *crew);
// Memory for pieces of so many bytes between devices that cannot reach each other. False: there is none.
bool meta_crew_reserve(struct meta_crew *crew, size_t size) BERTH_MUST_USE;
enum ggml_status meta_crew_run(struct meta_crew *crew, struct meta_program *program) BERTH_MUST_USE;

// ---- how an op carries what is split (rule.c) ----

// A node whose sources have states, and what its rule makes of it.
struct meta_node {
    const struct ggml_tensor *t;
    int n;                                // devices
    const meta_state *have[GGML_MAX_SRC]; // NULL: no such source
    const meta_state *want[GGML_MAX_SRC]; // to be turned into these
    meta_state out;
    meta_state made[4]; // states that want points to
    int n_made;
};

// All sources are whole or split. False: the op cannot carry it and wants whole sources.
bool meta_rule(struct meta_node *node);
// Some sources are sums over the devices: may the op be computed on each part of the sum? Then its result is one, too.
bool meta_rule_sum(struct meta_node *node);

// ---- what each device needs of the pieces of memory that a plan has (sizing.c) ----

struct meta_sizing {
    const struct meta_device *device;
    struct record *rec; // of the graph; its pieces are the items
    const struct lifetimes *lives;
    const struct berth_layout_params *params;
    uint64_t *sizes; // [n * n_items], zeroed: bytes of item i on device j at j * n_items + i
};

// Fills sizes for the items of the pool.
enum ggml_status meta_sizing_run(struct meta_sizing *s) BERTH_MUST_USE;

// SPDX-License-Identifier: MIT
// program.h: a graph as what each device does: runs of nodes of its own, and between them what all do together.
//
// Memory: a node's part lies where the graph's plan put the node, at the same offset on every device. What is beside the graph
// (whole copies, slices that are no views, operands of sums) is temporary and planned for each device by itself; a device's
// scratch buffer is as large as its plan says. All part tensors and states live in one arena.
#pragma once

#include "meta/rule.h"

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
    size_t used; // of the last
};

// What a root was when the program was made.
struct meta_seen {
    void *data;
    uint64_t buffer_id;
    const meta_state *before, *after; // states
};

struct meta_program {
    int n;
    struct record rec;
    struct meta_seen *seen; // [rec.n_rows]
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
    ggml_backend_buffer_t scratch[META_MAX];
    char *stage; // host memory that moves go through
    size_t stage_size;
    struct meta_cost *costs;
    size_t n_costs, costs_cap;
    int64_t n_sums, sum_bytes, move_bytes; // a run
    uint64_t id, last_use;
};

void *meta_take(struct meta_arena *arena, size_t size); // zeroed; NULL: out of memory

// A program for the graph. NULL: *status says why.
struct meta_program *meta_program_new(ggml_backend_t *backends, int n, const struct ggml_cgraph *graph, enum ggml_status *status);
void meta_program_free(struct meta_program *program);
// Is it the program of this graph, where its tensors are now?
bool meta_program_is(struct meta_program *program, const struct ggml_cgraph *graph);
// Graph memory holds what the program has computed.
bool meta_program_note(struct meta_program *program) BERTH_MUST_USE;

// ---- run.c ----

struct meta_crew; // a thread a device
// What the parts' registry offers for sums; all NULL: nothing.
struct meta_comm {
    void *ctx;
    void (*free)(void *ctx);
    bool (*allreduce)(void *ctx, struct ggml_tensor **tensors);
};

struct meta_crew *meta_crew_new(ggml_backend_t *backends, int n, const struct meta_comm *comm);
void meta_crew_free(struct meta_crew *crew);
enum ggml_status meta_crew_run(struct meta_crew *crew, struct meta_program *program) BERTH_MUST_USE;

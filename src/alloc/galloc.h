// SPDX-License-Identifier: MIT
// galloc.h: the graph allocator's own state.
//
//   graph --src/record--> record --lifetime.c--> items --src/plan--> offsets --galloc.c--> buffers and addresses
//
// An allocator keeps several plans: the graphs that a program alternates between are planned once each. Plans share the
// buffers; a plan is good for as long as each chunk has the bytes that it needs.
#pragma once

#include "alloc/alloc.h"
#include "backend/backend.h"

// Where an item lies.
struct galloc_spot {
    int32_t pool;
    int32_t chunk; // GALLOC_PARTS: in the pool's memory of layouts
    size_t off;    // in the chunk
};
#define GALLOC_PARTS (-1)

// What a plan needs of a pool.
struct galloc_need {
    size_t *sizes; // [n] bytes of each chunk: one, as mostly, or many
    size_t n, one, *many, many_cap;
    size_t max_chunk; // the pool's, or more if one item takes more; 0: one chunk takes all
    struct berth_plan_report report;
    struct berth_layout *layout; // of a device made of several: what each of its parts needs; NULL: chunks serve
};

struct galloc_plan {
    struct record rec;            // of the graph, unless it is somebody else's
    struct lifetimes lives;       // its items
    struct ggml_tensor **tensors; // [n_rows] of the record that the plan is for
    int32_t n_rows;
    void *block; // columns for somebody else's record: tensors, rows of lives, steps
    size_t block_size;
    struct record_place *places; // [n_rows] addresses, while the buffers are those of places_epoch; then scratch of as much
    struct galloc_spot *spots;   // [n_items]
    uint64_t *offsets;           // [n_items] as the planner gives them: chunk k begins at k * max_chunk
    uint64_t places_epoch;       // 0: never
    bool is_quiet;               // no buffer in places wants to be told of its tensors
    struct galloc_plan *next;    // used before this one
    bool is_ready;               // all of the above belong together
    bool is_reshaped;            // the record is of a graph that is somewhere smaller than the items
    bool is_backed;              // there were buffers for it
    struct galloc_need needs[];  // [n_pools]
};
_Static_assert(sizeof(struct record_undo) <= sizeof(struct record_place), "the scratch behind places takes an undo a row");

struct galloc_chunk {
    ggml_backend_buffer_t buffer;
    char *base; // its first byte
};

// Memory of one buffer type: as many buffers ("chunks") as its largest size asks for.
struct galloc_pool {
    ggml_backend_buffer_type_t buft;
    size_t align;
    size_t max_chunk;            // that the type would rather not pass, 0: one chunk takes all
    struct galloc_chunk *chunks; // [n_chunks]: one, as mostly, or many
    size_t n_chunks;
    struct galloc_chunk one, *many;
    size_t many_cap;
    const struct berth_composite_hooks *composite; // of a device made of several, else NULL
    struct galloc_chunk parts;                     // memory of layouts
};

struct ggml_gallocr {
    struct galloc_pool *pools; // one a buffer type
    int n_pools;
    struct berth_arrays mem; // of pools, pool_of, homes, aligns
    int32_t *pool_of;        // [n_bufs]
    int32_t *homes; // [n_bufs] buffers of one home are reached alike, so that a node may stay in the memory of its source
    size_t *aligns; // [n_bufs]
    int n_bufs;
    struct berth_gallocr_options options;
    bool has_capture;          // graphs are written to files (capture.c)
    struct galloc_plan *plans; // all ready, the one that was used last first
    // Every buffer this allocator ever made, sorted by address, so that tensors of a graph that was placed before the buffers
    // grew are known as its own. Of those that were replaced only the struct is left, without memory.
    ggml_backend_buffer_t *owned; // [n_owned]: few or many
    size_t n_owned;
    ggml_backend_buffer_t few[4], *many;
    size_t many_cap;
    uint64_t epoch; // counts changes of buffers, from 1
};

// ---- galloc_plan.c ----

// Buffers that the caller gives to a graph's nodes and leafs.
struct galloc_ids {
    const int *nodes, *leafs;
};
// The record and the items of a graph.
enum ggml_status berth_galloc_plan_items(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct ggml_cgraph *graph, struct galloc_ids ids) BERTH_MUST_USE;
// What offsets for the items need: their room, which came with the items, and the largest chunk of each pool: the buffer
// type's, and not less than an item.
void berth_galloc_plan_prepare(const struct ggml_gallocr *galloc, struct galloc_plan *plan);
// Offsets for the items of the record, then spots and needs.
enum ggml_status berth_galloc_plan_solve(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) BERTH_MUST_USE;
// From offsets that are known: spots and needs; the plan is ready then.
enum ggml_status berth_galloc_plan_settle(struct ggml_gallocr *galloc, struct galloc_plan *plan) BERTH_MUST_USE;
// Is this the plan's graph, or, unless it must be exact, one of its form that is nowhere larger? The rows point to the graph's
// tensors then. ids of NULL: as recorded. in_place, if not NULL: the tensors may be placed, and whether all of them are.
bool berth_galloc_plan_matches(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct ggml_cgraph *graph,
    struct galloc_ids ids, bool is_exact, bool *in_place);

// ---- galloc_buffers.c ----

void berth_galloc_buffers_free(struct ggml_gallocr *galloc);
// Offsets for the items of a pool whose device is made of several, and its layout.
enum ggml_status berth_galloc_parts_solve(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, int p) BERTH_MUST_USE;
void berth_galloc_parts_drop(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p);
size_t berth_galloc_parts_size(const struct galloc_pool *pool); // on all devices

// ---- galloc.c ----

bool berth_galloc_has_arguments(const char *func, ggml_gallocr_t galloc, const struct ggml_cgraph *graph);
// The plan of a graph as large as this one or larger that has buffers, else that of exactly this graph, else NULL.
struct galloc_plan *berth_galloc_find_any(struct ggml_gallocr *galloc, struct ggml_cgraph *graph);
// Takes the plan over and puts it first; the least used plans make room.
void berth_galloc_adopt(struct ggml_gallocr *galloc, struct galloc_plan *plan);

// ---- capture.c: graphs of running programs as files ----

// With BERTH_CAPTURE=DIR in the environment: writes the graph of a plan to DIR as text (.ggraph), under a name made from its
// content, so that a graph that was captured before, by any process, is not written again. Never fails: the first trouble is one
// warning in the log, and nothing is captured from then on. An allocator asks when it is made.
bool berth_capture_is_on(void);
void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const struct record *rec);

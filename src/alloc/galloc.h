// SPDX-License-Identifier: MIT
// galloc.h: the internal state of the graph allocator.
//
//   graph --src/record--> record --lifetime.c--> items --src/plan--> offsets --galloc.c--> buffers and addresses
//
// An allocator keeps several plans, so that each of the graphs between which a program alternates is planned only once. All plans
// share the buffers. A plan is valid while each chunk has at least the bytes that the plan requires.
#pragma once

#include "alloc/alloc.h"
#include "backend/backend.h"

// The position of an item.
struct galloc_spot {
    int32_t pool;
    int32_t chunk; // GALLOC_PARTS: in the buffer of a composite device (parts)
    size_t off;    // byte offset in the chunk
};
#define GALLOC_PARTS (-1)

// Memory that a plan requires of a pool.
struct galloc_need {
    size_t *sizes; // [n] bytes per chunk; points to one (n == 1, the common case) or to many
    size_t n, one, *many, many_cap;
    size_t max_chunk; // largest chunk of the pool, or more if one item is larger; 0: one chunk holds all
    struct berth_plan_report report;
    struct berth_layout *layout; // composite device: memory that each of its devices requires; NULL: chunks are used
};

struct galloc_plan {
    struct record rec;            // of the graph, unless the record belongs to the caller
    struct lifetimes lives;       // its items
    struct ggml_tensor **tensors; // [n_rows] of the record for which the plan was made
    int32_t n_rows;
    void *block; // columns for a record of the caller: tensors, rows of lives, steps
    size_t block_size;
    struct record_place *places; // [n_rows] addresses, valid for places_epoch; followed by scratch of the same size
    struct galloc_spot *spots;   // [n_items]
    uint64_t *offsets;           // [n_items] from the planner: chunk k begins at k * max_chunk
    uint64_t places_epoch;       // epoch of the buffers in places, 0: never filled
    bool has_no_init_tensor;     // no buffer in places has init_tensor
    struct galloc_plan *next;    // the plan that was used before this one
    bool is_ready;               // all fields above are consistent
    bool is_reshaped;            // the record describes a graph that is smaller than the items somewhere
    bool is_backed;              // its buffers have been allocated before
    struct galloc_need needs[];  // [n_pools]
};
_Static_assert(sizeof(struct record_undo) <= sizeof(struct record_place), "the scratch after places holds one undo per row");

struct galloc_chunk {
    ggml_backend_buffer_t buffer;
    char *base; // address of its first byte
};

// The memory of one buffer type: several buffers ("chunks") if the type limits the size of a buffer.
struct galloc_pool {
    ggml_backend_buffer_type_t buft;
    size_t align;
    size_t max_chunk;            // largest size that the type prefers, 0: one chunk holds all
    struct galloc_chunk *chunks; // [n_chunks] points to one (the common case) or to many
    size_t n_chunks;
    struct galloc_chunk one, *many;
    size_t many_cap;
    const struct berth_composite_hooks *composite; // hooks of a composite device, otherwise NULL
    struct galloc_chunk parts;                     // buffer of all layouts of a composite device
};

struct ggml_gallocr {
    struct galloc_pool *pools; // [n_pools] one per buffer type
    int n_pools;
    struct berth_arrays mem; // owns pools, pool_of, homes, aligns
    int32_t *pool_of;        // [n_bufs] pool of each buffer
    int32_t *homes;          // [n_bufs] a node may keep the memory of a source in another buffer with the same home
    size_t *aligns;          // [n_bufs]
    int n_bufs;
    struct berth_gallocr_options options;
    bool has_capture;          // graphs are written to files (capture.c)
    struct galloc_plan *plans; // all is_ready, in order of last use
    // Every buffer that this allocator has allocated, sorted by address. It identifies tensors that were placed before the buffers
    // grew. Of a replaced buffer only the struct remains, without memory.
    ggml_backend_buffer_t *owned; // [n_owned] points to few or to many
    size_t n_owned;
    ggml_backend_buffer_t few[4], *many;
    size_t many_cap;
    uint64_t epoch; // counts changes of buffers, starting at 1
};

// ---- galloc_plan.c ----

// Buffer ids that the caller gives to the nodes and leafs of a graph.
struct galloc_ids {
    const int *nodes, *leafs;
};
// Builds the record and the items of a graph.
enum ggml_status berth_galloc_plan_items(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct ggml_cgraph *graph, struct galloc_ids ids) BERTH_MUST_USE;
// Sets up the arrays for offsets, whose memory was allocated with the items, and the largest chunk of each pool: that of the buffer
// type, but not less than the largest item.
void berth_galloc_plan_prepare(const struct ggml_gallocr *galloc, struct galloc_plan *plan);
// Computes offsets for the items of the record, then spots and needs.
enum ggml_status berth_galloc_plan_solve(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) BERTH_MUST_USE;
// Computes spots and needs from known offsets. The plan is_ready afterwards.
enum ggml_status berth_galloc_plan_set_spots(struct ggml_gallocr *galloc, struct galloc_plan *plan) BERTH_MUST_USE;
// Returns true if this is the graph of the plan or, unless is_exact, an equal graph in which no tensor is larger. The rows then
// refer to the tensors of the graph. ids NULL: the recorded ones. in_place not NULL: the tensors may be placed during the
// comparison; *in_place receives whether all of them are.
bool berth_galloc_plan_matches(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct ggml_cgraph *graph,
    struct galloc_ids ids, bool is_exact, bool *in_place);

// ---- galloc_buffers.c ----

void berth_galloc_buffers_free(struct ggml_gallocr *galloc);
// Computes the layout of a composite device's pool and the offsets of its items.
enum ggml_status berth_galloc_parts_solve(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, int p) BERTH_MUST_USE;
void berth_galloc_parts_drop(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p);
size_t berth_galloc_parts_size(const struct galloc_pool *pool); // bytes on all devices

// ---- galloc.c ----

bool berth_galloc_has_arguments(const char *func, ggml_gallocr_t galloc, const struct ggml_cgraph *graph);
// Returns the plan with buffers of an equal graph in which no tensor is smaller, or that of exactly this graph, or NULL.
struct galloc_plan *berth_galloc_find_any(struct ggml_gallocr *galloc, struct ggml_cgraph *graph);
// Takes ownership of the plan and moves it to the front of the list. The least recently used plans are dropped if there are too
// many.
void berth_galloc_adopt(struct ggml_gallocr *galloc, struct galloc_plan *plan);

// ---- capture.c: graphs of running programs as files ----

// If BERTH_CAPTURE=DIR is set, writes the graph of a plan to DIR as text (.ggraph). The file name is computed from the content, so
// a graph that any process captured before is not written a second time. It never fails: the first error prints one warning and
// turns capturing off. An allocator reads the variable when it is created.
bool berth_capture_is_on(void);
void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const struct record *rec);

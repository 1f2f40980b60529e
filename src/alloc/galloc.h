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
    int32_t chunk; // index in pool.chunks; GALLOC_PARTS: in pool.parts, the buffer of a composite device
    size_t off;    // byte offset in the chunk
};
#define GALLOC_PARTS (-1)

// The memory that a plan requires in one pool.
struct galloc_need {
    size_t *sizes; // [n] bytes per chunk; points to the field one (n == 1, the common case) or to the array many
    size_t n, one, *many, many_cap;
    size_t chunk_limit; // size limit of a chunk: that of the pool, or the largest item if it is larger; 0: no limit, one chunk
    struct berth_plan_report report;
    struct berth_layout *layout; // composite device: memory that each of its devices requires; NULL: chunks are used
};

struct galloc_plan {
    struct record rec;            // the graph; for a plan of a caller's record: its rows and edges, if it is a kept plan
    struct lifetimes lives;       // the items of the graph
    struct ggml_tensor **tensors; // [n_rows] of the record for which the plan was made
    int32_t n_rows;
    void *block; // owns the columns of a caller's record: tensors, rows of lives, steps
    size_t block_size;
    struct record_place *places; // [n_rows] addresses, valid for places_epoch; followed by scratch of the same size
    struct galloc_spot *spots;   // [n_items]
    uint64_t *offsets;           // [n_items] of the planner, over all chunks: chunk k begins at k * max_chunk
    uint64_t places_epoch;       // epoch of the buffers in places, 0: never filled
    bool has_no_init_tensor;     // no buffer in places has init_tensor
    struct galloc_plan *next;    // next plan in the list, which is sorted by last use
    bool is_ready;               // all fields above are consistent
    bool is_reshaped;            // rec now describes a graph in which some tensor is smaller than its item
    bool is_backed;              // buffers have been allocated for this plan at least once
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
    size_t chunk_limit;          // largest buffer of the type, 0: no limit, one chunk
    struct galloc_chunk *chunks; // [n_chunks] points to the field one (the common case) or to the array many
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
    int32_t *homes; // [n_bufs] number of the device: a node may take over the memory of a source in another buffer of equal home
    size_t *aligns; // [n_bufs]
    int n_bufs;
    struct berth_gallocr_params options;
    bool has_capture;          // graphs are written to files (capture.c)
    struct galloc_plan *plans; // all is_ready, in order of last use
    // Every buffer that this allocator has allocated, sorted by address. With this list the allocator recognises tensors that it
    // placed before the buffers grew. Of a replaced buffer only the struct remains, without memory.
    ggml_backend_buffer_t *owned; // [n_owned] points to the array few or many
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
// Sets the pointers places, spots and offsets, whose memory was allocated with the items. Sets max_chunk of each pool: the limit of
// the buffer type, but not less than the largest item.
void berth_galloc_plan_prepare(const struct ggml_gallocr *galloc, struct galloc_plan *plan);
// Computes offsets for the items of the record, then spots and needs.
enum ggml_status berth_galloc_plan_solve(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) BERTH_MUST_USE;
// Computes spots and needs from known offsets. The plan is_ready afterwards.
enum ggml_status berth_galloc_plan_set_spots(struct ggml_gallocr *galloc, struct galloc_plan *plan) BERTH_MUST_USE;
// Returns true if this is the graph of the plan or, unless is_exact, an equal graph in which no tensor is larger. The rows then
// refer to the tensors of the graph. If an array of ids is NULL, the recorded ids apply. If in_place is not NULL, the comparison
// may also set the addresses of the tensors; *in_place is true if all tensors have their addresses.
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
// Returns a plan with buffers whose graph is equal except that tensors may be larger; otherwise the plan of exactly this graph,
// even without buffers; otherwise NULL.
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

// SPDX-License-Identifier: MIT
// galloc.h: the internal state of the graph allocator.
//
//   graph --src/record--> record --lifetime.c--> items --src/plan--> offsets --galloc.c--> buffers and addresses
//
// An allocator keeps several plans, because programs alternate between graphs. All plans share the buffers. A plan is valid while
// each chunk has at least the bytes that the plan requires.
//
// Terms:
// - A pool is the memory of one buffer type. Buffers of the same type share a pool.
// - A chunk is one buffer of a pool. A pool has several chunks if the buffer type limits the size of a buffer.
// - An item is a piece of memory with a lifetime. An item holds one tensor, or several if results take over its memory.
// - The offset of an item is its position in the pool, with all chunks one after the other.
// - The spot of an item is its chunk and its offset in that chunk.
// - The place of a row is its address: a buffer and a pointer.
#pragma once

#include "alloc/alloc.h"
#include "backend/backend.h"

struct galloc_spot {
    int32_t pool;
    int32_t chunk; // index in pool.chunks; GALLOC_PARTS: in pool.parts, the buffer of a composite device
    size_t off;    // byte offset in the chunk
};
#define GALLOC_PARTS (-1)

// The memory that a plan requires in one pool.
struct galloc_need {
    size_t *sizes;                  // [n] bytes per chunk; points to `one` if n is 1, otherwise to `many`
    size_t n, one, *many, many_cap; // the plan owns many; NULL: one chunk always sufficed
    size_t chunk_limit;             // bytes, at least the largest item; 0: one chunk
    struct berth_plan_report report;
    struct berth_layout *layout; // of a composite device; NULL: chunks are used
};

struct galloc_plan {
    struct record rec;            // the graph
    struct lifetimes lives;       // the items of the graph
    struct ggml_tensor **tensors; // [n_rows] of the last record for which the plan was made or accepted
    int32_t n_rows;
    void *block; // owns the columns of a caller's record: tensors, rows of lives, steps
    size_t block_size;
    struct record_place *places; // [2 * n_rows] the addresses of the rows, then scratch for one undo per row
    struct galloc_spot *spots;   // [n_items]
    uint64_t *offsets;           // [n_items] bytes; chunk k begins at offset k * chunk_limit
    uint64_t places_epoch;       // epoch of the buffers in places, 0: never filled
    bool has_no_init_tensor;     // no buffer in places has init_tensor
    struct galloc_plan *next;    // next less recently used plan
    bool is_ready;               // all fields above are consistent
    bool is_reshaped;            // some tensor in rec is smaller than its item
    bool is_backed;              // buffers were allocated for this plan
    struct galloc_need needs[];  // [n_pools]
};
_Static_assert(sizeof(struct record_undo) <= sizeof(struct record_place), "the scratch after places holds one undo per row");

struct galloc_chunk {
    ggml_backend_buffer_t buffer;
    char *base; // address of its first byte
};

// The memory of one buffer type: several chunks if the type limits the size of a buffer.
struct galloc_pool {
    ggml_backend_buffer_type_t buft;
    size_t align;
    size_t chunk_limit;          // largest buffer of the type, 0: no limit, one chunk
    struct galloc_chunk *chunks; // [n_chunks] points to `one` if n_chunks is 1, otherwise to `many`
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
    // [n_bufs] first buffer with the same home. Two buffers have the same home if they are memory of one device (is_same_home). A
    // result may take over the memory of a source that has the same home.
    int32_t *homes;
    size_t *aligns; // [n_bufs]
    int n_bufs;
    struct berth_gallocr_params options;
    bool has_capture;          // graphs are written to files (capture.c)
    struct galloc_plan *plans; // all is_ready, in order of last use
    // All buffers of this allocator, sorted by address, including replaced buffers, which have no memory. The list serves to
    // recognise tensors that were placed before the buffers grew.
    ggml_backend_buffer_t *owned; // [n_owned] points to `few` or `many`
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
// Makes places, spots and offsets point into lives.room. Sets chunk_limit of each pool.
void berth_galloc_plan_prepare(const struct ggml_gallocr *galloc, struct galloc_plan *plan);
// Computes offsets of the items, then spots and needs.
enum ggml_status berth_galloc_plan_solve(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec) BERTH_MUST_USE;
// Computes spots and needs from known offsets. The plan is_ready afterwards.
enum ggml_status berth_galloc_plan_set_spots(struct ggml_gallocr *galloc, struct galloc_plan *plan) BERTH_MUST_USE;
// Returns true if the graph equals the graph of the plan. If is_exact is false, tensors of the graph may be smaller than planned.
// If the result is true, the rows of the plan then refer to the tensors of the graph. If an array of ids is NULL, the ids in the
// plan apply. If in_place is not NULL, the function may also set the addresses of tensors. *in_place becomes true if all tensors
// have their addresses.
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
// Returns a plan for which buffers were allocated. It is the plan of this graph or of an equal graph with larger tensors. If
// there is none, returns a plan of exactly this graph without buffers, or NULL.
struct galloc_plan *berth_galloc_find_any(struct ggml_gallocr *galloc, struct ggml_cgraph *graph);
// Takes ownership of the plan and moves it to the front. If there are too many plans, the least recently used are dropped.
void berth_galloc_adopt(struct ggml_gallocr *galloc, struct galloc_plan *plan);

// ---- capture.c: graphs of running programs as files ----

// If BERTH_CAPTURE=DIR is set, writes the graph of a plan to DIR as text (.ggraph). The content decides the file name, so each
// graph is written once. The first error prints a warning and turns capturing off. The variable is read when an allocator is
// created.
bool berth_capture_is_on(void);
void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const struct record *rec);

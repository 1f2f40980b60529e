// SPDX-License-Identifier: MIT
// galloc.h: the graph allocator's own state.
//
//   graph --record.c--> record --lifetime.c--> items --src/plan--> offsets --galloc.c--> buffers and addresses
#pragma once

#include "alloc/lifetime.h"
#include "berth-alloc.h"

// Memory of one buffer type: as many buffers ("chunks") as its largest size asks for.
struct galloc_pool {
    ggml_backend_buffer_type_t buft;
    size_t align;
    size_t max_chunk; // 0: one chunk takes all
    ggml_backend_buffer_t *chunks;
    size_t n_chunks, chunks_cap;
    size_t *need; // [need_cap] bytes of each chunk in the plan at hand
    size_t n_need, need_cap;
    struct berth_plan_report report;
};

struct ggml_gallocr {
    struct galloc_pool *pools; // one a buffer type
    int n_pools;
    int32_t *pool_of; // [n_bufs]
    size_t *aligns;   // [n_bufs]
    int n_bufs;
    struct berth_gallocr_options options;
    struct record rec;      // of the graph that is planned
    struct lifetimes lives; // its items
    uint64_t *offsets;      // [n_items]
    size_t offsets_cap;
    bool is_planned; // rec, lives and offsets belong together
};

// Plans the graph into rec, lives and offsets. On failure nothing is planned.
enum ggml_status berth_galloc_plan(
    struct ggml_gallocr *galloc, struct ggml_cgraph *graph, const int *node_bufs, const int *leaf_bufs) BERTH_MUST_USE;

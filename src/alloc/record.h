// SPDX-License-Identifier: MIT
// record.h: a graph as the allocator sees it, without addresses: what takes memory, who reads whom, what looks at whose bytes.
// A plan belongs to a record. A graph matches a record when one linear pass finds the same edges, layouts, flags and buffers.
#pragma once

#include "base/base.h"
#include "core/graph.h"
#include "ggml-alloc.h"

// One tensor. Rows: the nodes in order, then the leafs in order, then tensors that are only named as a source or view source,
// in the order in which the nodes and leafs name them. The first part is what a graph is compared with.
struct record_row {
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    size_t view_offs;
    int32_t type, op, flags;
    int32_t view_src; // row, -1: no view
    int32_t near[3];  // rows of src[0..2], n_rows for NULL: all there is to compare if is_plain
    int32_t src;      // first of its sources in record.srcs
    int16_t n_src;    // sources that are not NULL
    bool is_plain;    // src[3] and those behind it are NULL
    bool has_memory;  // placed by somebody else
    // what the replay finds
    int32_t id;      // buffer id that the caller gave, -1: none
    int32_t buf;     // buffer id it has, -1: as the node that needs it first
    int32_t item;    // the memory it was given, -1: none
    int32_t same_as; // row that stands for the same tensor: itself, or a node's for a leaf that is a node too
    bool is_kept;    // shares its memory with nobody
    bool is_fixed;   // has its place and takes over no other
    int32_t took;    // index in record.srcs of the source whose memory it took over, -1: none
};

// Where a tensor belongs. buffer NULL: not known, or not ours to say; then data is NULL for views and no address for others.
struct record_place {
    ggml_backend_buffer_t buffer;
    void *data;
};

struct record {
    struct record_row *rows;
    struct ggml_tensor **tensors; // [n_rows + 1] in the graph that was seen last; the last one is NULL
    int32_t *srcs;                // rows of the sources; the index in ggml_tensor.src is in slots
    uint8_t *slots;               // [n_srcs]
    int32_t n_rows, n_nodes, n_leafs, n_srcs;
    int32_t n_twice; // rows that stand for a tensor of another row
    size_t rows_cap, tensors_cap, srcs_cap, slots_cap;
};

// Whether a tensor has memory that is not the allocator's, and what a tensor without takes in buffer buf.
struct record_rules {
    bool (*is_ours)(void *user, const struct ggml_tensor *t);
    size_t (*alloc_size)(void *user, const struct ggml_tensor *t, int buf);
    bool is_by_layout; // tensors of one layout take the same bytes
    void *user;
};

// Fills rec from the graph. node_bufs and leaf_bufs may be NULL: all 0. On failure rec is empty.
enum ggml_status berth_record_build(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules) BERTH_MUST_USE;
void berth_record_fini(struct record *rec);

enum record_match {
    RECORD_DIFFERS,  // other edges, ops, flags or owners
    RECORD_SAME,     // nothing changed but addresses
    RECORD_RESHAPED, // other extents or strides somewhere: sizes and layouts have to be looked at
};

// Compares and lets the rows point to the graph's tensors (after RECORD_DIFFERS they may point anywhere). No heap memory.
// node_bufs NULL: as recorded. places, if not NULL, says where each row's tensor belongs; *in_place, if not NULL, whether all of
// them are there.
enum record_match berth_record_match(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules, const struct record_place *places, bool *in_place);

// The graph that was matched last stands for the record from now on: its extents and strides are what the next one is compared
// with.
void berth_record_reshape(struct record *rec);

// Same type, extents and strides.
static inline bool record_same_layout(const struct record_row *a, const struct record_row *b) {
    if (a->type != b->type) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (a->ne[i] != b->ne[i] || a->nb[i] != b->nb[i]) {
            return false;
        }
    }
    return true;
}

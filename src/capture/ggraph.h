// SPDX-License-Identifier: MIT
// ggraph.h: graphs captured from running programs (.ggraph, .ggraph.gz), rebuilt as ggml graphs for planning. The tensors have
// the recorded shapes, edges, flags and owners, and no data; computing one is not possible.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml.h"

struct ggraph_buf {
    char name[64];
    size_t align;
    size_t max_size;  // of one chunk
    size_t ggml_size; // what ggml itself needs for this graph
    int same_as;      // the first buffer of the same type
};

// Where the program that was captured put a tensor.
struct ggraph_place {
    const struct ggml_tensor *tensor;
    int64_t chunk, offset; // -1: it did not
    int64_t item;          // in items, -1: none
    int buf;               // as the program said, -1: not said
};

// A piece of memory that tensors had one after another.
struct ggraph_item {
    int64_t first, last; // nodes, both inclusive
    uint64_t size;       // bytes
    int buf;
    int64_t owner; // id of the first tensor in it
};

struct ggraph {
    char name[128];
    int version[3]; // of the ggml that ran it
    struct ggml_cgraph *graph;
    struct ggml_context **ctxs; // [n_ctxs] of the tensors, and of the graph
    size_t n_ctxs;
    int *node_bufs;              // [n_nodes]
    int *leaf_bufs;              // [n_leafs]
    struct ggraph_place *places; // [n_places] nodes in order, leafs, the rest
    int64_t n_places;
    bool has_items;            // the file says which memory each tensor had
    struct ggraph_item *items; // [n_items]
    int64_t n_items;
    struct ggraph_buf *bufs;
    int n_bufs;
    struct ggml_backend_buffer_type
        *bufts; // [n_bufs], of the recorded alignment and largest size; bufts[i] counts where same_as == i
};

// Reads a file, packed or not. On failure g is empty and berth_last_error() names the line.
enum ggml_status ggraph_read(struct ggraph *g, const char *path);
void ggraph_free(struct ggraph *g);

// The number of a tensor of the graph: its place.
static inline int64_t ggraph_id(const struct ggml_tensor *t) {
    return (int64_t) (intptr_t) t->extra - 1;
}

// The buffer types by id, as ggml_gallocr_new_n takes them: types[n_bufs].
void ggraph_bufts(struct ggraph *g, ggml_backend_buffer_type_t *types);

// An in-place rule (berth_inplace_t, user is the ggraph) for what the recorded version runs in place beyond the reference's list.
bool ggraph_in_place(const struct ggml_tensor *node, int i_src, void *user);

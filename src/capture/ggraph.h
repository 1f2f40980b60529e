// SPDX-License-Identifier: MIT
// ggraph.h: rebuilds captured graphs (.ggraph, .ggraph.gz) as ggml graphs for planning. The tensors have no data, so the graphs
// cannot be computed.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml.h"

struct ggraph_buf {
    char name[64];
    size_t align;
    size_t max_size;  // bytes of the largest chunk
    size_t ggml_size; // bytes that the captured program planned for this graph; 0 unless this is the first buffer of its type
    int same_as;      // index of the first buffer of the same type
};

// The memory that the captured program gave to a tensor.
struct ggraph_place {
    const struct ggml_tensor *tensor;
    int64_t chunk, offset; // -1: none
    int64_t item;          // index into items, -1: none
    int buf;               // buffer id that the program gave, -1: none
};

// A piece of memory that tensors used one after another.
struct ggraph_item {
    int64_t first, last; // first and last node that use the item
    uint64_t size;       // bytes
    int buf;
    int64_t owner; // id of the first tensor in the item
};

struct ggraph {
    char name[128];
    int version[3]; // version of the ggml that ran the graph
    struct ggml_cgraph *graph;
    struct ggml_context **ctxs; // [n_ctxs] contexts of the tensors and of the graph
    size_t n_ctxs;
    int *node_bufs;              // [n_nodes] buffer ids
    int *leaf_bufs;              // [n_leafs] buffer ids
    struct ggraph_place *places; // [n_places] by tensor id: nodes, leafs, other tensors
    int64_t n_places;
    bool has_items;            // the file has the columns `item` and `life`
    struct ggraph_item *items; // [n_items]
    int64_t n_items;
    struct ggraph_buf *bufs;
    int n_bufs;
    struct ggml_backend_buffer_type *bufts; // [n_bufs] buffer types with the recorded alignment and chunk size
};

// On failure g is empty and berth_last_error() contains the line number.
enum ggml_status ggraph_read(struct ggraph *g, const char *path);
void ggraph_free(struct ggraph *g);

// The id is the tensor's index in places.
static inline int64_t ggraph_id(const struct ggml_tensor *t) {
    return (int64_t) (intptr_t) t->extra - 1;
}

// Fills types[n_bufs], one buffer type per buffer id, for ggml_gallocr_new_n.
void ggraph_bufts(struct ggraph *g, ggml_backend_buffer_type_t *types);

// A callback for berth_gallocr_params.inplace, which is asked about ops that Berth does not run in place. Returns true if the
// ggml version of the file runs the op in place. `user` is the ggraph; i_src is ignored.
bool ggraph_in_place(const struct ggml_tensor *node, int i_src, void *user);

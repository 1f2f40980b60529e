// SPDX-License-Identifier: MIT
// wire.h: the commands of a program to a worker, and graphs as bytes. Numbers go as the machine has them: ranks of one version
// agree on little-endian 64-bit machines, and hello's magic number finds out others.
//
// A worker does commands in the order in which they came. Those that fail and have no answer are kept: the first failure is told
// with the next sync.
#pragma once

#include "ggml-backend-impl.h"
#include "mpi/message_queue.h"

#pragma weak berth_op_shape_holds // on ggml's own base there is none, and a worker takes no graphs

enum mpi_command {
    //                            id        a        b        c         body
    MPI_BUFFER_NEW = MPI_COMMAND, // buffer device   size     ticket    -                   answered
    MPI_BUFFER_FREE,              // buffer -        -        -         -                   and all graphs are forgotten
    MPI_SET,                      // buffer offset   keep     -         the bytes           keep: they end what SET_KNOWN missed
    MPI_SET_CACHED,               // buffer offset   size     ticket    hash of 16 bytes    answered: a = 1 if they were known
    MPI_MEMSET,                   // buffer offset   size     value     -
    MPI_GET,                      // buffer offset   size     ticket    -                   answered, in pieces
    MPI_COPY,                     // buffer offset   size     -         mpi_wire_from       between buffers of this worker
    MPI_COPY_OUT,                 // buffer offset   size     ticket    uint32 rank         sends MPI_TENSOR with id ticket there
    MPI_COPY_IN,                  // buffer offset   size     ticket    uint32 rank         waits for those
    MPI_GRAPH,                    // graph  device   -        -         mpi_wire_tensor[]
    MPI_GRAPH_FREE,               // graph
    MPI_RUN,                      // graph
    MPI_SIGNAL,                   // ticket -        -        -         uint32 rank         sends an empty MPI_TENSOR there
    MPI_AWAIT,                    // ticket -        -        -         uint32 rank         waits for that
    MPI_SYNC,                     // ticket -        -        -         -                   answered: a = status, a text
    MPI_ASK,                      // ticket device   -        -         mpi_wire_tensor[]   answered: a = supported, b = its size
    MPI_ASK_MEMORY,               // ticket device   -        -         -                   answered: a = free, b = total
    MPI_GROUP_NEW,                // group  serial   -        -         uint32 ranks[]      serial: on parts of its sums
    MPI_GROUP_FREE,               // group
    MPI_GROUP_SUM,                // group  buffer   offset   n, zero   -                   c = 2 n + zero: this part counts as 0
    MPI_COMMAND_END,
};

struct mpi_wire_from {
    uint32_t buffer, zero;
    uint64_t offset;
};

// A tensor of a graph. What it names stands before it.
struct mpi_wire_tensor {
    uint32_t type, op, flags;
    uint32_t is_node;           // 1: computed, in this order; 0: read or written by those
    uint32_t buffer;            // + 1; 0: it has no memory
    uint32_t src[GGML_MAX_SRC]; // index + 1; 0: none
    uint32_t zero;
    uint64_t offset; // in its buffer
    int64_t ne[GGML_MAX_DIMS];
    uint64_t nb[GGML_MAX_DIMS];
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
};

// ---- the program's side (graph_write.c) ----

// Where a tensor's memory is, at that rank. False: not there.
typedef bool (*mpi_place_of)(const void *user, const struct ggml_tensor *t, uint32_t *buffer, uint64_t *offset);

struct mpi_wire_graph {
    struct mpi_wire_tensor *tensors;
    size_t n, n_cap;
    const struct ggml_tensor **keys; // hash table of what stands where
    uint32_t *values;
    size_t n_keys;
};

// place NULL: no tensor has memory, which is enough to ask with. The storage is kept for the next graph.
enum ggml_status mpi_wire_write(
    struct mpi_wire_graph *g, struct ggml_tensor *const *nodes, int n_nodes, mpi_place_of place, const void *user) BERTH_MUST_USE;
void mpi_wire_fini(struct mpi_wire_graph *g);

// ---- the worker's side (graph_read.c) ----

struct mpi_wire_buffer {
    ggml_backend_buffer_t buffer; // NULL: there is none of this number
    uint32_t device;
};

// Where the tensors of a graph are.
struct mpi_wire_memory {
    const struct mpi_wire_buffer *buffers; // [n]
    size_t n;
    uint32_t device;
};

// A context with the graph's tensors, in `graph`; NULL with the reason in why. Every tensor lies in one of the buffers of that
// device, every node keeps the rules of its op, so that whoever computes it stays inside.
// memory NULL: tensors without memory, to ask with.
struct ggml_context *mpi_wire_read(const void *bytes, size_t size, const struct mpi_wire_memory *memory,
    struct ggml_cgraph **graph, char *why, size_t why_size) BERTH_MUST_USE;

// Nothing to compute: such nodes are everywhere.
static inline bool mpi_op_is_empty(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

// A name for contents that a worker may have kept (content_cache.c). Two lanes of SipHash with known keys: no guard against who makes
// some.
void mpi_hash(const void *bytes, size_t size, uint8_t hash[16]);

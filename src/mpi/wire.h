// SPDX-License-Identifier: MIT
// wire.h: the commands from a program to a worker, and graphs as bytes. Values are in the machine's byte order.
// All ranks must be little-endian 64-bit machines with the same version of Berth. The magic number in the hello message detects
// another byte order.
// A worker executes commands in the order of arrival. A ticket is a number that the program chooses for a command; the answer has
// this number as its id. If a command without an answer fails, the first such failure is sent with the answer to the next
// MPI_SYNC.
#pragma once

#include "ggml-backend-impl.h"
#include "mpi/message_queue.h"

#pragma weak berth_op_shape_holds // ggml's own base library does not define it; a worker then accepts no graphs

enum mpi_command {
    //                            id        a        b        c         body
    MPI_BUFFER_NEW = MPI_COMMAND, // buffer device   size     ticket    -                   answered
    MPI_BUFFER_FREE,              // buffer -        -        -         -                   the worker also forgets all graphs
    MPI_SET,                      // buffer offset   keep     -         the bytes           keep: last piece after a cache miss
    MPI_SET_CACHED,               // buffer offset   size     ticket    hash of 16 bytes    answered: a = 1: cache hit
    MPI_MEMSET,                   // buffer offset   size     value     -
    MPI_GET,                      // buffer offset   size     ticket    -                   answered, in pieces
    MPI_COPY,                     // buffer offset   size     -         mpi_wire_from       between buffers of this worker
    MPI_COPY_OUT,                 // buffer offset   size     ticket    uint32 rank         sends MPI_TENSOR with id ticket there
    MPI_COPY_IN,                  // buffer offset   size     ticket    uint32 rank         waits for these messages
    MPI_GRAPH,                    // graph  device   -        -         mpi_wire_tensor[]
    MPI_GRAPH_FREE,               // graph
    MPI_RUN,                      // graph
    MPI_SIGNAL,                   // ticket -        -        -         uint32 rank         sends an empty MPI_TENSOR there
    MPI_AWAIT,                    // ticket -        -        -         uint32 rank         waits for that message
    MPI_SYNC,                     // ticket -        -        -         -                   answered: a = status, body = text
    MPI_ASK,                      // ticket device   -        -         mpi_wire_tensor[]   answered: a = supported, b = bytes
    MPI_ASK_MEMORY,               // ticket device   -        -         -                   answered: a = free, b = total
    MPI_GROUP_NEW,                // group  serial   -        -         uint32 ranks[]      serial: sent with its parts
    MPI_GROUP_FREE,               // group
    MPI_GROUP_SUM,                // group  buffer   offset   n, zero   -                   c = 2 n + zero; zero 1: adds nothing
    MPI_COMMAND_END,
};

struct mpi_wire_from {
    uint32_t buffer, padding;
    uint64_t offset;
};

// A tensor of a graph. Its sources come before it.
struct mpi_wire_tensor {
    uint32_t type, op, flags;
    uint32_t is_node;           // 1: a node, which the worker computes; 0: a source that this graph does not compute
    uint32_t buffer;            // buffer number + 1; 0: no memory
    uint32_t src[GGML_MAX_SRC]; // index of the source in the array + 1; 0: none
    uint32_t padding;
    uint64_t offset; // byte offset in its buffer
    int64_t ne[GGML_MAX_DIMS];
    uint64_t nb[GGML_MAX_DIMS];
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
};

// ---- the program's side (graph_write.c) ----

// Returns false if the tensor is not in memory of the rank.
typedef bool (*mpi_place_of)(const void *user, const struct ggml_tensor *t, uint32_t *buffer, uint64_t *offset);

struct mpi_wire_graph {
    struct mpi_wire_tensor *tensors;
    size_t n, n_cap;
    const struct ggml_tensor **keys; // [n_keys] hash table: tensors; NULL: free
    uint32_t *values;
    size_t n_keys;
};

// Writes the nodes and their sources to g. If place is NULL, tensors are written without memory, for queries. g keeps its storage
// for the next graph.
enum ggml_status mpi_wire_write(
    struct mpi_wire_graph *g, struct ggml_tensor *const *nodes, int n_nodes, mpi_place_of place, const void *user) BERTH_MUST_USE;
void mpi_wire_fini(struct mpi_wire_graph *g);

// ---- the worker's side (graph_read.c) ----

struct mpi_wire_buffer {
    ggml_backend_buffer_t buffer; // NULL: there is no buffer with this number
    uint32_t device;
};

struct mpi_wire_memory {
    const struct mpi_wire_buffer *buffers; // [n]
    size_t n;
    uint32_t device;
};

// Returns a context with the tensors of *graph, or NULL with the reason in why.
// Every tensor is inside a buffer of the device, so computing the graph accesses no other memory.
// memory NULL: tensors without memory, for queries.
struct ggml_context *mpi_wire_read(const void *bytes, size_t size, const struct mpi_wire_memory *memory,
    struct ggml_cgraph **graph, char *why, size_t why_size) BERTH_MUST_USE;

static inline bool mpi_op_is_empty(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

// Computes the name of contents in a worker's cache (content_cache.c). The SipHash keys are public, so intentional collisions are
// possible.
void mpi_hash(const void *bytes, size_t size, uint8_t hash[16]);

// SPDX-License-Identifier: MIT
// graph_write.c: writes a graph as an array of tensors, each after its sources, in O(nodes) time. Every tensor is written with
// its buffer and offset. So a view is written without its view_src, because the buffer and offset suffice. Equal graphs give
// equal bytes.

#include "mpi/wire.h"

#include <string.h>

static size_t slot_of(const struct mpi_wire_graph *g, const struct ggml_tensor *t) {
    size_t at = ((uintptr_t) t >> 4) * 0x9E3779B97F4A7C15u >> 20 & (g->n_keys - 1);
    while (g->keys[at] != NULL && g->keys[at] != t) {
        at = (at + 1) & (g->n_keys - 1);
    }
    return at;
}

static bool array_grow(void **p, size_t *n_cap, size_t n_min, size_t n_used, size_t elem_size) {
    if (n_min <= *n_cap) {
        return true;
    }
    size_t size;
    void *grown = berth_mul_ok(n_min + n_min / 2, elem_size, &size) ? shim_malloc(size) : NULL;
    if (grown == NULL) {
        return false;
    }
    if (n_used > 0) {
        memcpy(grown, *p, n_used * elem_size);
    }
    shim_free(*p);
    *p = grown;
    *n_cap = n_min + n_min / 2;
    return true;
}

// Empties the graph and reserves a hash table that is at most half full.
static bool graph_reserve(struct mpi_wire_graph *g, int n_nodes) {
    const size_t n_most = (size_t) n_nodes * (1 + GGML_MAX_SRC);
    size_t n_keys = 64;
    while (n_keys < 2 * n_most) {
        n_keys *= 2;
    }
    if (n_keys > g->n_keys) {
        shim_free(g->keys);
        shim_free(g->values);
        g->keys = shim_malloc(n_keys * sizeof g->keys[0]);
        g->values = shim_malloc(n_keys * sizeof g->values[0]);
        g->n_keys = g->keys != NULL && g->values != NULL ? n_keys : 0;
        if (g->n_keys == 0) {
            return false;
        }
    }
    memset(g->keys, 0, g->n_keys * sizeof g->keys[0]);
    g->n = 0;
    return true;
}

// Adds a tensor unless it is already in the graph. *index receives the tensor's position + 1. struct mpi_wire_tensor has no
// implicit padding, so equal tensors give equal bytes.
static enum ggml_status tensor_add(
    struct mpi_wire_graph *g, const struct ggml_tensor *t, bool is_node, mpi_place_of place, const void *user, uint32_t *index) {
    const size_t slot = slot_of(g, t);
    if (g->keys[slot] != NULL) {
        *index = g->values[slot];
        return GGML_STATUS_SUCCESS;
    }
    struct mpi_wire_tensor w = {.type = (uint32_t) t->type,
        .op = is_node ? (uint32_t) t->op : GGML_OP_NONE,
        .flags = (uint32_t) t->flags & 31,
        .is_node = is_node};
    uint32_t buffer = 0;
    if (place != NULL && t->data != NULL) {
        if (!place(user, t, &buffer, &w.offset)) {
            return shim_error(
                GGML_STATUS_FAILED, "MPI: tensor '%s' is not in the memory of the device that computes the graph", t->name);
        }
        w.buffer = buffer + 1;
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        w.ne[i] = t->ne[i];
        w.nb[i] = t->nb[i];
    }
    if (is_node) {
        memcpy(w.op_params, t->op_params, sizeof w.op_params);
    }
    for (int i = 0; is_node && i < GGML_MAX_SRC; i++) {
        if (t->src[i] != NULL) {
            const enum ggml_status status =
                tensor_add(g, t->src[i], false, place, user, &w.src[i]); // recursion of one level: sources are written as leafs
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
    }
    if (!array_grow((void **) &g->tensors, &g->n_cap, g->n + 1, g->n, sizeof g->tensors[0])) {
        return shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a graph of more than %zu tensors", g->n);
    }
    const size_t at = slot_of(g, t); // adding the sources may have changed the slot
    g->tensors[g->n] = w;
    *index = (uint32_t) ++g->n;
    g->keys[at] = t;
    g->values[at] = *index;
    return GGML_STATUS_SUCCESS;
}

enum ggml_status mpi_wire_write(
    struct mpi_wire_graph *g, struct ggml_tensor *const *nodes, int n_nodes, mpi_place_of place, const void *user) {
    if (!graph_reserve(g, n_nodes)) {
        return shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a graph of %d nodes", n_nodes);
    }
    for (int i = 0; i < n_nodes; i++) {
        uint32_t index;
        const enum ggml_status status = tensor_add(g, nodes[i], true, place, user, &index);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    return GGML_STATUS_SUCCESS;
}

void mpi_wire_fini(struct mpi_wire_graph *g) {
    shim_free(g->tensors);
    shim_free(g->keys);
    shim_free(g->values);
    *g = (struct mpi_wire_graph){0};
}

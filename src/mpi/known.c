// SPDX-License-Identifier: MIT
// known.c: the graphs that a rank was sent and still has, by number. As many as fit into a number of bytes: the one that was not
// run for longest goes. Steps repeat, so the graph that is looked for is nearly always the one behind the last.

#include "mpi/remote.h"

#include "base/siphash.h"

#include <string.h>

#define KNOWN_SIZE ((size_t) 64 << 20) // bytes of graphs at most, beside one that is larger

static size_t size_of(size_t n) {
    return n * sizeof(struct mpi_wire_tensor);
}

static bool is_it(const struct mpi_known_graph *k, const struct mpi_wire_graph *g, uint32_t device, uint64_t hash) {
    return k->tensors != NULL && k->hash == hash && k->device == device && k->n == g->n &&
           memcmp(k->tensors, g->tensors, size_of(g->n)) == 0;
}

static void graph_drop(struct mpi_known *known, struct mpi_known_graph *k) {
    known->size -= size_of(k->n);
    shim_free(k->tensors);
    *k = (struct mpi_known_graph){0};
}

void mpi_known_forget(struct mpi_known *known) {
    for (size_t i = 0; i < known->n; i++) {
        graph_drop(known, &known->graphs[i]);
    }
}

void mpi_known_fini(struct mpi_known *known) {
    mpi_known_forget(known);
    shim_free(known->graphs);
    *known = (struct mpi_known){0};
}

// The number of the graph; n: it is not known.
static size_t graph_find(const struct mpi_known *known, const struct mpi_wire_graph *g, uint32_t device, uint64_t hash) {
    for (size_t i = 0; i < known->n; i++) {
        const size_t at = (known->next + i) % known->n;
        if (is_it(&known->graphs[at], g, device, hash)) {
            return at;
        }
    }
    return known->n;
}

// The oldest go until another of so many bytes fits. The rank drops them, too.
static void make_room(struct mpi_remote *r, size_t size) {
    struct mpi_known *known = &r->known;
    while (known->size > 0 && known->size + size > KNOWN_SIZE) {
        size_t oldest = known->n;
        for (size_t i = 0; i < known->n; i++) {
            const struct mpi_known_graph *k = &known->graphs[i];
            if (k->tensors != NULL && (oldest == known->n || k->last_run < known->graphs[oldest].last_run)) {
                oldest = i;
            }
        }
        graph_drop(known, &known->graphs[oldest]);
        (void) !mpi_remote_send(r, MPI_GRAPH_FREE, (uint32_t) oldest, (uint64_t[3]){0}, NULL, 0); // lost: the next call tells
    }
}

// A number that no graph has; n: out of memory.
static size_t number_new(struct mpi_known *known) {
    size_t i = 0;
    while (i < known->n && known->graphs[i].tensors != NULL) {
        i++;
    }
    if (i < known->n) {
        return i;
    }
    const size_t n = 2 * known->n + 16;
    struct mpi_known_graph *grown = shim_calloc(n, sizeof *grown);
    if (grown == NULL) {
        return known->n;
    }
    if (known->n > 0) {
        memcpy(grown, known->graphs, known->n * sizeof *grown);
    }
    shim_free(known->graphs);
    known->graphs = grown;
    known->n = n;
    return i;
}

static enum ggml_status graph_add(struct mpi_remote *r, uint32_t device, uint64_t hash, size_t *number) {
    const struct mpi_wire_graph *g = &r->writing;
    const size_t size = size_of(g->n);
    make_room(r, size);
    *number = number_new(&r->known);
    struct mpi_wire_tensor *tensors = *number < r->known.n ? shim_malloc(size) : NULL;
    if (tensors == NULL) {
        return shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a graph of %zu tensors", g->n);
    }
    memcpy(tensors, g->tensors, size);
    const enum ggml_status status = mpi_remote_send(r, MPI_GRAPH, (uint32_t) *number, (uint64_t[3]){device, 0, 0}, tensors, size);
    if (status != GGML_STATUS_SUCCESS) {
        shim_free(tensors);
        return status;
    }
    r->known.graphs[*number] = (struct mpi_known_graph){.hash = hash, .tensors = tensors, .n = g->n, .device = device};
    r->known.size += size;
    return status;
}

enum ggml_status mpi_known_number(struct mpi_remote *r, uint32_t device, uint32_t *number) {
    static const struct berth_siphash_key key = {{1, 2}};
    struct mpi_known *known = &r->known;
    const uint64_t hash = berth_siphash_of(&key, r->writing.tensors, size_of(r->writing.n));
    size_t i = graph_find(known, &r->writing, device, hash);
    if (i == known->n) {
        const enum ggml_status status = graph_add(r, device, hash, &i);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    known->graphs[i].last_run = ++known->n_runs;
    known->next = i + 1;
    *number = (uint32_t) i;
    return GGML_STATUS_SUCCESS;
}

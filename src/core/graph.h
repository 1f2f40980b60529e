// SPDX-License-Identifier: MIT
// graph.h: the graph struct and the hash set inside it. Other libraries read both, so their layout is part of the ABI.
#pragma once

#include "base/base.h"

typedef uint32_t ggml_bitset_t;

// Open addressing with linear probing: slot = (address >> 4) % size. keys[i] is defined only if bit i of used is set.
struct ggml_hash_set {
    size_t size;
    ggml_bitset_t *used;
    struct ggml_tensor **keys;
};

enum ggml_cgraph_eval_order {
    GGML_CGRAPH_EVAL_ORDER_LEFT_TO_RIGHT = 0,
    GGML_CGRAPH_EVAL_ORDER_RIGHT_TO_LEFT = 1,
    GGML_CGRAPH_EVAL_ORDER_COUNT = 2,
};

// n_nodes <= size, n_leafs <= size. A failed graph (see below) has poison in nodes[size - 1].
struct ggml_cgraph {
    int size; // capacity of nodes and of leafs; 0: a view of another graph
    int n_nodes;
    int n_leafs;
    struct ggml_tensor **nodes;     // in execution order
    struct ggml_tensor **grads;     // by slot of the hash set; NULL: the graph has no gradients
    struct ggml_tensor **grad_accs; // by slot of the hash set; NULL: the graph has no gradients
    struct ggml_tensor **leafs;
    int32_t *use_counts; // by slot of the hash set: how often the tensor is a source of visited nodes
    struct ggml_hash_set visited_hash_set;
    enum ggml_cgraph_eval_order order;
    uint64_t uid;
};

#define BERTH_HASH_NONE SIZE_MAX // the set is full, or does not contain the tensor

static inline size_t berth_hash_slot(const struct ggml_hash_set *set, const struct ggml_tensor *key) {
    return ((uintptr_t) key >> 4) % set->size;
}

static inline bool berth_bit_get(const ggml_bitset_t *bits, size_t i) {
    return (bits[i / 32] >> (i % 32)) & 1;
}

static inline void berth_bit_set(ggml_bitset_t *bits, size_t i) {
    bits[i / 32] |= (ggml_bitset_t) 1 << (i % 32);
}

// Returns the slot of key, or a free slot. Returns BERTH_HASH_NONE if all slots hold other keys.
static inline size_t berth_hash_find(const struct ggml_hash_set *set, const struct ggml_tensor *key) {
    if (set->size == 0) {
        return BERTH_HASH_NONE;
    }
    size_t i = berth_hash_slot(set, key);
    for (size_t n = 0; n < set->size; n++) {
        if (!berth_bit_get(set->used, i) || set->keys[i] == key) {
            return i;
        }
        i = i + 1 == set->size ? 0 : i + 1;
    }
    return BERTH_HASH_NONE;
}

// These functions are exported to other libraries although no public header declares them.
GGML_API struct ggml_hash_set ggml_hash_set_new(size_t size);
GGML_API void ggml_hash_set_free(struct ggml_hash_set *hash_set);
GGML_API size_t ggml_hash_size(size_t min_sz);
GGML_API void ggml_hash_set_reset(struct ggml_hash_set *hash_set);
GGML_API struct ggml_cgraph ggml_graph_view(struct ggml_cgraph *cgraph, int i0, int i1);
GGML_API uint64_t ggml_graph_next_uid(void);
GGML_API bool ggml_op_can_inplace(enum ggml_op op);
GGML_API bool ggml_can_fuse_subgraph_ext(const struct ggml_cgraph *cgraph, const int *node_idxs, int count,
    const enum ggml_op *ops, const int *outputs, int num_outputs);

// ---- adding nodes; failed graphs (expand.c) ----

enum berth_graph_failure {
    BERTH_GRAPH_FULL,      // more nodes or leaves than the graph has slots for
    BERTH_GRAPH_NO_MEMORY, // no memory for the stack of the walk
    BERTH_GRAPH_CYCLE,     // a tensor depends on itself
    BERTH_GRAPH_N_FAILURES,
};

// Marks g as failed: fills its free slots and its last slot with poison. Nothing can be added to g afterwards.
// n_want: the graph needs at least this number of slots; used only for the message of BERTH_GRAPH_FULL.
void berth_graph_fail(struct ggml_cgraph *g, enum berth_graph_failure why, int64_t n_want);

// t is an f32 scalar in any memory.
void berth_set_one(struct ggml_tensor *t);

// SPDX-License-Identifier: MIT
// graph.c: creates, copies, views and queries graphs in a context's arena. expand.c adds nodes to them.
//
// A graph is one object in the arena, in this order: the struct, nodes[size], leafs[size], use_counts[n_slots], keys[n_slots],
// grads[n_slots] and grad_accs[n_slots] (only with gradients), bitset. n_slots = ggml_hash_size(2 * size).

#include "core/graph.h"

#include "base/min.h"
#include "core/op.h"

#include <stdatomic.h>

// ---- creating graphs ----

struct graph_layout {
    size_t leafs, use_counts, keys, grads, grad_accs, used; // byte offsets from the struct
    size_t size;                                            // total bytes
    size_t n_slots;
};

// Returns the offset of n elements. A graph has fewer than 2^31 nodes, so the sum fits 64 bits.
static size_t layout_add(size_t *end, size_t n, size_t elem) {
    const size_t off = GGML_PAD(*end, elem);
    *end = off + n * elem;
    return off;
}

static bool layout_of(size_t size, bool grads, struct graph_layout *l) {
    if (size > INT32_MAX) {
        return false;
    }
    const size_t n_slots = ggml_hash_size(2 * size), ptr = sizeof(void *);

    l->n_slots = n_slots;
    l->size = sizeof(struct ggml_cgraph) + size * ptr; // the nodes come first
    l->leafs = layout_add(&l->size, size, ptr);
    l->use_counts = layout_add(&l->size, n_slots, sizeof(int32_t));
    l->keys = layout_add(&l->size, n_slots, ptr);
    l->grads = layout_add(&l->size, grads ? n_slots : 0, ptr);
    l->grad_accs = layout_add(&l->size, grads ? n_slots : 0, ptr);
    l->used = layout_add(&l->size, (n_slots + 31) / 32, sizeof(ggml_bitset_t));
    return true;
}

size_t ggml_graph_overhead_custom(size_t size, bool grads) {
    struct graph_layout l;
    if (!layout_of(size, grads, &l)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_graph_overhead_custom: a graph of %zu nodes is too large", size);
        return SIZE_MAX;
    }
    return GGML_OBJECT_SIZE + GGML_PAD(l.size, (size_t) GGML_MEM_ALIGN);
}

size_t ggml_graph_overhead(void) {
    return ggml_graph_overhead_custom(GGML_DEFAULT_GRAPH_SIZE, false);
}

struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *ctx, size_t size, bool grads) {
    struct graph_layout l;
    if (ctx == NULL) {
        berth_set_error("ggml_new_graph_custom: the context is NULL");
        return NULL;
    }
    if (!layout_of(size, grads, &l)) {
        berth_poison(ctx, __func__, "a graph of %zu nodes is too large, the limit is %d", size, INT32_MAX);
        return NULL;
    }
    struct ggml_object *obj = berth_object_new(ctx, GGML_OBJECT_TYPE_GRAPH, l.size);
    if (obj == NULL) {
        return NULL;
    }
    char *base = berth_object_data(ctx, obj);
    struct ggml_cgraph *g = (struct ggml_cgraph *) (void *) base;

    *g = (struct ggml_cgraph){
        .size = (int) size,
        .nodes = (void *) (base + sizeof *g),
        .leafs = (void *) (base + l.leafs),
        .use_counts = (void *) (base + l.use_counts),
        .grads = grads ? (void *) (base + l.grads) : NULL,
        .grad_accs = grads ? (void *) (base + l.grad_accs) : NULL,
        .visited_hash_set = {.size = l.n_slots, .used = (void *) (base + l.used), .keys = (void *) (base + l.keys)},
        .order = GGML_CGRAPH_EVAL_ORDER_LEFT_TO_RIGHT,
    };
    ggml_hash_set_reset(&g->visited_hash_set);
    if (grads) {
        memset(g->grads, 0, l.n_slots * sizeof(void *));
        memset(g->grad_accs, 0, l.n_slots * sizeof(void *));
    }
    return g;
}

struct ggml_cgraph *ggml_new_graph(struct ggml_context *ctx) {
    return ggml_new_graph_custom(ctx, GGML_DEFAULT_GRAPH_SIZE, false);
}

// The view shares all memory with cgraph. Nothing can be added to the view.
struct ggml_cgraph ggml_graph_view(struct ggml_cgraph *cgraph, int i0, int i1) {
    if (cgraph == NULL || i0 < 0 || i0 > i1 || i1 > cgraph->n_nodes) {
        berth_fail(GGML_STATUS_FAILED, "ggml_graph_view: nodes %d to %d are not a range of %d nodes", i0, i1,
            cgraph != NULL ? cgraph->n_nodes : 0);
        return (struct ggml_cgraph){0};
    }
    return (struct ggml_cgraph){
        .n_nodes = i1 - i0,
        .nodes = cgraph->nodes + i0,
        .use_counts = cgraph->use_counts,
        .visited_hash_set = cgraph->visited_hash_set,
        .order = cgraph->order,
    };
}

uint64_t ggml_graph_next_uid(void) {
    static atomic_uint_fast64_t uid;
    return atomic_fetch_add(&uid, 1) + 1;
}

// ---- copying ----

// Returns false if dst is full.
static bool slot_copy(const struct ggml_cgraph *src, size_t i, struct ggml_cgraph *dst) {
    struct ggml_tensor *key = src->visited_hash_set.keys[i];
    const size_t j = berth_hash_find(&dst->visited_hash_set, key);
    if (j == BERTH_HASH_NONE) {
        return false;
    }
    berth_bit_set(dst->visited_hash_set.used, j);
    dst->visited_hash_set.keys[j] = key;
    dst->use_counts[j] = src->use_counts[i];
    if (dst->grads != NULL) {
        dst->grads[j] = src->grads != NULL ? src->grads[i] : NULL;
        dst->grad_accs[j] = src->grad_accs != NULL ? src->grad_accs[i] : NULL;
    }
    return true;
}

void ggml_graph_cpy(struct ggml_cgraph *src, struct ggml_cgraph *dst) {
    if (src == NULL || dst == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_graph_cpy: the source or destination graph is NULL");
        return;
    }
    if (src == dst) {
        return;
    }
    if (dst->size < src->n_nodes || dst->size < src->n_leafs || dst->visited_hash_set.size < src->visited_hash_set.size) {
        berth_graph_fail(dst, BERTH_GRAPH_FULL, max_int(src->n_nodes, src->n_leafs));
        return;
    }
    if (dst->size > 0) { // a view uses the hash set of another graph, which must not be cleared
        ggml_hash_set_reset(&dst->visited_hash_set);
    }
    dst->n_nodes = src->n_nodes;
    dst->n_leafs = src->n_leafs;
    dst->order = src->order;
    if (src->n_nodes > 0) {
        memcpy(dst->nodes, src->nodes, (size_t) src->n_nodes * sizeof src->nodes[0]);
    }
    if (src->n_leafs > 0) {
        memcpy(dst->leafs, src->leafs, (size_t) src->n_leafs * sizeof src->leafs[0]);
    }
    if (dst->grads != NULL) {
        memset(dst->grads, 0, dst->visited_hash_set.size * sizeof(void *));
        memset(dst->grad_accs, 0, dst->visited_hash_set.size * sizeof(void *));
    }
    for (size_t i = 0; i < src->visited_hash_set.size; i++) {
        if (berth_bit_get(src->visited_hash_set.used, i) && !slot_copy(src, i, dst)) {
            berth_graph_fail(dst, BERTH_GRAPH_FULL, src->n_nodes);
            return;
        }
    }
}

struct ggml_cgraph *ggml_graph_dup(struct ggml_context *ctx, struct ggml_cgraph *cgraph, bool force_grads) {
    if (cgraph == NULL) {
        berth_set_error("ggml_graph_dup: the graph is NULL");
        return NULL;
    }
    struct ggml_cgraph *dup = ggml_new_graph_custom(ctx, (size_t) cgraph->size, cgraph->grads != NULL || force_grads);
    if (dup != NULL) {
        ggml_graph_cpy(cgraph, dup);
    }
    return dup;
}

void ggml_graph_clear(struct ggml_cgraph *cgraph) {
    if (cgraph == NULL) {
        return;
    }
    cgraph->n_nodes = 0;
    cgraph->n_leafs = 0;
    ggml_hash_set_reset(&cgraph->visited_hash_set);
}

// ---- queries ----

int ggml_graph_size(struct ggml_cgraph *cgraph) {
    return cgraph != NULL ? cgraph->size : 0;
}

// i < 0 counts from the end.
struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *cgraph, int i) {
    const int n = cgraph != NULL ? cgraph->n_nodes : 0;
    const int at = i < 0 ? n + i : i;
    if (at < 0 || at >= n) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_graph_node: there is no node %d among %d nodes", i, n);
    }
    return cgraph->nodes[at];
}

struct ggml_tensor **ggml_graph_nodes(struct ggml_cgraph *cgraph) {
    return cgraph != NULL ? cgraph->nodes : NULL;
}

int ggml_graph_n_nodes(struct ggml_cgraph *cgraph) {
    return cgraph != NULL ? cgraph->n_nodes : 0;
}

static struct ggml_tensor *find_name(struct ggml_tensor *const *list, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i]->name, name) == 0) {
            return list[i];
        }
    }
    return NULL;
}

struct ggml_tensor *ggml_graph_get_tensor(const struct ggml_cgraph *cgraph, const char *name) {
    if (cgraph == NULL || name == NULL) {
        return NULL;
    }
    struct ggml_tensor *leaf = find_name(cgraph->leafs, cgraph->n_leafs, name);
    return leaf != NULL ? leaf : find_name(cgraph->nodes, cgraph->n_nodes, name);
}

static struct ggml_tensor *by_slot(
    const struct ggml_cgraph *cgraph, struct ggml_tensor *const *list, const struct ggml_tensor *node) {
    if (node == NULL || list == NULL) {
        return NULL;
    }
    const size_t i = berth_hash_find(&cgraph->visited_hash_set, node);
    return i != BERTH_HASH_NONE && berth_bit_get(cgraph->visited_hash_set.used, i) ? list[i] : NULL;
}

struct ggml_tensor *ggml_graph_get_grad(const struct ggml_cgraph *cgraph, const struct ggml_tensor *node) {
    return cgraph != NULL ? by_slot(cgraph, cgraph->grads, node) : NULL;
}

struct ggml_tensor *ggml_graph_get_grad_acc(const struct ggml_cgraph *cgraph, const struct ggml_tensor *node) {
    return cgraph != NULL ? by_slot(cgraph, cgraph->grad_accs, node) : NULL;
}

// The accumulator of the loss becomes 1. Other accumulators and AdamW moments become 0.
void ggml_graph_reset(struct ggml_cgraph *cgraph) {
    if (cgraph == NULL) {
        return;
    }
    if (cgraph->grads == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_graph_reset: the graph of %d nodes has no gradients", cgraph->n_nodes);
        return;
    }
    for (int i = 0; i < cgraph->n_nodes; i++) {
        struct ggml_tensor *node = cgraph->nodes[i];
        struct ggml_tensor *acc = ggml_graph_get_grad_acc(cgraph, node);
        if (node->op == GGML_OP_OPT_STEP_ADAMW) {
            ggml_set_zero(node->src[2]);
            ggml_set_zero(node->src[3]);
        }
        if (acc != NULL && (node->flags & GGML_TENSOR_FLAG_LOSS) != 0) {
            berth_set_one(acc);
        } else if (acc != NULL) {
            ggml_set_zero(acc);
        }
    }
}

// ---- fusion ----

static bool is_among(const int *list, int n, int x) {
    for (int i = 0; i < n; i++) {
        if (list[i] == x) {
            return true;
        }
    }
    return false;
}

static bool is_in_subgraph(const struct ggml_cgraph *g, const int *idxs, int count, const struct ggml_tensor *t) {
    for (int i = 0; i < count; i++) {
        if (g->nodes[idxs[i]] == t) {
            return true;
        }
    }
    return false;
}

static int uses_after(const struct ggml_cgraph *g, const int *idxs, int i, int count, const struct ggml_tensor *t) {
    int n = 0;
    for (int j = i + 1; j < count; j++) {
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            n += g->nodes[idxs[j]]->src[k] == t;
        }
    }
    return n;
}

// The nodes can run as one kernel if nodes outside the list read only the results in outputs[].
bool ggml_can_fuse_subgraph_ext(const struct ggml_cgraph *cgraph, const int *node_idxs, int count, const enum ggml_op *ops,
    const int *outputs, int num_outputs) {
    if (cgraph == NULL || node_idxs == NULL || ops == NULL || outputs == NULL || num_outputs <= 0) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (node_idxs[i] < 0 || node_idxs[i] >= cgraph->n_nodes) {
            return false;
        }
    }
    for (int i = 0; i < count; i++) {
        const struct ggml_tensor *node = cgraph->nodes[node_idxs[i]];
        if (node->op != ops[i] || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
            return false;
        }
        if (is_among(outputs, num_outputs, node_idxs[i])) {
            continue;
        }
        const size_t slot = berth_hash_find(&cgraph->visited_hash_set, node);
        const bool known = slot != BERTH_HASH_NONE && berth_bit_get(cgraph->visited_hash_set.used, slot);
        const int n_uses = known ? cgraph->use_counts[slot] : 0;
        if ((node->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || uses_after(cgraph, node_idxs, i, count, node) != n_uses) {
            return false;
        }
        for (const struct ggml_tensor *v = node->view_src; v != NULL; v = v->view_src) {
            if (!is_in_subgraph(cgraph, node_idxs, count, v)) {
                return false;
            }
        }
    }
    return true;
}

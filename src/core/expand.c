// SPDX-License-Identifier: MIT
// expand.c: adds a tensor and all tensors that it depends on to a graph, each once, sources before users.
//
// The walk is depth-first with its own stack, so that a long chain does not overflow the call stack.
// Leaf: a tensor without an op that is not a parameter.
// use_counts[slot]: how many sources of visited nodes refer to the tensor.
// GGML_TENSOR_FLAG_COMPUTE marks the nodes to compute. ggml_build_forward_select sets it only in the selected branch.
//
// Several threads may build graphs over the same tensors concurrently.
// The walk writes two fields of a tensor with atomic operations: its name, if it has none, and its compute flag.
// A thread that has finished its graph may read both fields.

#include "core/graph.h"

#include "core/op.h"

#include <sched.h>
#include <stdio.h>

// ---- failed graphs ----

#define FAILED_TENSOR(text) \
    { .type = GGML_TYPE_F32, .ne = {1, 1, 1, 1}, .nb = {4, 4, 4, 4}, .flags = BERTH_FLAG_POISON, .name = "poison", .extra = text }

static char full_text[] = "the graph is full: make it with a larger size (ggml_new_graph_custom)";
static char no_memory_text[] = "out of memory while the graph was built";
static char cycle_text[] = "the graph has a cycle: a tensor is a source of itself, directly or through others";

// Shared by all threads without a lock, because every function of Berth leaves poison unchanged.
static struct ggml_tensor failed_tensors[BERTH_GRAPH_N_FAILURES] = {
    [BERTH_GRAPH_FULL] = FAILED_TENSOR(full_text),
    [BERTH_GRAPH_NO_MEMORY] = FAILED_TENSOR(no_memory_text),
    [BERTH_GRAPH_CYCLE] = FAILED_TENSOR(cycle_text),
};

static bool has_failed(const struct ggml_cgraph *g) {
    return g->size > 0 && g->n_nodes == g->size && berth_poisoned(g->nodes[g->size - 1]);
}

void berth_graph_fail(struct ggml_cgraph *g, enum berth_graph_failure why, int64_t n_want) {
    if (why == BERTH_GRAPH_FULL) {
        berth_fail(GGML_STATUS_FAILED, "graph is full: it has %d slots for nodes and as many for leafs, at least %lld are needed",
            g->size, (long long) n_want);
    } else if (why == BERTH_GRAPH_CYCLE) {
        berth_fail(GGML_STATUS_FAILED, "%s; %d nodes were added before the cycle was found", cycle_text, g->n_nodes);
    } else {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory while building a graph of %d nodes so far", g->n_nodes);
    }
    if (g->size == 0) {
        return; // a view of another graph, or a graph of size 0, has no slot for poison
    }
    for (int i = g->n_nodes; i < g->size; i++) {
        g->nodes[i] = &failed_tensors[why];
    }
    g->nodes[g->size - 1] = &failed_tensors[why];
    g->n_nodes = g->size;
}

enum ggml_status berth_graph_check(const struct ggml_cgraph *graph) {
    if (graph == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "the graph is NULL");
    }
    if (has_failed(graph)) {
        return berth_fail(
            GGML_STATUS_FAILED, "%s; it has room for %d nodes", berth_poison_error(graph->nodes[graph->size - 1]), graph->size);
    }
    for (int i = 0; i < graph->n_leafs; i++) {
        if (berth_poisoned(graph->leafs[i])) {
            return berth_fail(GGML_STATUS_FAILED, "%s", berth_poison_error(graph->leafs[i]));
        }
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        if (berth_poisoned(graph->nodes[i])) {
            return berth_fail(GGML_STATUS_FAILED, "%s", berth_poison_error(graph->nodes[i]));
        }
    }
    return GGML_STATUS_SUCCESS;
}

// ---- the walk ----

// Set in use_counts while a tensor is on the stack. A visit of such a tensor is a cycle.
#define USES_OPEN (1 << 30)

struct frame {
    struct ggml_tensor *node;
    size_t slot;     // index in the hash set
    int n_done;      // sources already visited
    bool flags_only; // the node is already in the graph: the walk only sets compute flags
};

struct walk {
    struct ggml_cgraph *g;
    bool compute;         // set the compute flag of all visited nodes
    struct frame *frames; // the stack: the array few, or heap memory if the graph is deep
    size_t n_frames;
    size_t n_cap;
    struct frame few[64];
};

static bool walk_push(struct walk *w, struct ggml_tensor *node, size_t slot, bool flags_only) {
    if (BERTH_UNLIKELY(w->n_frames == w->n_cap)) {
        const bool first = w->frames == w->few;
        struct frame *grown = berth_realloc(first ? NULL : w->frames, w->n_cap * 2 * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        if (first) {
            memcpy(grown, w->few, sizeof w->few);
        }
        w->frames = grown;
        w->n_cap *= 2;
    }
    w->frames[w->n_frames++] = (struct frame){.node = node, .slot = slot, .flags_only = flags_only};
    return true;
}

// Claims the right to name t. Returns false if t has a name or another thread is naming t. A claim sets the last byte of the name
// from 0 to 1. The first byte of a name is written last, so a reader that sees the first byte sees the complete name.
static bool name_claim(struct ggml_tensor *t) {
    char *first = &t->name[0], *claim = &t->name[GGML_MAX_NAME - 1], free_claim = '\0';
    if (__atomic_load_n(first, __ATOMIC_ACQUIRE) != '\0') {
        return false;
    }
    if (!__atomic_compare_exchange_n(claim, &free_claim, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        for (int i = 0; i < 10000 && __atomic_load_n(first, __ATOMIC_ACQUIRE) == '\0';
             i++) { // the other thread will write the name soon
            sched_yield();
        }
        return false;
    }
    if (__atomic_load_n(first, __ATOMIC_ACQUIRE) != '\0') { // another thread named t before the claim
        __atomic_store_n(claim, '\0', __ATOMIC_RELEASE);
        return false;
    }
    return true;
}

static void name_number(struct ggml_tensor *t, const char *prefix, int number) {
    if (!name_claim(t)) {
        return;
    }
    char digits[12];
    int n = 0;
    do {
        digits[n++] = (char) ('0' + number % 10);
        number /= 10;
    } while (number > 0);
    const char first = *prefix++;
    char *p = t->name + 1;
    while (*prefix != '\0') {
        *p++ = *prefix++;
    }
    while (n > 0) {
        *p++ = digits[--n];
    }
    *p = '\0';
    __atomic_store_n(&t->name[GGML_MAX_NAME - 1], '\0', __ATOMIC_RELEASE);
    __atomic_store_n(&t->name[0], first, __ATOMIC_RELEASE);
}

// Appends the node to the nodes or the leafs. All its sources are already in the graph. Returns false if the graph is full.
static bool node_emit(struct ggml_cgraph *g, struct ggml_tensor *node) {
    if (node->op == GGML_OP_NONE && (berth_flags(node) & GGML_TENSOR_FLAG_PARAM) == 0) {
        if (g->n_leafs >= g->size) {
            return false;
        }
        if (!berth_poisoned(node)) {
            name_number(node, "leaf_", g->n_leafs);
        }
        g->leafs[g->n_leafs++] = node;
    } else {
        if (g->n_nodes >= g->size) {
            return false;
        }
        name_number(node, "node_", g->n_nodes);
        g->nodes[g->n_nodes++] = node;
    }
    return true;
}

enum visit { VISIT_FAILED = -1, VISIT_KNOWN, VISIT_PUSHED };

// t is a source of `from`. If t is already in the graph, t is pushed only to pass the compute flag on to its sources.
static enum visit tensor_visit(struct walk *w, struct ggml_tensor *t, const struct ggml_tensor *from, int n_uses) {
    struct ggml_hash_set *set = &w->g->visited_hash_set;
    const size_t slot = berth_hash_find(set, t);
    if (BERTH_UNLIKELY(slot == BERTH_HASH_NONE)) {
        berth_graph_fail(w->g, BERTH_GRAPH_FULL, (int64_t) (set->size + 1) / 2 + 1);
        return VISIT_FAILED;
    }
    const bool known = berth_bit_get(set->used, slot);
    if (known) {
        if (BERTH_UNLIKELY((w->g->use_counts[slot] & USES_OPEN) != 0) &&
            (t != from || t->op != GGML_OP_CPY)) { // the result of ggml_cast is a source of itself: not a cycle
            berth_graph_fail(w->g, BERTH_GRAPH_CYCLE, 0);
            return VISIT_FAILED;
        }
        w->g->use_counts[slot] += n_uses;
    } else {
        berth_bit_set(set->used, slot);
        set->keys[slot] = t;
        w->g->use_counts[slot] = n_uses | USES_OPEN;
        if (w->g->grads != NULL) {
            w->g->grads[slot] = NULL;
            w->g->grad_accs[slot] = NULL;
        }
    }
    const bool passes_flag = w->compute && t->op != GGML_OP_NONE && (berth_flags(t) & GGML_TENSOR_FLAG_COMPUTE) == 0;
    if (passes_flag) {
        __atomic_fetch_or(&t->flags, GGML_TENSOR_FLAG_COMPUTE, __ATOMIC_RELAXED);
    }
    if (known && !passes_flag) {
        return VISIT_KNOWN;
    }
    if (BERTH_UNLIKELY(!walk_push(w, t, slot, known))) {
        berth_graph_fail(w->g, BERTH_GRAPH_NO_MEMORY, 0);
        return VISIT_FAILED;
    }
    return VISIT_PUSHED;
}

static void walk_from(struct walk *w, struct ggml_tensor *root) {
    enum visit v = tensor_visit(w, root, NULL, 0);
    const bool backward = w->g->order == GGML_CGRAPH_EVAL_ORDER_RIGHT_TO_LEFT;
    while (v != VISIT_FAILED && w->n_frames > 0) {
        struct frame *f = &w->frames[w->n_frames - 1];
        struct ggml_tensor *src = NULL;
        while (f->n_done < GGML_MAX_SRC && src == NULL) {
            const int k = f->n_done++;
            src = f->node->src[backward ? GGML_MAX_SRC - 1 - k : k];
        }
        if (src != NULL) {
            v = tensor_visit(w, src, f->node, f->flags_only ? 0 : 1);
            continue;
        }
        w->n_frames--;
        if (!f->flags_only) {
            w->g->use_counts[f->slot] &= ~USES_OPEN;
        }
        if (!f->flags_only && BERTH_UNLIKELY(!node_emit(w->g, f->node))) {
            berth_graph_fail(w->g, BERTH_GRAPH_FULL, (int64_t) w->g->size + 1);
            v = VISIT_FAILED;
        }
    }
    for (; w->n_frames > 0; w->n_frames--) { // after a failed walk
        w->g->use_counts[w->frames[w->n_frames - 1].slot] &= ~USES_OPEN;
    }
}

static void graph_expand(const char *func, struct ggml_cgraph *g, struct ggml_tensor *tensor, bool compute) {
    if (g == NULL || tensor == NULL) {
        berth_set_error("%s: the %s is NULL", func, g == NULL ? "graph" : "tensor");
        return;
    }
    if (has_failed(g)) {
        return;
    }
    if (g->size == 0) {
        berth_graph_fail(g, BERTH_GRAPH_FULL, 1);
        return;
    }
    struct walk w = {.g = g, .compute = compute, .n_cap = sizeof w.few / sizeof w.few[0]};

    w.frames = w.few;
    walk_from(&w, tensor);
    if (w.frames != w.few) {
        berth_free(w.frames);
    }
}

void ggml_build_forward_expand(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor) {
    graph_expand(__func__, cgraph, tensor, true);
}

// Only branch idx is computed.
struct ggml_tensor *ggml_build_forward_select(struct ggml_cgraph *cgraph, struct ggml_tensor **tensors, int n_tensors, int idx) {
    if (cgraph == NULL || tensors == NULL || idx < 0 || idx >= n_tensors) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_build_forward_select: there is no branch %d among %d", idx, n_tensors);
    }
    for (int i = 0; i < n_tensors; i++) {
        graph_expand(__func__, cgraph, tensors[i], i == idx);
    }
    return tensors[idx];
}

void ggml_build_forward_order(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor) {
    graph_expand(__func__, cgraph, tensor, false);
}

// Adds no sources and counts no uses.
void ggml_graph_add_node(struct ggml_cgraph *cgraph, struct ggml_tensor *tensor) {
    if (cgraph == NULL || tensor == NULL) {
        berth_set_error("ggml_graph_add_node: the %s is NULL", cgraph == NULL ? "graph" : "tensor");
        return;
    }
    if (has_failed(cgraph)) {
        return;
    }
    if (cgraph->n_nodes >= cgraph->size) {
        berth_graph_fail(cgraph, BERTH_GRAPH_FULL, (int64_t) cgraph->n_nodes + 1);
        return;
    }
    cgraph->nodes[cgraph->n_nodes++] = tensor;
}

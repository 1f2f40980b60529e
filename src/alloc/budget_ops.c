// SPDX-License-Identifier: MIT
// budget_ops.c: translates a graph to ops of the solver: one op per computing node, and one per other tensor that is not a view
// and has no memory of the caller.
//
// A once op (BERTH_BUDGET_ONCE) is never recomputed. Mutable memory is memory that a node other than its producer writes:
// - A node that writes mutable memory, or reads it after the first write, is a once op.
// - A node that reads mutable memory before the first write may be recomputed until that write.

#include "alloc/budget.h"
#include "base/min.h"

#include <string.h>

static const struct ggml_tensor *root_of(const struct ggml_tensor *t) {
    while (t->view_src != NULL) {
        t = t->view_src;
    }
    return t;
}

static bool is_empty(const struct ggml_tensor *t) {
    const struct berth_op_info *info = berth_op_info(t->op);
    return info == NULL || info->is_empty;
}

static bool has_memory(const struct ggml_tensor *t) {
    return t->data != NULL || t->buffer != NULL;
}

void graph_ops_fini(struct graph_ops *o) {
    berth_record_list_fini(&o->list);
    berth_arrays_free(&o->mem);
    *o = (struct graph_ops){0};
}

static bool list_fill(struct graph_ops *o, struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!berth_record_list_add(&o->list, graph->nodes[i])) {
            return false;
        }
    }
    o->n_nodes = o->list.n;
    for (int i = 0; i < graph->n_leafs; i++) {
        if (!berth_record_list_add(&o->list, graph->leafs[i])) {
            return false;
        }
    }
    return berth_record_list_close(&o->list);
}

// ---- memory that changes while the graph runs ----

// An optimiser step writes the weights and the moments, but not the gradient.
static bool step_writes(const struct ggml_tensor *t, int k) {
    return t->op == GGML_OP_OPT_STEP_ADAMW ? k == 0 || k == 2 || k == 3 : t->op == GGML_OP_OPT_STEP_SGD && k == 0;
}

static void write_mark(struct graph_ops *o, const struct ggml_tensor *root, int32_t op) {
    const int32_t i = record_list_find(&o->list, root);
    if (!o->is_mutable[i]) {
        o->writer[i] = op;
        o->is_mutable[i] = true;
    }
}

static void mutable_mark(struct graph_ops *o) {
    for (int32_t i = 0; i < o->n_nodes; i++) {
        const struct ggml_tensor *t = o->list.at[i];
        if (is_empty(t)) {
            continue;
        }
        if (t->view_src != NULL || has_memory(t)) {
            write_mark(o, root_of(t), o->op_of[i]);
        }
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            if (t->src[k] != NULL && step_writes(t, k)) {
                write_mark(o, root_of(t->src[k]), o->op_of[i]);
            }
        }
    }
}

static bool is_custom(enum ggml_op op) {
    return op == GGML_OP_MAP_CUSTOM1 || op == GGML_OP_MAP_CUSTOM2 || op == GGML_OP_MAP_CUSTOM3 || op == GGML_OP_CUSTOM;
}

// Returns the group of a tensor (union-find). All mutable memory that one op accesses belongs to one group.
static int32_t group_find(struct graph_ops *o, int32_t i) {
    while (o->group[i] != i) {
        i = o->group[i] = o->group[o->group[i]];
    }
    return i;
}

// Merges all groups that the node accesses. Returns the merged group, -1: none.
static int32_t groups_merge(struct graph_ops *o, const struct ggml_tensor *t) {
    int32_t found = -1;
    for (int k = -1; k < GGML_MAX_SRC; k++) {
        const struct ggml_tensor *accessed = k < 0 ? t : t->src[k];
        const int32_t i = accessed == NULL ? -1 : record_list_find(&o->list, root_of(accessed));
        if (i < 0 || !o->is_mutable[i]) {
            continue;
        }
        const int32_t group = group_find(o, i);
        if (found < 0) {
            found = group;
        }
        o->group[group] = found;
    }
    return found;
}

// The node is op `at`. Returns the first op that overwrites memory which the node reads. The node may be recomputed until that
// op. Returns 0 if the node is a once op.
static int32_t recompute_limit(const struct graph_ops *o, const struct ggml_tensor *t, int32_t at) {
    int32_t until = 0;
    if (o->is_mutable[record_list_find(&o->list, root_of(t))]) {
        return 0;
    }
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        const int32_t i = t->src[k] == NULL ? -1 : record_list_find(&o->list, root_of(t->src[k]));
        if (i < 0 || !o->is_mutable[i]) {
            continue;
        }
        if (o->writer[i] <= at) {
            return 0;
        }
        if (until == 0 || o->writer[i] < until) {
            until = o->writer[i];
        }
    }
    return until;
}

// Returns true if the graph has a custom op. A custom op may access any memory, so all once ops then keep their order.
static bool has_custom(const struct graph_ops *o) {
    for (int32_t i = 0; i < o->n_nodes; i++) {
        if (is_custom(o->list.at[i]->op)) {
            return true;
        }
    }
    return false;
}

// ---- costs ----

// The cost of a node is an estimate in multiply-adds of a CPU. It serves only to compare nodes of one graph.

#define CPU_FLOPS_PER_BYTE 2  // multiply-adds that a core performs while it reads or writes one byte
#define FLOPS_PER_ELEMENT 8   // per element of a simple op
#define FLOPS_PER_FUNCTION 24 // per element of exp, tanh, sqrt

uint64_t berth_budget_node_cost(const struct ggml_tensor *node) {
    const struct berth_op_info *info = node == NULL ? NULL : berth_op_info(node->op);
    if (info == NULL || info->is_empty) {
        return 0;
    }
    const struct berth_op_cost c = berth_op_cost(node);
    const double n_written = c.written_size / (double) ggml_type_size(node->type) * (double) ggml_blck_size(node->type);
    const double n_read = node->src[0] != NULL && c.flops > 0 ? (double) ggml_nelements(node->src[0]) : 0;
    const double n = max_f64(n_written, n_read);
    const enum berth_op_family family = info->family;
    const bool has_function =
        family == BERTH_OP_ACTIVATION || family == BERTH_OP_ATTENTION || family == BERTH_OP_NORM || family == BERTH_OP_TRAIN;
    // If c.flops is more than one operation per element, as for a matrix product, c.flops is the work. Otherwise the work is a
    // fixed number of operations per element.
    const double each = has_function ? FLOPS_PER_FUNCTION : FLOPS_PER_ELEMENT, work = c.flops > n ? c.flops : n * each;
    const double cost = work + (c.read_size + c.written_size) * CPU_FLOPS_PER_BYTE + BUDGET_FLOPS_PER_NODE;
    return cost < 0x1p52 ? (uint64_t) cost : (uint64_t) 1 << 52;
}

// ---- ops ----

static bool is_op(const struct graph_ops *o, int32_t i) {
    const struct ggml_tensor *t = o->list.at[i];
    return i < o->n_nodes && !is_empty(t) ? true : t->view_src == NULL && !has_memory(t);
}

// Returns the op that wrote the bytes of t last, -1: memory of the caller.
static int32_t producer_of(const struct graph_ops *o, const struct ggml_tensor *t) {
    while (is_empty(t) && t->view_src != NULL && t->src[0] != NULL) {
        t = t->src[0];
    }
    const int32_t i = record_list_find(&o->list, t);
    return i < 0 ? -1 : o->op_of[i];
}

static void src_put(struct berth_budget_op *op, int32_t *srcs, int32_t src, int32_t self) {
    for (int32_t k = 0; k < op->n_srcs; k++) {
        if (srcs[k] == src) {
            return;
        }
    }
    if (src >= 0 && src != self) {
        srcs[op->n_srcs++] = src;
    }
}

static void srcs_fill(struct graph_ops *o, int32_t at, const struct ggml_tensor *t, int32_t *srcs) {
    struct berth_budget_op *op = &o->ops[at];
    const struct berth_op_info *info = berth_op_info(t->op);
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        const struct ggml_tensor *src = t->src[k];
        if (src == NULL) {
            continue;
        }
        const int32_t root = o->op_of[record_list_find(&o->list, root_of(src))];
        const int64_t n = op->n_srcs;
        src_put(op, srcs, root, at);
        const bool is_direct = src->view_src == NULL && op->n_srcs == n + 1 && info->in_place && t->view_src == NULL;
        op->inplace |= is_direct && record_same_layout(src, t) ? (uint64_t) 1 << n : 0;
        src_put(op, srcs, producer_of(o, src), at);
    }
    for (int k = 0; k < GGML_MAX_SRC; k++) { // a source that is read twice cannot be overwritten in place
        for (int j = 0; j < GGML_MAX_SRC && t->src[k] != NULL; j++) {
            if (j == k || t->src[j] == NULL || root_of(t->src[j]) != root_of(t->src[k])) {
                continue;
            }
            for (int32_t m = 0; m < op->n_srcs; m++) {
                op->inplace &=
                    srcs[m] == o->op_of[record_list_find(&o->list, root_of(t->src[k]))] ? ~((uint64_t) 1 << m) : UINT64_MAX;
            }
        }
    }
    if (t->view_src != NULL) {
        src_put(op, srcs, o->op_of[record_list_find(&o->list, root_of(t))], at);
    }
}

static void op_fill(struct graph_ops *o, int32_t at, const struct graph_sizes *sizes) {
    struct ggml_tensor *t = o->tensors[at];
    struct berth_budget_op *op = &o->ops[at];
    int32_t *srcs = &o->srcs[(size_t) at * 2 * (GGML_MAX_SRC + 1)];
    const bool computes = !is_empty(t) && record_list_find(&o->list, t) < o->n_nodes;
    *op = (struct berth_budget_op){.srcs = srcs, .align = sizes->align};
    if (t->view_src == NULL && !has_memory(t)) {
        op->size = (ggml_backend_buft_get_alloc_size(sizes->buft, t) + sizes->align - 1) / sizes->align * sizes->align;
    }
    if (!computes) {
        op->flags = BERTH_BUDGET_INPUT;
        return;
    }
    op->cost = berth_budget_node_cost(t);
    op->flags |= (t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 ? BERTH_BUDGET_OUTPUT : 0;
    // The merge must precede the loop in graph_ops_init that reads the groups.
    const bool has_mutable = groups_merge(o, t) >= 0;
    op->until = has_mutable && !o->is_one_group ? recompute_limit(o, t, at) : 0;
    op->flags |= is_custom(t->op) || (has_mutable && op->until == 0) ? BERTH_BUDGET_ONCE : 0;
    srcs_fill(o, at, t, srcs);
}

// Sets BERTH_BUDGET_OUTPUT for every value with a view that is an output or that no node reads. Sets BERTH_BUDGET_NO_SPILL for
// outputs, for mutable memory, and for values without a view that no node reads. is_read: [list.n] scratch, false on entry.
static void views_keep(struct graph_ops *o, bool *is_read) {
    for (int32_t i = 0; i < o->list.n; i++) {
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            if (o->list.at[i]->src[k] != NULL && o->list.at[i]->src[k] != o->list.at[i]) { // a cast lists itself as a source
                is_read[record_list_find(&o->list, o->list.at[i]->src[k])] = true;
            }
        }
    }
    for (int32_t i = 0; i < o->list.n; i++) {
        const struct ggml_tensor *t = o->list.at[i];
        const int32_t root = o->op_of[record_list_find(&o->list, root_of(t))];
        o->n_views[root < 0 ? o->n : root] += t->view_src != NULL;
        if (t->view_src != NULL && root >= 0 && (!is_read[i] || (t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0)) {
            o->ops[root].flags |= BERTH_BUDGET_OUTPUT;
        }
    }
    for (int32_t at = 0; at < o->n; at++) {
        const int32_t i = record_list_find(&o->list, o->tensors[at]);
        const bool is_end = (o->ops[at].flags & BERTH_BUDGET_OUTPUT) != 0 || (!is_read[i] && o->n_views[at] == 0);
        o->ops[at].flags |= is_end || o->is_mutable[i] ? BERTH_BUDGET_NO_SPILL : 0;
    }
}

enum ggml_status graph_ops_init(struct graph_ops *o, struct ggml_cgraph *graph, const struct graph_sizes *sizes) {
    *o = (struct graph_ops){0};
    if (!list_fill(o, graph)) {
        goto fail;
    }
    const size_t n = (size_t) o->list.n + 1;
    o->op_of = berth_arrays_new(&o->mem, n, sizeof *o->op_of);
    o->is_mutable = berth_arrays_new(&o->mem, n, sizeof *o->is_mutable);
    o->writer = berth_arrays_new(&o->mem, n, sizeof *o->writer);
    o->tensors = berth_arrays_new(&o->mem, n, sizeof *o->tensors);
    o->ops = berth_arrays_new(&o->mem, n, sizeof *o->ops);
    o->group = berth_arrays_new(&o->mem, n, sizeof *o->group);
    o->n_views = berth_arrays_new(&o->mem, n, sizeof *o->n_views);
    o->srcs = berth_arrays_new(&o->mem, n, 2 * (GGML_MAX_SRC + 1) * sizeof *o->srcs);
    bool *is_read = berth_arrays_new(&o->mem, n, sizeof *is_read);
    if (o->mem.has_failed) {
        goto fail;
    }
    for (int32_t i = 0; i < o->list.n; i++) {
        o->group[i] = i;
        o->op_of[i] = is_op(o, i) ? o->n : -1;
        if (o->op_of[i] >= 0) {
            o->tensors[o->n++] = o->list.at[i];
        }
    }
    mutable_mark(o);
    o->is_one_group = has_custom(o) || o->list.n >= 1 << 20;
    for (int32_t at = 0; at < o->n; at++) {
        op_fill(o, at, sizes);
    }
    for (int32_t at = 0; at < o->n; at++) { // op_fill has merged all groups
        const int32_t group = (o->ops[at].flags & BERTH_BUDGET_ONCE) != 0 ? groups_merge(o, o->tensors[at]) : -1;
        o->ops[at].group = group >= 0 && !o->is_one_group ? 1 + group : 0;
    }
    views_keep(o, is_read);
    return GGML_STATUS_SUCCESS;

fail:
    graph_ops_fini(o);
    return berth_fail(
        GGML_STATUS_ALLOC_FAILED, "out of memory to prepare a graph of %d nodes for a memory limit", graph->n_nodes);
}

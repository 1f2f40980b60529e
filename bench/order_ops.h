// SPDX-License-Identifier: MIT
// order_ops.h: converts a captured graph to ops of the order pass. ggml's rules decide which nodes are views, which write into
// memory of other tensors, which may run in place, and which results are kept to the end.
#pragma once

#include "berth.h"
#include "capture/ggraph.h"
#include "core/optable.h"

#include <stdlib.h>
#include <string.h>

struct order_ops {
    struct berth_order_op *ops;
    int32_t n_ops, n_nodes;
    bool is_split; // the graph uses several buffers: copies between them have no edges, so the order must not change
    int32_t (*srcs)[GGML_MAX_SRC];
};

static inline void order_ops_free(struct order_ops *o) {
    free(o->ops);
    free(o->srcs);
    *o = (struct order_ops){0};
}

static inline bool order_is_view(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

static inline void order_op_set(struct order_ops *o, struct ggraph *g, int32_t i) {
    const struct ggraph_place *place = &g->places[i];
    const struct ggml_tensor *t = place->tensor;
    const struct berth_op_info *info = berth_op_info(t->op);
    struct berth_order_op *op = &o->ops[i];
    const bool is_node = i < o->n_nodes, is_view = t->view_src != NULL, has_memory = t->data != NULL;
    const bool is_own = !is_view && !has_memory;
    *op = (struct berth_order_op){.srcs = o->srcs[i], .view_of = is_view ? (int32_t) ggraph_id(t->view_src) : -1};
    op->pool = place->buf < 0 ? 0 : place->buf;
    op->align = g->bufs[op->pool].align;
    op->size = is_own ? (ggml_nbytes(t) + op->align - 1) / op->align * op->align : 0;
    op->flags |= !is_node || (t->flags & GGML_TENSOR_FLAG_INPUT) != 0 ? BERTH_ORDER_INPUT : 0;
    op->flags |= (t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 ? BERTH_ORDER_OUTPUT : 0;
    if (is_node && !order_is_view(t->op)) {
        op->flags |= is_view ? BERTH_ORDER_WRITES : has_memory ? BERTH_ORDER_EFFECT : 0;
    }
    const bool may_share = (info != NULL && info->in_place) || ggraph_in_place(t, 0, g);
    for (int32_t k = 0; k < GGML_MAX_SRC && t->src[k] != NULL; k++) {
        const struct ggml_tensor *src = t->src[k];
        o->srcs[i][op->n_srcs++] = (int32_t) ggraph_id(src);
        if (may_share && src->type == t->type && ggml_are_same_shape(src, t) && ggml_are_same_stride(src, t)) {
            op->inplace |= (uint64_t) 1 << k;
        }
    }
}

// Marks the results that ggml keeps to the end: outputs, results without a reader, and memory with a view that has no reader.
static inline bool order_mark_kept(struct order_ops *o) {
    bool *is_read = calloc((size_t) o->n_ops + 1, sizeof *is_read);
    for (int32_t i = 0; is_read != NULL && i < o->n_ops; i++) {
        for (int32_t k = 0; k < o->ops[i].n_srcs; k++) {
            is_read[o->ops[i].srcs[k]] = true;
        }
    }
    for (int32_t i = 0; is_read != NULL && i < o->n_ops; i++) {
        o->ops[i].flags |= is_read[i] ? 0 : (uint32_t) BERTH_ORDER_OUTPUT;
    }
    free(is_read);
    return is_read != NULL;
}

static inline bool order_ops_read(const char *path, struct order_ops *o) {
    struct ggraph g;
    *o = (struct order_ops){0};
    if (ggraph_read(&g, path) != GGML_STATUS_SUCCESS) {
        return false;
    }
    o->n_ops = (int32_t) g.n_places;
    o->n_nodes = ggml_graph_n_nodes(g.graph);
    o->is_split = g.n_bufs > 1;
    o->ops = calloc((size_t) o->n_ops + 1, sizeof *o->ops);
    o->srcs = calloc((size_t) o->n_ops + 1, sizeof *o->srcs);
    bool ok = o->ops != NULL && o->srcs != NULL;
    for (int32_t i = 0; ok && i < o->n_ops; i++) {
        order_op_set(o, &g, i);
    }
    ok = ok && order_mark_kept(o);
    ggraph_free(&g);
    if (!ok) {
        order_ops_free(o);
    }
    return ok;
}

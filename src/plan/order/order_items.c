// SPDX-License-Identifier: MIT
// order_items.c: makes the planner's items for an order of the ops: one item per block, alive until the last user of the block. A
// result that takes over the memory of a source shares the item of the source. The time is linear in ops and uses.

#include "base/min.h"
#include "plan/order/order.h"

#include <inttypes.h>

// Fails if order is not a permutation of the ops, or if an op is before one of its sources.
static enum ggml_status positions_find(const struct order_graph *g, const int32_t *order, int32_t *position) {
    for (int32_t i = 0; i < g->n_ops; i++) {
        position[i] = -1;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const int32_t op = order == NULL ? i : order[i];
        if (op < 0 || op >= g->n_ops || position[op] >= 0) {
            return berth_fail(GGML_STATUS_FAILED, "order: position %d has op %d, which is out of range (%d ops) or occurs twice",
                i, op, g->n_ops);
        }
        position[op] = i;
    }
    for (int32_t t = 0; t < g->n_tasks; t++) {
        for (int32_t k = g->pred.start[t]; k < g->pred.start[t + 1]; k++) {
            if (position[g->task_op[g->pred.at[k]]] > position[g->task_op[t]]) {
                return berth_fail(
                    GGML_STATUS_FAILED, "order: op %d must run before op %d", g->task_op[g->pred.at[k]], g->task_op[t]);
            }
        }
    }
    return GGML_STATUS_SUCCESS;
}

struct builder {
    const struct order_graph *g;
    const int32_t *position;
    struct berth_plan_item *items;
    size_t n_items;
    int32_t *item; // [n_blocks] index in items
    int32_t *left; // [n_blocks] number of users that have not run
};

static void block_place(struct builder *m, int32_t b, int64_t first) {
    const struct order_graph *g = m->g;
    const struct berth_order_op *op = &g->ops[g->block_op[b]];
    m->item[b] = (int32_t) m->n_items;
    m->items[m->n_items++] = (struct berth_plan_item){
        .first = first, .last = first, .size = op->size, .align = op->align == 0 ? 1 : op->align, .pool = op->pool};
}

static void block_prolong(struct builder *m, int32_t b) {
    const struct order_graph *g = m->g;
    struct berth_plan_item *item = &m->items[m->item[b]];
    for (int32_t k = g->users.start[b]; k < g->users.start[b + 1]; k++) {
        const int64_t at = m->position[g->task_op[g->users.at[k]]];
        item->last = max_i64(at, item->last);
    }
    if (g->keep[b]) {
        item->last = g->n_ops - 1;
    }
}

static void task_run(struct builder *m, int32_t t, int64_t position) {
    const struct order_graph *g = m->g;
    const int32_t made = g->made[t];
    int32_t from = -1;
    for (int32_t k = g->takeover.start[t]; k < g->takeover.start[t + 1] && from < 0; k++) {
        from = m->left[g->takeover.at[k]] == 1 ? g->takeover.at[k] : -1;
    }
    if (made >= 0 && from >= 0) {
        m->item[made] = m->item[from];
    } else if (made >= 0) {
        block_place(m, made, position);
    }
    if (made >= 0) {
        block_prolong(m, made);
    }
    for (int32_t k = g->used.start[t]; k < g->used.start[t + 1]; k++) {
        m->left[g->used.at[k]]--;
    }
}

enum ggml_status berth_plan_order_items(const struct berth_order_op *ops, int64_t n_ops, const int32_t *order,
    struct berth_plan_item *items, int64_t *n_items, int32_t *item_of) {
    if (n_items == NULL || n_ops < 0 || (n_ops > 0 && (ops == NULL || items == NULL))) {
        return berth_fail(GGML_STATUS_FAILED, "order: ops, items or n_items is NULL, or n_ops = %" PRId64 " is negative", n_ops);
    }
    *n_items = 0;
    struct berth_arrays mem = {0};
    struct order_graph g;
    enum ggml_status status = order_graph_init(&g, &mem, ops, (size_t) n_ops);
    if (status != GGML_STATUS_SUCCESS) {
        goto fail;
    }
    int32_t *position = berth_arrays_new(&mem, (size_t) n_ops, sizeof *position);
    struct builder m = {.g = &g, .position = position, .items = items};
    m.item = berth_arrays_new(&mem, (size_t) g.n_blocks, sizeof *m.item);
    m.left = berth_arrays_new(&mem, (size_t) g.n_blocks, sizeof *m.left);
    if (mem.has_failed) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "order: out of memory for the items of %" PRId64 " ops", n_ops);
        goto fail;
    }
    status = positions_find(&g, order, position);
    if (status != GGML_STATUS_SUCCESS) {
        goto fail;
    }
    for (int32_t b = 0; b < g.n_blocks; b++) {
        m.left[b] = g.users.start[b + 1] - g.users.start[b];
        if ((ops[g.block_op[b]].flags & BERTH_ORDER_INPUT) != 0) {
            block_place(&m, b, 0);
            block_prolong(&m, b);
        }
    }
    for (int32_t i = 0; i < g.n_ops; i++) {
        const int32_t t = g.op_task[order == NULL ? i : order[i]];
        if (t >= 0) {
            task_run(&m, t, i);
        }
    }
    for (int64_t i = 0; item_of != NULL && i < n_ops; i++) {
        const int32_t b = g.op_block[g.root[i]];
        item_of[i] = b < 0 ? -1 : m.item[b];
    }
    *n_items = m.n_items;
fail:
    berth_arrays_free(&mem);
    return status;
}

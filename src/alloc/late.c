// SPDX-License-Identifier: MIT
// late.c: finds late leafs. A leaf is late if one node overwrites the leaf completely before any other access, as in
// ggml_cpy(x, ggml_new_tensor(...)). A late leaf needs no memory until that node runs. Inputs are never late. The cost is
// O(rows + edges).

#include "alloc/lifetime.h"

#include "core/optable.h"

#include <string.h>

// Returns true if the node is a view that writes every byte of its source without reading it.
static bool node_overwrites(const struct ggml_tensor *node) {
    const struct berth_op_info *info = berth_op_info(node->op);
    const struct ggml_tensor *leaf = node->view_src;
    return info != NULL && info->overwrites > 0 && leaf != NULL && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 &&
           node->view_offs == 0 && ggml_nbytes(node) == ggml_nbytes(leaf) && ggml_is_contiguous(node);
}

static bool may_be_late(const struct record_row *row) {
    return row->view_src < 0 && !row->has_memory && (row->flags & GGML_TENSOR_FLAG_INPUT) == 0;
}

static int32_t root_of(const struct record *rec, int32_t r) {
    return rec->rows[record_base(rec, r)].same_as;
}

// Values of late[] that are not a step. UNTOUCHED: no step has accessed the row yet. READ: the row is not a late leaf.
enum { UNTOUCHED, READ = -1 };

static void late_touch(int32_t *late, int32_t root, int32_t value) {
    if (late[root] == UNTOUCHED) {
        late[root] = value;
    }
}

// Updates late[] with the accesses of row r, which runs at `step`. A view op accesses nothing. A row that the caller appended
// counts as a reader, whatever its op is.
static void touch_step(const struct record *rec, int32_t r, int32_t step, int32_t *late) {
    const struct record_row *row = &rec->rows[r];
    const struct berth_op_info *info = berth_op_info((enum ggml_op) row->op);
    if (r < rec->n_nodes && row->view_src >= 0 && info != NULL && info->is_empty) {
        return;
    }
    const bool is_overwrite = r < rec->n_nodes && node_overwrites(rec->tensors[r]);
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        if (!is_overwrite || rec->slots[k] + 1 != info->overwrites) {
            late_touch(late, root_of(rec, rec->srcs[k]), READ);
        }
    }
    late_touch(late, root_of(rec, r), is_overwrite ? step + 1 : READ);
}

void berth_lifetimes_late(const struct record *rec, const struct lifetime_order *order, int32_t *late) {
    memset(late, UNTOUCHED, (size_t) rec->n_all * sizeof late[0]);
    for (int32_t step = 0; step < order->n_steps; step++) {
        touch_step(rec, lifetime_step(order, step), step, late);
    }
    for (int32_t r = 0; r < rec->n_all; r++) {
        const bool is_leaf = r >= rec->n_nodes && r < rec->n_nodes + order->n_early;
        if (!is_leaf || !may_be_late(&rec->rows[r])) {
            late[r] = READ;
        }
    }
}

// ---- memory that late leafs share ----

// An item may only use the memory of one of the last WINDOW items, so that the time is linear.
enum { WINDOW = 64 };

struct sharing {
    struct lifetimes *l;
    // [n_items] -1 - i: the item uses the memory of item i. 0: the item has its own memory. items_compact replaces the values by
    // the new numbers of the items.
    int32_t *into;
    int32_t recent[WINDOW]; // ring of the last items with their own memory
    int32_t n;              // number of items ever put into the ring
};

static bool may_share(const struct lifetimes *l, int32_t a, int32_t b, int64_t step) {
    const struct berth_plan_item *x = &l->items[a], *y = &l->items[b];
    return l->returned[a] && x->last < step && x->size == y->size && x->align == y->align && x->pool == y->pool;
}

// Lets the item, which is needed from `step` on, use the memory of a recent item that is free by then.
static void item_share(struct sharing *s, int32_t item, int64_t step) {
    struct lifetimes *l = s->l;
    for (int32_t k = 0; k < WINDOW && k < s->n; k++) {
        const int32_t old = s->recent[k];
        if (may_share(l, old, item, step)) {
            s->into[item] = -1 - old;
            l->items[old].last = l->items[item].last;
            l->returned[old] = l->returned[item];
            return;
        }
    }
    s->recent[s->n++ % WINDOW] = item;
}

static void items_compact(struct sharing *s, int32_t n_rows) {
    struct lifetimes *l = s->l;
    size_t n = 0;
    for (size_t i = 0; i < l->n_items; i++) {
        if (s->into[i] == 0) {
            l->items[n] = l->items[i];
            l->owners[n] = l->owners[i];
            l->returned[n] = l->returned[i];
            s->into[i] = (int32_t) n++;
        }
    }
    for (size_t i = 0; i < l->n_items; i++) {
        if (s->into[i] < 0) {
            s->into[i] = s->into[-1 - s->into[i]];
        }
    }
    l->n_items = n;
    for (int32_t r = 0; r < n_rows; r++) {
        if (l->rows[r].item >= 0) {
            l->rows[r].item = s->into[l->rows[r].item];
        }
    }
}

bool berth_lifetimes_share_late(struct lifetimes *l, const struct record *rec, const int32_t *late) {
    struct sharing s = {.l = l, .into = berth_calloc(l->n_items + 1, sizeof s.into[0])};
    if (s.into == NULL) {
        return false;
    }
    for (int32_t step = 0; step < l->order.n_steps; step++) {
        const int32_t r = lifetime_step(&l->order, step);
        const int32_t leaf = l->rows[r].is_late ? rec->rows[r].view_src : -1;
        if (leaf >= 0 && late[leaf] == step + 1) {
            item_share(&s, l->rows[leaf].item, step);
        }
    }
    items_compact(&s, rec->n_all);
    berth_free(s.into);
    return true;
}

// ---- validity of an old plan ----

bool berth_lifetimes_still_late(const struct lifetimes *l, const struct record *rec) {
    for (int32_t r = 0; r < rec->n_nodes && l->n_late > 0; r++) {
        if (l->rows[r].is_late && !node_overwrites(rec->tensors[r])) {
            return false;
        }
    }
    return true;
}

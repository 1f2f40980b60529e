// SPDX-License-Identifier: MIT
// galloc_check.c: checks the addresses of a graph independently of its plan. A tensor is alive from the node that computes it to
// the last reader of the tensor or of its views. berth_gallocr_compute_checked also detects nodes that write into the memory of
// other tensors.

#include "alloc/galloc.h"
#include "backend/backend.h"
#include "base/min.h"
#include "core/optable.h"

#include <string.h>

// The lifetime and the memory of one row. Only rows with is_ours are checked.
struct span {
    int32_t group;  // row whose memory this row took over, or this row itself
    int64_t first;  // the node that computes the row or overwrites a late leaf; otherwise 0
    int64_t last;   // last node that reads it
    uint64_t begin; // address
    uint64_t size;
    bool is_ours; // has bytes in a buffer of the allocator
    bool is_late; // a late leaf
};

struct check {
    struct ggml_gallocr *galloc;
    struct record rec;
    struct berth_arrays mem; // owns the arrays below
    struct span *spans;      // [n_rows]
    struct berth_plan_item *items;
    uint64_t *offsets;
    int32_t *rows; // [n_items] row of each item
    int32_t *late; // [n_rows] late leafs, see berth_lifetimes_late
    int64_t n_items;
};

// Returns the row that owns the memory of row r: the base if r is a view, otherwise r. If several rows have the same tensor,
// returns the first of them.
static int32_t root_of(const struct record *rec, int32_t r) {
    return rec->rows[record_base(rec, rec->rows[r].same_as)].same_as;
}

// Returns the row that had the memory of row r first: follows the rows whose memory was taken over.
static int32_t group_of(const struct check *c, int32_t r) {
    while (c->spans[r].group != r) {
        r = c->spans[r].group;
    }
    return r;
}

// ---- lifetimes ----

static bool is_kept(const struct check *c, int32_t r, bool is_read) {
    return (c->rec.rows[r].flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || (!is_read && !c->galloc->options.free_unread);
}

static void find_lifetimes(struct check *c) {
    const struct record *rec = &c->rec;
    const int64_t end = rec->n_nodes > 0 ? rec->n_nodes - 1 : 0;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        const bool is_early = r >= rec->n_nodes || (rec->rows[r].flags & GGML_TENSOR_FLAG_INPUT) != 0;
        c->spans[r] = (struct span){.group = r, .first = is_early ? 0 : r, .last = -1};
    }
    berth_lifetimes_late(rec, &(struct lifetime_order){.n_steps = rec->n_nodes, .n_early = rec->n_leafs}, c->late);
    for (int32_t r = rec->n_nodes; r < rec->n_nodes + rec->n_leafs; r++) {
        const int32_t canon = rec->rows[r].same_as;

        c->spans[canon].is_late = c->late[canon] > 0;
        c->spans[canon].first = c->late[canon] > 0 ? c->late[canon] - 1 : 0;
    }
    for (int32_t r = 0; r < rec->n_nodes; r++) {
        for (int k = 0; k < rec->rows[r].n_src; k++) {
            const int32_t s = rec->rows[rec->srcs[rec->rows[r].src + k]].same_as;
            c->spans[s].last = c->spans[root_of(rec, s)].last = r;
        }
        struct span *root = &c->spans[root_of(rec, r)];
        root->last = max_i64(root->last, r); // a view that writes
    }
    for (int32_t r = 0; r < rec->n_rows; r++) {
        const bool is_not_node = r >= rec->n_nodes;
        const bool is_read = c->spans[r].last > (is_not_node ? -1 : r);
        // If no node reads a tensor, the tensor is a result and keeps its memory to the end (is_kept). A view is such a result
        // only if it is a node with an op.
        const bool can_be_result = rec->rows[r].view_src < 0 || (r < rec->n_nodes && rec->rows[r].op != GGML_OP_NONE);
        if (rec->rows[r].same_as == r && is_kept(c, r, is_read || !can_be_result)) {
            c->spans[root_of(rec, r)].last = end;
        }
    }
    for (int32_t r = 0; r < rec->n_rows; r++) {
        struct span *s = &c->spans[r];
        s->last = max_i64(s->last, s->first);
    }
}

// ---- addresses ----

static enum ggml_status find_addresses(struct check *c) {
    const struct record *rec = &c->rec;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        const struct ggml_tensor *t = rec->tensors[r];
        if (rec->rows[r].same_as != r || rec->rows[r].has_memory) {
            continue;
        }
        if (t->view_src != NULL) {
            if (t->view_src->data != NULL && t->data != (char *) t->view_src->data + t->view_offs) {
                return berth_fail(GGML_STATUS_FAILED, "the address of view %s is not in its source", berth_name_of(t));
            }
            continue;
        }
        const bool is_needed = r < rec->n_nodes + rec->n_leafs || c->spans[r].last >= 0;
        if (t->buffer == NULL || t->data == NULL) {
            if (is_needed) {
                return berth_fail(GGML_STATUS_FAILED, "tensor %s has no memory", berth_name_of(t));
            }
            continue;
        }
        const size_t size = ggml_backend_buffer_get_alloc_size(t->buffer, t);
        const uintptr_t base = (uintptr_t) ggml_backend_buffer_get_base(t->buffer), at = (uintptr_t) t->data;
        if (size > 0 && (at < base || at - base > t->buffer->size || size > t->buffer->size - (at - base))) {
            return berth_fail(GGML_STATUS_FAILED, "tensor %s of %zu bytes is not inside its buffer", berth_name_of(t), size);
        }
        if (size > 0 && (at - base) % ggml_backend_buffer_get_alignment(t->buffer) != 0) {
            return berth_fail(GGML_STATUS_FAILED, "the address of tensor %s is not aligned", berth_name_of(t));
        }
        c->spans[r].is_ours = size > 0;
        c->spans[r].begin = at;
        c->spans[r].size = size;
    }
    return GGML_STATUS_SUCCESS;
}

static bool may_take_over(const struct check *c, int32_t node, int k) {
    const struct record_row *row = &c->rec.rows[node];
    const int i_src = c->rec.slots[row->src + k];
    const struct berth_op_info *info = berth_op_info((enum ggml_op) row->op);
    const struct berth_gallocr_params *o = &c->galloc->options;
    return (info != NULL && info->in_place) ||
           (o->inplace != NULL && o->inplace(c->rec.tensors[node], i_src, o->inplace_user_data));
}

// A result and the source whose memory it took over count as one piece of memory.
static void join_in_place(struct check *c) {
    for (int32_t r = 0; r < c->rec.n_nodes; r++) {
        const struct record_row *row = &c->rec.rows[r];
        for (int k = 0; k < row->n_src && c->spans[r].is_ours; k++) {
            const int32_t s = c->rec.srcs[row->src + k], from = root_of(&c->rec, s);
            if (from != r && c->spans[from].is_ours && c->spans[from].begin == c->spans[r].begin && c->spans[from].last == r &&
                record_same_layout(c->rec.tensors[r], c->rec.tensors[s]) && may_take_over(c, r, k)) {
                c->spans[r].group = from;
                break;
            }
        }
    }
}

// ---- check ----

static void make_items(struct check *c) {
    for (int32_t r = 0; r < c->rec.n_rows; r++) {
        const int32_t g = group_of(c, r);
        if (g != r) {
            c->spans[g].last = max_i64(c->spans[r].last, c->spans[g].last);
            c->spans[g].size = max_size(c->spans[r].size, c->spans[g].size);
        }
    }
    for (int32_t r = 0; r < c->rec.n_rows; r++) {
        const struct span *s = &c->spans[r];
        if (s->group == r && s->is_ours) {
            c->items[c->n_items] = (struct berth_plan_item){.first = s->first, .last = s->last, .size = s->size};
            c->offsets[c->n_items] = s->begin;
            c->rows[c->n_items++] = r;
        }
    }
}

static void check_fini(struct check *c) {
    berth_record_fini(&c->rec);
    berth_arrays_free(&c->mem);
}

static enum ggml_status check_init(struct check *c, struct ggml_gallocr *galloc, struct ggml_cgraph *graph) {
    const struct record_rules rules = berth_galloc_record_rules(galloc);

    *c = (struct check){.galloc = galloc};
    enum ggml_status status = berth_record_build(&c->rec, graph, &rules);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    const size_t n = (size_t) c->rec.n_rows + 1;
    c->spans = berth_arrays_new(&c->mem, n, sizeof c->spans[0]);
    c->items = berth_arrays_new(&c->mem, n, sizeof c->items[0]);
    c->offsets = berth_arrays_new(&c->mem, n, sizeof c->offsets[0]);
    c->rows = berth_arrays_new(&c->mem, n, sizeof c->rows[0]);
    c->late = berth_arrays_new(&c->mem, n, sizeof c->late[0]);
    if (c->mem.has_failed) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory to check %d tensors", c->rec.n_rows);
    }
    find_lifetimes(c);
    status = find_addresses(c);
    if (status == GGML_STATUS_SUCCESS) {
        join_in_place(c);
        make_items(c);
    }
    return status;
}

static enum ggml_status check_items(const struct check *c) {
    struct berth_plan_fault fault;
    if (berth_plan_check(c->items, c->n_items, NULL, c->offsets, &fault) == GGML_STATUS_SUCCESS) {
        return GGML_STATUS_SUCCESS;
    }
    if (fault.kind != BERTH_PLAN_COLLIDE) {
        return GGML_STATUS_FAILED;
    }
    const struct berth_plan_item *a = &c->items[fault.i], *b = &c->items[fault.j];
    return berth_fail(GGML_STATUS_FAILED,
        "tensors %s (nodes %lld to %lld, %llu bytes at %p) and %s (nodes %lld to %lld, %llu bytes at %p) overlap in memory and "
        "lifetime",
        berth_name_of(c->rec.tensors[c->rows[fault.i]]), (long long) a->first, (long long) a->last, (unsigned long long) a->size,
        c->rec.tensors[c->rows[fault.i]]->data, berth_name_of(c->rec.tensors[c->rows[fault.j]]), (long long) b->first,
        (long long) b->last, (unsigned long long) b->size, c->rec.tensors[c->rows[fault.j]]->data);
}

bool berth_gallocr_verify(ggml_gallocr_t galloc, struct ggml_cgraph *graph) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph)) {
        return false;
    }
    struct check c;
    enum ggml_status status = check_init(&c, galloc, graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = check_items(&c);
    }
    check_fini(&c);
    return status == GGML_STATUS_SUCCESS;
}

// ---- computing with checks of all memory ----

#define FILL_NEW 0xFF // new memory: NaN in every float type
#define FILL_DEAD 0xDF

static uint64_t hash_bytes(const uint8_t *p, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001B3u;
    }
    return h;
}

struct watch {
    struct check *c;
    uint64_t *hashes; // [n_items] hashes of items that are alive
    uint8_t *scratch;
    size_t scratch_cap;
};

static bool hash_item(struct watch *w, int64_t i, uint64_t *hash) {
    const struct ggml_tensor *t = w->c->rec.tensors[w->c->rows[i]];
    const size_t n = ggml_nbytes(t);
    if (!BERTH_GROW(&w->scratch, &w->scratch_cap, n)) {
        return false;
    }
    ggml_backend_tensor_get(t, w->scratch, 0, n);
    *hash = hash_bytes(w->scratch, n);
    return true;
}

static void fill_item(const struct watch *w, int64_t i, uint8_t value) {
    struct ggml_tensor *t = w->c->rec.tensors[w->c->rows[i]];
    ggml_backend_tensor_memset(t, value, 0, ggml_nbytes(t));
}

// Called before a node runs (is_before): fills the memory that the node will write, and hashes all other live items. Called after
// the node has run: checks the hashes, and fills the items whose lifetime has ended.
static enum ggml_status watch_node(struct watch *w, int32_t node, bool is_before) {
    struct check *c = w->c;
    const int32_t own = group_of(c, root_of(&c->rec, node));
    const bool is_empty = berth_op_info((enum ggml_op) c->rec.rows[node].op)->is_empty;
    for (int64_t i = 0; i < c->n_items; i++) {
        const struct berth_plan_item *item = &c->items[i];
        const bool is_own = c->rows[i] == own && !is_empty;
        uint64_t hash;
        const bool is_fresh = c->rows[i] == node || c->spans[c->rows[i]].is_late;
        if (is_before && is_own && is_fresh && item->first == node) {
            fill_item(w, i, FILL_NEW);
        }
        if (item->first > node || item->last < node || is_own) {
            continue;
        }
        if (!hash_item(w, i, &hash)) {
            return berth_fail(
                GGML_STATUS_ALLOC_FAILED, "out of memory for a copy of %llu bytes", (unsigned long long) item->size);
        }
        if (is_before) {
            w->hashes[i] = hash;
        } else if (hash != w->hashes[i]) {
            return berth_fail(GGML_STATUS_FAILED, "node %d (%s, %s) wrote into the memory of %s", node,
                ggml_op_name((enum ggml_op) c->rec.rows[node].op), berth_name_of(c->rec.tensors[node]),
                berth_name_of(c->rec.tensors[c->rows[i]]));
        }
    }
    for (int64_t i = 0; i < c->n_items && !is_before; i++) {
        if (c->items[i].last == node && node < c->rec.n_nodes - 1) {
            fill_item(w, i, FILL_DEAD);
        }
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_gallocr_compute_checked(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, ggml_backend_t backend, berth_compute_t compute) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph) || compute == NULL) {
        return GGML_STATUS_FAILED;
    }
    struct check c;
    struct watch w = {.c = &c};
    enum ggml_status status = check_init(&c, galloc, graph);
    if (status == GGML_STATUS_SUCCESS) {
        w.hashes = berth_arrays_new(&c.mem, (size_t) c.n_items, sizeof w.hashes[0]);
        status = w.hashes != NULL ? GGML_STATUS_SUCCESS
                                  : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the hashes of a checked computation");
    }
    for (int32_t i = 0; i < c.rec.n_nodes && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_cgraph one = ggml_graph_view(graph, i, i + 1);
        status = watch_node(&w, i, true);
        if (status == GGML_STATUS_SUCCESS) {
            status = compute(backend, &one);
        }
        if (status == GGML_STATUS_SUCCESS) {
            status = watch_node(&w, i, false);
        }
    }
    berth_free(w.scratch);
    check_fini(&c);
    return status;
}

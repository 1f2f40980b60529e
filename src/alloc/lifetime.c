// SPDX-License-Identifier: MIT
// lifetime.c: simulates the execution of a graph by ggml's rules, to find when memory is allocated and freed:
// - Inputs and leafs are allocated before the first node. late.c handles leafs that a node overwrites first.
// - The memory of a tensor is freed after the last reader of the tensor or of its views.
// - The memory of outputs, of tensors with an output as a view, and of unread results stays allocated.
// - A node may take over the memory of a source with the same layout.
// The cost is O(rows + edges).

#include "alloc/lifetime.h"

#include "core/optable.h"

#include <string.h>

// The fields of a row that the simulation reads often. A live_row has a quarter of the size of a record_row, so that more rows
// fit into the processor's cache.
struct live_row {
    int32_t n_children; // uses by steps that have not run yet
    int32_t n_views;    // views that are still needed
    int32_t view_src;   // as in record_row
    bool is_taken;      // occupies its item at the current step
    bool is_settled;    // has received its item, or needs none
    bool is_input;
    bool is_output; // the row is an output or is_kept: its memory is never freed
};

struct replay {
    struct lifetimes *out;
    struct record *rec;
    struct lifetime_row *rows; // [n_all]
    int32_t early_end;         // rows [n_nodes, early_end) are leafs
    struct live_row *live;
    const struct lifetime_sizes *sizes;
    const struct lifetime_rules *rules;
    const size_t *aligns;
    const int32_t *pools;
    int64_t step;
    bool is_running;  // true: nodes run; false: leafs and inputs get their memory
    bool may_be_late; // a node overwrites a leaf: there may be late leafs
    int32_t *late;    // [n_all] from berth_lifetimes_late; NULL: no leaf is late
};

static bool is_view(const struct record_row *row) {
    return row->view_src >= 0;
}

// ---- in place ----

// Returns true for ops that would overwrite unread elements of any source but the first.
static bool in_place_first_only(int32_t op) {
    return op == GGML_OP_ADD_ID || op == GGML_OP_SOFT_MAX_BACK;
}

static bool view_covers(const struct ggml_tensor *view, const struct ggml_tensor *source) {
    return view->view_offs == 0 && ggml_nbytes(view) == ggml_nbytes(source);
}

// Returns the row whose memory the node may take over through its source p, or -1.
static int32_t takeover_from(const struct replay *r, int32_t node, int32_t p) {
    const struct live_row *live = &r->live[p];
    if (live->n_children != 1 || live->n_views != 0 || live->is_output) {
        return -1;
    }
    if (live->view_src < 0) {
        return live->is_taken && record_same_forms(r->rec, r->rec->rows[node].form, r->rec->rows[p].form) ? p : -1;
    }
    const int32_t v = live->view_src;
    const struct live_row *view_of = &r->live[v];
    const bool is_last_use = view_of->n_views == 1 && view_of->n_children == 0 && view_of->is_taken;
    const bool may_take = is_last_use && !view_of->is_output && record_same_layout(r->rec->tensors[node], r->rec->tensors[p]) &&
                          view_covers(r->rec->tensors[p], r->rec->tensors[v]);
    return may_take ? v : -1;
}

// Returns true if a node in buffer b may use memory of buffer a. If is_direct, the memory belongs to a source of the node; then
// equal homes suffice, as in ggml. Otherwise a source of the node is a view of the memory; then the pools must be equal, because
// memory of another pool may be scarcer.
static bool may_share(const struct replay *r, int32_t a, int32_t b, bool is_direct) {
    return r->pools[a] == r->pools[b] || (is_direct && r->rules->homes != NULL && r->rules->homes[a] == r->rules->homes[b]);
}

// Returns true if the node's result fits into the item of row `from`. The sizes can differ although the layouts are equal,
// because a buffer type may require additional bytes for the results of some ops.
static bool fits_item(const struct replay *r, int32_t from, int32_t node) {
    const struct lifetime_row *row = &r->rows[from];
    return r->sizes->is_by_layout ||
           r->sizes->alloc_size(r->sizes->user, r->rec->tensors[node], row->buf) <= r->out->items[row->item].size;
}

// Stores the form of source p in the record, because the plan now depends on the layout of p. If p is a view, the record may have
// no form of p yet.
static bool form_ensure(struct record *rec, int32_t p) {
    if (rec->rows[p].form < 0) {
        rec->rows[p].form = berth_record_form(rec, rec->tensors[p]);
    }
    return rec->rows[p].form >= 0;
}

static bool take_over_src(struct replay *r, int32_t i_row, bool is_ggml_inplace, bool is_direct) {
    const struct record_row *node = &r->rec->rows[i_row];
    struct lifetime_row *row = &r->rows[i_row];
    for (int32_t k = node->src; k < node->src + node->n_src; k++) {
        const int32_t p = r->rec->srcs[k];
        const int32_t from = p != i_row ? takeover_from(r, i_row, p) : -1;
        if (from < 0 || (from == p) != is_direct || !may_share(r, r->rows[from].buf, row->buf, is_direct) ||
            !fits_item(r, from, i_row)) {
            continue;
        }
        const int i_src = r->rec->slots[k];
        const bool may_run = is_ggml_inplace ? i_src == 0 || !in_place_first_only(node->op)
                                             : r->rules->in_place(r->rec->tensors[i_row], i_src, r->rules->user);
        if (may_run && form_ensure(r->rec, p)) {
            row->item = r->rows[from].item;
            row->took = k;
            row->is_by_callback = !is_ggml_inplace;
            r->out->n_by_callback += !is_ggml_inplace;
            row->buf = r->rows[from].buf;
            r->live[from].is_taken = false;
            return true;
        }
    }
    return false;
}

// A move (spill copy) takes over its source's memory if both are in the same pool.
static bool take_over_moved(struct replay *r, int32_t i_row) {
    const int32_t p = r->rec->srcs[r->rec->rows[i_row].src];
    return r->pools[r->rows[i_row].buf] == r->pools[r->rows[p].buf] && take_over_src(r, i_row, true, true);
}

// Tries to take over the memory of a source (directly), then the memory that a source is a view of. ggml has only direct
// takeovers, so these come first.
static inline bool take_over(struct replay *r, int32_t i_row) {
    const struct berth_op_info *info = berth_op_info((enum ggml_op) r->rec->rows[i_row].op);
    const bool is_ggml_inplace = info != NULL && info->in_place;
    if (!is_ggml_inplace && record_move(r->rec, i_row) != BERTH_MOVE_NONE) {
        return take_over_moved(r, i_row);
    }
    if (!is_ggml_inplace && r->rules->in_place == NULL) {
        return false;
    }
    return take_over_src(r, i_row, is_ggml_inplace, true) ||
           (r->rules->via_views && take_over_src(r, i_row, is_ggml_inplace, false));
}

// ---- allocate and free ----

static bool item_new(struct replay *r, int32_t i_row) {
    struct lifetimes *out = r->out;
    struct lifetime_row *row = &r->rows[i_row];
    const size_t align = r->aligns[row->buf];
    const size_t size = r->sizes->is_by_layout ? r->rec->forms[r->rec->rows[i_row].form].n_bytes
                                               : r->sizes->alloc_size(r->sizes->user, r->rec->tensors[i_row], row->buf);
    size_t padded;
    if (!berth_add_ok(size, align - 1, &padded)) {
        return false;
    }
    padded -= (align & (align - 1)) == 0 ? padded & (align - 1) : padded % align;
    out->n_unlisted += i_row >= r->early_end;
    row->item = (int32_t) out->n_items;
    out->owners[out->n_items] = i_row;
    out->returned[out->n_items] = false;
    out->items[out->n_items++] = (struct berth_plan_item){
        .first = r->step,
        .last = out->order.n_steps > 0 ? out->order.n_steps - 1 : 0, // the last step, unless give_back frees the item earlier
        .size = padded,
        .align = align,
        .pool = r->pools[row->buf],
    };
    return true;
}

static bool take_new(struct replay *r, int32_t i_row, int32_t buf) {
    struct lifetime_row *row = &r->rows[i_row];
    r->live[i_row].is_settled = true;
    if (row->buf < 0) {
        row->buf = buf;
    }
    // Rows that get memory before the first node runs cannot take over memory.
    const bool is_step = r->is_running && r->rec->rows[i_row].n_src > 0 && !row->is_kept && !row->is_fixed;
    r->live[i_row].is_taken = true;
    return (is_step && take_over(r, i_row)) || item_new(r, i_row);
}

static inline bool row_take(struct replay *r, int32_t i_row, int32_t buf) {
    return r->live[i_row].is_settled || take_new(r, i_row, buf);
}

static void give_back(struct replay *r, int32_t i_row) {
    if (r->live[i_row].is_taken && !r->live[i_row].is_output) {
        const int32_t item = r->rows[i_row].item;
        r->live[i_row].is_taken = false;
        r->out->items[item].last = r->step;
        r->out->returned[item] = true;
    }
}

static inline void drop_view(struct replay *r, const struct live_row *view) {
    struct live_row *source = &r->live[view->view_src];
    if (!view->is_output && --source->n_views == 0 && source->n_children == 0) {
        give_back(r, view->view_src);
    }
}

static inline void drop_edge(struct replay *r, int32_t p) {
    struct live_row *live = &r->live[p];
    if (--live->n_children > 0 || live->n_views > 0) {
        return;
    }
    if (live->view_src >= 0) {
        drop_view(r, live);
    } else {
        give_back(r, p);
    }
}

// ---- simulation ----

// Counts the readers of each row. In rec->srcs, the sources of nodes come first and the sources of appended rows come last.
// Sources of leafs, which are between them, are not counted.
static void count_children(struct replay *r) {
    const struct record *rec = r->rec;
    const struct record_row *last = rec->n_nodes > 0 ? &rec->rows[rec->n_nodes - 1] : NULL;
    const int32_t n = last != NULL ? last->src + last->n_src : 0;
    for (int32_t at = 0; at < n; at++) {
        r->live[rec->srcs[at]].n_children++;
    }
    for (int32_t at = rec->more_srcs; at < rec->n_srcs; at++) {
        r->live[rec->srcs[at]].n_children++;
    }
    for (int32_t i = 0; rec->has_self && i < rec->n_nodes; i++) {
        const struct record_row *row = &rec->rows[i];
        for (int32_t k = row->src; row->names_self && k < row->src + row->n_src; k++) {
            r->live[row->same_as].n_children -= rec->srcs[k] == row->same_as;
        }
    }
}

// Returns true if row i may overwrite a leaf. This test is cheap. The graph is searched for late leafs only if the test is true
// for some node.
static bool overwrites_leaf(const struct replay *r, int32_t i) {
    const struct record_row *row = &r->rec->rows[i];
    if (i >= r->rec->n_nodes || row->view_src < r->rec->n_nodes || row->view_src >= r->early_end ||
        r->rec->rows[row->view_src].has_memory) {
        return false;
    }
    const struct berth_op_info *info = berth_op_info((enum ggml_op) row->op);
    return info != NULL && info->overwrites > 0;
}

// Fills the live rows, except for n_children, which count_children has set. A view counts in n_views of its source until the last
// reader of the view has run; an unread view counts until the end. Returns the number of rows that may need their own memory.
static size_t live_rows_init(struct replay *r, bool *has_inputs) {
    const struct record *rec = r->rec;
    size_t n_own = 0;
    *has_inputs = false;
    for (int32_t i = 0; i < rec->n_all; i++) {
        const struct record_row *row = &rec->rows[i];
        struct live_row *live = &r->live[i];
        live->view_src = row->view_src;
        live->is_settled = row->has_memory || is_view(row);
        live->is_input = (row->flags & GGML_TENSOR_FLAG_INPUT) != 0;
        live->is_output = (row->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || r->rows[i].is_kept;
        n_own += !live->is_settled;
        *has_inputs = *has_inputs || (live->is_input && (i < rec->n_nodes || i >= r->early_end));
        if (is_view(row) && row->same_as == i &&
            (live->n_children > 0 || live->is_output || (i < rec->n_nodes && row->op != GGML_OP_NONE))) {
            r->live[row->view_src].n_views++;
            r->may_be_late = r->may_be_late || overwrites_leaf(r, i);
        }
    }
    return n_own;
}

// Marks late leafs and the nodes that overwrite them. False: out of memory.
static bool find_late(struct replay *r, struct berth_scratch *scratch) {
    struct record *rec = r->rec;
    const struct lifetime_order *order = &r->out->order;
    int32_t *late = berth_scratch_take(scratch, (size_t) rec->n_all * sizeof late[0]);
    if (late == NULL) {
        return false;
    }
    berth_lifetimes_late(rec, order, late);
    for (int32_t i = rec->n_nodes; i < r->early_end; i++) {
        if (late[i] <= 0 || r->rows[i].is_kept) {
            continue;
        }
        const int32_t node = lifetime_step(order, late[i] - 1);
        if (!form_ensure(rec, node)) {
            return false;
        }
        r->rows[i].is_late = r->rows[node].is_late = true;
        r->out->n_late++;
    }
    r->late = late;
    return true;
}

// Gives memory to the leafs. If the graph lists a tensor twice, the tensor's first row gets the memory.
static bool take_leafs(struct replay *r) {
    struct record *rec = r->rec;
    for (int32_t i = rec->n_nodes; i < r->early_end; i++) {
        const int32_t canon = rec->rows[i].same_as;
        if (r->rows[canon].item < 0) {
            r->rows[canon].buf = r->rows[i].buf;
        }
        r->step = r->rules->late_leafs && r->rows[canon].is_late ? r->late[canon] - 1 : 0;
        if (!row_take(r, canon, r->rows[i].buf)) {
            return false;
        }
    }
    r->step = 0;
    return true;
}

static bool take_inputs(struct replay *r) {
    const struct record *rec = r->rec;
    const struct lifetime_order *order = &r->out->order;
    for (int32_t step = 0; step < order->n_steps; step++) {
        const int32_t i = lifetime_step(order, step);
        const struct record_row *node = &rec->rows[i];
        if (r->live[i].is_input && !row_take(r, node->same_as, r->rows[i].buf)) {
            return false;
        }
        for (int k = 0; k < node->n_src; k++) {
            const int32_t s = rec->srcs[node->src + k];
            if (r->live[s].is_input && !row_take(r, s, r->rows[i].buf)) {
                return false;
            }
        }
    }
    return true;
}

// Frees the memory of row i if nothing reads it. Called only if rules.free_unread is set.
static void give_back_unread(struct replay *r, int32_t i) {
    const struct record_row *row = &r->rec->rows[i];
    if (r->live[i].n_children > 0 || r->live[i].n_views > 0) {
        return;
    }
    if (!is_view(row)) {
        give_back(r, i);
    } else if (row->op != GGML_OP_NONE) {
        drop_view(r, &r->live[i]);
    }
}

static void drop_step(struct replay *r, int32_t step) {
    struct record *rec = r->rec;
    const int32_t i = lifetime_step(&r->out->order, step);
    const struct record_row *node = &rec->rows[i];
    const int32_t *src = rec->srcs + node->src, *end = src + node->n_src;
    for (; src < end; src++) {
        if (*src != node->same_as) { // a node does not read itself
            drop_edge(r, *src);
        }
    }
    if (r->rules->free_unread && node->same_as == i) {
        give_back_unread(r, i);
    }
    for (int32_t j = rec->n_nodes; step == 0 && r->rules->free_unread && j < r->early_end; j++) {
        if (rec->rows[j].same_as == j) {
            give_back_unread(r, j);
        }
    }
}

static bool run_steps(struct replay *r) {
    const struct lifetime_order order = r->out->order;
    struct record *rec = r->rec;
    const struct live_row *live = r->live;
    int32_t n_dropped = 0; // number of steps for which drop_step has run
    r->is_running = true;
    for (int32_t step = 0; step < order.n_steps; step++) {
        const int32_t i = lifetime_step(&order, step);
        r->step = step;
        const struct record_row *node = &rec->rows[i];
        const int32_t *src = rec->srcs + node->src, *end = src + node->n_src;
        for (; src < end; src++) {
            if (!live[*src].is_settled && !take_new(r, *src, r->rows[i].buf)) {
                return false;
            }
        }
        if (!live[node->same_as].is_settled && !take_new(r, node->same_as, r->rows[i].buf)) {
            return false;
        }
        const bool is_barrier = r->rules->barriers == NULL || r->rules->barriers[step];
        for (; is_barrier && n_dropped <= step; n_dropped++) {
            drop_step(r, n_dropped);
        }
    }
    return true;
}

// Reserves memory for n items and for the room of n_rows rows. Earlier items are lost.
static bool items_reserve(struct lifetimes *l, size_t n, size_t n_rows) {
    const size_t per_item = sizeof l->items[0] + l->per_item + sizeof l->owners[0] + sizeof l->returned[0];
    size_t items_size, rows_size, size;
    if (!berth_mul_ok(n, per_item, &items_size) || !berth_mul_ok(n_rows, l->per_row, &rows_size) ||
        !berth_add_ok(items_size, rows_size, &size)) {
        return false;
    }
    if (size > l->size) {
        berth_free(l->items);
        l->items = berth_malloc(size);
        l->size = l->items != NULL ? size : 0;
    }
    if (size > l->size) {
        return false;
    }
    l->room = (char *) (l->items + n);
    l->owners = (int32_t *) (l->room + rows_size + n * l->per_item);
    l->returned = (bool *) (l->owners + n);
    l->max_items = n;
    return true;
}

static void rows_fill(struct lifetime_row *rows, const int *bufs, int32_t n, int32_t otherwise) {
    for (int32_t i = 0; i < n; i++) {
        rows[i] = lifetime_row_in(bufs != NULL ? bufs[i] : otherwise);
    }
}

enum ggml_status berth_lifetimes_record(struct lifetimes *out, struct record *rec, const struct ggml_cgraph *graph,
    const int *node_bufs, const int *leaf_bufs, const struct record_rules *rules) {
    rec->column_size = sizeof(struct lifetime_row);
    const enum ggml_status status = berth_record_build(rec, graph, rules);
    const int32_t n_nodes = rec->n_nodes, n_listed = n_nodes + rec->n_leafs;
    out->rows = rec->columns;
    out->order = (struct lifetime_order){.n_steps = n_nodes, .n_early = rec->n_leafs};
    if (status == GGML_STATUS_SUCCESS) {
        rows_fill(out->rows, node_bufs, n_nodes, 0);
        rows_fill(out->rows + n_nodes, leaf_bufs, rec->n_leafs, 0);
        rows_fill(out->rows + n_listed, NULL, rec->n_rows - n_listed, -1);
    }
    return status;
}

// Returns false if out of memory.
static bool replay_run(struct replay *r, struct berth_scratch *scratch) {
    struct lifetimes *out = r->out;
    const size_t n = (size_t) r->rec->n_all;
    bool has_inputs = false;
    r->live = berth_scratch_take(scratch, n * sizeof r->live[0]);
    if (r->live == NULL) {
        return false;
    }
    memset(r->live, 0, n * sizeof r->live[0]);
    count_children(r);
    if (!items_reserve(out, live_rows_init(r, &has_inputs), n) || (r->may_be_late && !find_late(r, scratch)) || !take_leafs(r)) {
        return false;
    }
    if ((has_inputs && !take_inputs(r)) || !run_steps(r)) {
        return false;
    }
    return out->n_late <= 1 || r->rules->late_leafs || berth_lifetimes_share_late(out, r->rec, r->late);
}

enum ggml_status berth_lifetimes(struct lifetimes *out, struct record *rec, const struct lifetime_sizes *sizes,
    const struct lifetime_rules *rules, const size_t *aligns, const int32_t *pools) {
    struct replay r = {.out = out, .rec = rec, .sizes = sizes, .rules = rules, .aligns = aligns, .pools = pools};

    r.rows = out->rows;
    r.early_end = rec->n_nodes + out->order.n_early;
    out->n_items = 0;
    out->n_by_callback = out->n_unlisted = out->n_late = 0;
    if (rec->n_all == 0) {
        return GGML_STATUS_SUCCESS;
    }
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    const bool ok = replay_run(&r, &scratch);
    berth_scratch_fini(&scratch);
    if (!ok) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the lifetimes of %d tensors", rec->n_rows);
    }
    return GGML_STATUS_SUCCESS;
}

// ---- an old plan for a smaller graph ----

static bool takeover_is_valid(const struct record *rec, int32_t i, int32_t parent) {
    const struct ggml_tensor *a = rec->tensors[i], *b = rec->tensors[parent];
    const int32_t view_src = rec->rows[parent].view_src;
    return record_same_layout(a, b) && (view_src < 0 || view_covers(b, rec->tensors[view_src]));
}

bool berth_lifetimes_still_fit(
    const struct lifetimes *l, struct record *rec, const struct lifetime_sizes *sizes, const size_t *aligns) {
    for (int32_t i = 0; i < rec->n_all; i++) {
        const struct lifetime_row *row = &l->rows[i];
        if (row->item < 0) {
            continue;
        }
        const size_t size = sizes->alloc_size(sizes->user, rec->tensors[i], row->buf), align = aligns[row->buf];
        if (size > l->items[row->item].size || (size + align - 1) / align * align > l->items[row->item].size) {
            return false;
        }
        if (row->took >= 0 && !takeover_is_valid(rec, i, rec->srcs[row->took])) {
            return false;
        }
    }
    return true;
}

void berth_lifetimes_fini(struct lifetimes *l) {
    berth_free(l->items);
    *l = (struct lifetimes){0};
}

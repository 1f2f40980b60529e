// SPDX-License-Identifier: MIT
// galloc.c: the graph allocators of the 2023 API. They use the record, the lifetimes and the planner of the current allocator.
// A piece is a range of a tensor allocator's buffer that is in use. A graph is placed between the pieces.
// Tensors of the graph that keep their memory after the graph then become pieces.
// Equal calls give equal offsets. So a buffer of the size that a first call measured is large enough for an equal second call.

#include "base/min.h"
#include "compat2023/compat2023.h"

#include <string.h>

struct gen_gallocr {
    int *seq; // node indices in execution order; -1: a barrier. Memory of dead tensors is freed only at barriers
    int n_seq;
};

struct job {
    struct gen_tallocr **tallocs; // buffer ids are indices in this list
    size_t *aligns;               // [n_tallocs]
    int32_t *pools;               // [n_tallocs] pools[i] is i: tensors of different allocators never share memory
    int n_tallocs;
    size_t tallocs_cap, aligns_cap, pools_cap;
    struct ggml_cgraph graph; // nodes in execution order
    struct ggml_tensor **nodes;
    bool *barriers;
    int *node_bufs, *leaf_bufs;
    struct record rec;
    struct lifetimes lives;
    uint64_t *offsets;   // [n_items] bytes from talloc.start
    bool *fits;          // [n_tallocs] the allocator is large enough
    bool *is_placed;     // [n_rows] the tensor has its address
    int32_t *holders;    // [n_items] row that uses the item's memory; -1: none
    int32_t *deaths;     // [n_nodes] first item that is freed after the node; -1: none
    int32_t *next_death; // [n_items] next item that is freed after the same node; -1: none
};

static void job_fini(struct job *j) {
    berth_record_fini(&j->rec);
    berth_lifetimes_fini(&j->lives);
    berth_free(j->tallocs);
    berth_free(j->aligns);
    berth_free(j->pools);
    berth_free(j->nodes);
    berth_free(j->barriers);
    berth_free(j->node_bufs);
    berth_free(j->leaf_bufs);
    berth_free(j->offsets);
    berth_free(j->fits);
    berth_free(j->is_placed);
    berth_free(j->holders);
    berth_free(j->deaths);
    berth_free(j->next_death);
}

// Adds a new allocator to the list. NULL means the first allocator. Returns -1 if out of memory.
static int talloc_index(struct job *j, struct gen_tallocr *talloc) {
    for (int i = 0; i < j->n_tallocs; i++) {
        if (j->tallocs[i] == talloc) {
            return i;
        }
    }
    const size_t n = (size_t) j->n_tallocs + 1;
    if (talloc == NULL) {
        return 0;
    }
    if (!berth_grow((void **) &j->tallocs, &j->tallocs_cap, n, sizeof j->tallocs[0]) ||
        !berth_grow((void **) &j->aligns, &j->aligns_cap, n, sizeof j->aligns[0]) ||
        !berth_grow((void **) &j->pools, &j->pools_cap, n, sizeof j->pools[0])) {
        return -1;
    }
    j->tallocs[j->n_tallocs] = talloc;
    j->aligns[j->n_tallocs] = talloc->align;
    j->pools[j->n_tallocs] = j->n_tallocs;
    return j->n_tallocs++;
}

// ---- callbacks of the record ----

// Returns -1 if no allocator's buffer holds the tensor.
static int owner_of(const struct job *j, const struct ggml_tensor *t) {
    for (int i = 0; i < j->n_tallocs && t->buffer != NULL; i++) {
        if (t->buffer == gen_today(j->tallocs[i]->buffer)) {
            return i;
        }
    }
    return -1;
}

static bool is_ours(void *user, const struct ggml_tensor *t) {
    return owner_of(user, t) >= 0;
}

static size_t alloc_size(void *user, const struct ggml_tensor *t, int buf) {
    const struct job *j = user;
    return berth_2023_buffer_get_alloc_size(j->tallocs[buf]->buffer, (struct ggml_tensor *) (uintptr_t) t);
}

// ---- order ----

static enum ggml_status order_nodes(struct job *j, const struct gen_gallocr *galloc, const struct ggml_cgraph *graph) {
    const int n = galloc->n_seq > 0 ? galloc->n_seq : graph->n_nodes;
    j->graph = *graph;
    j->nodes = berth_malloc(((size_t) n + 1) * sizeof j->nodes[0]);
    j->barriers = berth_calloc((size_t) n + 1, sizeof j->barriers[0]);
    if (j->nodes == NULL || j->barriers == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for an order of %d nodes", n);
    }
    j->graph.nodes = j->nodes;
    j->graph.n_nodes = 0;
    for (int k = 0; k < n; k++) {
        const int i = galloc->n_seq > 0 ? galloc->seq[k] : k;
        if (i >= graph->n_nodes || i < -1) {
            return berth_fail(
                GGML_STATUS_FAILED, "the parse order contains node %d, but the graph has %d nodes", i, graph->n_nodes);
        }
        if (i >= 0) {
            j->nodes[j->graph.n_nodes] = graph->nodes[i];
            j->barriers[j->graph.n_nodes++] = galloc->n_seq == 0;
        } else if (j->graph.n_nodes > 0) {
            j->barriers[j->graph.n_nodes - 1] = true;
        }
    }
    return GGML_STATUS_SUCCESS;
}

// ---- plan ----

static uint64_t base_of(const struct gen_tallocr *talloc) {
    return (uintptr_t) berth_2023_buffer_get_base(talloc->buffer) + talloc->start;
}

// Tensors that the program placed before this graph keep their addresses.
static void mark_fixed(struct job *j) {
    for (int32_t r = 0; r < j->rec.n_rows; r++) {
        const int owner = owner_of(j, j->rec.tensors[r]);
        if (j->rec.rows[r].view_src < 0 && j->rec.tensors[r]->data != NULL && owner >= 0) {
            lifetime_rows(&j->rec)[r].is_fixed = true;
            lifetime_rows(&j->rec)[r].buf = owner;
        }
    }
}

// Whether the node was placed before this graph, at the address of a source. The node's lifetime then starts one step later,
// because two items must not share memory at one step.
static bool is_fixed_in_place(const struct job *j, int32_t r) {
    const struct record_row *row = &j->rec.rows[r];
    for (int k = 0; k < row->n_src && r < j->rec.n_nodes; k++) {
        const int32_t s = record_base(&j->rec, j->rec.srcs[row->src + k]);
        if (s != r && lifetime_rows(&j->rec)[s].is_fixed && j->rec.tensors[s]->data == j->rec.tensors[r]->data) {
            return true;
        }
    }
    return false;
}

static void pin_fixed(struct job *j) {
    for (int32_t r = 0; r < j->rec.n_rows; r++) {
        const struct lifetime_row *row = &lifetime_rows(&j->rec)[r];
        if (!row->is_fixed || row->item < 0 || j->lives.owners[row->item] != r) {
            continue;
        }
        struct berth_plan_item *item = &j->lives.items[row->item];
        item->is_fixed = true;
        item->fixed = (uintptr_t) j->rec.tensors[r]->data - base_of(j->tallocs[item->pool]);
        if (r >= j->rec.n_nodes && !row->is_late) {
            item->first = 0; // alive from the start, because it has memory already
        } else if (is_fixed_in_place(j, r)) {
            item->first++;
            item->last = max_i64(item->last, item->first);
        }
    }
}

// True if the graph was placed before and its allocators were not reset.
static bool is_all_fixed(const struct job *j) {
    for (int32_t r = 0; r < j->rec.n_rows; r++) {
        if (lifetime_rows(&j->rec)[r].item >= 0 && !lifetime_rows(&j->rec)[r].is_fixed) {
            return false;
        }
    }
    return true;
}

static enum ggml_status plan_talloc(struct job *j, int p, struct berth_plan_item *items, int32_t *ids, uint64_t *offsets) {
    struct gen_tallocr *talloc = j->tallocs[p];
    int64_t n = 0, n_own;
    for (size_t i = 0; i < j->lives.n_items; i++) {
        if (j->lives.items[i].pool == p) {
            items[n] = j->lives.items[i];
            ids[n] = (int32_t) i;
            items[n++].pool = 0;
        }
    }
    n_own = n;
    for (size_t k = 0; k < talloc->n_pieces; k++) { // pieces of tensors that are not in the graph
        const uint64_t off = talloc->pieces[k].off - talloc->start;
        bool is_own = false;
        for (int64_t i = 0; i < n_own && !is_own; i++) {
            is_own = items[i].is_fixed && items[i].fixed == off;
        }
        if (!is_own) {
            items[n++] = (struct berth_plan_item){
                .last = j->graph.n_nodes, .size = talloc->pieces[k].size, .fixed = off, .is_fixed = true};
        }
    }
    const enum ggml_status status = berth_plan_solve(items, n, NULL, offsets, NULL);
    for (int64_t i = 0; i < n_own && status == GGML_STATUS_SUCCESS; i++) {
        const uint64_t end = talloc->start + offsets[i] + items[i].size;
        j->offsets[ids[i]] = offsets[i];
        if (items[i].size > 0) {
            talloc->peak = max_u64(talloc->peak, end);
        }
    }
    return status;
}

// Moves tensors of the record from the old buffer to the larger buffer that replaced it. Their offsets from talloc->start do not
// change. Only the data of leaves is copied, because nodes are computed later.
static void move_fixed(const struct job *j, struct gen_tallocr *talloc, gen_buffer_t old, uint64_t old_base, char *bytes) {
    for (int32_t r = 0; r < j->rec.n_rows; r++) {
        struct ggml_tensor *t = j->rec.tensors[r];
        if (t->buffer != gen_today(old) || t->data == NULL) {
            continue;
        }
        if (t->view_src != NULL) { // gets its address when its source is placed
            t->buffer = NULL;
            t->data = NULL;
            continue;
        }
        const uint64_t off = talloc->start + ((uintptr_t) t->data - old_base);
        const bool has_data = r >= j->rec.n_nodes || t->op == GGML_OP_NONE;
        if (has_data) {
            berth_2023_tensor_get(t, bytes, 0, ggml_nbytes(t));
        }
        berth_2023_place(talloc, t, off);
        if (has_data) {
            berth_2023_tensor_set(t, bytes, 0, ggml_nbytes(t));
        }
    }
}

static bool tallocr_grow(const struct job *j, int p, uint64_t need) {
    struct gen_tallocr *talloc = j->tallocs[p];
    gen_buffer_t old = talloc->buffer;
    const uint64_t old_base = base_of(talloc);
    size_t max_tensor_size = 0;
    for (int32_t r = 0; r < j->rec.n_rows; r++) {
        if (j->rec.tensors[r]->buffer == gen_today(old)) {
            max_tensor_size = max_size(max_tensor_size, ggml_nbytes(j->rec.tensors[r]));
        }
    }
    char *bytes = berth_malloc(max_tensor_size + 1);
    const bool done = bytes != NULL && berth_2023_grow(talloc, need);
    if (done) {
        move_fixed(j, talloc, old, old_base, bytes);
    }
    berth_free(bytes);
    return done;
}

// Checks whether the buffer of each allocator is large enough for the plan. If a buffer is too small, the allocator replaces the
// buffer by a larger one if it can.
static void tallocs_check_sizes(struct job *j) {
    for (int p = 0; p < j->n_tallocs; p++) {
        const struct gen_tallocr *talloc = j->tallocs[p];
        uint64_t need = 0;
        for (int32_t r = 0; r < j->rec.n_rows; r++) {
            const int32_t item = lifetime_rows(&j->rec)[r].item;
            if (item >= 0 && j->lives.items[item].pool == p) {
                need = max_u64(need, talloc->start + j->offsets[item] + alloc_size(j, j->rec.tensors[r], p));
            }
        }
        j->fits[p] = need <= talloc->capacity || tallocr_grow(j, p, need);
        if (!j->fits[p]) {
            berth_fail(GGML_STATUS_ALLOC_FAILED, "the graph needs %llu bytes of an allocator that has %llu",
                (unsigned long long) need, (unsigned long long) talloc->capacity);
        }
    }
}

static enum ggml_status job_plan(struct job *j) {
    size_t n = j->lives.n_items + 1;
    for (int p = 0; p < j->n_tallocs; p++) {
        n += j->tallocs[p]->n_pieces;
    }
    struct berth_plan_item *items = berth_malloc(n * sizeof *items);
    int32_t *ids = berth_malloc(n * sizeof *ids);
    uint64_t *offsets = berth_malloc(n * sizeof *offsets);
    j->offsets = berth_calloc(n, sizeof j->offsets[0]);
    j->fits = berth_calloc((size_t) j->n_tallocs + 1, sizeof j->fits[0]);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (items == NULL || ids == NULL || offsets == NULL || j->offsets == NULL || j->fits == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the plan of %zu items", n);
    }
    for (int p = 0; p < j->n_tallocs && status == GGML_STATUS_SUCCESS; p++) {
        status = plan_talloc(j, p, items, ids, offsets);
    }
    if (status == GGML_STATUS_SUCCESS) {
        tallocs_check_sizes(j);
    }
    berth_free(items);
    berth_free(ids);
    berth_free(offsets);
    return status;
}

// ---- addresses: buffers get init_tensor and free_tensor calls in the order in which the graph creates and frees tensors ----

// Returns NULL if an earlier graph freed the piece.
static struct gen_piece *fixed_piece(const struct job *j, size_t i) {
    const struct berth_plan_item *item = &j->lives.items[i];
    const struct gen_tallocr *talloc = j->tallocs[item->pool];
    return berth_2023_piece(talloc, talloc->start + item->fixed, j->rec.tensors[j->lives.owners[i]]);
}

// Reports to the buffer (free_tensor) that a tensor no longer uses the item's memory. Called before another tensor gets the
// memory, and when the item is freed.
static void holder_free(const struct job *j, int32_t i) {
    const struct berth_plan_item *item = &j->lives.items[i];
    const int32_t holder = j->holders[i];
    const bool is_gone = item->is_fixed && holder == j->lives.owners[i] && fixed_piece(j, (size_t) i) == NULL;
    if (holder >= 0 && !is_gone && !j->tallocs[item->pool]->is_measure && j->fits[item->pool]) {
        berth_2023_buffer_free_tensor(j->tallocs[item->pool]->buffer, j->rec.tensors[holder]);
    }
}

// Gives the tensor of a row its address. Only the first call for a row has an effect. A view gets the address of its source plus
// its offset.
static void row_place(struct job *j, int32_t r) {
    r = j->rec.rows[r].same_as;
    const struct lifetime_row *row = &lifetime_rows(&j->rec)[r];
    const int32_t view_src = j->rec.rows[r].view_src;
    struct ggml_tensor *t = j->rec.tensors[r];
    if (j->is_placed[r]) {
        return;
    }
    j->is_placed[r] = true;
    if (view_src >= 0) {
        row_place(j, view_src);
        gen_buffer_t buffer = berth_2023_buffer_of(t->view_src->buffer);
        if (t->view_src->data != NULL && (t->data == NULL || t->buffer == NULL)) {
            const int owner = owner_of(j, t->view_src);
            t->data = (char *) t->view_src->data + t->view_offs;
            t->buffer = t->view_src->buffer;
            if (buffer != NULL && (owner < 0 || !j->tallocs[owner]->is_measure)) {
                berth_2023_buffer_init_tensor(buffer, t);
            }
        }
        return;
    }
    if (row->item < 0) {
        return;
    }
    const int p = j->lives.items[row->item].pool;
    if (!row->is_fixed && j->fits[p]) {
        holder_free(j, row->item);
        berth_2023_place(j->tallocs[p], t, j->tallocs[p]->start + j->offsets[row->item]);
    }
    j->holders[row->item] = r;
}

static void node_release(struct job *j, int32_t node) {
    for (int32_t i = j->deaths[node]; i >= 0; i = j->next_death[i]) {
        holder_free(j, i);
    }
}

static enum ggml_status job_place(struct job *j) {
    const size_t n_items = j->lives.n_items + 1, n_nodes = (size_t) j->graph.n_nodes + 1;
    j->is_placed = berth_calloc((size_t) j->rec.n_rows + 1, sizeof j->is_placed[0]);
    j->holders = berth_malloc(n_items * sizeof j->holders[0]);
    j->next_death = berth_malloc(n_items * sizeof j->next_death[0]);
    j->deaths = berth_malloc(n_nodes * sizeof j->deaths[0]);
    if (j->is_placed == NULL || j->holders == NULL || j->next_death == NULL || j->deaths == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the addresses of %d tensors", j->rec.n_rows);
    }
    memset(j->deaths, 0xFF, n_nodes * sizeof j->deaths[0]);
    memset(j->holders, 0xFF, n_items * sizeof j->holders[0]);
    for (size_t i = j->lives.n_items; i-- > 0;) {
        if (j->lives.returned[i]) {
            j->next_death[i] = j->deaths[j->lives.items[i].last];
            j->deaths[j->lives.items[i].last] = (int32_t) i;
        }
    }
    for (int32_t r = 0; r < j->rec.n_rows; r++) {
        const bool is_leaf = r >= j->rec.n_nodes && r < j->rec.n_nodes + j->rec.n_leafs;
        const bool is_early = is_leaf && !lifetime_rows(&j->rec)[r].is_late;
        if ((is_early || (j->rec.rows[r].flags & GGML_TENSOR_FLAG_INPUT) != 0) && j->rec.rows[r].view_src < 0) {
            row_place(j, r);
        }
    }
    for (int32_t i = 0; i < j->rec.n_nodes; i++) {
        for (int k = 0; k < j->rec.rows[i].n_src; k++) {
            row_place(j, j->rec.srcs[j->rec.rows[i].src + k]);
        }
        row_place(j, i);
        node_release(j, i);
    }
    return GGML_STATUS_SUCCESS;
}

// Items that are still in use after the graph become pieces. Items that the graph frees lose their pieces.
static enum ggml_status job_update_pieces(struct job *j) {
    for (size_t i = 0; i < j->lives.n_items; i++) {
        struct gen_tallocr *talloc = j->tallocs[j->lives.items[i].pool];
        struct gen_piece *piece = j->lives.items[i].is_fixed ? fixed_piece(j, i) : NULL;
        if (piece != NULL && j->lives.returned[i]) {
            berth_2023_give(talloc, piece->off, piece->tensor);
        } else if (piece != NULL && j->holders[i] >= 0) {
            piece->tensor = j->rec.tensors[j->holders[i]];
        }
    }
    for (size_t i = 0; i < j->lives.n_items; i++) {
        const struct berth_plan_item *item = &j->lives.items[i];
        struct gen_tallocr *talloc = j->tallocs[item->pool];
        const int32_t holder = j->holders[i] >= 0 ? j->holders[i] : j->lives.owners[i];
        if (!j->lives.returned[i] && !item->is_fixed && j->fits[item->pool] &&
            !berth_2023_take(talloc, talloc->start + j->offsets[i], item->size, j->rec.tensors[holder])) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of tensors");
        }
    }
    return GGML_STATUS_SUCCESS;
}

// Clears the tensor's address if the address is in a retired buffer. The allocator replaced a retired buffer by a larger one and
// was reset later.
static void retired_address_clear(const struct job *j, struct ggml_tensor *t) {
    for (int p = 0; p < j->n_tallocs && t != NULL && t->buffer != NULL; p++) {
        gen_buffer_t old = berth_2023_old(j->tallocs[p], t->buffer);
        if (old != NULL && gen_is_retired(old)) {
            t->buffer = NULL;
            t->data = NULL;
        }
    }
}

static void retired_addresses_clear(const struct job *j) {
    for (int i = 0; i < j->graph.n_nodes; i++) {
        retired_address_clear(j, j->graph.nodes[i]);
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            retired_address_clear(j, j->graph.nodes[i]->src[k]);
        }
    }
    for (int i = 0; i < j->graph.n_leafs; i++) {
        retired_address_clear(j, j->graph.leafs[i]);
    }
}

static enum ggml_status job_run(struct job *j) {
    const struct record_rules owners = {.is_ours = is_ours, .user = j};
    const struct lifetime_sizes sizes = {.alloc_size = alloc_size, .user = j};
    const struct lifetime_rules rules = {.via_views = true, .barriers = j->barriers, .late_leafs = true};
    retired_addresses_clear(j);
    enum ggml_status status = berth_lifetimes_record(&j->lives, &j->rec, &j->graph, j->node_bufs, j->leaf_bufs, &owners);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    mark_fixed(j);
    status = berth_lifetimes(&j->lives, &j->rec, &sizes, &rules, j->aligns, j->pools);
    if (status != GGML_STATUS_SUCCESS || is_all_fixed(j)) {
        return status;
    }
    pin_fixed(j);
    if ((status = job_plan(j)) != GGML_STATUS_SUCCESS || (status = job_place(j)) != GGML_STATUS_SUCCESS) {
        return status;
    }
    return job_update_pieces(j);
}

// ---- the functions of include/2023 ----

gen_gallocr_t berth_2023_gallocr_new(void) {
    gen_gallocr_t galloc = berth_calloc(1, sizeof *galloc);
    if (galloc == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_gallocr_new: out of memory");
    }
    return galloc;
}

void berth_2023_gallocr_free(gen_gallocr_t galloc) {
    if (galloc != NULL) {
        berth_free(galloc->seq);
        berth_free(galloc);
    }
}

void berth_2023_gallocr_set_parse_seq(gen_gallocr_t galloc, const int *list, int n) {
    if (galloc == NULL || n < 0 || (n > 0 && list == NULL)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_gallocr_set_parse_seq: allocator or list is NULL, or its length %d is negative", n);
        return;
    }
    int *seq = n > 0 ? berth_malloc((size_t) n * sizeof *seq) : NULL;
    if (n > 0 && seq == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_gallocr_set_parse_seq: out of memory for %d nodes", n);
        return;
    }
    if (n > 0) {
        memcpy(seq, list, (size_t) n * sizeof *seq);
    }
    berth_free(galloc->seq);
    galloc->seq = seq;
    galloc->n_seq = n;
}

size_t berth_2023_gallocr_alloc_graph(gen_gallocr_t galloc, gen_tallocr_t talloc, struct ggml_cgraph *graph) {
    if (galloc == NULL || talloc == NULL || berth_graph_check(graph) != GGML_STATUS_SUCCESS) {
        berth_fail(GGML_STATUS_FAILED, "ggml_gallocr_alloc_graph: the allocator is NULL or the graph is not valid");
        return 0;
    }
    struct job j = {0};
    if (talloc_index(&j, talloc) < 0) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_gallocr_alloc_graph: out of memory");
    } else if (order_nodes(&j, galloc, graph) == GGML_STATUS_SUCCESS) {
        (void) job_run(&j);
    }
    job_fini(&j);
    return berth_2023_tallocr_max_size(talloc);
}

static gen_tallocr_t hash_talloc(struct gen_hash_set set, gen_tallocr_t *tallocs, const struct ggml_tensor *t) {
    const size_t first = set.size > 0 ? (uintptr_t) t % set.size : 0;
    for (size_t n = 0; n < set.size; n++) {
        const size_t i = (first + n) % set.size;
        if (set.keys[i] == t) {
            return tallocs[i];
        }
        if (set.keys[i] == NULL) {
            break;
        }
    }
    return NULL;
}

// Returns NULL if out of memory.
static int *tallocs_of(
    struct job *j, struct ggml_tensor *const *tensors, int n, struct gen_hash_set set, gen_tallocr_t *tallocs) {
    int *ids = berth_calloc((size_t) n + 1, sizeof *ids);
    for (int i = 0; i < n && ids != NULL; i++) {
        ids[i] = talloc_index(j, hash_talloc(set, tallocs, tensors[i]));
        if (ids[i] < 0) {
            berth_free(ids);
            ids = NULL;
        }
    }
    return ids;
}

void berth_2023_gallocr_alloc_graph_n(
    gen_gallocr_t galloc, struct ggml_cgraph *graph, struct gen_hash_set hash_set, gen_tallocr_t *hash_node_talloc) {
    if (galloc == NULL || hash_node_talloc == NULL || berth_graph_check(graph) != GGML_STATUS_SUCCESS) {
        berth_fail(GGML_STATUS_FAILED, "ggml_gallocr_alloc_graph_n: the allocator is NULL or the graph is not valid");
        return;
    }
    struct job j = {0};
    if (order_nodes(&j, galloc, graph) == GGML_STATUS_SUCCESS) {
        j.node_bufs = tallocs_of(&j, j.graph.nodes, j.graph.n_nodes, hash_set, hash_node_talloc);
        j.leaf_bufs = tallocs_of(&j, j.graph.leafs, j.graph.n_leafs, hash_set, hash_node_talloc);
        if (j.node_bufs == NULL || j.leaf_bufs == NULL || j.n_tallocs == 0) {
            berth_fail(GGML_STATUS_FAILED, "ggml_gallocr_alloc_graph_n: no tensor allocators, or out of memory");
        } else {
            (void) job_run(&j);
        }
    }
    job_fini(&j);
}

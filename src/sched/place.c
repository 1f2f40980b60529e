// SPDX-License-Identifier: MIT
// place.c: memory for a graph that is split: one plan over all splits and copies, then an address for every tensor.
//
// The graph allocator plans a graph of its own in which each copy is a node before its split that reads what it copies: so the
// source lives until then, and the copy from then on. With several graphs in flight, copies and inputs keep their memory to
// themselves, one place for each. Addresses are kept in the memo: a graph that comes again needs no planner and no allocator.

#include "sched/sched.h"

#include "alloc/galloc.h"

#include <string.h>

// ---- the graph that is planned ----

struct plan_graph {
    struct ggml_backend_sched *sched;
    struct sched_memo *memo;
    struct ggml_cgraph graph;
    size_t n_nodes, n_leafs;
};

#define KEPT (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT) // taken before the first node, never given back

static void push_node(struct plan_graph *g, struct ggml_tensor *t, int id) {
    g->sched->plan_nodes[g->n_nodes] = t;
    g->sched->node_ids[g->n_nodes++] = id >= 0 ? id : 0;
}

static void push_leaf(struct plan_graph *g, struct ggml_tensor *t, int id) {
    g->sched->plan_leafs[g->n_leafs] = t;
    g->sched->leaf_ids[g->n_leafs++] = id >= 0 ? id : 0;
}

static bool make_room(struct ggml_backend_sched *sched, size_t n_nodes, size_t n_leafs) {
    return berth_grow((void **) &sched->plan_nodes, &sched->plan_nodes_cap, n_nodes + 1, sizeof sched->plan_nodes[0]) &&
           berth_grow((void **) &sched->node_ids, &sched->node_ids_cap, n_nodes + 1, sizeof sched->node_ids[0]) &&
           berth_grow((void **) &sched->plan_leafs, &sched->plan_leafs_cap, n_leafs + 1, sizeof sched->plan_leafs[0]) &&
           berth_grow((void **) &sched->leaf_ids, &sched->leaf_ids_cap, n_leafs + 1, sizeof sched->leaf_ids[0]);
}

static struct ggml_tensor *ghost(const struct sched_memo *memo, const struct sched_row *row, int slot) {
    const size_t n = (size_t) memo->n_slots;
    return &memo->tensors[(size_t) memo->n_copies * n + (size_t) row->slots / n * (n - 1) + (size_t) slot - 1];
}

static void push_split(struct plan_graph *g, const struct sched_split *split) {
    struct sched_memo *memo = g->memo;
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        for (int slot = 0; slot < memo->n_slots; slot++) {
            struct ggml_tensor *t = sched_copy_tensor(memo, i, slot);
            t->op                 = slot == 0 ? GGML_OP_DUP : GGML_OP_NONE;
            t->src[0]             = slot == 0 ? memo->tensors_at[memo->copies[i].row] : NULL;
            t->flags              = memo->n_slots > 1 ? KEPT : 0;
            push_node(g, t, split->backend);
        }
    }
    sched_edges_to_copies(memo, split, 0);
    for (int32_t i = split->i_start; i < split->i_end; i++) {
        push_node(g, memo->nodes[i], memo->rows[memo->order[i]].backend);
    }
}

// Everything that is not a node, and the further places of inputs.
static void push_leafs(struct plan_graph *g) {
    struct sched_memo *memo = g->memo;
    for (int32_t r = 0; r < memo->n_rows; r++) {
        const struct sched_row *row = &memo->rows[r];
        struct ggml_tensor *t       = memo->tensors_at[r];
        const bool is_again         = row->view_src >= 0 && memo->tensors_at[row->view_src] == t;
        if (r >= memo->n_nodes && !is_again) {
            push_leaf(g, t, row->backend);
        }
        for (int slot = 1; row->slots >= 0 && slot < memo->n_slots; slot++) {
            ghost(memo, row, slot)->flags = KEPT;
            push_leaf(g, ghost(memo, row, slot), row->backend);
        }
        if (row->slots >= 0) {
            t->flags |= GGML_TENSOR_FLAG_OUTPUT; // until plan_end
        }
    }
}

static enum ggml_status plan_begin(struct plan_graph *g) {
    struct sched_memo *memo = g->memo;
    const size_t n_slots    = (size_t) memo->n_slots;
    if (!make_room(g->sched, (size_t) memo->n_nodes + (size_t) memo->n_copies * n_slots,
            (size_t) memo->n_rows + (size_t) memo->n_inputs * n_slots)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the plan of %d nodes", memo->n_nodes);
    }
    for (int32_t s = 0; s < memo->n_splits; s++) {
        push_split(g, &memo->splits[s]);
    }
    push_leafs(g);
    g->graph = (struct ggml_cgraph){
        .size    = (int) (g->n_nodes > g->n_leafs ? g->n_nodes : g->n_leafs) + 1,
        .n_nodes = (int) g->n_nodes,
        .n_leafs = (int) g->n_leafs,
        .nodes   = g->sched->plan_nodes,
        .leafs   = g->sched->plan_leafs,
    };
    return GGML_STATUS_SUCCESS;
}

// The caller's graph is as it was.
static void plan_end(struct plan_graph *g) {
    struct sched_memo *memo = g->memo;
    for (int32_t s = 0; s < memo->n_splits; s++) {
        sched_edges_to_graph(memo, &memo->splits[s]);
    }
    for (size_t i = 0; i < (size_t) memo->n_copies * (size_t) memo->n_slots; i++) {
        memo->tensors[i].op     = GGML_OP_NONE;
        memo->tensors[i].src[0] = NULL;
    }
    for (int32_t r = 0; memo->n_inputs > 0 && r < memo->n_rows; r++) {
        if (memo->rows[r].slots >= 0) {
            const size_t off = offsetof(struct ggml_tensor, flags) - SCHED_FORM_OFF;
            int32_t flags;
            memcpy(&flags, memo->forms[r].bytes + off, sizeof flags);
            memo->tensors_at[r]->flags = flags;
        }
    }
}

// ---- sizes ----

enum ggml_status sched_measure(struct ggml_backend_sched *sched, struct sched_memo *memo, size_t *sizes) {
    struct plan_graph g     = {.sched = sched, .memo = memo};
    enum ggml_status status = plan_begin(&g);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_gallocr_sizes(sched->galloc, &g.graph, sched->node_ids, sched->leaf_ids, sizes);
        plan_end(&g);
    }
    return status;
}

static enum ggml_status check_limits(struct ggml_backend_sched *sched, struct plan_graph *g) {
    bool has_limit = false;
    for (int b = 0; b < sched->n_backends; b++) {
        has_limit = has_limit || sched->limits[b] > 0;
    }
    if (!has_limit) {
        return GGML_STATUS_SUCCESS;
    }
    const enum ggml_status status = berth_gallocr_sizes(sched->galloc, &g->graph, sched->node_ids, sched->leaf_ids, sched->sizes);
    for (int b = 0; b < sched->n_backends && status == GGML_STATUS_SUCCESS; b++) {
        if (sched->limits[b] > 0 && sched->sizes[b] > sched->limits[b]) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: backend %s would need %zu bytes, its limit is %zu",
                ggml_backend_name(sched->backends[b]), sched->sizes[b], sched->limits[b]);
        }
    }
    return status;
}

static size_t buffers_size(const struct ggml_backend_sched *sched) {
    size_t size = 0;
    for (int b = 0; b < sched->n_backends; b++) {
        size += ggml_gallocr_get_buffer_size(sched->galloc, b);
    }
    return size;
}

// Plans and gets the buffers. What runs must not lose its memory, hence the wait: growing is rare.
static enum ggml_status reserve(struct ggml_backend_sched *sched, struct plan_graph *g) {
    enum ggml_status status = check_limits(sched, g);
    if (status == GGML_STATUS_SUCCESS) {
        sched_drain(sched);
    }
    const size_t before = buffers_size(sched);
    if (status == GGML_STATUS_SUCCESS && !ggml_gallocr_reserve_n(sched->galloc, &g->graph, sched->node_ids, sched->leaf_ids)) {
        status = berth_fail(
            GGML_STATUS_ALLOC_FAILED, "scheduler: no memory for a graph of %d nodes: %s", g->memo->n_nodes, berth_last_error());
    }
    const size_t after = buffers_size(sched);
    if (status == GGML_STATUS_SUCCESS && sched->was_reserved && after > before) {
        berth_log(GGML_LOG_LEVEL_INFO, "scheduler: a graph of %d nodes needs more than was reserved: %zu bytes instead of %zu\n",
            g->memo->n_nodes, after, before);
    }
    return status;
}

enum ggml_status sched_reserve(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    struct plan_graph g     = {.sched = sched, .memo = memo};
    enum ggml_status status = plan_begin(&g);
    if (status == GGML_STATUS_SUCCESS) {
        status = reserve(sched, &g);
        plan_end(&g);
    }
    return status;
}

// ---- addresses ----

static enum ggml_status put(struct ggml_tensor *t, ggml_backend_buffer_t mem, void *data) {
    return sched_put(t, mem, data) ? GGML_STATUS_SUCCESS
                                   : berth_fail(GGML_STATUS_FAILED, "scheduler: %s cannot be placed", berth_name_of(t));
}

static enum ggml_status put_root(struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r) {
    struct sched_row *row = &memo->rows[r];
    if (row->slots >= 0) {
        row->mem  = memo->slot_mem[row->slots + sched->slot];
        row->data = memo->slot_data[row->slots + sched->slot];
    }
    return row->mem != NULL ? put(memo->tensors_at[r], row->mem, row->data) : GGML_STATUS_SUCCESS;
}

static enum ggml_status put_all(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t r = 0; r < memo->n_rows && status == GGML_STATUS_SUCCESS; r++) {
        if (memo->rows[r].view_src < 0 && !memo->rows[r].is_placed) {
            status = put_root(sched, memo, r);
        }
    }
    for (int32_t r = 0; r < memo->n_rows && status == GGML_STATUS_SUCCESS; r++) {
        const int32_t v                = memo->rows[r].view_src;
        const struct ggml_tensor *root = v >= 0 ? memo->tensors_at[v] : NULL;
        if (root != NULL && root != memo->tensors_at[r] && root->data != NULL) {
            status = put(memo->tensors_at[r], root->buffer, (char *) root->data + memo->forms[r].view_offs);
        }
    }
    return status;
}

// Notes where the allocator put everything.
static void note(struct sched_memo *memo) {
    for (int32_t r = 0; r < memo->n_rows; r++) {
        struct sched_row *row       = &memo->rows[r];
        const struct ggml_tensor *t = memo->tensors_at[r];
        if (row->view_src >= 0 || row->is_placed) {
            continue;
        }
        row->mem  = t->buffer;
        row->data = t->data;
        for (int slot = 0; row->slots >= 0 && slot < memo->n_slots; slot++) {
            const struct ggml_tensor *place    = slot == 0 ? t : ghost(memo, row, slot);
            memo->slot_mem[row->slots + slot]  = place->buffer;
            memo->slot_data[row->slots + slot] = place->data;
        }
    }
}

bool sched_has_places(const struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    return memo->epoch != 0 && memo->epoch == sched->galloc->epoch;
}

enum ggml_status sched_place(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    if (!sched_has_places(sched, memo)) {
        struct plan_graph g     = {.sched = sched, .memo = memo};
        enum ggml_status status = plan_begin(&g);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        status = reserve(sched, &g);
        if (status == GGML_STATUS_SUCCESS && !ggml_gallocr_alloc_graph(sched->galloc, &g.graph)) {
            status = berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: a planned graph of %d nodes has no place: %s",
                memo->n_nodes, berth_last_error());
        }
        plan_end(&g);
        if (status != GGML_STATUS_SUCCESS) {
            memo->epoch = 0;
            return status;
        }
        note(memo);
        memo->epoch = sched->galloc->epoch;
        if (sched->slot == 0) {
            return GGML_STATUS_SUCCESS; // the allocator did it
        }
    }
    return put_all(sched, memo);
}

// SPDX-License-Identifier: MIT
// memo.c: a graph as the scheduler sees it: everything that decides where ops run and what crosses, without addresses.
// Building hashes each edge once. Matching hashes nothing: row i stands for a known tensor of the graph, so an edge is right
// when both its ends are; the cost is one pass over the graph's tensors.

#include "sched/sched.h"

#include "alloc/galloc.h"

#include <string.h>

_Static_assert(offsetof(struct ggml_tensor, nb) == SCHED_FORM_OFF + sizeof(int64_t[GGML_MAX_DIMS]) &&
                   offsetof(struct ggml_tensor, flags) + sizeof(int32_t) == offsetof(struct ggml_tensor, src),
    "ne, nb, op, op_params and flags lie side by side");

static bool is_ours(const struct ggml_backend_sched *sched, const struct ggml_tensor *t) {
    return t->buffer != NULL && berth_galloc_owns(sched->galloc, t->buffer);
}

// ---- building ----

static bool row_push(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    const size_t n = (size_t) memo->n_rows + 1;
    if (!berth_grow((void **) &memo->rows, &memo->rows_cap, n, sizeof memo->rows[0]) ||
        !berth_grow((void **) &memo->tensors_at, &memo->at_cap, n, sizeof memo->tensors_at[0])) {
        return false;
    }
    struct sched_row *row            = &memo->rows[memo->n_rows];
    const struct berth_op_info *info = berth_op_info(t->op);

    *row = (struct sched_row){
        .view_offs = t->view_offs,
        .view_src  = -1,
        .src       = memo->n_srcs,
        .type      = (int32_t) t->type,
        .op        = (int32_t) t->op,
        .slots     = -1,
        .caller    = (int16_t) sched_map_get(&sched->chosen, t, -1),
        .backend   = -1,
        .refused   = -1,
        .is_empty  = info == NULL || info->is_empty,
        .is_input  = (t->flags & GGML_TENSOR_FLAG_INPUT) != 0,
    };
    memcpy(row->form, (const char *) t + SCHED_FORM_OFF, SCHED_FORM_SIZE);
    if (t->view_src == NULL && (t->buffer != NULL || t->data != NULL) && !is_ours(sched, t)) {
        row->is_placed = true;
        row->buft      = t->buffer != NULL ? t->buffer->buft : NULL;
        row->usage     = t->buffer != NULL ? (uint8_t) t->buffer->usage : 0;
    }
    memo->tensors_at[memo->n_rows++] = t;
    return true;
}

// The row of t, made if t is new; -1: out of memory.
static int32_t row_of(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    int32_t r = sched_map_get(&memo->map, t, -1);
    if (r < 0) {
        r = memo->n_rows;
        if (!row_push(sched, memo, t) || !sched_map_put(&memo->map, t, r)) {
            return -1;
        }
    }
    return r;
}

// A tensor that is listed again is taken for a view of its first row.
static bool push_listed(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    const int32_t first = sched_map_get(&memo->map, t, -1), r = memo->n_rows;
    if (!row_push(sched, memo, t)) {
        return false;
    }
    memo->rows[r].view_src = first;
    return first >= 0 || sched_map_put(&memo->map, t, r);
}

static bool link_row(struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r, bool is_listed) {
    const struct ggml_tensor *t = memo->tensors_at[r];
    if (t->view_src != NULL) {
        const int32_t v = row_of(sched, memo, t->view_src);
        if (v < 0) {
            return false;
        }
        memo->rows[r].view_src = v;
    }
    memo->rows[r].src = memo->n_srcs;
    for (int k = 0; is_listed && k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        const int32_t s = row_of(sched, memo, t->src[k]);
        const size_t n  = (size_t) memo->n_srcs + 1;
        if (s < 0 || !berth_grow((void **) &memo->srcs, &memo->srcs_cap, n, sizeof memo->srcs[0]) ||
            !berth_grow((void **) &memo->slots, &memo->slots_cap, n, sizeof memo->slots[0])) {
            return false;
        }
        memo->srcs[memo->n_srcs]    = s;
        memo->slots[memo->n_srcs++] = (uint8_t) k;
        memo->rows[r].n_src++;
    }
    return true;
}

static bool build(struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph) {
    const size_t n_listed = (size_t) graph->n_nodes + (size_t) graph->n_leafs;
    if (!sched_map_reserve(&memo->map, n_listed + 8) ||
        !berth_grow((void **) &memo->rows, &memo->rows_cap, n_listed + 1, sizeof memo->rows[0]) ||
        !berth_grow((void **) &memo->nodes, &memo->nodes_cap, n_listed + 1, sizeof memo->nodes[0]) ||
        !berth_grow((void **) &memo->order, &memo->order_cap, n_listed + 1, sizeof memo->order[0])) {
        return false;
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!push_listed(sched, memo, graph->nodes[i])) {
            return false;
        }
        memo->nodes[i] = graph->nodes[i];
        memo->order[i] = i;
    }
    for (int i = 0; i < graph->n_leafs; i++) {
        if (!push_listed(sched, memo, graph->leafs[i])) {
            return false;
        }
    }
    for (int32_t r = 0; r < memo->n_rows; r++) { // grows while it runs
        if (!link_row(sched, memo, r, (size_t) r < n_listed)) {
            return false;
        }
    }
    return true;
}

enum ggml_status sched_memo_build(struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph) {
    sched_memo_drop(memo);
    memo->n_nodes = graph->n_nodes;
    memo->n_leafs = graph->n_leafs;
    if (!build(sched, memo, graph)) {
        sched_memo_drop(memo);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for a graph of %d nodes", graph->n_nodes);
    }
    memo->has_map = true;
    memo->is_rows = true;
    return GGML_STATUS_SUCCESS;
}

// ---- matching ----

// Placed, or not, as before? Memory of ours counts as none.
static bool same_place(const struct ggml_backend_sched *sched, const struct sched_row *row, const struct ggml_tensor *t) {
    if ((row->mem != NULL && t->buffer == row->mem) || (t->buffer == NULL && t->data == NULL) || is_ours(sched, t)) {
        return !row->is_placed;
    }
    return row->is_placed && row->buft == (t->buffer != NULL ? t->buffer->buft : NULL) &&
           (t->buffer == NULL || row->usage == (uint8_t) t->buffer->usage);
}

static bool same_srcs(const struct sched_memo *memo, const struct sched_row *row, const struct ggml_tensor *t) {
    int32_t at        = row->src;
    const int32_t end = row->src + row->n_src;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] != NULL) {
            if (at == end || memo->slots[at] != k || memo->tensors_at[memo->srcs[at]] != t->src[k]) {
                return false;
            }
            at++;
        }
    }
    return at == end;
}

// What is outside the graph is met through who names it.
static bool meet_others(struct sched_memo *memo, int32_t n_listed) {
    for (int32_t r = n_listed; r < memo->n_rows; r++) {
        memo->tensors_at[r] = NULL;
    }
    for (int32_t r = 0; r < memo->n_rows; r++) {
        const struct sched_row *row = &memo->rows[r];
        const struct ggml_tensor *t = memo->tensors_at[r];
        if (t == NULL) {
            return false; // named by a row that differs now
        }
        for (int32_t k = row->src; r < n_listed && k < row->src + row->n_src; k++) {
            if (memo->srcs[k] >= n_listed && memo->tensors_at[memo->srcs[k]] == NULL) {
                memo->tensors_at[memo->srcs[k]] = t->src[memo->slots[k]];
            }
        }
        if (row->view_src >= n_listed && memo->tensors_at[row->view_src] == NULL) {
            memo->tensors_at[row->view_src] = t->view_src;
        }
    }
    return true;
}

static bool same_row(const struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r, bool is_listed) {
    const struct sched_row *row = &memo->rows[r];
    struct ggml_tensor *t       = memo->tensors_at[r];
    if ((int32_t) t->type != row->type || t->view_offs != row->view_offs ||
        memcmp(row->form, (const char *) t + SCHED_FORM_OFF, SCHED_FORM_SIZE) != 0) {
        return false;
    }
    const struct ggml_tensor *view_src = row->view_src >= 0 ? memo->tensors_at[row->view_src] : NULL;
    if (t->view_src != view_src && t != view_src) {
        return false;
    }
    return (!is_listed || same_srcs(memo, row, t)) && (view_src != NULL || same_place(sched, row, t));
}

static bool same_choices(const struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    for (int32_t r = 0; r < memo->n_rows; r++) {
        if (memo->rows[r].caller != (int16_t) sched_map_get(&sched->chosen, memo->tensors_at[r], -1)) {
            return false;
        }
    }
    return true;
}

bool sched_memo_match(
    const struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph, bool *moved) {
    if (!memo->is_rows || graph->n_nodes != memo->n_nodes || graph->n_leafs != memo->n_leafs) {
        return false;
    }
    const size_t n_nodes = (size_t) memo->n_nodes, n_leafs = (size_t) memo->n_leafs;
    const int32_t n_listed = memo->n_nodes + memo->n_leafs;

    *moved = memo->is_lost || (n_nodes > 0 && memcmp(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *)) != 0) ||
             (n_leafs > 0 && memcmp(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *)) != 0);
    if (*moved) {
        memo->has_map = false;
        memo->is_lost = true; // until it is known that these are its tensors
        if (n_nodes > 0) {
            memcpy(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *));
        }
        if (n_leafs > 0) {
            memcpy(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *));
        }
        if (!meet_others(memo, n_listed)) {
            return false;
        }
    }
    for (int32_t r = 0; r < memo->n_rows; r++) {
        if (!same_row(sched, memo, r, r < n_listed)) {
            return false;
        }
    }
    memo->is_lost = false;
    return same_choices(sched, memo);
}

// ---- questions, end ----

int32_t sched_memo_row(struct sched_memo *memo, const struct ggml_tensor *t) {
    if (!memo->has_map) {
        sched_map_clear(&memo->map);
        if (!sched_map_reserve(&memo->map, (size_t) memo->n_rows + 1)) {
            return -1;
        }
        for (int32_t r = memo->n_rows - 1; r >= 0; r--) { // the first row of a tensor wins
            if (!sched_map_put(&memo->map, memo->tensors_at[r], r)) {
                return -1;
            }
        }
        memo->has_map = true;
    }
    return sched_map_get(&memo->map, t, -1);
}

void sched_memo_drop(struct sched_memo *memo) {
    memo->n_rows = memo->n_nodes = memo->n_leafs = memo->n_srcs = 0;
    memo->n_splits = memo->n_copies = memo->n_edges = memo->n_inputs = 0;
    memo->has_map = memo->is_split = memo->is_rows = memo->is_lost = false;
    memo->epoch                                                    = 0;
    sched_map_clear(&memo->map);
}

void sched_memo_fini(struct sched_memo *memo) {
    berth_free(memo->tensors_at);
    berth_free(memo->rows);
    berth_free(memo->srcs);
    berth_free(memo->slots);
    berth_free(memo->nodes);
    berth_free(memo->order);
    berth_free(memo->splits);
    berth_free(memo->copies);
    berth_free(memo->edges);
    berth_free(memo->tensors);
    berth_free(memo->slot_data);
    berth_free(memo->slot_mem);
    berth_free(memo->conflict);
    sched_map_fini(&memo->map);
    *memo = (struct sched_memo){0};
}

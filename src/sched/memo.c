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

// A node's row number is written into the tensor's padding, which nobody uses: an edge is found without hashing. It is only a
// hint: right if the row has this tensor. Leafs are not stamped, since threads may share weights.
static int32_t *stamp_of(struct ggml_tensor *t) {
    _Static_assert(sizeof t->padding >= sizeof(int32_t) && offsetof(struct ggml_tensor, padding) % sizeof(int32_t) == 0, "room");
    return (int32_t *) (void *) t->padding;
}

static int32_t row_find(const struct sched_memo *memo, struct ggml_tensor *t) {
    if (t->op != GGML_OP_NONE) {
        const int32_t r = *stamp_of(t);
        if (r >= 0 && r < memo->n_nodes && r < memo->n_rows && memo->tensors_at[r] == t) {
            return r;
        }
    }
    return sched_map_get(&memo->map, t, -1);
}

static bool row_push(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    const size_t n = (size_t) memo->n_rows + 1;
    if (n > memo->rows_cap || n > memo->forms_cap || n > memo->at_cap) {
        if (!berth_grow((void **) &memo->rows, &memo->rows_cap, n, sizeof memo->rows[0]) ||
            !berth_grow((void **) &memo->forms, &memo->forms_cap, n, sizeof memo->forms[0]) ||
            !berth_grow((void **) &memo->tensors_at, &memo->at_cap, n, sizeof memo->tensors_at[0])) {
            return false;
        }
    }
    struct sched_row *row            = &memo->rows[memo->n_rows];
    struct sched_form *form          = &memo->forms[memo->n_rows];
    const struct berth_op_info *info = berth_op_info(t->op);

    *row = (struct sched_row){
        .view_src = -1,
        .src      = memo->n_srcs,
        .type     = t->type >= 0 && t->type < GGML_TYPE_COUNT ? (int16_t) t->type : -1,
        .op       = (int32_t) t->op,
        .slots    = -1,
        .caller   = (int16_t) sched_map_get(&sched->chosen, t, -1),
        .backend  = -1,
        .refused  = -1,
        .is_empty = info == NULL || info->is_empty,
        .is_input = (t->flags & GGML_TENSOR_FLAG_INPUT) != 0,
    };
    form->view_offs = t->view_offs;
    memcpy(form->bytes, (const char *) t + SCHED_FORM_OFF, SCHED_FORM_SIZE);
    if (t->view_src == NULL && (t->buffer != NULL || t->data != NULL) && !is_ours(sched, t)) {
        row->is_placed = true;
        row->buft      = t->buffer != NULL ? t->buffer->buft : NULL;
        row->usage     = t->buffer != NULL ? (uint8_t) t->buffer->usage : 0;
    }
    memo->has_choices                = memo->has_choices || row->caller >= 0;
    memo->tensors_at[memo->n_rows++] = t;
    return true;
}

// The row of t, made if t is new; -1: out of memory.
static int32_t row_of(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    int32_t r = row_find(memo, t);
    if (r < 0) {
        r = memo->n_rows;
        if (!row_push(sched, memo, t) || !sched_map_put(&memo->map, t, r)) {
            return -1;
        }
    }
    return r;
}

// A tensor that is listed again is taken for a view of its first row.
static bool push_node(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    const int32_t first = row_find(memo, t), r = memo->n_rows;
    if (!row_push(sched, memo, t)) {
        return false;
    }
    memo->rows[r].view_src = first;
    if (first < 0 && t->op != GGML_OP_NONE) {
        *stamp_of(t) = r;
        return true;
    }
    return first >= 0 || sched_map_put(&memo->map, t, r);
}

static bool push_leaf(struct ggml_backend_sched *sched, struct sched_memo *memo, struct ggml_tensor *t) {
    const int32_t first = row_find(memo, t), r = memo->n_rows;
    if (!row_push(sched, memo, t)) {
        return false;
    }
    memo->rows[r].view_src = first;
    return first >= 0 || sched_map_put(&memo->map, t, r);
}

static bool link_srcs(struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r) {
    const struct ggml_tensor *t = memo->tensors_at[r];
    const size_t most           = (size_t) memo->n_srcs + GGML_MAX_SRC;
    if (!berth_grow((void **) &memo->srcs, &memo->srcs_cap, most, sizeof memo->srcs[0]) ||
        !berth_grow((void **) &memo->slots, &memo->slots_cap, most, sizeof memo->slots[0])) {
        return false;
    }
    int16_t n_src = 0;
    bool is_dense = true;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        const int32_t s = row_of(sched, memo, t->src[k]);
        if (s < 0) {
            return false;
        }
        is_dense                    = is_dense && k == n_src;
        memo->srcs[memo->n_srcs]    = s;
        memo->slots[memo->n_srcs++] = (uint8_t) k;
        n_src++;
    }
    memo->rows[r].n_src    = n_src;
    memo->rows[r].is_dense = is_dense;
    return true;
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
    memo->rows[r].src      = memo->n_srcs;
    memo->rows[r].is_dense = true;
    return !is_listed || link_srcs(sched, memo, r);
}

static bool build(struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph) {
    const size_t n_listed = (size_t) graph->n_nodes + (size_t) graph->n_leafs;
    if (!sched_map_reserve(&memo->map, (size_t) graph->n_leafs + 8) ||
        !berth_grow((void **) &memo->rows, &memo->rows_cap, n_listed + 1, sizeof memo->rows[0]) ||
        !berth_grow((void **) &memo->forms, &memo->forms_cap, n_listed + 1, sizeof memo->forms[0]) ||
        !berth_grow((void **) &memo->tensors_at, &memo->at_cap, n_listed + 1, sizeof memo->tensors_at[0]) ||
        !berth_grow((void **) &memo->nodes, &memo->nodes_cap, n_listed + 1, sizeof memo->nodes[0]) ||
        !berth_grow((void **) &memo->order, &memo->order_cap, n_listed + 1, sizeof memo->order[0])) {
        return false;
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!push_node(sched, memo, graph->nodes[i])) {
            return false;
        }
        memo->nodes[i] = graph->nodes[i];
        memo->order[i] = i;
    }
    for (int i = 0; i < graph->n_leafs; i++) {
        if (!push_leaf(sched, memo, graph->leafs[i])) {
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
    memo->has_map = false; // of leafs only
    memo->is_rows = true;
    return GGML_STATUS_SUCCESS;
}

// ---- matching ----

// Placed, or not, as before? Memory of ours counts as none.
static bool same_place(const struct ggml_backend_sched *sched, const struct sched_row *row, const struct ggml_tensor *t) {
    if ((row->mem != NULL && t->buffer == row->mem) || (t->buffer == NULL && t->data == NULL)) {
        return !row->is_placed;
    }
    // The allocator's buffers are marked as such; only of those with the mark need it be asked.
    if (t->buffer != NULL && t->buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE && is_ours(sched, t)) {
        return !row->is_placed;
    }
    return row->is_placed && row->buft == (t->buffer != NULL ? t->buffer->buft : NULL) &&
           (t->buffer == NULL || row->usage == (uint8_t) t->buffer->usage);
}

static bool same_srcs(const struct sched_memo *memo, const struct sched_row *row, const struct ggml_tensor *t) {
    const int32_t *srcs = memo->srcs + row->src;
    if (BERTH_LIKELY(row->is_dense)) {
        uintptr_t differs = 0;
        int k             = 0;
        for (; k < row->n_src; k++) {
            differs |= (uintptr_t) memo->tensors_at[srcs[k]] ^ (uintptr_t) t->src[k];
        }
        for (; k < GGML_MAX_SRC; k++) {
            differs |= (uintptr_t) t->src[k];
        }
        return differs == 0;
    }
    int at = 0;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] != NULL) {
            if (at == row->n_src || memo->slots[row->src + at] != k || memo->tensors_at[srcs[at]] != t->src[k]) {
                return false;
            }
            at++;
        }
    }
    return at == row->n_src;
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

// Two words at a time where the machine can.
typedef uint64_t word_pair __attribute__((vector_size(16)));

// Inline and without a branch: this is most of what a graph that comes again costs.
static inline bool same_form(const struct sched_form *form, const struct ggml_tensor *t) {
    const char *bytes = (const char *) t + SCHED_FORM_OFF;
    word_pair differs = {form->view_offs ^ t->view_offs, 0};
    for (size_t i = 0; i + sizeof(word_pair) <= SCHED_FORM_SIZE; i += sizeof(word_pair)) {
        word_pair a, b;
        memcpy(&a, form->bytes + i, sizeof a);
        memcpy(&b, bytes + i, sizeof b);
        differs |= a ^ b;
    }
    uint64_t a, b;
    memcpy(&a, form->bytes + SCHED_FORM_SIZE - sizeof a, sizeof a);
    memcpy(&b, bytes + SCHED_FORM_SIZE - sizeof b, sizeof b);
    return (differs[0] | differs[1] | (a ^ b)) == 0;
}

static inline bool same_row(const struct ggml_backend_sched *sched, const struct sched_memo *memo, int32_t r, bool is_listed) {
    const struct sched_row *row = &memo->rows[r];
    const struct ggml_tensor *t = memo->tensors_at[r];
    if ((int32_t) t->type != row->type || !same_form(&memo->forms[r], t)) {
        return false;
    }
    const struct ggml_tensor *view_src = row->view_src >= 0 ? memo->tensors_at[row->view_src] : NULL;
    if (t->view_src != view_src && t != view_src) {
        return false;
    }
    return (!is_listed || same_srcs(memo, row, t)) && (view_src != NULL || same_place(sched, row, t));
}

static bool same_choices(const struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    for (int32_t r = 0; (memo->has_choices || sched->chosen.n_keys > 0) && r < memo->n_rows; r++) {
        if (memo->rows[r].caller != (int16_t) sched_map_get(&sched->chosen, memo->tensors_at[r], -1)) {
            return false;
        }
    }
    return true;
}

// The graph's tensors take the place of those that were seen before. False: it cannot be the same graph.
static bool take_tensors(struct sched_memo *memo, const struct ggml_cgraph *graph, bool *moved) {
    const size_t n_nodes = (size_t) memo->n_nodes, n_leafs = (size_t) memo->n_leafs;

    *moved = memo->is_lost || (n_nodes > 0 && memcmp(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *)) != 0) ||
             (n_leafs > 0 && memcmp(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *)) != 0);
    if (!*moved) {
        return true;
    }
    memo->has_map = false;
    memo->is_lost = true; // until it is known that these are its tensors
    if (n_nodes > 0) {
        memcpy(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *));
    }
    if (n_leafs > 0) {
        memcpy(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *));
    }
    return meet_others(memo, memo->n_nodes + memo->n_leafs);
}

// Row r is the same: its address, too. A view's root may come later: it is compared first then.
static bool put_row(const struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r) {
    const struct sched_row *row = &memo->rows[r];
    struct ggml_tensor *t       = memo->tensors_at[r];
    if (row->view_src < 0) {
        return row->is_placed || row->mem == NULL || sched_put(t, row->mem, row->data);
    }
    const struct sched_row *root = &memo->rows[row->view_src];
    struct ggml_tensor *root_t   = memo->tensors_at[row->view_src];
    if (t == root_t) {
        return true;
    }
    if (row->view_src > r && !root->is_placed) {
        const bool is_listed = row->view_src < memo->n_nodes + memo->n_leafs;
        if (!same_row(sched, memo, row->view_src, is_listed) || !sched_put(root_t, root->mem, root->data)) {
            return false;
        }
    }
    return root_t->data == NULL || sched_put(t, root_t->buffer, (char *) root_t->data + memo->forms[r].view_offs);
}

enum sched_match sched_memo_match(
    struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph, bool put, bool *moved) {
    if (!memo->is_rows || graph->n_nodes != memo->n_nodes || graph->n_leafs != memo->n_leafs ||
        !take_tensors(memo, graph, moved) || !same_choices(sched, memo)) {
        return SCHED_OTHER;
    }
    const int32_t n_listed = memo->n_nodes + memo->n_leafs;
    put                    = put && memo->n_slots == 1 && sched_has_places(sched, memo);
    bool all_put           = put;
    for (int32_t r = 0; r < memo->n_rows; r++) {
        if (!same_row(sched, memo, r, r < n_listed)) {
            return SCHED_OTHER;
        }
        all_put = all_put && put_row(sched, memo, r);
    }
    memo->is_lost = false;
    return all_put ? SCHED_SAME_PLACED : SCHED_SAME;
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
    memo->has_map = memo->has_choices = memo->is_split = memo->is_rows = memo->is_lost = false;
    memo->epoch                                                                        = 0;
    sched_map_clear(&memo->map);
}

void sched_memo_fini(struct sched_memo *memo) {
    berth_free(memo->tensors_at);
    berth_free(memo->rows);
    berth_free(memo->forms);
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

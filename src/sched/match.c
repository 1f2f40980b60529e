// SPDX-License-Identifier: MIT
// match.c: is a graph the one a memo knows? Nothing is looked up: row i stands for a known tensor of the graph, so an edge is
// right when both its ends are. One pass over the graph's tensors, which get their addresses on the way.

#include "sched/form.h"

#include "alloc/galloc.h"

// Placed, or not, as before? Memory of ours counts as none.
static inline bool same_place(const struct ggml_backend_sched *sched, const struct sched_row *row, const struct ggml_tensor *t) {
    if ((t->buffer == NULL && t->data == NULL) || (row->mem != NULL && t->buffer == row->mem)) {
        return !row->is_placed;
    }
    // The allocator's buffers are marked as such; only of those with the mark need it be asked.
    if (t->buffer != NULL && t->buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE &&
        berth_galloc_owns(sched->galloc, t->buffer)) {
        return !row->is_placed;
    }
    return row->is_placed && row->buft == (t->buffer != NULL ? t->buffer->buft : NULL) &&
           (t->buffer == NULL || row->usage == (uint8_t) t->buffer->usage);
}

static bool same_many_srcs(const struct sched_memo *memo, const struct sched_row *row, const struct ggml_tensor *t) {
    int at = 0;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] != NULL) {
            if (at == row->n_src || memo->slots[row->src + at] != k || memo->tensors_at[memo->srcs[row->src + at]] != t->src[k]) {
                return false;
            }
            at++;
        }
    }
    return at == row->n_src;
}

static inline bool same_srcs(const struct sched_memo *memo, const struct sched_row *row, const struct ggml_tensor *t) {
    if (BERTH_UNLIKELY(!row->is_dense || row->n_src > 2)) {
        return same_many_srcs(memo, row, t);
    }
    const int32_t *srcs          = memo->srcs + row->src;
    struct ggml_tensor *const *s = t->src;
    const struct ggml_tensor *a  = row->n_src > 0 ? memo->tensors_at[srcs[0]] : NULL;
    const struct ggml_tensor *b  = row->n_src > 1 ? memo->tensors_at[srcs[1]] : NULL;
    const uintptr_t rest         = (uintptr_t) s[2] | form_srcs_from_3(t);
    return (((uintptr_t) a ^ (uintptr_t) s[0]) | ((uintptr_t) b ^ (uintptr_t) s[1]) | rest) == 0;
}

static inline bool same_row(const struct ggml_backend_sched *sched, const struct sched_memo *memo, int32_t r, bool is_listed) {
    const struct sched_row *row        = &memo->rows[r];
    const struct ggml_tensor *t        = memo->tensors_at[r];
    const struct ggml_tensor *view_src = row->view_src >= 0 ? memo->tensors_at[row->view_src] : NULL;
    return form_is(&memo->forms[row->form], t) && (t->view_src == view_src || t == view_src) &&
           (!is_listed || same_srcs(memo, row, t)) && (view_src != NULL || same_place(sched, row, t));
}

static bool same_choices(const struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    for (int32_t r = 0; (memo->has_choices || sched->chosen.n > 0) && r < memo->n_rows; r++) {
        if (memo->rows[r].caller != sched_choice(&sched->chosen, memo->tensors_at[r])) {
            return false;
        }
    }
    return true;
}

// What is outside the graph is met through who names it.
static bool meet_others(struct sched_memo *memo, int32_t n_listed) {
    for (int32_t r = n_listed; r < memo->n_rows; r++) {
        memo->tensors_at[r] = NULL;
    }
    for (int32_t r = 0; n_listed < memo->n_rows && r < memo->n_rows; r++) {
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

// The graph's tensors take the place of those that were seen before. False: it cannot be the same graph.
static bool take_tensors(struct sched_memo *memo, const struct ggml_cgraph *graph, bool *moved) {
    const size_t n_nodes = (size_t) memo->n_nodes, n_leafs = (size_t) memo->n_leafs;

    *moved = memo->is_lost || (n_nodes > 0 && memcmp(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *)) != 0) ||
             (n_leafs > 0 && memcmp(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *)) != 0);
    if (!*moved) {
        return true;
    }
    memo->has_index = false;
    memo->is_lost   = true; // until it is known that these are its tensors
    if (n_nodes > 0) {
        memcpy(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *));
    }
    if (n_leafs > 0) {
        memcpy(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *));
    }
    return meet_others(memo, memo->n_nodes + memo->n_leafs);
}

// A view's root may come later: it is compared first then.
static bool put_view(const struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r) {
    const struct sched_row *row  = &memo->rows[r];
    const struct sched_row *root = &memo->rows[row->view_src];
    struct ggml_tensor *t = memo->tensors_at[r], *root_t = memo->tensors_at[row->view_src];
    if (t == root_t) {
        return true;
    }
    if (row->view_src > r && !root->is_placed) {
        const bool is_listed = row->view_src < memo->n_nodes + memo->n_leafs;
        if (!same_row(sched, memo, row->view_src, is_listed) || !sched_put(root_t, root->mem, root->data)) {
            return false;
        }
    }
    return root_t->data == NULL || sched_put(t, root_t->buffer, (char *) root_t->data + t->view_offs);
}

// Row r is the same: its address, too. What has memory of ours elsewhere may have got it at another row of this graph: that is
// for sched_place to look into.
static inline bool put_row(const struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t r) {
    const struct sched_row *row = &memo->rows[r];
    struct ggml_tensor *t       = memo->tensors_at[r];
    if (row->view_src >= 0) {
        return put_view(sched, memo, r);
    }
    if (row->is_placed || row->mem == NULL) {
        return true;
    }
    return t->buffer == NULL ? sched_put(t, row->mem, row->data) : t->buffer == row->mem && t->data == row->data;
}

enum sched_match sched_memo_match(
    struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph, bool put, bool *moved) {
    if (!memo->is_rows || graph->n_nodes != memo->n_nodes || graph->n_leafs != memo->n_leafs ||
        !take_tensors(memo, graph, moved) || !same_choices(sched, memo)) {
        return SCHED_OTHER;
    }
    const int32_t n_listed = memo->n_nodes + memo->n_leafs;
    put                    = put && sched_has_places(sched, memo);
    bool all_put           = put;
    // Tensors of small graphs are near already.
    const int32_t n_fetched = memo->n_rows > 1500 ? memo->n_rows - RECORD_AHEAD : 0;
    for (int32_t r = 0; r < memo->n_rows; r++) {
        if (r < n_fetched) {
            record_fetch(memo->tensors_at[r + RECORD_AHEAD]);
        }
        if (!same_row(sched, memo, r, r < n_listed)) {
            return SCHED_OTHER;
        }
        all_put = all_put && put_row(sched, memo, r);
        if (memo->rows[r].is_placed && memo->rows[r].data != memo->tensors_at[r]->data) {
            memo->rows[r].data = memo->tensors_at[r]->data;
            memo->uid_slot     = -1;
        }
    }
    memo->is_lost = false;
    return all_put ? SCHED_SAME_PLACED : SCHED_SAME;
}

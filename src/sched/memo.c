// SPDX-License-Identifier: MIT
// memo.c: a graph as the scheduler sees it: everything that decides where ops run and what crosses, without addresses.
// Building looks at each tensor once and up each edge in an index of the graph's tensors. match.c compares.

#include "sched/form.h"

#include "alloc/galloc.h"

enum { N_RECENT = 256 };

struct builder {
    struct ggml_backend_sched *sched;
    struct sched_memo *memo;
    int32_t n_listed;         // nodes and leafs
    int32_t recent[N_RECENT]; // forms that were met last, by hash, -1: none
};

// ---- forms ----

static bool form_push(struct sched_memo *memo, const struct ggml_tensor *t) {
    if ((size_t) memo->n_forms == memo->forms_cap &&
        !berth_grow((void **) &memo->forms, &memo->forms_cap, (size_t) memo->n_forms + 1, sizeof memo->forms[0])) {
        return false;
    }
    struct sched_form *form          = &memo->forms[memo->n_forms++];
    const struct berth_op_info *info = berth_op_info(t->op);

    memcpy(form->bytes, (const unsigned char *) t + SCHED_FORM_OFF, SCHED_FORM_SIZE);
    form->view_offs = t->view_offs;
    form->nbytes    = ggml_nbytes(t);
    form->type      = (int32_t) t->type;
    form->op        = (int32_t) t->op;
    form->is_empty  = info == NULL || info->is_empty;
    form->is_input  = (t->flags & GGML_TENSOR_FLAG_INPUT) != 0;
    return true;
}

// The form of t. Two may be equal: only recent ones are looked for. -1: out of memory.
static int32_t form_of(struct builder *b, const struct ggml_tensor *t) {
    uint64_t param;
    memcpy(&param, t->op_params, sizeof param);
    const uint64_t mixed = (uint64_t) t->op ^ (uint64_t) t->ne[0] << 8 ^ (uint64_t) t->ne[1] << 32 ^ param << 16 ^
                           (uint64_t) t->view_offs << 24 ^ (uint64_t) t->flags << 56;
    int32_t *recent = &b->recent[mixed * 0x9E3779B97F4A7C15u >> 56];
    if (*recent < 0 || !form_is(&b->memo->forms[*recent], t)) {
        if (!form_push(b->memo, t)) {
            return -1;
        }
        *recent = b->memo->n_forms - 1;
    }
    return *recent;
}

// ---- rows ----

// The row of t, made if t is new; -1: out of memory.
static int32_t row_of(struct builder *b, struct ggml_tensor *t) {
    struct sched_memo *memo = b->memo;
    const int32_t r         = sched_index_find(&memo->index, memo->tensors_at, t);
    if (r >= 0) {
        return r;
    }
    const size_t n = (size_t) memo->n_rows + 1;
    if (!berth_grow((void **) &memo->rows, &memo->rows_cap, n, sizeof memo->rows[0]) ||
        !berth_grow((void **) &memo->tensors_at, &memo->at_cap, n, sizeof memo->tensors_at[0]) ||
        !sched_index_reserve(&memo->index, memo->tensors_at, memo->n_rows, n)) {
        return -1;
    }
    memo->tensors_at[memo->n_rows]    = t;
    memo->rows[memo->n_rows].view_src = -1;
    return sched_index_add(&memo->index, memo->tensors_at, memo->n_rows++);
}

static inline bool src_push(struct builder *b, const struct ggml_tensor *t, int k) {
    struct sched_memo *memo = b->memo;
    const int32_t s         = row_of(b, t->src[k]);
    if (s < 0) {
        return false;
    }
    memo->srcs[memo->n_srcs]    = s;
    memo->slots[memo->n_srcs++] = (uint8_t) k;
    return true;
}

// Has t a source behind the first k, of which src[k] is the first that is NULL?
static inline bool has_src_behind(const struct ggml_tensor *t, int k) {
    if (BERTH_LIKELY(k <= 3)) {
        return (form_srcs_from_3(t) | (k < 2 ? (uintptr_t) t->src[2] : 0) | (k < 1 ? (uintptr_t) t->src[1] : 0)) != 0;
    }
    for (k++; k < GGML_MAX_SRC && t->src[k] == NULL; k++) {
    }
    return k < GGML_MAX_SRC;
}

static bool link_srcs(struct builder *b, int32_t r) {
    struct sched_memo *memo     = b->memo;
    const struct ggml_tensor *t = memo->tensors_at[r];
    const size_t most           = (size_t) memo->n_srcs + GGML_MAX_SRC;
    if (most > memo->srcs_cap || most > memo->slots_cap) {
        if (!berth_grow((void **) &memo->srcs, &memo->srcs_cap, most, sizeof memo->srcs[0]) ||
            !berth_grow((void **) &memo->slots, &memo->slots_cap, most, sizeof memo->slots[0])) {
            return false;
        }
    }
    const int32_t first = memo->n_srcs;
    int k               = 0;
    while (k < GGML_MAX_SRC && t->src[k] != NULL) {
        if (!src_push(b, t, k++)) {
            return false;
        }
    }
    memo->rows[r].is_dense = !has_src_behind(t, k);
    for (; !memo->rows[r].is_dense && k < GGML_MAX_SRC; k++) {
        if (t->src[k] != NULL && !src_push(b, t, k)) {
            return false;
        }
    }
    memo->rows[r].n_src = (int16_t) (memo->n_srcs - first);
    return true;
}

static void note_memory(const struct ggml_backend_sched *sched, struct sched_row *row, const struct ggml_tensor *t) {
    if (t->buffer != NULL && berth_galloc_owns(sched->galloc, t->buffer)) {
        return;
    }
    row->is_placed = true;
    row->data      = t->data;
    row->buft      = t->buffer != NULL ? t->buffer->buft : NULL;
    row->usage     = t->buffer != NULL ? (uint8_t) t->buffer->usage : 0;
}

// A tensor that is listed again is taken for a view of its first row, which view_src says already.
static bool row_fill(struct builder *b, int32_t r) {
    struct sched_memo *memo     = b->memo;
    const struct ggml_tensor *t = memo->tensors_at[r];
    const int32_t form          = form_of(b, t);
    const int32_t view_src      = t->view_src != NULL ? row_of(b, t->view_src) : memo->rows[r].view_src;
    if (form < 0 || (t->view_src != NULL && view_src < 0)) {
        return false;
    }
    struct sched_row *row = &memo->rows[r];

    *row = (struct sched_row){
        .form     = form,
        .view_src = view_src,
        .src      = memo->n_srcs,
        .plan_row = r,
        .slots    = -1,
        .caller   = (int16_t) sched_choice(&b->sched->chosen, t),
        .backend  = -1,
        .refused  = -1,
        .is_empty = memo->forms[form].is_empty,
        .is_input = memo->forms[form].is_input,
        .is_dense = true,
    };
    if (t->view_src == NULL && (t->buffer != NULL || t->data != NULL)) {
        note_memory(b->sched, row, t);
    }
    memo->has_choices = memo->has_choices || row->caller >= 0;
    memo->has_views   = memo->has_views || view_src >= 0;
    memo->n_writers += view_src >= 0 && !row->is_empty && r < memo->n_nodes;
    return r >= b->n_listed || link_srcs(b, r);
}

// ---- building ----

static bool build(struct builder *b, const struct ggml_cgraph *graph) {
    struct sched_memo *memo = b->memo;
    const size_t n_nodes = (size_t) graph->n_nodes, n_leafs = (size_t) graph->n_leafs, n = n_nodes + n_leafs;
    if (!sched_index_reset(&memo->index, n + 8) ||
        !berth_grow((void **) &memo->rows, &memo->rows_cap, n + 1, sizeof memo->rows[0]) ||
        !berth_grow((void **) &memo->tensors_at, &memo->at_cap, n + 1, sizeof memo->tensors_at[0])) {
        return false;
    }
    if (n_nodes > 0) {
        memcpy(memo->tensors_at, graph->nodes, n_nodes * sizeof(void *));
    }
    if (n_leafs > 0) {
        memcpy(memo->tensors_at + n_nodes, graph->leafs, n_leafs * sizeof(void *));
    }
    memo->n_rows = b->n_listed;
    for (int32_t r = 0; r < b->n_listed; r++) {
        const int32_t first    = sched_index_add(&memo->index, memo->tensors_at, r);
        memo->rows[r].view_src = first == r ? -1 : first;
        memo->has_twice        = memo->has_twice || first != r;
    }
    for (int32_t r = 0; r < memo->n_rows; r++) { // grows while it runs
        if (r + RECORD_AHEAD < memo->n_rows) {
            record_fetch(memo->tensors_at[r + RECORD_AHEAD]);
        }
        if (!row_fill(b, r)) {
            return false;
        }
    }
    return true;
}

enum ggml_status sched_memo_build(struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph) {
    struct builder b = {.sched = sched, .memo = memo, .n_listed = graph->n_nodes + graph->n_leafs};
    memset(b.recent, -1, sizeof b.recent);
    sched_memo_drop(memo);
    memo->n_nodes = graph->n_nodes;
    memo->n_leafs = graph->n_leafs;
    if (!build(&b, graph)) {
        sched_memo_drop(memo);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for a graph of %d nodes", graph->n_nodes);
    }
    memo->has_index = true;
    memo->is_rows   = true;
    return GGML_STATUS_SUCCESS;
}

// ---- questions, end ----

int32_t sched_memo_row(struct sched_memo *memo, const struct ggml_tensor *t) {
    if (!memo->has_index) {
        if (!sched_index_reset(&memo->index, (size_t) memo->n_rows + 1)) {
            return -1;
        }
        for (int32_t r = 0; r < memo->n_rows; r++) {
            sched_index_add(&memo->index, memo->tensors_at, r);
        }
        memo->has_index = true;
    }
    return sched_index_find(&memo->index, memo->tensors_at, t);
}

bool sched_memo_is_tangled(struct sched_memo *memo) {
    if (!sched_index_reset(&memo->index, (size_t) memo->n_rows + 1)) {
        memo->has_index = false;
        return true;
    }
    bool is_tangled = false;
    for (int32_t r = 0; r < memo->n_rows; r++) { // a row that stands for an earlier one is a view of it
        const int32_t first = sched_index_add(&memo->index, memo->tensors_at, r);
        is_tangled = is_tangled || (first != r && memo->tensors_at[r]->view_src == NULL && memo->rows[r].view_src != first);
    }
    memo->has_index = true;
    return is_tangled;
}

void sched_memo_drop(struct sched_memo *memo) {
    memo->n_rows = memo->n_nodes = memo->n_leafs = memo->n_srcs = memo->n_forms = memo->n_writers = 0;
    memo->n_splits = memo->n_copies = memo->n_edges = memo->n_deps = memo->n_inputs = 0;
    memo->has_index = memo->has_views = memo->has_twice = memo->has_choices = memo->is_reordered = false;
    memo->is_split = memo->is_rows = memo->is_lost = false;
    memo->epoch                                    = 0;
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
    berth_free(memo->deps);
    berth_free(memo->tensors);
    berth_free(memo->slot_data);
    berth_free(memo->slot_mem);
    berth_free(memo->conflict);
    sched_index_fini(&memo->index);
    *memo = (struct sched_memo){0};
}

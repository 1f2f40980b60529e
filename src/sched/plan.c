// SPDX-License-Identifier: MIT
// plan.c: one memory plan over all splits. The scheduler's rows become the graph allocator's record without looking at an edge
// twice: a graph of its own in which each copy is a node before its split that reads what it copies. So the source lives until
// then, and the copy from then on. With several graphs in flight, copies and inputs keep their memory to themselves, one place
// for each. What a backend wishes to keep until a node has run has a reader behind that node, which is in this plan only.
// The caller's tensors are only read.

#include "sched/sched.h"

#include "alloc/capture.h"
#include "alloc/galloc.h"

#include <string.h>

#define KEPT (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT) // taken before the first node, never given back

struct filler {
    struct ggml_backend_sched *sched;
    struct sched_memo *memo;
    struct record *rec;
    int32_t *copy_of;   // [n_srcs] the copy an edge leads to, -1: none; NULL: none do
    int32_t *first_dep; // [n_nodes] the first wish for the row, -1: none; NULL: there are none
    bool is_plain;      // the record's rows are the memo's
    bool is_broken;     // no memory
};

// ---- numbers of rows ----

static bool is_again(const struct sched_memo *memo, int32_t r) {
    const int32_t v = memo->rows[r].view_src;
    return v >= 0 && memo->tensors_at[v] == memo->tensors_at[r];
}

static void deps_link(struct filler *f) {
    struct sched_memo *memo = f->memo;
    memset(f->first_dep, -1, (size_t) memo->n_nodes * sizeof f->first_dep[0]);
    for (int32_t d = memo->n_deps - 1; d >= 0; d--) {
        memo->deps[d].next                = f->first_dep[memo->deps[d].until];
        f->first_dep[memo->deps[d].until] = d;
    }
    for (int32_t r = 0; r < memo->n_nodes; r++) {
        memo->rows[r].plan_row = -1; // not yet computed
    }
    for (int32_t i = 0; i < memo->n_copies; i++) {
        memo->copies[i].plan_row = -1;
    }
}

static int32_t dep_next(const struct filler *f, int32_t row) {
    return f->first_dep != NULL ? f->first_dep[row] : -1;
}

// Readers behind a node. What is computed later, or has memory of the caller's, needs none.
static int32_t number_deps(struct filler *f, int32_t row, int32_t at) {
    struct sched_memo *memo = f->memo;
    for (int32_t d = dep_next(f, row); d >= 0; d = memo->deps[d].next) {
        struct sched_dep *dep = &memo->deps[d];
        const bool is_there   = dep->row < 0 ? memo->copies[dep->copy].plan_row >= 0
                                             : (dep->row >= memo->n_nodes || memo->rows[dep->row].plan_row >= 0) &&
                                                 !memo->rows[sched_base(memo, dep->row)].is_placed;
        dep->plan_row         = is_there ? at++ : -1;
    }
    return at;
}

// Copies before their split, nodes as they run, then all else, then the further places of inputs.
static void number_rows(struct filler *f) {
    struct sched_memo *memo = f->memo;
    int32_t at              = 0;
    f->rec->n_twice         = 0;
    f->is_plain = memo->n_copies == 0 && memo->n_inputs == 0 && memo->n_deps == 0 && !memo->is_reordered && !memo->has_twice;
    if (f->is_plain) { // plan_row of each row is its own number
        f->rec->n_rows  = memo->n_rows;
        f->rec->n_nodes = memo->n_nodes;
        f->rec->n_leafs = memo->n_rows - memo->n_nodes;
        return;
    }
    for (int32_t s = 0; s < memo->n_splits; s++) {
        const struct sched_split *split = &memo->splits[s];
        for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
            memo->copies[i].plan_row = at;
            at += memo->n_slots;
        }
        for (int32_t i = split->i_start; i < split->i_end; i++) {
            memo->rows[sched_order(memo, i)].plan_row = at++;
            at                                        = number_deps(f, sched_order(memo, i), at);
        }
    }
    f->rec->n_nodes = at;
    for (int32_t r = memo->n_nodes; r < memo->n_rows; r++) {
        memo->rows[r].plan_row = is_again(memo, r) ? memo->rows[memo->rows[r].view_src].plan_row : at++;
    }
    f->rec->n_leafs = at + memo->n_inputs * (memo->n_slots - 1) - f->rec->n_nodes;
    f->rec->n_rows  = f->rec->n_nodes + f->rec->n_leafs;
}

static void number_edges(struct filler *f) {
    const struct sched_memo *memo = f->memo;
    memset(f->copy_of, -1, (size_t) memo->n_srcs * sizeof f->copy_of[0]);
    for (int32_t i = 0; i < memo->n_edges; i++) {
        const struct sched_edge *e = &memo->edges[i];
        int32_t k                  = memo->rows[e->node].src;
        while (memo->slots[k] != e->slot) {
            k++;
        }
        f->copy_of[k] = e->copy;
    }
}

// ---- rows ----

// Nobody compares these rows with another graph: the scheduler has done that.
static inline struct record_row *row_put(struct filler *f, int32_t at, struct ggml_tensor *t, int op, int flags, int backend) {
    return record_put(f->rec, at, t, op, flags, backend >= 0 ? backend : 0);
}

static struct record_row *formed_put(struct filler *f, int32_t at, struct ggml_tensor *t, int flags, int backend) {
    struct record_row *row = row_put(f, at, t, (int) t->op, flags, backend);
    row->shape             = berth_record_shape(f->rec, t);
    f->is_broken           = f->is_broken || row->shape < 0;
    return row;
}

// The layouts are the forms in their order.
static bool shapes_put(struct filler *f) {
    const struct sched_memo *memo = f->memo;
    f->rec->n_shapes              = 0;
    for (int32_t i = 0; i < memo->n_forms; i++) {
        const struct sched_form *form = &memo->forms[i];
        struct record_shape shape     = {.view_offs = form->view_offs, .n_bytes = form->nbytes, .type = form->type};
        memcpy(shape.ne, form->bytes, sizeof shape.ne);
        memcpy(shape.nb, form->bytes + sizeof shape.ne, sizeof shape.nb);
        if (!berth_record_shape_add(f->rec, &shape)) {
            return false;
        }
    }
    return true;
}

static void src_put(struct filler *f, struct record_row *row, int32_t plan_row, uint8_t slot) {
    f->rec->srcs[f->rec->n_srcs]    = plan_row;
    f->rec->slots[f->rec->n_srcs++] = slot;
    row->n_src++;
}

// The tensor itself is not looked at: its form is in the cache.
static void tensor_put(struct filler *f, int32_t r) {
    struct sched_memo *memo       = f->memo;
    const struct sched_row *row   = &memo->rows[r];
    const struct sched_form *form = &memo->forms[row->form];
    int32_t flags;
    memcpy(&flags, form->bytes + (offsetof(struct ggml_tensor, flags) - SCHED_FORM_OFF), sizeof flags);
    flags                 = (flags & KEPT) | (row->slots >= 0 ? GGML_TENSOR_FLAG_OUTPUT : 0);
    struct record_row *to = row_put(f, row->plan_row, memo->tensors_at[r], form->op, flags, row->backend);
    to->shape             = row->form;
    to->has_memory        = memo->rows[sched_base(memo, r)].is_placed;
    if (f->is_plain) {
        to->view_src = row->view_src;
        to->src      = row->src;
        to->n_src    = row->n_src;
        return;
    }
    if (is_again(memo, r)) {
        to->same_as = memo->rows[row->view_src].plan_row;
        f->rec->n_twice++;
    } else if (row->view_src >= 0) {
        to->view_src = memo->rows[row->view_src].plan_row;
    }
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t copy = f->copy_of != NULL ? f->copy_of[k] : -1;
        src_put(f, to, copy >= 0 ? memo->copies[copy].plan_row : memo->rows[memo->srcs[k]].plan_row, memo->slots[k]);
    }
}

static void copy_put(struct filler *f, int32_t i, int32_t backend) {
    struct sched_memo *memo = f->memo;
    const int32_t at        = memo->copies[i].plan_row;
    for (int slot = 0; slot < memo->n_slots; slot++) {
        struct ggml_tensor *t  = sched_copy_tensor(memo, i, slot);
        struct record_row *row = formed_put(f, at + slot, t, memo->n_slots > 1 ? KEPT : 0, backend);
        if (slot == 0) {
            row->op = GGML_OP_DUP;
            src_put(f, row, memo->rows[memo->copies[i].row].plan_row, 0);
        }
    }
}

static void deps_put(struct filler *f, int32_t row, int32_t backend) {
    struct sched_memo *memo = f->memo;
    for (int32_t d = dep_next(f, row); d >= 0; d = memo->deps[d].next) {
        const struct sched_dep *dep = &memo->deps[d];
        if (dep->plan_row < 0) {
            continue;
        }
        const bool is_copy        = dep->row < 0;
        struct ggml_tensor *t     = is_copy ? sched_copy_tensor(memo, dep->copy, 0) : memo->tensors_at[dep->row];
        const int32_t kept        = is_copy ? memo->copies[dep->copy].plan_row : memo->rows[dep->row].plan_row;
        struct record_row *reader = row_put(f, dep->plan_row, t, GGML_OP_NONE, 0, backend);
        reader->view_src          = is_copy ? kept : memo->rows[sched_base(memo, dep->row)].plan_row;
        src_put(f, reader, kept, 0);
    }
}

static void record_fill(struct filler *f) {
    struct sched_memo *memo = f->memo;
    f->rec->n_srcs          = 0;
    f->is_broken            = !shapes_put(f);
    if (f->is_plain) {
        for (int32_t r = 0; r < memo->n_rows; r++) {
            tensor_put(f, r);
        }
        f->rec->n_srcs = memo->n_srcs;
        if (memo->n_srcs > 0) {
            memcpy(f->rec->srcs, memo->srcs, (size_t) memo->n_srcs * sizeof f->rec->srcs[0]);
            memcpy(f->rec->slots, memo->slots, (size_t) memo->n_srcs * sizeof f->rec->slots[0]);
        }
        return;
    }
    for (int32_t s = 0; s < memo->n_splits; s++) {
        const struct sched_split *split = &memo->splits[s];
        for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
            copy_put(f, i, split->backend);
        }
        for (int32_t i = split->i_start; i < split->i_end; i++) {
            tensor_put(f, sched_order(memo, i));
            deps_put(f, sched_order(memo, i), split->backend);
        }
    }
    int32_t at = f->rec->n_rows - memo->n_inputs * (memo->n_slots - 1);
    for (int32_t r = 0; r < memo->n_rows; r++) {
        if (r >= memo->n_nodes && !is_again(memo, r)) {
            tensor_put(f, r);
        }
        for (int slot = 1; memo->rows[r].slots >= 0 && slot < memo->n_slots; slot++) {
            formed_put(f, at++, sched_ghost(memo, &memo->rows[r], slot), KEPT, memo->rows[r].backend);
        }
    }
}

static bool make_room(struct filler *f) {
    const struct sched_memo *memo = f->memo;
    const size_t n_slots          = (size_t) memo->n_slots;
    const size_t n_deps           = (size_t) memo->n_deps;
    const size_t n = (size_t) memo->n_rows + ((size_t) memo->n_copies + (size_t) memo->n_inputs) * n_slots + n_deps + 1;
    return berth_record_room(f->rec, n, (size_t) memo->n_srcs + (size_t) memo->n_copies + n_deps + 1);
}

// ---- the plan ----

enum ggml_status sched_plan(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    struct ggml_gallocr *galloc = sched->galloc;
    sched->plan                 = sched->plan != NULL ? sched->plan : berth_galloc_plan_new(galloc);
    if (sched->plan == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    struct filler f     = {.sched = sched, .memo = memo, .rec = &sched->plan->rec};
    const size_t n_srcs = memo->n_edges > 0 ? (size_t) memo->n_srcs : 0, n_nodes = memo->n_deps > 0 ? (size_t) memo->n_nodes : 0;
    int32_t *scratch = n_srcs + n_nodes > 0 ? sched_scratch(sched, (n_srcs + n_nodes) * sizeof scratch[0]) : NULL;
    f.copy_of        = n_srcs > 0 ? scratch : NULL;
    f.first_dep      = n_nodes > 0 && scratch != NULL ? scratch + n_srcs : NULL;
    if ((n_srcs + n_nodes > 0 && scratch == NULL) || !make_room(&f)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the plan of %d nodes", memo->n_nodes);
    }
    if (f.first_dep != NULL) {
        deps_link(&f);
    }
    number_rows(&f);
    if (f.copy_of != NULL) {
        number_edges(&f);
    }
    record_fill(&f);
    if (f.is_broken) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the layouts of %d nodes", memo->n_nodes);
    }

    const struct record_rules sizes   = berth_galloc_record_rules(galloc);
    const struct lifetime_rules rules = berth_galloc_lifetime_rules(galloc);
    sched->plan->is_ready = sched->plan->is_reshaped = false;
    sched->plan->places_epoch                        = 0;
    enum ggml_status status =
        berth_lifetimes(&sched->plan->lives, &sched->plan->rec, &sizes, &rules, galloc->aligns, galloc->pool_of);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_galloc_plan_solve(galloc, sched->plan);
    }
    if (status == GGML_STATUS_SUCCESS) {
        berth_capture(galloc, sched->plan);
    }
    return status;
}

void sched_plan_fini(struct ggml_backend_sched *sched) {
    if (sched->plan != NULL) {
        berth_galloc_plan_free(sched->galloc, sched->plan);
        sched->plan = NULL;
    }
}

// Backends of one buffer type share a pool; the first of them counts.
void sched_plan_sizes(const struct ggml_backend_sched *sched, size_t *sizes) {
    const struct ggml_gallocr *galloc = sched->galloc;
    for (int b = 0; b < sched->n_backends; b++) {
        bool is_first = true;
        for (int other = 0; other < b; other++) {
            is_first = is_first && galloc->pool_of[other] != galloc->pool_of[b];
        }
        const struct galloc_need *need = &sched->plan->needs[galloc->pool_of[b]];
        sizes[b]                       = 0;
        for (size_t c = 0; is_first && c < need->n; c++) {
            sizes[b] += need->sizes[c];
        }
    }
}

// Where tensors of no bytes lie in a buffer of no bytes.
static _Alignas(64) char nothing[64];

void sched_plan_spot(const struct ggml_backend_sched *sched, int32_t plan_row, ggml_backend_buffer_t *mem, void **data) {
    const struct record *rec = &sched->plan->rec;
    const int32_t item       = rec->rows[rec->rows[plan_row].same_as].item;
    *mem                     = NULL;
    *data                    = NULL;
    if (item >= 0) {
        const struct galloc_spot *spot   = &sched->plan->spots[item];
        const struct galloc_chunk *chunk = &sched->galloc->pools[spot->pool].chunks[spot->chunk];
        *mem                             = chunk->buffer;
        *data                            = chunk->base != NULL ? chunk->base + spot->off : nothing;
    }
}

// SPDX-License-Identifier: MIT
// plan.c: one memory plan over all splits, by the graph allocator, for the record of a graph of its own: the rows of the memo's
// record, and among them each copy as a node before its split that reads what it copies. So the source lives until then, and the
// copy from then on. With several graphs in flight, copies and inputs keep their memory to themselves, one place for each. What a
// backend wishes to keep until a node has run has a reader behind that node, which is in this plan only.
// No tensor is looked at, no edge twice.

#include "sched/sched.h"

#include <string.h>

struct filler {
    struct sched_memo *memo;
    struct record *rec; // the plan's
    int32_t *copy_of;   // [n_srcs] the copy an edge leads to, -1: none; NULL: none do
    int32_t *first_dep; // [n_nodes] the first wish for the row, -1: none; NULL: there are none
};

// ---- numbers of rows ----

static bool is_again(const struct sched_memo *memo, int32_t r) {
    return memo->rec.rows[r].view_src < 0 && memo->rec.rows[r].same_as != r;
}

static void deps_link(struct filler *f) {
    struct sched_memo *memo = f->memo;
    memset(f->first_dep, -1, (size_t) memo->rec.n_nodes * sizeof f->first_dep[0]);
    for (int32_t d = memo->n_deps - 1; d >= 0; d--) {
        memo->deps[d].next                = f->first_dep[memo->deps[d].until];
        f->first_dep[memo->deps[d].until] = d;
    }
    for (int32_t r = 0; r < memo->rec.n_nodes; r++) {
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
                                             : (dep->row >= memo->rec.n_nodes || memo->rows[dep->row].plan_row >= 0) &&
                                                 !memo->rows[dep->row].is_placed;
        dep->plan_row         = is_there ? at++ : -1;
    }
    return at;
}

// Copies before their split, nodes as they run, then all else, then the further places of inputs.
static void number_rows(struct filler *f) {
    struct sched_memo *memo = f->memo;
    int32_t at              = 0;
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
    for (int32_t r = memo->rec.n_nodes; r < memo->rec.n_rows; r++) {
        memo->rows[r].plan_row = is_again(memo, r) ? memo->rows[memo->rec.rows[r].same_as].plan_row : at++;
    }
    f->rec->n_leafs = at + memo->n_inputs * (memo->n_slots - 1) - f->rec->n_nodes;
    f->rec->n_rows  = f->rec->n_nodes + f->rec->n_leafs;
}

static void number_edges(struct filler *f) {
    const struct sched_memo *memo = f->memo;
    memset(f->copy_of, -1, (size_t) memo->rec.n_srcs * sizeof f->copy_of[0]);
    for (int32_t i = 0; i < memo->n_edges; i++) {
        const struct sched_edge *e = &memo->edges[i];
        int32_t k                  = memo->rec.rows[e->node].src;
        while (memo->rec.slots[k] != e->slot) {
            k++;
        }
        f->copy_of[k] = e->copy;
    }
}

// ---- rows ----

// Nobody compares these rows with another graph: the scheduler has done that.
static struct record_row *row_put(
    struct filler *f, int32_t at, struct ggml_tensor *t, int op, int flags, int32_t form, int backend) {
    struct record_row *row = record_put(f->rec, at, t, op, flags);
    row->form              = form;
    lifetime_row_put(f->rec, at, backend >= 0 ? backend : 0);
    return row;
}

static void tensor_put(struct filler *f, int32_t r) {
    const struct sched_memo *memo = f->memo;
    const struct record_row *from = &memo->rec.rows[r];
    const struct sched_row *row   = &memo->rows[r];
    const int flags               = from->flags | (row->slots >= 0 ? GGML_TENSOR_FLAG_OUTPUT : 0);
    struct record_row *to         = row_put(f, row->plan_row, memo->rec.tensors[r], from->op, flags, from->form, row->backend);
    to->has_memory                = from->has_memory;
    if (is_again(memo, r)) {
        to->same_as = memo->rows[from->same_as].plan_row;
        f->rec->n_twice++;
    } else if (from->view_src >= 0) {
        to->view_src = memo->rows[from->view_src].plan_row;
    }
    for (int32_t k = from->src; k < from->src + from->n_src; k++) {
        const int32_t copy = f->copy_of != NULL ? f->copy_of[k] : -1;
        record_src_put(
            f->rec, to, copy >= 0 ? memo->copies[copy].plan_row : memo->rows[memo->rec.srcs[k]].plan_row, memo->rec.slots[k]);
    }
}

// A copy has the layout of what it copies.
static void copy_put(struct filler *f, int32_t i, int32_t backend) {
    const struct sched_memo *memo = f->memo;
    const struct sched_copy *copy = &memo->copies[i];
    const int flags               = memo->n_slots > 1 ? RECORD_FLAGS : 0;
    for (int slot = 0; slot < memo->n_slots; slot++) {
        struct record_row *row = row_put(f, copy->plan_row + slot, sched_copy_tensor(memo, i, slot),
            slot == 0 ? GGML_OP_DUP : GGML_OP_NONE, flags, memo->rec.rows[copy->row].form, backend);
        if (slot == 0) {
            record_src_put(f->rec, row, memo->rows[copy->row].plan_row, 0);
        }
    }
}

static void deps_put(struct filler *f, int32_t row, int32_t backend) {
    const struct sched_memo *memo = f->memo;
    for (int32_t d = dep_next(f, row); d >= 0; d = memo->deps[d].next) {
        const struct sched_dep *dep = &memo->deps[d];
        if (dep->plan_row < 0) {
            continue;
        }
        const bool is_copy        = dep->row < 0;
        struct ggml_tensor *t     = is_copy ? sched_copy_tensor(memo, dep->copy, 0) : memo->rec.tensors[dep->row];
        const int32_t kept        = is_copy ? memo->copies[dep->copy].plan_row : memo->rows[dep->row].plan_row;
        struct record_row *reader = row_put(f, dep->plan_row, t, GGML_OP_NONE, 0, -1, backend);
        reader->view_src          = is_copy ? kept : memo->rows[sched_base(memo, dep->row)].plan_row;
        record_src_put(f->rec, reader, kept, 0);
    }
}

static void record_fill(struct filler *f) {
    const struct sched_memo *memo = f->memo;
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
    for (int32_t r = 0; r < memo->rec.n_rows; r++) {
        const struct sched_row *row = &memo->rows[r];
        if (r >= memo->rec.n_nodes && !is_again(memo, r)) {
            tensor_put(f, r);
        }
        for (int slot = 1; row->slots >= 0 && slot < memo->n_slots; slot++) {
            row_put(f, at++, sched_ghost(memo, row, slot), GGML_OP_NONE, RECORD_FLAGS, memo->rec.rows[r].form, row->backend);
        }
    }
}

// Nothing is between the rows: they are the plan's. All that is not computed is there before the first node.
static void record_share(struct filler *f) {
    const struct record *from = &f->memo->rec;
    struct record *rec        = f->rec;
    const size_t n_rows = (size_t) from->n_rows, n_srcs = (size_t) from->n_srcs;
    rec->n_rows  = from->n_rows;
    rec->n_nodes = from->n_nodes;
    rec->n_leafs = from->n_rows - from->n_nodes;
    rec->n_srcs  = from->n_srcs;
    if (n_rows > 0) {
        memcpy(rec->rows, from->rows, n_rows * sizeof rec->rows[0]);
        memcpy(rec->tensors, from->tensors, n_rows * sizeof rec->tensors[0]);
        memcpy(rec->srcs, from->srcs, n_srcs * sizeof rec->srcs[0]);
        memcpy(rec->slots, from->slots, n_srcs * sizeof rec->slots[0]);
    }
    for (int32_t r = 0; r < from->n_rows; r++) {
        lifetime_row_put(rec, r, f->memo->rows[r].backend >= 0 ? f->memo->rows[r].backend : 0);
    }
}

static bool make_room(struct filler *f) {
    const struct sched_memo *memo = f->memo;
    const size_t n_slots          = (size_t) memo->n_slots;
    const size_t n_deps           = (size_t) memo->n_deps;
    const size_t n = (size_t) memo->rec.n_rows + ((size_t) memo->n_copies + (size_t) memo->n_inputs) * n_slots + n_deps + 1;
    return berth_record_room(f->rec, n, (size_t) memo->rec.n_srcs + (size_t) memo->n_copies + n_deps + 1);
}

// ---- the plan ----

enum ggml_status sched_plan(struct ggml_backend_sched *sched, struct sched_memo *memo) {
    sched->plan = sched->plan != NULL ? sched->plan : berth_galloc_plan_new(sched->galloc, false);
    if (sched->plan == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    struct filler f      = {.memo = memo, .rec = berth_galloc_plan_record(sched->plan)};
    const size_t n_srcs  = memo->n_edges > 0 ? (size_t) memo->rec.n_srcs : 0;
    const size_t n_nodes = memo->n_deps > 0 ? (size_t) memo->rec.n_nodes : 0;
    int32_t *scratch     = n_srcs + n_nodes > 0 ? sched_scratch(sched, (n_srcs + n_nodes) * sizeof scratch[0]) : NULL;
    f.copy_of            = n_srcs > 0 ? scratch : NULL;
    f.first_dep          = n_nodes > 0 && scratch != NULL ? scratch + n_srcs : NULL;
    if ((n_srcs + n_nodes > 0 && scratch == NULL) || !make_room(&f)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the plan of %d nodes", memo->rec.n_nodes);
    }
    berth_record_clear(f.rec);
    if (memo->n_copies == 0 && memo->n_inputs == 0 && memo->n_deps == 0 && !memo->is_reordered && memo->rec.n_twice == 0) {
        record_share(&f);
    } else {
        if (f.first_dep != NULL) {
            deps_link(&f);
        }
        number_rows(&f);
        if (f.copy_of != NULL) {
            number_edges(&f);
        }
        record_fill(&f);
    }
    f.rec->forms                  = memo->rec.forms;
    const enum ggml_status status = berth_galloc_plan_make(sched->galloc, sched->plan);
    f.rec->forms                  = NULL;
    return status;
}

// SPDX-License-Identifier: MIT
// record_match.c: is a graph the one that was recorded? One linear pass that hashes nothing and takes no memory: row i of the
// record stands for a known tensor of the graph, so that an edge is right when both ends are. The pass waits for memory more
// than it computes, so it reads of a tensor only what decides, and places it on the way.

#include "alloc/record.h"

#include "core/op.h"
#include "ggml-backend-impl.h"

#include <string.h>

#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)

#define AHEAD 6 // rows; tensors are larger than what a core fetches ahead by itself

// ---- lists ----

static bool same_ids(const struct record *rec, const int *node_bufs, const int *leaf_bufs) {
    for (int32_t i = 0; node_bufs != NULL && i < rec->n_nodes; i++) {
        if (node_bufs[i] != rec->rows[i].id) {
            return false;
        }
    }
    for (int32_t i = 0; leaf_bufs != NULL && i < rec->n_leafs; i++) {
        if (leaf_bufs[i] != rec->rows[rec->n_nodes + i].id) {
            return false;
        }
    }
    return true;
}

static bool same_twice(const struct record *rec) {
    for (int32_t i = 0; rec->n_twice > 0 && i < rec->n_nodes + rec->n_leafs; i++) {
        if (rec->tensors[i] != rec->tensors[rec->rows[i].same_as]) {
            return false;
        }
    }
    return true;
}

// The graph's own tensors into rec.tensors; the others are met through them.
static bool same_lists(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs, const int *leaf_bufs) {
    const size_t n_listed = (size_t) rec->n_nodes + (size_t) rec->n_leafs;
    if (graph->n_nodes != rec->n_nodes || graph->n_leafs != rec->n_leafs || !same_ids(rec, node_bufs, leaf_bufs)) {
        return false;
    }
    if (rec->n_nodes > 0) {
        memcpy(rec->tensors, graph->nodes, (size_t) rec->n_nodes * sizeof rec->tensors[0]);
    }
    if (rec->n_leafs > 0) {
        memcpy(rec->tensors + rec->n_nodes, graph->leafs, (size_t) rec->n_leafs * sizeof rec->tensors[0]);
    }
    if ((size_t) rec->n_rows > n_listed) {
        memset(rec->tensors + n_listed, 0, ((size_t) rec->n_rows - n_listed) * sizeof rec->tensors[0]);
    }
    return same_twice(rec);
}

// ---- edges ----

// Is row r of the record this tensor? A row outside the graph is met through its users: the first one says who it is.
static inline bool is_row(struct record *rec, int32_t r, struct ggml_tensor *t) {
    if (BERTH_UNLIKELY(rec->tensors[r] == NULL)) {
        rec->tensors[r] = t;
    }
    return rec->tensors[r] == t;
}

static inline bool same_view(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
    return row->view_src < 0 ? t->view_src == NULL : t->view_src != NULL && is_row(rec, row->view_src, t->view_src);
}

// All that are recorded are there, and there are not more. Also meets rows outside the graph.
static bool same_srcs_any(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
    int64_t n = 0;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        n += t->src[k] != NULL;
    }
    if (n != row->n_src) {
        return false;
    }
    for (int32_t at = row->src; at < row->src + row->n_src; at++) {
        struct ggml_tensor *s = t->src[rec->slots[at]];
        if (s == NULL || !is_row(rec, rec->srcs[at], s)) {
            return false;
        }
    }
    return true;
}

static inline bool same_srcs(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src, *const *tensors = rec->tensors;
    const uintptr_t near = ((uintptr_t) s[0] ^ (uintptr_t) tensors[row->near[0]]) |
                           ((uintptr_t) s[1] ^ (uintptr_t) tensors[row->near[1]]) |
                           ((uintptr_t) s[2] ^ (uintptr_t) tensors[row->near[2]]);
    return (near == 0 && row->is_plain && record_has_only_near(t)) || same_srcs_any(rec, row, t);
}

// ---- owners ----

// Whether tensors have memory of somebody else. Neighbours mostly lie in one buffer, so the last answer is kept.
struct owner_check {
    const struct record_rules *rules;
    const struct ggml_backend_buffer *foreign; // known not to be ours
};

static inline bool has_memory(struct owner_check *c, const struct ggml_tensor *t) {
    if (t->buffer == NULL || t->buffer == c->foreign) {
        return t->buffer != NULL || t->data != NULL;
    }
    if (c->rules->is_ours(c->rules->user, t)) {
        return false;
    }
    c->foreign = t->buffer;
    return true;
}

// A leaf with memory of its own matters to nobody's place, whatever it is.
static inline bool is_foreign_leaf(const struct record_row *row) {
    return row->has_memory && row->view_src < 0 && row->n_src == 0 && row->op == GGML_OP_NONE;
}

// ---- places ----

struct walk {
    struct record *rec;
    struct owner_check owner;
    struct record_placer *placer;
    int32_t n_written;
    bool is_same_shape, is_in_place;
};

static inline void write_place(struct walk *w, struct ggml_tensor *t, ggml_backend_buffer_t buffer, void *data) {
    w->placer->undo[w->n_written++] = (struct record_undo){t, t->data};
    t->buffer                       = buffer;
    t->data                         = data;
}

// Fine if it is there, or can be put there; otherwise the placer is not done.
static inline bool row_place(struct walk *w, int32_t i, const struct record_row *row, struct ggml_tensor *t) {
    const struct record_place at = w->placer != NULL ? w->placer->places[i] : (struct record_place){NULL, NULL};
    const bool is_view           = row->view_src >= 0;
    const bool may_write         = w->placer != NULL && w->placer->may_write && w->is_same_shape;
    if (at.buffer != NULL) {
        void *data = at.data + (is_view ? t->view_offs : 0);
        if (t->buffer == at.buffer && t->data == data) {
            return true;
        }
        if (may_write && t->buffer == NULL && (is_view || t->data == NULL)) {
            write_place(w, t, at.buffer, data);
            return true;
        }
        w->is_in_place = false;
    } else if (is_view && t->buffer == NULL && t->view_src->buffer != NULL) { // somebody else's memory, and not told so yet
        if (may_write && t->view_src->buffer->iface.init_tensor == NULL && w->rec->rows[row->view_src].has_memory) {
            write_place(w, t, t->view_src->buffer, (char *) t->view_src->data + t->view_offs);
        } else {
            w->is_in_place = false;
        }
    }
    return is_view || has_memory(&w->owner, t) == row->has_memory;
}

static void undo(struct walk *w) {
    for (int32_t i = w->n_written - 1; i >= 0; i--) {
        w->placer->undo[i].tensor->buffer = NULL;
        w->placer->undo[i].tensor->data   = w->placer->undo[i].data;
    }
    w->n_written = 0;
}

// ---- the match ----

static inline bool same_row(struct walk *w, int32_t i, const struct record_row *row, struct ggml_tensor *t, bool is_listed) {
    if (is_foreign_leaf(row)) {
        return t->view_src == NULL && has_memory(&w->owner, t);
    }
    if (((int32_t) t->op ^ row->op) != 0 || ((t->flags & RECORD_FLAGS) ^ row->flags) != 0 || !same_view(w->rec, row, t) ||
        (is_listed && !same_srcs(w->rec, row, t))) {
        return false;
    }
    w->is_same_shape = w->is_same_shape && (row->shape < 0 || record_is_shape(&w->rec->shapes[row->shape], t));
    return row_place(w, i, row, t);
}

static inline void fetch_ahead(const struct record_row *row, const struct ggml_tensor *next) {
    __builtin_prefetch(next);
    __builtin_prefetch((const char *) next + 192);
    if (!row->has_memory) {
        __builtin_prefetch((const char *) next + 64);
        __builtin_prefetch((const char *) next + 128);
        __builtin_prefetch((const char *) next + 256);
    }
}

enum record_match berth_record_match(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules, struct record_placer *placer) {
    const int32_t n_listed = rec->n_nodes + rec->n_leafs;
    struct walk w = {.rec = rec, .owner = {.rules = rules}, .placer = placer, .is_same_shape = true, .is_in_place = true};
    bool is_same  = same_lists(rec, graph, node_bufs, leaf_bufs);
    for (int32_t i = 0; i < rec->n_rows && is_same; i++) {
        if (i + AHEAD < n_listed) {
            fetch_ahead(&rec->rows[i + AHEAD], rec->tensors[i + AHEAD]);
        }
        is_same = rec->tensors[i] != NULL && same_row(&w, i, &rec->rows[i], rec->tensors[i], i < n_listed);
    }
    if (!is_same || !w.is_same_shape) {
        undo(&w);
        return is_same ? RECORD_RESHAPED : RECORD_DIFFERS;
    }
    if (placer != NULL) {
        placer->is_done = w.is_in_place;
    }
    return RECORD_SAME;
}

bool berth_record_reshape(struct record *rec) {
    rec->n_shapes = 0;
    for (int32_t i = 0; i < rec->n_rows; i++) {
        if (rec->rows[i].shape < 0) {
            continue;
        }
        rec->rows[i].shape = berth_record_shape(rec, rec->tensors[i]);
        if (rec->rows[i].shape < 0) {
            return false;
        }
    }
    return true;
}

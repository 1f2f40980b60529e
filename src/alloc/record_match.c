// SPDX-License-Identifier: MIT
// record_match.c: is a graph the one that was recorded? One linear pass that hashes nothing and takes no memory: row i of the
// record stands for a known tensor of the graph, so that an edge is right when both ends are. The pass reads of a tensor only
// what decides, and places it on the way: 9 ns a tensor where ggml takes 20.

#include "alloc/record.h"

#include "core/op.h"
#include "ggml-backend-impl.h"

#include <string.h>

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
    for (int32_t k = 0; k < rec->n_twice; k++) {
        const int32_t i = rec->twice[k];
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
static bool same_srcs(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
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

// Sources that are all near, as most are, without a look at the list.
static inline bool same_near(struct ggml_tensor *const *tensors, const struct record_row *row, const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    const uintptr_t differ       = ((uintptr_t) s[0] ^ (uintptr_t) tensors[row->near[0]]) |
                             ((uintptr_t) s[1] ^ (uintptr_t) tensors[row->near[1]]) |
                             ((uintptr_t) s[2] ^ (uintptr_t) tensors[row->near[2]]);
    return differ == 0 && row->is_plain && record_has_only_near(t);
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

// ---- places ----

static void undo(const struct record_placer *placer, int32_t n) {
    while (--n >= 0) {
        placer->undo[n].tensor->buffer = NULL;
        placer->undo[n].tensor->data   = placer->undo[n].data;
    }
}

// Where a view of somebody else's memory lies, if it was not told so yet.
static inline bool is_untold(const struct ggml_tensor *t) {
    return t->view_src != NULL && t->buffer == NULL && t->view_src->buffer != NULL;
}

// ---- the match ----

static inline void fetch_ahead(const struct record_row *row, const struct ggml_tensor *next) {
    __builtin_prefetch(next);
    __builtin_prefetch((const char *) next + 192);
    if (!row->has_memory) {
        __builtin_prefetch((const char *) next + 64);
        __builtin_prefetch((const char *) next + 128);
        __builtin_prefetch((const char *) next + 256);
    }
}

// What the loop uses all the time is in its own variables: what it writes into tensors might be anything to the compiler.
enum record_match berth_record_match(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules, struct record_placer *placer) {
    if (!same_lists(rec, graph, node_bufs, leaf_bufs)) {
        return RECORD_DIFFERS;
    }
    const int32_t n_rows = rec->n_rows, n_listed = rec->n_nodes + rec->n_leafs;
    const struct record_row *const rows     = rec->rows;
    const struct record_shape *const shapes = rec->shapes;
    struct ggml_tensor *const *tensors      = rec->tensors;
    const struct record_place *const places = placer != NULL ? placer->places : NULL;
    struct owner_check owner                = {.rules = rules};
    bool may_write = placer != NULL && placer->may_write, is_in_place = true, is_same_shape = true;
    int32_t n_written = 0, i = 0;
    for (; i < n_rows; i++) {
        const struct record_row *row = &rows[i];
        struct ggml_tensor *t        = tensors[i];
        if (i + RECORD_AHEAD < n_listed) {
            fetch_ahead(&rows[i + RECORD_AHEAD], tensors[i + RECORD_AHEAD]);
        }
        if (BERTH_UNLIKELY(t == NULL)) {
            break;
        }
        if (row->is_foreign) {
            if (t->view_src != NULL || !has_memory(&owner, t)) {
                break;
            }
            continue;
        }
        if (((int32_t) t->op ^ row->op) != 0 || ((t->flags & RECORD_FLAGS) ^ row->flags) != 0 || !same_view(rec, row, t) ||
            (i < n_listed && !same_near(tensors, row, t) && !same_srcs(rec, row, t))) {
            break;
        }
        if (row->shape >= 0 && !record_is_shape(&shapes[row->shape], t)) {
            is_same_shape = may_write = false;
        }
        ggml_backend_buffer_t buffer = places != NULL ? places[i].buffer : NULL;
        if (buffer != NULL) {
            const bool is_view = row->view_src >= 0;
            void *data         = places[i].data + (is_view ? t->view_offs : 0);
            if (t->buffer == buffer && t->data == data) {
                continue;
            }
            if (may_write && t->buffer == NULL && (is_view || t->data == NULL)) {
                placer->undo[n_written++] = (struct record_undo){t, t->data};
                t->buffer                 = buffer;
                t->data                   = data;
                continue;
            }
            is_in_place = false;
        } else if (row->view_src >= 0 && is_untold(t)) {
            if (may_write && t->view_src->buffer->iface.init_tensor == NULL && rows[row->view_src].has_memory) {
                placer->undo[n_written++] = (struct record_undo){t, t->data};
                t->buffer                 = t->view_src->buffer;
                t->data                   = (char *) t->view_src->data + t->view_offs;
            } else {
                is_in_place = false;
            }
        }
        if (row->view_src < 0 && has_memory(&owner, t) != row->has_memory) {
            break;
        }
    }
    if (i < n_rows || !is_same_shape) {
        undo(placer, n_written);
        return i < n_rows ? RECORD_DIFFERS : RECORD_RESHAPED;
    }
    if (placer != NULL) {
        placer->is_done = is_in_place;
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

// SPDX-License-Identifier: MIT
// match.c: compares a graph with a record in one linear pass, without hashing or allocation, and assigns addresses in the same
// pass. Row i corresponds to the i-th listed tensor, so edges are compared by pointer. The comparison takes 9 ns per tensor;
// ggml's takes 20 ns.

#include "record/record.h"

// ---- lists ----

static bool same_duplicates(const struct record *rec) {
    for (int32_t k = 0; k < rec->n_duplicates; k++) {
        const int32_t i = rec->duplicates[k];
        if (rec->tensors[i] != rec->tensors[rec->rows[i].same_as]) {
            return false;
        }
    }
    return true;
}

// Stores the listed tensors of the graph in rec->tensors. Sets *is_moved to true if some of these tensors have changed. The
// entries of unlisted tensors are then NULL until is_row sets them. Returns false if the numbers of tensors or the duplicates
// differ.
static bool same_lists(struct record *rec, const struct ggml_cgraph *graph, bool *is_moved) {
    if (graph->n_nodes != rec->n_nodes || graph->n_leafs != rec->n_leafs) {
        return false;
    }
    const size_t n_nodes = (size_t) rec->n_nodes, n_leafs = (size_t) rec->n_leafs, n_listed = n_nodes + n_leafs;

    *is_moved = !rec->is_full_match || rec->is_lost ||
                (n_nodes > 0 && memcmp(rec->tensors, graph->nodes, n_nodes * sizeof rec->tensors[0]) != 0) ||
                (n_leafs > 0 && memcmp(rec->tensors + n_nodes, graph->leafs, n_leafs * sizeof rec->tensors[0]) != 0);
    if (!*is_moved) {
        return true;
    }
    rec->is_lost = true; // until the comparison has succeeded
    rec->has_index = false;
    if (n_nodes > 0) {
        memcpy(rec->tensors, graph->nodes, n_nodes * sizeof rec->tensors[0]);
    }
    if (n_leafs > 0) {
        memcpy(rec->tensors + n_nodes, graph->leafs, n_leafs * sizeof rec->tensors[0]);
    }
    if ((size_t) rec->n_rows > n_listed) {
        memset(rec->tensors + n_listed, 0, ((size_t) rec->n_rows - n_listed) * sizeof rec->tensors[0]);
    }
    return same_duplicates(rec);
}

// ---- edges ----

// Returns true if row r of the record is this tensor. If row r is unlisted and has no tensor yet, it becomes this tensor.
static inline bool is_row(struct record *rec, int32_t r, struct ggml_tensor *t) {
    if (BERTH_UNLIKELY(rec->tensors[r] == NULL)) {
        rec->tensors[r] = t;
    }
    return rec->tensors[r] == t;
}

static inline bool same_view(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
    return row->view_src < 0 ? t->view_src == NULL : t->view_src != NULL && is_row(rec, row->view_src, t->view_src);
}

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

// Fast path: all sources are listed and in the first three slots.
static inline bool same_src_rows(struct ggml_tensor *const *tensors, const struct record_row *row, const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    const uintptr_t differ = ((uintptr_t) s[0] ^ (uintptr_t) tensors[row->src_rows[0]]) |
                             ((uintptr_t) s[1] ^ (uintptr_t) tensors[row->src_rows[1]]) |
                             ((uintptr_t) s[2] ^ (uintptr_t) tensors[row->src_rows[2]]);
    return differ == 0 && row->is_plain && record_has_only_src_rows(t);
}

// ---- ownership of memory ----

// Caches the last buffer of the caller, because adjacent tensors mostly share a buffer.
struct owner_check {
    const struct record_rules *rules;
    const struct ggml_backend_buffer *foreign; // a buffer that the allocator does not own
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

static inline bool same_kind(const struct record_row *row, const struct ggml_tensor *t) {
    return t->buffer != NULL ? row->buft == t->buffer->buft && row->usage == (uint8_t) t->buffer->usage : row->buft == NULL;
}

// ---- addresses ----

static void places_undo(const struct record_undo *first, const struct record_undo *end) {
    while (end != first) {
        end--;
        end->tensor->buffer = NULL;
        end->tensor->data = end->data;
    }
}

// Returns true for a view of the caller's memory that has no address yet.
static inline bool is_unplaced_view(const struct ggml_tensor *t) {
    return t->view_src != NULL && t->buffer == NULL && t->view_src->buffer != NULL;
}

// Returns true for a view that disagrees with the address of its source.
static inline bool is_misplaced_view(const struct ggml_tensor *t) {
    const struct ggml_tensor *from = t->view_src;
    return from->data != NULL && (t->data != (char *) from->data + t->view_offs || t->buffer != from->buffer);
}

// Calls init_tensor. The source of a view must have a buffer, because init_tensor may read the source. On failure the tensor is
// restored.
static bool buffer_init_tensor(struct ggml_tensor *t, void *old_data) {
    if ((t->view_src == NULL || t->view_src->buffer != NULL) &&
        t->buffer->iface.init_tensor(t->buffer, t) == GGML_STATUS_SUCCESS) {
        return true;
    }
    t->buffer = NULL;
    t->data = old_data;
    return false;
}

// Sets the address of t. Stores in *undo how to restore t. has_no_init: the buffer has no init_tensor.
static inline bool tensor_place(
    struct record_undo *undo, struct ggml_tensor *t, ggml_backend_buffer_t buffer, void *data, const bool has_no_init) {
    *undo = (struct record_undo){t, t->data};
    t->buffer = buffer;
    t->data = data;
    return has_no_init || BERTH_LIKELY(buffer->iface.init_tensor == NULL) || buffer_init_tensor(t, undo->data);
}

static inline bool view_place(struct record_undo *undo, struct ggml_tensor *t, const bool is_full_match) {
    const struct ggml_tensor *from = t->view_src;
    return is_unplaced_view(t) && (is_full_match || from->buffer->iface.init_tensor == NULL) &&
           tensor_place(undo, t, from->buffer, (char *) from->data + t->view_offs, !is_full_match);
}

// ---- comparison ----

static inline void fetch_ahead(const struct record_row *row, const struct ggml_tensor *next, bool is_full_match) {
    if (is_full_match) {
        record_fetch(next);
        return;
    }
    __builtin_prefetch(next);
    __builtin_prefetch((const char *) next + 192);
    if (!row->has_memory) {
        __builtin_prefetch((const char *) next + 64);
        __builtin_prefetch((const char *) next + 128);
        __builtin_prefetch((const char *) next + 256);
    }
}

// Full record: compares all properties. Memory record: compares op and flags; layouts are compared separately.
static inline bool same_properties(
    const struct record_form *forms, const struct record_row *row, const struct ggml_tensor *t, const bool is_full_match) {
    return is_full_match ? record_is_form(&forms[row->form], t)
                         : (((int32_t) t->op ^ row->op) | ((t->flags & RECORD_FLAGS) ^ row->flags)) == 0;
}

// Inlined so that the variables of match_rows stay in registers.
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct placing {
    struct record_place *places; // NULL: addresses are not assigned
    struct record_undo *written; // end of the undo list
    uint64_t differs;            // 0: all layouts so far are as recorded
    bool may_place;              // addresses may be assigned while differs is 0
    bool is_in_place;            // all tensors so far have the addresses of their places
};

static inline bool may_place(const struct placing *p) {
    return p->may_place && p->differs == 0;
}

// Returns true if places[i] has an address and tensor t now has this address. For a view of the caller's memory, assigns the
// address and returns false.
ALWAYS_INLINE bool row_place(
    struct placing *p, const struct record_row *rows, int32_t i, struct ggml_tensor *t, const bool is_full_match) {
    const struct record_row *row = &rows[i];
    const bool is_view = row->view_src >= 0;
    ggml_backend_buffer_t buffer = p->places != NULL ? p->places[i].buffer : NULL;
    if (buffer != NULL) {
        void *data = p->places[i].data + (is_view ? t->view_offs : 0);
        if (t->buffer == buffer && t->data == data) {
            return true;
        }
        const bool is_placed = may_place(p) && t->buffer == NULL && (is_view || t->data == NULL) &&
                               tensor_place(p->written, t, buffer, data, !is_full_match);
        if (is_placed) {
            p->written++;
        }
        p->is_in_place = p->is_in_place && is_placed;
        return is_placed;
    }
    if (is_view && (is_full_match ? is_misplaced_view(t) : is_unplaced_view(t))) {
        const bool is_placed = may_place(p) && rows[row->view_src].has_memory && view_place(p->written, t, is_full_match);
        if (is_placed) {
            p->written++;
        }
        p->is_in_place = p->is_in_place && is_placed;
    }
    return false;
}

ALWAYS_INLINE bool same_owner(
    struct owner_check *owner, const struct record_row *row, const struct ggml_tensor *t, const bool is_full_match) {
    return has_memory(owner, t) == row->has_memory && !(is_full_match && row->has_memory && !same_kind(row, t));
}

// Returns true if all properties except layouts are as recorded. Sets p->differs to a value other than 0 if layouts differ.
// Fields of rec are copied to local variables, because the compiler must assume that a write to a tensor changes *rec.
ALWAYS_INLINE bool match_rows(
    struct record *rec, const struct record_rules *rules, struct placing *p, bool *is_moved, const bool is_full_match) {
    const int32_t n_rows = rec->n_rows, n_listed = rec->n_nodes + rec->n_leafs;
    const struct record_row *const rows = rec->rows;
    const struct record_form *const forms = rec->forms;
    struct ggml_tensor *const *tensors = rec->tensors;
    struct owner_check owner = {.rules = rules};
    // Small graphs are not prefetched, because their tensors are already in the processor's cache.
    const int32_t n_rows_min = is_full_match ? 1500 : 150, n_fetched = n_rows > n_rows_min ? n_listed - RECORD_AHEAD : 0;
    for (int32_t i = 0; i < n_rows; i++) {
        const struct record_row *row = &rows[i];
        struct ggml_tensor *t = tensors[i];
        if (BERTH_LIKELY(i < n_fetched)) {
            fetch_ahead(&rows[i + RECORD_AHEAD], tensors[i + RECORD_AHEAD], is_full_match);
        }
        if (BERTH_UNLIKELY(t == NULL)) {
            return false;
        }
        if (!is_full_match && row->is_foreign) {
            if (t->view_src != NULL || !has_memory(&owner, t)) {
                return false;
            }
            continue;
        }
        if (!same_properties(forms, row, t, is_full_match) || !same_view(rec, row, t) ||
            (BERTH_LIKELY(i < n_listed) && BERTH_UNLIKELY(!same_src_rows(tensors, row, t)) && !same_srcs(rec, row, t))) {
            return false;
        }
        if (!is_full_match && row->form >= 0) {
            p->differs |= record_layout_differs(&forms[row->form], t);
        }
        if (row_place(p, rows, i, t, is_full_match) || row->view_src >= 0) {
            continue;
        }
        if (!same_owner(&owner, row, t, is_full_match)) {
            return false;
        }
        if (is_full_match && row->has_memory && p->places != NULL && p->places[i].data != t->data) {
            p->places[i].data = t->data;
            *is_moved = true;
        }
    }
    return true;
}

ALWAYS_INLINE enum record_match match(
    struct record *rec, const struct record_rules *rules, struct record_placer *placer, const bool is_full_match) {
    struct placing p = {.places = placer != NULL ? placer->places : NULL, .is_in_place = true};
    bool is_moved = false;
    struct record_undo dummy; // stands for a missing undo list, because arithmetic on NULL is undefined
    struct record_undo *const first = p.places != NULL && placer->may_write && placer->undo != NULL ? placer->undo : &dummy;

    p.written = first;
    p.may_place = first != &dummy;
    const bool is_known = match_rows(rec, rules, &p, &is_moved, is_full_match);
    if (placer != NULL) {
        placer->is_moved = placer->is_moved || is_moved;
    }
    if (!is_known || p.differs != 0) {
        places_undo(first, p.written);
        return is_known ? RECORD_RESHAPED : RECORD_DIFFERS;
    }
    if (placer != NULL) {
        placer->is_done = p.places != NULL && p.is_in_place;
    }
    return RECORD_SAME;
}

// The loop is compiled once per kind of record, because a combined loop would need too many registers.
static __attribute__((noinline)) enum record_match match_memory(
    struct record *rec, const struct record_rules *rules, struct record_placer *placer) {
    return match(rec, rules, placer, false);
}

static __attribute__((noinline)) enum record_match match_full(
    struct record *rec, const struct record_rules *rules, struct record_placer *placer) {
    return match(rec, rules, placer, true);
}

enum record_match berth_record_match(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules, struct record_placer *placer) {
    bool is_moved = false;
    if (!same_lists(rec, graph, &is_moved)) {
        return RECORD_DIFFERS;
    }
    if (placer != NULL) {
        placer->is_moved = is_moved;
    }
    const enum record_match found = rec->is_full_match ? match_full(rec, rules, placer) : match_memory(rec, rules, placer);
    rec->is_lost = rec->is_lost && found == RECORD_DIFFERS;
    return found;
}

bool berth_record_reshape(struct record *rec) {
    rec->n_forms = 0;
    for (int32_t i = 0; i < rec->n_rows; i++) {
        if (rec->rows[i].form < 0) {
            continue;
        }
        rec->rows[i].form = berth_record_form(rec, rec->tensors[i]);
        if (rec->rows[i].form < 0) {
            return false;
        }
    }
    return true;
}

// SPDX-License-Identifier: MIT
// record.h: a record of a graph: its tensors as rows, without addresses. A row describes the tensor, its sources, the source of a
// view, and whether it has memory. A record knows neither allocator nor scheduler. Its owner adds columns to the rows.
//
//   graph --build.c--> record          graph, record --match.c--> equal or not; the tensors get their addresses in the same pass
//
// A memory record (is_full_match false) holds the properties that decide which tensors need memory and how long: edges, ops, flags,
// and the layouts of tensors that take memory. A full record (is_full_match true) holds all properties that decide a result:
// layouts, parameters and flags of every tensor, and the buffer types of their memory. The base of a row is the row that owns its
// memory.
#pragma once

#include "core/graph.h"
#include "core/optable.h"
#include "ggml-backend-impl.h"
#include "record/index.h"

#include <string.h>

// Flags that change the memory or the lifetime of a tensor.
#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)
// Number of rows to prefetch ahead. A tensor is larger than the part that a core prefetches itself.
#define RECORD_AHEAD 6
static inline void record_fetch(const struct ggml_tensor *next) {
    for (size_t at = 0; at < offsetof(struct ggml_tensor, extra); at += 64) {
        __builtin_prefetch((const char *) next + at);
    }
}

// The properties of a tensor without edges and memory. Graphs have few different forms, so rows hold a form number and most
// comparisons compare numbers. Two forms may still be equal. In a memory record, only the layout of a form applies to every tensor
// that has it.
struct record_form {
    _Alignas(16) size_t view_offs;
    int32_t type;
    // In the same order as in a tensor, so that they can be compared and copied as bytes.
    _Alignas(16) int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    enum ggml_op op;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t flags;
    size_t n_bytes;
};

// One tensor. The rows are: the nodes in order, the leafs in order, then tensors that are only sources or view sources, in the
// order in which nodes and leafs refer to them.
struct record_row {
    ggml_backend_buffer_type_t buft; // full record: type of the caller's memory; NULL: none, or an address without a buffer
    int32_t form;                    // index in record.forms, -1: its layout decides nothing
    int32_t view_src;                // row, -1: not a view
    int32_t src_rows[3];             // rows of src[0..2], -1 for NULL; a comparison needs only these if is_plain
    int32_t src;                     // first of its sources in record.srcs
    int32_t same_as;                 // first row of the same tensor; its own row if there is only one
    int16_t op;
    int16_t n_src;   // number of sources that are not NULL
    uint8_t flags;   // RECORD_FLAGS only
    uint8_t usage;   // full record: usage of the caller's buffer
    bool is_plain;   // all sources are listed in the graph and in the first three slots
    bool has_memory; // has memory of the caller
    bool names_self; // one of its sources is the tensor itself, as in a cast; such an edge is not a read
    bool is_foreign; // memory record: a leaf with memory of the caller, which affects no offset
};

struct record {
    struct record_row *rows;
    void *columns;                // [n_rows] column_size bytes per row, for the owner of the record
    struct ggml_tensor **tensors; // [-1..n_rows) of the last graph; the entry at -1 is NULL
    int32_t *srcs;                // rows of the sources; slots has their indices in ggml_tensor.src
    uint8_t *slots;               // [n_srcs]
    struct record_form *forms;    // [n_forms]
    int32_t n_rows, n_nodes, n_leafs, n_srcs, n_forms;
    int32_t n_all;               // number of rows including appended ones, which are in no graph
    int32_t more_srcs;           // index of the first source of appended rows
    int32_t n_duplicates;        // number of rows whose tensor has an earlier row
    int32_t *duplicates;         // [n_duplicates] these rows; only in records that are compared with graphs
    int32_t form_cache[128];     // hash of the properties to a form that may match; valid if below n_forms
    struct ggml_tensor **memory; // one block: tensors from -1 on, rows, columns, srcs, slots
    size_t rows_cap, srcs_cap, forms_cap, duplicates_cap;
    size_t column_size;        // a multiple of 4
    struct record_index index; // tensor to row
    bool has_index;            // index is valid for the last graph; a full record builds it at once, a memory record on demand
    bool is_full_match;
    bool has_self; // some row has names_self
    bool is_lost;  // tensors belong to a graph that did not match
};

// Decides whether a tensor's memory belongs to the allocator.
struct record_rules {
    bool (*is_ours)(void *user, const struct ggml_tensor *t);
    void *user;
};

// ---- build.c ----

// Fills rec from the graph except for its columns. A zeroed record is a memory record without columns. On failure, for example if
// the graph contains poison, rec is empty.
enum ggml_status berth_record_build(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules) BERTH_MUST_USE;
void berth_record_clear(struct record *rec); // forgets the graph, keeps the memory
void berth_record_fini(struct record *rec);

// Reserves rows and sources, including appended ones. Columns, rows and sources may move.
bool berth_record_reserve(struct record *rec, size_t n_rows, size_t n_srcs) BERTH_MUST_USE;
// berth_record_reserve_forms reserves the forms of any graph with the record's rows. berth_record_reserve_like reserves a graph
// with the other record's rows and any layouts. Afterwards neither building nor reshaping allocates memory.
bool berth_record_reserve_forms(struct record *rec) BERTH_MUST_USE;
bool berth_record_reserve_like(struct record *rec, const struct record *other) BERTH_MUST_USE;
// Initialises a row without sources, view source and form.
static inline struct record_row *record_put(struct record *rec, int32_t at, struct ggml_tensor *t, int op, int flags) {
    struct record_row *row = &rec->rows[at];

    rec->tensors[at] = t;

    *row = (struct record_row){
        .form = -1,
        .view_src = -1,
        .src_rows = {-1, -1, -1},
        .src = rec->n_srcs,
        .same_as = at,
        .op = (int16_t) op,
        .flags = (uint8_t) (flags & RECORD_FLAGS),
        .is_plain = true,
    };
    return row;
}
static inline void record_src_put(struct record *rec, struct record_row *row, int32_t src, int slot) {
    rec->srcs[rec->n_srcs] = src;
    rec->slots[rec->n_srcs++] = (uint8_t) slot;
    row->n_src++;
}
// record_append adds a row after those of the graph; it must be reserved. record_cut removes all of them.
static inline struct record_row *record_append(struct record *rec, struct ggml_tensor *t, int op, int flags) {
    return record_put(rec, rec->n_all++, t, op, flags);
}
static inline void record_cut(struct record *rec) {
    rec->n_all = rec->n_rows;
    rec->n_srcs = rec->more_srcs;
}
// Returns the number of the tensor's form, -1: out of memory.
int32_t berth_record_form(struct record *rec, const struct ggml_tensor *t);

// Returns the first row of a tensor; -1: none, or out of memory for the index.
int32_t berth_record_find(struct record *rec, const struct ggml_tensor *t);
// Returns true if a tensor has two rows now that were different tensors when the record was built. It also returns true if the
// index cannot be allocated. The record keeps the index.
bool berth_record_has_unknown_duplicates(struct record *rec);

// Returns the row that owns the memory of row r.
static inline int32_t record_base(const struct record *rec, int32_t r) {
    return rec->rows[r].view_src >= 0 ? rec->rows[r].view_src : rec->rows[r].same_as;
}
// The tensor is read only if the row can be a move.
static inline enum berth_move record_move(const struct record *rec, int32_t r) {
    return rec->rows[r].op == GGML_OP_DUP ? berth_move_of(rec->tensors[r]) : BERTH_MOVE_NONE;
}

// Returns true if an earlier row has the same tensor and the row is not a view.
static inline bool record_is_duplicate(const struct record *rec, int32_t r) {
    return rec->rows[r].view_src < 0 && rec->rows[r].same_as != r;
}

// ---- comparisons ----

#define RECORD_FORM_SIZE (offsetof(struct ggml_tensor, src) - offsetof(struct ggml_tensor, ne))
#define RECORD_FORM_OFF offsetof(struct record_form, ne)
_Static_assert(
    offsetof(struct record_form, nb) - RECORD_FORM_OFF == offsetof(struct ggml_tensor, nb) - offsetof(struct ggml_tensor, ne) &&
        offsetof(struct record_form, flags) + sizeof(int32_t) - RECORD_FORM_OFF == RECORD_FORM_SIZE,
    "ne, nb, op, op_params and flags are adjacent, as in a tensor");
_Static_assert(RECORD_FORM_SIZE == 8 * 16 + 8, "record_is_form compares eight pairs of words and one word");
_Static_assert(
    offsetof(struct record_form, op) - RECORD_FORM_OFF == 4 * 16, "record_layout_differs compares four pairs of words");

// Compares two words at a time if the machine can. Forms are aligned for it; tensors may be unaligned.
typedef uint64_t record_pair __attribute__((vector_size(16)));

static inline record_pair record_pair_differs(const unsigned char *form, const unsigned char *tensor, size_t i) {
    record_pair a, b;
    memcpy(&a, __builtin_assume_aligned(form + i * sizeof a, sizeof a), sizeof a);
    memcpy(&b, tensor + i * sizeof b, sizeof b);
    return a ^ b;
}

// Returns 0 if the tensor has the form's layout.
static inline uint64_t record_layout_differs(const struct record_form *form, const struct ggml_tensor *t) {
    const unsigned char *f = (const unsigned char *) form + RECORD_FORM_OFF,
                        *b = (const unsigned char *) t + offsetof(struct ggml_tensor, ne);
    const record_pair all =
        record_pair_differs(f, b, 0) | record_pair_differs(f, b, 1) | record_pair_differs(f, b, 2) | record_pair_differs(f, b, 3);
    return all[0] | all[1] | (form->view_offs ^ t->view_offs) | (uint64_t) (form->type ^ (int32_t) t->type);
}

// Has no branches, because it takes most of the time of a cache hit with a full record.
static inline bool record_is_form(const struct record_form *form, const struct ggml_tensor *t) {
    const unsigned char *f = (const unsigned char *) form + RECORD_FORM_OFF,
                        *b = (const unsigned char *) t + offsetof(struct ggml_tensor, ne);
    uint64_t last_f, last_b;
    memcpy(&last_f, f + RECORD_FORM_SIZE - sizeof last_f, sizeof last_f);
    memcpy(&last_b, b + RECORD_FORM_SIZE - sizeof last_b, sizeof last_b);
    const record_pair first =
        record_pair_differs(f, b, 0) | record_pair_differs(f, b, 1) | record_pair_differs(f, b, 2) | record_pair_differs(f, b, 3);
    const record_pair second =
        record_pair_differs(f, b, 4) | record_pair_differs(f, b, 5) | record_pair_differs(f, b, 6) | record_pair_differs(f, b, 7);
    const record_pair all = first | second;
    const uint64_t rest = (last_f ^ last_b) | (form->view_offs ^ t->view_offs) | (uint64_t) (form->type ^ (int32_t) t->type);
    return (all[0] | all[1] | rest) == 0;
}

// Returns true if all sources are in the first three slots. Few ops have more.
static inline bool record_has_only_src_rows(const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    return ((uintptr_t) s[3] | (uintptr_t) s[4] | (uintptr_t) s[5] | (uintptr_t) s[6] | (uintptr_t) s[7] | (uintptr_t) s[8] |
               (uintptr_t) s[9]) == 0;
}
_Static_assert(GGML_MAX_SRC == 10, "record_has_only_src_rows names every slot");

// Same type, extents and strides.
static inline bool record_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a->type == b->type && ggml_are_same_shape(a, b) && ggml_are_same_stride(a, b);
}
static inline bool record_same_forms(const struct record *rec, int32_t a, int32_t b) {
    const struct record_form *x = &rec->forms[a], *y = &rec->forms[b];
    bool is_same = x->type == y->type;
    for (int i = 0; i < GGML_MAX_DIMS && is_same && a != b; i++) {
        is_same = x->ne[i] == y->ne[i] && x->nb[i] == y->nb[i];
    }
    return is_same;
}

// ---- match.c ----

enum record_match {
    RECORD_DIFFERS,  // other edges, ops, flags or owners; full record: any difference
    RECORD_SAME,     // only addresses changed
    RECORD_RESHAPED, // memory record only: other extents or strides, so sizes and layouts must be checked
};

// The address of a tensor; its views begin view_offs bytes after it. buffer NULL: unknown, or memory of the caller. In a full
// record, data is then the address at the last match.
struct record_place {
    ggml_backend_buffer_t buffer;
    char *data;
};

// A write of a match to a tensor that had no buffer.
struct record_undo {
    struct ggml_tensor *tensor;
    void *data; // before the write
};

// Assigns addresses during the comparison, so that each tensor is accessed once. Unless the result is RECORD_SAME, all tensors are
// restored.
struct record_placer {
    struct record_place *places; // [n_rows], NULL: no addresses are assigned
    struct record_undo *undo;    // [n_rows] scratch
    bool may_write;              // memory record: true only if no buffer has init_tensor
    bool is_done;                // all tensors have their addresses now
    bool is_moved;               // full record: a tensor differs from the last match, or memory of the caller has moved
};

// Compares the graph and sets the rows' tensors to those of the graph; after RECORD_DIFFERS they are undefined. It allocates no
// memory.
enum record_match berth_record_match(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules, struct record_placer *placer);

// Makes the last matched graph the reference for later comparisons of extents and strides. Returns false if out of memory; the
// record is then invalid.
bool berth_record_reshape(struct record *rec) BERTH_MUST_USE;

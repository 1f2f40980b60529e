// SPDX-License-Identifier: MIT
// record.h: a record describes a graph: it has one row per tensor, without addresses. The owner of a record can add columns (own
// fields) to the rows. A record serves to recognise an equal graph later.
//
//   graph --build.c--> record
//   graph, record --match.c--> whether they are equal; if so, the tensors of the graph get their addresses in the same pass
//
// There are two kinds of records:
// - A memory record (is_full_match false) holds the properties that decide sizes and lifetimes of memory: edges, ops, flags, and
//   layouts of tensors that take memory.
// - A full record (is_full_match true) holds all properties that decide a result, and the buffer types of the caller's memory.
//
// Terms:
// - The layout of a tensor is its type, extents, strides and view offset.
// - A listed tensor is a node or a leaf of the graph. An unlisted tensor is only a source or a view source.
// - The base of a row is the row that owns the memory: for a view the viewed tensor, otherwise the row itself.
#pragma once

#include "core/graph.h"
#include "core/optable.h"
#include "ggml-backend-impl.h"
#include "record/index.h"

#include <string.h>

// Flags that change the memory or the lifetime of a tensor.
#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)
// Loops over tensors prefetch the tensor this number of rows ahead, because the hardware prefetcher does not fetch all cache
// lines of a tensor.
#define RECORD_AHEAD 6
static inline void record_fetch(const struct ggml_tensor *next) {
    for (size_t at = 0; at < offsetof(struct ggml_tensor, extra); at += 64) {
        __builtin_prefetch((const char *) next + at);
    }
}

// A form is all properties of a tensor except its edges and memory. Many tensors of a graph have the same form, which is stored
// once. Two forms with different indices may still be equal. In a memory record, only the layout of a form is used.
struct record_form {
    _Alignas(16) size_t view_offs;
    int32_t type;
    // ne to flags have the order of struct ggml_tensor, so that they can be compared as bytes.
    _Alignas(16) int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    enum ggml_op op;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t flags;
    size_t n_bytes;
};

// One tensor. The order of rows is: nodes, leafs, then tensors that are only sources or view sources.
struct record_row {
    ggml_backend_buffer_type_t buft; // full record: type of the caller's memory, NULL: none
    int32_t form;                    // index in record.forms, -1: layout not compared
    int32_t view_src;                // row, -1: not a view
    int32_t src_rows[3];             // rows of src[0..2], -1 for NULL
    int32_t src;                     // index in record.srcs of its first source
    int32_t same_as;                 // first row of the same tensor
    int16_t op;
    int16_t n_src;   // number of sources that are not NULL
    uint8_t flags;   // RECORD_FLAGS only
    uint8_t usage;   // full record: usage of the caller's buffer
    bool is_plain;   // all sources are listed tensors and are in src[0..2]
    bool has_memory; // the tensor has memory of the caller
    bool names_self; // the tensor is its own source (a cast); this source does not count as a read
    bool is_foreign; // memory record: a leaf with memory of the caller
};

struct record {
    struct record_row *rows;
    void *columns;                // [n_rows] column_size bytes per row, for the owner of the record
    struct ggml_tensor **tensors; // [-1..n_rows) of the last graph; entry -1 is NULL
    int32_t *srcs;                // [n_srcs] rows of the sources of all rows
    uint8_t *slots;               // [n_srcs] index of each source in ggml_tensor.src
    struct record_form *forms;    // [n_forms]
    int32_t n_rows, n_nodes, n_leafs, n_srcs, n_forms;
    int32_t n_all;               // rows, including rows that the owner appended
    int32_t more_srcs;           // index in srcs of the first appended source
    int32_t n_duplicates;        // number of rows whose tensor has an earlier row
    int32_t *duplicates;         // [n_duplicates] rows
    int32_t form_cache[128];     // [hash] index of a form that may match; an index >= n_forms is stale
    struct ggml_tensor **memory; // owns tensors, rows, columns, srcs, slots
    size_t rows_cap, srcs_cap, forms_cap, duplicates_cap;
    size_t column_size;        // a multiple of 4
    struct record_index index; // tensor to row
    bool has_index;            // index is valid
    bool is_full_match;        // this is a full record
    bool has_self;             // some row has names_self
    bool is_lost;              // `tensors` holds the tensors of a graph that did not match
};

// is_ours returns whether the allocator owns the memory of a tensor. All other memory is the caller's.
struct record_rules {
    bool (*is_ours)(void *user, const struct ggml_tensor *t);
    void *user;
};

// ---- build.c ----

// Fills rec from the graph, except for the columns. A zeroed record is an empty memory record. On failure, rec is empty.
enum ggml_status berth_record_build(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules) BERTH_MUST_USE;
void berth_record_clear(struct record *rec); // forgets the graph, keeps the memory
void berth_record_fini(struct record *rec);

// Reserves memory for n_rows rows and n_srcs sources, including appended ones. Columns, rows and sources may move.
bool berth_record_reserve(struct record *rec, size_t n_rows, size_t n_srcs) BERTH_MUST_USE;
// Reserves memory for reshaping the graph of rec to any layouts.
bool berth_record_reserve_forms(struct record *rec) BERTH_MUST_USE;
// Reserves the memory that rec requires to build or reshape a graph with the rows of `other` and any layouts.
bool berth_record_reserve_like(struct record *rec, const struct record *other) BERTH_MUST_USE;
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
// record_append adds a row after the rows of the graph; berth_record_reserve must have reserved its memory. record_cut removes
// all appended rows.
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
// Returns true if two rows have the same tensor now, but had different tensors when the record was built. Also true if out of
// memory for the index. Rebuilds the index.
bool berth_record_has_unknown_duplicates(struct record *rec);

static inline int32_t record_base(const struct record *rec, int32_t r) {
    return rec->rows[r].view_src >= 0 ? rec->rows[r].view_src : rec->rows[r].same_as;
}
// Returns whether row r is a move (a copy of a spilled value to another pool or back). Reads the tensor only if its op is
// GGML_OP_DUP.
static inline enum berth_move record_move(const struct record *rec, int32_t r) {
    return rec->rows[r].op == GGML_OP_DUP ? berth_move_of(rec->tensors[r]) : BERTH_MOVE_NONE;
}

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

// Two 64-bit words, which are compared at once. Forms are aligned to a pair; tensors may be unaligned.
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

// Has no branches, because the function takes most of the time of a cache hit with a full record.
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

// Returns true if all sources are in src[0..2].
static inline bool record_has_only_src_rows(const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    return ((uintptr_t) s[3] | (uintptr_t) s[4] | (uintptr_t) s[5] | (uintptr_t) s[6] | (uintptr_t) s[7] | (uintptr_t) s[8] |
               (uintptr_t) s[9]) == 0;
}
_Static_assert(GGML_MAX_SRC == 10, "record_has_only_src_rows names every slot");

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
    RECORD_DIFFERS,  // edges, ops, flags or owners of memory differ; full record: any property differs
    RECORD_SAME,     // at most addresses differ
    RECORD_RESHAPED, // memory record only: only layouts differ, so the owner must check sizes
};

// The address that a match assigns to a row. A view gets this address plus its view_offs. If buffer is NULL, the match assigns no
// address. In a full record, data is then the address that the tensor had at the last match.
struct record_place {
    ggml_backend_buffer_t buffer;
    char *data;
};

// An address that a match has written to a tensor which had no buffer.
struct record_undo {
    struct ggml_tensor *tensor;
    void *data; // before the write
};

// How a match assigns addresses. Unless the result is RECORD_SAME, the match restores all tensors.
struct record_placer {
    struct record_place *places; // [n_rows], NULL: no addresses are assigned
    struct record_undo *undo;    // [n_rows] scratch
    bool may_write;              // addresses may be assigned; in a memory record, only in buffers without init_tensor
    bool is_done;                // result: all tensors have their addresses now
    bool is_moved;               // result, full record: the graph has other tensors than at the last match, or the address of
                                 // the caller's memory has changed
};

// Compares the graph with the record. Sets rec->tensors, which is undefined after RECORD_DIFFERS. Allocates no memory.
enum record_match berth_record_match(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules, struct record_placer *placer);

// After RECORD_RESHAPED: stores the layouts of rec->tensors in the record. False: out of memory; the record is invalid.
bool berth_record_reshape(struct record *rec) BERTH_MUST_USE;

// SPDX-License-Identifier: MIT
// record.h: one record of a graph: its tensors as rows, without addresses: what they are, who reads whom, what looks at whose
// bytes, who has memory. It knows no allocator and no scheduler: whoever keeps a record has columns of its own beside the rows.
//
//   graph --build.c--> record          graph, record --match.c--> is it the graph I know? Its tensors are placed on the way.
//
// A record of memory is what decides who needs memory and for how long: edges, ops, flags, layouts of what takes memory. A whole
// one is all that decides a result: layouts, parameters and flags of every tensor, and of what buffer type their memory is.
#pragma once

#include "core/graph.h"
#include "core/optable.h"
#include "ggml-backend-impl.h"
#include "record/index.h"

#include <string.h>

// Flags that change what memory a tensor needs and for how long.
#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)
// Rows that are fetched ahead: tensors are larger than what a core fetches by itself.
#define RECORD_AHEAD 6
static inline void record_fetch(const struct ggml_tensor *next) {
    for (size_t at = 0; at < offsetof(struct ggml_tensor, extra); at += 64) {
        __builtin_prefetch((const char *) next + at);
    }
}

// What a tensor is, apart from its edges and its memory. Graphs have few that differ, so that rows hold a number and comparing
// rows mostly compares numbers; two forms may be equal all the same. In a record of memory only the layout is of every tensor
// that has the form.
struct record_form {
    _Alignas(16) size_t view_offs;
    int32_t type;
    // as they lie in a tensor: compared and kept as bytes
    _Alignas(16) int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    enum ggml_op op;
    int32_t op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t flags;
    size_t n_bytes;
};

// One tensor. Rows: the nodes in order, then the leafs in order, then tensors that are only named as a source or view source,
// in the order in which the nodes and leafs name them.
struct record_row {
    ggml_backend_buffer_type_t buft; // of memory of somebody else; NULL: none, or an address without a buffer. If whole
    int32_t form;                    // in record.forms, -1: its layout decides nothing
    int32_t view_src;                // row, -1: no view
    int32_t src_rows[3];             // rows of src[0..2], -1 for NULL: all there is to compare if is_plain
    int32_t src;                     // first of its sources in record.srcs
    int32_t same_as;                 // row that stands for the same tensor: itself, or the first of several
    int16_t op;
    int16_t n_src;   // sources that are not NULL
    uint8_t flags;   // of RECORD_FLAGS
    uint8_t usage;   // of the buffer of somebody else. If whole
    bool is_plain;   // all sources are listed in the graph and in the first three slots
    bool has_memory; // placed by somebody else
    bool names_self; // one of its sources is the tensor itself, as of a cast: an edge that is no reading
    bool is_foreign; // no node, and with memory of its own: matters to nobody's place, whatever else it is. If not whole
};

struct record {
    struct record_row *rows;
    void *columns;                // [n_rows] column_size bytes a row, of whoever keeps the record
    struct ggml_tensor **tensors; // [-1..n_rows) in the graph that was seen last; the one at -1 is NULL
    int32_t *srcs;                // rows of the sources; the index in ggml_tensor.src is in slots
    uint8_t *slots;               // [n_srcs]
    struct record_form *forms;    // [n_forms]
    int32_t n_rows, n_nodes, n_leafs, n_srcs, n_forms;
    int32_t n_all;               // rows with those that were appended, which no graph has
    int32_t more_srcs;           // where the sources of those begin
    int32_t n_duplicates;        // rows that stand for a tensor of another row
    int32_t *duplicates;         // [n_duplicates] which; of records that are compared with graphs
    int32_t form_cache[128];     // by what it is: a form that may be it; only below n_forms
    struct ggml_tensor **memory; // one block: tensors from -1 on, rows, columns, srcs, slots
    size_t rows_cap, srcs_cap, forms_cap, duplicates_cap;
    size_t column_size;        // a multiple of 4
    struct record_index index; // tensor to row
    bool has_index;            // of the graph that was seen last; a whole record has it when built, others make it when asked
    bool is_full_match;
    bool has_self; // some row names itself
    bool is_lost;  // tensors are of a graph that turned out to be another
};

// Whether a tensor has memory that is not the allocator's.
struct record_rules {
    bool (*is_ours)(void *user, const struct ggml_tensor *t);
    void *user;
};

// ---- build.c ----

// A zeroed record is one of memory, without columns. Fills rec from the graph, all but its columns. On failure, as of a graph
// that holds poison, rec is empty.
enum ggml_status berth_record_build(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules) BERTH_MUST_USE;
void berth_record_clear(struct record *rec); // forgets the graph, keeps the memory
void berth_record_fini(struct record *rec);

// Room for rows and sources, appended ones too. Columns, rows and sources may move.
bool berth_record_reserve(struct record *rec, size_t n_rows, size_t n_srcs) BERTH_MUST_USE;
// Room for the layouts of every graph that has the record's rows; room for a graph of another record's rows, whatever its
// layouts. Afterwards neither building nor reshaping takes memory.
bool berth_record_reserve_forms(struct record *rec) BERTH_MUST_USE;
bool berth_record_reserve_like(struct record *rec, const struct record *other) BERTH_MUST_USE;
// A row without sources, view source and form.
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
// Rows behind those of the graph, for which there must be room; all of them go at once.
static inline struct record_row *record_append(struct record *rec, struct ggml_tensor *t, int op, int flags) {
    return record_put(rec, rec->n_all++, t, op, flags);
}
static inline void record_cut(struct record *rec) {
    rec->n_all = rec->n_rows;
    rec->n_srcs = rec->more_srcs;
}
// The number of the tensor's form, -1: no memory.
int32_t berth_record_form(struct record *rec, const struct ggml_tensor *t);

// The row of a tensor: the first if there are several; -1: none, or no memory for the index.
int32_t berth_record_find(struct record *rec, const struct ggml_tensor *t);
// Does a tensor stand at two rows that did not when the record was made? True also if memory for the question is lacking, which
// the record keeps.
bool berth_record_has_unknown_duplicates(struct record *rec);

// The row whose memory row r is, or looks at.
static inline int32_t record_base(const struct record *rec, int32_t r) {
    return rec->rows[r].view_src >= 0 ? rec->rows[r].view_src : rec->rows[r].same_as;
}
// The tensor itself is read only where the row may be a move.
static inline enum berth_move record_move(const struct record *rec, int32_t r) {
    return rec->rows[r].op == GGML_OP_DUP ? berth_move_of(rec->tensors[r]) : BERTH_MOVE_NONE;
}

// A tensor that an earlier row stands for, and no view.
static inline bool record_is_again(const struct record *rec, int32_t r) {
    return rec->rows[r].view_src < 0 && rec->rows[r].same_as != r;
}

// ---- comparing ----

#define RECORD_FORM_SIZE (offsetof(struct ggml_tensor, src) - offsetof(struct ggml_tensor, ne))
#define RECORD_FORM_OFF offsetof(struct record_form, ne)
_Static_assert(
    offsetof(struct record_form, nb) - RECORD_FORM_OFF == offsetof(struct ggml_tensor, nb) - offsetof(struct ggml_tensor, ne) &&
        offsetof(struct record_form, flags) + sizeof(int32_t) - RECORD_FORM_OFF == RECORD_FORM_SIZE,
    "ne, nb, op, op_params and flags lie side by side, as in a tensor");
_Static_assert(RECORD_FORM_SIZE == 8 * 16 + 8, "record_is_form compares eight pairs of words and one word");
_Static_assert(
    offsetof(struct record_form, op) - RECORD_FORM_OFF == 4 * 16, "record_layout_differs compares four pairs of words");

// Two words at a time where the machine can. Forms are aligned for that, tensors need not be.
typedef uint64_t record_pair __attribute__((vector_size(16)));

static inline record_pair record_pair_differs(const unsigned char *form, const unsigned char *tensor, size_t i) {
    record_pair a, b;
    memcpy(&a, __builtin_assume_aligned(form + i * sizeof a, sizeof a), sizeof a);
    memcpy(&b, tensor + i * sizeof b, sizeof b);
    return a ^ b;
}

// 0: the tensor has the form's layout.
static inline uint64_t record_layout_differs(const struct record_form *form, const struct ggml_tensor *t) {
    const unsigned char *f = (const unsigned char *) form + RECORD_FORM_OFF,
                        *b = (const unsigned char *) t + offsetof(struct ggml_tensor, ne);
    const record_pair all =
        record_pair_differs(f, b, 0) | record_pair_differs(f, b, 1) | record_pair_differs(f, b, 2) | record_pair_differs(f, b, 3);
    return all[0] | all[1] | (form->view_offs ^ t->view_offs) | (uint64_t) (form->type ^ (int32_t) t->type);
}

// Without a branch: this is most of what a whole graph that comes again costs.
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

// All sources are in the first three slots: few ops have more.
static inline bool record_has_only_src_rows(const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    return ((uintptr_t) s[3] | (uintptr_t) s[4] | (uintptr_t) s[5] | (uintptr_t) s[6] | (uintptr_t) s[7] | (uintptr_t) s[8] |
               (uintptr_t) s[9]) == 0;
}
_Static_assert(GGML_MAX_SRC == 10, "record_has_only_near names every slot");

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
    RECORD_DIFFERS,  // other edges, ops, flags or owners; of a whole record: anything
    RECORD_SAME,     // nothing changed but addresses
    RECORD_RESHAPED, // other extents or strides somewhere: sizes and layouts have to be looked at. Never of a whole record
};

// Where a tensor belongs; views of it begin view_offs behind it. buffer NULL: not known, or not ours to say; then, in a whole
// record, data is where the tensor was seen last.
struct record_place {
    ggml_backend_buffer_t buffer;
    char *data;
};

// What a match has written into a tensor that had no buffer.
struct record_undo {
    struct ggml_tensor *tensor;
    void *data; // that it had
};

// Places tensors while they are compared, so that they are touched once. After anything but RECORD_SAME all is as it was.
struct record_placer {
    struct record_place *places; // [n_rows], NULL: none
    struct record_undo *undo;    // [n_rows] scratch
    bool may_write;              // of a record of memory: no buffer wants to be told of its tensors
    bool is_done;                // all tensors are in their places now
    bool is_moved; // a whole record: a tensor is another than the last time, or memory of somebody else is elsewhere
};

// Compares and lets the rows point to the graph's tensors (after RECORD_DIFFERS they may point anywhere). No heap memory.
enum record_match berth_record_match(
    struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules, struct record_placer *placer);

// The graph that was matched last stands for the record from now on: its extents and strides are what the next one is compared
// with. False: that takes more memory than the record has; the record is good for nothing then.
bool berth_record_reshape(struct record *rec) BERTH_MUST_USE;

// SPDX-License-Identifier: MIT
// record.h: a graph as the allocator sees it, without addresses: what takes memory, who reads whom, what looks at whose bytes.
// A plan belongs to a record. A graph matches a record when one linear pass finds the same edges, layouts, flags and buffers.
#pragma once

#include "base/base.h"
#include "core/graph.h"
#include "ggml-alloc.h"

// Flags that change what memory a tensor needs and for how long.
#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)
// Rows that are fetched ahead: tensors are larger than what a core fetches by itself.
#define RECORD_AHEAD 6
static inline void record_fetch(const struct ggml_tensor *next) {
    for (size_t at = 0; at < offsetof(struct ggml_tensor, extra); at += 64) {
        __builtin_prefetch((const char *) next + at);
    }
}

// A layout. Graphs have few that differ, so that rows hold a number and comparing rows mostly compares numbers; two shapes may
// be equal all the same.
struct record_shape {
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    size_t view_offs;
    size_t n_bytes;
    int32_t type;
};

// One tensor. Rows: the nodes in order, then the leafs in order, then tensors that are only named as a source or view source,
// in the order in which the nodes and leafs name them.
struct record_row {
    int32_t shape;    // in record.shapes, -1: its layout decides nothing
    int32_t view_src; // row, -1: no view
    int32_t near[3];  // rows of src[0..2], -1 for NULL: all there is to compare if is_plain
    int32_t src;      // first of its sources in record.srcs
    int32_t op, flags;
    int16_t n_src;   // sources that are not NULL
    bool is_plain;   // all sources are listed in the graph and in the first three slots
    bool has_memory; // placed by somebody else
    bool is_foreign; // no node, and with memory of its own: matters to nobody's place, whatever else it is
    // what the replay finds
    bool is_kept;    // shares its memory with nobody
    bool is_fixed;   // has its place and takes over no other
    bool is_asked;   // took over memory by the caller\'s word
    int32_t id;      // buffer id that the caller gave, -1: none
    int32_t buf;     // buffer id it has, -1: as the node that needs it first
    int32_t item;    // the memory it was given, -1: none
    int32_t same_as; // row that stands for the same tensor: itself, or a node's for a leaf that is a node too
    int32_t took;    // index in record.srcs of the source whose memory it took over, -1: none
};

struct record {
    struct record_row *rows;
    struct ggml_tensor **tensors; // [-1..n_rows) in the graph that was seen last; the one at -1 is NULL
    int32_t *srcs;                // rows of the sources; the index in ggml_tensor.src is in slots
    uint8_t *slots;               // [n_srcs]
    struct record_shape *shapes;  // [n_shapes]
    int32_t n_rows, n_nodes, n_leafs, n_srcs, n_shapes;
    int32_t n_asked;             // rows that is_asked is true of
    int32_t n_loose;             // rows outside the graph that were given memory
    int32_t n_twice;             // rows that stand for a tensor of another row
    int32_t *twice;              // [n_twice] which; of records that are compared with graphs
    int32_t shape_cache[64];     // by layout: a shape that may be it; only below n_shapes
    struct ggml_tensor **memory; // one block: tensors from -1 on, rows, srcs, slots
    size_t rows_cap, srcs_cap, shapes_cap, twice_cap;
};

// Whether a tensor has memory that is not the allocator's, and what a tensor without takes in buffer buf.
struct record_rules {
    bool (*is_ours)(void *user, const struct ggml_tensor *t);
    size_t (*alloc_size)(void *user, const struct ggml_tensor *t, int buf);
    bool is_by_layout; // tensors take the bytes of their layout
    void *user;
};

// ---- record.c ----

// Fills rec from the graph. node_bufs and leaf_bufs may be NULL: all 0. On failure, as of a graph that holds poison, rec is
// empty.
enum ggml_status berth_record_build(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules) BERTH_MUST_USE;
void berth_record_fini(struct record *rec);

// For those who fill a record themselves: room; a row without sources, view source and shape (flags: those that matter to an
// allocator); a layout that is not looked for.
bool berth_record_room(struct record *rec, size_t n_rows, size_t n_srcs) BERTH_MUST_USE;
static inline struct record_row *record_put(
    struct record *rec, int32_t at, struct ggml_tensor *t, int32_t op, int32_t flags, int32_t buf) {
    struct record_row *row = &rec->rows[at];

    rec->tensors[at] = t;

    *row = (struct record_row){
        .shape    = -1,
        .view_src = -1,
        .near     = {-1, -1, -1},
        .src      = rec->n_srcs,
        .op       = op,
        .flags    = flags,
        .is_plain = true,
        .id       = buf,
        .buf      = buf,
        .item     = -1,
        .same_as  = at,
        .took     = -1,
    };
    return row;
}
bool berth_record_shape_add(struct record *rec, const struct record_shape *shape) BERTH_MUST_USE;
// The number of the tensor's layout, -1: no memory.
int32_t berth_record_shape(struct record *rec, const struct ggml_tensor *t);

// Does a tensor stand at two rows that did not when the record was made? True also if memory for the question is lacking.
bool berth_record_is_tangled(const struct record *rec);

static inline bool record_is_shape(const struct record_shape *s, const struct ggml_tensor *t) {
    const int64_t *a = s->ne, *b = t->ne;
    const size_t *c = s->nb, *d = t->nb;
    const uint64_t ne = (uint64_t) ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
    const uint64_t nb = (c[0] ^ d[0]) | (c[1] ^ d[1]) | (c[2] ^ d[2]) | (c[3] ^ d[3]);
    return (ne | nb | (s->view_offs ^ t->view_offs) | (uint64_t) (s->type ^ (int32_t) t->type)) == 0;
}

// All sources are in the first three slots.
static inline bool record_has_only_near(const struct ggml_tensor *t) {
    struct ggml_tensor *const *s = t->src;
    return ((uintptr_t) s[3] | (uintptr_t) s[4] | (uintptr_t) s[5] | (uintptr_t) s[6] | (uintptr_t) s[7] | (uintptr_t) s[8] |
               (uintptr_t) s[9]) == 0;
}
_Static_assert(GGML_MAX_SRC == 10, "record_has_only_near names every slot");

// Same type, extents and strides.
static inline bool record_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a->type == b->type && ggml_are_same_shape(a, b) && ggml_are_same_stride(a, b);
}
static inline bool record_same_shape(const struct record *rec, int32_t a, int32_t b) {
    const struct record_shape *x = &rec->shapes[a], *y = &rec->shapes[b];
    bool is_same = x->type == y->type;
    for (int i = 0; i < GGML_MAX_DIMS && is_same && a != b; i++) {
        is_same = x->ne[i] == y->ne[i] && x->nb[i] == y->nb[i];
    }
    return is_same;
}

// ---- record_match.c ----

enum record_match {
    RECORD_DIFFERS,  // other edges, ops, flags or owners
    RECORD_SAME,     // nothing changed but addresses
    RECORD_RESHAPED, // other extents or strides somewhere: sizes and layouts have to be looked at
};

// Where a tensor belongs; views of it begin view_offs behind it. buffer NULL: not known, or not ours to say.
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
    const struct record_place *places; // [n_rows]
    struct record_undo *undo;          // [n_rows] scratch
    bool may_write;                    // no buffer wants to be told of its tensors
    bool is_done;                      // all tensors are in their places now
};

// Compares and lets the rows point to the graph's tensors (after RECORD_DIFFERS they may point anywhere). No heap memory.
// node_bufs NULL: as recorded. placer may be NULL.
enum record_match berth_record_match(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules, struct record_placer *placer);

// The graph that was matched last stands for the record from now on: its extents and strides are what the next one is compared
// with. False: that takes more memory than the record has; the record is good for nothing then.
bool berth_record_reshape(struct record *rec) BERTH_MUST_USE;

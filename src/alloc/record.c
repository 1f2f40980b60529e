// SPDX-License-Identifier: MIT
// record.c: making records of graphs and matching graphs with them. Building hashes each edge once; matching hashes nothing:
// row i of the record stands for a known tensor of the graph, so that an edge is right when both ends are.

#include "alloc/record.h"

#include "core/op.h"

#include <string.h>

// Flags that change what memory a tensor needs and for how long.
#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)

// ---- tensors to rows while building ----

// Open addressing over row numbers alone: the tensors are in the record. A slot holds row + 1, 0: free. Load below one half.
struct row_map {
    uint32_t *slots;
    size_t n_slots; // a power of two
    size_t n_keys;
};

static size_t map_slot(const struct row_map *m, const struct record *rec, const struct ggml_tensor *t) {
    const uint64_t h = ((uint64_t) (uintptr_t) t >> 4) * 0x9E3779B97F4A7C15u;
    size_t i         = (size_t) (h >> 32) & (m->n_slots - 1);
    while (m->slots[i] != 0 && rec->tensors[m->slots[i] - 1] != t) {
        i = (i + 1) & (m->n_slots - 1);
    }
    return i;
}

static bool map_init(struct row_map *m, size_t n) {
    *m = (struct row_map){.n_slots = 64};
    while (m->n_slots < n * 2) {
        m->n_slots *= 2;
    }
    m->slots = berth_calloc(m->n_slots, sizeof m->slots[0]);
    return m->slots != NULL;
}

// Tensors outside the graph are not known ahead.
static bool map_grow(struct row_map *m, const struct record *rec) {
    if ((m->n_keys + 1) * 2 <= m->n_slots) {
        return true;
    }
    struct row_map larger;
    if (!map_init(&larger, m->n_slots)) {
        return false;
    }
    larger.n_keys = m->n_keys;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i] != 0) {
            larger.slots[map_slot(&larger, rec, rec->tensors[m->slots[i] - 1])] = m->slots[i];
        }
    }
    berth_free(m->slots);
    *m = larger;
    return true;
}

// ---- building ----

struct build {
    struct record *rec;
    struct row_map map;
    const struct record_rules *rules;
};

static bool rows_grow(struct record *rec, size_t n) {
    return berth_grow((void **) &rec->rows, &rec->rows_cap, n, sizeof rec->rows[0]) &&
           berth_grow((void **) &rec->tensors, &rec->tensors_cap, n + 1, sizeof rec->tensors[0]);
}

static bool srcs_grow(struct record *rec, size_t n) {
    return berth_grow((void **) &rec->srcs, &rec->srcs_cap, n, sizeof rec->srcs[0]) &&
           berth_grow((void **) &rec->slots, &rec->slots_cap, n, sizeof rec->slots[0]);
}

// There is room for it.
static void row_push(struct build *b, struct ggml_tensor *t, int buf) {
    struct record *rec        = b->rec;
    rec->tensors[rec->n_rows] = t;
    struct record_row *row    = &rec->rows[rec->n_rows++];

    *row = (struct record_row){
        .view_offs = t->view_offs,
        .view_src  = -1,
        .id        = buf,
        .buf       = buf,
        .item      = -1,
        .same_as   = rec->n_rows - 1,
        .took      = -1,
        .type      = (int32_t) t->type,
        .op        = (int32_t) t->op,
        .flags     = t->flags & RECORD_FLAGS,
    };
    memcpy(row->ne, t->ne, sizeof row->ne);
    memcpy(row->nb, t->nb, sizeof row->nb);
    row->has_memory = (t->data != NULL || t->buffer != NULL) && !b->rules->is_ours(b->rules->user, t);
}

// The row of t, made if t is new.
static int32_t row_of(struct build *b, struct ggml_tensor *t, int32_t likely) {
    if (likely >= 0 && b->rec->tensors[likely] == t) {
        return likely;
    }
    size_t i = map_slot(&b->map, b->rec, t);
    if (b->map.slots[i] != 0) {
        return (int32_t) b->map.slots[i] - 1;
    }
    if (!map_grow(&b->map, b->rec) || !rows_grow(b->rec, (size_t) b->rec->n_rows + 1)) {
        return -1;
    }
    i = map_slot(&b->map, b->rec, t);
    row_push(b, t, -1);
    b->map.n_keys++;
    b->map.slots[i] = (uint32_t) b->rec->n_rows;
    return b->rec->n_rows - 1;
}

// Rows of nodes and leafs are pushed whether or not the tensor has one, so that row numbers follow the graph's arrays.
static void push_listed(struct build *b, struct ggml_tensor *t, int buf) {
    const size_t i = map_slot(&b->map, b->rec, t);
    row_push(b, t, buf);
    if (b->map.slots[i] == 0) {
        b->map.n_keys++;
        b->map.slots[i] = (uint32_t) b->rec->n_rows;
    } else {
        b->rec->rows[b->rec->n_rows - 1].same_as = (int32_t) b->map.slots[i] - 1;
        b->rec->n_twice++;
    }
}

static bool link_view(struct build *b, int32_t r) {
    const struct ggml_tensor *t = b->rec->tensors[r];
    const int32_t v             = t->view_src != NULL ? row_of(b, t->view_src, -1) : -1;
    b->rec->rows[r].view_src    = v;
    return v >= 0 || t->view_src == NULL;
}

// Only what the graph lists is computed, so only that has sources that count.
static bool link_srcs(struct build *b, int32_t r) {
    struct record *rec          = b->rec;
    const struct ggml_tensor *t = rec->tensors[r];

    rec->rows[r].src = rec->n_srcs;
    if (!srcs_grow(rec, (size_t) rec->n_srcs + GGML_MAX_SRC)) {
        return false;
    }
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        const int32_t s = row_of(b, t->src[k], r - 1);
        if (s < 0) {
            return false;
        }
        rec->srcs[rec->n_srcs]    = s;
        rec->slots[rec->n_srcs++] = (uint8_t) k;
        rec->rows[r].n_src++;
    }
    return true;
}

// Most nodes have up to three sources, in the first slots: those are compared without a loop.
static void link_near(struct record *rec, int32_t n_listed) {
    rec->tensors[rec->n_rows] = NULL;
    for (int32_t r = 0; r < n_listed; r++) {
        struct record_row *row = &rec->rows[r];
        row->is_plain          = true;
        row->near[0] = row->near[1] = row->near[2] = rec->n_rows;
        for (int32_t at = row->src; at < row->src + row->n_src; at++) {
            if (rec->slots[at] < 3) {
                row->near[rec->slots[at]] = rec->srcs[at];
            } else {
                row->is_plain = false;
            }
        }
    }
}

static bool build_rows(struct build *b, const struct ggml_cgraph *g, const int *node_bufs, const int *leaf_bufs) {
    const size_t n = (size_t) g->n_nodes + (size_t) g->n_leafs;
    if (!map_init(&b->map, n + 1) || !rows_grow(b->rec, n + 1) || !srcs_grow(b->rec, n * 2)) {
        return false;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        push_listed(b, g->nodes[i], node_bufs != NULL ? node_bufs[i] : 0);
    }
    for (int i = 0; i < g->n_leafs; i++) {
        push_listed(b, g->leafs[i], leaf_bufs != NULL ? leaf_bufs[i] : 0);
    }
    const int32_t n_listed = b->rec->n_rows;
    for (int32_t r = 0; r < b->rec->n_rows; r++) { // grows while it runs: what is named outside the graph follows
        if (!link_view(b, r) || (r < n_listed && !link_srcs(b, r))) {
            return false;
        }
    }
    link_near(b->rec, n_listed);
    return true;
}

enum ggml_status berth_record_build(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules) {
    struct build b = {.rec = rec, .rules = rules};

    rec->n_rows = rec->n_srcs = rec->n_twice = 0;
    rec->n_nodes                             = graph->n_nodes;
    rec->n_leafs                             = graph->n_leafs;
    const bool ok                            = build_rows(&b, graph, node_bufs, leaf_bufs);
    berth_free(b.map.slots);
    if (!ok) {
        rec->n_rows = rec->n_nodes = rec->n_leafs = rec->n_srcs = 0;
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the record of a graph of %d nodes", graph->n_nodes);
    }
    return GGML_STATUS_SUCCESS;
}

void berth_record_fini(struct record *rec) {
    berth_free(rec->rows);
    berth_free(rec->tensors);
    berth_free(rec->srcs);
    berth_free(rec->slots);
    *rec = (struct record){0};
}

// ---- matching ----

#define AHEAD 6 // rows; tensors are larger than what a core fetches ahead by itself

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
    struct ggml_tensor *const *s = t->src;
    const uintptr_t rest         = (uintptr_t) s[3] | (uintptr_t) s[4] | (uintptr_t) s[5] | (uintptr_t) s[6] | (uintptr_t) s[7] |
                           (uintptr_t) s[8] | (uintptr_t) s[9];
    const bool is_near =
        s[0] == rec->tensors[row->near[0]] && s[1] == rec->tensors[row->near[1]] && s[2] == rec->tensors[row->near[2]];
    return (is_near && row->is_plain && rest == 0) || same_srcs_any(rec, row, t);
}
_Static_assert(GGML_MAX_SRC == 10, "same_srcs names every slot");

static inline bool same_kind(const struct record_row *row, const struct ggml_tensor *t) {
    return (((int32_t) t->type ^ row->type) | ((int32_t) t->op ^ row->op) | ((t->flags & RECORD_FLAGS) ^ row->flags)) == 0;
}

static inline bool same_shape(const struct record_row *row, const struct ggml_tensor *t) {
    const int64_t *a = row->ne, *b = t->ne;
    const size_t *c = row->nb, *d = t->nb;
    const uint64_t ne = (uint64_t) ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
    const uint64_t nb = (c[0] ^ d[0]) | (c[1] ^ d[1]) | (c[2] ^ d[2]) | (c[3] ^ d[3]);
    return (ne | nb | (row->view_offs ^ t->view_offs)) == 0;
}

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
    const int *leaf_bufs, const struct record_rules *rules, const struct record_place *places, bool *in_place) {
    const int32_t n_listed = rec->n_nodes + rec->n_leafs;
    if (!same_lists(rec, graph, node_bufs, leaf_bufs)) {
        return RECORD_DIFFERS;
    }
    struct owner_check owner = {.rules = rules};
    bool all_in_place = places != NULL, all_same_shape = true;
    for (int32_t i = 0; i < rec->n_rows; i++) {
        const struct record_row *row = &rec->rows[i];
        const struct ggml_tensor *t  = rec->tensors[i];
        if (i + AHEAD < n_listed) {
            fetch_ahead(row + AHEAD, rec->tensors[i + AHEAD]);
        }
        if (t == NULL) {
            return RECORD_DIFFERS;
        }
        if (is_foreign_leaf(row)) {
            if (t->view_src != NULL || !has_memory(&owner, t)) {
                return RECORD_DIFFERS;
            }
            continue;
        }
        if (!same_kind(row, t) || !same_view(rec, row, t) || (i < n_listed && !same_srcs(rec, row, t))) {
            return RECORD_DIFFERS;
        }
        all_same_shape = all_same_shape && same_shape(row, t);
        if (places != NULL && places[i].buffer != NULL) {
            if (places[i].buffer == t->buffer && places[i].data == t->data) {
                continue;
            }
            all_in_place = false;
        } else if (t->view_src != NULL && t->buffer == NULL && t->view_src->buffer != NULL) {
            all_in_place = false; // a view of somebody else's memory that was not told so yet
        }
        if (row->view_src < 0 && has_memory(&owner, t) != row->has_memory) {
            return RECORD_DIFFERS;
        }
    }
    if (in_place != NULL) {
        *in_place = all_in_place;
    }
    return all_same_shape ? RECORD_SAME : RECORD_RESHAPED;
}

void berth_record_reshape(struct record *rec) {
    for (int32_t i = 0; i < rec->n_rows; i++) {
        struct record_row *row = &rec->rows[i];
        memcpy(row->ne, rec->tensors[i]->ne, sizeof row->ne);
        memcpy(row->nb, rec->tensors[i]->nb, sizeof row->nb);
        row->view_offs = rec->tensors[i]->view_offs;
    }
}

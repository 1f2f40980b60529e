// SPDX-License-Identifier: MIT
// record.c: making records of graphs and matching graphs with them. Building hashes each edge once; matching hashes nothing:
// row i of the record stands for a known tensor of the graph, so that an edge is right when both ends are.

#include "alloc/record.h"

#include "core/op.h"

#include <string.h>

// Flags that change what memory a tensor needs and for how long.
#define RECORD_FLAGS (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT)

// ---- tensors to rows while building ----

struct row_map {
    const struct ggml_tensor **keys;
    int32_t *rows;
    size_t n_slots; // a power of two
};

static size_t map_slot(const struct row_map *m, const struct ggml_tensor *t) {
    uint64_t h = (uint64_t) (uintptr_t) t >> 4;
    h *= 0x9E3779B97F4A7C15u;
    size_t i = (size_t) (h >> 20) & (m->n_slots - 1);
    while (m->keys[i] != NULL && m->keys[i] != t) {
        i = (i + 1) & (m->n_slots - 1);
    }
    return i;
}

static bool map_init(struct row_map *m, size_t n) {
    m->n_slots = 16;
    while (m->n_slots < n * 2) {
        m->n_slots *= 2;
    }
    m->keys = berth_calloc(m->n_slots, sizeof m->keys[0]);
    m->rows = berth_malloc(m->n_slots * sizeof m->rows[0]);
    return m->keys != NULL && m->rows != NULL;
}

static void map_fini(struct row_map *m) {
    berth_free(m->keys);
    berth_free(m->rows);
}

// Keeps the load below one half; X rows are not known ahead.
static bool map_grow(struct row_map *m, size_t n_keys) {
    if (n_keys * 2 < m->n_slots) {
        return true;
    }
    struct row_map larger;
    if (!map_init(&larger, m->n_slots)) {
        map_fini(&larger);
        return false;
    }
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->keys[i] != NULL) {
            const size_t j = map_slot(&larger, m->keys[i]);
            larger.keys[j] = m->keys[i];
            larger.rows[j] = m->rows[i];
        }
    }
    map_fini(m);
    *m = larger;
    return true;
}

// ---- building ----

struct build {
    struct record *rec;
    struct row_map map;
    const struct record_rules *rules;
    size_t n_keys;
};

static struct record_row *row_push(struct build *b, struct ggml_tensor *t, int buf) {
    struct record *rec = b->rec;
    if (!berth_grow((void **) &rec->rows, &rec->rows_cap, (size_t) rec->n_rows + 1, sizeof rec->rows[0])) {
        return NULL;
    }
    struct record_row *row = &rec->rows[rec->n_rows++];

    *row = (struct record_row){.t = t,
        .view_offs                = t->view_offs,
        .view_src                 = -1,
        .buf                      = buf,
        .item                     = -1,
        .same_as                  = rec->n_rows - 1,
        .took                     = -1,
        .type                     = (int32_t) t->type,
        .op                       = (int32_t) t->op,
        .flags                    = t->flags & RECORD_FLAGS};
    memcpy(row->ne, t->ne, sizeof row->ne);
    memcpy(row->nb, t->nb, sizeof row->nb);
    row->has_memory = (t->data != NULL || t->buffer != NULL) && !b->rules->is_ours(b->rules->user, t);
    return row;
}

// The row of t, made if t is new.
static int32_t row_of(struct build *b, struct ggml_tensor *t) {
    size_t i = map_slot(&b->map, t);
    if (b->map.keys[i] != NULL) {
        return b->map.rows[i];
    }
    if (!map_grow(&b->map, ++b->n_keys) || row_push(b, t, -1) == NULL) {
        return -1;
    }
    i              = map_slot(&b->map, t);
    b->map.keys[i] = t;
    b->map.rows[i] = b->rec->n_rows - 1;
    return b->map.rows[i];
}

// Rows of nodes and leafs are pushed whether or not the tensor has one, so that row numbers follow the graph's arrays.
static bool push_listed(struct build *b, struct ggml_tensor *t, int buf) {
    const size_t i = map_slot(&b->map, t);
    if (row_push(b, t, buf) == NULL) {
        return false;
    }
    if (b->map.keys[i] == NULL) {
        b->n_keys++;
        b->map.keys[i] = t;
        b->map.rows[i] = b->rec->n_rows - 1;
    }
    b->rec->rows[b->rec->n_rows - 1].same_as = b->map.rows[i];
    return true;
}

static bool link_view(struct build *b, int32_t r) {
    const struct ggml_tensor *t = b->rec->rows[r].t;
    const int32_t v             = t->view_src != NULL ? row_of(b, t->view_src) : -1;
    b->rec->rows[r].view_src    = v;
    return v >= 0 || t->view_src == NULL;
}

// Only what the graph lists is computed, so only that has sources that count.
static bool link_srcs(struct build *b, int32_t r) {
    struct record *rec          = b->rec;
    const struct ggml_tensor *t = rec->rows[r].t;

    rec->rows[r].src = rec->n_srcs;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        const int32_t s = row_of(b, t->src[k]);
        if (s < 0 || !berth_grow((void **) &rec->srcs, &rec->srcs_cap, (size_t) rec->n_srcs + 1, sizeof rec->srcs[0]) ||
            !berth_grow((void **) &rec->slots, &rec->slots_cap, (size_t) rec->n_srcs + 1, sizeof rec->slots[0])) {
            return false;
        }
        rec->srcs[rec->n_srcs]  = s;
        rec->slots[rec->n_srcs] = (uint8_t) k;
        rec->n_srcs++;
        rec->rows[r].n_src++;
    }
    return true;
}

static bool build_rows(struct build *b, const struct ggml_cgraph *g, const int *node_bufs, const int *leaf_bufs) {
    for (int i = 0; i < g->n_nodes; i++) {
        if (!push_listed(b, g->nodes[i], node_bufs != NULL ? node_bufs[i] : 0)) {
            return false;
        }
    }
    for (int i = 0; i < g->n_leafs; i++) {
        if (!push_listed(b, g->leafs[i], leaf_bufs != NULL ? leaf_bufs[i] : 0)) {
            return false;
        }
    }
    const int32_t n_listed = b->rec->n_rows;
    for (int32_t r = 0; r < b->rec->n_rows; r++) { // grows while it runs: what is named outside the graph follows
        if (!link_view(b, r) || (r < n_listed && !link_srcs(b, r))) {
            return false;
        }
    }
    return true;
}

enum ggml_status berth_record_build(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules) {
    struct build b = {.rec = rec, .rules = rules};

    rec->n_rows = rec->n_srcs = 0;
    rec->n_nodes              = graph->n_nodes;
    rec->n_leafs              = graph->n_leafs;
    const bool ok =
        map_init(&b.map, (size_t) graph->n_nodes + (size_t) graph->n_leafs + 8) && build_rows(&b, graph, node_bufs, leaf_bufs);
    map_fini(&b.map);
    if (!ok) {
        rec->n_rows = rec->n_nodes = rec->n_leafs = rec->n_srcs = 0;
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the record of a graph of %d nodes", graph->n_nodes);
    }
    return GGML_STATUS_SUCCESS;
}

void berth_record_fini(struct record *rec) {
    berth_free(rec->rows);
    berth_free(rec->srcs);
    berth_free(rec->slots);
    *rec = (struct record){0};
}

// ---- matching ----

// Is row r of the record this tensor? A row outside the graph is met through its users: the first one says who it is.
static bool is_row(struct record *rec, int32_t r, struct ggml_tensor *t) {
    if (rec->rows[r].t == NULL) {
        rec->rows[r].t = t;
    }
    return rec->rows[r].t == t;
}

static bool same_view(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
    return row->view_src < 0 ? t->view_src == NULL : t->view_src != NULL && is_row(rec, row->view_src, t->view_src);
}

static bool same_srcs(struct record *rec, const struct record_row *row, const struct ggml_tensor *t) {
    int32_t at = row->src;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        if (at >= row->src + row->n_src || rec->slots[at] != k || !is_row(rec, rec->srcs[at], t->src[k])) {
            return false;
        }
        at++;
    }
    return at == row->src + row->n_src;
}

static bool same_kind(const struct record_row *row, const struct ggml_tensor *t, const struct record_rules *rules) {
    if ((int32_t) t->type != row->type || (int32_t) t->op != row->op || (t->flags & RECORD_FLAGS) != row->flags) {
        return false;
    }
    const bool has_memory = (t->data != NULL || t->buffer != NULL) && !rules->is_ours(rules->user, t);
    return row->view_src >= 0 || has_memory == row->has_memory;
}

static bool same_shape(const struct record_row *row, const struct ggml_tensor *t) {
    return memcmp(row->ne, t->ne, sizeof row->ne) == 0 && memcmp(row->nb, t->nb, sizeof row->nb) == 0 &&
           row->view_offs == t->view_offs;
}

enum record_match berth_record_match(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules) {
    const int32_t n_listed = rec->n_nodes + rec->n_leafs;
    if (rec->n_rows == 0 || graph->n_nodes != rec->n_nodes || graph->n_leafs != rec->n_leafs) {
        return RECORD_DIFFERS;
    }
    for (int32_t i = 0; i < n_listed; i++) {
        const bool is_node = i < rec->n_nodes;
        const int *bufs    = is_node ? node_bufs : leaf_bufs;
        if (bufs != NULL && bufs[is_node ? i : i - rec->n_nodes] != rec->rows[i].buf) {
            return RECORD_DIFFERS;
        }
        rec->rows[i].t = is_node ? graph->nodes[i] : graph->leafs[i - rec->n_nodes];
    }
    for (int32_t i = n_listed; i < rec->n_rows; i++) {
        rec->rows[i].t = NULL;
    }
    enum record_match match = RECORD_SAME;
    for (int32_t i = 0; i < rec->n_rows; i++) {
        struct record_row *row = &rec->rows[i];
        if (row->t == NULL || row->t != rec->rows[row->same_as].t || !same_kind(row, row->t, rules)) {
            return RECORD_DIFFERS;
        }
        if (!same_view(rec, row, row->t) || (i < n_listed && !same_srcs(rec, row, row->t))) {
            return RECORD_DIFFERS;
        }
        if (!same_shape(row, row->t)) {
            match = RECORD_RESHAPED;
        }
    }
    return match;
}

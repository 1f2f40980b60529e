// SPDX-License-Identifier: MIT
// record.c: records of graphs. Each listed tensor is touched once, when its row is made and its edges are looked up; that needs
// all listed tensors to have their numbers first, for which their addresses alone are enough. O(rows + edges).

#include "alloc/record.h"

#include "core/op.h"

#include <string.h>

// ---- tensors to rows while building ----

// Open addressing over row numbers alone: the tensors are in the record. A slot holds row + 1, 0: free. Load below one half.
struct row_map {
    uint32_t *slots;
    size_t n_slots; // a power of two
    size_t n_keys;
};

static inline size_t map_slot(const struct row_map *m, struct ggml_tensor *const *tensors, const struct ggml_tensor *t) {
    const uint64_t h = ((uint64_t) (uintptr_t) t >> 4) * 0x9E3779B97F4A7C15u;
    size_t i         = (size_t) (h >> 32) & (m->n_slots - 1);
    while (m->slots[i] != 0 && tensors[m->slots[i] - 1] != t) {
        i = (i + 1) & (m->n_slots - 1);
    }
    return i;
}

static bool map_init(struct row_map *m, size_t n, struct berth_scratch *scratch) {
    *m = (struct row_map){.n_slots = 64};
    while (m->n_slots < n * 2) {
        m->n_slots *= 2;
    }
    m->slots = berth_scratch_take(scratch, m->n_slots * sizeof m->slots[0]);
    if (m->slots != NULL) {
        memset(m->slots, 0, m->n_slots * sizeof m->slots[0]);
    }
    return m->slots != NULL;
}

// Tensors outside the graph are not known ahead.
static bool map_grow(struct row_map *m, struct ggml_tensor *const *tensors, struct berth_scratch *scratch) {
    if ((m->n_keys + 1) * 2 <= m->n_slots) {
        return true;
    }
    struct row_map larger;
    if (!map_init(&larger, m->n_slots, scratch)) {
        return false;
    }
    larger.n_keys = m->n_keys;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i] != 0) {
            larger.slots[map_slot(&larger, tensors, tensors[m->slots[i] - 1])] = m->slots[i];
        }
    }
    *m = larger;
    return true;
}

// The tensors [0, n) by their first row. False: out of memory for the rows that stand for a tensor of another row, which go
// to rec, if that is not NULL.
static bool map_fill(struct row_map *m, struct ggml_tensor *const *tensors, int32_t n, struct record *rec) {
    for (int32_t r = 0; r < n; r++) {
        const size_t i = map_slot(m, tensors, tensors[r]);
        if (BERTH_LIKELY(m->slots[i] == 0)) {
            m->slots[i] = (uint32_t) r + 1;
            m->n_keys++;
        } else if (rec != NULL) {
            if (!berth_grow((void **) &rec->twice, &rec->twice_cap, (size_t) rec->n_twice + 1, sizeof rec->twice[0])) {
                return false;
            }
            rec->twice[rec->n_twice++] = r;
        }
    }
    return true;
}

// ---- shapes ----

static inline bool shapes_room(struct record *rec) {
    const size_t n = (size_t) rec->n_shapes + 1;
    return n <= rec->shapes_cap || berth_grow((void **) &rec->shapes, &rec->shapes_cap, n, sizeof rec->shapes[0]);
}

bool berth_record_shape_add(struct record *rec, const struct record_shape *shape) {
    if (!shapes_room(rec)) {
        return false;
    }
    rec->shapes[rec->n_shapes++] = *shape;
    return true;
}

int32_t berth_record_shape(struct record *rec, const struct ggml_tensor *t) {
    const uint64_t mix = (uint64_t) t->ne[0] + 31 * (uint64_t) t->ne[1] + 1009 * (uint64_t) t->ne[2] + 7 * t->nb[1] + t->nb[2];
    const size_t slot  = (size_t) (mix * 0x9E3779B97F4A7C15u >> 58);
    const int32_t at   = rec->shape_cache[slot];
    if (at < rec->n_shapes && record_is_shape(&rec->shapes[at], t)) {
        return at;
    }
    if (!shapes_room(rec)) {
        return -1;
    }
    struct record_shape *shape = &rec->shapes[rec->n_shapes];

    memcpy(shape->ne, t->ne, sizeof shape->ne);
    memcpy(shape->nb, t->nb, sizeof shape->nb);
    shape->view_offs       = t->view_offs;
    shape->n_bytes         = ggml_nbytes(t);
    shape->type            = (int32_t) t->type;
    rec->shape_cache[slot] = rec->n_shapes;
    return rec->n_shapes++;
}

// ---- rows ----

static size_t grown(size_t cap, size_t n_want) {
    return n_want <= cap ? cap : n_want > cap + cap / 2 ? n_want : cap + cap / 2;
}

bool berth_record_room(struct record *rec, size_t n_rows, size_t n_srcs) {
    if (n_rows <= rec->rows_cap && n_srcs <= rec->srcs_cap) {
        return true;
    }
    const size_t rows_cap = grown(rec->rows_cap, n_rows), srcs_cap = grown(rec->srcs_cap, n_srcs);
    size_t rows_size, srcs_size, size;
    const bool ok = berth_mul_ok(rows_cap, sizeof rec->memory[0] + sizeof rec->rows[0], &rows_size) &&
                    berth_mul_ok(srcs_cap, sizeof rec->srcs[0] + sizeof rec->slots[0], &srcs_size) &&
                    berth_add_ok(rows_size, srcs_size, &size) && berth_add_ok(size, sizeof rec->memory[0], &size);
    struct ggml_tensor **memory = ok ? berth_malloc(size) : NULL;
    if (memory == NULL) {
        return false;
    }
    struct ggml_tensor **tensors = memory + 1;
    struct record_row *rows      = (struct record_row *) (tensors + rows_cap);
    int32_t *srcs                = (int32_t *) (rows + rows_cap);
    uint8_t *slots               = (uint8_t *) (srcs + srcs_cap);

    memory[0] = NULL;
    if (rec->memory != NULL) {
        memcpy(tensors, rec->tensors, rec->rows_cap * sizeof tensors[0]);
        memcpy(rows, rec->rows, rec->rows_cap * sizeof rows[0]);
        memcpy(srcs, rec->srcs, rec->srcs_cap * sizeof srcs[0]);
        memcpy(slots, rec->slots, rec->srcs_cap * sizeof slots[0]);
        berth_free(rec->memory);
    }
    rec->memory   = memory;
    rec->tensors  = tensors;
    rec->rows     = rows;
    rec->srcs     = srcs;
    rec->slots    = slots;
    rec->rows_cap = rows_cap;
    rec->srcs_cap = srcs_cap;
    return true;
}

// ---- building ----

struct build {
    struct record *rec;
    struct row_map map;
    const struct record_rules *rules;
    struct berth_scratch *scratch;
    int32_t flags; // of any tensor
};

static inline bool row_put(struct build *b, int32_t at, struct ggml_tensor *t, int32_t buf) {
    struct record_row *row = record_put(b->rec, at, t, (int32_t) t->op, t->flags & RECORD_FLAGS, buf);
    b->flags |= t->flags;
    row->has_memory = (t->data != NULL || t->buffer != NULL) && !b->rules->is_ours(b->rules->user, t);
    if (row->has_memory || t->view_src != NULL) {
        return true;
    }
    row->shape = berth_record_shape(b->rec, t);
    return row->shape >= 0;
}

// The row of t, made if t is new; -1: no memory.
static inline int32_t row_of(struct build *b, struct ggml_tensor *t) {
    struct record *rec = b->rec;
    size_t i           = map_slot(&b->map, rec->tensors, t);
    if (BERTH_LIKELY(b->map.slots[i] != 0)) {
        return (int32_t) b->map.slots[i] - 1;
    }
    if (!map_grow(&b->map, rec->tensors, b->scratch) ||
        !berth_record_room(rec, (size_t) rec->n_rows + 1, (size_t) rec->n_srcs + 1)) {
        return -1;
    }
    const int32_t r = rec->n_rows++;
    if (!row_put(b, r, t, -1)) {
        return -1;
    }
    b->map.slots[map_slot(&b->map, rec->tensors, t)] = (uint32_t) r + 1;
    b->map.n_keys++;
    return r;
}

static bool link_view(struct build *b, int32_t r) {
    struct ggml_tensor *t = b->rec->tensors[r];
    if (t->view_src == NULL) {
        return true;
    }
    const int32_t v          = row_of(b, t->view_src);
    b->rec->rows[r].view_src = v;
    return v >= 0;
}

// Only what the graph lists is computed, so only that has sources that count.
static bool link_srcs(struct build *b, int32_t r) {
    struct record *rec          = b->rec;
    const struct ggml_tensor *t = rec->tensors[r];
    const size_t n_srcs         = (size_t) rec->n_srcs + GGML_MAX_SRC;
    if (n_srcs > rec->srcs_cap && !berth_record_room(rec, (size_t) rec->n_rows, n_srcs)) {
        return false;
    }
    const int n_slots = record_has_only_near(t) ? 3 : GGML_MAX_SRC;
    rec->rows[r].src  = rec->n_srcs;
    for (int k = 0; k < n_slots; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        const int32_t s = r > 0 && rec->tensors[r - 1] == t->src[k] ? rec->rows[r - 1].same_as : row_of(b, t->src[k]);
        if (s < 0) {
            return false;
        }
        rec->srcs[rec->n_srcs]    = s;
        rec->slots[rec->n_srcs++] = (uint8_t) k;
        rec->rows[r].n_src++;
        if (k < 3 && s < rec->n_nodes + rec->n_leafs) {
            rec->rows[r].near[k] = s;
        } else {
            rec->rows[r].is_plain = false;
        }
    }
    return true;
}

static bool build_rows(struct build *b, const struct ggml_cgraph *g, const int *node_bufs, const int *leaf_bufs) {
    struct record *rec     = b->rec;
    const int32_t n_listed = g->n_nodes + g->n_leafs;
    const size_t n         = (size_t) n_listed;
    if (!map_init(&b->map, n + 1, b->scratch) || !berth_record_room(rec, n + 1, n * 2)) {
        return false;
    }
    if (g->n_nodes > 0) {
        memcpy(rec->tensors, g->nodes, (size_t) g->n_nodes * sizeof rec->tensors[0]);
    }
    if (g->n_leafs > 0) {
        memcpy(rec->tensors + g->n_nodes, g->leafs, (size_t) g->n_leafs * sizeof rec->tensors[0]);
    }
    if (!map_fill(&b->map, rec->tensors, n_listed, rec)) {
        return false;
    }
    int32_t i_twice = 0;
    rec->n_rows     = n_listed;
    for (int32_t r = 0; r < rec->n_rows; r++) { // grows while it runs: what is named outside the graph follows
        struct ggml_tensor *t = rec->tensors[r];
        if (r + RECORD_AHEAD < n_listed) {
            record_fetch(rec->tensors[r + RECORD_AHEAD]);
        }
        if (r < n_listed) {
            const int *bufs = r < g->n_nodes ? node_bufs : leaf_bufs;
            if (!row_put(b, r, t, bufs != NULL ? bufs[r < g->n_nodes ? r : r - g->n_nodes] : 0)) {
                return false;
            }
            if (i_twice < rec->n_twice && rec->twice[i_twice] == r) {
                rec->rows[r].same_as = row_of(b, t);
                i_twice++;
            }
        }
        if (!link_view(b, r) || (r < n_listed && !link_srcs(b, r))) {
            return false;
        }
        struct record_row *row = &rec->rows[r];
        row->is_foreign = r >= rec->n_nodes && row->has_memory && row->view_src < 0 && row->n_src == 0 && row->op == GGML_OP_NONE;
    }
    return true;
}

enum ggml_status berth_record_build(struct record *rec, const struct ggml_cgraph *graph, const int *node_bufs,
    const int *leaf_bufs, const struct record_rules *rules) {
    struct berth_scratch scratch;
    struct build b = {.rec = rec, .rules = rules, .scratch = &scratch};

    berth_scratch_init(&scratch);
    rec->n_rows = rec->n_srcs = rec->n_twice = rec->n_shapes = 0;
    rec->n_nodes                                             = graph->n_nodes;
    rec->n_leafs                                             = graph->n_leafs;
    const bool ok                                            = build_rows(&b, graph, node_bufs, leaf_bufs);
    berth_scratch_fini(&scratch);
    const bool is_poisoned = (b.flags & BERTH_FLAG_POISON) != 0;
    if (!ok || is_poisoned) {
        rec->n_rows = rec->n_nodes = rec->n_leafs = rec->n_srcs = rec->n_twice = 0;
    }
    if (is_poisoned && berth_graph_check(graph) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    if (is_poisoned) {
        return berth_fail(GGML_STATUS_FAILED, "a source of the graph of %d nodes is the poison of an error", graph->n_nodes);
    }
    return ok ? GGML_STATUS_SUCCESS
              : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the record of a graph of %d nodes", graph->n_nodes);
}

void berth_record_fini(struct record *rec) {
    berth_free(rec->memory);
    berth_free(rec->shapes);
    berth_free(rec->twice);
    *rec = (struct record){0};
}

bool berth_record_is_tangled(const struct record *rec) {
    struct row_map map;
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    const bool is_tangled = !map_init(&map, (size_t) rec->n_rows + 1, &scratch) ||
                            !map_fill(&map, rec->tensors, rec->n_rows, NULL) ||
                            rec->n_rows - (int32_t) map.n_keys != rec->n_twice;
    berth_scratch_fini(&scratch);
    return is_tangled;
}

// SPDX-License-Identifier: MIT
// split.c: cuts the graph into splits (sequences of nodes on one backend) and finds the tensors that must be copied to each
// split.
//
// A tensor is copied to a backend once per version of its bytes. A node that writes into the tensor's memory starts a new
// version. All copies for a split are made before the split's first node. The sources of the copies are then complete, because
// they were computed by earlier splits. Copies of weights may be made earlier (early.c). The cost is O(edges).

#include "sched/sched.h"

#include <string.h>

struct splitter {
    struct ggml_backend_sched *sched;
    struct sched_cached *cached;
    int32_t *first_copy; // [n_rows] first copy of the row, -1: none
    int32_t *version;    // [n_rows] of a base: version of its bytes
    int16_t *writer;     // [n_rows] of a base: backend that wrote it last in this graph, -1: none
};

static bool split_push(struct splitter *c, int32_t i_start, int backend) {
    struct sched_cached *cached = c->cached;
    if (!BERTH_GROW(&cached->splits, &cached->splits_cap, (size_t) cached->n_splits + 1)) {
        return false;
    }
    if (cached->n_splits > 0) {
        cached->splits[cached->n_splits - 1].i_end = i_start;
    }
    cached->splits[cached->n_splits++] = (struct sched_split){
        .i_start = i_start,
        .i_end = cached->rec.n_nodes,
        .copies = cached->n_copies,
        .edges = cached->n_edges,
        .backend = (int16_t) backend,
    };
    return true;
}

// Returns the copy of the current version of row s on backend b, or -1.
static int32_t copy_find(const struct splitter *c, int32_t s, int b) {
    const int32_t version = c->version[sched_base(c->cached, s)];
    int32_t i = c->first_copy[s];
    while (i >= 0 && (c->cached->copies[i].backend != b || c->cached->copies[i].version != version)) {
        i = c->cached->copies[i].next;
    }
    return i;
}

static int32_t copy_push(struct splitter *c, int32_t s, int b, bool is_move) {
    struct sched_cached *cached = c->cached;
    if (!BERTH_GROW(&cached->copies, &cached->copies_cap, (size_t) cached->n_copies + 1)) {
        return -1;
    }
    const int32_t base = sched_base(cached, s);
    struct sched_split *split = &cached->splits[cached->n_splits - 1];
    const bool is_first = !is_move && c->version[base] == 0;
    const int32_t resident = is_first ? sched_resident_find(c->sched, cached, s, b) : -1;
    const bool is_early = is_first && !sched_resident_is_ready(c->sched, resident) && sched_copies_early(c->sched, cached, s, b);

    cached->copies[cached->n_copies] = (struct sched_copy){
        .row = s,
        .version = c->version[base],
        .next = c->first_copy[s],
        .backend = (int16_t) b,
        .from = cached->rows[base].backend,
        .writer = c->writer[base],
        .copies_caller_bytes = c->writer[base] < 0 && cached->rows[base].is_input,
        .is_early = is_early,
        .resident = resident,
        .tensor = (size_t) cached->n_copies * (size_t) cached->n_slots,
    };
    c->first_copy[s] = cached->n_copies;
    split->n_copies++;
    split->n_early += is_early;
    return cached->n_copies++;
}

static bool edge_push(struct splitter *c, int32_t node, int32_t src, int32_t copy) {
    struct sched_cached *cached = c->cached;
    if (!BERTH_GROW(&cached->edges, &cached->edges_cap, (size_t) cached->n_edges + 1)) {
        return false;
    }
    cached->edges[cached->n_edges++] = (struct sched_edge){.node = node, .copy = copy, .src = src};
    cached->splits[cached->n_splits - 1].n_edges++;
    return true;
}

// Records that backends a and b share memory: while one of them has work in flight, the other must wait.
static bool conflict_set(struct splitter *c, int a, int b) {
    struct sched_cached *cached = c->cached;
    const size_t n = (size_t) c->sched->n_backends;
    if (cached->conflict == NULL) {
        cached->conflict = berth_malloc(n * n * sizeof cached->conflict[0]);
        if (cached->conflict == NULL) {
            return false;
        }
    }
    if (!cached->has_conflict) {
        memset(cached->conflict, 0, n * n * sizeof cached->conflict[0]);
        cached->has_conflict = true;
    }
    cached->conflict[(size_t) a * n + (size_t) b] = cached->conflict[(size_t) b * n + (size_t) a] = true;
    return true;
}

static bool needs_new_weight(const struct splitter *c, int32_t node, int b) {
    const struct sched_cached *cached = c->cached;
    const struct record_row *row = &cached->rec.rows[node];
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t s = cached->rec.srcs[k];
        if (sched_is_weight(cached, s) && cached->rows[sched_base(cached, s)].backend != b &&
            !sched_reaches(c->sched, cached, b, s) && copy_find(c, s, b) < 0 &&
            !sched_resident_is_ready(c->sched, sched_resident_find(c->sched, cached, s, b))) {
            return true;
        }
    }
    return false;
}

static bool node_add(struct splitter *c, int32_t node) {
    struct sched_cached *cached = c->cached;
    const struct record_row *row = &cached->rec.rows[node];
    const int b = cached->rows[node].backend;
    const bool is_move = record_move(&cached->rec, node) != BERTH_MOVE_NONE;
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t s = cached->rec.srcs[k], base = sched_base(cached, s);
        if (!cached->rows[s].is_placed && cached->rows[base].backend == b) {
            continue; // memory of backend b, which only b writes
        }
        if (sched_reaches(c->sched, cached, b, s)) {
            const int owner = cached->rows[base].backend, writer = c->writer[base];
            if ((owner >= 0 && owner != b && !sched_is_in_weights(cached, s) && !conflict_set(c, b, owner)) ||
                (writer >= 0 && writer != b && !conflict_set(c, b, writer))) {
                return false;
            }
            continue;
        }
        // A move is a node that copies a spilled value to another pool or back. A move always gets a new copy, because the memory
        // of an earlier copy may have been reused.
        int32_t copy = is_move ? -1 : copy_find(c, s, b);
        if (copy < 0) {
            copy = copy_push(c, s, b, is_move);
        }
        // The copy gets the address of the move, so copy_find must not return the copy to other readers.
        if (copy >= 0 && is_move) {
            c->first_copy[s] = cached->copies[copy].next;
        }
        if (copy < 0 || !edge_push(c, node, k, copy)) {
            return false;
        }
    }
    const int32_t base = sched_base(cached, node);
    const int before = c->writer[base];
    if (base != node) { // the node writes into memory that other nodes may have read
        c->version[base]++;
        const int owner = cached->rows[base].backend;
        if ((before >= 0 && before != b && !conflict_set(c, b, before)) ||
            (owner >= 0 && owner != b && !conflict_set(c, b, owner))) {
            return false;
        }
    }
    c->writer[base] = (int16_t) b;
    return true;
}

static bool graph_cut(struct splitter *c) {
    struct sched_cached *cached = c->cached;
    int cur = -1;
    for (int32_t i = 0; i < cached->rec.n_nodes; i++) {
        const struct sched_row *row = &cached->rows[i];
        if (row->is_empty) {
            continue;
        }
        // An offloaded weight starts a split, so that the memory of the previous weight's copy can be reused. A move starts a
        // split, because its position decides when memory becomes free.
        if (row->backend != cur || record_move(&cached->rec, i) != BERTH_MOVE_NONE ||
            (row->reads_weight && cached->splits[cached->n_splits - 1].n_copies > 0 && needs_new_weight(c, i, cur))) {
            cur = row->backend;
            if (!split_push(c, cached->n_splits == 0 ? 0 : i, cur)) {
                return false;
            }
        }
        if (!node_add(c, i)) {
            return false;
        }
    }
    if (cached->n_splits == 0 && cached->rec.n_nodes > 0) {
        const int b = cached->rows[0].backend;
        return split_push(c, 0, b >= 0 ? b : c->sched->n_backends - 1);
    }
    return true;
}

// ---- tensors of copies ----

static void layout_copy(struct ggml_tensor *to, const struct ggml_tensor *t) {
    to->type = t->type;
    memcpy(to->ne, t->ne, sizeof to->ne);
    memcpy(to->nb, t->nb, sizeof to->nb);
}

static char *name_add(char *to, const char *text, size_t n) {
    const size_t length = strnlen(text, n);
    memcpy(to, text, length);
    return to + length;
}

// Writes '#' and the number of the slot. Slot 0, the common case, avoids snprintf.
static void name_slot(char *to, int slot) {
    if (slot == 0) {
        memcpy(to, "#0", 3);
    } else {
        snprintf(to, 13, "#%d", slot);
    }
}

static void copy_init(struct ggml_backend_sched *sched, struct sched_cached *cached, const struct sched_copy *copy, int slot) {
    const struct ggml_tensor *t = cached->rec.tensors[copy->row];
    struct ggml_tensor *to = &cached->tensors[copy->tensor + (size_t) slot];
    layout_copy(to, t);
    char *at = name_add(to->name, ggml_backend_name(sched->backends[copy->backend]), 16);
    *at++ = '#';
    name_slot(name_add(at, t->name, 32), slot);
}

// Creates the tensors of an input for the slots above 0. The tensor of the graph itself has the address of the current slot.
static void input_init(struct sched_cached *cached, int32_t r, int32_t i_input) {
    const struct ggml_tensor *t = cached->rec.tensors[r];
    const size_t first = (size_t) cached->n_copies * (size_t) cached->n_slots;
    for (int slot = 1; slot < cached->n_slots; slot++) {
        struct ggml_tensor *to = &cached->tensors[first + (size_t) i_input * (size_t) (cached->n_slots - 1) + (size_t) slot - 1];
        layout_copy(to, t);
        name_slot(name_add(to->name, t->name, 50), slot);
    }
    cached->rows[r].slots = i_input * cached->n_slots;
}

static void input_mark(struct sched_cached *cached, int32_t r) {
    if (sched_is_per_slot_input(cached, r) && cached->rows[r].slots < 0) {
        cached->rows[r].slots = 0;
        cached->n_inputs++;
    }
}

// Marks and counts the inputs that need one address per slot. Inputs that no op accesses need only one address.
static void inputs_mark(struct sched_cached *cached) {
    cached->n_inputs = 0;
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        cached->rows[r].slots = -1;
    }
    for (int32_t i = 0; cached->n_slots > 1 && i < cached->rec.n_nodes; i++) {
        const struct record_row *row = &cached->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src && !cached->rows[i].is_empty; k++) {
            input_mark(cached, sched_base(cached, cached->rec.srcs[k]));
        }
        if (!cached->rows[i].is_empty) {
            input_mark(cached, sched_base(cached, i));
        }
    }
}

static bool tensors_init(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    inputs_mark(cached);
    const size_t n_slots = (size_t) cached->n_slots, n_inputs = (size_t) cached->n_inputs;
    const size_t n_tensors = (size_t) cached->n_copies * n_slots + n_inputs * (n_slots - 1);
    if (!BERTH_GROW(&cached->tensors, &cached->tensors_cap, n_tensors) ||
        !BERTH_GROW(&cached->slot_places, &cached->slot_places_cap, n_inputs * n_slots)) {
        return false;
    }
    if (n_tensors > 0) {
        memset(cached->tensors, 0, n_tensors * sizeof cached->tensors[0]);
    }
    for (int32_t i = 0; i < cached->n_copies; i++) {
        for (int slot = 0; slot < cached->n_slots; slot++) {
            copy_init(sched, cached, &cached->copies[i], slot);
        }
    }
    int32_t i_input = 0;
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        if (cached->rows[r].slots >= 0) {
            input_init(cached, r, i_input++);
        }
    }
    return true;
}

// ---- edges ----

static struct ggml_tensor **edge_end(const struct sched_cached *cached, const struct sched_edge *e) {
    return &cached->rec.tensors[e->node]->src[cached->rec.slots[e->src]];
}

void sched_edges_to_copies(struct sched_cached *cached, const struct sched_split *split, int slot) {
    for (int32_t i = split->edges; i < split->edges + split->n_edges; i++) {
        *edge_end(cached, &cached->edges[i]) = sched_copy_tensor(cached, cached->edges[i].copy, slot);
    }
}

void sched_edges_to_graph(struct sched_cached *cached, const struct sched_split *split) {
    for (int32_t i = split->edges; i < split->edges + split->n_edges; i++) {
        *edge_end(cached, &cached->edges[i]) = cached->rec.tensors[cached->copies[cached->edges[i].copy].row];
    }
}

// ---- pass ----

enum ggml_status sched_split(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    struct splitter c = {.sched = sched, .cached = cached};
    const size_t n_rows = (size_t) cached->rec.n_rows + 1;

    cached->n_splits = cached->n_copies = cached->n_edges = 0;
    cached->n_slots = sched->n_slots;
    cached->residents_version = sched->residents.version;
    cached->has_tried_residents = cached->has_tried_fill = false;
    cached->uid_slot = -1;
    cached->has_conflict = false;
    c.first_copy = sched_scratch(sched, n_rows * (sizeof c.first_copy[0] + sizeof c.version[0] + sizeof c.writer[0]));
    if (c.first_copy != NULL) {
        c.version = c.first_copy + n_rows;
        c.writer = (int16_t *) (c.version + n_rows);
        memset(c.first_copy, -1, n_rows * sizeof c.first_copy[0]);
        memset(c.version, 0, n_rows * sizeof c.version[0]);
        memset(c.writer, -1, n_rows * sizeof c.writer[0]);
    }
    if (c.first_copy == NULL || !graph_cut(&c) || !tensors_init(sched, cached)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory to split a graph of %d nodes", cached->rec.n_nodes);
    }
    return GGML_STATUS_SUCCESS;
}

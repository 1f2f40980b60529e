// SPDX-License-Identifier: MIT
// build.c: builds records of graphs. Listed tensors get their row numbers first; then each tensor is read once. The cost is
// O(rows + edges).

#include "record/record.h"

#include "base/min.h"
#include "core/op.h"

// ---- forms ----

int32_t berth_record_form(struct record *rec, const struct ggml_tensor *t) {
    uint64_t mix = (uint64_t) t->ne[0] + 31 * (uint64_t) t->ne[1] + 1009 * (uint64_t) t->ne[2] + 7 * t->nb[1] + t->nb[2];
    if (rec->is_full_match) {
        uint64_t param;
        memcpy(&param, t->op_params, sizeof param);
        mix ^= (uint64_t) t->op << 40 ^ param << 16 ^ (uint64_t) t->view_offs << 24 ^ (uint64_t) t->flags << 56;
    }
    const size_t slot = (size_t) (mix * 0x9E3779B97F4A7C15u >> 57);
    const int32_t at = rec->form_cache[slot];
    if (at < rec->n_forms &&
        (rec->is_full_match ? record_is_form(&rec->forms[at], t) : record_layout_differs(&rec->forms[at], t) == 0)) {
        return at;
    }
    const size_t n = (size_t) rec->n_forms + 1;
    if (n > rec->forms_cap && !BERTH_GROW(&rec->forms, &rec->forms_cap, n)) {
        return -1;
    }
    struct record_form *form = &rec->forms[rec->n_forms];

    memcpy((char *) form + RECORD_FORM_OFF, (const char *) t + offsetof(struct ggml_tensor, ne), RECORD_FORM_SIZE);
    form->type = (int32_t) t->type;
    form->view_offs = t->view_offs;
    form->n_bytes = ggml_nbytes(t);
    rec->form_cache[slot] = rec->n_forms;
    return rec->n_forms++;
}

// ---- rows ----

static size_t cap_grow(size_t cap, size_t n_min) {
    return n_min <= cap ? cap : max_size(n_min, cap + cap / 2);
}

// Allocates memory for rows_cap rows and srcs_cap sources, and copies the old contents. Neither capacity may shrink.
static bool caps_set(struct record *rec, size_t rows_cap, size_t srcs_cap) {
    size_t rows_size, srcs_size, size;
    const bool ok = berth_mul_ok(rows_cap, sizeof rec->memory[0] + sizeof rec->rows[0] + rec->column_size, &rows_size) &&
                    berth_mul_ok(srcs_cap, sizeof rec->srcs[0] + sizeof rec->slots[0], &srcs_size) &&
                    berth_add_ok(rows_size, srcs_size, &size) && berth_add_ok(size, sizeof rec->memory[0], &size);
    struct ggml_tensor **memory = ok ? berth_malloc(size) : NULL;
    if (memory == NULL) {
        return false;
    }
    struct ggml_tensor **tensors = memory + 1;
    struct record_row *rows = (struct record_row *) (tensors + rows_cap);
    char *columns = (char *) (rows + rows_cap);
    int32_t *srcs = (int32_t *) (columns + rows_cap * rec->column_size);
    uint8_t *slots = (uint8_t *) (srcs + srcs_cap);

    memory[0] = NULL;
    if (rec->memory != NULL) {
        memcpy(tensors, rec->tensors, rec->rows_cap * sizeof tensors[0]);
        memcpy(rows, rec->rows, rec->rows_cap * sizeof rows[0]);
        memcpy(columns, rec->columns, rec->rows_cap * rec->column_size);
        memcpy(srcs, rec->srcs, rec->srcs_cap * sizeof srcs[0]);
        memcpy(slots, rec->slots, rec->srcs_cap * sizeof slots[0]);
        berth_free(rec->memory);
    }
    rec->memory = memory;
    rec->tensors = tensors;
    rec->rows = rows;
    rec->columns = columns;
    rec->srcs = srcs;
    rec->slots = slots;
    rec->rows_cap = rows_cap;
    rec->srcs_cap = srcs_cap;
    return true;
}

bool berth_record_reserve(struct record *rec, size_t n_rows, size_t n_srcs) {
    if (n_rows <= rec->rows_cap && n_srcs <= rec->srcs_cap) {
        return true;
    }
    return caps_set(rec, cap_grow(rec->rows_cap, n_rows), cap_grow(rec->srcs_cap, n_srcs));
}

static bool forms_reserve(struct record *rec, int32_t n_rows) {
    return BERTH_GROW(&rec->forms, &rec->forms_cap, (size_t) n_rows + 1);
}

bool berth_record_reserve_forms(struct record *rec) {
    return forms_reserve(rec, rec->n_rows);
}

// Reserves exactly the capacity of `other`. berth_record_reserve would grow the capacity by half; then two records that reserve
// like each other would grow without limit.
bool berth_record_reserve_like(struct record *rec, const struct record *other) {
    const size_t n_duplicates = (size_t) other->n_duplicates;
    const size_t rows_cap = max_size(rec->rows_cap, other->rows_cap), srcs_cap = max_size(rec->srcs_cap, other->srcs_cap);
    const bool has_room = rows_cap == rec->rows_cap && srcs_cap == rec->srcs_cap;
    return (has_room || caps_set(rec, rows_cap, srcs_cap)) && forms_reserve(rec, other->n_rows) &&
           (n_duplicates == 0 || BERTH_GROW(&rec->duplicates, &rec->duplicates_cap, n_duplicates)) &&
           BERTH_GROW(&rec->index.slots, &rec->index.slots_cap, other->index.n_slots);
}

// ---- build ----

struct build {
    struct record *rec;
    struct record_index *index;
    const struct record_rules *rules;
    int32_t flags;          // OR of all tensors' flags
    int32_t misordered_row; // first node that reads a later result, -1: none
};

static inline bool row_put(struct build *b, int32_t at, struct ggml_tensor *t) {
    struct record_row *row = record_put(b->rec, at, t, (int) t->op, t->flags);
    b->flags |= t->flags;
    row->has_memory = (t->data != NULL || t->buffer != NULL) && !b->rules->is_ours(b->rules->user, t);
    if (!b->rec->is_full_match && (row->has_memory || t->view_src != NULL)) {
        return true;
    }
    if (row->has_memory && t->buffer != NULL) {
        row->buft = t->buffer->buft;
        row->usage = (uint8_t) t->buffer->usage;
    }
    row->form = berth_record_form(b->rec, t);
    return row->form >= 0;
}

// Returns the row of t, which is made if t has none. -1: out of memory.
static inline int32_t row_of(struct build *b, struct ggml_tensor *t) {
    struct record *rec = b->rec;
    const int32_t at = *record_index_slot(b->index, rec->tensors, t) - 1;
    if (BERTH_LIKELY(at >= 0)) {
        return at;
    }
    const int32_t r = rec->n_rows;
    if (!berth_record_index_reserve(b->index, rec->tensors, r, (size_t) r + 1) ||
        !berth_record_reserve(rec, (size_t) r + 1, (size_t) rec->n_srcs + 1) || !row_put(b, r, t)) {
        return -1;
    }
    rec->n_rows++;
    return record_index_add(b->index, rec->tensors, r);
}

static bool link_view(struct build *b, int32_t r) {
    struct ggml_tensor *t = b->rec->tensors[r];
    if (t->view_src == NULL) {
        return true;
    }
    const int32_t v = row_of(b, t->view_src);
    b->rec->rows[r].view_src = v;
    return v >= 0;
}

static bool is_empty(const struct ggml_tensor *t) {
    const struct berth_op_info *info = berth_op_info(t->op);
    return info != NULL && info->is_empty;
}

// Returns true if source s of row r is computed at or after row r. Views, which compute nothing, and casts, which name themselves
// as a source, are allowed.
static bool reads_later_result(const struct build *b, int32_t r, int32_t s) {
    const struct ggml_tensor *t = b->rec->tensors[r], *src = b->rec->tensors[s];
    if (is_empty(t) || (src == t && t->op == GGML_OP_CPY)) {
        return false;
    }
    if (is_empty(src)) {
        s = src->view_src != NULL ? record_index_find(b->index, b->rec->tensors, src->view_src) : -1;
        src = src->view_src;
    }
    return s >= r && s < b->rec->n_nodes && !is_empty(src);
}

// Records the sources of row r. Called for listed tensors only.
static bool link_srcs(struct build *b, int32_t r) {
    struct record *rec = b->rec;
    const struct ggml_tensor *t = rec->tensors[r];
    const size_t n_srcs = (size_t) rec->n_srcs + GGML_MAX_SRC;
    if (n_srcs > rec->srcs_cap && !berth_record_reserve(rec, (size_t) rec->n_rows, n_srcs)) {
        return false;
    }
    const int n_slots = record_has_only_src_rows(t) ? 3 : GGML_MAX_SRC;
    rec->rows[r].src = rec->n_srcs;
    for (int k = 0; k < n_slots; k++) {
        if (t->src[k] == NULL) {
            continue;
        }
        const int32_t s = r > 0 && rec->tensors[r - 1] == t->src[k] ? rec->rows[r - 1].same_as : row_of(b, t->src[k]);
        if (s < 0) {
            return false;
        }
        struct record_row *row = &rec->rows[r]; // the rows may have moved
        const int32_t base = s < r && rec->rows[s].view_src >= 0 ? rec->rows[s].view_src : s;
        if (BERTH_UNLIKELY(base >= r && base < rec->n_nodes) && b->misordered_row < 0 && reads_later_result(b, r, s)) {
            b->misordered_row = r;
        }
        record_src_put(rec, row, s, k);
        row->names_self = row->names_self || s == row->same_as;
        rec->has_self = rec->has_self || s == row->same_as;
        if (k < 3 && s < rec->n_nodes + rec->n_leafs) {
            row->src_rows[k] = s;
        } else {
            row->is_plain = false;
        }
    }
    return true;
}

// Adds the listed tensors to the index. If a tensor is listed again, its further rows are recorded as duplicates.
static bool index_listed(struct build *b, int32_t n_listed) {
    struct record *rec = b->rec;
    for (int32_t r = 0; r < n_listed; r++) {
        if (BERTH_LIKELY(record_index_add(b->index, rec->tensors, r) == r)) {
            continue;
        }
        if (!BERTH_GROW(&rec->duplicates, &rec->duplicates_cap, (size_t) rec->n_duplicates + 1)) {
            return false;
        }
        rec->duplicates[rec->n_duplicates++] = r;
    }
    return true;
}

static bool build_rows(struct build *b, const struct ggml_cgraph *g) {
    struct record *rec = b->rec;
    const int32_t n_listed = g->n_nodes + g->n_leafs;
    const size_t n = (size_t) n_listed;
    if (!berth_record_index_reset(b->index, n + 1) || !berth_record_reserve(rec, n + 1, n * 2) ||
        !forms_reserve(rec, (int32_t) n)) {
        return false;
    }
    if (g->n_nodes > 0) {
        memcpy(rec->tensors, g->nodes, (size_t) g->n_nodes * sizeof rec->tensors[0]);
    }
    if (g->n_leafs > 0) {
        memcpy(rec->tensors + g->n_nodes, g->leafs, (size_t) g->n_leafs * sizeof rec->tensors[0]);
    }
    if (!index_listed(b, n_listed)) {
        return false;
    }
    int32_t i_duplicate = 0;
    rec->n_rows = n_listed;
    for (int32_t r = 0; r < rec->n_rows; r++) { // the loop appends rows
        struct ggml_tensor *t = rec->tensors[r];
        if (r + RECORD_AHEAD < n_listed) {
            record_fetch(rec->tensors[r + RECORD_AHEAD]);
        }
        if (r < n_listed && !row_put(b, r, t)) {
            return false;
        }
        if (i_duplicate < rec->n_duplicates && rec->duplicates[i_duplicate] == r) {
            rec->rows[r].same_as = row_of(b, t);
            i_duplicate++;
        }
        if (!link_view(b, r) || (r < n_listed && !link_srcs(b, r))) {
            return false;
        }
        struct record_row *row = &rec->rows[r];
        row->is_foreign = r >= rec->n_nodes && row->has_memory && row->view_src < 0 && row->n_src == 0 &&
                          row->op == GGML_OP_NONE && !rec->is_full_match;
    }
    return true;
}

enum ggml_status berth_record_build(struct record *rec, const struct ggml_cgraph *graph, const struct record_rules *rules) {
    // A memory record does not keep its index, because tensors are rarely looked up in a memory record.
    struct record_index index = {0};
    struct build b = {.rec = rec, .index = rec->is_full_match ? &rec->index : &index, .rules = rules, .misordered_row = -1};

    berth_record_clear(rec);
    rec->n_nodes = graph->n_nodes;
    rec->n_leafs = graph->n_leafs;
    const bool ok = build_rows(&b, graph);
    rec->n_all = rec->n_rows;
    rec->more_srcs = rec->n_srcs;
    berth_record_index_fini(&index);
    const bool is_poisoned = (b.flags & BERTH_FLAG_POISON) != 0;
    const bool reads_later_result = ok && !is_poisoned && b.misordered_row >= 0;
    if (reads_later_result) {
        const struct ggml_tensor *t = rec->tensors[b.misordered_row];
        berth_fail(GGML_STATUS_FAILED,
            "node %d of %d, %s (%s), reads a result that is not computed yet: the graph has a cycle, or its nodes are out of "
            "order",
            b.misordered_row, rec->n_nodes, t->name, ggml_op_name(t->op));
    }
    if (!ok || is_poisoned || reads_later_result) {
        berth_record_clear(rec);
    }
    if (reads_later_result) {
        return GGML_STATUS_FAILED;
    }
    if (is_poisoned && berth_graph_check(graph) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    if (is_poisoned) {
        return berth_fail(
            GGML_STATUS_FAILED, "a source in the graph of %d nodes is poison: an earlier constructor failed", graph->n_nodes);
    }
    rec->has_index = ok && rec->is_full_match;
    return ok ? GGML_STATUS_SUCCESS
              : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the record of a graph of %d nodes", graph->n_nodes);
}

void berth_record_clear(struct record *rec) {
    rec->n_rows = rec->n_nodes = rec->n_leafs = rec->n_srcs = rec->n_forms = rec->n_duplicates = rec->n_all = rec->more_srcs = 0;
    rec->has_index = rec->is_lost = rec->has_self = false;
}

void berth_record_fini(struct record *rec) {
    berth_free(rec->memory);
    berth_free(rec->forms);
    berth_free(rec->duplicates);
    berth_record_index_fini(&rec->index);
    *rec = (struct record){0};
}

// ---- lookups ----

static bool index_all(struct record_index *index, const struct record *rec) {
    if (!berth_record_index_reset(index, (size_t) rec->n_rows + 1)) {
        return false;
    }
    for (int32_t r = 0; r < rec->n_rows; r++) {
        record_index_add(index, rec->tensors, r);
    }
    return true;
}

int32_t berth_record_find(struct record *rec, const struct ggml_tensor *t) {
    rec->has_index = rec->has_index || index_all(&rec->index, rec);
    return rec->has_index ? record_index_find(&rec->index, rec->tensors, t) : -1;
}

bool berth_record_has_unknown_duplicates(struct record *rec) {
    rec->has_index = index_all(&rec->index, rec);
    return !rec->has_index || rec->n_rows - (int32_t) rec->index.n_keys != rec->n_duplicates;
}

// SPDX-License-Identifier: MIT
// program.c: programs: their memory, and whether a graph is the one a program was made for. Temporary tensors are planned like
// everything else, for each device by itself.

#include "meta/build.h"

#include <stdatomic.h>

// ---- arena ----

struct meta_block {
    struct meta_block *before;
    size_t size;
    _Alignas(16) char bytes[];
};

void *meta_take(struct meta_arena *arena, size_t size) {
    size = (size + 15) & ~(size_t) 15;
    if (arena->last == NULL || arena->last->size - arena->used < size) {
        const size_t room        = size > (1u << 16) ? size : 1u << 16;
        struct meta_block *block = berth_calloc(1, sizeof *block + room);
        if (block == NULL) {
            return NULL;
        }
        *block      = (struct meta_block){.before = arena->last, .size = room};
        arena->last = block;
        arena->used = 0;
    }
    void *p = arena->last->bytes + arena->used;
    arena->used += size;
    return p;
}

static void arena_fini(struct meta_arena *arena) {
    while (arena->last != NULL) {
        struct meta_block *before = arena->last->before;
        berth_free(arena->last);
        arena->last = before;
    }
}

// ---- memory ----

static enum ggml_status plan_part(
    struct meta_program *p, ggml_backend_t backend, int j, struct berth_plan_item *items, uint64_t *offsets) {
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(backend);
    struct berth_plan_report report = {0};
    for (size_t i = 0; i < p->n_temps; i++) {
        items[i] = (struct berth_plan_item){.first = p->temps[i].first,
            .last                                  = p->temps[i].last,
            .size                                  = ggml_backend_buft_get_alloc_size(buft, &p->temps[i].parts[j]),
            .align                                 = ggml_backend_buft_get_alignment(buft)};
    }
    enum ggml_status status = berth_plan_solve(items, (int64_t) p->n_temps, NULL, offsets, &report);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    p->scratch[j] = ggml_backend_buft_alloc_buffer(buft, report.peak > 0 ? report.peak : 1);
    if (p->scratch[j] == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: no scratch buffer of %llu bytes for part %d", ggml_backend_name(backend),
            (unsigned long long) report.peak, j);
    }
    char *base = ggml_backend_buffer_get_base(p->scratch[j]);
    for (size_t i = 0; i < p->n_temps; i++) {
        p->temps[i].parts[j].buffer = p->scratch[j];
        p->temps[i].parts[j].data   = base + offsets[i];
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status plan_temps(struct meta_program *p, ggml_backend_t *backends) {
    enum ggml_status status       = GGML_STATUS_SUCCESS;
    struct berth_plan_item *items = p->n_temps > 0 ? berth_calloc(p->n_temps, sizeof *items) : NULL;
    uint64_t *offsets             = items != NULL ? berth_calloc(p->n_temps, sizeof *offsets) : NULL;
    p->stage                      = p->stage_size > 0 ? berth_malloc(p->stage_size) : NULL;
    if ((p->n_temps > 0 && offsets == NULL) || (p->stage_size > 0 && p->stage == NULL)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu temporary tensors and %zu bytes on the way",
            p->n_temps, p->stage_size);
    }
    for (int j = 0; j < p->n && p->n_temps > 0 && status == GGML_STATUS_SUCCESS; j++) {
        status = plan_part(p, backends[j], j, items, offsets);
    }
    for (size_t i = 0; i < p->n_views && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor *view = p->views[i];
        view->buffer             = view->view_src->buffer;
        view->data               = (char *) view->view_src->data + view->view_offs;
    }
    berth_free(items);
    berth_free(offsets);
    return status;
}

// Who reads whom, for backends that fuse.
static bool count_uses(struct meta_program *p, int j) {
    size_t n = 1;
    for (size_t i = 0; i < p->n_nodes[j]; i++) {
        n++;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            n += p->nodes[j][i]->src[k] != NULL;
        }
    }
    p->uid[j]        = ggml_graph_next_uid();
    p->tensors[j]    = ggml_hash_set_new(n);
    p->use_counts[j] = p->tensors[j].size > 0 ? berth_calloc(p->tensors[j].size, sizeof(int32_t)) : NULL;
    for (size_t i = 0; i < p->n_nodes[j] && p->use_counts[j] != NULL; i++) {
        for (int k = -1; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor *t = k < 0 ? p->nodes[j][i] : p->nodes[j][i]->src[k];
            const size_t slot     = t != NULL ? berth_hash_find(&p->tensors[j], t) : BERTH_HASH_NONE;
            if (slot != BERTH_HASH_NONE) {
                berth_bit_set(p->tensors[j].used, slot);
                p->tensors[j].keys[slot] = t;
                p->use_counts[j][slot] += k >= 0;
            }
        }
    }
    return p->use_counts[j] != NULL;
}

// ---- programs ----

static bool is_ours(void *user, const struct ggml_tensor *t) {
    (void) user;
    (void) t;
    return false;
}

static const struct record_rules no_rules = {.is_ours = is_ours};

// Steps first; then memory for what they need beside the graph.
static enum ggml_status prepare(struct meta_builder *b) {
    enum ggml_status status = meta_build(b);
    for (int j = 0; j < b->n && status == GGML_STATUS_SUCCESS; j++) {
        if (!count_uses(b->p, j)) {
            status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the edges of %zu nodes", b->p->n_nodes[j]);
        }
    }
    return status == GGML_STATUS_SUCCESS ? plan_temps(b->p, b->backends) : status;
}

struct meta_program *meta_program_new(
    ggml_backend_t *backends, int n, const struct ggml_cgraph *graph, enum ggml_status *status) {
    struct meta_program *p = berth_calloc(1, sizeof *p);
    struct meta_builder b  = {.p = p, .backends = backends, .n = n};

    *status = GGML_STATUS_ALLOC_FAILED;
    if (p == NULL) {
        berth_fail(*status, "out of memory for the program of a graph of %d nodes", graph->n_nodes);
        return NULL;
    }
    static atomic_uint_fast64_t last_id;
    p->n            = n;
    p->id           = ++last_id;
    p->rec.is_whole = true;
    *status         = berth_record_build(&p->rec, graph, &no_rules);
    if (*status == GGML_STATUS_SUCCESS) {
        b.rows  = berth_calloc((size_t) p->rec.n_rows + 1, sizeof b.rows[0]);
        p->seen = berth_calloc((size_t) p->rec.n_rows + 1, sizeof p->seen[0]);
        *status = b.rows != NULL && p->seen != NULL
                      ? prepare(&b)
                      : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the rows of a graph of %d nodes", graph->n_nodes);
    }
    berth_free(b.rows);
    if (*status != GGML_STATUS_SUCCESS) {
        meta_program_free(p);
        return NULL;
    }
    return p;
}

void meta_program_free(struct meta_program *p) {
    if (p == NULL) {
        return;
    }
    for (int j = 0; j < p->n; j++) {
        ggml_backend_buffer_free(p->scratch[j]);
        ggml_hash_set_free(&p->tensors[j]);
        berth_free(p->use_counts[j]);
        berth_free(p->nodes[j]);
    }
    arena_fini(&p->arena);
    berth_record_fini(&p->rec);
    berth_free(p->seen);
    berth_free(p->steps);
    berth_free(p->temps);
    berth_free(p->views);
    berth_free(p->costs);
    berth_free(p->stage);
    berth_free(p);
}

// Same graph, same addresses, same states of what it reads.
bool meta_program_is(struct meta_program *p, const struct ggml_cgraph *graph) {
    if (berth_record_match(&p->rec, graph, &no_rules, NULL) != RECORD_SAME) {
        return false;
    }
    for (int32_t r = 0; r < p->rec.n_rows; r++) {
        const struct ggml_tensor *t  = p->rec.tensors[r];
        const struct meta_buffer *mb = meta_buffer_of(t->buffer);
        if (t->data != p->seen[r].data || (mb != NULL ? mb->id : 0) != p->seen[r].buffer_id) {
            return false;
        }
        if (r >= p->rec.n_nodes && t->view_src == NULL && mb != NULL && !meta_same(meta_root_state(t), p->seen[r].before, p->n)) {
            return false;
        }
    }
    return true;
}

static bool is_noted(const struct meta_program *p) {
    for (int32_t r = 0; r < p->rec.n_nodes; r++) {
        const struct meta_buffer *mb = meta_buffer_of(p->rec.tensors[r]->buffer);
        if (mb != NULL && mb->ctxs == NULL && mb->noted_by != p->id) {
            return false;
        }
    }
    return true;
}

// Row r's state, if it is a root in graph memory.
static bool note_row(const struct meta_program *p, int32_t r) {
    const struct ggml_tensor *t = p->rec.tensors[r];
    struct meta_buffer *mb      = t->view_src == NULL ? meta_buffer_of(t->buffer) : NULL;
    if (mb == NULL || mb->ctxs != NULL || t->op == GGML_OP_NONE || ggml_nelements(t) == 0) {
        return true;
    }
    mb->noted_by = p->id;
    return meta_root_note(t, p->seen[r].after);
}

// In the order in which they were written: what was there before the nodes comes first.
bool meta_program_note(struct meta_program *p) {
    bool ok = true;
    if (is_noted(p)) {
        return true;
    }
    for (int32_t r = p->rec.n_nodes; r < p->rec.n_rows && ok; r++) {
        ok = p->seen[r].before == p->seen[r].after || note_row(p, r);
    }
    for (int32_t r = 0; r < p->rec.n_nodes && ok; r++) {
        ok = note_row(p, r);
    }
    return ok;
}

// SPDX-License-Identifier: MIT
// program.c: makes programs (the steps by which the devices compute a graph, see program.h), plans their memory, and checks
// whether a program belongs to a graph.

#include "meta/build.h"

#include "base/min.h"
#include "meta/program.h"

#include <stdatomic.h>

// ---- arena ----

struct meta_block {
    struct meta_block *before;
    size_t size;
    _Alignas(16) char bytes[];
};

static bool arena_reserve(struct meta_arena *arena, size_t size) {
    if (arena->last != NULL && arena->last->size - arena->used >= size) {
        return true;
    }
    struct meta_block *block = berth_malloc(sizeof *block + size);
    if (block != NULL) {
        *block = (struct meta_block){.before = arena->last, .size = size};
        arena->last = block;
        arena->used = 0;
    }
    return block != NULL;
}

void *meta_take(struct meta_arena *arena, size_t size) {
    size = (size + 15) & ~(size_t) 15;
    const bool has_space = arena->last != NULL && arena->last->size - arena->used >= size;
    if (!has_space && !arena_reserve(arena, max_size(size, 1u << 16))) {
        return NULL;
    }
    void *p = arena->last->bytes + arena->used;
    arena->used += size;
    arena->taken += size;
    return memset(p, 0, size);
}

static void arena_fini(struct meta_arena *arena) {
    while (arena->last != NULL) {
        struct meta_block *before = arena->last->before;
        berth_free(arena->last);
        arena->last = before;
    }
    *arena = (struct meta_arena){0};
}

// Empties the arena and keeps one block of at least `size` bytes.
static bool arena_reset(struct meta_arena *arena, size_t size) {
    if (arena->last != NULL && (arena->last->before != NULL || arena->last->size < size)) {
        arena_fini(arena);
    }
    arena->used = arena->taken = 0;
    return size == 0 || arena_reserve(arena, size);
}

// ---- memory ----

static bool scratch_reserve(struct meta_scratch *scratch, ggml_backend_t backend, int j, uint64_t size) {
    if (size == 0 || ggml_backend_buffer_get_size(scratch->parts[j]) >= size) {
        return true;
    }
    ggml_backend_buffer_free(scratch->parts[j]);
    scratch->id++;
    scratch->parts[j] = ggml_backend_buft_alloc_buffer(ggml_backend_get_default_buffer_type(backend), size);
    if (scratch->parts[j] == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: cannot allocate a scratch buffer of %llu bytes on device %d",
            ggml_backend_name(backend), (unsigned long long) size, j);
    }
    return scratch->parts[j] != NULL;
}

void meta_scratch_fini(struct meta_scratch *scratch) {
    for (int j = 0; j < META_MAX; j++) {
        ggml_backend_buffer_free(scratch->parts[j]);
    }
    *scratch = (struct meta_scratch){0};
}

static void items_set(struct meta_program *p, ggml_backend_t backend, int j) {
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(backend);
    struct berth_plan_item *items = p->items + (size_t) j * p->n_temps;
    for (size_t i = 0; i < p->n_temps; i++) {
        items[i] = (struct berth_plan_item){.first = p->temps[i].first,
            .last = p->temps[i].last,
            .size = ggml_backend_buft_get_alloc_size(buft, &p->temps[i].parts[j]),
            .align = ggml_backend_buft_get_alignment(buft)};
    }
}

static enum ggml_status plan_part(struct meta_program *p, ggml_backend_t backend, int j, const struct meta_cached_plan *kept) {
    struct berth_plan_report report = {0};
    uint64_t *offsets = p->offsets + (size_t) j * p->n_temps;
    if (kept != NULL) {
        report.peak = meta_cached_plan_apply(kept, j, offsets);
    } else {
        const enum ggml_status status =
            berth_plan_solve(p->items + (size_t) j * p->n_temps, (int64_t) p->n_temps, NULL, offsets, &report);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    p->peak[j] = report.peak > 0 ? report.peak : 1;
    if (!scratch_reserve(p->scratch, backend, j, p->peak[j])) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    char *base = ggml_backend_buffer_get_base(p->scratch->parts[j]);
    for (size_t i = 0; i < p->n_temps; i++) {
        p->temps[i].parts[j].buffer = p->scratch->parts[j];
        p->temps[i].parts[j].data = base + offsets[i];
    }
    return GGML_STATUS_SUCCESS;
}

static bool temps_reserve(struct meta_program *p, size_t n_temps, size_t stage_size) {
    const size_t n = (size_t) p->n * n_temps;
    return berth_grow((void **) &p->items, &p->items_cap, n, sizeof p->items[0]) &&
           berth_grow((void **) &p->offsets, &p->offsets_cap, n, sizeof p->offsets[0]) &&
           berth_grow((void **) &p->stage, &p->stage_cap, stage_size, 1);
}

static enum ggml_status plan_temps(struct meta_program *p, ggml_backend_t *backends, const struct meta_plan_cache *plan_cache) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!temps_reserve(p, p->n_temps, p->stage_size)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu temporary tensors and %zu bytes of staging memory",
            p->n_temps, p->stage_size);
    }
    for (int j = 0; j < p->n && status == GGML_STATUS_SUCCESS; j++) {
        items_set(p, backends[j], j);
    }
    const struct meta_cached_plan *kept = status == GGML_STATUS_SUCCESS ? meta_plan_cache_find(plan_cache, p) : NULL;
    for (int j = 0; j < p->n && p->n_temps > 0 && status == GGML_STATUS_SUCCESS; j++) {
        status = plan_part(p, backends[j], j, kept);
    }
    for (size_t i = 0; i < p->n_views && status == GGML_STATUS_SUCCESS; i++) {
        struct ggml_tensor *view = p->views[i];
        view->buffer = view->view_src->buffer;
        view->data = (char *) view->view_src->data + view->view_offs;
    }
    return status;
}

// Returns false if out of memory.
static bool uses_reserve(struct meta_program *p, int j, size_t n) {
    if (p->tensors[j].size < n || p->use_counts[j] == NULL) {
        ggml_hash_set_free(&p->tensors[j]);
        berth_free(p->use_counts[j]);
        p->tensors[j] = ggml_hash_set_new(n);
        p->use_counts[j] = p->tensors[j].size > 0 ? berth_malloc(p->tensors[j].size * sizeof(int32_t)) : NULL;
    }
    if (p->use_counts[j] != NULL) {
        ggml_hash_set_reset(&p->tensors[j]);
        memset(p->use_counts[j], 0, p->tensors[j].size * sizeof(int32_t));
    }
    return p->use_counts[j] != NULL;
}

// Counts the readers of each tensor, for backends that fuse ops.
static bool count_uses(struct meta_program *p, int j) {
    size_t n = 1;
    for (size_t i = 0; i < p->n_nodes[j]; i++) {
        n++;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            n += p->nodes[j][i]->src[k] != NULL;
        }
    }
    p->uid[j] = ggml_graph_next_uid();
    const bool ok = uses_reserve(p, j, n);
    for (size_t i = 0; i < p->n_nodes[j] && ok; i++) {
        for (int k = -1; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor *t = k < 0 ? p->nodes[j][i] : p->nodes[j][i]->src[k];
            const size_t slot = t != NULL ? berth_hash_find(&p->tensors[j], t) : BERTH_HASH_NONE;
            if (slot != BERTH_HASH_NONE) {
                berth_bit_set(p->tensors[j].used, slot);
                p->tensors[j].keys[slot] = t;
                p->use_counts[j][slot] += k >= 0;
            }
        }
    }
    return ok;
}

// ---- programs ----

// A program allocates no memory of the graph's tensors, so all their memory counts as the caller's.
static bool owns_no_memory(void *user, const struct ggml_tensor *t) {
    (void) user;
    (void) t;
    return false;
}

static const struct record_rules no_rules = {.is_ours = owns_no_memory};

static enum ggml_status program_prepare(struct meta_builder *b, const struct meta_plan_cache *plan_cache) {
    enum ggml_status status = meta_build(b);
    for (int j = 0; j < b->n && status == GGML_STATUS_SUCCESS; j++) {
        if (!count_uses(b->p, j)) {
            status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the edges of %zu nodes", b->p->n_nodes[j]);
        }
    }
    return status == GGML_STATUS_SUCCESS ? plan_temps(b->p, b->backends, plan_cache) : status;
}

static void program_clear(struct meta_program *p) {
    p->is_made = false;
    p->n_steps = p->n_temps = p->n_views = p->n_costs = p->stage_size = 0;
    p->n_sums = p->summed_size = p->redistributed_size = 0;
    p->last_use = 0;
    memset(p->n_nodes, 0, sizeof p->n_nodes);
    const bool ok = arena_reset(&p->arena, p->arena.taken);
    (void) ok; // on failure, meta_take allocates the memory later
}

static bool rows_reserve(struct meta_program *p, size_t n_rows) {
    return berth_grow((void **) &p->rows, &p->rows_cap, n_rows + 1, sizeof p->rows[0]) &&
           berth_grow((void **) &p->seen, &p->seen_cap, n_rows + 1, sizeof p->seen[0]);
}

static enum ggml_status program_begin(struct meta_program *p, int n, const struct ggml_cgraph *graph) {
    program_clear(p);
    p->n = n;
    p->rec.is_full_match = true;
    const enum ggml_status status = berth_record_build(&p->rec, graph, &no_rules);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (!rows_reserve(p, (size_t) p->rec.n_rows)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the rows of a graph of %d nodes", graph->n_nodes);
    }
    memset(p->rows, 0, ((size_t) p->rec.n_rows + 1) * sizeof p->rows[0]);
    return GGML_STATUS_SUCCESS;
}

enum ggml_status meta_program_make(struct meta_program *p, ggml_backend_t *backends, int n, const struct ggml_cgraph *graph,
    struct meta_scratch *scratch, const struct meta_plan_cache *plan_cache) {
    static atomic_uint_fast64_t last_id;
    enum ggml_status status;
    bool has_grown;
    p->n_grown = 0;
    do { // if meta_build had to enlarge the memory of a root (has_grown), the addresses have changed, and the program is rebuilt.
         // The loop ends, because the memory of a root grows at most once on each device
        struct meta_builder b = {.backends = backends, .n = n, .p = p};
        status = program_begin(p, n, graph);
        b.rows = p->rows;
        p->scratch = scratch;
        p->id = ++last_id;
        if (status == GGML_STATUS_SUCCESS) {
            status = program_prepare(&b, plan_cache);
        }
        has_grown = b.has_grown;
        p->n_grown += has_grown;
    } while (status == GGML_STATUS_SUCCESS && has_grown);
    p->is_made = status == GGML_STATUS_SUCCESS;
    p->scratch_id = scratch->id;
    return status;
}

enum ggml_status meta_program_size(struct meta_sizing *s, const struct ggml_cgraph *graph) {
    struct meta_program *p = berth_calloc(1, sizeof *p);
    enum ggml_status status =
        p != NULL ? program_begin(p, s->device->n, graph) : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a program");
    if (status == GGML_STATUS_SUCCESS) {
        struct meta_builder b = {.p = p, .n = s->device->n, .rows = p->rows, .sizing = s};
        status = meta_build(&b);
    }
    meta_program_free(p);
    return status;
}

#define RESERVE(p, list, n) berth_grow((void **) &(p)->list, &(p)->list##_cap, (n), sizeof(p)->list[0])

bool meta_program_reserve_rows(struct meta_program *p, const struct meta_program *like) {
    program_clear(p);
    p->n = like->n;
    p->rec.is_full_match = true;
    bool ok = berth_record_reserve_like(&p->rec, &like->rec) && rows_reserve(p, (size_t) like->rec.n_rows) &&
              RESERVE(p, steps, like->n_steps) && RESERVE(p, temps, like->n_temps) && RESERVE(p, views, like->n_views) &&
              RESERVE(p, costs, like->n_costs) && temps_reserve(p, like->n_temps, like->stage_size) &&
              arena_reset(&p->arena, like->arena.taken);
    for (int j = 0; j < p->n && ok; j++) {
        ok = berth_grow((void **) &p->nodes[j], &p->nodes_cap[j], like->n_nodes[j], sizeof p->nodes[j][0]) &&
             uses_reserve(p, j, like->tensors[j].size);
    }
    return ok;
}

void meta_program_free(struct meta_program *p) {
    if (p == NULL) {
        return;
    }
    for (int j = 0; j < p->n; j++) {
        ggml_hash_set_free(&p->tensors[j]);
        berth_free(p->use_counts[j]);
        berth_free(p->nodes[j]);
    }
    arena_fini(&p->arena);
    berth_record_fini(&p->rec);
    berth_free(p->seen);
    berth_free(p->rows);
    berth_free(p->items);
    berth_free(p->offsets);
    berth_free(p->steps);
    berth_free(p->temps);
    berth_free(p->views);
    berth_free(p->costs);
    berth_free(p->stage);
    berth_free(p);
}

bool meta_program_matches(struct meta_program *p, const struct ggml_cgraph *graph) {
    if ((p->n_temps > 0 && p->scratch_id != p->scratch->id) ||
        berth_record_match(&p->rec, graph, &no_rules, NULL) != RECORD_SAME) {
        return false;
    }
    for (int32_t r = 0; r < p->rec.n_rows; r++) {
        const struct ggml_tensor *t = p->rec.tensors[r];
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

static bool are_states_recorded(const struct meta_program *p) {
    for (int32_t r = 0; r < p->rec.n_nodes; r++) {
        const struct meta_buffer *mb = meta_buffer_of(p->rec.tensors[r]->buffer);
        if (mb != NULL && mb->ctxs == NULL && mb->recorded_by != p->id) {
            return false;
        }
    }
    return true;
}

static bool row_record_state(const struct meta_program *p, int32_t r) {
    const struct ggml_tensor *t = p->rec.tensors[r];
    struct meta_buffer *mb = t->view_src == NULL ? meta_buffer_of(t->buffer) : NULL;
    if (mb == NULL || mb->ctxs != NULL || t->op == GGML_OP_NONE || ggml_nelements(t) == 0) {
        return true;
    }
    mb->recorded_by = p->id;
    return meta_root_record(t, p->seen[r].after);
}

// Records the states of inputs before the states of nodes, because nodes run later and may have reused the memory of inputs.
bool meta_program_record(struct meta_program *p) {
    bool ok = true;
    if (are_states_recorded(p)) {
        return true;
    }
    for (int32_t r = p->rec.n_nodes; r < p->rec.n_rows && ok; r++) {
        ok = p->seen[r].before == p->seen[r].after || row_record_state(p, r);
    }
    for (int32_t r = 0; r < p->rec.n_nodes && ok; r++) {
        ok = row_record_state(p, r);
    }
    return ok;
}

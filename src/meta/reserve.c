// SPDX-License-Identifier: MIT
// reserve.c: reserves a graph, so that computing the graph later allocates no memory.
// The reservation is also valid for graphs with the same nodes and edges in which no tensor is larger.

#include "meta/program.h"

#include "base/min.h"
#include "berth-backend.h"

#define KEPT_MAX 8 // largest number of kept plans; equal to KEPT_MAX of the scheduler

// ---- kept plans ----

struct meta_cached_plan {
    struct meta_cached_plan *next;
    int n;
    size_t n_temps;
    uint64_t peak[META_MAX];
    struct berth_plan_item *items; // [n * n_temps]
    uint64_t *offsets;             // [n * n_temps]
};

static bool kept_accepts(const struct meta_cached_plan *kept, const struct meta_program *p) {
    if (kept->n != p->n || kept->n_temps != p->n_temps) {
        return false;
    }
    for (size_t i = 0; i < (size_t) p->n * p->n_temps; i++) {
        const struct berth_plan_item *a = &kept->items[i], *b = &p->items[i];
        if (b->size > a->size || b->first != a->first || b->last != a->last) {
            return false;
        }
    }
    return true;
}

const struct meta_cached_plan *meta_plan_cache_find(const struct meta_plan_cache *plan_cache, const struct meta_program *p) {
    const struct meta_cached_plan *kept = plan_cache->list;
    while (kept != NULL && !kept_accepts(kept, p)) {
        kept = kept->next;
    }
    return kept;
}

uint64_t meta_cached_plan_apply(const struct meta_cached_plan *kept, int j, uint64_t *offsets) {
    memcpy(offsets, kept->offsets + (size_t) j * kept->n_temps, kept->n_temps * sizeof *offsets);
    return kept->peak[j];
}

static void kept_free(struct meta_cached_plan *kept) {
    if (kept != NULL) {
        berth_free(kept->items);
        berth_free(kept->offsets);
        berth_free(kept);
    }
}

static void plan_cache_trim(struct meta_plan_cache *plan_cache, int n) {
    struct meta_cached_plan **at = &plan_cache->list;
    for (; *at != NULL && n > 0; n--) {
        at = &(*at)->next;
    }
    while (*at != NULL) {
        struct meta_cached_plan *next = (*at)->next;
        kept_free(*at);
        *at = next;
    }
}

bool meta_plan_cache_add(struct meta_plan_cache *plan_cache, const struct meta_program *p) {
    const size_t n = (size_t) p->n * p->n_temps;
    struct meta_cached_plan *kept = berth_calloc(1, sizeof *kept);
    if (kept == NULL) {
        return false;
    }
    kept->n = p->n;
    kept->n_temps = p->n_temps;
    kept->items = berth_calloc(n + 1, sizeof kept->items[0]);
    kept->offsets = berth_calloc(n + 1, sizeof kept->offsets[0]);
    if (kept->items == NULL || kept->offsets == NULL) {
        kept_free(kept);
        return false;
    }
    memcpy(kept->peak, p->peak, sizeof kept->peak);
    for (size_t i = 0; i < n; i++) {
        kept->items[i] = p->items[i];
        kept->offsets[i] = p->offsets[i];
    }
    kept->next = plan_cache->list;
    plan_cache->list = kept;
    plan_cache_trim(plan_cache, KEPT_MAX);
    return true;
}

void meta_plan_cache_fini(struct meta_plan_cache *plan_cache) {
    plan_cache_trim(plan_cache, 0);
}

// ---- devices ----

enum ggml_status meta_parts_reserve(ggml_backend_t *backends, struct meta_program *p) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct meta_step *step = &p->steps[i];
        for (int j = 0; j < p->n && status == GGML_STATUS_SUCCESS; j++) {
            if (step->kind == META_COMPUTE) {
                const struct ggml_cgraph graph = meta_step_graph(p, step, j);
                status = berth_backend_reserve(backends[j], &graph);
            } else if (step->kind == META_SUM) {
                status = berth_backend_reserve(backends[j], &step->graphs[j]);
            }
        }
    }
    return status;
}

size_t meta_share_size(const struct meta_program *p) {
    size_t most = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        for (int k = 0; k < p->n * p->n && p->steps[i].kind == META_SUM; k++) {
            most = max_size(ggml_nbytes(&p->steps[i].shares[k]), most);
        }
    }
    return most;
}

bool meta_entries_reserve(const struct meta_program *p) {
    const size_t n = (size_t) p->rec.n_rows;
    bool ok = true;
    for (int32_t r = 0; r < p->rec.n_rows && ok; r++) { // each kept plan may have left entries in the buffer
        struct meta_buffer *mb = meta_buffer_of(p->rec.tensors[r]->buffer);
        ok = mb == NULL || mb->ctxs != NULL || meta_buffer_reserve(mb, mb->n_entries + n * KEPT_MAX, mb->n_states + n);
    }
    return ok;
}

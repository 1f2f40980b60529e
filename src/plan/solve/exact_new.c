// SPDX-License-Identifier: MIT
// exact_new.c: allocates the memory of an exact search and fills in the lists that do not change. Problems with more than
// MAX_NEIGHBOURS list entries are not searched.

#include "plan/solve/exact_state.h"

#include <string.h>

#define UNITS_MAX ((int64_t) 1 << 60) // the sum of two offsets must stay below EXACT_PLACED
#define MAX_NEIGHBOURS ((size_t) EXACT_PAIRS_MAX * 2)

void berth_exact_free(struct exact *x) {
    if (x == NULL) {
        return;
    }
    berth_arrays_free(&x->mem);
    berth_free(x->trail);
    berth_free(x->lists);
    berth_plan_log_fini(&x->log_memory);
    berth_free(x);
}

static bool fill_sections(struct exact *x) {
    const struct plan_prob *p = x->p;
    size_t n_ids = 0;
    for (int32_t i = 0; i < p->n; i++) {
        n_ids += (size_t) (p->end[i] - p->begin[i]);
    }
    if (n_ids > MAX_NEIGHBOURS) {
        return false;
    }
    x->sec_at = berth_arrays_new(&x->mem, (size_t) p->n_sec + 2, sizeof *x->sec_at);
    x->sec_ids = berth_arrays_new(&x->mem, n_ids, sizeof *x->sec_ids);
    if (x->mem.has_failed) {
        return false;
    }
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t s = p->begin[i]; s < p->end[i]; s++) {
            x->sec_at[s + 2]++;
        }
    }
    for (int32_t s = 2; s < p->n_sec + 2; s++) {
        x->sec_at[s] += x->sec_at[s - 1];
    }
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t s = p->begin[i]; s < p->end[i]; s++) {
            x->sec_ids[x->sec_at[s + 1]++] = i;
        }
    }
    return true;
}

// Blocks are sorted by rising begin, so the neighbours after i are the blocks that start before i ends.
static bool fill_neighbours(struct exact *x) {
    const struct plan_prob *p = x->p;
    size_t n = (size_t) p->n;
    x->near_at = berth_arrays_new(&x->mem, n + 2, sizeof *x->near_at);
    if (x->near_at == NULL) {
        return false;
    }
    size_t n_ids = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < p->n; i++) {
            for (int32_t j = i + 1; j < p->n && p->begin[j] < p->end[i]; j++) {
                if (pass == 0) {
                    x->near_at[i + 2]++;
                    x->near_at[j + 2]++;
                    n_ids += 2;
                    if (n_ids > MAX_NEIGHBOURS) {
                        return false;
                    }
                } else {
                    x->near_ids[x->near_at[i + 1]++] = j;
                    x->near_ids[x->near_at[j + 1]++] = i;
                }
            }
        }
        if (pass == 0) {
            for (size_t i = 2; i < n + 2; i++) {
                x->near_at[i] += x->near_at[i - 1];
            }
            x->near_ids = berth_arrays_new(&x->mem, n_ids, sizeof *x->near_ids);
            if (x->near_ids == NULL) {
                return false;
            }
        }
    }
    return true;
}

// Groups the blocks by sec[i], which is at most n_sec. The blocks with sec[i] == s become ids[at[s] .. at[s + 1]).
static void fill_borders(const struct plan_prob *p, const int32_t *sec, int32_t *at, int32_t *ids) {
    for (int32_t i = 0; i < p->n; i++) {
        at[sec[i] + 1]++;
    }
    for (int32_t s = 0; s <= p->n_sec; s++) {
        at[s + 1] += at[s];
    }
    for (int32_t i = p->n - 1; i >= 0; i--) {
        ids[--at[sec[i] + 1]] = i;
    }
    // Now the blocks of section s begin at at[s + 1].
    memmove(at, at + 1, ((size_t) p->n_sec + 1) * sizeof *at);
    at[p->n_sec + 1] = p->n;
}

static void fill_peers(struct exact *x) {
    const struct plan_prob *p = x->p;
    for (int32_t i = 0; i < p->n; i++) {
        x->peer[i] = i;
        x->twin[i] = -1;
    }
    for (int32_t i = 0; i < p->n; i++) {
        // Only a few blocks have the same first section, and their numbers are adjacent.
        for (int32_t j = i - 1; j >= 0 && p->begin[j] == p->begin[i]; j--) {
            if (p->end[j] != p->end[i]) {
                continue;
            }
            if (x->peer[i] == i) {
                x->peer[i] = x->peer[j];
                x->peer[j] = i;
            }
            if (p->size[j] == p->size[i]) {
                x->twin[i] = j;
                break;
            }
        }
    }
}

int64_t berth_exact_pairs(const struct plan_prob *p) {
    // Block i forms a pair with each later block that starts before i ends.
    int64_t n_pairs = 0;
    int32_t *starts = berth_calloc((size_t) p->n_sec + 1, sizeof *starts);
    if (starts == NULL) {
        return INT64_MAX;
    }
    for (int32_t i = 0; i < p->n; i++) {
        starts[p->begin[i] + 1]++;
    }
    for (int32_t s = 0; s < p->n_sec; s++) {
        starts[s + 1] += starts[s];
    }
    for (int32_t i = 0; i < p->n; i++) {
        n_pairs += starts[p->end[i]] - i - 1;
    }
    berth_free(starts);
    return n_pairs;
}

struct exact *berth_exact_new(const struct plan_prob *p) {
    BERTH_ASSERT(!plan_prob_is_constrained(p));
    struct exact *x = p->bound < UNITS_MAX ? berth_calloc(1, sizeof *x) : NULL;
    if (x == NULL) {
        return NULL;
    }
    x->p = p;
    const size_t n = (size_t) p->n, m = (size_t) p->n_sec;
    struct berth_arrays *mem = &x->mem;
    // One array from low to span, so that beam.c copies a state with one memcpy.
    x->low = berth_arrays_new(mem, 3 * n + 4 * m + 1, sizeof *x->low);
    x->sums = berth_arrays_new(mem, 2 * n, sizeof *x->sums);
    x->queue = berth_arrays_new(mem, m, sizeof *x->queue);
    x->is_queued = berth_arrays_new(mem, m, sizeof *x->is_queued);
    x->pre = berth_arrays_new(mem, n, sizeof *x->pre);
    x->pos = berth_arrays_new(mem, n, sizeof *x->pos);
    x->best_at = berth_arrays_new(mem, m, sizeof *x->best_at);
    x->n_at = berth_arrays_new(mem, m, sizeof *x->n_at);
    x->support = berth_arrays_new(mem, n, sizeof *x->support);
    x->blocker = berth_arrays_new(mem, n, sizeof *x->blocker);
    x->twin = berth_arrays_new(mem, n, sizeof *x->twin);
    x->peer = berth_arrays_new(mem, n, sizeof *x->peer);
    x->key = berth_arrays_new(mem, 2 * n, sizeof *x->key);
    x->tmp = berth_arrays_new(mem, n, sizeof *x->tmp);
    x->begin_at = berth_arrays_new(mem, m + 2, sizeof *x->begin_at);
    x->begin_ids = berth_arrays_new(mem, n, sizeof *x->begin_ids);
    x->end_at = berth_arrays_new(mem, m + 2, sizeof *x->end_at);
    x->end_ids = berth_arrays_new(mem, n, sizeof *x->end_ids);
    if (!BERTH_GROW(&x->lists, &x->cap_lists, 4 * n) || !BERTH_GROW(&x->trail, &x->cap_trail, 16 * (n + m)) ||
        !fill_sections(x) || !fill_neighbours(x)) {
        berth_exact_free(x);
        return NULL;
    }
    x->sky = x->low + n;
    x->off = x->sky + n;
    x->rest = x->off + n;
    x->slack = x->rest + m;
    x->floor = x->slack + m;
    x->span = x->floor + m;
    fill_borders(p, p->begin, x->begin_at, x->begin_ids);
    fill_borders(p, p->end, x->end_at, x->end_ids);
    fill_peers(x);
    return x;
}

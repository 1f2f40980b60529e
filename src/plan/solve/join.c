// SPDX-License-Identifier: MIT
// join.c: blocks that must lie in one place. Where two sections side by side are full, what begins with the second fills what the
// end of the first leaves free. If that is one block and one block, they have one offset in every plan below the capacity, and
// are searched as one: of MiniMalloc-like problems a tenth of the blocks goes, and the sections between them. A plan of the
// joined problem is a plan of the whole at any capacity; that there is none holds for this capacity only.

#include "plan/solve/plan.h"

#include <string.h>

// next[i]: the block that begins in i's place, -1: none.
static int32_t find_pairs(const struct plan_prob *p, int64_t cap, int32_t *next, int32_t *ending) {
    int32_t n_pairs = 0;
    int32_t *n_ends = ending + p->n_sec + 1;
    memset(n_ends, 0, ((size_t) p->n_sec + 1) * sizeof *n_ends);
    for (int32_t i = 0; i < p->n; i++) {
        next[i] = -1;
        ending[p->b[i]] = i; // the one, where there is one
        n_ends[p->b[i]]++;
    }
    for (int32_t i = 0; i < p->n;) { // blocks come by rising a
        const int32_t s = p->a[i];
        int32_t to = i + 1;
        while (to < p->n && p->a[to] == s) {
            to++;
        }
        if (s > 0 && to == i + 1 && n_ends[s] == 1 && p->total[s - 1] == cap && p->total[s] == cap) {
            BERTH_ASSERT(p->size[ending[s]] == p->size[i]);
            next[ending[s]] = i;
            n_pairs++;
        }
        i = to;
    }
    return n_pairs;
}

// The chains of blocks as one block each, in the sections of the whole.
static bool join_chains(const struct plan_prob *p, const int32_t *next, int32_t n, int32_t *head, struct plan_prob *all) {
    if (!berth_plan_prob_init(all, n, p->n_sec)) {
        return false;
    }
    for (int32_t i = 0; i < p->n; i++) {
        head[i] = -1;
    }
    int32_t k = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (head[i] >= 0) {
            continue;
        }
        all->a[k] = p->a[i];
        all->size[k] = p->size[i];
        for (int32_t j = i; j >= 0; j = next[j]) {
            head[j] = k;
            all->b[k] = p->b[j];
        }
        k++;
    }
    return berth_plan_prob_totals(all);
}

bool berth_plan_join(const struct plan_prob *p, int64_t cap, int32_t *head, struct plan_prob *joined) {
    const size_t n = (size_t) p->n;
    int32_t *next = berth_malloc((2 * n + 2 * ((size_t) p->n_sec + 1)) * sizeof *next);
    int32_t n_pairs = next != NULL ? find_pairs(p, cap, next, next + 2 * n) : 0;
    bool ok = next != NULL;
    *joined = (struct plan_prob){0};
    if (n_pairs > 0) {
        struct plan_prob all;
        int32_t *ids = next + n;
        for (int32_t k = 0; k < p->n - n_pairs; k++) {
            ids[k] = k;
        }
        ok = join_chains(p, next, p->n - n_pairs, head, &all) && berth_plan_prob_subset(&all, ids, all.n, joined);
        berth_plan_prob_fini(&all);
    }
    berth_free(next);
    return ok;
}

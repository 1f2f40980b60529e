// SPDX-License-Identifier: MIT
// join.c: finds blocks that have the same offset in every plan within the capacity, and makes one block of them.
//
// plan.h defines section, border and total. If the total of a section equals the capacity, no unit is free in this section. If
// this holds on both sides of a border, the blocks that begin at the border occupy exactly the units of the blocks that end
// there. If only one block ends and only one begins, both have the same offset. Such two blocks are called a pair.
//
// In problems like MiniMalloc's benchmarks, joining removes a tenth of the blocks. A plan of the joined problem is a plan of the
// original problem. A proof that there is no plan holds at this capacity only.

#include "plan/solve/plan.h"

#include <string.h>

// Finds the pairs. next[i]: the later block that forms a pair with block i, -1: none. Returns the number of pairs.
static int32_t find_pairs(const struct plan_prob *p, int64_t cap, int32_t *next, int32_t *ending) {
    int32_t n_pairs = 0;
    int32_t *n_ends = ending + p->n_sec + 1;
    memset(n_ends, 0, ((size_t) p->n_sec + 1) * sizeof *n_ends);
    for (int32_t i = 0; i < p->n; i++) {
        next[i] = -1;
        ending[p->end[i]] = i; // read only if a single block ends here
        n_ends[p->end[i]]++;
    }
    for (int32_t i = 0; i < p->n;) { // blocks are sorted by rising begin
        const int32_t s = p->begin[i];
        int32_t to = i + 1;
        while (to < p->n && p->begin[to] == s) {
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

// Makes one block of each chain of pairs. The result `chained` has n blocks and still has the sections of p.
static bool join_chains(
    const struct plan_prob *p, const int32_t *next, int32_t n, int32_t *joined_id, struct plan_prob *chained) {
    if (!berth_plan_prob_init(chained, n, p->n_sec)) {
        return false;
    }
    for (int32_t i = 0; i < p->n; i++) {
        joined_id[i] = -1;
    }
    int32_t k = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (joined_id[i] >= 0) {
            continue;
        }
        chained->begin[k] = p->begin[i];
        chained->size[k] = p->size[i];
        for (int32_t j = i; j >= 0; j = next[j]) {
            joined_id[j] = k;
            chained->end[k] = p->end[j];
        }
        k++;
    }
    return berth_plan_prob_totals(chained);
}

bool berth_plan_join(const struct plan_prob *p, int64_t cap, int32_t *joined_id, struct plan_prob *joined) {
    const size_t n = (size_t) p->n;
    int32_t *next = berth_malloc((2 * n + 2 * ((size_t) p->n_sec + 1)) * sizeof *next);
    int32_t n_pairs = next != NULL ? find_pairs(p, cap, next, next + 2 * n) : 0;
    bool ok = next != NULL;
    *joined = (struct plan_prob){0};
    if (n_pairs > 0) {
        struct plan_prob chained;
        int32_t *ids = next + n;
        for (int32_t k = 0; k < p->n - n_pairs; k++) {
            ids[k] = k;
        }
        ok =
            join_chains(p, next, p->n - n_pairs, joined_id, &chained) && berth_plan_prob_subset(&chained, ids, chained.n, joined);
        berth_plan_prob_fini(&chained);
    }
    berth_free(next);
    return ok;
}

// SPDX-License-Identifier: MIT
// model.c: the problem that the solver works on: its memory and its totals. pool.c makes one of the caller's items.

#include "plan/plan.h"

bool plan_prob_init(struct plan_prob *p, int32_t n, int32_t n_sec) {
    *p       = (struct plan_prob){.n = n, .n_sec = n_sec};
    p->a     = berth_malloc(2 * (size_t) n * sizeof *p->a);
    p->size  = berth_malloc((size_t) n * sizeof *p->size);
    p->total = berth_calloc((size_t) n_sec + 1, sizeof *p->total);
    if (p->a == NULL || p->size == NULL || p->total == NULL) {
        plan_prob_fini(p);
        return false;
    }
    p->b = p->a + n;
    return true;
}

void plan_prob_fini(struct plan_prob *p) {
    berth_free(p->a);
    berth_free(p->size);
    berth_free(p->total);
    berth_free(p->align);
    berth_free(p->fixed);
    berth_free(p->fixed_ids);
    *p = (struct plan_prob){0};
}

bool plan_prob_totals(struct plan_prob *p) {
    // Differences may wrap on the way; a sum that ends above 2^63 shows as a negative total, since sizes are at most 2^62.
    uint64_t *total = (uint64_t *) p->total;
    for (int32_t s = 0; s <= p->n_sec; s++) {
        total[s] = 0;
    }
    for (int32_t i = 0; i < p->n; i++) {
        total[p->a[i]] += (uint64_t) p->size[i];
        total[p->b[i]] -= (uint64_t) p->size[i];
    }
    p->bound     = 0;
    p->bound_sec = 0;
    uint64_t sum = 0;
    for (int32_t s = 0; s < p->n_sec; s++) {
        sum += total[s];
        total[s] = sum;
        if (sum > (uint64_t) INT64_MAX) {
            return false;
        }
        if ((int64_t) sum > p->bound) {
            p->bound     = (int64_t) sum;
            p->bound_sec = s;
        }
    }
    return true;
}

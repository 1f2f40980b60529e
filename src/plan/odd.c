// SPDX-License-Identifier: MIT
// odd.c: where a block may lie that may not lie anywhere: alignments that the unit does not settle, chunks, fixed blocks.

#include "plan/plan.h"

// The lowest aligned place >= level inside one chunk; -1: none up to limit.
static int64_t lowest_aligned(const struct plan_prob *p, int32_t i, int64_t level, int64_t limit) {
    int64_t base = 0;
    if (p->chunk > 0) {
        base = level / p->chunk * p->chunk;
    }
    int64_t in = level - base;
    if (p->align != NULL && in % p->align[i] != 0) {
        int64_t pad = p->align[i] - in % p->align[i];
        if (pad > limit - in) {
            return -1;
        }
        in += pad;
    }
    if (p->chunk > 0 && p->size[i] > p->chunk - in) {
        if (base > limit - p->chunk) {
            return -1;
        }
        base += p->chunk;
        in = 0;
    }
    return in > limit - base ? -1 : base + in;
}

int64_t plan_lowest_at(const struct plan_prob *p, int32_t i, int64_t level, int64_t limit) {
    int64_t at = lowest_aligned(p, i, level, limit);
    for (int32_t f = 0; at >= 0 && f < p->n_fixed; f++) {
        int32_t x   = p->fixed_ids[f];
        int64_t end = p->fixed[x] + p->size[x];
        if (x == i || end <= at || p->b[x] <= p->a[i] || p->b[i] <= p->a[x]) {
            continue;
        }
        if (p->fixed[x] >= at && p->size[i] <= p->fixed[x] - at) {
            break; // by rising offset: the others lie above too
        }
        at = lowest_aligned(p, i, end, limit);
    }
    return at;
}

// SPDX-License-Identifier: MIT
// overlap.c: an index that lists the blocks that are alive together with a block. A list takes time in proportion to its length
// and to the number of blocks that are alive at one step. The index has O(n) memory: it stores the blocks that are alive at the
// first section of each bucket. A bucket is a range of sections in which at least as many blocks begin as are alive at its start.

#include "base/min.h"
#include "plan/solve/plan.h"

#define BUCKET_MIN 64 // least number of blocks that begin in a bucket

// Marks the first section of each bucket, and stores the blocks that are alive there. alive: [n] scratch.
static void fill_buckets(struct plan_overlap *o, const struct plan_prob *p, int32_t *alive) {
    int32_t n_alive = 0, n_list = 0, i_begun = 0;
    for (int32_t s = 0; s < p->n_sec; s++) {
        if (s == 0 || o->first_at[s] - i_begun > max_i32(BUCKET_MIN, n_alive)) {
            int32_t m = 0;
            for (int32_t k = 0; k < n_alive; k++) {
                if (p->end[alive[k]] > s) {
                    alive[m++] = alive[k];
                }
            }
            for (int32_t i = i_begun; i < o->first_at[s]; i++) {
                if (p->end[i] > s) {
                    alive[m++] = i;
                }
            }
            n_alive = m;
            i_begun = o->first_at[s];
            o->list_at[o->n_buckets] = n_list;
            o->sec_of[o->n_buckets++] = s;
            for (int32_t k = 0; k < n_alive; k++) {
                o->list[n_list++] = alive[k];
            }
        }
        o->bucket_of[s] = o->n_buckets - 1;
    }
    o->list_at[o->n_buckets] = n_list;
}

// If m blocks begin in a bucket, at most m blocks are alive at its start. So at most 2m are alive at the start of the next bucket,
// and all lists together have at most 2n entries.
bool berth_overlap_init(struct plan_overlap *o, const struct plan_prob *p) {
    const size_t n = (size_t) p->n, n_sec = (size_t) p->n_sec;
    *o = (struct plan_overlap){0};
    o->first_at = berth_arrays_new(&o->mem, n_sec + 1, sizeof *o->first_at);
    o->bucket_of = berth_arrays_new(&o->mem, n_sec, sizeof *o->bucket_of);
    o->sec_of = berth_arrays_new(&o->mem, n_sec, sizeof *o->sec_of);
    o->list_at = berth_arrays_new(&o->mem, n_sec + 1, sizeof *o->list_at);
    o->list = berth_arrays_new(&o->mem, 2 * n, sizeof *o->list);
    int32_t *alive = berth_malloc(n * sizeof *alive);
    if (o->mem.has_failed || alive == NULL) {
        berth_free(alive);
        berth_arrays_free(&o->mem);
        return false;
    }
    int32_t i = 0;
    for (int32_t s = 0; s <= p->n_sec; s++) {
        while (i < p->n && p->begin[i] < s) {
            i++;
        }
        o->first_at[s] = i;
    }
    fill_buckets(o, p, alive);
    berth_free(alive);
    return true;
}

void berth_overlap_fini(struct plan_overlap *o) {
    berth_arrays_free(&o->mem);
}

// SPDX-License-Identifier: MIT
// greedy_index.c: finds the unplaced block with the best rank inside a valley.
// Unplaced blocks are kept by width class: one class per power of two below 256, eight above. The blocks of a class are sorted by
// first section, in leaves of 16 slots. A tree over the leaves holds the least end and the best rank.
// w_max is the largest width of a class. A block that begins at least w_max sections before the end of a valley also ends inside
// the valley. If a node has only such blocks, its best rank is the result, and the query does not descend further. Narrow classes
// make this more frequent: with 10^6 blocks, a query takes 25 us per block with one class per power of two, and 3 us with eight.
// Loops over a leaf have no branches, so that the compiler can vectorise them.

#include "base/min.h"
#include "plan/solve/greedy_pass.h"

#include <string.h>

#define LEAF 16 // slots

static int width_class_of(int32_t width) {
    int k = 31 - __builtin_clz((uint32_t) width);
    return k < GREEDY_FINE_FROM
               ? k
               : GREEDY_FINE_FROM + GREEDY_FINE * (k - GREEDY_FINE_FROM) + (width >> (k - GREEDY_FINE_BITS) & (GREEDY_FINE - 1));
}

static struct greedy_class width_class_make(int number, int32_t n) {
    if (number < GREEDY_FINE_FROM) {
        return (struct greedy_class){.w_min = 1 << number, .w_max = (2 << number) - 1, .shift = number, .n = n};
    }
    int k = GREEDY_FINE_FROM + (number - GREEDY_FINE_FROM) / GREEDY_FINE;
    int32_t sub = GREEDY_FINE + (number - GREEDY_FINE_FROM) % GREEDY_FINE;
    return (struct greedy_class){

        .w_min = sub << (k - GREEDY_FINE_BITS),
        .w_max = (int32_t) (((int64_t) (sub + 1) << (k - GREEDY_FINE_BITS)) - 1),
        .shift = k - GREEDY_FINE_BITS,
        .n = n};
}

void berth_greedy_pass_free(struct greedy_pass *d) {
    if (d != NULL) {
        berth_arrays_free(&d->mem);
        berth_free(d);
    }
}

// Puts the blocks into the slots of their classes. The blocks of p are already sorted by rising begin.
static void greedy_fill_slots(struct greedy_pass *d) {
    const struct plan_prob *p = d->p;
    int32_t at[GREEDY_CLASSES]; // next free slot, by class number
    for (int k = 0; k < d->n_classes; k++) {
        at[width_class_of(d->classes[k].w_min)] = d->classes[k].slot;
        for (int32_t i = d->classes[k].slot + d->classes[k].n; i < d->classes[k].slot + d->classes[k].n_leaves * LEAF; i++) {
            d->block[i] = -1;
            d->slot_begin[i] = INT32_MAX;
            d->slot_end[i] = INT32_MAX;
        }
    }
    for (int32_t i = 0; i < p->n; i++) {
        int32_t slot = at[width_class_of(p->end[i] - p->begin[i])]++;
        d->block[slot] = i;
        d->slot_begin[slot] = p->begin[i];
        d->slot_end[slot] = p->end[i];
    }
    for (int k = 0; k < d->n_classes; k++) {
        struct greedy_class *c = &d->classes[k];
        int32_t n_cells = (p->n_sec >> c->shift) + 2;
        int32_t i = 0;
        for (int32_t cell = 0; cell < n_cells; cell++) {
            while (i < c->n && d->slot_begin[c->slot + i] < (int64_t) cell << c->shift) {
                i++;
            }
            c->cell[cell] = i;
        }
    }
}

struct greedy_pass *berth_greedy_pass_new(const struct plan_prob *p) {
    struct greedy_pass *d = berth_calloc(1, sizeof *d);
    if (d == NULL) {
        return NULL;
    }
    d->p = p;
    int32_t count[GREEDY_CLASSES] = {0};
    for (int32_t i = 0; i < p->n; i++) {
        count[width_class_of(p->end[i] - p->begin[i])]++;
    }
    size_t n_nodes = 0;
    size_t n_cells = 0;
    for (int k = 0; k < GREEDY_CLASSES; k++) {
        d->last_class[k] = (int16_t) (d->n_classes - (count[k] == 0));
        if (count[k] == 0) {
            continue;
        }
        struct greedy_class *c = &d->classes[d->n_classes++];
        *c = width_class_make(k, count[k]);
        c->slot = d->n_slots;
        c->n_leaves = (c->n + LEAF - 1) / LEAF;
        c->pow2 = 1;
        while (c->pow2 < c->n_leaves) {
            c->pow2 *= 2;
        }
        d->n_slots += c->n_leaves * LEAF;
        n_nodes += (size_t) 2 * c->pow2;
        n_cells += (size_t) (p->n_sec >> c->shift) + 2;
    }
    size_t n = (size_t) p->n;
    size_t ns = (size_t) d->n_slots;
    d->block = berth_arrays_new(&d->mem, 4 * ns + 2 * n, sizeof *d->block);
    d->nodes = berth_arrays_new(&d->mem, n_nodes, sizeof *d->nodes);
    d->cells = berth_arrays_new(&d->mem, n_cells, sizeof *d->cells);
    d->key = berth_arrays_new(&d->mem, 2 * n, sizeof *d->key);
    d->skyline = berth_arrays_new(&d->mem, (size_t) p->n_sec + 2, sizeof *d->skyline);
    if (d->mem.has_failed) {
        berth_greedy_pass_free(d);
        return NULL;
    }
    d->slot_begin = d->block + ns;
    d->slot_end = d->slot_begin + ns;
    d->rank = d->slot_end + ns;
    d->by_rank = d->rank + ns;
    d->tmp_idx = d->by_rank + n;
    d->tmp_key = d->key + n;
    n_nodes = 0;
    n_cells = 0;
    for (int k = 0; k < d->n_classes; k++) {
        d->classes[k].tree = d->nodes + n_nodes;
        d->classes[k].cell = d->cells + n_cells;
        n_nodes += (size_t) 2 * d->classes[k].pow2;
        n_cells += (size_t) (p->n_sec >> d->classes[k].shift) + 2;
    }
    greedy_fill_slots(d);
    return d;
}

static uint64_t priority_key(const struct greedy_pass *d, enum plan_priority priority, int32_t i) {
    const struct plan_prob *p = d->p;
    double w = p->end[i] - p->begin[i];
    double z = (double) p->size[i];
    double t = d->life_max != NULL ? (double) d->life_max[i] : 1;
    if (priority == PLAN_LWA) {
        t = (double) p->align[i];
    }
    return plan_priority_key(priority, w, z, t);
}

void berth_greedy_index_rank(struct greedy_pass *d, enum plan_priority priority) {
    const struct plan_prob *p = d->p;
    int32_t n = 0;
    for (int32_t slot = 0; slot < d->n_slots; slot++) {
        d->rank[slot] = GREEDY_NO_RANK;
        d->slot_end[slot] = INT32_MAX;
        if (d->block[slot] >= 0 && (p->fixed == NULL || p->fixed[d->block[slot]] < 0)) {
            d->slot_end[slot] = p->end[d->block[slot]];
            d->key[n] = ~priority_key(d, priority, d->block[slot]);
            d->by_rank[n] = slot;
            n++;
        }
    }
    d->n_free = n;
    berth_plan_sort(d->key, d->by_rank, d->tmp_key, d->tmp_idx, n);
    for (int32_t r = 0; r < n; r++) {
        d->rank[d->by_rank[r]] = r;
    }
}

static struct greedy_node leaf_summary(const struct greedy_pass *d, int32_t slot) {
    const int32_t *rank = d->rank + slot;
    const int32_t *ends = d->slot_end + slot;
    int32_t least_end = INT32_MAX;
    int32_t best = GREEDY_NO_RANK;
    for (int i = 0; i < LEAF; i++) {
        least_end = min_i32(ends[i], least_end);
        best = min_i32(rank[i], best);
    }
    return (struct greedy_node){least_end, best};
}

static struct greedy_node node_summary(struct greedy_node x, struct greedy_node y) {
    return (struct greedy_node){min_i32(x.least_end, y.least_end), min_i32(x.best, y.best)};
}

void berth_greedy_index_build(struct greedy_pass *d) {
    for (int k = 0; k < d->n_classes; k++) {
        struct greedy_class *c = &d->classes[k];
        for (int32_t i = 0; i < c->pow2; i++) {
            c->tree[c->pow2 + i] =
                i < c->n_leaves ? leaf_summary(d, c->slot + i * LEAF) : (struct greedy_node){INT32_MAX, GREEDY_NO_RANK};
        }
        for (int32_t i = c->pow2 - 1; i > 0; i--) {
            c->tree[i] = node_summary(c->tree[2 * i], c->tree[2 * i + 1]);
        }
    }
}

void berth_greedy_index_remove(struct greedy_pass *d, struct greedy_class *c, int32_t slot) {
    d->rank[slot] = GREEDY_NO_RANK;
    d->slot_end[slot] = INT32_MAX;
    int32_t leaf = (slot - c->slot) / LEAF;
    c->tree[c->pow2 + leaf] = leaf_summary(d, c->slot + leaf * LEAF);
    for (int32_t i = (c->pow2 + leaf) / 2; i > 0; i /= 2) {
        struct greedy_node sum = node_summary(c->tree[2 * i], c->tree[2 * i + 1]);
        if (sum.least_end == c->tree[i].least_end && sum.best == c->tree[i].best) {
            break;
        }
        c->tree[i] = sum;
    }
}

struct query {
    int32_t lo, hi;       // sections of the valley
    int32_t cover;        // section in which the block must be alive, -1: any
    int32_t from, to;     // range of leaves that can hold a result
    int32_t surely_begin; // blocks that start up to here end inside the valley
    int32_t best;         // best rank found so far
};

static void query_leaf(const struct greedy_pass *d, const struct greedy_class *c, int32_t leaf, struct query *q) {
    const int32_t slot = c->slot + leaf * LEAF;
    const int32_t *rank = d->rank + slot;
    const int32_t *begin = d->slot_begin + slot;
    const int32_t *end = d->slot_end + slot;
    const int32_t begin_max = q->cover < 0 ? INT32_MAX : q->cover;
    const int32_t begin_min = q->lo;
    const int32_t end_min = q->cover;
    const int32_t end_max = q->hi;
    int32_t best = q->best;
    for (int i = 0; i < LEAF; i++) {
        int32_t is_in = -((begin[i] >= begin_min) & (begin[i] <= begin_max) & (end[i] > end_min) & (end[i] <= end_max));
        int32_t r = (rank[i] & is_in) | (GREEDY_NO_RANK & ~is_in);
        best = min_i32(r, best);
    }
    q->best = best;
}

// node covers the leaves [first, first + n).
static void query_tree(
    const struct greedy_pass *d, const struct greedy_class *c, int32_t node, int32_t first, int32_t n, struct query *q) {
    if (first >= q->to || first + n <= q->from || c->tree[node].best >= q->best || c->tree[node].least_end > q->hi) {
        return;
    }
    if (q->cover < 0 && d->slot_begin[c->slot + first * LEAF] >= q->lo && first + n <= c->n_leaves &&
        d->slot_begin[c->slot + (first + n) * LEAF - 1] <= q->surely_begin) {
        q->best = c->tree[node].best;
        return;
    }
    if (n == 1) {
        query_leaf(d, c, first, q);
        return;
    }
    query_tree(d, c, 2 * node, first, n / 2, q);
    query_tree(d, c, 2 * node + 1, first + n / 2, n / 2, q);
}

int32_t berth_greedy_index_query(const struct greedy_pass *d, int32_t lo, int32_t hi, int32_t cover, int *i_class) {
    struct query q = {.lo = lo, .hi = hi, .cover = cover, .best = GREEDY_NO_RANK};
    // Most priorities prefer wide blocks, and a good rank lets the query skip the other classes.
    for (int k = d->last_class[width_class_of(hi - lo)]; k >= 0; k--) {
        const struct greedy_class *c = &d->classes[k];
        if (c->tree[1].best >= q.best || hi - lo < c->w_min) {
            continue;
        }
        // Only blocks with first sections in [least, most] can be results.
        int32_t least = cover < 0 || cover - lo < c->w_max ? lo : cover - c->w_max + 1;
        int32_t most = cover < 0 || cover > hi - c->w_min ? hi - c->w_min : cover;
        int32_t from = c->cell[least >> c->shift];
        int32_t to = most >= least ? c->cell[(most >> c->shift) + 1] : from;
        if (from == to) {
            continue;
        }
        int32_t before = q.best;
        q.from = from / LEAF;
        q.to = (to - 1) / LEAF + 1;
        q.surely_begin = hi - c->w_max;
        if (q.to - q.from <= 3) {
            for (int32_t leaf = q.from; leaf < q.to; leaf++) {
                const struct greedy_node *sum = &c->tree[c->pow2 + leaf];
                if (sum->best < q.best && sum->least_end <= hi) {
                    query_leaf(d, c, leaf, &q);
                }
            }
        } else {
            query_tree(d, c, 1, 0, c->pow2, &q);
        }
        if (q.best < before) {
            *i_class = k;
        }
    }
    return q.best;
}

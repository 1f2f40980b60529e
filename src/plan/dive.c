// SPDX-License-Identifier: MIT
// dive.c: a plan by valley dives. The skyline over the sections is a row of segments; a valley is a segment below both of its
// neighbours. Of the unplaced blocks that live wholly inside the valley the one with the best priority goes on its floor; where
// there is none, the floor rises to the lower neighbour (the only step that wastes). Valleys do not see one another, so the
// order in which they are filled does not matter: the walk goes to the nearest one and needs no heap.
//
// Row of segments, left to right: left[0..n_left), cur, right[n_right..0). Both stacks share one array of n_sec + 2.
// Unplaced blocks are kept by width class: one per power of two below 256, eight above, sorted by first section, in leaves of 16;
// a tree over the leaves knows the least end and the best rank. In one class, a block that starts well inside a valley also ends
// inside, so that dense lifetimes do not make the tree look at every leaf (dense, 10^6 blocks: 25 us a block with one class per
// power of two, 3 us with eight).
// An aimed dive prefers blocks that serve the section with the most left to place, and gives up where the target is out of reach.
// At most 3n steps, one query each; 1 us a block or less up to 10^4 blocks, 2 us at 10^6 (bench/plan.c scale).

#include "plan/plan.h"

#include <string.h>

#define LEAF 16
#define FINE_FROM 8 // widths of 2^8 and more have FINE classes per power of two
#define FINE_BITS 3
#define FINE (1 << FINE_BITS)
#define N_CLASSES (FINE_FROM + FINE * (31 - FINE_FROM))
#define PLACED INT32_MAX // rank of a slot that holds no unplaced block
#define HOPELESS (-1)    // in place of a rank: the target cannot be met

struct node {
    int32_t least_b; // least end of the unplaced blocks below, INT32_MAX: none
    int32_t best;    // their best rank, PLACED: none
};

// Loops over a leaf are free of branches, for the compiler to make vectors of.

// A class that has blocks.
struct width_class {
    int32_t w_min, w_max; // widths
    int32_t shift;        // sections per cell, as a power of two; not above w_min
    int32_t slot;         // first slot, a multiple of LEAF
    int32_t n;            // blocks
    int32_t n_leaves;     // leaves in use
    int32_t pow2;         // leaves of the tree, a power of two
    struct node *tree;    // [2 * pow2]: 1 is the root, pow2 + i is leaf i
    int32_t *cell;        // [(n_sec >> shift) + 2]: first block with a >= cell << shift, relative to slot
};

struct segment {
    int64_t level;
    int32_t lo; // its end is where the next one begins
};

struct plan_dive {
    const struct plan_prob *p;
    int32_t n_classes;
    int32_t n_slots;
    struct width_class classes[N_CLASSES];
    int16_t last_class[N_CLASSES]; // by number: the last class whose number is not above, -1: none
    int32_t *block;                // [n_slots] block in a slot, -1: padding
    int32_t *slot_a;               // [n_slots]
    int32_t *slot_b;               // [n_slots] INT32_MAX once placed
    int32_t *rank;                 // [n_slots] by the priority of this dive, PLACED once placed
    int32_t *by_rank;              // [n] slot
    int32_t n_free;                // blocks to place: those that are not fixed
    struct node *nodes;
    int32_t *cells;
    int64_t *life_max; // [n] T: the largest total over a block's life; filled when first asked for
    uint64_t *key;     // [n] scratch of the sort
    uint64_t *tmp_key;
    int32_t *tmp_idx;
    int64_t *left_most;  // [2 * left_n] tree over what is left of each section; NULL until a dive is aimed
    int64_t *left_more;  // [2 * left_n] to be added to all below
    int32_t left_n;      // leaves, a power of two
    struct segment *row; // [n_sec + 2]
};

static int width_class_of(int32_t width) {
    int k = 31 - __builtin_clz((uint32_t) width);
    return k < FINE_FROM ? k : FINE_FROM + FINE * (k - FINE_FROM) + (width >> (k - FINE_BITS) & (FINE - 1));
}

static struct width_class width_class_make(int number, int32_t n) {
    if (number < FINE_FROM) {
        return (struct width_class){.w_min = 1 << number, .w_max = (2 << number) - 1, .shift = number, .n = n};
    }
    int k       = FINE_FROM + (number - FINE_FROM) / FINE;
    int32_t sub = FINE + (number - FINE_FROM) % FINE;
    return (struct width_class){

        .w_min = sub << (k - FINE_BITS),
        .w_max = (int32_t) (((int64_t) (sub + 1) << (k - FINE_BITS)) - 1),
        .shift = k - FINE_BITS,
        .n     = n};
}

void berth_plan_dive_free(struct plan_dive *d) {
    if (d == NULL) {
        return;
    }
    berth_free(d->block);
    berth_free(d->nodes);
    berth_free(d->cells);
    berth_free(d->life_max);
    berth_free(d->key);
    berth_free(d->row);
    berth_free(d->left_most);
    berth_free(d);
}

// Sorts the blocks into slots, class by class; p has them by rising a already.
static void dive_fill_slots(struct plan_dive *d) {
    const struct plan_prob *p = d->p;
    int32_t at[N_CLASSES]; // by number
    for (int k = 0; k < d->n_classes; k++) {
        at[width_class_of(d->classes[k].w_min)] = d->classes[k].slot;
        for (int32_t i = d->classes[k].slot + d->classes[k].n; i < d->classes[k].slot + d->classes[k].n_leaves * LEAF; i++) {
            d->block[i]  = -1;
            d->slot_a[i] = INT32_MAX;
            d->slot_b[i] = INT32_MAX;
        }
    }
    for (int32_t i = 0; i < p->n; i++) {
        int32_t slot    = at[width_class_of(p->b[i] - p->a[i])]++;
        d->block[slot]  = i;
        d->slot_a[slot] = p->a[i];
        d->slot_b[slot] = p->b[i];
    }
    for (int k = 0; k < d->n_classes; k++) {
        struct width_class *c = &d->classes[k];
        int32_t n_cells       = (p->n_sec >> c->shift) + 2;
        int32_t i             = 0;
        for (int32_t cell = 0; cell < n_cells; cell++) {
            while (i < c->n && d->slot_a[c->slot + i] < (int64_t) cell << c->shift) {
                i++;
            }
            c->cell[cell] = i;
        }
    }
}

struct plan_dive *berth_plan_dive_new(const struct plan_prob *p) {
    struct plan_dive *d = berth_calloc(1, sizeof *d);
    if (d == NULL) {
        return NULL;
    }
    d->p                     = p;
    int32_t count[N_CLASSES] = {0};
    for (int32_t i = 0; i < p->n; i++) {
        count[width_class_of(p->b[i] - p->a[i])]++;
    }
    size_t n_nodes = 0;
    size_t n_cells = 0;
    for (int k = 0; k < N_CLASSES; k++) {
        d->last_class[k] = (int16_t) (d->n_classes - (count[k] == 0));
        if (count[k] == 0) {
            continue;
        }
        struct width_class *c = &d->classes[d->n_classes++];
        *c                    = width_class_make(k, count[k]);
        c->slot               = d->n_slots;
        c->n_leaves           = (c->n + LEAF - 1) / LEAF;
        c->pow2               = 1;
        while (c->pow2 < c->n_leaves) {
            c->pow2 *= 2;
        }
        d->n_slots += c->n_leaves * LEAF;
        n_nodes += (size_t) 2 * c->pow2;
        n_cells += (size_t) (p->n_sec >> c->shift) + 2;
    }
    size_t n  = (size_t) p->n;
    size_t ns = (size_t) d->n_slots;
    d->block  = berth_malloc((4 * ns + 2 * n) * sizeof(int32_t));
    d->nodes  = berth_malloc(n_nodes * sizeof *d->nodes);
    d->cells  = berth_malloc(n_cells * sizeof *d->cells);
    d->key    = berth_malloc(2 * n * sizeof *d->key);
    d->row    = berth_malloc(((size_t) p->n_sec + 2) * sizeof *d->row);
    if (d->block == NULL || d->nodes == NULL || d->cells == NULL || d->key == NULL || d->row == NULL) {
        berth_plan_dive_free(d);
        return NULL;
    }
    d->slot_a  = d->block + ns;
    d->slot_b  = d->slot_a + ns;
    d->rank    = d->slot_b + ns;
    d->by_rank = d->rank + ns;
    d->tmp_idx = d->by_rank + n;
    d->tmp_key = d->key + n;
    n_nodes    = 0;
    n_cells    = 0;
    for (int k = 0; k < d->n_classes; k++) {
        d->classes[k].tree = d->nodes + n_nodes;
        d->classes[k].cell = d->cells + n_cells;
        n_nodes += (size_t) 2 * d->classes[k].pow2;
        n_cells += (size_t) (p->n_sec >> d->classes[k].shift) + 2;
    }
    dive_fill_slots(d);
    return d;
}

// A number >= 1 as 7 + bits bits that keep its order: exponent and leading digits.
static uint64_t coarse(double x, int bits) {
    union {
        double x;
        uint64_t u;
    } v = {x};
    return (v.u >> (52 - bits)) - ((uint64_t) 1023 << bits);
}

static uint64_t priority_key(const struct plan_dive *d, enum plan_priority priority, int32_t i) {
    const struct plan_prob *p = d->p;
    double w                  = p->b[i] - p->a[i];
    double z                  = (double) p->size[i];
    double t                  = d->life_max != NULL ? (double) d->life_max[i] : 1;
    switch (priority) {
        case PLAN_TWA: return coarse(t, 19) << 38 | coarse(w, 14) << 17 | coarse(w * z, 10);
        case PLAN_TAW: return coarse(t, 19) << 38 | coarse(w * z, 24) << 7 | coarse(w, 0);
        case PLAN_AT: return coarse(w * z, 24) << 33 | coarse(t, 26);
        case PLAN_ZW: return coarse(z, 29) << 28 | coarse(w, 21);
        case PLAN_LWA: return coarse((double) p->align[i], 10) << 40 | coarse(w, 14) << 17 | coarse(w * z, 10);
        default: return coarse(w, 14) << 43 | coarse(w * z, 12) << 24 | coarse(t, 17);
    }
}

static void dive_rank(struct plan_dive *d, enum plan_priority priority) {
    const struct plan_prob *p = d->p;
    int32_t n                 = 0;
    for (int32_t slot = 0; slot < d->n_slots; slot++) {
        d->rank[slot]   = PLACED;
        d->slot_b[slot] = INT32_MAX;
        if (d->block[slot] >= 0 && (p->fixed == NULL || p->fixed[d->block[slot]] < 0)) {
            d->slot_b[slot] = p->b[d->block[slot]];
            d->key[n]       = ~priority_key(d, priority, d->block[slot]);
            d->by_rank[n]   = slot;
            n++;
        }
    }
    d->n_free = n;
    berth_plan_sort(d->key, d->by_rank, d->tmp_key, d->tmp_idx, n);
    for (int32_t r = 0; r < n; r++) {
        d->rank[d->by_rank[r]] = r;
    }
}

static struct node leaf_sum(const struct plan_dive *d, int32_t slot) {
    const int32_t *rank = d->rank + slot;
    const int32_t *ends = d->slot_b + slot;
    int32_t least_b     = INT32_MAX;
    int32_t best        = PLACED;
    for (int i = 0; i < LEAF; i++) {
        least_b = ends[i] < least_b ? ends[i] : least_b;
        best    = rank[i] < best ? rank[i] : best;
    }
    return (struct node){least_b, best};
}

static struct node node_sum(struct node x, struct node y) {
    return (struct node){x.least_b < y.least_b ? x.least_b : y.least_b, x.best < y.best ? x.best : y.best};
}

static void dive_plant(struct plan_dive *d) {
    for (int k = 0; k < d->n_classes; k++) {
        struct width_class *c = &d->classes[k];
        for (int32_t i = 0; i < c->pow2; i++) {
            c->tree[c->pow2 + i] = i < c->n_leaves ? leaf_sum(d, c->slot + i * LEAF) : (struct node){INT32_MAX, PLACED};
        }
        for (int32_t i = c->pow2 - 1; i > 0; i--) {
            c->tree[i] = node_sum(c->tree[2 * i], c->tree[2 * i + 1]);
        }
    }
}

static void dive_remove(struct plan_dive *d, struct width_class *c, int32_t slot) {
    d->rank[slot]           = PLACED;
    d->slot_b[slot]         = INT32_MAX;
    int32_t leaf            = (slot - c->slot) / LEAF;
    c->tree[c->pow2 + leaf] = leaf_sum(d, c->slot + leaf * LEAF);
    for (int32_t i = (c->pow2 + leaf) / 2; i > 0; i /= 2) {
        struct node sum = node_sum(c->tree[2 * i], c->tree[2 * i + 1]);
        if (sum.least_b == c->tree[i].least_b && sum.best == c->tree[i].best) {
            break;
        }
        c->tree[i] = sum;
    }
}

struct query {
    int32_t lo, hi;   // the valley's sections
    int32_t cover;    // a section that the block must be alive in, -1: any will do
    int32_t from, to; // leaves of this class in question
    int32_t surely_a; // a block of this class that starts here or before ends inside
    int32_t best;     // best rank so far
};

static void query_leaf(const struct plan_dive *d, const struct width_class *c, int32_t leaf, struct query *q) {
    const int32_t slot  = c->slot + leaf * LEAF;
    const int32_t *rank = d->rank + slot;
    const int32_t *a    = d->slot_a + slot;
    const int32_t *b    = d->slot_b + slot;
    const int32_t a_max = q->cover < 0 ? INT32_MAX : q->cover;
    const int32_t a_min = q->lo;
    const int32_t b_min = q->cover;
    const int32_t b_max = q->hi;
    int32_t best        = q->best;
    for (int i = 0; i < LEAF; i++) {
        int32_t is_in = -((a[i] >= a_min) & (a[i] <= a_max) & (b[i] > b_min) & (b[i] <= b_max));
        int32_t r     = (rank[i] & is_in) | (PLACED & ~is_in);
        best          = r < best ? r : best;
    }
    q->best = best;
}

// node covers the leaves [first, first + n)
static void query_tree(
    const struct plan_dive *d, const struct width_class *c, int32_t node, int32_t first, int32_t n, struct query *q) {
    if (first >= q->to || first + n <= q->from || c->tree[node].best >= q->best || c->tree[node].least_b > q->hi) {
        return;
    }
    if (q->cover < 0 && d->slot_a[c->slot + first * LEAF] >= q->lo && first + n <= c->n_leaves &&
        d->slot_a[c->slot + (first + n) * LEAF - 1] <= q->surely_a) {
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

// The best unplaced block inside [lo, hi): its rank, or PLACED. *in: its class.
static int32_t dive_query(const struct plan_dive *d, int32_t lo, int32_t hi, int32_t cover, int *in) {
    struct query q = {.lo = lo, .hi = hi, .cover = cover, .best = PLACED};
    // Wide ones first: most priorities prefer them, and what they find lets the others go unread.
    for (int k = d->last_class[width_class_of(hi - lo)]; k >= 0; k--) {
        const struct width_class *c = &d->classes[k];
        if (c->tree[1].best >= q.best || hi - lo < c->w_min) {
            continue;
        }
        // first sections in question: those of blocks that may end inside and, if asked, cover
        int32_t least = cover < 0 || cover - lo < c->w_max ? lo : cover - c->w_max + 1;
        int32_t most  = cover < 0 || cover > hi - c->w_min ? hi - c->w_min : cover;
        int32_t from  = c->cell[least >> c->shift];
        int32_t to    = most >= least ? c->cell[(most >> c->shift) + 1] : from;
        if (from == to) {
            continue;
        }
        int32_t before = q.best;
        q.from         = from / LEAF;
        q.to           = (to - 1) / LEAF + 1;
        q.surely_a     = hi - c->w_max;
        if (q.to - q.from <= 3) {
            for (int32_t leaf = q.from; leaf < q.to; leaf++) {
                const struct node *sum = &c->tree[c->pow2 + leaf];
                if (sum->best < q.best && sum->least_b <= hi) {
                    query_leaf(d, c, leaf, &q);
                }
            }
        } else {
            query_tree(d, c, 1, 0, c->pow2, &q);
        }
        if (q.best < before) {
            *in = k;
        }
    }
    return q.best;
}

// ---- what is left to place, by section ----

// Recomputes node x of the tree of what is left: most[x] = more[x] + the larger of its children.
static void left_pull(struct plan_dive *d, int32_t x) {
    int64_t l       = d->left_most[2 * x];
    int64_t r       = d->left_most[2 * x + 1];
    d->left_most[x] = (l > r ? l : r) + d->left_more[x];
}

// Takes size from the sections [lo, hi).
static void left_take(struct plan_dive *d, int32_t lo, int32_t hi, int64_t size) {
    int32_t l = lo + d->left_n;
    int32_t h = hi + d->left_n;
    for (int32_t x = l, y = h; x < y; x /= 2, y /= 2) {
        if (x & 1) {
            d->left_most[x] -= size;
            d->left_more[x] -= size;
            x++;
        }
        if (y & 1) {
            y--;
            d->left_most[y] -= size;
            d->left_more[y] -= size;
        }
    }
    for (int32_t x = l / 2; x > 0; x /= 2) {
        left_pull(d, x);
    }
    for (int32_t x = (h - 1) / 2; x > 0; x /= 2) {
        left_pull(d, x);
    }
}

// The section of [lo, hi) with the most left to place, the first of several. node covers [first, first + n); above: what the
// nodes above it add.
static void left_find(const struct plan_dive *d, int32_t node, int32_t first, int32_t n, int32_t lo, int32_t hi, int64_t above,
    int64_t *most, int32_t *at) {
    if (first >= hi || first + n <= lo || d->left_most[node] + above <= *most) {
        return;
    }
    if (n == 1) {
        *most = d->left_most[node] + above;
        *at   = first;
        return;
    }
    above += d->left_more[node];
    left_find(d, 2 * node, first, n / 2, lo, hi, above, most, at);
    left_find(d, 2 * node + 1, first + n / 2, n / 2, lo, hi, above, most, at);
}

static bool left_plant(struct plan_dive *d) {
    const struct plan_prob *p = d->p;
    if (d->left_most == NULL) {
        d->left_n = 1;
        while (d->left_n < p->n_sec) {
            d->left_n *= 2;
        }
        d->left_most = berth_malloc((size_t) d->left_n * 4 * sizeof *d->left_most);
        if (d->left_most == NULL) {
            return false;
        }
        d->left_more = d->left_most + 2 * (size_t) d->left_n;
    }
    memset(d->left_more, 0, (size_t) d->left_n * 2 * sizeof *d->left_more);
    for (int32_t s = 0; s < d->left_n; s++) {
        d->left_most[d->left_n + s] = s < p->n_sec ? p->total[s] : -1;
    }
    for (int32_t x = d->left_n - 1; x > 0; x--) {
        left_pull(d, x);
    }
    return true;
}

// The block for a valley: one that serves the section with the most left to place, if there is one.
static int32_t aimed_query(const struct plan_dive *d, int32_t lo, int32_t hi, int64_t wall, int64_t target, int *in) {
    int64_t most = -1;
    int32_t at   = -1;
    left_find(d, 1, 0, d->left_n, lo, hi, 0, &most, &at);
    int32_t r = dive_query(d, lo, hi, at, in);
    if (r != PLACED) {
        return r;
    }
    // Nothing can stand on the floor of that section: it will be as high as the wall.
    return wall < INT64_MAX && most > target - wall ? HOPELESS : dive_query(d, lo, hi, -1, in);
}

// ---- the dive ----

// One dive with the ranks as they are. Peak or -1.
static int64_t dive_fill(struct plan_dive *d, bool is_aimed, int64_t target, int64_t *off) {
    const struct plan_prob *p       = d->p;
    const bool is_odd               = plan_prob_is_odd(p);
    struct segment *left            = d->row;                // left[-1] is the left neighbour
    struct segment *right           = d->row + p->n_sec + 2; // right[0] is the right neighbour
    struct segment *const left_end  = left;
    struct segment *const right_end = right;
    struct segment cur              = {0, 0};
    int32_t hi                      = p->n_sec; // end of cur
    int64_t peak                    = 0;
    int32_t n_left                  = d->n_free;
    for (int32_t f = 0; f < p->n_fixed; f++) {
        int32_t i = p->fixed_ids[f];
        off[i]    = p->fixed[i];
        peak      = off[i] + p->size[i] > peak ? off[i] + p->size[i] : peak;
    }
    if (peak > target) {
        return -1;
    }
    while (n_left > 0) {
        int64_t wall_l = left > left_end ? left[-1].level : INT64_MAX;
        int64_t wall_r = right < right_end ? right[0].level : INT64_MAX;
        if (wall_r < cur.level) {
            *left++ = cur;
            cur     = *right++;
            hi      = right < right_end ? right[0].lo : p->n_sec;
            continue;
        }
        if (wall_l < cur.level) {
            *--right = cur;
            hi       = cur.lo;
            cur      = *--left;
            continue;
        }
        if (wall_r == cur.level) {
            right++;
            hi = right < right_end ? right[0].lo : p->n_sec;
        }
        if (wall_l == cur.level) {
            cur.lo = (--left)->lo;
        }
        if (wall_l == cur.level || wall_r == cur.level) {
            continue;
        }
        int k        = 0;
        int64_t wall = wall_l < wall_r ? wall_l : wall_r;
        int32_t r    = is_aimed ? aimed_query(d, cur.lo, hi, wall, target, &k) : dive_query(d, cur.lo, hi, -1, &k);
        if (r == PLACED) {
            cur.level = wall;
            continue;
        }
        if (r == HOPELESS) {
            return -1;
        }
        int32_t slot = d->by_rank[r];
        int32_t i    = d->block[slot];
        int64_t at   = is_odd ? berth_plan_lowest_at(p, i, cur.level, target) : cur.level;
        if (at < 0 || p->size[i] > target - at) {
            return -1;
        }
        off[i]      = at;
        int64_t top = at + p->size[i];
        peak        = top > peak ? top : peak;
        n_left--;
        if (is_aimed) {
            left_take(d, p->a[i], p->b[i], p->size[i]);
        }
        dive_remove(d, &d->classes[k], slot);
        struct segment placed = {top, p->a[i]};
        int32_t b             = p->b[i];
        if (cur.lo < placed.lo) {
            if (b < hi) {
                *--right = (struct segment){cur.level, b};
            }
            *--right = placed;
            hi       = placed.lo;
        } else if (b < hi) {
            *left++ = placed;
            cur.lo  = b;
        } else {
            cur = placed;
        }
    }
    return peak;
}

int64_t berth_plan_dive_run(struct plan_dive *d, enum plan_priority priority, bool is_aimed, int64_t target, int64_t *off) {
    if (is_aimed && !left_plant(d)) {
        return -1;
    }
    if (priority != PLAN_ZW && d->life_max == NULL) {
        d->life_max = berth_malloc((size_t) d->p->n * sizeof *d->life_max);
        if (d->life_max == NULL || !berth_plan_life_max(d->p, d->life_max)) {
            return -1;
        }
    }
    dive_rank(d, priority);
    dive_plant(d);
    return dive_fill(d, is_aimed, target, off);
}

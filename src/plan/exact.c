// SPDX-License-Identifier: MIT
// exact.c: does a problem fit into C units? Branch and bound over plans in canonical form: no block can slide down, so each one
// lies on the ground or on another block.
//
//   sky[i]     the highest end of a placed neighbour: where i would lie if placed now
//   low[i]     no plan below this node has i lower; low[i] >= sky[i]
//   floor[s]   nothing unplaced comes lower in section s
//   rest[s]    units of section s still to place; slack[s] = C - rest[s] - min(low): what it can still waste
//   span[s]    unplaced blocks alive both before and in section s
// Invariants at a node: low[i] = PLACED for placed blocks; for unplaced ones max(floor) <= low[i] <= C - size[i]; slack >= 0.
//
// A candidate is a block with low == sky on a flat floor: nothing can come under it any more. A canonical plan has it at its sky
// or on top of an unplaced neighbour; the node tries the first and then adds the second as a fact. So the order in which
// valleys are worked on is free. Working on the one with the least slack first makes wrong choices show near where they were
// made (G: 420 nodes, against 466,637 from the bottom up).
// Facts: (resting) where low > sky, low[i] >= min(low[j] + size[j]) over unplaced neighbours j, and one of them keeps i from
// sliding to its sky; (valley) a floor lower than both sides that no candidate can use rises to the lower side; (not first) in a
// section, a block that cannot be lowest lies above one that can.
// Every comparison with C that prunes notes the value that failed: below the least of them the proof is the same proof, so that
// is the next capacity worth asking (*next).
// All state is in one array with a trail; a node costs 3 to 10 us at 200 to 300 blocks.

#include "plan/exact.h"

#include <string.h>

#define PLACED ((int64_t) 1 << 62)
#define UNITS_MAX ((int64_t) 1 << 60) // sums of two offsets must stay below PLACED
#define MAX_NEIGHBOURS ((size_t) 1 << 26)
#define CLOCK_NODES 16 // nodes between two looks at the clock

struct change {
    int64_t *at;
    int64_t old;
};

// Blocks that are searched together.
struct part {
    size_t list; // its unplaced blocks: lists[list .. list + n); what is placed moves behind the end
    int32_t n;
    int32_t lo, hi; // its sections
};

struct exact {
    const struct plan_prob *p;
    int64_t *low;      // [n]
    int64_t *sky;      // [n]
    int64_t *rest;     // [n_sec]
    int64_t *span;     // [n_sec + 1]
    int64_t *floor;    // [n_sec] nothing unplaced comes below this
    int64_t *slack;    // [n_sec] C - min(low) - rest: what section s can still waste
    int64_t *off;      // [n] offsets of placed blocks
    int32_t *sec_at;   // [n_sec + 1] into sec_ids
    int32_t *sec_ids;  // blocks by section
    int32_t *near_at;  // [n + 1] into near_ids
    int32_t *near_ids; // neighbours by block
    int32_t *pre;      // [n] place in the preorder of the block's part
    int32_t *pos;      // [n] place in its part's list, from the list's begin
    int32_t *queue;    // [n_sec] sections to look at
    bool *is_queued;   // [n_sec]
    int32_t n_queue;
    int32_t *best_at; // [n_sec] the candidate of the best preorder that starts here, -1: none
    int32_t *under;   // [n] a neighbour that i may rest on, the last time one was looked for
    int32_t *block;   // [n] a neighbour that may keep i from sliding to its sky, likewise
    struct change *trail;
    size_t n_trail, cap_trail;
    int32_t *lists; // blocks of the parts on the way down, a stack
    size_t n_lists, cap_lists;
    uint64_t *key; // [2n] scratch of the sort
    int32_t *tmp;  // [n]
    const struct exact_ask *ask;
    int64_t next;
    int64_t n_nodes;
    uint64_t random;
    int32_t through; // a candidate that lives as long as its part, -1: none; set by note_candidates
    bool is_late;
    bool is_out_of_memory;
};

// ---- memory ----

void berth_exact_free(struct exact *x) {
    if (x == NULL) {
        return;
    }
    berth_free(x->low);
    berth_free(x->sec_at);
    berth_free(x->sec_ids);
    berth_free(x->near_at);
    berth_free(x->near_ids);
    berth_free(x->queue);
    berth_free(x->is_queued);
    berth_free(x->trail);
    berth_free(x->lists);
    berth_free(x->key);
    berth_free(x->best_at);
    berth_free(x->tmp);
    berth_free(x);
}

static bool fill_sections(struct exact *x) {
    const struct plan_prob *p = x->p;
    size_t n_ids              = 0;
    for (int32_t i = 0; i < p->n; i++) {
        n_ids += (size_t) (p->b[i] - p->a[i]);
    }
    if (n_ids > MAX_NEIGHBOURS) {
        return false;
    }
    x->sec_at  = berth_calloc((size_t) p->n_sec + 2, sizeof *x->sec_at);
    x->sec_ids = berth_malloc(n_ids * sizeof *x->sec_ids);
    if (x->sec_at == NULL || x->sec_ids == NULL) {
        return false;
    }
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t s = p->a[i]; s < p->b[i]; s++) {
            x->sec_at[s + 2]++;
        }
    }
    for (int32_t s = 2; s < p->n_sec + 2; s++) {
        x->sec_at[s] += x->sec_at[s - 1];
    }
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t s = p->a[i]; s < p->b[i]; s++) {
            x->sec_ids[x->sec_at[s + 1]++] = i;
        }
    }
    return true;
}

// Blocks come by rising a: the neighbours of i are those alive in its first section, and those that start later in its life.
static bool fill_neighbours(struct exact *x) {
    const struct plan_prob *p = x->p;
    size_t n                  = (size_t) p->n;
    x->near_at                = berth_calloc(n + 2, sizeof *x->near_at);
    if (x->near_at == NULL) {
        return false;
    }
    size_t n_ids = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < p->n; i++) {
            for (int32_t j = i + 1; j < p->n && p->a[j] < p->b[i]; j++) {
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
            x->near_ids = berth_malloc((n_ids > 0 ? n_ids : 1) * sizeof *x->near_ids);
            if (x->near_ids == NULL) {
                return false;
            }
        }
    }
    return true;
}

int64_t berth_exact_pairs(const struct plan_prob *p) {
    // By rising a: block i meets those that start in its life after it.
    int64_t n_pairs = 0;
    int32_t *starts = berth_calloc((size_t) p->n_sec + 1, sizeof *starts);
    if (starts == NULL) {
        return INT64_MAX;
    }
    for (int32_t i = 0; i < p->n; i++) {
        starts[p->a[i] + 1]++;
    }
    for (int32_t s = 0; s < p->n_sec; s++) {
        starts[s + 1] += starts[s];
    }
    for (int32_t i = 0; i < p->n; i++) {
        n_pairs += starts[p->b[i]] - i - 1;
    }
    berth_free(starts);
    return n_pairs;
}

struct exact *berth_exact_new(const struct plan_prob *p) {
    BERTH_ASSERT(!plan_prob_is_odd(p));
    struct exact *x = p->bound < UNITS_MAX ? berth_calloc(1, sizeof *x) : NULL;
    if (x == NULL) {
        return NULL;
    }
    x->p         = p;
    size_t n     = (size_t) p->n;
    size_t m     = (size_t) p->n_sec;
    x->low       = berth_malloc((3 * n + 4 * m + 1) * sizeof *x->low);
    x->queue     = berth_malloc((m + 2 * n) * sizeof *x->queue);
    x->is_queued = berth_calloc(m, sizeof *x->is_queued);
    x->best_at   = berth_malloc((m + 2 * n) * sizeof *x->best_at);
    x->key       = berth_malloc(2 * n * sizeof *x->key);
    x->tmp       = berth_malloc(n * sizeof *x->tmp);
    x->cap_lists = 4 * n;
    x->lists     = berth_malloc(x->cap_lists * sizeof *x->lists);
    x->cap_trail = 16 * (n + m);
    x->trail     = berth_malloc(x->cap_trail * sizeof *x->trail);
    if (x->low == NULL || x->queue == NULL || x->is_queued == NULL || x->key == NULL || x->best_at == NULL || x->tmp == NULL ||
        x->lists == NULL || x->trail == NULL || !fill_sections(x) || !fill_neighbours(x)) {
        berth_exact_free(x);
        return NULL;
    }
    x->sky   = x->low + n;
    x->off   = x->sky + n;
    x->rest  = x->off + n;
    x->slack = x->rest + m;
    x->floor = x->slack + m;
    x->span  = x->floor + m;
    x->pre   = x->queue + m;
    x->pos   = x->pre + n;
    x->under = x->best_at + m;
    x->block = x->under + n;
    return x;
}

// ---- the trail ----

static void set(struct exact *x, int64_t *at, int64_t value) {
    if (x->n_trail == x->cap_trail) {
        if (!berth_grow((void **) &x->trail, &x->cap_trail, x->n_trail + 1, sizeof *x->trail)) {
            x->is_out_of_memory = true;
            return;
        }
    }
    x->trail[x->n_trail++] = (struct change){at, *at};
    *at                    = value;
}

static void undo(struct exact *x, size_t mark) {
    while (x->n_trail > mark) {
        struct change *c = &x->trail[--x->n_trail];
        *c->at           = c->old;
    }
}

// ---- propagation ----

// value <= C? If not, notes it.
static bool holds(struct exact *x, int64_t value) {
    if (value <= x->ask->cap) {
        return true;
    }
    x->next = value < x->next ? value : x->next;
    return false;
}

static void queue_block(struct exact *x, int32_t i) {
    for (int32_t s = x->p->a[i]; s < x->p->b[i]; s++) {
        if (!x->is_queued[s]) {
            x->is_queued[s]        = true;
            x->queue[x->n_queue++] = s;
        }
    }
}

static bool raise_low(struct exact *x, int32_t i, int64_t low) {
    set(x, &x->low[i], low);
    queue_block(x, i);
    return holds(x, low + x->p->size[i]);
}

// One section as one machine: heads low, lengths size, deadline C.
static bool section_look(struct exact *x, int32_t s) {
    const int64_t *size = x->p->size;
    const int64_t *low  = x->low;
    const int32_t *ids  = x->sec_ids + x->sec_at[s];
    const int32_t n     = x->sec_at[s + 1] - x->sec_at[s];
    const int64_t rest  = x->rest[s];
    if (rest == 0) {
        return true;
    }
    const int64_t latest = x->ask->cap - rest; // a block that is lowest here lies no higher
    int64_t least        = PLACED;
    int64_t first_end    = PLACED; // least end of those that can be lowest
    int64_t blocked      = PLACED; // least low of those that cannot
    for (int32_t k = 0; k < n; k++) {
        int64_t l = low[ids[k]];
        least     = l < least ? l : least;
        if (l <= latest) {
            int64_t end = l + size[ids[k]];
            first_end   = end < first_end ? end : first_end;
        } else {
            blocked = l < blocked ? l : blocked;
        }
    }
    if (!holds(x, least + rest)) {
        return false;
    }
    if (x->slack[s] != latest - least) {
        set(x, &x->slack[s], latest - least);
    }
    if (blocked >= first_end || !(x->ask->rules & EXACT_NOT_FIRST)) {
        return true;
    }
    x->next = blocked + rest < x->next ? blocked + rest : x->next;
    for (int32_t k = 0; k < n; k++) {
        int64_t l = low[ids[k]];
        if (l > latest && l < first_end && !raise_low(x, ids[k], first_end)) {
            return false;
        }
    }
    return true;
}

static bool propagate(struct exact *x) {
    bool ok = true;
    while (x->n_queue > 0) {
        int32_t s       = x->queue[--x->n_queue];
        x->is_queued[s] = false;
        ok              = ok && section_look(x, s);
    }
    return ok && !x->is_out_of_memory;
}

// ---- placing ----

// Places i on the skyline. *has_split: a border of time is crossed no more. Conclusions are settle()'s.
static bool place(struct exact *x, int32_t i, bool *has_split) {
    const struct plan_prob *p = x->p;
    int64_t top               = x->sky[i] + p->size[i];
    bool ok                   = true;
    x->off[i]                 = x->sky[i];
    set(x, &x->low[i], PLACED);
    queue_block(x, i);
    for (int32_t s = p->a[i]; s < p->b[i]; s++) {
        set(x, &x->rest[s], x->rest[s] - p->size[i]);
        set(x, &x->floor[s], top);
    }
    for (int32_t s = p->a[i] + 1; s < p->b[i]; s++) {
        set(x, &x->span[s], x->span[s] - 1);
        *has_split |= x->span[s] == 0;
    }
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j = x->near_ids[k];
        if (x->low[j] != PLACED && x->sky[j] < top) {
            set(x, &x->sky[j], top);
            ok = (x->low[j] >= top || raise_low(x, j, top)) && ok;
        }
    }
    return ok;
}

// ---- what follows for blocks that cannot lie at their sky ----

// Such a block rests on an unplaced neighbour, and would slide down to its sky if none were in the way. Witnesses of both are
// kept over nodes and asked first.
static bool rest_on(struct exact *x, int32_t i) {
    const int64_t *size   = x->p->size;
    const int64_t sky_end = x->sky[i] + size[i];
    if (x->low[x->under[i]] + size[x->under[i]] <= x->low[i] && x->low[x->block[i]] < sky_end) {
        return true;
    }
    int64_t least   = INT64_MAX;
    int64_t low_min = PLACED;
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j   = x->near_ids[k];
        int64_t end = x->low[j] + size[j];
        if (end < least) {
            least       = end;
            x->under[i] = j;
        }
        if (x->low[j] < low_min) {
            low_min     = x->low[j];
            x->block[i] = j;
        }
    }
    if (least >= PLACED || (low_min >= sky_end && (x->ask->rules & EXACT_DOMINANCE))) {
        return false;
    }
    return x->low[i] >= least || raise_low(x, i, least);
}

static bool is_candidate(const struct exact *x, int32_t i) {
    if (x->low[i] != x->sky[i]) {
        return false;
    }
    for (int32_t s = x->p->a[i]; s < x->p->b[i]; s++) {
        if (x->floor[s] != x->sky[i]) {
            return false;
        }
    }
    return true;
}

// ---- valleys ----

// A run of sections with one floor.
struct run {
    int32_t lo, hi;
    int64_t floor, left, right; // left, right: the floors beside it, PLACED at the ends of the part
    int32_t best;               // its candidate of the best preorder, -1: none
};

// Notes where the part's candidates start; its sections are [*lo, *hi).
static void note_candidates(struct exact *x, struct part part, int32_t *lo, int32_t *hi) {
    const struct plan_prob *p = x->p;
    const int32_t *list       = x->lists + part.list;
    for (int32_t s = part.lo; s < part.hi; s++) {
        x->best_at[s] = -1;
    }
    *lo        = part.hi;
    *hi        = part.lo;
    x->through = -1;
    for (int32_t k = 0; k < part.n; k++) {
        int32_t i = list[k];
        *lo       = p->a[i] < *lo ? p->a[i] : *lo;
        *hi       = p->b[i] > *hi ? p->b[i] : *hi;
        if (is_candidate(x, i)) {
            int32_t *best = &x->best_at[p->a[i]];
            *best         = *best < 0 || x->pre[i] < x->pre[*best] ? i : *best;
            x->through    = p->a[i] == part.lo && p->b[i] == part.hi ? i : x->through;
        }
    }
}

// The run that begins at section s of [lo, hi). Borders that nothing unplaced crosses are walls.
static struct run run_at(const struct exact *x, int32_t s, int32_t lo, int32_t hi) {
    struct run r = {s, s, x->floor[s], PLACED, PLACED, -1};
    if (s > lo && x->span[s] > 0) {
        r.left = x->floor[s - 1];
    }
    do {
        int32_t i = x->best_at[r.hi];
        if (i >= 0 && (r.best < 0 || x->pre[i] < x->pre[r.best])) {
            r.best = i;
        }
        r.hi++;
    } while (r.hi < hi && x->floor[r.hi] == r.floor && x->span[r.hi] > 0);
    if (r.hi < hi && x->span[r.hi] > 0) {
        r.right = x->floor[r.hi];
    }
    return r;
}

// Raises the valleys that no candidate can use. *has_raised is set if there was one.
static bool raise_valleys(struct exact *x, struct part part, bool *has_raised) {
    const struct plan_prob *p = x->p;
    const int32_t *list       = x->lists + part.list;
    int32_t lo, hi;
    note_candidates(x, part, &lo, &hi);
    for (int32_t s = lo; s < hi;) {
        struct run r = run_at(x, s, lo, hi);
        int64_t wall = r.left < r.right ? r.left : r.right;
        if (r.best < 0 && r.floor < wall && x->rest[s] > 0) {
            if (wall == PLACED) {
                return false; // nothing can be placed
            }
            *has_raised = true;
            for (int32_t t = r.lo; t < r.hi; t++) {
                set(x, &x->floor[t], wall);
            }
            for (int32_t k = 0; k < part.n; k++) {
                int32_t i = list[k];
                if (x->low[i] < wall && p->a[i] < r.hi && p->b[i] > r.lo && !raise_low(x, i, wall)) {
                    return false;
                }
            }
        }
        s = r.hi;
    }
    return true;
}

static bool settle_once(struct exact *x, struct part part, bool *has_moved) {
    const int32_t *list = x->lists + part.list;
    if (!propagate(x)) {
        return false;
    }
    size_t mark = x->n_trail;
    for (int32_t k = 0; k < part.n; k++) {
        int32_t i = list[k];
        if (x->low[i] > x->sky[i] && (x->ask->rules & EXACT_STRAND) && !rest_on(x, i)) {
            return false;
        }
    }
    *has_moved = x->n_trail != mark;
    return *has_moved || raise_valleys(x, part, has_moved);
}

// Draws all conclusions for a part, until nothing moves.
static bool settle(struct exact *x, struct part part) {
    for (bool has_moved = true; has_moved;) {
        if (!settle_once(x, part, &has_moved)) {
            while (x->n_queue > 0) {
                x->is_queued[x->queue[--x->n_queue]] = false;
            }
            return false;
        }
    }
    return true;
}

// ---- the tree ----

static uint64_t coarse(double v, int bits) {
    union {
        double v;
        uint64_t u;
    } c = {v};
    return (c.u >> (52 - bits)) - ((uint64_t) 1023 << bits);
}

// A key whose leading number is up to ask->noise smaller.
static uint64_t noisy(struct exact *x, uint64_t key) {
    x->random  = x->random * 6364136223846793005u + 1442695040888963407u;
    double cut = x->ask->noise * (double) (x->random >> 40) / (double) (1 << 24);
    return ~(uint64_t) ((double) key * (1 - cut));
}

// Sorts a part's blocks by the preorder asked for, T being the most that is left of a section of the block's life.
static void sort_part(struct exact *x, const struct part *part) {
    const struct plan_prob *p = x->p;
    int32_t *list             = x->lists + part->list;
    for (int32_t k = 0; k < part->n; k++) {
        int32_t i = list[k];
        int64_t t = 0;
        for (int32_t s = p->a[i]; s < p->b[i]; s++) {
            t = x->rest[s] > t ? x->rest[s] : t;
        }
        double w = p->b[i] - p->a[i];
        double z = (double) p->size[i];
        uint64_t key;
        switch (x->ask->preorder) {
            case EXACT_WAT: key = coarse(w, 14) << 43 | coarse(w * z, 12) << 24 | coarse((double) t, 17); break;
            case EXACT_TAW: key = coarse((double) t, 19) << 38 | coarse(w * z, 24) << 7 | coarse(w, 0); break;
            case EXACT_TWA: key = coarse((double) t, 19) << 38 | coarse(w, 14) << 17 | coarse(w * z, 10); break;
            case EXACT_AT: key = coarse(w * z, 24) << 33 | coarse((double) t, 26); break;
            case EXACT_TZ: key = coarse((double) t, 19) << 38 | coarse(z, 24) << 7 | coarse(w, 0); break;
            default: key = coarse(z, 29) << 28 | coarse(w, 21); break;
        }
        x->key[k] = ~key;
        if (x->ask->noise > 0) {
            x->key[k] = noisy(x, ~x->key[k]);
        }
    }
    berth_plan_sort(x->key, list, x->key + part->n, x->tmp, part->n);
    for (int32_t k = 0; k < part->n; k++) {
        x->pre[list[k]] = k;
        x->pos[list[k]] = k;
    }
}

static enum exact_answer descend(struct exact *x, struct part part);

// Searches the pieces of a part, whose blocks no longer connect, each by itself. They are sorted anew, and put back after.
static enum exact_answer descend_split(struct exact *x, struct part part) {
    const struct plan_prob *p = x->p;
    size_t base               = x->n_lists;
    size_t n                  = (size_t) part.n;
    enum exact_answer answer  = EXACT_FITS;
    if (base + 2 * n > x->cap_lists && !berth_grow((void **) &x->lists, &x->cap_lists, base + 2 * n, sizeof *x->lists)) {
        x->is_out_of_memory = true;
        return EXACT_UNKNOWN;
    }
    // By rising first section (numbers rise with it), cut where a border is crossed by nothing.
    int32_t *by_start = x->lists + base;
    for (size_t k = 0; k < n; k++) {
        int32_t i       = x->lists[part.list + k];
        x->key[k]       = (uint64_t) i;
        by_start[k]     = i;
        by_start[n + k] = x->pre[i];
    }
    berth_plan_sort(x->key, by_start, x->key + n, x->tmp, part.n);
    x->n_lists = base + 2 * n;
    for (size_t from = 0; from < n && answer == EXACT_FITS;) {
        by_start    = x->lists + base; // may have moved
        int32_t lo  = p->a[by_start[from]];
        int32_t end = p->b[by_start[from]];
        size_t to   = from + 1;
        for (; to < n && p->a[by_start[to]] < end; to++) {
            end = p->b[by_start[to]] > end ? p->b[by_start[to]] : end;
        }
        struct part piece = {base + from, (int32_t) (to - from), lo, end};
        sort_part(x, &piece);
        answer = descend(x, piece);
        from   = to;
    }
    for (size_t k = 0; k < n; k++) {
        int32_t i = x->lists[part.list + k];
        x->pos[i] = (int32_t) k;
        x->pre[i] = x->lists[base + n + k];
    }
    x->n_lists = base;
    return answer;
}

static bool is_over(struct exact *x) {
    x->n_nodes++;
    if (x->n_nodes % CLOCK_NODES == 0 && ((x->ask->stop != NULL && atomic_load_explicit(x->ask->stop, memory_order_relaxed)) ||
                                             (x->ask->deadline_us < INT64_MAX && plan_now_us() >= x->ask->deadline_us))) {
        x->is_late = true;
    }
    return x->is_late || x->is_out_of_memory || x->n_nodes > x->ask->max_nodes;
}

// How soon a valley is worked on, least first.
static int64_t valley_rank(const struct exact *x, const struct run *r) {
    int64_t slack = PLACED;
    switch (x->ask->valley) {
        case EXACT_LOWEST: return r->floor;
        case EXACT_NARROWEST: return r->hi - r->lo;
        default:
            for (int32_t s = r->lo; s < r->hi; s++) {
                slack = x->slack[s] < slack ? x->slack[s] : slack;
            }
            return slack;
    }
}

// The block to branch on; -1: there is nothing left. settle() has seen to it that every valley has a candidate.
static int32_t choose(struct exact *x, struct part part) {
    int32_t lo, hi;
    if (part.n == 0) {
        return -1;
    }
    note_candidates(x, part, &lo, &hi);
    if (x->through >= 0 && (x->ask->rules & EXACT_THROUGH)) {
        return x->through;
    }
    struct run best   = {.best = -1};
    int64_t best_rank = INT64_MAX;
    for (int32_t s = lo; s < hi;) {
        struct run r = run_at(x, s, lo, hi);
        if (r.best >= 0 && r.floor < r.left && r.floor < r.right) {
            int64_t rank = valley_rank(x, &r);
            if (rank < best_rank || (rank == best_rank && r.hi - r.lo < best.hi - best.lo)) {
                best_rank = rank;
                best      = r;
            }
        }
        s = r.hi;
    }
    BERTH_ASSERT_INTERNAL(best.best >= 0);
    return best.best;
}

// May i lie higher than its sky in a canonical plan? Only if an unplaced neighbour gets under it.
static bool can_be_higher(const struct exact *x, int32_t i) {
    for (int32_t k = x->near_at[i]; k < x->near_at[i + 1]; k++) {
        int32_t j = x->near_ids[k];
        if (x->low[j] < x->sky[i] + x->p->size[i]) {
            return true;
        }
    }
    return false;
}

// The part after i is placed: i moves behind the end of the list, where the parent still finds it.
static struct part part_without(struct exact *x, struct part part, int32_t i) {
    int32_t *list   = x->lists + part.list;
    int32_t last    = list[--part.n];
    list[x->pos[i]] = last;
    list[part.n]    = i;
    x->pos[last]    = x->pos[i];
    x->pos[i]       = part.n;
    return part;
}

// Searches a part that is settled. The caller undoes what is left in the trail.
static enum exact_answer descend(struct exact *x, struct part part) {
    for (;;) {
        int32_t i = choose(x, part);
        if (i < 0) {
            return EXACT_FITS;
        }
        if (is_over(x)) {
            return EXACT_UNKNOWN;
        }
        bool is_through  = i == x->through && (x->ask->rules & EXACT_THROUGH);
        size_t mark      = x->n_trail;
        bool has_split   = false;
        struct part left = part_without(x, part, i);
        if (place(x, i, &has_split) && settle(x, left)) {
            bool is_split            = has_split && (x->ask->rules & EXACT_SPLIT);
            enum exact_answer answer = is_split ? descend_split(x, left) : descend(x, left);
            if (answer != EXACT_NO) {
                return answer;
            }
        }
        undo(x, mark);
        if (x->is_out_of_memory) {
            return EXACT_UNKNOWN;
        }
        if (is_through || ((x->ask->rules & EXACT_LONELY) && !can_be_higher(x, i)) || !raise_low(x, i, x->sky[i] + 1) ||
            !settle(x, part)) {
            return x->is_out_of_memory ? EXACT_UNKNOWN : EXACT_NO;
        }
    }
}

enum exact_answer berth_exact_ask(
    struct exact *x, const struct exact_ask *ask, int64_t *off, int64_t *next, int64_t *n_nodes, bool *is_late) {
    const struct plan_prob *p = x->p;
    size_t n                  = (size_t) p->n;
    x->ask                    = ask;
    x->next                   = INT64_MAX;
    x->n_nodes                = 0;
    x->random                 = ask->seed;
    x->is_late                = false;
    x->is_out_of_memory       = false;
    x->n_trail                = 0;
    memset(x->low, 0, 2 * n * sizeof *x->low);
    memcpy(x->rest, p->total, (size_t) p->n_sec * sizeof *x->rest);
    memset(x->floor, 0, (size_t) p->n_sec * sizeof *x->floor);
    memset(x->span, 0, ((size_t) p->n_sec + 1) * sizeof *x->span);
    for (int32_t i = 0; i < p->n; i++) {
        for (int32_t s = p->a[i] + 1; s < p->b[i]; s++) {
            x->span[s]++;
        }
        x->lists[i] = i;
        x->under[i] = i;
        x->block[i] = i;
    }
    bool ok = true;
    for (int32_t s = 0; s < p->n_sec; s++) {
        ok          = holds(x, p->total[s]) && ok;
        x->slack[s] = ask->cap - p->total[s];
    }
    for (int32_t i = 0; i < p->n; i++) {
        ok = holds(x, p->size[i]) && ok;
    }
    struct part all          = {0, p->n, 0, p->n_sec};
    x->n_lists               = n;
    enum exact_answer answer = EXACT_NO;
    if (ok) {
        sort_part(x, &all);
        answer = (ask->rules & EXACT_SPLIT) ? descend_split(x, all) : descend(x, all);
    }
    if (answer == EXACT_FITS) {
        memcpy(off, x->off, n * sizeof *off);
    }
    *next = answer == EXACT_NO ? x->next : ask->cap;
    *n_nodes += x->n_nodes;
    *is_late = x->is_late;
    return answer;
}

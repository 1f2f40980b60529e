// SPDX-License-Identifier: MIT
// plan.h: what the files of the planner's solver share. A pool of items becomes one plan_prob: blocks over sections.
//
//   items --blocks.c, pool.c--> plan_prob --fast.c: from_peak.c, pass.c, best_fit.c--> first plan --search.c: critical.c,
//   window.c, exact.c--> better plan, lifted bound
//
// A section is a maximal set of blocks alive together; steps that add nothing to a neighbour are gone, so n_sec <= n. Sizes and
// offsets are counted in units: the greatest common divisor of the sizes where that loses nothing.
#pragma once

#include "base/base.h"

#include <stdatomic.h>
#include <time.h>

#define PLAN_SIZE_MAX ((uint64_t) 1 << 62)
#define PLAN_NO_CAP INT64_MAX

// One pool, ready for placing. Blocks are sorted by (width class, a), see pass.c.
// Invariants: 0 <= a[i] < b[i] <= n_sec; size[i] > 0; total[s] = sum of size[i] over a[i] <= s < b[i]; bound >= max(total).
struct plan_prob {
    int32_t n;          // blocks
    int32_t n_sec;      // sections
    int32_t *a;         // [n] first section
    int32_t *b;         // [n] one past the last section
    int64_t *size;      // [n] units
    int64_t *total;     // [n_sec] units alive
    int64_t bound;      // units; no plan needs less
    int32_t bound_sec;  // the section with the largest total
    int64_t *align;     // [n] units, or NULL: every offset will do
    int64_t *fixed;     // [n] units or -1, or NULL: none is fixed
    int64_t chunk;      // units a chunk holds, 0: no chunks
    int32_t *fixed_ids; // [n_fixed] the fixed blocks by rising offset
    int32_t n_fixed;
    void *room; // of a, b, size and total, if it is the problem's own
    bool
        bound_is_inexact; // an alias group was widened to its hull, or counts more than once: totals and "does not fit" prove nothing
};

// Time as work that is counted, each piece at a price of its own, about what it takes: the same on every machine.
struct plan_work {
    int64_t ns;
};

// The clock of budgets: who waits for a plan waits by the clock on the wall, however many threads search; work counts where the
// answer may not depend on the machine.
static inline int64_t plan_now_us(const struct plan_work *work) {
    if (work != NULL) {
        return work->ns / 1000;
    }
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// What one try counts that places n blocks one by one, each between those before it.
static inline int64_t plan_work_place(int32_t n) {
    return 400 + (int64_t) n * 60 + (int64_t) n * n * 3;
}

static inline void plan_work_add(struct plan_work *work, int64_t ns) {
    if (work != NULL) {
        work->ns = ns < INT64_MAX - work->ns ? work->ns + ns : INT64_MAX;
    }
}

// A number >= 1 as 7 + bits bits that keep its order: exponent and leading digits.
static inline uint64_t plan_coarse(double x, int bits) {
    union {
        double x;
        uint64_t u;
    } v = {x};
    return (v.u >> (52 - bits)) - ((uint64_t) 1023 << bits);
}

// ---- problem.c ----

// A problem with room for n blocks and n_sec sections, in the caller's room of so many bytes, or in its own, which
// berth_plan_prob_fini takes back, also after a failure.
size_t berth_plan_prob_reserve(int32_t n, int32_t n_sec);
void berth_plan_prob_place(struct plan_prob *p, int32_t n, int32_t n_sec, void *room);
bool berth_plan_prob_init(struct plan_prob *p, int32_t n, int32_t n_sec) BERTH_MUST_USE;
void berth_plan_prob_fini(struct plan_prob *p);
// Fills total, bound and bound_sec from a, b and size. False: live units pass 2^63.
bool berth_plan_prob_totals(struct plan_prob *p) BERTH_MUST_USE;
// The largest total over each block's life.
bool berth_plan_life_max(const struct plan_prob *p, int64_t *most) BERTH_MUST_USE;
// The plain problem of the blocks ids[0..n), by rising number. False: out of memory, sub is gone.
bool berth_plan_prob_subset(const struct plan_prob *p, const int32_t *ids, int32_t n, struct plan_prob *sub) BERTH_MUST_USE;
// a and b have the first and last time of each block, below n_times; they become its sections, and n_sec how many there are. A new
// one begins where something starts after something has ended. sec_at: [n_times] scratch.
void berth_plan_prob_cut(struct plan_prob *p, int32_t *sec_at, int32_t n_times);
// Where the plan ends.
int64_t berth_plan_peak(const struct plan_prob *p, const int64_t *off);
static inline bool plan_prob_is_constrained(const struct plan_prob *p) {
    return p->align != NULL || p->fixed != NULL || p->chunk != 0;
}
// The lowest offset >= level at which block i may lie, given its alignment, the chunks and the fixed blocks it lives with; -1 if
// there is none up to limit.
int64_t berth_plan_lowest_at(const struct plan_prob *p, int32_t i, int64_t level, int64_t limit);

// ---- sort.c ----

// Sorts idx[0..n) by key[], stable. tmp_* have n elements. Both arrays are moved.
void berth_plan_sort(uint64_t *key, int32_t *idx, uint64_t *tmp_key, int32_t *tmp_idx, int32_t n);

// ---- pass.c ----

// Which block first: by W width, Z size, A their product, T the most that is alive, or still to place, in a section of its life, L
// alignment.
enum plan_priority { PLAN_WAT, PLAN_TAW, PLAN_TWA, PLAN_AT, PLAN_TZ, PLAN_ZW, PLAN_LWA };

// The larger, the sooner. t: of PLAN_LWA the alignment.
static inline uint64_t plan_priority_key(enum plan_priority by, double w, double z, double t) {
    switch (by) {
        case PLAN_TAW: return plan_coarse(t, 19) << 38 | plan_coarse(w * z, 24) << 7 | plan_coarse(w, 0);
        case PLAN_TWA: return plan_coarse(t, 19) << 38 | plan_coarse(w, 14) << 17 | plan_coarse(w * z, 10);
        case PLAN_AT: return plan_coarse(w * z, 24) << 33 | plan_coarse(t, 26);
        case PLAN_TZ: return plan_coarse(t, 19) << 38 | plan_coarse(z, 24) << 7 | plan_coarse(w, 0);
        case PLAN_ZW: return plan_coarse(z, 29) << 28 | plan_coarse(w, 21);
        case PLAN_LWA: return plan_coarse(t, 10) << 40 | plan_coarse(w, 14) << 17 | plan_coarse(w * z, 10);
        default: return plan_coarse(w, 14) << 43 | plan_coarse(w * z, 12) << 24 | plan_coarse(t, 17);
    }
}

struct greedy_pass; // scratch memory for greedy passes over one problem

struct greedy_pass *berth_greedy_pass_new(const struct plan_prob *p) BERTH_MUST_USE;
void berth_greedy_pass_free(struct greedy_pass *d);
// Places every block below target; returns the peak, or -1 if that did not work out (off then holds nothing of use).
// is_aimed: the fullest section of a valley is served first, and blocks by priority only then.
int64_t berth_greedy_pass_run(struct greedy_pass *d, enum plan_priority priority, bool is_aimed, int64_t target, int64_t *off);

// ---- best_fit.c ----

// Online best fit in the order of first sections, as ggml does it. Peak, or -1: above target, -2: out of memory.
int64_t berth_plan_best_fit(const struct plan_prob *p, int64_t target, int64_t *off);
struct plan_placing {
    const int32_t *set;   // [n_set] blocks that lie at p->fixed, by rising offset
    const int32_t *order; // [n_order] the others, as they are placed
    int32_t n_set, n_order;
    int32_t *placed; // [n] scratch, may be set itself
};
// Each block of the order into the lowest gap between those that are set and earlier ones. Peak, or -1: above target.
int64_t berth_plan_place_around(const struct plan_prob *p, const struct plan_placing *how, int64_t target, int64_t *off);
// The same around the problem's own fixed blocks.
int64_t berth_plan_place_in_order(
    const struct plan_prob *p, const int32_t *order, int32_t n_order, int64_t target, int32_t *placed, int64_t *off);
// The blocks that are not fixed by falling size. tmp_idx: [n], key: [2n] scratch. Returns how many.
int32_t berth_plan_order_by_size(const struct plan_prob *p, int32_t *order, int32_t *tmp_idx, uint64_t *key);
// One by one into the lowest gap, quadratic: the largest first; those with the largest alignments first, and then the largest;
// or from the lowest of plan, so that what can slide down does. Peak, or -1: above target, -2: out of memory.
int64_t berth_plan_largest_first(const struct plan_prob *p, int64_t target, int64_t *off);
int64_t berth_plan_most_aligned_first(const struct plan_prob *p, int64_t target, int64_t *off);
int64_t berth_plan_lowest_first(const struct plan_prob *p, const int64_t *plan, int64_t target, int64_t *off);

// ---- from_peak.c ----

// From the fullest section forward and back, at the bound or not at all: the bound, or -1: not so, -2: out of memory. For
// problems that are not constrained.
int64_t berth_plan_from_peak(const struct plan_prob *p, int64_t *off);
// The walks alone, below cap: off has places for all blocks alive in sections [lo, hi), and gets the others'. Returns a section
// where there was no room, -1: none, all are placed, -2: out of memory or too many gaps.
int32_t berth_plan_walk_from(const struct plan_prob *p, int32_t lo, int32_t hi, int64_t cap, int64_t *off);

// ---- pool.c: items in, one problem per pool out ----

// One pool of the caller's items. Block units and bytes: offset = units * unit, or, with chunks, chunk by chunk.
struct plan_pool {
    const struct berth_plan_item *items; // the caller's
    int32_t *ids;                        // [n_ids] the pool's items, the caller's too
    int32_t *block_of; // [n_ids] the block that holds the item; -1: none (no bytes); -2 - i: none, it lies where item i is fixed
    int32_t n_ids;
    struct plan_prob prob;
    uint64_t unit;      // bytes
    uint64_t max_chunk; // bytes, 0: none
    bool is_chunked;    // built for several chunks rather than for one
    uint64_t least_end; // bytes by which a block may fall short of its rounded end: unit - 1 at most, 0 if nothing was rounded
    uint64_t bound;     // bytes; no plan of this pool needs less
    int64_t bound_step; // a step where the most is alive
};

// What is true of all items; filled by berth_plan_items_check.
struct plan_traits {
    bool has_pools, has_alias, has_fixed;
    bool is_by_first; // items come by rising first step
};

enum ggml_status berth_plan_items_check(
    const struct berth_plan_item *items, int64_t n, uint64_t max_chunk, struct plan_traits *traits) BERTH_MUST_USE;
// Fills the rest of a pool whose items, ids, max_chunk and is_chunked are given. It lies in scratch; berth_plan_pool_fini before
// that goes.
enum ggml_status berth_plan_pool_init(
    struct plan_pool *pool, const struct plan_traits *traits, struct berth_scratch *scratch) BERTH_MUST_USE;
void berth_plan_pool_fini(struct plan_pool *pool);
// Offsets in units to the caller's bytes.
void berth_plan_pool_apply(const struct plan_pool *pool, const int64_t *off, uint64_t *offsets);
// The caller's offsets to units; false if they are no multiples of the unit (then they cannot be a starting point).
bool berth_plan_pool_take(const struct plan_pool *pool, const uint64_t *offsets, int64_t *off) BERTH_MUST_USE;

// ---- check.c ----

bool berth_plan_is_valid(const struct plan_prob *p, const int64_t *off);

// ---- what is asked and known ----

// What is asked of a problem, in units.
struct plan_goal {
    int64_t enough;         // a plan of at most this peak ends the search: the capacity, or 0
    int64_t deadline_us;    // of plan_now_us()
    struct plan_work *work; // that the deadline is of; NULL: the clock on the wall
    uint64_t seed;
    int32_t n_threads;        // 1 where work is counted
    bool is_brief;            // of the fast path only the first methods
    struct plan_watch *watch; // may be NULL
};

// What is known of a problem, in units. Invariant: off is a valid plan of this peak; bound <= peak.
struct plan_state {
    int64_t *off;
    int64_t *spare; // [n] scratch of the same size
    int64_t peak;
    int64_t bound;
    const char *method;
    int64_t n_nodes;
};

static inline bool plan_is_done(const struct plan_state *s, const struct plan_goal *g) {
    return s->peak != PLAN_NO_CAP && (s->peak <= s->bound || s->peak <= g->enough || (g->enough > 0 && s->bound > g->enough));
}

// Makes spare the plan.
static inline void plan_state_take(struct plan_state *s, int64_t peak, const char *method) {
    int64_t *swap = s->off;
    s->off = s->spare;
    s->spare = swap;
    s->peak = peak;
    s->method = method;
}

// ---- progress.c ----

// Somebody who looks on and may end the search. The state changes only while one thread searches.
struct plan_watch {
    berth_plan_watch_t ask;
    void *user;
    const struct plan_state *state; // of the pool that is being searched
    uint64_t unit;                  // bytes
    int64_t next_us;                // when to ask again; only under the lock
    atomic_bool is_over;            // the answer was: enough
    atomic_flag lock;
};

bool berth_plan_watch_is_over(struct plan_watch *watch, int64_t now_us);

// Is the time up, or whoever looks on content? work and watch may be NULL.
static inline bool plan_is_over(int64_t deadline_us, const struct plan_work *work, struct plan_watch *watch) {
    const int64_t now_us = plan_now_us(work);
    return now_us >= deadline_us || (watch != NULL && berth_plan_watch_is_over(watch, work != NULL ? plan_now_us(NULL) : now_us));
}

// ---- fast.c, search.c ----

// The first plan; peak is PLAN_NO_CAP if there is none below 2^63.
enum ggml_status berth_plan_fast(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// Better plans and a better bound until the goal or the deadline.
enum ggml_status berth_plan_search(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;

// critical.c: a plan of peak cap, or a lifted bound, from the blocks that are alive when most is. limit: blocks searched at most,
// 0: all.
enum ggml_status berth_plan_critical(
    const struct plan_prob *p, int64_t cap, int32_t limit, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// window.c: a plan that ends at cap, from the sections around the peak, searched, and walks outward. Nothing for caps below the
// largest total. limit: blocks searched at most.
enum ggml_status berth_plan_window(const struct plan_prob *p, int64_t cap, int32_t limit, int64_t deadline_us,
    const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// join.c: the problem with blocks that have one offset in every plan of peak cap made one; head[i]: what block i became. With
// nothing to join, joined has no blocks. False: out of memory.
bool berth_plan_join(const struct plan_prob *p, int64_t cap, int32_t *head, struct plan_prob *joined) BERTH_MUST_USE;
// constrained.c: the best plan of a constrained problem of at most PLAN_EXHAUST_MAX blocks without chunks, and the bound lifted to
// it, if max_nodes and the goal's time (0: none) are enough. Nothing for others, nor before there is a plan.
#define PLAN_EXHAUST_MAX 24
void berth_plan_exhaust(const struct plan_prob *p, const struct plan_goal *g, int64_t max_nodes, struct plan_state *s);
// The same for constrained problems, by local search over orders of placing.
enum ggml_status berth_plan_search_constrained(
    const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// chunked.c: a plan whose chunks are used less far, summed; that sum is the state's peak then. Without a deadline a few
// milliseconds are spent at most. Nothing for problems with fixed blocks or of very many.
enum ggml_status berth_plan_chunked(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;

// ---- bound.c ----

// Fills pool->bound and bound_step, and raises prob.bound, without searching.
enum ggml_status berth_plan_pool_bound(struct plan_pool *pool) BERTH_MUST_USE;

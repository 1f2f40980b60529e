// SPDX-License-Identifier: MIT
// plan.h: declarations that the files of the planner's solver share. A problem is one pool of items as a struct plan_prob.
//
//   items --blocks.c, pool.c--> plan_prob --fast.c: from_peak.c, greedy_pass.c, best_fit.c--> first plan
//   --search.c: critical.c, window.c, exact.c--> better plan, raised bound
//
// Terms of the solver:
//   block      one item of a pool, or all items of one alias group
//   section    a maximal set of blocks that are alive together. Sections replace steps as the time unit, because there are fewer
//              sections: n_sec <= n
//   border     the point between two adjacent sections
//   unit       a number of bytes that divides all sizes, alignments and fixed offsets; pool.c may first round sizes up
//   width      of a block: the number of sections in its lifetime
//   total      of a section: the sum of the sizes of its blocks
//   skyline    of a section: the lowest free unit above the placed blocks
//   valley     consecutive sections with the same skyline, which is lower than the skyline on both sides
//   slack      of a section: the number of units that may stay unused
//   peak       of a plan: the highest end of a block
//   bound      a proven lower limit of the peak of every plan
//   plain, constrained   a plain problem has no alignments, fixed blocks or chunks; a constrained problem has some of them
#pragma once

#include "base/base.h"

#include <stdatomic.h>
#include <time.h>

#define PLAN_SIZE_MAX ((uint64_t) 1 << 62)
#define PLAN_NO_CAP INT64_MAX // as a peak: there is no plan yet; as a target: no limit

// A problem: one pool, prepared for placing. Invariants: begin is sorted; 0 <= begin[i] < end[i] <= n_sec; size[i] > 0;
// total[s] = sum of size[i] over begin[i] <= s < end[i]; bound >= max(total).
struct plan_prob {
    int32_t n;          // number of blocks
    int32_t n_sec;      // number of sections
    int32_t *begin;     // [n] first section
    int32_t *end;       // [n] one past the last section
    int64_t *size;      // [n] units
    int64_t *total;     // [n_sec] live units
    int64_t bound;      // units; no plan has a lower peak
    int32_t bound_sec;  // section with the largest total
    int64_t *align;     // [n] units; NULL: any offset is allowed
    int64_t *fixed;     // [n] units, -1: this block is not fixed; NULL: no block is fixed
    int64_t chunk;      // size of a chunk in units, 0: no chunks
    int32_t *fixed_ids; // [n_fixed] the fixed blocks, by rising offset
    int32_t n_fixed;
    void *own_memory;      // owns begin, end, size, total; NULL: the caller does
    bool bound_is_inexact; // the totals may be too high for a lower bound (blocks.c)
};

// Counted work: the sum of fixed prices per operation. Counted work is equal on all machines.
struct plan_work {
    int64_t ns;
    int64_t wall_end_us;   // 0: none; otherwise the search also ends at this wall time
    atomic_bool has_ended; // with wall_end_us, another thread may end the search
};

// The clock of all time limits: the wall time if work is NULL, otherwise the counted work.
static inline int64_t plan_now_us(const struct plan_work *work) {
    if (work != NULL) {
        return work->ns / 1000;
    }
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// The price of placing n blocks one by one, each between the blocks that are already placed.
static inline int64_t plan_work_place(int32_t n) {
    return 400 + (int64_t) n * 60 + (int64_t) n * n * 3;
}

static inline void plan_work_add(struct plan_work *work, int64_t ns) {
    if (work != NULL) {
        work->ns = ns < INT64_MAX - work->ns ? work->ns + ns : INT64_MAX;
    }
}

// Returns a random number below `below`.
static inline uint64_t plan_random_below(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

// Encodes a number >= 1 in 7 + bits bits, rounded down. Larger numbers have larger or equal codes.
static inline uint64_t plan_coarse(double x, int bits) {
    union {
        double x;
        uint64_t u;
    } v = {x};
    return (v.u >> (52 - bits)) - ((uint64_t) 1023 << bits);
}

// ---- problem.c ----

// berth_plan_prob_init_in uses memory of the caller; berth_plan_prob_reserve returns its size. berth_plan_prob_init allocates
// memory; berth_plan_prob_fini frees that memory, also after a failure.
size_t berth_plan_prob_reserve(int32_t n, int32_t n_sec);
void berth_plan_prob_init_in(struct plan_prob *p, int32_t n, int32_t n_sec, void *memory);
bool berth_plan_prob_init(struct plan_prob *p, int32_t n, int32_t n_sec) BERTH_MUST_USE;
void berth_plan_prob_fini(struct plan_prob *p);
// Fills total, bound and bound_sec from begin, end and size. False: the live units of a section exceed 2^63 - 1.
bool berth_plan_prob_totals(struct plan_prob *p) BERTH_MUST_USE;
// Fills most[i] with the largest total in the lifetime of block i. False: out of memory.
bool berth_plan_life_max(const struct plan_prob *p, int64_t *most) BERTH_MUST_USE;
// Makes sub, the plain problem of the blocks ids[0..n). ids is sorted by rising number. False: out of memory; sub is then empty.
bool berth_plan_prob_subset(const struct plan_prob *p, const int32_t *ids, int32_t n, struct plan_prob *sub) BERTH_MUST_USE;
// Converts times to sections. On entry, begin and end hold the first and the last time of each block; times are below n_times. On
// return, begin and end hold sections, and n_sec is set. sec_at: [n_times] scratch.
void berth_plan_prob_cut(struct plan_prob *p, int32_t *sec_at, int32_t n_times);
// Returns the highest end of a block in the plan off.
int64_t berth_plan_peak(const struct plan_prob *p, const int64_t *off);
static inline bool plan_prob_is_constrained(const struct plan_prob *p) {
    return p->align != NULL || p->fixed != NULL || p->chunk != 0;
}
// Returns the lowest allowed offset >= level of block i. It respects alignment, chunks and fixed blocks. -1: none up to limit.
int64_t berth_plan_lowest_at(const struct plan_prob *p, int32_t i, int64_t level, int64_t limit);

// ---- overlap.c ----

// Lists the blocks that are alive together with a block (overlap.c).
struct plan_overlap {
    struct berth_arrays mem;
    int32_t *first_at;  // [n_sec + 1] the first block that begins in this section or later
    int32_t *bucket_of; // [n_sec] bucket of a section
    int32_t *sec_of;    // [n_buckets] first section of a bucket
    int32_t *list_at;   // [n_buckets + 1] index in list of a bucket's first block
    int32_t *list;      // the blocks that are alive in the first section of each bucket and begin before it
    int32_t n_buckets;
};

bool berth_overlap_init(struct plan_overlap *o, const struct plan_prob *p) BERTH_MUST_USE;
void berth_overlap_fini(struct plan_overlap *o);

// ---- sort.c ----

// Sorts idx[0..n) and key[0..n) by key. The sort is stable. tmp_key and tmp_idx have n elements.
void berth_plan_sort(uint64_t *key, int32_t *idx, uint64_t *tmp_key, int32_t *tmp_idx, int32_t n);

// ---- greedy_pass.c ----

// The order in which blocks are selected. The letters are criteria, the most important first; larger values come first:
//   W width    Z size    A area: width * size    L alignment
//   T largest total in the block's lifetime: of all blocks (greedy passes) or of unplaced blocks (exact.c)
enum plan_priority { PLAN_WAT, PLAN_TAW, PLAN_TWA, PLAN_AT, PLAN_TZ, PLAN_ZW, PLAN_LWA };

// Returns the priority of a block of width w and size z; blocks with larger keys come first. t: T, for PLAN_LWA the alignment.
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
// Places all blocks with a peak of at most target. Returns the peak; -1: some block does not fit, and off is undefined.
// is_aimed: in each valley, blocks of the section with the most unplaced units come first.
int64_t berth_greedy_pass_run(struct greedy_pass *d, enum plan_priority priority, bool is_aimed, int64_t target, int64_t *off);

// ---- best_fit.c ----

// Places the blocks by online best fit in the order of begin, as ggml does. Returns the peak, -1: above target, -2: out of
// memory.
int64_t berth_plan_best_fit(const struct plan_prob *p, int64_t target, int64_t *off);
// The input of berth_plan_place_around.
struct plan_placing {
    const int32_t *set;   // [n_set] blocks that are already placed, at the offsets in p->fixed, sorted by rising offset
    const int32_t *order; // [n_order] blocks to place, in this order
    int32_t n_set, n_order;
    int32_t *placed; // [n] scratch; may be the same array as set
};
// Puts each block of how->order into the lowest gap. Returns the peak, -1: above target.
int64_t berth_plan_place_around(const struct plan_prob *p, const struct plan_placing *how, int64_t target, int64_t *off);
// Calls berth_plan_place_around with the fixed blocks of the problem as set.
int64_t berth_plan_place_in_order(
    const struct plan_prob *p, const int32_t *order, int32_t n_order, int64_t target, int32_t *placed, int64_t *off);
// Lists the blocks that are not fixed by falling size. Returns their number. tmp_idx: [n] scratch, key: [2n] scratch.
int32_t berth_plan_order_by_size(const struct plan_prob *p, int32_t *order, int32_t *tmp_idx, uint64_t *key);
// The next three functions place each block in the lowest gap, in quadratic time. They return the peak, -1: above target, -2: out
// of memory.
int64_t berth_plan_largest_first(const struct plan_prob *p, int64_t target, int64_t *off);
int64_t berth_plan_most_aligned_first(const struct plan_prob *p, int64_t target, int64_t *off);
// Places the blocks in the order of rising offset in `plan`.
int64_t berth_plan_lowest_first(const struct plan_prob *p, const int64_t *plan, int64_t target, int64_t *off);

// ---- from_peak.c ----

// Plans a plain problem from its fullest section outward. Finds only plans whose peak is the bound. Returns this peak, -1: no
// plan found, -2: out of memory.
int64_t berth_plan_from_peak(const struct plan_prob *p, int64_t *off);
// Places all blocks that are not alive in the sections [lo, hi), with a peak of at most cap. On entry, off holds the offsets of
// the blocks that are alive there. Returns -1: all blocks are placed; -2: out of memory; otherwise the section that failed.
int32_t berth_plan_walk_from(const struct plan_prob *p, int32_t lo, int32_t hi, int64_t cap, int64_t *off);

// How to walk: from where, and by which rules.
struct plan_walk_way {
    int32_t section;
    int stacking; // 0 to PLAN_N_STACKINGS - 1: the order in which the blocks of the section are stacked
    bool is_by_size;
    uint64_t seed; // not 0: chance changes some choices
};
#define PLAN_N_STACKINGS 3
// Stacks the blocks of a section and walks from there in both directions. A block that finds no gap below cap gets the offset -1.
// Returns the number of these blocks; -2: out of memory, or too much work.
int32_t berth_plan_walk_partly(const struct plan_prob *p, const struct plan_walk_way *way, int64_t cap, int64_t *off);

// ---- pool.c: items in, one problem per pool out ----

// One pool of the caller's items. Offset in bytes = offset in units * unit. The unit divides the chunk size.
struct plan_pool {
    const struct berth_plan_item *items; // owned by the caller
    int32_t *ids;                        // [n_ids] the pool's items; owned by the caller
    int32_t *block_of; // [n_ids] block of the item; -1: the item has no bytes. -2 - i: the item has no bytes and
                       // gets the offset of the fixed item i of its alias group
    int32_t n_ids;
    struct plan_prob prob;
    uint64_t unit;        // bytes
    uint64_t chunk_limit; // largest size of a chunk in bytes, 0: no limit
    bool is_chunked;      // the plan may use several chunks
    uint64_t pad_max;     // bytes; largest padding of a block, < unit
    uint64_t bound;       // bytes; no plan of this pool has a lower peak
    int64_t bound_step;   // a step at which the most bytes are alive
};

struct plan_traits {
    bool has_pools, has_alias, has_fixed;
    bool is_by_first; // items are sorted by rising first step
};

enum ggml_status berth_plan_items_check(
    const struct berth_plan_item *items, int64_t n, uint64_t chunk_limit, struct plan_traits *traits) BERTH_MUST_USE;
// Fills in a pool whose items, ids, n_ids, chunk_limit and is_chunked are set. The pool uses memory of scratch until
// berth_plan_pool_fini.
enum ggml_status berth_plan_pool_init(
    struct plan_pool *pool, const struct plan_traits *traits, struct berth_scratch *scratch) BERTH_MUST_USE;
void berth_plan_pool_fini(struct plan_pool *pool);
// Converts offsets in units to offsets in bytes, for all items of the pool.
void berth_plan_pool_apply(const struct plan_pool *pool, const int64_t *off, uint64_t *offsets);
// Converts the caller's offsets to units. False: some offset is not a multiple of the unit.
bool berth_plan_pool_take(const struct plan_pool *pool, const uint64_t *offsets, int64_t *off) BERTH_MUST_USE;

// ---- check.c ----

bool berth_plan_is_valid(const struct plan_prob *p, const int64_t *off);

// ---- goal and state of a search ----

// The goal for one problem, in units.
struct plan_goal {
    int64_t enough;         // the caller's capacity: the search ends at a plan with at most this peak; 0: none
    int64_t deadline_us;    // on the clock of plan_now_us(work)
    struct plan_work *work; // counted work that the deadline refers to; NULL: wall time
    uint64_t seed;
    int32_t n_threads;        // if work is counted, threads of local search only; 1 if it has no wall_end_us
    bool is_brief;            // run only the first methods of the fast path
    struct plan_watch *watch; // may be NULL
    struct plan_proof *proof; // stores the log of a search that raises the bound (proof.h); NULL: no proof is written
};

// The current results for one problem, in units. Invariant: off is a valid plan with this peak; bound <= peak.
struct plan_state {
    int64_t *off;
    int64_t *spare; // [n] scratch; a new plan is built here
    int64_t peak;
    int64_t bound;
    const char *method;
    int64_t n_nodes; // of all searches so far
};

static inline bool plan_is_done(const struct plan_state *s, const struct plan_goal *g) {
    return s->peak != PLAN_NO_CAP && (s->peak <= s->bound || s->peak <= g->enough || (g->enough > 0 && s->bound > g->enough));
}

// Makes the plan in spare the current plan.
static inline void plan_state_take(struct plan_state *s, int64_t peak, const char *method) {
    int64_t *swap = s->off;
    s->off = s->spare;
    s->spare = swap;
    s->peak = peak;
    s->method = method;
}

// ---- progress.c ----

// The caller's progress callback, which may end the search. The state changes only while no other thread calls the callback.
struct plan_watch {
    berth_plan_watch_t ask;
    void *user;
    const struct plan_state *state; // of the pool that is searched now
    uint64_t unit;                  // bytes
    int64_t next_us;                // time of the next call; protected by the lock
    atomic_int_least64_t least;     // lowest peak in other threads, in units; the state gets this plan later. INT64_MAX: none
    atomic_bool is_over;            // the callback has asked to end the search
    atomic_flag lock;
};

bool berth_plan_watch_is_over(struct plan_watch *watch, int64_t now_us);

static inline bool plan_work_has_ended(const struct plan_work *work) {
    return work->wall_end_us > 0 &&
           (atomic_load_explicit(&work->has_ended, memory_order_relaxed) || plan_now_us(NULL) >= work->wall_end_us);
}

// Returns whether the deadline has passed or the callback has ended the search. work and watch may be NULL.
static inline bool plan_is_over(int64_t deadline_us, const struct plan_work *work, struct plan_watch *watch) {
    const int64_t now_us = plan_now_us(work);
    if (now_us >= deadline_us || (work != NULL && plan_work_has_ended(work))) {
        return true;
    }
    return watch != NULL && berth_plan_watch_is_over(watch, work != NULL ? plan_now_us(NULL) : now_us);
}

// Returns the time that is left for the search, on the clock that ends it.
static inline int64_t plan_left_us(const struct plan_goal *g) {
    return g->work != NULL && g->work->wall_end_us > 0 ? g->work->wall_end_us - plan_now_us(NULL)
                                                       : g->deadline_us - plan_now_us(g->work);
}

// ---- fast.c, search.c ----

// Finds the first plan. The peak is PLAN_NO_CAP if there is no plan below 2^63.
enum ggml_status berth_plan_fast(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// Returns whether a search with a time limit counts its work, which the limit then cuts off. Then the time of an operation
// changes how far the search comes, and not what it does. This is so for problems that are too large for the exact search.
bool berth_plan_counts_work(const struct plan_prob *p);
// Finds better plans and raises the bound, until the goal is reached or the deadline has passed.
enum ggml_status berth_plan_search(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;

// improve_threads.c: lowers the peak by local search, at any number of blocks. new returns NULL if memory is exhausted. If the goal
// counts work, the plan of another thread becomes the plan of the state in free. A turn ends at until_us on the clock of the goal,
// or earlier if the goal is reached. It returns whether the peak fell.
struct plan_improve;
struct plan_improve *berth_plan_improve_new(
    const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
void berth_plan_improve_free(struct plan_improve *m);
bool berth_plan_improve_turn(struct plan_improve *m, int64_t until_us);
// Runs a turn if local search has had less than its share of the time since new. The share is half, and less after turns without
// success. m may be NULL.
void berth_plan_improve_share(struct plan_improve *m);

// critical.c: searches exactly for offsets of the core (the blocks of the fullest sections), then places the other blocks. Finds
// a plan with a peak of at most cap, or raises the bound. limit: the largest number of blocks in a core that is searched, 0: no
// limit.
enum ggml_status berth_plan_critical(
    const struct plan_prob *p, int64_t cap, int32_t limit, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// critical.c: plans the core without the other blocks. The core is all blocks that are alive in some section with a total of at
// least `part` times the bound. Searches until until_us (on the clock of the goal); if this time has passed, makes the first plan
// only. Fills off: the other blocks get -1. Returns the number of blocks of the core; 0: they are more than half of the blocks, or
// there is no plan, or memory is exhausted.
int32_t berth_plan_core(const struct plan_prob *p, double part, int64_t until_us, const struct plan_goal *g, int64_t *off);
// window.c: searches exactly for offsets of the blocks around the fullest section, then places the other blocks outward from
// there. Finds a plan with a peak of at most cap. If cap is below the largest total, does nothing. limit: the largest number of
// blocks that are searched exactly.
enum ggml_status berth_plan_window(const struct plan_prob *p, int64_t cap, int32_t limit, int64_t deadline_us,
    const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// join.c: makes the problem `joined`, in which blocks that have the same offset in every plan with a peak of at most cap are one
// block. joined_id[i]: the number in `joined` of block i. If there are no such blocks, `joined` has no blocks.
bool berth_plan_join(const struct plan_prob *p, int64_t cap, int32_t *joined_id, struct plan_prob *joined) BERTH_MUST_USE;
// constrained.c: tries all plans of a constrained problem, until max_nodes nodes are visited or the deadline (0: none) has
// passed. If the search finishes, the plan is optimal and its peak is the bound. Does nothing if the problem has chunks or more
// than PLAN_EXHAUST_MAX blocks, or if there is no plan yet.
#define PLAN_EXHAUST_MAX 24
void berth_plan_exhaust(const struct plan_prob *p, const struct plan_goal *g, int64_t max_nodes, struct plan_state *s);
// constrained.c: runs berth_plan_exhaust, then local search.
enum ggml_status berth_plan_search_constrained(
    const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;
// chunked.c: finds better plans of a problem with chunks. The peak is the sum, over the chunks, of the highest end of a block in
// the chunk. Without a deadline this takes a few milliseconds. Does nothing if the problem has fixed blocks or more than 2,000
// blocks.
enum ggml_status berth_plan_chunked(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) BERTH_MUST_USE;

// ---- bound.c ----

// Fills pool->bound and bound_step, and raises prob.bound. Does not search.
enum ggml_status berth_plan_pool_bound(struct plan_pool *pool) BERTH_MUST_USE;

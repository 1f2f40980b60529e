// SPDX-License-Identifier: MIT
// budget.h: what the files of the budget solver share.
//
//   ops --model.c--> budget_graph --reorder.c, exact.c, chain.c, initial_sets.c, trim.c, evict.c, improve.c--> steps --check.c--> cost, live bytes, packed peak
//
// A schedule is a list of steps; when memory is given back follows from it. So one checker (check.c) is the law for every
// method, and what one method finds another can improve. Everything above check.c counts live bytes; solve.c lowers the limit
// on these until the packed plan fits.
#pragma once

#include "base/base.h"
#include "berth-budget.h"

struct budget_lists {
    int32_t *start, *at; // list k is at[start[k]] .. at[start[k + 1] - 1]
};

struct budget_pool {
    int32_t id;
    int32_t spill_to; // index, -1: no
    uint64_t limit;   // bytes; UINT64_MAX: none
    double per_byte;
    uint64_t each;
};

struct budget_graph {
    const struct berth_budget_op *ops;
    int32_t n;
    struct budget_lists srcs;    // op -> values, each once
    struct budget_lists readers; // value -> ops, rising
    uint64_t *takeover;          // [n] bit k: the result may take over the k-th of srcs
    uint64_t *size, *cost;       // [n]
    int32_t *pool;               // [n] index
    int32_t *away;               // [n] index of the pool that the value may move to, -1: it stays
    bool *keep;                  // [n] to the end
    bool *again;                 // [n] may run again: neither input nor output nor once
    int32_t *once_before;        // [n] the once op of its group before this once op, -1: none
    int32_t *until;              // [n] op that runs once, and behind which this one may not run any more, -1: none
    struct budget_pool *pools;
    int32_t n_pools;
    int64_t *work; // that the methods did, in looks at steps and values: what bounds them is the same on every machine
    uint64_t cost_once;
    int32_t *tight; // [n_pools] op at which a pool needs its least
    uint64_t *least;
    struct berth_arrays mem; // all of the above
};

// ---- model.c ----

enum ggml_status budget_graph_init(struct budget_graph *g, const struct berth_budget_op *ops, size_t n_ops,
    const struct berth_budget_params *params) BERTH_MUST_USE;
void budget_graph_fini(struct budget_graph *g);
uint64_t budget_spill_cost(const struct budget_graph *g, int32_t value); // one way
static inline bool budget_is_input(const struct budget_graph *g, int32_t i) {
    return (g->ops[i].flags & BERTH_BUDGET_INPUT) != 0;
}
static inline bool budget_is_once(const struct budget_graph *g, int32_t i) {
    return (g->ops[i].flags & BERTH_BUDGET_ONCE) != 0;
}
// The values that every schedule has in the pool while the op runs, into alive [n]; returns how many.
int32_t budget_alive(const struct budget_graph *g, int32_t op, int32_t pool, int32_t *alive, bool *scratch, uint64_t *bytes);

// ---- steps ----

struct budget_steps {
    struct berth_budget_step *at;
    size_t n, cap;
};
bool budget_put(struct budget_steps *s, int32_t op, enum berth_budget_kind kind) BERTH_MUST_USE;
bool budget_copy(struct budget_steps *to, const struct budget_steps *from) BERTH_MUST_USE;
uint64_t budget_cost(const struct budget_graph *g, const struct budget_steps *s);

// ---- trace.c: who is alive when ----

// Instances: 0 .. n - 1 are the inputs by value, n + k is what step k makes. Valid after budget_trace.
struct budget_trace {
    int32_t *last;      // [n + steps] last step that reads it, its own if none; n_steps: kept to the end; inputs never read: -1
    int32_t *src;       // instances that each step reads, in the order of its sources
    int32_t *start;     // [steps + 1] in src
    int32_t *taken;     // [steps] instance whose memory the result takes over, -1: none
    int32_t *now, *out; // [n] instance of the value at the end, in its pool and moved out; -1: none
    uint64_t *live;     // [steps * n_pools] bytes alive while the step runs
    uint64_t *peak;     // [n_pools]
    size_t last_cap, src_cap, start_cap, taken_cap, live_cap;
    size_t now_cap, out_cap, peak_cap;
    int32_t fault; // step that is wrong, -1: none
    const char *why;
};

// False: out of memory. A wrong schedule: fault and why.
bool budget_trace(const struct budget_graph *g, const struct budget_steps *s, struct budget_trace *t) BERTH_MUST_USE;
void budget_trace_fini(struct budget_trace *t);
static inline int32_t budget_value(const struct budget_graph *g, const struct budget_steps *s, int32_t instance) {
    return instance < g->n ? instance : s->at[instance - g->n].op;
}
// Bytes above the limits.
struct budget_excess {
    uint64_t most;      // 0: it fits
    int32_t pool, step; // where it is the most
    double sum;         // of all steps and pools: where many steps are alike, cuts at one leave the most as it is
};
struct budget_excess budget_excess(const struct budget_graph *g, const struct budget_trace *t, size_t n_steps);

// ---- check.c ----

#define BUDGET_PACK_US \
    20000 // search of the packing planner where it decides, counted: a schedule fits on every machine or on none

struct budget_pack {
    const uint64_t *limits; // [n_pools]
    int64_t budget_us;
};
// The packed peak of each pool of a sound schedule; is_sure: those above their limit cannot be below it.
enum ggml_status budget_pack(const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t,
    const struct budget_pack *how, uint64_t *peaks, bool *is_sure) BERTH_MUST_USE;
enum ggml_status budget_result(const struct budget_graph *g, const struct berth_budget_params *params,
    const struct budget_steps *s, int64_t pack_us, struct berth_budget_result **result) BERTH_MUST_USE;

// ---- methods: limits are those of g->pools ----

// When a method gives up.
struct budget_end {
    int64_t work; // of the graph
    int64_t us;   // of the clock; INT64_MAX: whenever
};
static inline bool budget_is_over(const struct budget_graph *g, const struct budget_end *end) {
    return *g->work >= end->work || (end->us < INT64_MAX && ggml_time_us() >= end->us);
}

enum budget_answer { BUDGET_OUT_OF_MEMORY = -1, BUDGET_GAVE_UP, BUDGET_NONE, BUDGET_FOUND };

// The cheapest of all schedules, or the proof that there is none.
enum budget_answer budget_exact(
    const struct budget_graph *g, int64_t max_nodes, int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) BERTH_MUST_USE;
// All schedules by rising cost, from *cost on, until one pleases.
struct budget_judge {
    enum budget_answer (*pleases)(const struct budget_steps *steps, void *user);
    void *user;
};
enum budget_answer budget_exact_packed(const struct budget_graph *g, const struct budget_judge *judge, int64_t max_nodes,
    int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) BERTH_MUST_USE;
// Cuts peaks: values that lie through a step with too many bytes go and come back before their next use, the cheapest for its
// bytes first.
struct budget_style {
    double reach;  // how much a cut counts that helps at other steps too, from 0 to 1
    double lambda; // cost of a byte that has to stay instead, in mean cost a byte
};
enum budget_answer budget_trim(const struct budget_graph *g, const struct budget_style *style, const struct budget_end *end,
    struct budget_steps *s) BERTH_MUST_USE;
// Runs the ops in the given order, throws out what is cheap, large and not wanted soon when memory is short, and makes again what
// is missing.
enum budget_answer budget_walk(
    const struct budget_graph *g, double distance_power, const struct budget_end *end, struct budget_steps *out) BERTH_MUST_USE;
// Sets of values that are not kept through the step with the most bytes, by rules of thumb; order has every op once.
enum budget_answer budget_sets(
    const struct budget_graph *g, const struct budget_steps *order, struct budget_steps *out) BERTH_MUST_USE;
// Takes back runs for which there is room; then, until end_us, cuts at random and takes back again.
enum budget_answer budget_improve(
    const struct budget_graph *g, uint64_t seed, int64_t end_us, int64_t max_kicks, struct budget_steps *s) BERTH_MUST_USE;
// Chains there and back, of values of one size: the optimum, by dynamic programming. BUDGET_GAVE_UP: no such chain.
enum budget_answer budget_chain(const struct budget_graph *g, struct budget_steps *out) BERTH_MUST_USE;

// ---- reorder.c: other orders ----

// order[k] is the op that runs k-th, inputs first; *is_new: it is not the given one. False: out of memory.
bool budget_hoist(const struct budget_graph *g, int32_t *order, bool *is_new) BERTH_MUST_USE;
// The same by the order pass, for less memory.
enum ggml_status budget_reorder(const struct budget_graph *g, int32_t *order, bool *is_new) BERTH_MUST_USE;

// ---- reuse_gaps.c: what trim.c and improve.c know of a schedule ----

struct budget_gaps {
    const struct budget_graph *g;
    const struct budget_steps *s;
    struct budget_trace t;
    int32_t *read_start, *reads; // instance -> steps that read it, rising
    int32_t *made_start, *made;  // value -> its instances in its own pool, rising
    uint64_t *block_max;         // [blocks * n_pools] of live
    int32_t *over;               // [(steps + 1) * n_pools] how many steps before are above the limit
    int32_t *mark;               // [n] stamp of the cascade that makes the value
    int32_t *put_at;             // [n] step before which this round makes the value, -1: none
    int8_t *lock;                // [n + steps] instance: 1 relied on, 2 cut in this round
    int32_t stamp;
    size_t cap[9];
};

// False: out of memory. The trace must be sound.
bool budget_gaps_find(struct budget_gaps *x, const struct budget_graph *g, const struct budget_steps *s) BERTH_MUST_USE;
void budget_gaps_fini(struct budget_gaps *x);

// A value that goes behind step a and is there again before step b.
struct budget_cut {
    int32_t instance, pool, a, b;
    uint64_t cost; // of making it again
    int64_t freed; // bytes at the step in question
    double score;  // lower is better
    bool is_spill;
    int32_t first, n; // ops to run, in budget_cuts.ops
};

struct budget_cuts {
    struct budget_cut *at;
    size_t n, cap;
    int32_t n_done; // that were applied
    int32_t *ops;
    size_t n_ops, ops_cap;
    int32_t *stack;
    size_t stack_cap;
};
void budget_cuts_fini(struct budget_cuts *c);
// What can be cut at a step, in a pool, sorted by score. False: out of memory.
bool budget_cuts_find(struct budget_gaps *x, const struct budget_style *style, int32_t step, int32_t pool, uint64_t excess,
    struct budget_cuts *cuts) BERTH_MUST_USE;
// The schedule with cuts from `first` on, until `excess` bytes are freed; cuts->n_done of them.
bool budget_cuts_apply(struct budget_gaps *x, struct budget_cuts *cuts, const struct budget_style *style, size_t first,
    uint64_t excess, struct budget_steps *out) BERTH_MUST_USE;
// Without runs and copies that nobody reads.
bool budget_sweep(const struct budget_graph *g, struct budget_steps *s) BERTH_MUST_USE;

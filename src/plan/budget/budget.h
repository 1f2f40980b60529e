// SPDX-License-Identifier: MIT
// budget.h: declarations that the files of the budget solver share. The solver finds a cheap schedule within a memory limit.
//
//   ops --model.c--> budget_graph --reorder.c, exact.c, chain.c, initial_sets.c, trim.c, evict.c, improve.c--> steps
//   --check.c--> cost, live bytes, packed peak
//
// Terms of the solver:
//   value        the result of an op, or an input
//   schedule     a list of steps; a step runs an op (again, if it has run before), spills a value, or reads a spilled value back
//   restore      to recompute a value or to read it back
//   instance     one copy of a value in memory: an input, or the result of one step
//   once op      an op that may run only once
//   live bytes   the sum of the sizes of all instances in memory
//   packed peak  the peak of the plan that the planner makes for the instances of a schedule
// An instance is freed after the last step that reads it. The methods keep the live bytes within the limits. The packed peak may
// be higher than the live bytes, because a plan may have holes (unused bytes between items). If the packed peak exceeds a limit,
// solve.c lowers the limit on live bytes.
#pragma once

#include "base/base.h"
#include "berth-budget.h"

struct budget_lists {
    int32_t *start, *at; // list k is at[start[k]] .. at[start[k + 1] - 1]
};

// The memory limit of a pool, and the cost of spilling from it.
struct budget_pool {
    int32_t id;
    int32_t spill_to; // pool for spilled values, -1: none
    uint64_t limit;   // bytes; UINT64_MAX: none
    double per_byte;  // cost of spilling or reading back, per byte
    uint64_t each;    // additional cost per spilled or restored value
};

struct budget_graph {
    const struct berth_budget_op *ops;
    int32_t n;
    struct budget_lists srcs;    // op -> values that it reads, each once
    struct budget_lists readers; // value -> ops that read it, in rising order
    uint64_t *takeover;          // [n] bit k: may reuse memory of source k
    uint64_t *size, *cost;       // [n]
    int32_t *pool;               // [n] index of the value's pool
    int32_t *spill_pool;         // [n] pool for spilling the value, -1: none
    bool *keep;                  // [n] the value is kept to the end
    bool *can_recompute;         // [n] not an input, output or once op
    int32_t *once_before;        // [n] the once op before this one in the same group (berth_budget_op.group), -1: none
    int32_t *until;              // [n] the op that overwrites a source of this op; this op cannot run after it. -1: none
    struct budget_pool *pools;
    int32_t n_pools;
    int64_t *work;      // counted work: steps and values inspected
    uint64_t cost_once; // cost of running every op once
    // [n_pools] the op during which least[pool] bytes are required; -1: none. If they are required before the first op, an input.
    // If they are required after the last op, a kept value.
    int32_t *tight;
    uint64_t *least;         // [n_pools] bytes that every schedule requires
    struct berth_arrays mem; // owns all arrays
};

// A state of a schedule of at most 64 ops: sets of values or ops, bit i for number i.
// - live: the values in memory;
// - out: the values with a spilled copy;
// - done: the inputs, and the ops that cannot be recomputed (once ops and outputs) and have run.
// The possible next steps depend on the state only.
struct budget_state {
    uint64_t live, out, done;
};

// The caller's callback for the proof that no schedule keeps the limits.
struct budget_proof {
    berth_plan_write_t write; // NULL: no proof is made
    void *user;
    const int32_t *order; // the caller's number of each op; NULL: the same numbers
};

// ---- model.c ----

enum ggml_status budget_graph_init(struct budget_graph *g, const struct berth_budget_op *ops, int64_t n_ops,
    const struct berth_budget_params *params) BERTH_MUST_USE;
void budget_graph_fini(struct budget_graph *g);
uint64_t budget_spill_cost(const struct budget_graph *g, int32_t value); // cost of spilling or of reading back
static inline bool budget_is_input(const struct budget_graph *g, int32_t i) {
    return (g->ops[i].flags & BERTH_BUDGET_INPUT) != 0;
}
static inline bool budget_is_once(const struct budget_graph *g, int32_t i) {
    return (g->ops[i].flags & BERTH_BUDGET_ONCE) != 0 && !budget_is_input(g, i); // an input does not run, so it has no order
}
// Fills alive [n] with the values that every schedule has in the pool while op runs. Returns their number. is_up: [3 n] scratch.
int32_t budget_alive(const struct budget_graph *g, int32_t op, int32_t pool, int32_t *alive, bool *is_up, uint64_t *bytes);

// ---- steps ----

struct budget_steps {
    struct berth_budget_step *at; // [n]
    size_t n, cap;
};
bool budget_put(struct budget_steps *s, int32_t op, enum berth_budget_kind kind) BERTH_MUST_USE;
bool budget_copy(struct budget_steps *to, const struct budget_steps *from) BERTH_MUST_USE;
uint64_t budget_cost(const struct budget_graph *g, const struct budget_steps *s);

// ---- trace.c: lifetimes of instances ----

// Numbers of instances: 0 .. n - 1 are the inputs, n + k is the result of step k.
struct budget_trace {
    int32_t *last;  // [n + steps] last step that reads the instance. If no step reads it: the step that makes it, or -1 for an
                    // input. If the instance is kept to the end: n_steps
    int32_t *src;   // instances that each step reads, in the order of its sources
    int32_t *start; // [steps + 1] index in src
    int32_t *taken; // [steps] instance whose memory the result takes over, -1: none
    int32_t *now;   // [n] at the end of the schedule: the newest instance of the value in its own pool, -1: none
    int32_t *out;   // [n] at the end of the schedule: the newest spilled instance of the value, -1: none
    uint64_t *live; // [steps * n_pools] live bytes while the step runs
    uint64_t *peak; // [n_pools]
    size_t last_cap, src_cap, start_cap, taken_cap, live_cap;
    size_t now_cap, out_cap, peak_cap;
    int32_t fault;   // first invalid step, -1: the schedule is valid
    const char *why; // reason why the step is invalid
};

// Replays a schedule. False: out of memory. If the schedule is invalid, t->fault and t->why are set.
bool budget_trace(const struct budget_graph *g, const struct budget_steps *s, struct budget_trace *t) BERTH_MUST_USE;
void budget_trace_fini(struct budget_trace *t);
static inline int32_t budget_value(const struct budget_graph *g, const struct budget_steps *s, int32_t instance) {
    return instance < g->n ? instance : s->at[instance - g->n].op;
}
// The bytes that exceed the limits.
struct budget_excess {
    uint64_t most;      // at the worst step; 0: the schedule fits
    int32_t pool, step; // the pool and step with the largest excess
    double sum;         // sum over all steps and pools; it falls even if only one of several equally bad steps improves
};
struct budget_excess budget_excess(const struct budget_graph *g, const struct budget_trace *t, size_t n_steps);

// ---- check.c ----

// Limit on the planner's work when budget_pack tests whether a schedule fits, in microseconds of counted work (the sum of fixed
// prices per operation). Counted work is the same on all machines, so the answer is the same too.
#define BUDGET_PACK_US 20000

struct budget_pack {
    const uint64_t *limits; // [n_pools]
    int64_t time_limit_us;
};
// Computes the packed peak of each pool for a valid schedule. Sets *is_conclusive to true if for each pool a plan within the
// limit was found, or the packed peak is proven to be optimal.
enum ggml_status budget_pack(const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t,
    const struct budget_pack *how, uint64_t *peaks, bool *is_conclusive) BERTH_MUST_USE;
enum ggml_status budget_result(const struct budget_graph *g, const struct berth_budget_params *params,
    const struct budget_steps *s, int64_t pack_us, struct berth_budget_result **result) BERTH_MUST_USE;

// ---- methods; they respect the limits in g->pools ----

// The limits at which a method ends without a result.
struct budget_end {
    int64_t work; // limit on *g->work
    int64_t us;   // limit on the clock; INT64_MAX: none
};
static inline bool budget_is_over(const struct budget_graph *g, const struct budget_end *end) {
    return *g->work >= end->work || (end->us < INT64_MAX && ggml_time_us() >= end->us);
}

enum budget_answer { BUDGET_NOT_WRITTEN = -2, BUDGET_OUT_OF_MEMORY, BUDGET_GAVE_UP, BUDGET_NONE, BUDGET_FOUND };

// Finds the cheapest of all schedules, or proves that there is none. Raises *cost: no schedule costs less. If there is no schedule,
// writes the proof. If writing fails, returns BUDGET_NOT_WRITTEN.
enum budget_answer budget_exact(const struct budget_graph *g, const struct budget_proof *proof, int64_t max_nodes,
    int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) BERTH_MUST_USE;
// Lists all schedules by rising cost, until the judge accepts one. On entry, no schedule costs less than *cost. On return, no
// schedule that the judge accepts costs less than *cost.
struct budget_judge {
    enum budget_answer (*accepts)(const struct budget_steps *steps, void *user);
    void *user;
};
enum budget_answer budget_exact_packed(const struct budget_graph *g, const struct budget_judge *judge, int64_t max_nodes,
    int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) BERTH_MUST_USE;
// A cut discards an instance between two uses and restores the value before the second use (struct budget_cut). These parameters
// decide the score of a cut: (cost of the cut + cost of the bytes that it keeps in memory) / (freed bytes * (1 + reach * number
// of other steps above the limit between the two uses)).
struct budget_style {
    double reach;  // 0 to 1; if larger, cuts that lower several steps above the limit are preferred
    double lambda; // cost of each byte that a cut keeps in memory, as a multiple of cost_once / (sum of all sizes)
};
// Brings a schedule within the limits by cuts, those with the least cost per freed byte first.
enum budget_answer budget_trim(const struct budget_graph *g, const struct budget_style *style, const struct budget_end *end,
    struct budget_steps *s) BERTH_MUST_USE;
// Runs the ops in the given order. If memory is short, discards values and recomputes them later (evict.c). distance_power: how
// much the distance to a value's next use counts when a value to discard is chosen; 0: not at all.
enum budget_answer budget_walk(
    const struct budget_graph *g, double distance_power, const struct budget_end *end, struct budget_steps *out) BERTH_MUST_USE;
// Makes a start schedule by heuristics (initial_sets.c). order: a schedule that runs every op once.
enum budget_answer budget_sets(
    const struct budget_graph *g, const struct budget_steps *order, struct budget_steps *out) BERTH_MUST_USE;
// Removes steps that restore values, if these values can stay in memory. Then repeats until end_us: makes a random cut (a kick)
// and removes such steps again.
enum budget_answer budget_improve(
    const struct budget_graph *g, uint64_t seed, int64_t end_us, int64_t max_kicks, struct budget_steps *s) BERTH_MUST_USE;
// Solves a chain of ops and its backward pass, if all values have one size. BUDGET_GAVE_UP: not a chain.
enum budget_answer budget_chain(const struct budget_graph *g, struct budget_steps *out) BERTH_MUST_USE;

// ---- proof.c: docs/dev/proofs.md, "Memory limits". Nothing is written if proof->write is NULL ----

// Writes that the inputs, the kept values, or the values during an op exceed the limit of pool p; g->least[p] must exceed it.
enum ggml_status budget_proof_least(const struct budget_graph *g, const struct budget_proof *proof, int32_t p) BERTH_MUST_USE;
// Writes all states that a schedule may reach within the limits. The graph has at most 64 ops.
enum ggml_status budget_proof_states(
    const struct budget_graph *g, const struct budget_proof *proof, const struct budget_state *states, size_t n) BERTH_MUST_USE;

// ---- reorder.c ----

// Makes the hoisted order: each once op runs as soon as its sources are there, if that frees memory. order[k] is the op that runs
// k-th; inputs come first. *is_new: the order changed.
bool budget_hoist(const struct budget_graph *g, int32_t *order, bool *is_new) BERTH_MUST_USE;
// Finds an order that requires less memory, with the order pass (src/plan/order).
enum ggml_status budget_reorder(const struct budget_graph *g, int32_t *order, bool *is_new) BERTH_MUST_USE;

// ---- reuse_gaps.c: tables about a schedule for trim.c and improve.c ----

// A reuse gap is the time between two uses of an instance. A cut discards an instance during a gap and restores the value at the
// end of the gap. A cascade is the list of ops that recompute a value at the end of a gap: the value's op, and the ops of those
// sources that are not in memory either.
struct budget_gaps {
    const struct budget_graph *g;
    const struct budget_steps *s;
    struct budget_trace t;
    int32_t *read_start, *reads; // instance -> steps that read it, in rising order
    int32_t *made_start, *made;  // value -> its instances in its own pool, in rising order
    uint64_t *block_max;         // [blocks * n_pools] maximum of the live bytes over blocks of steps
    int32_t *n_over;             // [(steps + 1) * n_pools] number of earlier steps above the limit
    int32_t *mark;               // [n] last cascade that recomputes the value
    int32_t *put_at;             // [n] step before which a cut of this round restores the value, -1: none
    int8_t *lock;                // [n + steps] of an instance; 0: free, 1: another cut relies on it, 2: it was cut in this round
    int32_t stamp;               // number of the current cascade
    size_t cap[9];
};

// Fills in the tables. False: out of memory. The schedule must be valid.
bool budget_gaps_find(struct budget_gaps *x, const struct budget_graph *g, const struct budget_steps *s) BERTH_MUST_USE;
void budget_gaps_fini(struct budget_gaps *x);

// A cut. The instance is discarded after step a. The value is restored before step b.
struct budget_cut {
    int32_t instance, pool, a, b;
    uint64_t cost; // cost of the cascade, or of spilling and reading back
    int64_t freed; // bytes freed at the step that exceeds the limit
    double score;  // lower is better
    bool is_spill;
    int32_t first, n; // the cascade is budget_cuts.ops[first .. first + n)
};

struct budget_cuts {
    struct budget_cut *at;
    size_t n, cap;
    int32_t n_done; // number of cuts that were applied
    int32_t *ops;
    size_t n_ops, ops_cap;
    int32_t *stack;
    size_t stack_cap;
};
void budget_cuts_fini(struct budget_cuts *c);
// Finds the possible cuts at a step in a pool, sorted by score. False: out of memory.
bool budget_cuts_find(struct budget_gaps *x, const struct budget_style *style, int32_t step, int32_t pool, uint64_t excess,
    struct budget_cuts *cuts) BERTH_MUST_USE;
// Applies cuts from `first` on, until `excess` bytes are freed, and writes the schedule. Sets cuts->n_done.
bool budget_cuts_apply(struct budget_gaps *x, struct budget_cuts *cuts, const struct budget_style *style, size_t first,
    uint64_t excess, struct budget_steps *out) BERTH_MUST_USE;
// Removes the steps whose results no step reads. False: out of memory.
bool budget_sweep(const struct budget_graph *g, struct budget_steps *s) BERTH_MUST_USE;

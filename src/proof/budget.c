// SPDX-License-Identifier: MIT
// budget.c: checks that the live bytes at the start, at the end or during an op exceed a limit, or that a set of states contains all
// states that a schedule can reach, and none at which a schedule may end.

#include "proof/budget.h"

#include "base/min.h"

#include <string.h>

#define STATES_MAX (1 << 24) // 400 MB
#define N_WORD 64            // largest number of ops of a proof with states
#define N_SRCS_MAX 12        // largest number of sources with bytes of an op there: every set of them may be freed
#define BIT(i) ((uint64_t) 1 << (i))

struct budget {
    struct proof *p;
    const struct berth_budget_op *ops;
    int32_t n;
    const struct berth_budget_params *params;
    bool *is_kept;  // [n] to the end: an output, or no op reads it
    bool *is_up;    // [n] the op of the proof depends on this value
    bool *is_down;  // [n] this value depends on the op of the proof
    bool *is_there; // [n] the reason counts this value
};

// ---- the ops ----

static bool is_input(const struct budget *b, int32_t i) {
    return (b->ops[i].flags & BERTH_BUDGET_INPUT) != 0;
}

// Returns whether op i runs once, in order with the others of its group.
static bool is_once(const struct budget *b, int32_t i) {
    return (b->ops[i].flags & BERTH_BUDGET_ONCE) != 0 && !is_input(b, i);
}

// Returns whether value i cannot be recomputed.
static bool is_single(const struct budget *b, int32_t i) {
    return b->is_kept[i] || (b->ops[i].flags & (BERTH_BUDGET_INPUT | BERTH_BUDGET_ONCE)) != 0;
}

static const struct berth_budget_pool *pool_find(const struct budget *b, int32_t pool) {
    static const struct berth_budget_pool unlimited = {.limit = UINT64_MAX};
    for (int64_t k = b->params->n_pools; k-- > 0;) { // of two limits, the last one holds
        if (b->params->pools[k].pool == pool) {
            return &b->params->pools[k];
        }
    }
    return &unlimited;
}

static bool can_spill(const struct budget *b, int32_t i) {
    return (b->ops[i].flags & BERTH_BUDGET_NO_SPILL) == 0 && pool_find(b, b->ops[i].pool)->may_spill;
}

// Returns whether op i may take over the memory of its source k.
static bool may_take(const struct budget *b, int32_t i, int64_t k) {
    const struct berth_budget_op *op = &b->ops[i], *src = &b->ops[op->srcs[k]];
    const uint64_t have = max_u64(src->align, 1), want = max_u64(op->align, 1);
    if (k >= 64 || (op->inplace >> k & 1) == 0 || b->is_kept[op->srcs[k]] || op->size == 0 || src->size != op->size ||
        src->pool != op->pool || have % want != 0) {
        return false;
    }
    int64_t n_reads = 0;
    for (int64_t j = 0; j < op->n_srcs; j++) {
        n_reads += op->srcs[j] == op->srcs[k];
    }
    return n_reads == 1;
}

// Refuses ops with numbers that are out of range, and finds the kept values. Other ops that contradict berth-budget.h need no check:
// they have no valid schedule, so each proof about them is true.
static void ops_check(struct budget *b) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < b->n; i++) {
        b->is_kept[i] = true;
    }
    for (int32_t i = 0; i < b->n; i++) {
        const struct berth_budget_op *op = &b->ops[i];
        if (op->size > PROOF_SIZE_LIMIT || op->size > PROOF_SIZE_LIMIT - sum || op->until < 0 || op->until >= b->n ||
            op->n_srcs < 0 || op->n_srcs > INT32_MAX || (op->srcs == NULL && op->n_srcs > 0)) {
            proof_refuse(b->p, "op %d has an invalid member, or the sizes sum to more than 2^62", i);
            return;
        }
        sum += op->size;
        for (int64_t k = 0; k < op->n_srcs; k++) {
            const int32_t src = op->srcs[k];
            if (src < 0 || src >= b->n || is_input(b, i) || (src >= i && !is_input(b, src))) {
                proof_refuse(b->p, "op %d reads value %d, which is not before it", i, src);
                return;
            }
            b->is_kept[src] = false;
        }
    }
    for (int32_t i = 0; i < b->n; i++) {
        b->is_kept[i] = b->is_kept[i] || (b->ops[i].flags & BERTH_BUDGET_OUTPUT) != 0;
    }
}

// ---- live bytes at the start, at the end, and during an op ----

static void depend_find(struct budget *b, int32_t at) {
    memset(b->is_up, 0, (size_t) b->n * sizeof *b->is_up);
    memset(b->is_down, 0, (size_t) b->n * sizeof *b->is_down);
    b->is_up[at] = b->is_down[at] = true;
    for (int32_t i = b->n; i-- > 0;) {
        for (int64_t k = 0; b->is_up[i] && k < b->ops[i].n_srcs; k++) {
            b->is_up[b->ops[i].srcs[k]] = true;
        }
    }
    for (int32_t i = 0; i < b->n; i++) {
        for (int64_t k = 0; k < b->ops[i].n_srcs && !b->is_down[i]; k++) {
            b->is_down[i] = b->is_down[b->ops[i].srcs[k]];
        }
    }
}

// Finds the values that are in memory during the first run of op `at`.
static void op_values_find(struct budget *b, int32_t at) {
    const struct berth_budget_op *op = &b->ops[at];
    depend_find(b, at);
    for (int32_t r = 0; r < b->n; r++) {
        for (int64_t k = 0; r != at && b->is_down[r] && k < b->ops[r].n_srcs; k++) {
            b->is_there[b->ops[r].srcs[k]] = true; // an op that runs later reads this value
        }
    }
    for (int32_t i = 0; i < b->n; i++) {
        const bool was_made = is_input(b, i) || b->is_up[i], is_needed = b->is_kept[i] || b->is_there[i];
        b->is_there[i] = was_made && is_needed && is_single(b, i) && !can_spill(b, i);
    }
    for (int64_t k = 0; k < op->n_srcs; k++) {
        b->is_there[op->srcs[k]] = true;
    }
    b->is_there[at] = true;
}

static bool takes_any(const struct budget *b, int32_t i) {
    for (int64_t k = 0; k < b->ops[i].n_srcs; k++) {
        if (may_take(b, i, k)) {
            return true;
        }
    }
    return false;
}

static uint64_t bytes_sum(const struct budget *b, int32_t pool) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < b->n; i++) {
        sum += b->is_there[i] && b->ops[i].pool == pool ? b->ops[i].size : 0;
    }
    return sum;
}

// Takes a number and the space after it, or the line break if it is the last one of its line.
static uint64_t number_take(struct budget *b, uint64_t most, bool is_last) {
    const uint64_t x = proof_number(b->p, most);
    if (b->p->is_line_end != is_last) {
        proof_refuse(b->p, "a line has too many or too few numbers");
    }
    return x;
}

static int32_t pool_take(struct budget *b, const char *reason, bool is_last) {
    proof_text(b->p, reason);
    return (int32_t) (uint32_t) number_take(b, UINT32_MAX, is_last);
}

static void bytes_compare(struct budget *b, int32_t pool, uint64_t bytes) {
    if (bytes <= pool_find(b, pool)->limit) {
        proof_refuse(b->p, "%llu bytes are within the limit of pool %d", (unsigned long long) bytes, pool);
    }
}

// A line `inputs POOL`.
static void inputs_check(struct budget *b) {
    const int32_t pool = pool_take(b, "inputs ", true);
    for (int32_t i = 0; i < b->n; i++) {
        b->is_there[i] = is_input(b, i);
    }
    bytes_compare(b, pool, bytes_sum(b, pool));
}

// A line `kept POOL`.
static void kept_check(struct budget *b) {
    const int32_t pool = pool_take(b, "kept ", true);
    for (int32_t i = 0; i < b->n; i++) {
        b->is_there[i] = b->is_kept[i] && !can_spill(b, i);
    }
    bytes_compare(b, pool, bytes_sum(b, pool));
}

// A line `op POOL I`.
static void op_check(struct budget *b) {
    const int32_t pool = pool_take(b, "op ", false);
    const int32_t at = (int32_t) number_take(b, (uint64_t) b->n - 1, true);
    if (b->p->is_refused) {
        return;
    }
    if (is_input(b, at)) {
        proof_refuse(b->p, "op %d is an input", at);
        return;
    }
    op_values_find(b, at);
    const uint64_t taken = b->ops[at].pool == pool && takes_any(b, at) ? b->ops[at].size : 0;
    bytes_compare(b, pool, bytes_sum(b, pool) - taken);
}

// ---- states ----

// live: the values in memory. out: the values with a spilled copy. done: the inputs, and the ops that run once and have run.
struct state {
    uint64_t live, out, done;
};

struct states {
    const struct budget *b;
    struct state *at; // [n] sorted
    size_t n;
    // Sets of ops or values, bit i for number i.
    uint64_t srcs[N_WORD], readers[N_WORD], takes[N_WORD];
    uint64_t ends[N_WORD];   // the ops that must not run after this one
    uint64_t before[N_WORD]; // the last op of its group before this one
    uint64_t inputs, single, kept, sized, spillable;
};

static int lowest(uint64_t set) {
    return __builtin_ctzll(set);
}

static void sets_find(struct states *s) {
    const struct budget *b = s->b;
    for (int32_t i = 0; i < b->n; i++) {
        const struct berth_budget_op *op = &b->ops[i];
        for (int64_t k = 0; k < op->n_srcs; k++) {
            s->srcs[i] |= BIT(op->srcs[k]);
            s->readers[op->srcs[k]] |= BIT(i);
            s->takes[i] |= may_take(b, i, k) ? BIT(op->srcs[k]) : 0;
        }
        if (op->until > 0) {
            s->ends[op->until] |= BIT(i);
        }
        for (int32_t j = 0; j < i && is_once(b, i); j++) {
            if (is_once(b, j) && b->ops[j].group == op->group) {
                s->before[i] = BIT(j); // the last such j remains
            }
        }
        s->inputs |= is_input(b, i) ? BIT(i) : 0;
        s->single |= is_single(b, i) ? BIT(i) : 0;
        s->kept |= b->is_kept[i] ? BIT(i) : 0;
        s->sized |= op->size > 0 ? BIT(i) : 0;
        s->spillable |= op->size > 0 && can_spill(b, i) ? BIT(i) : 0;
    }
}

// Returns the ops that must not run after the ops of `done`.
static uint64_t ended_find(const struct states *s, uint64_t done) {
    uint64_t ended = 0;
    for (uint64_t left = done; left != 0; left &= left - 1) {
        ended |= s->ends[lowest(left)];
    }
    return ended;
}

// Returns the ops that do not run after the ops of `done`: they must not, or no op that runs later reads their results.
static uint64_t finished_find(const struct states *s, uint64_t done) {
    uint64_t finished = ended_find(s, done) | (done & s->single);
    for (int32_t i = s->b->n; i-- > 0;) {
        const bool is_read = (s->readers[i] & ~finished) != 0;
        finished |= is_read || (s->single & BIT(i)) != 0 ? 0 : BIT(i);
    }
    return finished;
}

// Returns the values that are not kept and that no op reads after the ops of `done`.
static uint64_t dead_find(const struct states *s, uint64_t done) {
    const uint64_t finished = finished_find(s, done);
    uint64_t dead = 0;
    for (int32_t i = 0; i < s->b->n; i++) {
        dead |= (s->readers[i] & ~finished) == 0 ? BIT(i) & ~s->kept : 0;
    }
    return dead;
}

// Returns whether an op that must still run needs a value that is lost: it is neither in memory nor spilled, and its op must not run.
static bool is_lost(const struct states *s, const struct state *x) {
    uint64_t need = s->single & ~x->done;
    for (int32_t i = s->b->n; i-- > 0;) {
        need |= (need & ~s->inputs & BIT(i)) != 0 ? s->srcs[i] & ~x->live & ~x->out : 0;
    }
    return (need & (x->done | ended_find(s, x->done))) != 0;
}

static int by_sets(const void *a, const void *b) {
    const struct state *x = a, *y = b;
    if (x->done != y->done) {
        return x->done < y->done ? -1 : 1;
    }
    if (x->live != y->live) {
        return x->live < y->live ? -1 : 1;
    }
    return x->out < y->out ? -1 : x->out > y->out;
}

// Returns whether the state is listed, or no schedule goes on from it.
static bool is_covered(const struct states *s, struct state x) {
    const bool is_listed = s->n > 0 && bsearch(&x, s->at, s->n, sizeof x, by_sets) != NULL; // s->at is NULL if s->n is 0
    return is_listed || is_lost(s, &x);
}

static bool is_spilled_to(const struct budget *b, int32_t from, int32_t to) {
    const struct berth_budget_pool *pool = pool_find(b, from);
    return pool->may_spill && pool->spill_to == to;
}

// Returns whether `size` more bytes are within the limit of a pool.
static bool is_room(const struct states *s, const struct state *x, int32_t pool, uint64_t size) {
    uint64_t sum = size;
    for (int32_t i = 0; i < s->b->n; i++) {
        const struct berth_budget_op *op = &s->b->ops[i];
        sum += (x->live & BIT(i)) != 0 && op->pool == pool ? op->size : 0;
        sum += (x->out & BIT(i)) != 0 && is_spilled_to(s->b, op->pool, pool) ? op->size : 0;
    }
    return sum <= pool_find(s->b, pool)->limit;
}

static bool can_run(const struct states *s, const struct state *x, int32_t i) {
    return ((x->done | x->live | ended_find(s, x->done)) & BIT(i)) == 0 && (s->before[i] & ~x->done) == 0 &&
           (s->srcs[i] & ~x->live) == 0;
}

// Returns whether all states after op i are covered, for every set of its sources that may be freed after it.
static bool runs_covered(const struct states *s, const struct state *x, int32_t i) {
    const uint64_t done = x->done | (BIT(i) & s->single), dead = dead_find(s, done);
    const uint64_t may_go = s->srcs[i] & s->sized & ~dead & (~s->kept | x->out);
    const struct berth_budget_op *op = &s->b->ops[i];
    uint64_t go = 0;
    if ((dead & ~s->single & BIT(i)) != 0) {
        return true; // no op reads the result
    }
    const bool has_room = is_room(s, x, op->pool, op->size), has_room_taking = is_room(s, x, op->pool, 0);
    do {
        const struct state to = {(x->live | BIT(i)) & ~go & ~dead, x->out & ~dead, done};
        const bool takes = (s->takes[i] & (go | dead)) != 0;
        const bool is_possible = takes ? has_room_taking : has_room;
        if (is_possible && !is_covered(s, to)) {
            return false;
        }
        go = (go - may_go) & may_go; // the next subset
    } while (go != 0);
    return true;
}

// Returns whether all states are covered that follow from spilling value i or reading it back. The other copy is freed or stays.
static bool moves_covered(const struct states *s, const struct state *x, int32_t i) {
    const struct berth_budget_op *op = &s->b->ops[i];
    const uint64_t bit = BIT(i);
    const int32_t other = pool_find(s->b, op->pool)->spill_to;
    if ((x->live & ~x->out & bit) != 0 && is_room(s, x, other, op->size) &&
        !(is_covered(s, (struct state){x->live, x->out | bit, x->done}) &&
            is_covered(s, (struct state){x->live & ~bit, x->out | bit, x->done}))) {
        return false;
    }
    return (x->out & ~x->live & bit) == 0 || !is_room(s, x, op->pool, op->size) ||
           (is_covered(s, (struct state){x->live | bit, x->out, x->done}) &&
               is_covered(s, (struct state){x->live | bit, x->out & ~bit, x->done}));
}

// Returns whether all states after x are covered. If a single op without bytes can run, and no op that may still run must precede it,
// only the states after this op must be covered (forced runs).
static bool next_covered(const struct states *s, const struct state *x) {
    const uint64_t finished = finished_find(s, x->done);
    for (uint64_t left = s->single & ~x->done & ~s->sized; left != 0; left &= left - 1) {
        const int32_t i = lowest(left);
        if (can_run(s, x, i) && (s->ends[i] & ~finished) == 0 && runs_covered(s, x, i)) {
            return true;
        }
    }
    for (int32_t i = 0; i < s->b->n; i++) {
        if (can_run(s, x, i) && !runs_covered(s, x, i)) {
            return false;
        }
        if ((s->spillable & (x->live | x->out) & BIT(i)) != 0 && !moves_covered(s, x, i)) {
            return false;
        }
    }
    return true;
}

// Takes `states N` and N lines.
static void states_check(struct budget *b) {
    struct states s = {.b = b};
    size_t n_at = 0;
    proof_text(b->p, "states ");
    if (b->n > N_WORD) {
        proof_refuse(b->p, "a proof with states has at most %d ops", N_WORD);
        return;
    }
    const uint64_t all = b->n == N_WORD ? UINT64_MAX : BIT(b->n) - 1;
    for (uint64_t left = number_take(b, STATES_MAX, true); left > 0 && !b->p->is_refused; left--) {
        if (!BERTH_GROW(&s.at, &n_at, s.n + 1)) {
            b->p->mem.has_failed = true;
            break;
        }
        struct state *x = &s.at[s.n++];
        x->live = number_take(b, all, false);
        x->out = number_take(b, all, false);
        x->done = number_take(b, all, true);
    }
    sets_find(&s);
    for (int32_t i = 0; i < b->n; i++) {
        if (__builtin_popcountll(s.srcs[i] & s.sized) > N_SRCS_MAX) {
            proof_refuse(b->p, "op %d has more than %d sources with bytes", i, N_SRCS_MAX);
        }
    }
    if (s.n > 0) {
        qsort(s.at, s.n, sizeof *s.at, by_sets);
    }
    const bool is_open = !b->p->is_refused && !b->p->mem.has_failed;
    if (is_open && !is_covered(&s, (struct state){s.inputs, 0, s.inputs})) {
        proof_refuse(b->p, "the first state is missing");
    }
    for (size_t k = 0; k < s.n && is_open && !b->p->is_refused; k++) {
        const struct state *x = &s.at[k];
        if ((s.single & ~x->done) == 0 && (s.kept & ~x->live) == 0) {
            proof_refuse(b->p, "a schedule may end in state %llu %llu %llu", (unsigned long long) x->live,
                (unsigned long long) x->out, (unsigned long long) x->done);
        } else if (!next_covered(&s, x)) {
            proof_refuse(b->p, "a state after %llu %llu %llu is missing", (unsigned long long) x->live,
                (unsigned long long) x->out, (unsigned long long) x->done);
        }
    }
    b->p->n_steps = s.n;
    berth_free(s.at);
}

// Takes the reason.
static void reason_check(struct budget *b) {
    switch (proof_peek(b->p)) {
        case 'i': inputs_check(b); break;
        case 'k': kept_check(b); break;
        case 's': states_check(b); break;
        default: op_check(b);
    }
}

bool proof_budget(struct proof *p, const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params) {
    if (n_ops < 0 || n_ops > INT32_MAX / 4 || (ops == NULL && n_ops > 0) || params->n_pools < 0 ||
        (params->pools == NULL && params->n_pools > 0)) {
        return proof_refuse(p, "the number of ops or limits is out of range, or an array is missing");
    }
    struct budget b = {.p = p, .ops = ops, .n = (int32_t) n_ops, .params = params};
    b.is_kept = berth_arrays_new(&p->mem, 4 * (size_t) b.n, sizeof *b.is_kept);
    if (p->mem.has_failed) {
        return false;
    }
    b.is_up = b.is_kept + b.n;
    b.is_down = b.is_up + b.n;
    b.is_there = b.is_down + b.n;
    p->sum[0] = 1;
    p->sum[1] = 0;
    ops_check(&b);
    proof_text(p, "berth-proof 1\n");
    if (proof_peek(p) == 'p') {
        proof_refuse(p, "the proof is about a plan, not about a memory limit");
    }
    proof_text(p, "budget\n");
    if (b.n == 0) {
        proof_refuse(p, "there are no ops");
    }
    reason_check(&b);
    const uint32_t sum = p->sum[1] << 16 | p->sum[0];
    proof_text(p, "end ");
    if (proof_number(p, UINT32_MAX) != sum) {
        proof_refuse(p, "the checksum of the text is %u", sum);
    }
    return !(p->is_refused || p->mem.has_failed);
}

// SPDX-License-Identifier: MIT
// budget_brute.h: random small graphs with costs, and the least cost of a schedule by brute force over all reachable states. This
// code shares nothing with the solver. A once op is an op with BERTH_BUDGET_ONCE: it may run only once. If `until` of an op is
// not 0, the op must not run after op number `until`.
#pragma once

#include "plan_brute.h"
#include "support/check.h"

#define BUDGET_MAX 8
#define BUDGET_NEVER UINT32_MAX

struct budget_case {
    struct berth_budget_op ops[BUDGET_MAX];
    int32_t srcs[BUDGET_MAX][3];
    int32_t n;
    struct berth_budget_pool pools[2];
    size_t n_pools;
};

static inline uint32_t case_roll(uint32_t n) {
    return (uint32_t) brute_random(n);
}

// Like a training step: an op of the second half also reads its mirror image in the first half, or a neighbour of it.
static inline void case_mirror(struct budget_case *c, uint32_t every) {
    for (int32_t i = 0; i < c->n; i++) {
        struct berth_budget_op *op = &c->ops[i];
        *op = (struct berth_budget_op){.srcs = c->srcs[i], .size = 1 + case_roll(4), .cost = 1 + case_roll(5)};
        op->inplace = case_roll(4);
        op->flags = i == 0 ? BERTH_BUDGET_INPUT : case_roll(every) == 0 ? BERTH_BUDGET_ONCE : 0;
        op->size = i == 0 ? case_roll(2) : op->size;
        if (i > 0) {
            c->srcs[i][op->n_srcs++] = i - 1;
        }
        if (i > c->n / 2 || case_roll(6) == 0) {
            const int32_t mirror = c->n - i - (int32_t) case_roll(2);
            if (mirror > 0 && mirror < i) {
                c->srcs[i][op->n_srcs++] = mirror;
            }
        }
    }
}

static inline void case_make(struct budget_case *c, int32_t n, bool has_spill) {
    *c = (struct budget_case){.n = n, .n_pools = 1};
    const bool is_mirror = case_roll(3) != 0, has_ends = case_roll(3) == 0;
    const uint32_t every = has_ends ? 4 : is_mirror ? 24 : 10; // one in `every` ops runs only once
    if (is_mirror) {
        case_mirror(c, every);
    }
    for (int32_t i = 0; i < n && !is_mirror; i++) {
        struct berth_budget_op *op = &c->ops[i];
        *op =
            (struct berth_budget_op){.srcs = c->srcs[i], .size = case_roll(6), .cost = 1 + case_roll(5), .inplace = case_roll(8)};
        op->size = case_roll(3) == 0 ? 2 : op->size;
        if (i == 0 || case_roll(8) == 0) {
            op->flags = BERTH_BUDGET_INPUT;
        } else {
            op->n_srcs = (int32_t) (1 + case_roll(i < 3 ? (uint32_t) i : 3));
        }
        for (int32_t k = 0; k < op->n_srcs; k++) {
            c->srcs[i][k] =
                (int32_t) (case_roll(3) == 0 ? case_roll((uint32_t) i) : (uint32_t) i - 1 - case_roll(i < 3 ? (uint32_t) i : 3));
        }
        op->flags |= op->flags == 0 && case_roll(10) == 0 ? BERTH_BUDGET_OUTPUT : 0;
        op->flags |= op->flags == 0 && case_roll(every) == 0 ? BERTH_BUDGET_ONCE : 0;
    }
    for (int32_t i = 0; i + 1 < n && has_ends; i++) { // some ops must not run after a once op
        const int32_t end = i + 1 + (int32_t) case_roll((uint32_t) (n - i - 1));
        const bool is_once =
            (c->ops[end].flags & BERTH_BUDGET_INPUT) == 0 && (c->ops[end].flags & (BERTH_BUDGET_ONCE | BERTH_BUDGET_OUTPUT)) != 0;
        c->ops[i].until = is_once && (c->ops[i].flags & BERTH_BUDGET_INPUT) == 0 ? end : 0;
    }
    if (has_spill) {
        c->pools[0].may_spill = true;
        c->pools[0].spill_to = 1;
        c->pools[0].spill_cost_per_byte = 0.5;
        c->pools[0].spill_cost_per_copy = 1;
        c->n_pools = 2;
        c->pools[1] = (struct berth_budget_pool){.pool = 1, .limit = case_roll(8)};
    }
}

// ---- the least cost ----

struct case_brute {
    const struct budget_case *c;
    uint32_t srcs[BUDGET_MAX], once, keep, inputs; // sets of ops, one bit per op
    uint32_t spill[BUDGET_MAX];                    // cost of one copy of each value
    bool has_spill;
};

static inline struct case_brute case_brute_new(const struct budget_case *c) {
    struct case_brute b = {.c = c, .has_spill = c->pools[0].may_spill};
    uint32_t read = 0;
    for (int32_t i = 0; i < c->n; i++) {
        for (int32_t k = 0; k < c->ops[i].n_srcs; k++) {
            b.srcs[i] |= 1u << c->srcs[i][k];
        }
        read |= b.srcs[i];
    }
    for (int32_t i = 0; i < c->n; i++) {
        const uint32_t flags = c->ops[i].flags;
        b.inputs |= (flags & BERTH_BUDGET_INPUT) != 0 ? 1u << i : 0;
        b.keep |= (flags & BERTH_BUDGET_OUTPUT) != 0 || (read >> i & 1) == 0 ? 1u << i : 0;
        b.once |= (flags & (BERTH_BUDGET_ONCE | BERTH_BUDGET_INPUT)) != 0 ? 1u << i : 0;
        b.spill[i] =
            (uint32_t) c->pools[0].spill_cost_per_copy + (uint32_t) ((double) c->ops[i].size * c->pools[0].spill_cost_per_byte);
    }
    b.once |= b.keep;
    return b;
}

static inline uint64_t case_bytes(const struct budget_case *c, uint32_t set) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < c->n; i++) {
        sum += (set >> i & 1) != 0 ? c->ops[i].size : 0;
    }
    return sum;
}

// Returns whether op i may overwrite source j while it runs.
static inline bool case_may_take(const struct case_brute *b, int32_t i, int32_t j) {
    const struct berth_budget_op *op = &b->c->ops[i];
    int n_reads = 0;
    bool may = false;
    for (int32_t k = 0; k < op->n_srcs; k++) {
        n_reads += op->srcs[k] == j;
        may = may || (op->srcs[k] == j && (op->inplace >> k & 1) != 0);
    }
    return may && n_reads == 1 && op->size == b->c->ops[j].size && op->size > 0 && (b->keep >> j & 1) == 0;
}

// A queue of states by rising cost. A state is three sets of values, 8 bits each: live | spilled << 8 | done << 16.
#define CASE_COSTS 512
#define CASE_STATES (1u << 24)

struct case_queue {
    uint8_t *is_seen; // [CASE_STATES / 8] one bit per state
    uint32_t *list[CASE_COSTS];
    size_t n[CASE_COSTS], cap[CASE_COSTS];
    uint32_t *touched; // states whose bit in is_seen is set
    size_t n_touched, touched_cap;
};

static inline void case_push(struct case_queue *q, uint32_t cost, uint32_t state) {
    assert_true(cost < CASE_COSTS);
    if ((q->is_seen[state >> 3] >> (state & 7) & 1) != 0) {
        return;
    }
    if (q->n[cost] == q->cap[cost]) {
        q->cap[cost] = 2 * q->cap[cost] + 64;
        q->list[cost] = realloc(q->list[cost], q->cap[cost] * sizeof **q->list);
    }
    q->list[cost][q->n[cost]++] = state;
}

static inline void case_expand(struct case_queue *q, const struct case_brute *b, uint64_t budget, uint32_t cost, uint32_t state) {
    const struct budget_case *c = b->c;
    const uint32_t live = state & 255, out = state >> 8 & 255, done = state >> 16;
    const uint64_t bytes = case_bytes(c, live), spilled = case_bytes(c, out);
    for (int32_t i = 0; i < c->n; i++) {
        const uint32_t me = 1u << i;
        const bool may_go = (b->keep & me) == 0 || (out & me) != 0;
        if ((live & me) != 0 && may_go) { // discard the value
            case_push(q, cost, (live & ~me) | out << 8 | done << 16);
        }
        if ((out & me) != 0 && ((b->keep & me) == 0 || (live & me) != 0)) {
            case_push(q, cost, live | (out & ~me) << 8 | done << 16);
        }
        if (b->has_spill && c->ops[i].size > 0 && (live & me) != 0 && spilled + c->ops[i].size <= c->pools[1].limit) {
            case_push(q, cost + b->spill[i], live | (out | me) << 8 | done << 16);
        }
        if ((out & me) != 0 && (live & me) == 0 && bytes + c->ops[i].size <= budget) {
            case_push(q, cost + b->spill[i], live | me | out << 8 | done << 16);
        }
        bool can_run = (done & b->once & me) == 0 && (b->srcs[i] & ~live) == 0 && (live & me) == 0;
        can_run = can_run && (c->ops[i].until == 0 || (done >> c->ops[i].until & 1) == 0);
        for (int32_t j = 0; j < i && (c->ops[i].flags & BERTH_BUDGET_ONCE) != 0; j++) {
            can_run = can_run && ((c->ops[j].flags & BERTH_BUDGET_ONCE) == 0 || (done >> j & 1) != 0);
        }
        if (!can_run) {
            continue;
        }
        const uint32_t then = done | (me & b->once);
        if (bytes + c->ops[i].size <= budget) {
            case_push(q, cost + (uint32_t) c->ops[i].cost, live | me | out << 8 | then << 16);
        }
        for (int32_t j = 0; j < c->n; j++) {
            if ((b->srcs[i] >> j & 1) != 0 && case_may_take(b, i, j)) {
                case_push(q, cost + (uint32_t) c->ops[i].cost, ((live | me) & ~(1u << j)) | out << 8 | then << 16);
            }
        }
    }
}

// Returns the least cost within the budget; BUDGET_NEVER: no schedule fits. q is scratch.
static inline uint32_t case_least(struct case_queue *q, const struct budget_case *c, uint64_t budget) {
    const struct case_brute b = case_brute_new(c);
    uint32_t found = BUDGET_NEVER;
    if (case_bytes(c, b.inputs) <= budget) {
        case_push(q, 0, b.inputs | b.inputs << 16);
    }
    for (uint32_t cost = 0; cost < CASE_COSTS; cost++) {
        for (size_t k = 0; k < q->n[cost] && found == BUDGET_NEVER; k++) {
            const uint32_t state = q->list[cost][k];
            uint8_t *seen = &q->is_seen[state >> 3];
            if ((*seen >> (state & 7) & 1) != 0) {
                continue;
            }
            *seen |= (uint8_t) (1 << (state & 7));
            if (q->n_touched == q->touched_cap) {
                q->touched_cap = 2 * q->touched_cap + 1024;
                q->touched = realloc(q->touched, q->touched_cap * sizeof *q->touched);
            }
            q->touched[q->n_touched++] = state;
            if ((b.once & ~(state >> 16)) == 0 && (b.keep & ~state) == 0) {
                found = cost;
            } else {
                case_expand(q, &b, budget, cost, state);
            }
        }
        q->n[cost] = 0;
    }
    while (q->n_touched > 0) {
        q->is_seen[q->touched[--q->n_touched] >> 3] = 0;
    }
    return found;
}

static inline struct case_queue *case_queue_new(void) {
    struct case_queue *q = calloc(1, sizeof *q);
    q->is_seen = calloc(CASE_STATES / 8, 1);
    return q;
}

static inline void case_queue_free(struct case_queue *q) {
    for (int i = 0; i < CASE_COSTS; i++) {
        free(q->list[i]);
    }
    free(q->touched);
    free(q->is_seen);
    free(q);
}

static inline void case_print(const struct budget_case *c, uint64_t budget) {
    printf("budget %llu:\n", (unsigned long long) budget);
    for (int32_t i = 0; i < c->n; i++) {
        printf("  op %d: size %d cost %d flags %u inplace %d until %d of", i, (int) c->ops[i].size, (int) c->ops[i].cost,
            c->ops[i].flags, (int) c->ops[i].inplace, c->ops[i].until);
        for (int32_t k = 0; k < c->ops[i].n_srcs; k++) {
            printf(" %d", c->srcs[i][k]);
        }
        printf("\n");
    }
}

// The solver's cost and bound must equal the least cost by brute force, and be proven.
static inline void case_compare(struct case_queue *q, struct budget_case *c, uint64_t budget) {
    const uint32_t least = case_least(q, c, budget);
    struct berth_budget_result *r = NULL;
    c->pools[0].limit = budget;
    const struct berth_budget_params params = {.pools = c->pools, .n_pools = c->n_pools, .max_nodes = 1000000, .live_only = true};
    assert_int_equal(berth_budget_solve(c->ops, c->n, &params, &r), GGML_STATUS_SUCCESS);
    if (!r->proven || r->fits != (least != BUDGET_NEVER) || (r->fits && (r->cost != least || r->cost_bound != least))) {
        case_print(c, budget);
        printf("brute force %u; solver %s, cost %llu, bound %llu, %s, %s\n", least, r->fits ? "fits" : "does not fit",
            (unsigned long long) r->cost, (unsigned long long) r->cost_bound, r->proven ? "proven" : "not proven", r->method);
        fail();
    }
    if (r->fits) { // without exact search: the cost is not below the least cost, and the live bytes are within the limit
        struct berth_budget_params rough = params;
        rough.max_nodes = -1;
        struct berth_budget_result *h = NULL;
        assert_int_equal(berth_budget_solve(c->ops, c->n, &rough, &h), GGML_STATUS_SUCCESS);
        assert_true(!h->fits || h->cost >= least);
        assert_true(!h->fits || h->uses[0].live <= budget);
        assert_true(h->cost_bound <= least);
        berth_budget_free(h);
    }
    berth_budget_free(r);
}

static inline uint64_t case_total(const struct budget_case *c) {
    return case_bytes(c, (1u << c->n) - 1);
}

// ---- packed memory: the peak of a plan of the schedule's items, which may have holes ----

struct case_listing {
    const struct budget_case *c;
    struct case_brute b;
    int32_t steps[32];
    int32_t n;
    uint64_t budget;
    int64_t left; // nodes until the search gives up
};

// Returns the least peak of all plans for the results of the steps, by brute force. Returns UINT64_MAX if there are too many
// items, or more live bytes than the limit. No op works in place.
static inline uint64_t case_packed(const struct case_listing *l) {
    struct berth_plan_item items[BRUTE_MAX];
    int64_t n = 0;
    for (int32_t v = 0; v < l->c->n; v++) {
        for (int32_t k = -1; k < l->n; k++) {
            if (k < 0 ? (l->b.inputs >> v & 1) == 0 : l->steps[k] != v) {
                continue;
            }
            int32_t last = k < 0 ? 0 : k, next = k + 1;
            for (; next < l->n && l->steps[next] != v; next++) {
                last = (l->b.srcs[l->steps[next]] >> v & 1) != 0 ? next : last;
            }
            last = next == l->n && (l->b.keep >> v & 1) != 0 ? l->n : last;
            if (n == BRUTE_MAX) {
                return UINT64_MAX;
            }
            items[n++] = brute_item(k < 0 ? 0 : k, last, l->c->ops[v].size);
        }
    }
    return brute_live(items, n) > l->budget ? UINT64_MAX : brute_optimum(items, n);
}

// Whether the steps so far can be extended to a schedule that costs at most `most` and packs into the limit.
static inline bool case_packs(struct case_listing *l, uint32_t have, uint64_t most) {
    if (l->n == 32 || --l->left < 0) {
        return false;
    }
    if ((have & ((1u << l->c->n) - 1)) == (1u << l->c->n) - 1 && case_packed(l) <= l->budget) {
        return true;
    }
    for (int32_t i = 0; i < l->c->n; i++) {
        const bool may_recompute = (l->b.once >> i & 1) == 0, is_done = (have >> i & 1) != 0;
        bool can_run = (l->b.srcs[i] & ~have) == 0 && (!is_done || may_recompute) && l->c->ops[i].cost <= most;
        can_run = can_run && (l->b.inputs >> i & 1) == 0;
        can_run = can_run && (l->c->ops[i].until == 0 || (have >> l->c->ops[i].until & 1) == 0);
        for (int32_t j = 0; j < i && (l->c->ops[i].flags & BERTH_BUDGET_ONCE) != 0; j++) {
            can_run = can_run && ((l->c->ops[j].flags & BERTH_BUDGET_ONCE) == 0 || (have >> j & 1) != 0);
        }
        l->steps[l->n] = i;
        l->n++;
        const bool found = can_run && case_packs(l, have | 1u << i, most - l->c->ops[i].cost);
        l->n--;
        if (found) {
            return true;
        }
    }
    return false;
}

static inline void case_compare_packed(struct budget_case *c, uint64_t budget) {
    struct berth_budget_result *r = NULL;
    c->pools[0].limit = budget;
    const struct berth_budget_params params = {.pools = c->pools, .n_pools = 1, .max_nodes = 20000};
    struct case_listing l = {.c = c, .b = case_brute_new(c), .budget = budget, .left = 300000};
    assert_int_equal(berth_budget_solve(c->ops, c->n, &params, &r), GGML_STATUS_SUCCESS);
    const uint64_t below = r->fits ? r->cost - 1 : r->cost_once + 6; // brute force must find no schedule up to this cost
    if (r->fits && r->cost == r->cost_once) {
        assert_true(r->proven);
    } else if (case_packs(&l, l.b.inputs, below) || (r->fits && !r->proven)) {
        case_print(c, budget);
        printf("brute force packs at a cost up to %llu; solver %s, cost %llu, %s\n", (unsigned long long) below,
            r->fits ? "fits" : "does not fit", (unsigned long long) r->cost, r->method);
        fail();
    }
    assert_true(!r->fits || r->uses[0].peak <= budget);
    berth_budget_free(r);
}

// ---- many cases ----

// Every n_spill-th graph may spill values; 0: none.
static inline void cases_compare(uint64_t seed, int n, int n_spill) {
    brute_seed = check_seed(seed);
    struct case_queue *q = case_queue_new();
    struct budget_case c;
    for (int i = 0; i < n; i++) {
        case_make(&c, 3 + (int32_t) case_roll(BUDGET_MAX - 2), n_spill > 0 && i % n_spill == 0);
        const uint64_t total = case_total(&c);
        for (uint64_t budget = 0; budget <= total; budget++) {
            case_compare(q, &c, budget);
        }
    }
    case_queue_free(q);
}

// Checks n random graphs of up to 6 ops at every limit on packed memory.
static inline void cases_compare_packed(uint64_t seed, int n) {
    brute_seed = check_seed(seed);
    struct budget_case c;
    for (int i = 0; i < n; i++) {
        case_make(&c, 3 + (int32_t) case_roll(4), false);
        for (int32_t k = 0; k < c.n; k++) {
            c.ops[k].inplace = 0;
        }
        const uint64_t total = case_total(&c);
        for (uint64_t budget = 0; budget <= total; budget++) {
            case_compare_packed(&c, budget);
        }
    }
}

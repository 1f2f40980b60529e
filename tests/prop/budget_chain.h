// SPDX-License-Identifier: MIT
// budget_chain.h: chains of ops with their backward pass, and their least costs, by a formula for equal costs or by a recurrence.
#pragma once

#include "support/check.h"

// A chain of l forward ops with the results x1 .. xl, and l backward ops. Each op reads the result of the previous op. In
// addition, the second to last backward ops read xl-1, ..., x1, in this order. All results have size 1.
struct chain_case {
    struct berth_budget_op *ops;
    int32_t (*srcs)[2];
    int32_t l, n;
};

static inline struct chain_case chain_make(int32_t l, struct check_rng *rng) {
    struct chain_case c = {.l = l, .n = 2 * l};
    c.ops = calloc((size_t) c.n, sizeof *c.ops);
    c.srcs = calloc((size_t) c.n, sizeof *c.srcs);
    for (int32_t i = 0; i < c.n; i++) {
        c.ops[i] =
            (struct berth_budget_op){.srcs = c.srcs[i], .size = 1, .cost = rng == NULL ? 1 : 1 + check_rng_below(rng, 100)};
        c.srcs[i][0] = i - 1;
        c.ops[i].n_srcs = i > 0;
        if (i > l) {
            c.srcs[i][1] = c.n - 1 - i;
            c.ops[i].n_srcs = 2;
        }
    }
    return c;
}

static inline void chain_free(struct chain_case *c) {
    free(c->ops);
    free(c->srcs);
}

// Least number of forward runs for a backward pass over l ops with c checkpoints: r * l - beta(c + 1, r - 1), where
// beta(c, r) = (c + r)! / (c! r!) and r is the least number with beta(c, r) >= l.
static inline uint64_t chain_runs(int32_t l, int32_t c) {
    // beta: beta(c, r). before: beta(c, 0) + ... + beta(c, r - 1), which equals beta(c + 1, r - 1).
    double beta = 1, before = 0;
    int32_t r = 0;
    while (beta < (double) l) {
        before += beta;
        r++;
        beta = beta * (double) (c + r) / (double) r;
    }
    return (uint64_t) ((double) r * (double) l - before + 0.5);
}

// Returns the cost of the recomputations. Asserts that the schedule fits and is proven optimal.
static inline uint64_t chain_extra(const struct chain_case *c, uint64_t budget) {
    const struct berth_budget_pool pool = {.limit = budget};
    const struct berth_budget_params params = {.pools = &pool, .n_pools = 1, .live_only = true, .max_nodes = -1};
    struct berth_budget_result *r = NULL;
    assert_int_equal(berth_budget_solve(c->ops, c->n, &params, &r), GGML_STATUS_SUCCESS);
    assert_true(r->fits);
    assert_true(r->proven);
    assert_true(r->uses[0].live <= budget);
    const uint64_t extra = r->cost - r->cost_once;
    berth_budget_free(r);
    return extra;
}

static inline void chain_compare_equal(int32_t l, uint64_t budget) {
    struct chain_case c = chain_make(l, NULL);
    const int32_t slots = (int32_t) budget - 2;
    const uint64_t runs = slots >= l ? (uint64_t) l - 1 : chain_runs(l, slots);
    const uint64_t extra = chain_extra(&c, budget);
    if (extra != runs - (uint64_t) (l - 1)) {
        printf("a chain of %d with %d slots: %llu recomputations, the optimum is %llu\n", l, slots, (unsigned long long) extra,
            (unsigned long long) (runs - (uint64_t) (l - 1)));
        fail();
    }
    chain_free(&c);
}

// Least cost of computing x[s + 1] .. x[t] for the backward pass, if x[s] is in memory and m more values fit. sum[k]: cost of
// x[1] .. x[k]. known_cost: results so far, 0 if not computed yet.
static inline uint64_t chain_least(const uint64_t *sum, uint64_t *known_cost, int32_t n, int32_t s, int32_t t, int32_t m) {
    if (t <= s) {
        return 0;
    }
    if (m < 1) {
        return UINT64_MAX / 4;
    }
    uint64_t *known = &known_cost[((size_t) m * (size_t) n + (size_t) s) * (size_t) n + (size_t) t];
    if (*known == 0) {
        uint64_t best = UINT64_MAX / 4;
        for (int32_t k = s + 1; k <= t; k++) {
            const uint64_t cost =
                sum[k] - sum[s] + chain_least(sum, known_cost, n, k, t, m - 1) + chain_least(sum, known_cost, n, s, k - 1, m);
            best = cost < best ? cost : best;
        }
        *known = best;
    }
    return *known;
}

// Compares the solver with the recurrence, for random op costs and at every limit.
static inline void chain_compare_costs(int32_t l, struct check_rng *rng) {
    struct chain_case c = chain_make(l, rng);
    uint64_t *sum = calloc((size_t) l + 1, sizeof *sum);
    uint64_t *known_cost = calloc((size_t) (l + 2) * (size_t) (l + 1) * (size_t) (l + 1), sizeof *known_cost);
    for (int32_t k = 1; k < l; k++) {
        sum[k] = sum[k - 1] + c.ops[k - 1].cost;
    }
    for (int32_t budget = 3; budget <= l + 3; budget++) {
        const uint64_t least = chain_least(sum, known_cost, l + 1, 0, l - 1, budget - 2);
        assert_int_equal(chain_extra(&c, (uint64_t) budget), least - sum[l - 1]);
    }
    free(sum);
    free(known_cost);
    chain_free(&c);
}

// SPDX-License-Identifier: MIT
// plan_exact_cases.h: the cases of prop_plan_exact.c and long_plan_exact.c. An instance is a set of items. An ask is one question
// to the exact search, "is there a plan within this capacity?". plan/solve/exact.h defines asks, rules and answers.
#pragma once

#include "plan/solve/exact.h"
#include "plan_brute.h"

// n_checked: instances. n_above_live: instances with an optimum above the live bytes. n_no: proofs that a capacity does not
// suffice (EXACT_NO). n_beam_no: such proofs by beams. n_joined: checks of joined items (check_joined).
static int n_checked, n_above_live, n_no, n_beam_no, n_joined;

static void fail_case(
    const struct berth_plan_item *items, int64_t n, const char *what, unsigned long long x, unsigned long long y) {
    printf("%s: %llu, %llu\n", what, x, y);
    brute_print(items, n);
    exit(1);
}

// Checks the beam search (beam.c) at all capacities from the bound to the optimum. If it returns a plan, the plan must be valid.
// If it answers "no", the capacity must be below the optimum. A narrow beam may give no answer.
static void check_beams(
    const struct berth_plan_item *items, int64_t n, struct exact *x, const struct plan_prob *p, unsigned rules, int64_t best) {
    static const int32_t widths[] = {1, 3, 500};
    int64_t off[BRUTE_MAX];
    for (int k = 0; k < 3; k++) {
        for (int64_t cap = p->bound; cap <= best; cap++) {
            struct exact_ask ask = {.cap = cap,
                .rules = rules,
                .preorder = (enum plan_priority) brute_random(EXACT_N_PREORDERS),
                .valley = (enum exact_valley) brute_random(EXACT_N_VALLEYS),
                .width = widths[k],
                .max_nodes = 2000000,
                .deadline_us = INT64_MAX};
            int64_t next, n_nodes = 0;
            bool is_late;
            const enum exact_answer answer = berth_exact_ask(x, &ask, off, &next, &n_nodes, &is_late);
            const bool is_wrong_yes = answer == EXACT_FITS && (cap < best || !berth_plan_is_valid(p, off));
            const bool is_wrong_no = answer == EXACT_NO && (cap >= best || next > best || next <= cap);
            if (is_wrong_yes || is_wrong_no || (cap == best && k == 2 && answer != EXACT_FITS)) {
                fail_case(items, n, "wrong answer of a beam (width, capacity)", (unsigned) widths[k], (unsigned long long) cap);
            }
            n_beam_no += answer == EXACT_NO;
        }
    }
}

// Checks join.c at the bound: the joined problem has the same answer, and its plan is valid for both.
static void check_joined(const struct berth_plan_item *items, int64_t n, const struct plan_prob *p, int64_t best) {
    int32_t joined_id[BRUTE_MAX];
    int64_t off[BRUTE_MAX], unjoined[BRUTE_MAX];
    struct plan_prob joined;
    if (!berth_plan_join(p, p->bound, joined_id, &joined)) {
        fail_case(items, n, "no memory for joining", 0, 0);
    }
    if (joined.n == 0) {
        return;
    }
    struct exact_ask ask = {.cap = p->bound, .rules = EXACT_ALL, .max_nodes = 2000000, .deadline_us = INT64_MAX};
    int64_t next, n_nodes = 0;
    bool is_late;
    struct exact *x = berth_exact_new(&joined);
    const enum exact_answer answer = x != NULL ? berth_exact_ask(x, &ask, off, &next, &n_nodes, &is_late) : EXACT_UNKNOWN;
    for (int32_t i = 0; i < p->n && answer == EXACT_FITS; i++) {
        unjoined[i] = off[joined_id[i]];
    }
    const bool is_right = best == p->bound ? answer == EXACT_FITS && berth_plan_is_valid(p, unjoined) : answer == EXACT_NO;
    if (!is_right || joined.n >= p->n || joined.bound != p->bound) {
        fail_case(items, n, "wrong answer of joined blocks (answer, blocks)", (unsigned) answer, (unsigned) joined.n);
    }
    n_joined++;
    berth_exact_free(x);
    berth_plan_prob_fini(&joined);
}

// With each rule switched off in turn, the search must find a plan at the optimum and prove that lower capacities do not fit. The
// next capacity that such a proof returns must not exceed the optimum.
static void check_rules(const struct berth_plan_item *items, int64_t n, uint64_t optimum) {
    struct plan_traits traits;
    int32_t ids[BRUTE_MAX];
    struct plan_pool pool = {.items = items, .ids = ids, .n_ids = (int32_t) n};
    int64_t off[BRUTE_MAX];
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    for (int32_t i = 0; i < n; i++) {
        ids[i] = i;
    }
    if (berth_plan_items_check(items, n, 0, &traits) != GGML_STATUS_SUCCESS ||
        berth_plan_pool_init(&pool, &traits, &scratch) != GGML_STATUS_SUCCESS) {
        fail_case(items, n, "refused", 0, 0);
    }
    struct exact *x = pool.prob.n > 0 ? berth_exact_new(&pool.prob) : NULL;
    if (pool.prob.n > 0 && x == NULL) {
        fail_case(items, n, "no search", 0, 0);
    }
    int64_t best = (int64_t) (optimum / pool.unit);
    for (int i_rule_off = 0; x != NULL && i_rule_off <= EXACT_N_RULES; i_rule_off++) {
        struct exact_ask ask = {.rules = EXACT_ALL & ~(i_rule_off < EXACT_N_RULES ? 1u << i_rule_off : 0u),
            .preorder = (enum plan_priority) brute_random(EXACT_N_PREORDERS),
            .valley = (enum exact_valley) brute_random(EXACT_N_VALLEYS),
            .max_nodes = 2000000,
            .deadline_us = INT64_MAX};
        int64_t next, n_nodes = 0;
        bool is_late;
        ask.cap = best;
        if (berth_exact_ask(x, &ask, off, &next, &n_nodes, &is_late) != EXACT_FITS || !berth_plan_is_valid(&pool.prob, off)) {
            fail_case(items, n, "no plan at the optimum without rule", (unsigned long long) i_rule_off, optimum);
        }
        // Ask at capacities below the optimum, from the bound up. Each proof returns the next capacity to ask.
        ask.cap = pool.prob.bound;
        while (ask.cap < best) {
            if (berth_exact_ask(x, &ask, off, &next, &n_nodes, &is_late) != EXACT_NO || next > best || next <= ask.cap) {
                fail_case(items, n, "wrong proof without rule (next capacity)", (unsigned long long) i_rule_off,
                    (unsigned long long) next);
            }
            ask.cap = next;
            n_no++;
        }
        if (i_rule_off == EXACT_N_RULES || brute_random(4) == 0) {
            check_beams(items, n, x, &pool.prob, ask.rules, best);
        }
    }
    if (x != NULL) {
        check_joined(items, n, &pool.prob, best);
    }
    berth_exact_free(x);
    berth_plan_pool_fini(&pool);
    berth_scratch_fini(&scratch);
}

static void check_instance(const struct berth_plan_item *items, int64_t n, bool with_rules) {
    uint64_t optimum = brute_optimum(items, n);
    uint64_t live = brute_live(items, n);
    uint64_t off[BRUTE_MAX];
    struct berth_plan_report r;
    static const int64_t time_limits_us[] = {0, 200, 10000000};
    for (int k = 0; k < 3; k++) {
        struct berth_plan_params params = {.time_limit_us = time_limits_us[k], .seed = 7};
        if (berth_plan_solve(items, n, &params, off, &r) != GGML_STATUS_SUCCESS || !brute_is_valid(items, n, 0, off) ||
            berth_plan_check(items, n, &params, off, NULL) != GGML_STATUS_SUCCESS) {
            fail_case(items, n, "invalid plan with time limit", (unsigned long long) time_limits_us[k], r.peak);
        }
        if (r.peak < optimum || r.bound > optimum || r.bound < live || r.peak < r.bound || (r.proven && r.peak != optimum)) {
            fail_case(items, n, "wrong peak or bound; optimum", r.peak, optimum);
        }
    }
    if (r.peak != optimum || !r.proven) {
        fail_case(items, n, "the exact path missed the optimum", r.peak, optimum);
    }
    if (optimum > live) {
        n_above_live++;
        struct berth_plan_params params = {.time_limit_us = 10000000, .memory_limit = optimum - 1};
        if (berth_plan_solve(items, n, &params, off, &r) != GGML_STATUS_SUCCESS || r.fits || !r.proven) {
            fail_case(items, n, "a capacity below the optimum is not refused", optimum, r.peak);
        }
    }
    if (with_rules) {
        check_rules(items, n, optimum);
    }
    n_checked++;
}

static void check_random(int n_instances, int64_t n_max, uint64_t size_max, uint64_t steps, bool with_rules) {
    struct berth_plan_item items[BRUTE_MAX];
    for (int k = 0; k < n_instances; k++) {
        int64_t n = (int64_t) brute_random((uint64_t) n_max) + 1;
        for (int64_t i = 0; i < n; i++) {
            int64_t x = (int64_t) brute_random(steps);
            int64_t y = (int64_t) brute_random(steps);
            items[i] = brute_item(x < y ? x : y, x < y ? y : x, brute_random(size_max) + 1);
        }
        check_instance(items, n, with_rules);
    }
}

// Makes instances of n_free random items, and of items with a lifetime of one step that fill every step almost completely. Checks
// only instances that the fast path does not solve. For many of them the optimum is above the live bytes.
static void check_tight(int n_instances, int64_t n_free, uint64_t size_max, int64_t steps, bool with_rules) {
    struct berth_plan_item items[BRUTE_MAX];
    for (int k = 0; k < n_instances;) {
        int64_t n = n_free;
        for (int64_t i = 0; i < n; i++) {
            int64_t first = (int64_t) brute_random((uint64_t) steps);
            int64_t width = 1 + (int64_t) brute_random(3);
            items[i] = brute_item(first, first + width <= steps ? first + width - 1 : steps - 1, brute_random(size_max) + 1);
        }
        uint64_t live = brute_live(items, n);
        for (int64_t step = 0; step < steps && n < BRUTE_MAX; step++) {
            uint64_t sum = 0;
            for (int64_t i = 0; i < n; i++) {
                sum += items[i].first <= step && step <= items[i].last ? items[i].size : 0;
            }
            uint64_t gap = live - sum;
            if (gap > 1 && brute_random(2) == 0) {
                gap -= brute_random(2);
            }
            if (gap > 0) {
                items[n++] = brute_item(step, step, gap);
            }
        }
        uint64_t off[BRUTE_MAX];
        struct berth_plan_report r;
        if (berth_plan_solve(items, n, NULL, off, &r) != GGML_STATUS_SUCCESS) {
            fail_case(items, n, "refused", 0, 0);
        }
        if (!r.proven) {
            check_instance(items, n, with_rules);
            k++;
        }
    }
}

// Checks every stride-th multiset of n items with sizes 1..size_max and lifetimes within `steps` steps.
static void check_exhaustive(int64_t n, int size_max, int steps, uint64_t stride) {
    struct berth_plan_item kinds[256];
    int n_kinds = 0;
    for (int size = 1; size <= size_max; size++) {
        for (int first = 0; first < steps; first++) {
            for (int last = first; last < steps; last++) {
                kinds[n_kinds++] = brute_item(first, last, (uint64_t) size);
            }
        }
    }
    int at[BRUTE_MAX] = {0};
    uint64_t count = brute_random(stride);
    struct berth_plan_item items[BRUTE_MAX] = {0};
    for (;;) {
        if (count % stride == 0) {
            for (int64_t i = 0; i < n; i++) {
                items[i] = kinds[at[i]];
            }
            check_instance(items, n, count % (stride * 16) == 0);
        }
        count++;
        int64_t i = n - 1;
        while (i >= 0 && at[i] == n_kinds - 1) {
            i--;
        }
        if (i < 0) {
            return;
        }
        at[i]++;
        for (int64_t j = i + 1; j < n; j++) {
            at[j] = at[i];
        }
    }
}

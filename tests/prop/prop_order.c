// SPDX-License-Identifier: MIT
// prop_order.c: the order pass on random graphs. The new order is valid. Its peak of live bytes is never higher than that of the
// given order. The reported peak equals that of berth_plan_order_items. A second run gives the same order. On small graphs the
// peak is the optimum over all orders. BERTH_SEED=n repeats a run.

#include "support/check.h"

#include <time.h>

#define MAX_OPS 160

struct random_graph {
    struct berth_order_op ops[MAX_OPS];
    int32_t srcs[MAX_OPS][4];
    size_t n;
};

static uint64_t rng;

static uint32_t roll(uint32_t n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) ((rng >> 33) % n);
}

static void graph_make(struct random_graph *g, size_t n, bool one_pool) {
    g->n = n;
    for (size_t i = 0; i < n; i++) {
        struct berth_order_op *op = &g->ops[i];
        *op = (struct berth_order_op){.srcs = g->srcs[i], .view_of = -1, .size = roll(5) * (1 + roll(4))};
        op->pool = one_pool ? 0 : (int32_t) roll(3);
        op->inplace = roll(16);
        if (i == 0 || roll(10) == 0) {
            op->flags = BERTH_ORDER_INPUT;
            continue;
        }
        op->n_srcs = (int32_t) roll(i < 4 ? (uint32_t) i + 1 : 4);
        for (int32_t k = 0; k < op->n_srcs; k++) {
            const uint32_t near = i < 12 ? (uint32_t) i : 12;
            g->srcs[i][k] = (int32_t) (roll(3) == 0 ? roll((uint32_t) i) : i - 1 - roll(near));
        }
        op->flags |= roll(12) == 0 ? BERTH_ORDER_OUTPUT : 0;
        op->flags |= roll(12) == 0 ? BERTH_ORDER_EFFECT : 0;
        if (op->n_srcs > 0 && roll(5) == 0) {
            op->view_of = g->srcs[i][0];
            op->size = 0;
            op->flags |= roll(3) == 0 ? BERTH_ORDER_WRITES : 0;
        }
    }
}

// Returns the sum over pools of the peaks of live bytes; UINT64_MAX: the order is invalid.
static uint64_t order_peak(const struct random_graph *g, const int32_t *order) {
    struct berth_plan_item items[MAX_OPS];
    int64_t n_items;
    uint64_t sum = 0;
    if (berth_plan_order_items(g->ops, g->n, order, items, &n_items, NULL) != GGML_STATUS_SUCCESS) {
        return UINT64_MAX;
    }
    for (int32_t pool = 0; pool < 3; pool++) {
        uint64_t peak = 0;
        for (int64_t t = 0; t < (int64_t) g->n; t++) {
            uint64_t live = 0;
            for (int64_t i = 0; i < n_items; i++) {
                live += items[i].pool == pool && items[i].first <= t && t <= items[i].last ? items[i].size : 0;
            }
            peak = live > peak ? live : peak;
        }
        sum += peak;
    }
    return sum;
}

static void sources_first_check(const struct random_graph *g, const int32_t *order) {
    int32_t position[MAX_OPS];
    for (size_t i = 0; i < g->n; i++) {
        position[order[i]] = (int32_t) i;
    }
    for (size_t i = 0; i < g->n; i++) {
        if ((g->ops[i].flags & BERTH_ORDER_INPUT) != 0) {
            assert_int_equal(position[i], i);
        }
        for (int32_t k = -1; k < g->ops[i].n_srcs; k++) {
            const int32_t src = k < 0 ? g->ops[i].view_of : g->srcs[i][k];
            if (src >= 0 && (g->ops[src].flags & BERTH_ORDER_INPUT) == 0 && (g->ops[i].flags & BERTH_ORDER_INPUT) == 0) {
                assert_true(position[src] < position[i]);
            }
        }
    }
}

static void never_higher_and_valid(void **state) {
    (void) state;
    static struct random_graph g;
    int n_changed = 0;
    for (int i = 0; i < check_cases(1500); i++) {
        graph_make(&g, 1 + roll(i % 10 == 0 ? MAX_OPS : 40), i % 3 != 0);
        int32_t order[MAX_OPS], second[MAX_OPS];
        struct berth_order_report r;
        assert_int_equal(berth_plan_order(g.ops, g.n, NULL, order, &r), GGML_STATUS_SUCCESS);
        sources_first_check(&g, order);
        const uint64_t given = order_peak(&g, NULL), found = order_peak(&g, order);
        assert_int_equal(given, r.live_given);
        assert_int_equal(found, r.live);
        assert_true(r.changed ? found < given : found == given);
        assert_true(r.live_bound <= r.live);
        n_changed += r.changed;
        assert_int_equal(berth_plan_order(g.ops, g.n, NULL, second, NULL), GGML_STATUS_SUCCESS);
        assert_memory_equal(order, second, g.n * sizeof *order);
    }
    assert_true(n_changed > check_cases(100));
}

static void solved_peaks_never_rise(void **state) {
    (void) state;
    static struct random_graph g;
    const struct berth_plan_params plan = {0};
    const struct berth_order_params params = {.plan = &plan};
    for (int i = 0; i < check_cases(300); i++) {
        graph_make(&g, 1 + roll(60), i % 2 == 0);
        int32_t order[MAX_OPS];
        struct berth_order_report r;
        assert_int_equal(berth_plan_order(g.ops, g.n, &params, order, &r), GGML_STATUS_SUCCESS);
        assert_true(r.changed ? r.peak < r.peak_given : r.peak == r.peak_given);
        assert_true(r.peak >= r.live);
        sources_first_check(&g, order);
    }
}

struct brute {
    const struct random_graph *g;
    int32_t positions[MAX_OPS]; // positions of ops that are not inputs
    int32_t n_positions;
    int32_t order[MAX_OPS];
    uint64_t best;
    int64_t n_tries;
};

static void brute_run(struct brute *b, int32_t at) {
    const struct random_graph *g = b->g;
    if (at == b->n_positions) {
        const uint64_t peak = order_peak(g, b->order); // UINT64_MAX for orders that violate an edge
        b->best = peak < b->best ? peak : b->best;
        b->n_tries++;
        return;
    }
    for (int32_t k = at; k < b->n_positions; k++) {
        const int32_t a = b->positions[at], c = b->positions[k], op = b->order[c];
        bool is_ready = true;
        for (int32_t j = at; j < b->n_positions && is_ready; j++) {
            const int32_t other = b->order[b->positions[j]];
            for (int32_t s = -1; s < g->ops[op].n_srcs; s++) {
                is_ready = is_ready && (other == op || (s < 0 ? g->ops[op].view_of : g->srcs[op][s]) != other);
            }
        }
        if (is_ready && b->n_tries < 3000) {
            b->order[c] = b->order[a];
            b->order[a] = op;
            brute_run(b, at + 1);
            b->order[a] = b->order[c];
            b->order[c] = op;
        }
    }
}

static void equals_brute_force(void **state) {
    (void) state;
    static struct random_graph g;
    int n_complete = 0, n_gained = 0;
    for (int i = 0; i < check_cases(4000); i++) {
        graph_make(&g, 2 + roll(8), true);
        struct brute b = {.g = &g, .best = UINT64_MAX};
        for (size_t k = 0; k < g.n; k++) {
            b.order[k] = (int32_t) k;
            if ((g.ops[k].flags & BERTH_ORDER_INPUT) == 0) {
                b.positions[b.n_positions++] = (int32_t) k;
            }
        }
        brute_run(&b, 0);
        int32_t order[MAX_OPS];
        struct berth_order_report r;
        assert_int_equal(berth_plan_order(g.ops, g.n, NULL, order, &r), GGML_STATUS_SUCCESS);
        if (b.n_tries < 3000) {
            n_complete++;
            n_gained += r.changed;
            assert_true(r.proven);
            assert_int_equal(r.live, b.best);
        }
    }
    assert_true(n_complete > check_cases(2000) && n_gained > check_cases(50));
}

int main(void) {
    rng = check_seed((uint64_t) time(NULL));
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_higher_and_valid),
        cmocka_unit_test(solved_peaks_never_rise),
        cmocka_unit_test(equals_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

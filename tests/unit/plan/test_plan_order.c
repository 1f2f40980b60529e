// SPDX-License-Identifier: MIT
// test_plan_order.c: the order pass on small graphs whose best order is known. Checks its gain, the orders that it must keep, and
// the inputs that it refuses.

#include "berth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define SRCS(...) .srcs = (const int32_t[]){__VA_ARGS__}, .n_srcs = (int32_t) (sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define LEN(a) (sizeof(a) / sizeof *(a))

static void positions_find(const int32_t *order, size_t n, int32_t *position) {
    for (size_t i = 0; i < n; i++) {
        position[i] = -1;
    }
    for (size_t i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_int_equal(position[order[i]], -1);
        position[order[i]] = (int32_t) i;
    }
}

static uint64_t live_peak(const struct berth_plan_item *items, size_t n, int64_t n_steps) {
    uint64_t peak = 0;
    for (int64_t t = 0; t < n_steps; t++) {
        uint64_t live = 0;
        for (size_t i = 0; i < n; i++) {
            live += items[i].first <= t && t <= items[i].last ? items[i].size : 0;
        }
        peak = live > peak ? live : peak;
    }
    return peak;
}

// Two branches, each with a large value followed by a small one. In the given order, which alternates between the branches, the
// peak is 210 bytes. If the branches run one after the other, the peak is 115 bytes.
static const struct berth_order_op two_branches[] = {
    {.view_of = -1, .size = 10, .flags = BERTH_ORDER_INPUT},
    {SRCS(0), .view_of = -1, .size = 100},
    {SRCS(0), .view_of = -1, .size = 100},
    {SRCS(1), .view_of = -1, .size = 5},
    {SRCS(2), .view_of = -1, .size = 5},
    {SRCS(3, 4), .view_of = -1, .size = 5, .flags = BERTH_ORDER_OUTPUT},
};

static void branches_run_one_after_the_other(void **state) {
    (void) state;
    int32_t order[LEN(two_branches)], position[LEN(two_branches)];
    struct berth_order_report r;
    struct berth_plan_item items[LEN(two_branches)];
    int64_t n_items;
    assert_int_equal(berth_plan_order(two_branches, LEN(two_branches), NULL, order, &r), GGML_STATUS_SUCCESS);
    assert_true(r.changed && r.proven);
    assert_int_equal(r.live_given, 210);
    assert_int_equal(r.live, 115);
    assert_int_equal(r.live_bound, 115);
    positions_find(order, LEN(order), position);
    assert_int_equal(position[0], 0);
    assert_true((position[3] < position[2]) != (position[4] < position[1]));
    assert_int_equal(berth_plan_order_items(two_branches, LEN(two_branches), order, items, &n_items, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(live_peak(items, n_items, (int64_t) LEN(two_branches)), 115);
    assert_int_equal(berth_plan_order_items(two_branches, LEN(two_branches), NULL, items, &n_items, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(live_peak(items, n_items, (int64_t) LEN(two_branches)), 210);
}

static void solver_decides_about_the_order(void **state) {
    (void) state;
    int32_t order[LEN(two_branches)];
    const struct berth_plan_params plan = {0};
    const struct berth_order_params params = {.plan = &plan};
    struct berth_order_report r;
    assert_int_equal(berth_plan_order(two_branches, LEN(two_branches), &params, order, &r), GGML_STATUS_SUCCESS);
    assert_true(r.changed);
    assert_int_equal(r.peak_given, 210);
    assert_int_equal(r.peak, 115);
}

static void order_without_gain_is_kept(void **state) {
    (void) state;
    const struct berth_order_op chain[] = {
        {.view_of = -1, .size = 10, .flags = BERTH_ORDER_INPUT},
        {SRCS(0), .view_of = -1, .size = 100},
        {SRCS(0), .view_of = -1, .size = 20},
        {SRCS(1, 2), .view_of = -1, .size = 10},
        {SRCS(3), .view_of = -1, .size = 10, .flags = BERTH_ORDER_OUTPUT},
    };
    int32_t order[LEN(chain)];
    struct berth_order_report r;
    assert_int_equal(berth_plan_order(chain, LEN(chain), NULL, order, &r), GGML_STATUS_SUCCESS);
    assert_false(r.changed);
    assert_true(r.proven);
    for (int32_t i = 0; i < (int32_t) LEN(chain); i++) {
        assert_int_equal(order[i], i);
    }
    assert_int_equal(berth_plan_order(NULL, 0, NULL, NULL, &r), GGML_STATUS_SUCCESS);
    assert_int_equal(r.live, 0);
}

// A cache outside the plan is written through one view, then read through another view. No edge connects the writer and the reader,
// so by edges alone the reader could run first. It must stay after the writer, and before a second writer.
static void side_effects_keep_their_order(void **state) {
    (void) state;
    const struct berth_order_op ops[] = {
        {.view_of = -1, .size = 0, .flags = BERTH_ORDER_INPUT},          // 0: cache, allocated elsewhere
        {.view_of = -1, .size = 10, .flags = BERTH_ORDER_INPUT},         // 1: input
        {.view_of = -1, .size = 0, .flags = BERTH_ORDER_INPUT},          // 2: another cache
        {SRCS(1), .view_of = -1, .size = 100},                           // 3: large
        {SRCS(1), .view_of = -1, .size = 100},                           // 4: large
        {SRCS(0), .view_of = 0},                                         // 5: view of cache 0
        {SRCS(3, 5), .view_of = 0, .flags = BERTH_ORDER_WRITES},         // 6: writes 3 into cache 0
        {SRCS(4, 2), .view_of = 2, .flags = BERTH_ORDER_WRITES},         // 7: writes 4 into cache 2
        {SRCS(0), .view_of = 0},                                         // 8: another view of cache 0
        {SRCS(8, 1), .view_of = -1, .size = 5},                          // 9: reads cache 0
        {SRCS(9, 0), .view_of = 0, .flags = BERTH_ORDER_WRITES},         // 10: writes cache 0 a second time
        {.view_of = -1, .size = 1, .flags = BERTH_ORDER_EFFECT},         // 11: an effect that is not a write
        {SRCS(9), .view_of = -1, .size = 5, .flags = BERTH_ORDER_OUTPUT} // 12: output
    };
    int32_t order[LEN(ops)], position[LEN(ops)];
    struct berth_order_report r;
    assert_int_equal(berth_plan_order(ops, LEN(ops), NULL, order, &r), GGML_STATUS_SUCCESS);
    assert_true(r.changed); // 3 is written before 4 is computed
    assert_int_equal(r.live_given, 210);
    assert_true(r.live <= 115);
    positions_find(order, LEN(order), position);
    assert_true(position[6] < position[7]); // effects keep their order
    assert_true(position[7] < position[10]);
    assert_true(position[10] < position[11]);
    assert_true(position[6] < position[9]);  // the reader runs after the writer
    assert_true(position[9] < position[10]); // and before the next writer
    assert_true(position[5] < position[6]);  // views come before their users
    assert_true(position[8] < position[9]);
    assert_int_equal(position[0], 0);
    assert_int_equal(position[2], 2);
}

// Writes into planned memory follow the same rules. The memory stays alive until its last reader.
static void writes_into_planned_memory(void **state) {
    (void) state;
    const struct berth_order_op ops[] = {
        {.view_of = -1, .size = 10, .flags = BERTH_ORDER_INPUT},
        {SRCS(0), .view_of = -1, .size = 50},                    // 1
        {SRCS(1), .view_of = 1},                                 // 2: view
        {SRCS(1), .view_of = -1, .size = 5},                     // 3: reads before the write
        {SRCS(0, 2), .view_of = 2, .flags = BERTH_ORDER_WRITES}, // 4: writes through the view
        {SRCS(1), .view_of = -1, .size = 5},                     // 5: reads after the write, without an edge to 4
        {SRCS(3, 5), .view_of = -1, .size = 5, .flags = BERTH_ORDER_OUTPUT},
    };
    struct berth_plan_item items[LEN(ops)];
    int32_t item_of[LEN(ops)];
    int64_t n;
    const int32_t wrong[] = {0, 1, 2, 4, 3, 5, 6}, wrong_too[] = {0, 1, 2, 3, 5, 4, 6}, twice[] = {0, 1, 1, 3, 4, 5, 6};
    assert_int_equal(berth_plan_order_items(ops, LEN(ops), NULL, items, &n, item_of), GGML_STATUS_SUCCESS);
    assert_int_equal(n, 5);
    assert_int_equal(item_of[4], item_of[1]);
    assert_int_equal(items[item_of[1]].last, 5);
    assert_int_equal(berth_plan_order_items(ops, LEN(ops), wrong, items, &n, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_order_items(ops, LEN(ops), wrong_too, items, &n, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_order_items(ops, LEN(ops), twice, items, &n, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_order_items(NULL, 1, NULL, items, &n, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_order_items(ops, -1, NULL, items, &n, NULL), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "n_ops = -1"));
}

static void results_in_place_share_an_item(void **state) {
    (void) state;
    struct berth_order_op ops[] = {
        {.view_of = -1, .size = 10, .flags = BERTH_ORDER_INPUT}, {SRCS(0), .view_of = -1, .size = 50, .align = 32},
        {SRCS(1), .view_of = -1, .size = 50, .inplace = 1},    // takes over 1
        {SRCS(2, 2), .view_of = -1, .size = 50, .inplace = 3}, // reads its source twice: cannot take it over
        {SRCS(3), .view_of = -1, .size = 50, .inplace = 1},    // 3 has another reader: cannot take it over
        {SRCS(3, 4), .view_of = -1, .size = 50, .inplace = 3, .flags = BERTH_ORDER_OUTPUT}, // takes over 3, its first source
    };
    struct berth_plan_item items[LEN(ops)];
    int32_t item_of[LEN(ops)];
    int64_t n;
    assert_int_equal(berth_plan_order_items(ops, LEN(ops), NULL, items, &n, item_of), GGML_STATUS_SUCCESS);
    assert_int_equal(n, 4);
    assert_int_equal(item_of[2], item_of[1]);
    assert_int_not_equal(item_of[3], item_of[2]);
    assert_int_not_equal(item_of[4], item_of[3]);
    assert_int_equal(item_of[5], item_of[3]);
    assert_int_equal(items[item_of[1]].align, 32);
    assert_int_equal(items[item_of[5]].last, 5);
    ops[2].align = 64; // the offset of 1 need not be a multiple of 64
    assert_int_equal(berth_plan_order_items(ops, LEN(ops), NULL, items, &n, item_of), GGML_STATUS_SUCCESS);
    assert_int_equal(n, 5);
}

static void contradictions_are_refused(void **state) {
    (void) state;
    int32_t order[2] = {7, 7};
    const struct berth_order_op forward[] = {{SRCS(1), .view_of = -1, .size = 1}, {.view_of = -1, .size = 1}};
    const struct berth_order_op range[] = {{SRCS(5), .view_of = -1, .size = 1}, {.view_of = -1, .size = 1}};
    const struct berth_order_op self[] = {{.view_of = 0, .flags = BERTH_ORDER_INPUT}, {.view_of = -1}};
    const struct berth_order_op circle[] = {
        {.view_of = 1, .flags = BERTH_ORDER_INPUT}, {.view_of = 0, .flags = BERTH_ORDER_INPUT}};
    const struct berth_order_op writes[] = {{.view_of = -1, .flags = BERTH_ORDER_WRITES}, {.view_of = -1}};
    const struct berth_order_op huge[] = {
        {.view_of = -1, .size = (uint64_t) 1 << 62}, {.view_of = -1, .size = (uint64_t) 1 << 62}};
    const struct berth_order_op *const bad[] = {forward, range, self, circle, writes, huge};
    for (size_t i = 0; i < LEN(bad); i++) {
        assert_int_equal(berth_plan_order(bad[i], 2, NULL, order, NULL), GGML_STATUS_FAILED);
        assert_int_equal(order[0], 0);
        assert_int_equal(order[1], 1);
    }
    assert_int_equal(berth_plan_order(NULL, 2, NULL, order, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_order(NULL, -1, NULL, order, NULL), GGML_STATUS_FAILED);
    const struct berth_order_op loop[] = {{SRCS(0), .view_of = -1, .size = 4}, {SRCS(0), .view_of = -1, .size = 4}};
    assert_int_equal(berth_plan_order(loop, 2, NULL, order, NULL), GGML_STATUS_SUCCESS); // an op that reads itself is accepted
}

// A graph of many branches is too large for the exact search. The beam search and the windows improve its order.
#define N_BRANCHES 60

static void large_parts_gain_too(void **state) {
    (void) state;
    static struct berth_order_op ops[2 * N_BRANCHES + 2];
    static int32_t srcs[2 * N_BRANCHES + 2][N_BRANCHES];
    static int32_t order[2 * N_BRANCHES + 2], second[2 * N_BRANCHES + 2], position[2 * N_BRANCHES + 2];
    const size_t n = LEN(ops);
    for (size_t i = 0; i < n; i++) {
        ops[i] = (struct berth_order_op){.srcs = srcs[i], .view_of = -1, .n_srcs = 1, .size = i <= N_BRANCHES ? 100 : 1};
        srcs[i][0] = i <= N_BRANCHES ? 0 : (int32_t) (i - N_BRANCHES);
    }
    ops[0] = (struct berth_order_op){.view_of = -1, .size = 10, .flags = BERTH_ORDER_INPUT};
    for (int32_t k = 0; k < N_BRANCHES; k++) {
        srcs[n - 1][k] = N_BRANCHES + 1 + k;
    }
    ops[n - 1].n_srcs = N_BRANCHES;
    ops[n - 1].flags = BERTH_ORDER_OUTPUT;
    struct berth_order_report r;
    assert_int_equal(berth_plan_order(ops, n, NULL, order, &r), GGML_STATUS_SUCCESS);
    assert_int_equal(r.live_given, 10 + 100 * N_BRANCHES);
    assert_true(r.live <= 10 + 100 + N_BRANCHES);
    positions_find(order, n, position);
    for (size_t i = 1; i < n; i++) {
        for (int32_t k = 0; k < ops[i].n_srcs; k++) {
            assert_true(position[srcs[i][k]] < position[i]);
        }
    }
    assert_int_equal(berth_plan_order(ops, n, NULL, second, &r), GGML_STATUS_SUCCESS);
    assert_memory_equal(order, second, sizeof order);
}

static void every_allocation_may_fail(void **state) {
    (void) state;
    const struct berth_plan_params plan = {0};
    const struct berth_order_params params = {.plan = &plan};
    bool done = false;
    for (int n = 1; !done; n++) {
        int32_t order[LEN(two_branches)];
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        const enum ggml_status status = berth_plan_order(two_branches, LEN(two_branches), &params, order, NULL);
        done = berth_alloc_made() < n - 1 || status == GGML_STATUS_SUCCESS;
        berth_alloc_fail_at(0);
        if (status != GGML_STATUS_SUCCESS) {
            assert_int_equal(status, GGML_STATUS_ALLOC_FAILED);
            for (int32_t i = 0; i < (int32_t) LEN(order); i++) {
                assert_int_equal(order[i], i);
            }
        }
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        assert_true(n < 10000);
    }
}

static void quiet(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

int main(void) {
    ggml_log_set(quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_run_one_after_the_other),
        cmocka_unit_test(solver_decides_about_the_order),
        cmocka_unit_test(order_without_gain_is_kept),
        cmocka_unit_test(side_effects_keep_their_order),
        cmocka_unit_test(writes_into_planned_memory),
        cmocka_unit_test(results_in_place_share_an_item),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(large_parts_gain_too),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

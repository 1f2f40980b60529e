// SPDX-License-Identifier: MIT
// test_admit_shared.c: pages that several sequences share count once, until the last of these sequences ends.

#include "support/check.h"

#include "support/admit_world.h"

// Each step computes one token per sequence and at most 100 more of prompts.
static const struct admit_params params = {.n_page = 4, .n_pages = 20, .n_ctx = 60, .n_batch = 108, .n_running = 8};

static int request_yes(struct admit_world *w, struct admit_request r) {
    enum admit_status status;
    const bool ok = world_request(w, &r, &status);
    assert_string_equal(w->check.error, "");
    assert_true(ok);
    assert_int_equal(status, ADMIT_YES);
    return w->id;
}

static void world_steps(struct admit_world *w, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const bool ok = world_step(w);
        assert_string_equal(w->check.error, "");
        assert_true(ok);
    }
}

static void counted_once(void **state) {
    (void) state;
    struct admit_world w;
    assert_true(world_init(&w, &params));
    const int first = request_yes(&w, (struct admit_request){.n_prompt = 16, .n_new = 4});
    world_steps(&w, 1);
    // 3 of the 4 pages are shared. The second sequence needs 1 page more, and keeps the 3 pages when the first one has ended.
    const struct admit_request r = {.n_prompt = 13, .n_new = 8, .n_cached = 12, .n_shared = 12, .sharer = first};
    const int second = request_yes(&w, r);
    assert_int_equal(admit_computed(w.a, second), 12);
    const int64_t totals[] = {6, 6, 6, 4, 5, 5, 5, 5, 0};
    for (int64_t t = 0; t < 9; t++) {
        assert_int_equal(admit_total(w.a, t), totals[t]);
    }
    world_steps(&w, 9);
    assert_int_equal(admit_n_running(w.a), 0);
    world_fini(&w);
}

// The sharer ends first, then the other one; and the other way round.
static void either_ends_early(void **state) {
    (void) state;
    for (int order = 0; order < 2; order++) {
        struct admit_world w;
        assert_true(world_init(&w, &params));
        const int first = request_yes(&w, (struct admit_request){.n_prompt = 16, .n_new = 20});
        world_steps(&w, 1);
        const struct admit_request r = {.n_prompt = 20, .n_new = 8, .n_cached = 16, .n_shared = 16, .sharer = first};
        const int second = request_yes(&w, r);
        assert_int_equal(admit_total(w.a, 0), 6);
        world_end(&w, order == 0 ? first : second);
        assert_int_equal(admit_total(w.a, 0), 5);
        world_steps(&w, 2);
        world_end(&w, order == 0 ? second : first);
        assert_int_equal(admit_peak(w.a), 0);
        world_fini(&w);
    }
}

// A tree of three levels, whose nodes are split and merged: in every order of ends, the totals stay right.
static void a_tree(void **state) {
    (void) state;
    for (uint64_t order = 0; order < 120; order++) {
        struct admit_world w;
        assert_true(world_init(&w, &params));
        request_yes(&w, (struct admit_request){.n_prompt = 24, .n_new = 9}); // ids 0, 1, 2, ... in this order
        world_steps(&w, 1);
        request_yes(&w, (struct admit_request){.n_prompt = 22, .n_new = 30, .n_cached = 20, .n_shared = 16, .sharer = 0});
        request_yes(&w, (struct admit_request){.n_prompt = 10, .n_new = 5, .n_cached = 8, .n_shared = 8, .sharer = 1});
        world_steps(&w, 1);
        request_yes(&w, (struct admit_request){.n_prompt = 21, .n_new = 12, .n_cached = 20, .n_shared = 20, .sharer = 1});
        request_yes(&w, (struct admit_request){.n_prompt = 17, .n_new = 2, .n_cached = 16, .n_shared = 16, .sharer = 3});
        int left[5] = {0, 1, 2, 3, 4};
        uint64_t rest = order;
        for (int n = 5; n > 0; n--) {
            const uint64_t k = rest % (uint64_t) n;
            rest /= (uint64_t) n;
            world_end(&w, left[k]);
            left[k] = left[n - 1];
            world_steps(&w, 1);
        }
        assert_int_equal(admit_peak(w.a), 0);
        world_fini(&w);
    }
}

// Many sequences share pages of one long sequence, and end. The nodes do not run out.
static void nodes_are_used_again(void **state) {
    (void) state;
    struct admit_world w;
    assert_true(world_init(&w, &params));
    request_yes(&w, (struct admit_request){.n_prompt = 40, .n_new = 20});
    world_steps(&w, 1);
    for (int64_t i = 0; i < 200; i++) {
        const int64_t n = 4 * (1 + i % 9);
        const struct admit_request r = {.n_prompt = n + 1, .n_new = 2, .n_cached = n, .n_shared = n, .sharer = 0};
        enum admit_status status;
        assert_true(world_request(&w, &r, &status));
        assert_int_equal(status, ADMIT_YES);
        if (i % 7 == 6) {
            assert_int_equal(admit_n_running(w.a), params.n_running);
            assert_true(admit_check_step(&w.check, w.a));
            for (int id = 1; id < params.n_running; id++) {
                world_end(&w, id);
            }
        }
    }
    world_steps(&w, 20);
    assert_int_equal(admit_peak(w.a), 0);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_once),
        cmocka_unit_test(either_ends_early),
        cmocka_unit_test(a_tree),
        cmocka_unit_test(nodes_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

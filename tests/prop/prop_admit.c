// SPDX-License-Identifier: MIT
// prop_admit.c: random requests, ends and steps. Every answer equals that of a brute-force computation. A request is admitted
// if the maxima of all sequences fit. The pages always suffice, and the promised totals equal the sums over all pages
// (admit_check.h). A request that waits is admitted after the promised number of steps. BERTH_SEED=n repeats a run.

#include "support/check.h"

#include "support/admit_world.h"

static struct check_rng rng;

static int64_t roll(int64_t low, int64_t high) {
    return low + (int64_t) check_rng_below(&rng, (uint64_t) (high - low + 1));
}

static struct admit_params params_roll(int64_t most) {
    struct admit_params p = {.n_page = roll(1, 8), .n_running = (int) roll(1, most / 8), .n_ctx = roll(1, most)};
    p.n_pages = roll(1, 4 * most / p.n_page + 1);
    p.n_batch = p.n_running + roll(0, 3) * roll(0, most / 4);
    p.n_chunk = roll(0, 2) == 0 ? roll(1, 8) : 0;
    return p;
}

// A request that may share pages of a running sequence. One in 50 breaks a rule.
static struct admit_request request_roll(const struct admit_world *w) {
    const struct admit_params *p = &w->check.params;
    struct admit_request r = {.n_prompt = roll(1, p->n_ctx), .sharer = (int) roll(0, p->n_running - 1)};
    r.n_new = roll(0, p->n_ctx - r.n_prompt);
    if (roll(0, 1) == 0) { // short requests, so that several run at once
        r.n_prompt = 1 + r.n_prompt / 8;
        r.n_new /= 8;
    }
    const int64_t n_most = (r.n_prompt - 1) / p->n_page, n_computed = admit_computed(w->a, r.sharer) / p->n_page;
    const int64_t n_shared = roll(0, 2) == 0 ? 0 : roll(0, n_computed < n_most ? n_computed : n_most);
    r.n_shared = n_shared * p->n_page;
    r.n_cached = roll(0, 2) == 0 ? roll(n_shared, n_most) * p->n_page : r.n_shared;
    int64_t *const fields[] = {&r.n_prompt, &r.n_new, &r.n_cached, &r.n_shared};
    if (roll(0, 49) == 0) {
        *fields[roll(0, 3)] += roll(-3, 3) * roll(1, p->n_ctx);
    }
    return r;
}

static void world_play(struct admit_world *w, int n_turns) {
    for (int i = 0; i < n_turns && w->check.error[0] == '\0'; i++) {
        const int64_t kind = roll(0, 9);
        enum admit_status status;
        if (kind < 4) {
            const struct admit_request r = request_roll(w);
            (void) world_request(w, &r, &status);
        } else if (kind == 4) {
            world_end(w, (int) roll(-1, w->check.params.n_running));
        } else {
            (void) world_step(w);
        }
    }
    assert_string_equal(w->check.error, "");
}

static void answers_equal_brute_force(void **state) {
    (void) state;
    int64_t n_answers[4] = {0}, n_shared = 0, n_unreserved = 0, n_not_recomputed = 0;
    for (int i = 0; i < check_cases(2000); i++) {
        const struct admit_params params = params_roll(i % 10 == 0 ? 400 : 80);
        struct admit_world w;
        assert_true(world_init(&w, &params));
        world_play(&w, 400);
        for (int k = 0; k < 4; k++) {
            n_answers[k] += w.n_answers[k];
        }
        n_shared += w.n_shared;
        n_unreserved += w.n_unreserved;
        n_not_recomputed += w.n_not_recomputed;
        world_fini(&w);
    }
    print_message(
        "%lld admitted, of them %lld with shared pages and %lld beyond reservation; %lld wait, %lld never fit, %lld invalid, "
        "%lld not recomputed\n",
        (long long) n_answers[ADMIT_YES], (long long) n_shared, (long long) n_unreserved, (long long) n_answers[ADMIT_WAIT],
        (long long) n_answers[ADMIT_NEVER], (long long) n_answers[ADMIT_INVALID], (long long) n_not_recomputed);
    assert_true(n_shared > 0 && n_unreserved > 0 && n_answers[ADMIT_WAIT] > 0);
    assert_true(n_answers[ADMIT_NEVER] > 0 && n_answers[ADMIT_INVALID] > 0);
    assert_true(n_not_recomputed * 100 < n_answers[ADMIT_YES] + n_answers[ADMIT_WAIT]);
}

static void waiting_ends(void **state) {
    (void) state;
    int n_waited = 0;
    for (int i = 0; i < check_cases(2000); i++) {
        const struct admit_params params = params_roll(80);
        struct admit_world w;
        struct admit_reason why;
        int id;
        assert_true(world_init(&w, &params));
        world_play(&w, (int) roll(1, 100));
        const struct admit_request r = {.n_prompt = roll(1, params.n_ctx), .n_new = 1};
        if (admit_request(w.a, &r, &id, &why) == ADMIT_WAIT) {
            n_waited++;
            for (int64_t t = 0; t < why.n_wait; t++) {
                assert_true(world_step(&w));
            }
            assert_int_equal(admit_request(w.a, &r, &id, NULL), ADMIT_YES);
        }
        world_fini(&w);
    }
    assert_true(n_waited > check_cases(10));
}

// After all sequences have ended, nothing is promised, and the largest request is admitted.
static void nothing_is_left(void **state) {
    (void) state;
    for (int i = 0; i < check_cases(500); i++) {
        const struct admit_params params = params_roll(80);
        struct admit_world w;
        int id;
        assert_true(world_init(&w, &params));
        world_play(&w, (int) roll(1, 300));
        if (roll(0, 1) == 0) {
            for (int k = 0; k < params.n_running; k++) {
                world_end(&w, k);
            }
        }
        while (admit_n_running(w.a) > 0) {
            assert_true(world_step(&w));
        }
        assert_int_equal(admit_peak(w.a), 0);
        const int64_t n_pool = params.n_pages * params.n_page, n = params.n_ctx < n_pool ? params.n_ctx : n_pool;
        const struct admit_request r = {.n_prompt = 1, .n_new = n - 1};
        assert_int_equal(admit_request(w.a, &r, &id, NULL), ADMIT_YES);
        world_fini(&w);
    }
}

int main(void) {
    rng = check_rng_new(check_seed(20261118));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_equal_brute_force),
        cmocka_unit_test(waiting_ends),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

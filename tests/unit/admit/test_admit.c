// SPDX-License-Identifier: MIT
// test_admit.c: the contract of src/admit: parameters, the totals of small examples, chunks of prompts, the reasons for waiting
// and for refusal, ids, and that nothing is allocated after admit_new. test_admit_shared.c tests shared pages.

#include "support/check.h"

#include "base/base.h"
#include "support/admit_world.h"

static const struct admit_params small = {.n_page = 4, .n_pages = 10, .n_ctx = 40, .n_batch = 11, .n_running = 3};

static int request_yes(struct admit_world *w, int64_t n_prompt, int64_t n_new) {
    const struct admit_request r = {.n_prompt = n_prompt, .n_new = n_new};
    enum admit_status status;
    const bool ok = world_request(w, &r, &status);
    assert_string_equal(w->check.error, "");
    assert_true(ok);
    assert_int_equal(status, ADMIT_YES);
    return w->id;
}

static void assert_tokens(const struct admit *a, int id, const int64_t *tokens, int64_t n) {
    for (int64_t t = 0; t < n; t++) {
        assert_int_equal(admit_tokens_at(a, id, t), tokens[t]);
    }
    assert_int_equal(admit_steps_left(a, id), n);
}

static void assert_totals(const struct admit *a, const int64_t *totals, int64_t n) {
    for (int64_t t = 0; t < n; t++) {
        assert_int_equal(admit_total(a, t), totals[t]);
    }
    assert_int_equal(admit_total(a, n), 0);
}

static void world_steps(struct admit_world *w, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const bool ok = world_step(w);
        assert_string_equal(w->check.error, "");
        assert_true(ok);
    }
}

static void params_are_checked(void **state) {
    (void) state;
    check_quiet();
    const int64_t too_many = ((int64_t) 1 << 30) + 1;
    struct admit_params bad[14];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bad[i] = small;
    }
    bad[0].n_page = 0;
    bad[1].n_page = too_many;
    bad[2].n_pages = 0;
    bad[3].n_pages = too_many;
    bad[4].n_ctx = -1;
    bad[5].n_ctx = too_many;
    bad[6].n_batch = 2; // below n_running
    bad[7].n_batch = too_many;
    bad[8].n_running = 0;
    bad[9].n_running = -1;
    bad[10].n_running = (1 << 20) + 1;
    bad[10].n_batch = 1 << 29;
    bad[11].n_chunk = -1;
    bad[12].n_ctx = INT64_MAX;
    bad[13].n_pages = INT64_MIN;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(admit_size(&bad[i]), 0);
        assert_null(admit_new(&bad[i]));
        assert_non_null(strstr(berth_last_error(), "admit: "));
    }
    assert_true(admit_size(&small) > 0);
    berth_alloc_fail_at(1);
    assert_null(admit_new(&small));
    berth_alloc_fail_at(0);
    assert_non_null(strstr(berth_last_error(), "bytes for 3 sequences and 40 steps"));
    admit_free(NULL);
}

static void a_staircase(void **state) {
    (void) state;
    struct admit_world w;
    assert_true(world_init(&w, &small));
    // 8 tokens per step are shared by prompts, and the sequence has one of its own.
    const int id = request_yes(&w, 10, 8);
    assert_tokens(w.a, id, (int64_t[]){9, 1, 1, 1, 1, 1, 1, 1, 1}, 9);
    assert_totals(w.a, (int64_t[]){3, 3, 3, 3, 4, 4, 4, 4, 5}, 9);
    assert_int_equal(admit_peak(w.a), 5);
    world_steps(&w, 1);
    assert_int_equal(admit_computed(w.a, id), 9);
    assert_totals(w.a, (int64_t[]){3, 3, 3, 4, 4, 4, 4, 5}, 8);
    world_steps(&w, 8);
    assert_false(admit_is_running(w.a, id));
    assert_int_equal(admit_tokens(w.a, id), 0);
    assert_int_equal(admit_peak(w.a), 0);
    // Without new tokens, and with one, the sequence ends with its prompt.
    for (int64_t n_new = 0; n_new < 2; n_new++) {
        const int only = request_yes(&w, 12, n_new);
        assert_tokens(w.a, only, (int64_t[]){9, 3}, 2);
        assert_totals(w.a, (int64_t[]){3, 3}, 2);
        world_steps(&w, 2);
        assert_int_equal(admit_n_running(w.a), 0);
    }
    world_fini(&w);
}

static void prompts_share_the_steps(void **state) {
    (void) state;
    struct admit_world w;
    struct admit_params params = small;
    params.n_pages = 30;
    assert_true(world_init(&w, &params));
    const int first = request_yes(&w, 20, 5);
    assert_tokens(w.a, first, (int64_t[]){9, 9, 2, 1, 1, 1, 1}, 7);
    const int second = request_yes(&w, 12, 2); // one token of its own per step, until the first prompt leaves more
    assert_tokens(w.a, second, (int64_t[]){1, 1, 8, 2, 1}, 5);
    world_steps(&w, 1);
    world_end(&w, first);
    assert_tokens(w.a, second, (int64_t[]){1, 8, 2, 1}, 4); // as at its admission
    const int third = request_yes(&w, 10, 1);
    assert_tokens(w.a, third, (int64_t[]){9, 1}, 2); // the tokens that the first one has left
    world_steps(&w, 5);
    assert_int_equal(admit_n_running(w.a), 0);
    world_fini(&w);

    params.n_chunk = 4;
    assert_true(world_init(&w, &params));
    const int limited = request_yes(&w, 10, 3);
    assert_tokens(w.a, limited, (int64_t[]){4, 4, 2, 1, 1}, 5);
    world_fini(&w);

    params.n_batch = params.n_running; // nothing is left for chunks
    assert_true(world_init(&w, &params));
    assert_tokens(w.a, request_yes(&w, 3, 2), (int64_t[]){1, 1, 1, 1}, 4);
    world_fini(&w);
}

// A prompt whose chunks differ in too many steps is computed with one token per step in the end.
static void many_runs(void **state) {
    (void) state;
    struct admit_world w;
    const struct admit_params params = {.n_page = 4, .n_pages = 10000, .n_ctx = 400, .n_batch = 101, .n_running = 100};
    assert_true(world_init(&w, &params));
    int ids[80];
    for (int i = 0; i < 80; i++) {
        ids[i] = request_yes(&w, i + 2, 1); // takes the token that prompts share, in step i
    }
    for (int i = 1; i < 80; i += 2) {
        world_end(&w, ids[i]);
    }
    const struct admit_request r = {.n_prompt = 200, .n_new = 10};
    int id;
    assert_int_equal(admit_request(w.a, &r, &id, NULL), ADMIT_YES);
    assert_true(admit_check_admitted(&w.check, w.a, &r, id));
    for (int64_t t = 0; t < 31; t++) {
        assert_int_equal(admit_tokens_at(w.a, id, t), 1 + t % 2);
    }
    for (int64_t t = 31; t < 200 - 46 + 31 + 9; t++) {
        assert_int_equal(admit_tokens_at(w.a, id, t), 1);
    }
    assert_int_equal(admit_steps_left(w.a, id), 200 - 46 + 31 + 9);
    world_steps(&w, 200);
    assert_int_equal(admit_n_running(w.a), 0);
    world_fini(&w);
}

static void the_peak_counts(void **state) {
    (void) state;
    struct admit_world w;
    struct admit_reason why;
    char text[200];
    int id;
    assert_true(world_init(&w, &small));
    // The first one ends before the second one is long: 6 + 7 pages at most are in a pool of 10.
    request_yes(&w, 20, 4);
    request_yes(&w, 1, 27);
    const struct admit_request r = {.n_prompt = 8, .n_new = 4};
    assert_int_equal(admit_request(w.a, &r, &id, &why), ADMIT_WAIT);
    assert_int_equal(id, -1);
    assert_int_equal(why.why, ADMIT_WHY_PAGES);
    assert_int_equal(why.i_step, 4);
    assert_int_equal(why.n_need, 11);
    assert_int_equal(why.n_have, 10);
    assert_int_equal(why.n_wait, 6);
    assert_string_equal(admit_explain(&why, text, sizeof text),
        "with the running requests, 11 cache pages are needed 4 steps from now, and the cache has 10; the request can start in 6 "
        "steps or "
        "earlier");
    assert_int_equal(admit_n_running(w.a), 2); // nothing has changed
    world_steps(&w, 6);
    request_yes(&w, 8, 4);
    world_steps(&w, 30);
    world_fini(&w);
}

static void too_many_run(void **state) {
    (void) state;
    struct admit_world w;
    struct admit_reason why;
    char text[200];
    int id;
    assert_true(world_init(&w, &small));
    const int first = request_yes(&w, 1, 9);
    request_yes(&w, 1, 7);
    request_yes(&w, 1, 8);
    const struct admit_request r = {.n_prompt = 1, .n_new = 1};
    assert_int_equal(admit_request(w.a, &r, &id, &why), ADMIT_WAIT);
    assert_int_equal(why.why, ADMIT_WHY_RUNNING);
    assert_int_equal(why.n_need, 4);
    assert_int_equal(why.n_have, 3);
    assert_int_equal(why.n_wait, 7);
    assert_string_equal(admit_explain(&why, text, sizeof text),
        "3 requests run, which is the limit; the request can start in 7 steps or earlier");
    world_end(&w, first);
    assert_int_equal(request_yes(&w, 1, 1), first); // the id is used again
    world_fini(&w);
}

static void refused_at_once(void **state) {
    (void) state;
    static const struct {
        struct admit_request r;
        enum admit_status status;
        enum admit_why why;
        const char *text;
    } cases[] = {
        {{.n_prompt = 0, .n_new = 1}, ADMIT_INVALID, ADMIT_WHY_TOKENS, "0 tokens are requested, at least 1 is required"},
        {{.n_prompt = 1, .n_new = -2}, ADMIT_INVALID, ADMIT_WHY_TOKENS, "-2 tokens are requested, at least 0 is required"},
        {{.n_prompt = 20, .n_new = 21}, ADMIT_NEVER, ADMIT_WHY_CONTEXT,
            "prompt and new tokens are 41 tokens, and the context has 40"},
        {{.n_prompt = INT64_MAX, .n_new = INT64_MAX}, ADMIT_NEVER, ADMIT_WHY_CONTEXT,
            "prompt and new tokens are 9223372036854775807 tokens, and the context has 40"},
        {{.n_prompt = 8, .n_new = 1, .n_cached = 8}, ADMIT_INVALID, ADMIT_WHY_CACHED,
            "8 cached or shared tokens are not a number of whole pages between 0 and 7 tokens"},
        {{.n_prompt = 8, .n_new = 1, .n_cached = 3}, ADMIT_INVALID, ADMIT_WHY_CACHED,
            "3 cached or shared tokens are not a number of whole pages between 0 and 7 tokens"},
        {{.n_prompt = 9, .n_new = 1, .n_cached = 4, .n_shared = 8}, ADMIT_INVALID, ADMIT_WHY_CACHED,
            "8 cached or shared tokens are not a number of whole pages between 0 and 4 tokens"},
        {{.n_prompt = 9, .n_new = 1, .n_cached = 4, .n_shared = 4, .sharer = 0}, ADMIT_INVALID, ADMIT_WHY_SHARER,
            "4 tokens are to be shared with a sequence that has computed 0"},
        {{.n_prompt = 9, .n_new = 1, .n_cached = 4, .n_shared = 4, .sharer = 7}, ADMIT_INVALID, ADMIT_WHY_SHARER,
            "4 tokens are to be shared with a sequence that has computed 0"},
    };
    struct admit_world w;
    assert_true(world_init(&w, &small));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct admit_reason why;
        char text[200];
        int id;
        assert_int_equal(admit_request(w.a, &cases[i].r, &id, &why), cases[i].status);
        assert_int_equal(id, -1);
        assert_int_equal(why.why, cases[i].why);
        assert_string_equal(admit_explain(&why, text, sizeof text), cases[i].text);
    }
    world_fini(&w);

    struct admit_params params = small;
    params.n_pages = 8;
    assert_true(world_init(&w, &params));
    const struct admit_request r = {.n_prompt = 20, .n_new = 14};
    struct admit_reason why;
    char text[200];
    int id;
    assert_int_equal(admit_request(w.a, &r, &id, &why), ADMIT_NEVER);
    assert_string_equal(admit_explain(&why, text, sizeof text), "the request alone needs 9 cache pages, and the cache has 8");
    request_yes(&w, 20, 13); // the last new token is not computed, so 32 tokens are in the cache
    why = (struct admit_reason){0};
    assert_string_equal(admit_explain(&why, text, sizeof text), "the request is admitted");
    world_fini(&w);
}

static void ids_that_do_not_run(void **state) {
    (void) state;
    struct admit_world w;
    assert_true(world_init(&w, &small));
    request_yes(&w, 4, 4);
    for (int id = -2; id < 5; id++) {
        if (admit_is_running(w.a, id)) {
            continue;
        }
        admit_end(w.a, id);
        assert_int_equal(admit_tokens(w.a, id), 0);
        assert_int_equal(admit_computed(w.a, id), 0);
        assert_int_equal(admit_steps_left(w.a, id), 0);
    }
    assert_int_equal(admit_n_running(w.a), 1);
    assert_int_equal(admit_total(w.a, -1), 0);
    assert_int_equal(admit_total(w.a, INT64_MAX), 0);
    assert_int_equal(admit_tokens_at(w.a, 0, -1), 0);
    assert_int_equal(admit_tokens_at(w.a, 0, INT64_MAX), 0);
    world_steps(&w, 3);
    world_fini(&w);
}

static void nothing_is_allocated_later(void **state) {
    (void) state;
    struct admit *a = admit_new(&small);
    assert_non_null(a);
    berth_alloc_watch(true);
    for (int i = 0; i < 200; i++) {
        const struct admit_request r = {.n_prompt = 1 + i % 7, .n_new = i % 11};
        struct admit_reason why;
        int id;
        admit_request(a, &r, &id, &why);
        if (i % 5 == 0) {
            admit_end(a, id);
        }
        admit_advance(a);
    }
    assert_int_equal(berth_alloc_made(), 0);
    berth_alloc_watch(false);
    admit_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(params_are_checked),
        cmocka_unit_test(a_staircase),
        cmocka_unit_test(prompts_share_the_steps),
        cmocka_unit_test(many_runs),
        cmocka_unit_test(the_peak_counts),
        cmocka_unit_test(too_many_run),
        cmocka_unit_test(refused_at_once),
        cmocka_unit_test(ids_that_do_not_run),
        cmocka_unit_test(nothing_is_allocated_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

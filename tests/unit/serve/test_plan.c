// SPDX-License-Identifier: MIT
// test_plan.c: the plan of a server within a memory limit (serve/plan.c), and the users and the speed of a plan (plan_speed.c), also
// if allocations fail.

#include "support/engine_sample.h"

#include "serve/plan.h"

#include <string.h>

static struct http_params http;
static struct service_params service;

static struct serve_plan plan_of(int n_running, size_t memory) {
    http = (struct http_params){.n_connections = 16};
    service = (struct service_params){.vocab = bench.vocab};
    const struct serve_question q = {.model = bench.model,
        .devices = &bench.devices,
        .vocab = bench.vocab,
        .n_running = n_running,
        .n_waiting = 8,
        .memory = memory,
        .http = &http,
        .service = &service};
    struct model_error error = {""};
    struct serve_plan plan;
    if (!serve_plan_find(&q, &plan, &error)) {
        fail_msg("%s", error.text);
    }
    assert_true(memory == 0 || serve_plan_size(&plan) <= memory);
    return plan;
}

static void test_users(void **state) {
    (void) state;
    char text[160] = "";
    struct serve_plan plan = plan_of(5, 0);
    assert_int_equal(serve_plan_users(&plan, text, sizeof text), 5);
    assert_non_null(strstr(text, "5 requests run, which is the limit"));
    const size_t size = serve_plan_size(&plan);
    const struct serve_plan smaller = plan_of(5, size - plan.sizes.cache / 2);
    assert_true(smaller.engine.n_pool < plan.engine.n_pool);
    const int n = serve_plan_users(&smaller, text, sizeof text);
    assert_int_equal(n, smaller.engine.n_pool / smaller.engine.n_ctx);
    assert_non_null(strstr(text, "cache pages are needed"));
    berth_alloc_fail_at(1);
    assert_int_equal(serve_plan_users(&plan, text, sizeof text), 0);
    berth_alloc_fail_at(0);
}

// A model of up to SPEED_TRIAL_SIZE bytes is measured. For a larger one, the speed is predicted.
static void test_speed(void **state) {
    (void) state;
    const struct model_options o = {.path = "models/tales-q8_0.gguf", .device = "CPU", .n_threads = 1};
    struct model_error error = {""};
    struct serve_plan plan = plan_of(4, 0);
    for (int is_large = 0; is_large < 2; is_large++) {
        plan.sizes.weights += is_large * SPEED_TRIAL_SIZE;
        assert_true(serve_plan_speed(&plan, &o, 4, &error) > 1);
        assert_string_equal(error.text, "");
        for (int64_t n = 1; n < 2000; n += 1 + n / 4) { // fails or not, and leaks nothing
            berth_alloc_fail_at(n);
            const double per_second = serve_plan_speed(&plan, &o, 4, &error);
            berth_alloc_fail_at(0);
            assert_true(per_second >= 0);
            error.text[0] = '\0';
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_users), cmocka_unit_test(test_speed)};
    return cmocka_run_group_tests(tests, bench_open, bench_close);
}

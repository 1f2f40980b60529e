// SPDX-License-Identifier: MIT
// test_cuda_pool.c: counts the driver calls of steps in which several sequences generate tokens, on a simulated driver (standin.h).

#include "standin_load.h"
#include "support/check.h"

#include "ggml-cuda.h"
#include "model/pool.h"

enum { N_SEQ = 4, N_CTX = 64, N_ROWS = N_SEQ * N_CTX, N_PAGE = 16, N_STEPS = 400 };

static struct standin *st; // state of the simulated driver

static struct {
    struct model_devices devices;
    struct model *model;
    struct pool *pool;
    int64_t n_past[N_SEQ];
} bench;

static int bench_open(void **state) {
    (void) state;
    struct model_error error = {""};
    bench.model = model_open("tests/data/tales-3m-q8_0.gguf", &error);
    const bool ok = bench.model != NULL && model_devices_open(&bench.devices, "CUDA0", 1, &error) &&
                    model_place(bench.model, &bench.devices, false, NULL, NULL, &error);
    assert_string_equal(error.text, "");
    return ok ? 0 : 1;
}

static int bench_close(void **state) {
    (void) state;
    model_free(bench.model);
    model_devices_close(&bench.devices);
    return 0;
}

static void pool_open(bool is_deterministic) {
    const struct pool_params params = {.n_ctx = N_CTX,
        .n_rows = N_ROWS,
        .n_page = N_PAGE,
        .n_batch = 16,
        .n_seq = N_SEQ,
        .cache_k = GGML_TYPE_F16,
        .cache_v = GGML_TYPE_F16,
        .is_deterministic = is_deterministic};
    struct model_error error = {""};
    bench.pool = pool_new(bench.model, &bench.devices, &params, &error);
    assert_string_equal(error.text, "");
    assert_non_null(bench.pool);
    memset(bench.n_past, 0, sizeof bench.n_past);
}

// Each sequence generates one token. A sequence that is complete begins again with other tokens. The sequences have different
// lengths, so that the free pages are at any places.
static void step_run(int step) {
    struct model_error error = {""};
    static int32_t tokens[N_SEQ][N_CTX];
    pool_batch(bench.pool, false);
    for (int seq = 0; seq < N_SEQ; seq++) {
        int64_t *n = &bench.n_past[seq];
        if (*n == N_CTX - 13 * seq) {
            pool_end(bench.pool, seq);
            *n = 0;
        }
        tokens[seq][*n] = (step * N_SEQ + seq) % 300;
        const struct pool_run run = {.tokens = &tokens[seq][*n], .n = 1, .pos = *n, .seq = seq, .has_logits = true};
        assert_int_equal(pool_add(bench.pool, &run, &error), seq);
        ++*n;
    }
    assert_true(pool_decode(bench.pool, &error));
    for (int seq = 0; seq < N_SEQ; seq++) {
        assert_non_null(pool_result(bench.pool, seq));
        pool_learn(bench.pool, seq, tokens[seq], bench.n_past[seq]);
    }
    assert_true(pages_check(bench.pool->pages));
}

// Returns the counts of calls of N_STEPS steps.
static struct standin steps_count(void) {
    for (int i = 0; i < 100; i++) { // the graph is captured, and the pages are in use
        step_run(i);
    }
    const struct standin before = *st;
    for (int i = 0; i < N_STEPS; i++) {
        step_run(100 + i);
    }
    const struct standin n = {.n_calls = st->n_calls - before.n_calls,
        .n_launches = st->n_launches - before.n_launches,
        .n_graph_launches = st->n_graph_launches - before.n_graph_launches,
        .n_instantiated = st->n_instantiated - before.n_instantiated,
        .n_allocs = st->n_allocs - before.n_allocs,
        .n_copies = st->n_copies - before.n_copies,
        .n_waits = st->n_waits - before.n_waits,
        .n_device_copies = st->n_device_copies - before.n_device_copies};
    print_message("per step: %.2f calls, %.2f launches, %.2f graphs, %.2f copies, %.2f waits; %ld copies of pages\n",
        (double) n.n_calls / N_STEPS, (double) n.n_launches / N_STEPS, (double) n.n_graph_launches / N_STEPS,
        (double) n.n_copies / N_STEPS, (double) n.n_waits / N_STEPS, n.n_device_copies);
    return n;
}

static void test_steps(void **state) {
    (void) state;
    pool_open(false);
    const struct standin n = steps_count();
    assert_int_equal(n.n_device_copies, 0);
    assert_int_equal(n.n_allocs, 0);
    assert_int_equal(n.n_instantiated, 0);
    assert_int_equal(n.n_launches, 0);
    assert_int_equal(n.n_graph_launches, N_STEPS);
    assert_true(n.n_copies <= N_STEPS * 6); // five inputs and the results of all sequences
    assert_true(n.n_waits <= N_STEPS * 7);
    assert_true(n.n_calls <= N_STEPS * 24);
    pool_free(bench.pool);
}

// The copies are counted: with the order of a deterministic pool, pages move.
static void test_deterministic(void **state) {
    (void) state;
    pool_open(true);
    assert_true(steps_count().n_device_copies > 0);
    pool_free(bench.pool);
}

int main(void) {
    check_quiet();
    struct standin_functions f;
    if (!standin_load(&f)) {
        return 1;
    }
    st = f.state();
    ggml_backend_register(ggml_backend_cuda_reg());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_deterministic)};
    return cmocka_run_group_tests_name("cuda_pool", tests, bench_open, bench_close);
}

// SPDX-License-Identifier: MIT
// test_model_recompute.c: tests sessions whose graphs keep a memory limit by recomputing ops: the results are the same bits as
// without the limit, token by token and in batches of any size; no byte more than reserved is used; a limit is refused on two
// devices and if it is too low; each allocation fails once.

#include "support/device_graph.h"
#include "support/model_sample.h"

#define PATH "/tmp/berth-again-XXXXXX"
#define N_TOKENS 300
#define N_BATCH 64

// Queries and keys are much wider than the other values, so that recomputing norms and products saves memory.
static struct sample_model wide_model(void) {
    struct sample_model m = sample_model_default();
    m.n_layer = 2;
    m.head_size = m.head_size_v = 64;
    m.has_qk_norm = true;
    return m;
}

static struct model *model_of(const struct sample_model *m, const struct model_devices *d, bool plan_only) {
    char path[] = PATH;
    struct model_error error = {""};
    sample_model_write(m, path);
    struct model *model = model_open(path, &error);
    unlink(path);
    if (model == NULL || !model_place(model, d, plan_only, NULL, NULL, &error)) {
        fail_msg("%s", error.text);
    }
    return model;
}

static struct session *session_of(const struct model *model, const struct model_devices *d, bool plan_only, size_t compute) {
    const struct session_params params = {.n_ctx = 512,
        .n_batch = N_BATCH,
        .cache_k = GGML_TYPE_F16,
        .cache_v = GGML_TYPE_F16,
        .plan_only = plan_only,
        .compute_limit = compute};
    struct model_error error = {""};
    struct session *s = session_new(model, d, &params, &error);
    if (s == NULL || !session_reserve(s, &error)) {
        fail_msg("%s", error.text);
    }
    return s;
}

static size_t compute_of(const struct session *s) {
    size_t bytes = 0;
    for (int d = 0; d < s->devices->n; d++) {
        bytes += s->memory[d].compute;
    }
    return bytes;
}

// Searches for the lowest limit that can be kept, by bisection. The returned limit can be kept. It is at most whole / 256 bytes
// above the lowest limit. whole: the size without recomputing.
static size_t lowest_limit(const struct model *model, const struct model_devices *d, size_t whole) {
    size_t low = 1, high = whole;
    while (high - low > whole / 256) {
        const size_t mid = low + (high - low) / 2;
        struct session *s = session_of(model, d, true, mid);
        *(s->recompute_plan.fits ? &high : &low) = mid;
        session_free(s);
    }
    return high;
}

// Processes a prompt in batches of many sizes, then single tokens, and stores the logits of each batch.
static void decode_all(struct session *s, float *logits) {
    static const int steps[] = {N_BATCH, N_BATCH, 1, 7, 40, N_BATCH, 50, 1, 1, 1, 2, 3};
    const size_t n_vocab = (size_t) s->model->params.n_vocab;
    struct model_error error = {""};
    int32_t tokens[N_TOKENS];
    struct check_rng r = check_rng_new(5);
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (int32_t) check_rng_below(&r, n_vocab);
    }
    for (size_t i = 0, at = 0; i < sizeof steps / sizeof *steps; at += (size_t) steps[i++]) {
        size_t before[2] = {0};
        for (int d = 0; d < s->devices->n; d++) {
            before[d] = ggml_backend_sched_get_buffer_size(s->sched, s->devices->backend[d]);
        }
        if (!session_decode(s, tokens + at, steps[i], &error)) {
            fail_msg("%s", error.text);
        }
        memcpy(logits + i * n_vocab, s->logits, n_vocab * sizeof *logits);
        for (int d = 0; d < s->devices->n; d++) { // no buffer has grown
            assert_int_equal(ggml_backend_sched_get_buffer_size(s->sched, s->devices->backend[d]), before[d]);
            assert_true(before[d] <= s->memory[d].compute);
        }
    }
}

// Batches of every size, at position 0 and near the end of the context, allocate no additional memory.
static void sizes_check(struct session *s) {
    const size_t before = ggml_backend_sched_get_buffer_size(s->sched, s->devices->backend[0]);
    struct model_error error = {""};
    int32_t tokens[N_BATCH] = {0};
    for (int n = 1; n <= N_BATCH; n += n < 56 ? 1 + n / 8 : 1) {
        for (int far = 0; far < 2; far++) {
            session_reset(s);
            s->n_past = far ? 512 - N_BATCH : 0;
            assert_true(session_decode(s, tokens, n, &error));
            assert_true((s->recompute_ctx != NULL) == (n > 1)); // every batch of several tokens uses the schedule
            assert_int_equal(ggml_backend_sched_get_buffer_size(s->sched, s->devices->backend[0]), before);
        }
    }
}

// Tests limits from the lowest to the size without recomputing.
static void limits_check(const struct sample_model *m, const struct model_devices *d, bool must_recompute) {
    static float want[12 * 64], got[12 * 64];
    struct model *model = model_of(m, d, false);
    struct session *once = session_of(model, d, false, 0);
    const size_t whole = compute_of(once), lowest = lowest_limit(model, d, whole);
    int64_t n_recomputed = 0;
    decode_all(once, want);
    session_free(once);
    for (int i = 0; i < 5; i++) {
        const size_t limit = lowest + (whole - lowest) * (size_t) i / 4;
        struct session *plan = session_of(model, d, true, limit), *s = session_of(model, d, false, limit);
        assert_true(s->recompute_plan.fits && s->recompute_plan.cost_ratio >= 1 && s->recompute_plan.min_size <= limit);
        assert_int_equal(compute_of(plan), compute_of(s));
        assert_true(compute_of(s) <= limit);
        assert_int_equal(plan->memory[d->n - 1].work, s->memory[d->n - 1].work);
        n_recomputed = s->recompute_plan.n_recomputed > n_recomputed ? s->recompute_plan.n_recomputed : n_recomputed;
        memset(got, 0, sizeof got);
        decode_all(s, got);
        assert_memory_equal(want, got, sizeof got);
        if (i == 0 || CHECK_PART == 1) {
            sizes_check(s);
        }
        session_free(plan);
        session_free(s);
    }
    printf("%s: %zu bytes, within %zu with %d recomputed ops\n", m->arch, whole, lowest, (int) n_recomputed);
    assert_true(!must_recompute || (n_recomputed > 0 && lowest < whole));
    model_free(model);
}

static void test_limits(void **state) {
    (void) state;
    struct sample_model m = wide_model();
    struct model_error error = {""};
    struct model_devices d;
    assert_true(model_devices_open(&d, "CPU", 2, &error));
    limits_check(&m, &d, true);
    m.arch = "qwen3";
    limits_check(&m, &d, true);
    m = sample_model_default(); // recomputing saves little here
    m.n_expert = 3;
    limits_check(&m, &d, false);
    model_devices_close(&d);
}

// On two devices, a session with plan_only reports that the limit is not kept, and a real session fails.
static void test_devices(void **state) {
    (void) state;
    const struct sample_model m = wide_model();
    struct model_error error = {""};
    struct model_devices cpu;
    struct device dev;
    assert_true(model_devices_open(&cpu, "CPU", 2, &error));
    device_init(&dev, "far");
    const struct model_devices d = {.n = 2,
        .dev = (ggml_backend_dev_t[]){&dev.dev, cpu.dev[0]},
        .backend = (ggml_backend_t[]){device_start(&dev), cpu.backend[0]}};
    struct model *model = model_of(&m, &d, false);
    struct session *once = session_of(model, &d, true, 0), *plan = session_of(model, &d, true, compute_of(once) - 1);
    assert_true(!plan->recompute_plan.fits);
    assert_int_equal(compute_of(plan), compute_of(once));
    const struct session_params params = {
        .n_ctx = 64, .n_batch = 8, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .compute_limit = 100000};
    struct session *s = session_new(model, &d, &params, &error);
    assert_true(s != NULL && !session_reserve(s, &error));
    assert_non_null(strstr(error.text, "a limit of 100000 bytes for the compute buffer requires one device, but 2 are used"));
    session_free(s);
    session_free(plan);
    session_free(once);
    model_free(model);
    device_stop(&dev);
    model_devices_close(&cpu);
}

// For a limit below the minimum of every schedule, a session with plan_only reports that the limit is not kept. A real session
// fails with the numbers in the error.
static void test_too_low(void **state) {
    (void) state;
    const struct sample_model m = wide_model();
    struct model_error error = {""};
    struct model_devices d;
    assert_true(model_devices_open(&d, "CPU", 1, &error));
    struct model *model = model_of(&m, &d, false);
    struct session *once = session_of(model, &d, true, 0), *plan = session_of(model, &d, true, 1000);
    assert_true(
        !plan->recompute_plan.fits && plan->recompute_plan.min_size > 1000 && plan->recompute_plan.min_size <= compute_of(once));
    assert_int_equal(compute_of(plan), compute_of(once));
    const struct session_params params = {
        .n_ctx = 64, .n_batch = 8, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .compute_limit = 1000};
    struct session *s = session_new(model, &d, &params, &error);
    assert_true(s != NULL && !session_reserve(s, &error));
    assert_non_null(strstr(error.text, "no schedule fits into 1000 bytes: every schedule needs at least "));
    session_free(s);
    session_free(plan);
    session_free(once);
    model_free(model);
    model_devices_close(&d);
}

// Returns the lowest limit of the wide model on one thread.
static size_t wide_limit(const struct sample_model *m) {
    struct model_error error = {""};
    struct model_devices d;
    assert_true(model_devices_open(&d, "CPU", 1, &error));
    struct model *model = model_of(m, &d, true);
    struct session *once = session_of(model, &d, true, 0);
    const size_t limit = lowest_limit(model, &d, compute_of(once));
    session_free(once);
    model_free(model);
    model_devices_close(&d);
    return limit;
}

// Opens a file, creates a session within the limit and processes some tokens.
static bool all_run(const char *path, const struct session_params *params, float *logits, struct model_error *error) {
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct model_devices d = {0};
    struct model *model = NULL;
    struct session *s = NULL;
    const bool ok = model_devices_open(&d, "CPU", 1, error) && (model = model_open(path, error)) != NULL &&
                    model_place(model, &d, false, NULL, NULL, error) && (s = session_new(model, &d, params, error)) != NULL &&
                    session_reserve(s, error) && session_decode(s, tokens, 9, error);
    if (ok) {
        assert_true(s->recompute_plan.fits && s->memory[0].compute <= params->compute_limit);
        memcpy(logits, s->logits, sizeof(float) * (size_t) model->params.n_vocab);
    }
    session_free(s);
    model_free(model);
    model_devices_close(&d);
    return ok;
}

// A sample of the allocations fails, one per run. The result is an error or the same numbers.
static void test_no_memory(void **state) {
    (void) state;
    char path[] = PATH;
    const struct sample_model m = wide_model();
    const struct session_params params = {
        .n_ctx = 512, .n_batch = N_BATCH, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .compute_limit = wide_limit(&m)};
    float want[64] = {0};
    int n_failed = 0;
    sample_model_write(&m, path);
    // 0: no failure, allocations are counted. The solver makes thousands of allocations, which prop_budget tests.
    for (int64_t at = 0, n_made = 0; at <= n_made; at += at == 0 ? 1 : 1 + n_made * check_step() / 120) {
        struct model_error error = {""};
        float got[64] = {0};
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        const bool ok = all_run(path, &params, got, &error);
        n_made = at > 0 ? n_made : berth_alloc_made();
        berth_alloc_fail_at(0);
        assert_true(at > 0 || ok);
        if (at == 0) {
            memcpy(want, got, sizeof want);
        }
        assert_true(ok ? memcmp(want, got, sizeof got) == 0 : error.text[0] != '\0');
        n_failed += !ok;
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
    }
    unlink(path);
    printf("%d failed allocations caused an error\n", n_failed);
    assert_true(n_failed > 60 / check_step());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_too_low), cmocka_unit_test(test_no_memory)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

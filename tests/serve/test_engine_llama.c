// SPDX-License-Identifier: MIT
// test_engine_llama.c: tests the engine with models that libllama runs on Berth: architectures that Berth does not know, one with a
// window, and some with a state. The texts are compared with a session of their own, as `berth run` uses it. Requests are alone, together
// with others, cancelled, and share their first tokens. The memory is as planned, and later steps need no more.

#include "support/engine_sample.h"
#include "support/oracle.h"

#include "model/workbench.h"

static char path[] = "/tmp/berth-engine-XXXXXX";

// Writes a model. The words are an architecture and changes to it, as for make_model.
static void model_make(const char *words) {
    char command[1024];
    const int n = (int) strcspn(words, " ");
    snprintf(command, sizeof command, "%s %.*s tiny f32 %s 1%s", getenv("BERTH_MAKE_MODEL"), n, words, path, words + n);
    assert_int_equal(system(command), 0);
}

// Opens the model as `berth serve` does, so libllama runs architectures with a state. by_llama: libllama runs it in any case.
static void arch_open(const char *words, bool by_llama) {
    struct model_error error = {""};
    const struct model_options options = {.by_llama = by_llama, .may_llama = true, .is_pool = true};
    model_make(words);
    bench_open_model(workbench_model(path, &options, &error), &error);
    assert_ptr_equal(bench.model->engine, &engine_llama);
}

static void arch_close(struct engine *e) {
    engine_free(e);
    bench_close(NULL);
}

// ---- texts ----

static void texts_run(const char *words, int n_running, bool can_share) {
    enum { MAX = CHECK_PART > 1 ? 8 : 16 };
    static struct answer answers[MAX];
    const size_t n = n_running == 1 ? 3 : MAX;
    struct engine *e = engine_open(n_running, n_running == 1 ? 256 : 512, false);
    struct engine_stats stats;
    for (size_t i = 0; i < n; i++) {
        answers[i] = answer_of(i, 20 + (int64_t) (i * 37 % 60), i % 3 == 0 ? 0 : 0.9f);
        answers[i].r.n_logprobs = i % 4 == 0 ? 2 : -1;
        answer_submit(e, &answers[i]);
    }
    for (size_t i = 0; i < n; i++) {
        answer_finish(&answers[i]);
        assert_true(answers[i].last.end == ENGINE_LENGTH || answers[i].last.end == ENGINE_STOP);
    }
    stats = stats_when_idle(e);
    assert_true(stats.n_done == (int64_t) n && stats.n_used == 0);
    assert_true(stats.n_cached_tokens == 0 || can_share);
    engine_free(e);
    for (size_t i = 0; i < n; i++) {
        assert_true(answer_is_same(&answers[i], false));
        answer_fini(&answers[i]);
    }
    print_message("%s: %zu texts, %d at once, are the same as alone\n", words, n, n_running);
}

static void test_texts(void **state) {
    (void) state;
    static const struct {
        const char *words;
        bool can_share;
    } rows[] = {{"gptneox", true}, {"gemma2 W=8", true}, {"mamba2", false}, {"rwkv7", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arch_open(rows[i].words, strncmp(rows[i].words, "gemma2", 6) == 0);
        texts_run(rows[i].words, 1, rows[i].can_share);
        texts_run(rows[i].words, 9, rows[i].can_share);
        bench_close(NULL);
    }
}

// Requests with the same prompt that arrive together: the first one computes it.
static void test_prefix(void **state) {
    (void) state;
    enum { N = 4, N_PROMPT = 70 };
    int32_t tokens[N_PROMPT];
    struct answer answers[N];
    for (int i = 0; i < N_PROMPT; i++) {
        tokens[i] = 10 + i * 7 % 400;
    }
    for (int k = 0; k < 3; k++) {
        static const char *const rows[] = {"phi2", "gemma2 W=8", "rwkv7"};
        arch_open(rows[k], k == 1);
        struct engine *e = engine_open(N, 512, false);
        for (size_t i = 0; i < N; i++) {
            answers[i] = answer_of(i, 20, i % 2 == 0 ? 0 : 0.9f);
            answers[i].r.tokens = tokens;
            answers[i].r.n_tokens = N_PROMPT;
            answer_submit(e, &answers[i]);
        }
        for (size_t i = 0; i < N; i++) {
            answer_finish(&answers[i]);
            assert_int_equal(answers[i].last.n_cached, i == 0 || k == 2 ? 0 : N_PROMPT / 16 * 16);
        }
        engine_free(e);
        for (size_t i = 0; i < N; i++) {
            assert_true(answer_is_same(&answers[i], false));
            answer_fini(&answers[i]);
        }
        bench_close(NULL);
    }
}

// Cancelled requests free their cells: afterwards, requests that need the whole cache run.
static void test_cancel(void **state) {
    (void) state;
    enum { N = 2 };
    for (int k = 0; k < 2; k++) {
        arch_open(k == 0 ? "gptneox" : "mamba2", false);
        struct engine *e = engine_open(N, N * N_CTX, false);
        for (int round = 0; round < 3; round++) {
            struct answer answers[N];
            for (size_t i = 0; i < N; i++) {
                answers[i] = answer_of(i, 1, 0);
                answers[i].r.n_max = N_CTX - answers[i].r.n_tokens;
                answer_submit(e, &answers[i]);
            }
            while (round < 2 && answers[0].n_text == 0 && !answer_read(&answers[0], 100000)) {
            }
            for (size_t i = 0; i < N; i++) {
                if (round == 0 || (round == 1 && i == 0)) {
                    engine_cancel(answers[i].ticket);
                }
                answer_finish(&answers[i]);
                assert_int_not_equal(answers[i].last.end, ENGINE_ERROR);
                if (answers[i].last.end != ENGINE_CANCELLED) {
                    assert_true(answer_is_same(&answers[i], false));
                }
                answer_fini(&answers[i]);
            }
        }
        const struct engine_stats stats = stats_when_idle(e);
        assert_true(stats.n_used == 0 && stats.n_failed == 0 && stats.n_cancelled <= 3);
        arch_close(e);
    }
}

static void test_embedding(void **state) {
    (void) state;
    struct model_error error = {""};
    int32_t tokens[70]; // more than one batch of embeddings
    for (int i = 0; i < 70; i++) {
        tokens[i] = 10 + i * 7 % 400;
    }
    arch_open("phi2", false);
    struct engine *e = engine_open(3, 512, false);
    struct answer a = answer_of(0, 0, 0), b = answer_of(1, 30, 0);
    a.r.tokens = tokens;
    a.r.n_tokens = 70;
    a.r.is_embedding = true;
    answer_submit(e, &b);
    answer_submit(e, &a);
    while (!answer_read(&a, 1000000)) {
    }
    assert_non_null(a.last.embedding);
    const struct session_params params = {
        .n_ctx = N_CTX, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .is_embedding = true};
    struct session *s = session_new(bench.model, &bench.devices, &params, &error);
    assert_true(s != NULL && session_reserve(s, &error) && session_decode(s, tokens, 70, &error));
    for (int64_t i = 0; i < bench.model->params.n_embd; i++) {
        assert_float_equal(a.last.embedding[i], s->sums[i] / 70, 1e-4);
    }
    session_free(s);
    engine_release(a.ticket);
    answer_finish(&b);
    assert_true(answer_is_same(&b, false));
    answer_fini(&a);
    answer_fini(&b);
    arch_close(e);
}

// ---- memory ----

static size_t compute_size(const struct engine *e) {
    ggml_backend_sched_t sched = e->pool->session->sched;
    size_t size = 0;
    for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); i++) {
        size += ggml_backend_sched_get_buffer_size(sched, ggml_backend_sched_get_backend(sched, i));
    }
    return size;
}

// engine_plan predicts the memory, also if the weights are loaded. Requests run without further memory: the compute buffers stay as they
// are, and the number of Berth's allocations does not grow. libllama allocates a header per graph and frees that of the graph before.
static void test_memory(void **state) {
    (void) state;
    static const char *const rows[] = {"gptneox", "mamba2", "rwkv7"};
    enum { N = 12 };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct model_error error = {""};
        struct engine_stats plan, stats;
        struct answer answers[N];
        arch_open(rows[k], false);
        const struct engine_params params = params_of(5, 512, false);
        assert_true(engine_plan(&params, &plan, &error));
        struct engine *e = engine_open(5, 512, false);
        engine_stats(e, &stats);
        assert_true(plan.n_pool == 512 && plan.weights == stats.weights && plan.cache == stats.cache && plan.own == stats.own);
        assert_true(plan.compute == stats.compute && plan.work == stats.work && plan.compute == compute_size(e));
        for (size_t i = 0; i < N; i++) {
            answers[i] = answer_of(i, 20 + (int64_t) (i * 31 % 60), i % 2 == 0 ? 0 : 0.9f);
            answers[i].r.is_embedding = i % 4 == 3;
        }
        berth_alloc_watch(true);
        for (size_t i = 0; i < N; i++) {
            answer_submit(e, &answers[i]);
        }
        for (size_t i = 0; i < N; i++) {
            answer_finish(&answers[i]);
            assert_int_not_equal(answers[i].last.end, ENGINE_ERROR);
        }
        assert_true(berth_alloc_alive() <= 1); // the header of the last graph
        berth_alloc_watch(false);
        assert_int_equal(plan.compute, compute_size(e));
        for (size_t i = 0; i < N; i++) {
            answer_fini(&answers[i]);
        }
        arch_close(e);
    }
}

// ---- refusals ----

static void test_refused(void **state) {
    (void) state;
    struct model_error error = {""};
    arch_open("phi2", false);
    struct engine_params params = params_of(2, 512, true);
    assert_null(engine_new(&params, &error));
    assert_non_null(strstr(error.text, "--deterministic requires Berth's own graphs"));
    bench_close(NULL);
    static const char *const rows[] = {"bert", "t5"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arch_open(rows[i], false);
        params = params_of(2, 512, false);
        error.text[0] = '\0';
        assert_null(engine_new(&params, &error));
        assert_non_null(strstr(error.text, "cannot be served"));
        bench_close(NULL);
    }
}

int main(void) {
    const char *folder = oracle_dir();
    check_quiet();
    if (folder == NULL || getenv("BERTH_MAKE_MODEL") == NULL) {
        printf("skipped: %s\n", folder == NULL ? oracle_why() : "set BERTH_MAKE_MODEL to the program make_model");
        return 77;
    }
    setenv("BERTH_LLAMA", folder, 1);
    setenv("BERTH_CPU_BATCH_INVARIANT", "1", 1); // so that only the order of cells can change a sum
    const int fd = mkstemp(path);
    if (fd < 0) {
        printf("cannot create %s\n", path);
        return 1;
    }
    close(fd);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_prefix), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_memory), cmocka_unit_test(test_refused)};
    const int failed = cmocka_run_group_tests_name("engine_llama", tests, NULL, NULL);
    unlink(path);
    return failed;
}

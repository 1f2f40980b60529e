// SPDX-License-Identifier: MIT
// test_pool.c: tests several sequences in one cache. With batch invariance, every sequence has the logits of a session of its own, bit
// for bit, while others join and leave, share its prefix or make its pages move. No step allocates.

#include "support/model_sample.h"

#include "base/min.h"
#include "model/pool.h"

#include "berth-cpu.h"

#include <stdlib.h>

#define N_SEQ 5
#define N_CTX 96

struct bench {
    char path[32];
    struct model_devices devices;
    struct model *model;
};

static void window_set(struct gguf_context *g, void *arg) {
    (void) arg;
    gguf_set_val_u32(g, "mistral.attention.sliding_window", 11);
}

// path NULL: a small model of this architecture.
static struct bench bench_open(const char *path, const char *arch) {
    struct bench b;
    struct model_error error = {""};
    strcpy(b.path, "");
    if (path == NULL) {
        struct sample_model m = sample_model_default();
        m.arch = arch;
        m.last = strcmp(arch, "mistral") == 0 ? window_set : NULL;
        strcpy(b.path, "/tmp/pool-XXXXXX");
        sample_model_write(&m, b.path);
        path = b.path;
    }
    assert_true(model_devices_open(&b.devices, "CPU", 2, &error));
    b.model = model_open(path, &error);
    assert_non_null(b.model);
    assert_true(model_place(b.model, &b.devices, false, NULL, NULL, &error));
    berth_cpu_set_batch_invariant(b.devices.backend[0], true);
    return b;
}

static void bench_close(struct bench *b) {
    model_free(b->model);
    model_devices_close(&b->devices);
    if (b->path[0] != '\0') {
        unlink(b->path);
    }
}

struct text {
    int32_t tokens[N_CTX];
    int64_t n_all, n; // tokens; computed tokens. n_all 0: the sequence does not run
};

struct run {
    struct bench b;
    struct pool *pool;
    struct session *session; // computes a sequence alone
    int64_t n_compared, n_cached;
};

// Compares the result of the last computed token with a session of its own.
static void text_compare(struct run *r, const struct text *t, int64_t result) {
    struct model_error error = {""};
    const size_t n_vocab = (size_t) r->b.model->params.n_vocab;
    session_reset(r->session);
    assert_true(session_decode(r->session, t->tokens, t->n, &error));
    assert_memory_equal(pool_result(r->pool, result), r->session->logits, n_vocab * sizeof *r->session->logits);
    r->n_compared++;
}

static void text_start(struct run *r, struct check_rng *rng, struct text *t, int seq) {
    const uint64_t n_vocab = (uint64_t) r->b.model->params.n_vocab, kind = check_rng_below(rng, 2);
    t->n_all = 1 + (int64_t) check_rng_below(rng, N_CTX);
    for (int64_t i = 0; i < N_CTX; i++) { // two kinds of beginnings, so that prefixes are shared
        t->tokens[i] = (int32_t) (i < 20 ? (kind * 7 + (uint64_t) i) % n_vocab : check_rng_below(rng, n_vocab));
    }
    const struct pages_prefix found = pages_find(r->pool->pages, t->tokens, t->n_all);
    pages_start(r->pool->pages, seq, t->tokens, found.n_cached);
    t->n = found.n_cached;
    r->n_cached += found.n_cached;
}

// One step: every running sequence computes some tokens. A sequence without a free page ends.
static void step(struct run *r, struct check_rng *rng, struct text *texts) {
    struct model_error error = {""};
    int64_t n[N_SEQ] = {0}, results[N_SEQ];
    berth_alloc_watch(true);
    pool_batch(r->pool, false);
    for (int seq = 0; seq < N_SEQ; seq++) {
        struct text *t = &texts[seq];
        if (t->n_all == 0 && check_rng_below(rng, 3) == 0) {
            text_start(r, rng, t, seq);
        } else if (t->n_all > 0 && (t->n == t->n_all || check_rng_below(rng, 30) == 0)) {
            pages_end(r->pool->pages, seq);
            t->n_all = 0;
        }
        if (t->n_all == 0) {
            continue;
        }
        n[seq] = min_i64(t->n_all - t->n, check_rng_below(rng, 3) == 0 ? 1 + (int64_t) check_rng_below(rng, 12) : 1);
        const struct pool_run part = {
            .tokens = t->tokens + t->n, .n = n[seq], .pos = t->n, .seq = seq, .has_logits = check_rng_below(rng, 4) > 0};
        results[seq] = pool_add(r->pool, &part, &error);
        if (results[seq] < 0) {
            assert_non_null(strstr(error.text, "no page is free"));
            error.text[0] = '\0';
            pages_end(r->pool->pages, seq);
            t->n_all = 0;
            n[seq] = 0;
            continue;
        }
        results[seq] = part.has_logits ? results[seq] : -1;
    }
    if (r->pool->n_tokens > 0) {
        assert_true(pool_decode(r->pool, &error));
    }
    for (int seq = 0; seq < N_SEQ; seq++) {
        texts[seq].n += n[seq];
        if (n[seq] > 0) {
            pages_learn(r->pool->pages, seq, texts[seq].tokens, texts[seq].n);
        }
    }
    assert_int_equal(berth_alloc_made(), 0);
    berth_alloc_watch(false);
    for (int seq = 0; seq < N_SEQ; seq++) {
        if (n[seq] > 0 && results[seq] >= 0) {
            text_compare(r, &texts[seq], results[seq]);
        }
    }
}

static void steps_run(const char *path, const char *arch, int n_steps) {
    struct run r = {.b = bench_open(path, arch)};
    struct check_rng rng = check_rng_new(check_seed(3));
    struct model_error error = {""};
    struct text texts[N_SEQ] = {0};
    const struct pool_params params = {.n_ctx = N_CTX,
        .n_rows = 256 + 16,
        .n_page = 8,
        .n_batch = 64,
        .n_seq = N_SEQ,
        .cache_k = GGML_TYPE_F16,
        .cache_v = GGML_TYPE_F16};
    const struct session_params one = {.n_ctx = N_CTX, .n_batch = 32, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    r.session = session_new(r.b.model, &r.b.devices, &one, &error);
    assert_true(r.session != NULL && session_reserve(r.session, &error));
    r.pool = pool_new(r.b.model, &r.b.devices, &params, &error);
    assert_non_null(r.pool);
    for (int i = 0; i < n_steps; i++) {
        step(&r, &rng, texts);
        assert_true(pages_check(r.pool->pages));
    }
    assert_true(r.n_compared > 0);
    assert_true(n_steps < 40 || r.n_cached > 0);
    pool_free(r.pool);
    session_free(r.session);
    bench_close(&r.b);
}

static void test_together(void **state) {
    (void) state;
    steps_run(NULL, "llama", check_cases(300));
    steps_run(NULL, "mistral", check_cases(300));
    steps_run("tests/data/tales-3m-q8_0.gguf", NULL, check_cases(40));
}

// Architectures whose graphs differ: windows, sinks and experts, fused projections, latent attention, position embeddings, and a state,
// which is refused.
static void test_architectures(void **state) {
    (void) state;
    static const char *const archs[] = {"gemma3", "gpt-oss", "phi3", "deepseek2", "gpt2", "command-r", "mamba2"};
    if (getenv("BERTH_MAKE_MODEL") == NULL) {
        printf("skipped: set BERTH_MAKE_MODEL to the program make_model\n");
        skip();
    }
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        char path[] = "/tmp/pool-XXXXXX", command[512];
        const int fd = mkstemp(path);
        assert_true(fd >= 0 && close(fd) == 0);
        snprintf(command, sizeof command, "%s %s deep f32 %s 1 N=2", getenv("BERTH_MAKE_MODEL"), archs[i], path);
        assert_int_equal(system(command), 0);
        if (strcmp(archs[i], "mamba2") != 0) {
            steps_run(path, NULL, check_cases(60));
        } else {
            struct bench b = bench_open(path, NULL);
            struct model_error error = {""};
            const struct pool_params params = {.n_ctx = 32, .n_rows = 64, .n_page = 16, .n_batch = 16, .n_seq = 2};
            assert_null(pool_new(b.model, &b.devices, &params, &error));
            assert_non_null(strstr(error.text, "several sequences are not supported for mamba2"));
            bench_close(&b);
        }
        unlink(path);
    }
}

static void test_embedding(void **state) {
    (void) state;
    struct bench b = bench_open(NULL, "llama");
    struct model_error error = {""};
    const struct pool_params params = {.n_ctx = N_CTX,
        .n_rows = 192,
        .n_page = 16,
        .n_batch = 16,
        .n_seq = 2,
        .cache_k = GGML_TYPE_F32,
        .cache_v = GGML_TYPE_F32};
    const struct session_params one = {
        .n_ctx = N_CTX, .n_batch = 8, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32, .is_embedding = true};
    struct session *s = session_new(b.model, &b.devices, &one, &error);
    struct pool *p = pool_new(b.model, &b.devices, &params, &error);
    const int32_t tokens[] = {5, 1, 4, 2, 7, 3};
    float sums[32] = {0};
    assert_true(s != NULL && p != NULL && session_decode(s, tokens, 6, &error));
    pool_batch(p, true);
    const struct pool_run other = {.tokens = tokens, .n = 3, .seq = 1}, all = {.tokens = tokens, .n = 6, .seq = 0};
    assert_int_equal(pool_add(p, &other, &error), 0);
    assert_int_equal(pool_add(p, &all, &error), 3);
    assert_true(pool_decode(p, &error));
    for (int64_t i = 0; i < 6; i++) {
        const float *row = pool_result(p, 3 + i);
        for (int k = 0; k < 32; k++) {
            sums[k] += row[k];
        }
    }
    assert_memory_equal(sums, s->sums, sizeof sums);
    pool_free(p);
    session_free(s);
    bench_close(&b);
}

static void test_refused(void **state) {
    (void) state;
    struct bench b = bench_open(NULL, "llama");
    struct model_error error = {""};
    const struct pool_params good = {
        .n_ctx = 32, .n_rows = 64, .n_page = 16, .n_batch = 16, .n_seq = 2, .cache_k = GGML_TYPE_F16};
    const struct {
        int64_t n_ctx, n_rows, n_page, n_batch;
        const char *text;
    } rows[] = {{65, 64, 16, 16, "a context of 65 positions does not fit into a cache of 64"},
        {32, 60, 16, 16, "a cache of 60 positions cannot be divided into pages of 16"},
        {32, 64, 16, 1, "a batch of 1 tokens is too small for 2 sequences"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pool_params p = good;
        p.n_ctx = rows[i].n_ctx;
        p.n_rows = rows[i].n_rows;
        p.n_page = rows[i].n_page;
        p.n_batch = rows[i].n_batch;
        error.text[0] = '\0';
        assert_null(pool_new(b.model, &b.devices, &p, &error));
        assert_string_equal(error.text, rows[i].text);
    }
    error.text[0] = '\0';
    struct pool_params p = good;
    p.cache_v = GGML_TYPE_F16;
    p.n_ctx = 16;
    struct pool *pool = pool_new(b.model, &b.devices, &p, &error);
    assert_non_null(pool);
    const int32_t tokens[20] = {0, 99};
    const struct pool_run wrong[] = {
        {.tokens = tokens, .n = 17}, {.tokens = tokens, .n = 2}, {.tokens = tokens, .n = 1, .pos = 16}};
    const char *const texts[] = {"17 tokens do not fit into the batch: 0 of 16 are in use",
        "token 99 is outside the vocabulary of 40 tokens", "1 tokens do not fit into the context: 16 of 16 positions are in use"};
    pool_batch(pool, false);
    for (int i = 0; i < 3; i++) {
        error.text[0] = '\0';
        assert_int_equal(pool_add(pool, &wrong[i], &error), -1);
        assert_string_equal(error.text, texts[i]);
    }
    pool_free(pool);
    bench_close(&b);
}

static void test_memory(void **state) {
    (void) state;
    struct bench b = bench_open(NULL, "llama");
    const struct pool_params params = {
        .n_ctx = 32, .n_rows = 64, .n_page = 16, .n_batch = 16, .n_seq = 2, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    struct pool *p = NULL;
    for (int64_t n = 1; p == NULL; n++) {
        struct model_error error = {""};
        assert_true(n < 100000);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        p = pool_new(b.model, &b.devices, &params, &error);
        berth_alloc_fail_at(0);
        assert_true(p != NULL || error.text[0] != '\0');
    }
    pool_free(p);
    berth_alloc_watch(false);
    bench_close(&b);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_together), cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_refused), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}

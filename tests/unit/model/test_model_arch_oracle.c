// SPDX-License-Identifier: MIT
// test_model_arch_oracle.c: compares Berth with the reference's libllama, for each architecture. Both run the same generated
// model: first a prompt in batches, then further tokens one by one. The test compares the logits of the last token. Each row of a
// test is a list of arguments of make_model: an architecture, then changes to it.

#include "support/llama_oracle.h"

#include "model/model.h"
#include "support/child.h"

#include <math.h>
#include <unistd.h>

#define N_VOCAB 512
#define MAX_ERROR 1e-6

// A text of n_tokens tokens: the first n_prompt in batches, the others one by one.
struct text {
    int n_prompt, n_tokens, n_ctx, n_batch;
};
static const struct text usual = {70, 74, 256, 128};
// This text is longer than the cache of a layer with a window. The size of that cache is rounded up to 256 rows.
static const struct text long_text = {700, 710, 1024, 64};

// ---- results of the reference and of Berth ----

static void reference_run(const char *path, const struct text *x, int32_t *tokens, float *logits) {
    void *model = reference.llama_model_load_from_file(path, reference.llama_model_default_params());
    struct reference_context_params params = reference.llama_context_default_params();
    params.n_ctx = (uint32_t) x->n_ctx;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn = 0; // the reference rounds to f16 in flash attention
    params.n_batch = params.n_ubatch = (uint32_t) x->n_batch;
    void *ctx = model != NULL ? reference.llama_init_from_model(model, params) : NULL;
    bool ok = ctx != NULL;
    for (int i = 0, n; ok && i < x->n_tokens; i += n) {
        const int left = x->n_prompt - i;
        n = left <= 0 ? 1 : left < x->n_batch ? left : x->n_batch;
        ok = reference.llama_decode(ctx, reference.llama_batch_get_one(tokens + i, n)) == 0;
    }
    if (!ok) {
        print_error("the reference: %s\n", reference_text);
        fail();
    }
    memcpy(logits, reference.llama_get_logits_ith(ctx, -1), N_VOCAB * sizeof *logits);
    reference.llama_free(ctx);
    reference.llama_model_free(model);
}

static void berth_run(const char *path, const struct text *x, const int32_t *tokens, bool no_flash, float *logits) {
    struct model_error error = {""};
    struct model_devices d;
    const struct session_params params = {
        .n_ctx = x->n_ctx, .n_batch = x->n_batch, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32, .no_flash = no_flash};
    assert_true(model_devices_open(&d, "CPU", 1, &error));
    struct model *model = model_open(path, &error);
    const bool ok = model != NULL && model_place(model, &d, false, NULL, NULL, &error);
    struct session *s = ok ? session_new(model, &d, &params, &error) : NULL;
    bool is_done = s != NULL && session_reserve(s, &error) && session_decode(s, tokens, x->n_prompt, &error);
    for (int i = x->n_prompt; is_done && i < x->n_tokens; i++) {
        is_done = session_decode(s, tokens + i, 1, &error);
    }
    if (!is_done) {
        print_error("%s\n", error.text);
        fail();
    }
    memcpy(logits, s->logits, N_VOCAB * sizeof *logits);
    session_reset(s); // the first run must have no effect on the second
    assert_true(session_decode(s, tokens, x->n_prompt, &error) &&
                session_decode(s, tokens + x->n_prompt, x->n_tokens - x->n_prompt, &error));
    double difference = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        difference += fabs((double) logits[i] - (double) s->logits[i]);
    }
    assert_true(difference / N_VOCAB < 1e-3);
    session_free(s);
    model_free(model);
    model_devices_close(&d);
}

// ---- comparison ----

static void model_make(const char *words, const char *path) {
    char command[1024], arch[32];
    const int n = (int) strcspn(words, " ");
    snprintf(arch, sizeof arch, "%.*s", n, words);
    snprintf(command, sizeof command, "%s %s deep f32 %s 1%s", getenv("BERTH_MAKE_MODEL"), arch, path, words + n);
    assert_int_equal(system(command), 0);
}

static double error_of(const float *a, const float *b) {
    double error = 0, size = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        error += ((double) a[i] - (double) b[i]) * ((double) a[i] - (double) b[i]);
        size += (double) a[i] * (double) a[i];
    }
    assert_true(size > 1e-3);
    return error / size;
}

// Compares the logits for random tokens. The tokens exclude the special ones at the start of the vocabulary.
static void compare(const char *words, const struct text *x) {
    char path[] = "/tmp/berth-arch-XXXXXX";
    int32_t tokens[1024];
    float reference_logits[N_VOCAB], flash[N_VOCAB], plain[N_VOCAB];
    struct check_rng r = check_rng_new(6); // with seed 5 two experts have equal scores, so rounding decides
    assert_in_range(x->n_tokens, 1, sizeof tokens / sizeof *tokens);
    for (int i = 0; i < x->n_tokens; i++) {
        tokens[i] = 10 + (int32_t) check_rng_below(&r, N_VOCAB - 10);
    }
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    model_make(words, path);
    reference_run(path, x, tokens, reference_logits);
    berth_run(path, x, tokens, false, flash);
    berth_run(path, x, tokens, true, plain);
    unlink(path);
    const double a = error_of(reference_logits, flash), b = error_of(reference_logits, plain);
    printf("%-60s normalised error %.2g, without flash attention %.2g\n", words, a, b);
    assert_true(a < MAX_ERROR && b < MAX_ERROR);
}

static void rows_compare(const char *const *rows, const struct text *x) {
    if (getenv("BERTH_MAKE_MODEL") == NULL) {
        printf("skipped: set BERTH_MAKE_MODEL to the program make_model\n");
        skip();
    }
    need_reference();
    for (; *rows != NULL; rows++) {
        compare(*rows, x);
    }
}

static void test_dense(void **state) {
    (void) state;
    static const char *const rows[] = {"llama", "qwen3", "gemma2", "gemma2 W=8", "gemma2 N=46", "gemma3", "gemma3 N=62 W=8",
        "gemma3 final_logit_softcapping=20.0", "gemma3 rope.freq_base=1000000.0 rope.scaling.type=linear rope.scaling.factor=8.0",
        "gemma3 attention.sliding_window_pattern=2", "gemma2 attention.sliding_window_pattern=3", "phi3",
        "phi3 attention.sliding_window=16", "smollm3", "command-r",
        "command-r N=64 +attn_q_norm.weight:n:H,A +attn_k_norm.weight:n:H,B", "granite", "glm4", "gpt2", NULL};
    rows_compare(rows, &usual);
}

static void test_experts(void **state) {
    (void) state;
    static const char *const rows[] = {"qwen3moe", "olmoe", "deepseek2", "deepseek2 expert_gating_func=1",
        "deepseek2 N=27 -attn_q_ +attn_q.weight:m:E,O", "deepseek2 expert_group_count=4 expert_group_used_count=2",
        "deepseek2 rope.scaling.type=yarn rope.scaling.factor=40.0 rope.scaling.original_context_length=64 "
        "rope.scaling.yarn_log_multiplier=0.1",
        "glm4moe", "gpt-oss", "gpt-oss W=8", "gpt-oss attention.sliding_window_pattern=3",
        "gpt-oss rope.scaling.type=yarn rope.scaling.factor=32.0 rope.scaling.original_context_length=64", NULL};
    rows_compare(rows, &usual);
}

// An architecture with a recurrent state instead of a KV cache.
static void test_state(void **state) {
    (void) state;
    static const char *const rows[] = {"mamba2", NULL};
    rows_compare(rows, &usual);
}

// A text that is longer than the cache of layers with a window.
static void test_long(void **state) {
    (void) state;
    static const char *const rows[] = {"gemma2", "gemma2 W=8", "gemma3", "gemma3 W=100", "gpt-oss", "gpt-oss W=8", NULL};
    rows_compare(rows, &long_text);
}

// Compares embeddings: the output of the last norm for the last token, and the mean of this output over all tokens.
static void test_embedding(void **state) {
    (void) state;
    enum { N = 20, WIDTH = 128 }; // width of models of make_model's size "deep"
    char path[] = "/tmp/berth-arch-XXXXXX";
    int32_t tokens[N];
    if (getenv("BERTH_MAKE_MODEL") == NULL) {
        skip();
    }
    need_reference();
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    model_make("qwen3", path);
    for (int i = 0; i < N; i++) {
        tokens[i] = 20 + i * 7;
    }
    void *model = reference.llama_model_load_from_file(path, reference.llama_model_default_params());
    struct reference_context_params params = reference.llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 64;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn = 0;
    params.embeddings = true;
    void *ctx = reference.llama_init_from_model(model, params);
    assert_non_null(ctx);
    assert_int_equal(reference.llama_decode(ctx, reference.llama_batch_get_one(tokens, N)), 0);
    struct model_error error = {""};
    struct model_devices d;
    const struct session_params own = {
        .n_ctx = 64, .n_batch = 7, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32, .is_embedding = true};
    assert_true(model_devices_open(&d, "CPU", 1, &error));
    struct model *m = model_open(path, &error);
    assert_true(m != NULL && m->params.n_embd == WIDTH && model_place(m, &d, false, NULL, NULL, &error));
    struct session *s = session_new(m, &d, &own, &error);
    assert_true(s != NULL && session_reserve(s, &error) && session_decode(s, tokens, N, &error));
    double wrong = 0, mean_wrong = 0, size = 0;
    for (int k = 0; k < WIDTH; k++) {
        double mean = 0;
        for (int i = 0; i < N; i++) {
            mean += (double) reference.llama_get_embeddings_ith(ctx, i)[k] / N;
        }
        const double last = (double) reference.llama_get_embeddings_ith(ctx, -1)[k];
        wrong += (last - (double) s->logits[k]) * (last - (double) s->logits[k]);
        mean_wrong += (mean - (double) s->sums[k] / N) * (mean - (double) s->sums[k] / N);
        size += last * last;
    }
    printf("embedding: normalised error %.2g, of the mean %.2g\n", wrong / size, mean_wrong / size);
    assert_true(wrong / size < MAX_ERROR && mean_wrong / size < MAX_ERROR);
    session_free(s);
    model_free(m);
    model_devices_close(&d);
    reference.llama_free(ctx);
    reference.llama_model_free(model);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_experts), cmocka_unit_test(test_state),
        cmocka_unit_test(test_long), cmocka_unit_test(test_embedding)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

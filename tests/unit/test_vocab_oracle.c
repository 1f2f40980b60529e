// SPDX-License-Identifier: MIT
// Tokenizers beside the reference's: the same tokens for the same texts, in both kinds and for every rule that cuts words.

#include "support/oracle.h"

#include "support/vocab_sample.h"

#include <unistd.h>

#define N_TEXTS 3000

// As the reference's library returns and takes it: 72 bytes, of which this test sets one.
struct reference_params {
    char before[64];
    bool vocab_only;
    char after[7];
};

static struct {
    struct reference_params (*llama_model_default_params)(void);
    void *(*llama_model_load_from_file)(const char *path, struct reference_params params);
    void (*llama_model_free)(void *model);
    const void *(*llama_model_get_vocab)(const void *model);
    int32_t (*llama_tokenize)(
        const void *vocab, const char *text, int32_t size, int32_t *tokens, int32_t max, bool add, bool parse);
    void (*llama_log_set)(void (*log)(int level, const char *text, void *user), void *user);
} reference;

static void log_drop(int level, const char *text, void *user) {
    (void) level;
    (void) text;
    (void) user;
}

static bool reference_load(void) {
    void *llama = oracle_load("libllama.b10361.so");
    if (llama == NULL) {
        return false;
    }
#define X(name) *(void **) &reference.name = dlsym(llama, #name)
    X(llama_model_default_params);
    X(llama_model_load_from_file);
    X(llama_model_free);
    X(llama_model_get_vocab);
    X(llama_tokenize);
    X(llama_log_set);
#undef X
    reference.llama_log_set(log_drop, NULL);
    return true;
}

static void need_reference(void) {
    static bool tried, loaded;
    loaded = tried ? loaded : reference_load();
    tried  = true;
    if (!loaded) {
        printf("skipped: %s\n", oracle_why());
        skip();
    }
}

static void say(const char *text, size_t size, const int32_t *a, size_t n, const int32_t *b, size_t m) {
    printf("'%.*s'\n  ours:", (int) size, text);
    for (size_t i = 0; i < n; i++) {
        printf(" %d", a[i]);
    }
    printf("\n  theirs:");
    for (size_t i = 0; i < m; i++) {
        printf(" %d", b[i]);
    }
    printf("\n");
}

static void compare(const char *path, uint64_t seed) {
    struct model_error error       = {""};
    struct berth_gguf_map *map     = berth_gguf_map_open(path, NULL);
    const struct gguf_context *g   = berth_gguf_map_meta(map);
    const int64_t n_tokens         = (int64_t) gguf_get_arr_n(g, gguf_find_key(g, "tokenizer.ggml.tokens"));
    struct vocab *ours             = vocab_new(g, n_tokens, &error);
    struct reference_params params = reference.llama_model_default_params();
    params.vocab_only              = true;
    void *model                    = reference.llama_model_load_from_file(path, params);
    assert_string_equal(error.text, "");
    assert_non_null(ours);
    assert_non_null(model);
    const void *theirs = reference.llama_model_get_vocab(model);
    struct check_rng r = check_rng_new(seed);
    for (int i = 0; i < N_TEXTS; i++) {
        char text[512];
        int32_t tokens[2048];
        struct token_list list = {0};
        const size_t size      = sample_random_text(&r, text, sizeof text, false);
        const bool add = check_rng_below(&r, 2) == 0, parse = check_rng_below(&r, 2) == 0;
        assert_true(vocab_encode(ours, text, size, add, parse, &list, &error));
        const int32_t n = reference.llama_tokenize(theirs, text, (int32_t) size, tokens, 2048, add, parse);
        if (n < 0 || (size_t) n != list.n || memcmp(tokens, list.ids, list.n * sizeof *tokens) != 0) {
            say(text, size, list.ids, list.n, tokens, n < 0 ? 0 : (size_t) n);
            fail();
        }
        token_list_fini(&list);
    }
    reference.llama_model_free(model);
    vocab_free(ours);
    berth_gguf_map_close(map);
}

static void test_spm(void **state) {
    (void) state;
    need_reference();
    compare("models/tales-q8_0.gguf", check_seed(1));
}

static void test_bpe(void **state) {
    static const char *const rules[] = {"gpt-2", "llama-bpe", "qwen2", "default", "phi-2", "mpt", "olmo", "llama3", "llama-v3",
        "falcon3", "pixtral", "smaug-bpe", "stablelm2", "deepseek-r1-qwen", "smollm", "starcoder", "refact", "command-r",
        "tekken"};
    (void) state;
    need_reference();
    struct sample_vocab v;
    sample_vocab_init(&v);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char path[]  = "/tmp/berth-vocab-XXXXXX";
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        struct gguf_context *g = sample_vocab_keys(&v, rules[i]);
        assert_true(gguf_write_to_file(g, path, true));
        printf("%s\n", rules[i]);
        compare(path, check_seed(2 + i));
        gguf_free(g);
        unlink(path);
    }
    sample_vocab_fini(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spm), cmocka_unit_test(test_bpe)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// The room of models with each of its own allocations failing in turn, from the file to the last token: an error or the same
// answer, nothing left behind. test_model.c:test_no_memory does that for the allocations of the libraries.

#include "support/vocab_sample.h"

#include "model/model.h"

#define N_MADE 6

// What a user does: a file, a prompt, some tokens.
struct story {
    int32_t made[N_MADE];
    size_t n_prompt;
};

static bool story_tell(struct story *story, struct model_error *error) {
    const struct session_params params = {.n_ctx = 32, .n_batch = 4, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    static const char prompt[] = "Once upon a time</s>";
    struct model_devices d = {0};
    struct model *model = NULL;
    struct vocab *vocab = NULL;
    struct session *s = NULL;
    struct token_list tokens = {0};
    struct sampler sampler;
    sampler_init(&sampler, 0.8f, 0, 0.95f, 7);
    bool ok = model_devices_open(&d, "CPU", 1, error) && (model = model_open("models/tales-q8_0.gguf", error)) != NULL &&
              model_place(model, &d, false, NULL, NULL, error) &&
              (vocab = vocab_new(berth_gguf_map_meta(model->file), model->params.n_vocab, error)) != NULL &&
              (s = session_new(model, &d, &params, error)) != NULL && session_reserve(s, error) &&
              vocab_encode(vocab, prompt, strlen(prompt), true, true, &tokens, error) &&
              session_decode(s, tokens.ids, (int64_t) tokens.n, error);
    story->n_prompt = tokens.n;
    for (int i = 0; ok && i < N_MADE; i++) {
        story->made[i] = sampler_pick(&sampler, s->logits, model->params.n_vocab);
        ok = story->made[i] >= 0 ? session_decode(s, &story->made[i], 1, error) : model_fail(error, "no token");
    }
    sampler_fini(&sampler);
    token_list_fini(&tokens);
    session_free(s);
    vocab_free(vocab);
    model_free(model);
    model_devices_close(&d);
    return ok;
}

static void test_story(void **state) {
    (void) state;
    struct story want = {0};
    struct model_error error = {""};
    int64_t n_failed = 0;
    model_alloc_fail_at(0);
    assert_true(story_tell(&want, &error));
    const int64_t n_made = model_alloc_n_made();
    assert_int_equal(model_alloc_n_alive(), 0);
    for (int64_t at = 1; at <= n_made; at++) {
        struct story got = {0};
        error.text[0] = '\0';
        model_alloc_fail_at(at);
        const bool ok = story_tell(&got, &error);
        model_alloc_fail_at(0);
        if (ok) {
            assert_memory_equal(&got, &want, sizeof got);
        } else {
            assert_true(error.text[0] != '\0');
            n_failed++;
        }
        assert_int_equal(model_alloc_n_alive(), 0);
    }
    print_message("%lld of %lld allocations, each failed once, were missed\n", (long long) n_failed, (long long) n_made);
    assert_true(n_made > 30 && n_failed == n_made);
}

// The other kind of tokenizer, over a text with words, special tokens and characters that fall apart.
static void test_words(void **state) {
    (void) state;
    static const char text[] = "It's the ship<tool>\xE8\x88\xB9 12345  more shores<|end|>";
    struct sample_vocab v;
    sample_vocab_init(&v);
    struct gguf_context *g = sample_vocab_keys(&v, "qwen2");
    struct token_list want = {0};
    for (int64_t at = 0, n_made = 1; at <= n_made; at++) { // 0: none fails, and they are counted
        struct model_error error = {""};
        struct token_list list = {0};
        model_alloc_fail_at(at);
        struct vocab *vocab = vocab_new(g, (int64_t) v.n_tokens, &error);
        const bool ok = vocab != NULL && vocab_encode(vocab, text, strlen(text), true, true, &list, &error);
        n_made = at == 0 ? model_alloc_n_made() : n_made;
        model_alloc_fail_at(0);
        vocab_free(vocab);
        assert_int_equal(ok, at == 0);
        assert_int_equal(error.text[0] == '\0', ok);
        if (ok) {
            want = list;
            assert_true(n_made > 20 && list.n > 10);
            continue;
        }
        token_list_fini(&list);
        assert_int_equal(model_alloc_n_alive(), 1); // the list that is kept
    }
    token_list_fini(&want);
    assert_int_equal(model_alloc_n_alive(), 0);
    gguf_free(g);
    sample_vocab_fini(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_story), cmocka_unit_test(test_words)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

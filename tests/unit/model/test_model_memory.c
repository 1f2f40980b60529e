// SPDX-License-Identifier: MIT
// test_model_memory.c: tests a tokenizer with each allocation failing in turn: the result is an error without a memory leak.
// test_model.c:test_no_memory tests this for a model, test_generate.c for generated text.

#include "support/vocab_sample.h"

#include "model/model.h"

// The text has words, special tokens and characters that are encoded as bytes.
static void test_words(void **state) {
    (void) state;
    static const char text[] = "It's the ship<tool>\xE8\x88\xB9 12345  more shores<|end|>";
    struct sample_vocab v;
    sample_vocab_init(&v);
    struct gguf_context *g = sample_vocab_keys(&v, "qwen2");
    for (int64_t at = 0, n_made = 1; at <= n_made; at++) { // 0: no failure, allocations are counted
        struct model_error error = {""};
        struct token_list list = {0};
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        struct vocab *vocab = vocab_new(g, (int64_t) v.n_tokens, &error);
        const bool ok = vocab != NULL && vocab_encode(vocab, text, strlen(text), ENCODE_ADD | ENCODE_PARSE, &list, &error);
        n_made = at == 0 ? berth_alloc_made() : n_made;
        berth_alloc_fail_at(0);
        vocab_free(vocab);
        assert_int_equal(ok, at == 0);
        assert_int_equal(error.text[0] == '\0', ok);
        assert_true(!ok || (n_made > 20 && list.n > 10));
        token_list_fini(&list);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_alloc_watch(false);
    gguf_free(g);
    sample_vocab_fini(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

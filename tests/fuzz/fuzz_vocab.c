// SPDX-License-Identifier: MIT
// fuzz_vocab.c: takes the first bytes of the input as the keys of a model file and the rest as a text. The tokenizer must be
// refused with a message, or it must work: all tokens are in the vocabulary, and the sizes of their texts are bounded.

#include "fuzz/fuzz.h"
#include "model/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void encode(const struct vocab *v, const char *text, size_t size, bool special) {
    struct model_error error = {""};
    struct token_list list = {0};
    struct utf8_stream stream = {0};
    char *piece = malloc(v->max_size + 8), *chars = malloc(3 * (v->max_size + 12));
    expect(piece != NULL && chars != NULL, "out of memory");
    expect(vocab_encode(v, text, size, special ? ENCODE_ADD | ENCODE_PARSE : ENCODE_PLAIN, &list, &error), "a text is refused");
    expect(list.n <= 4 * size + 8, "more tokens than bytes");
    for (size_t i = 0; i < list.n; i++) {
        expect(list.ids[i] >= 0 && list.ids[i] < v->n_tokens, "a token is not in the vocabulary");
        const size_t n = vocab_piece(v, list.ids[i], piece, v->max_size + 8);
        expect(n <= v->max_size + 8, "a piece longer than the longest token");
        expect(utf8_stream_put(&stream, piece, n, chars) <= 3 * (n + 4), "more characters than bytes");
        vocab_is_end(v, list.ids[i]);
    }
    utf8_stream_end(&stream, chars);
    token_list_fini(&list);
    free(piece);
    free(chars);
}

// The last byte is the length of the text before it.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ggml_log_set(quiet, NULL);
    const size_t n_text = size > 0 ? data[size - 1] % size : 0;
    const size_t n_file = size > 0 ? size - 1 - n_text : 0;
    struct gguf_context *g = gguf_init_from_buffer(data, n_file, (struct gguf_init_params){.no_alloc = true});
    const int64_t id = g != NULL ? gguf_find_key(g, "tokenizer.ggml.tokens") : -1;
    if (id >= 0 && gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY) {
        struct model_error error = {""};
        struct vocab *v = vocab_new(g, (int64_t) gguf_get_arr_n(g, id), &error);
        expect((v != NULL) == (error.text[0] == '\0'), "refused without a message, or accepted with one");
        if (v != NULL) {
            encode(v, (const char *) data + n_file, n_text, true);
            encode(v, (const char *) data + n_file, n_text, false);
        }
        vocab_free(v);
    }
    gguf_free(g);
    return 0;
}

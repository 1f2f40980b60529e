// SPDX-License-Identifier: MIT
// llama_vocab.c: the tokenizer of a model that libllama runs: its own.

#include "model/llama.h"
#include "model/vocab.h"

struct vocab *llama_vocab_new(const struct model *model, struct model_error *error) {
    struct vocab *v = model_alloc_calloc(1, sizeof *v);
    if (v == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    *v = (struct vocab){.kind = VOCAB_LLAMA, .n_tokens = (int32_t) model->params.n_vocab, .llama = model->llama};
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const size_t size = llama_vocab_piece(v, i, NULL, 0);
        v->max_size = size > v->max_size ? size : v->max_size;
    }
    v->bos = v->eos = v->eot = v->eom = v->unknown = -1;
    return v;
}

bool llama_vocab_encode(const struct vocab *v, const char *text, size_t size, bool add_special, bool parse_special,
    struct token_list *out, struct model_error *error) {
    const struct llama_library *lib = v->llama->lib;
    const int32_t n_text = (int32_t) size;
    int32_t n = lib->llama_tokenize(v->llama->vocab, text, n_text, NULL, 0, add_special, parse_special);
    n = n < 0 ? -n : n; // as many as there would be
    int32_t *ids = model_alloc_calloc((size_t) n + 1, sizeof *ids);
    bool ok = ids != NULL || model_fail(error, "out of memory for %d tokens", n);
    n = ok && n > 0 ? lib->llama_tokenize(v->llama->vocab, text, n_text, ids, n, add_special, parse_special) : 0;
    for (int32_t i = 0; ok && i < n; i++) {
        ok = token_push(out, ids[i], error);
    }
    model_alloc_free(ids);
    return ok;
}

size_t llama_vocab_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    const int32_t room = cap < INT32_MAX ? (int32_t) cap : INT32_MAX;
    const int32_t n = v->llama->lib->llama_token_to_piece(v->llama->vocab, token, out, room, 0, false);
    return (size_t) (n < 0 ? -n : n);
}

bool llama_vocab_ends(const struct vocab *v, int32_t token) {
    return token < 0 || token >= v->n_tokens || v->llama->lib->llama_vocab_is_eog(v->llama->vocab, token);
}

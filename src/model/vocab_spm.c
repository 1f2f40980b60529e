// SPDX-License-Identifier: MIT
// vocab_spm.c: SentencePiece's BPE: spaces are written as U+2581, pieces are merged by their scores, and a character that is no
// token becomes its bytes.

#include "model/vocab.h"

#include <string.h>

#define SPACE "\xE2\x96\x81"

static bool cost_of(const void *user, const char *left, size_t n_left, size_t n_right, double *cost) {
    const struct vocab *v = user;
    const int32_t token = vocab_find(v, left, n_left + n_right);
    if (token < 0) {
        return false;
    }
    *cost = -(double) v->scores[token];
    return true;
}

static bool piece_push(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    const int32_t token = vocab_find(v, text, size);
    if (token >= 0) {
        return token_push(out, token, error);
    }
    for (size_t i = 0; i < size; i++) {
        const int32_t byte = v->byte_token[(unsigned char) text[i]];
        if (byte < 0) { // a vocabulary without bytes
            return v->unknown < 0 || token_push(out, v->unknown, error);
        }
        if (!token_push(out, byte, error)) {
            return false;
        }
    }
    return true;
}

bool vocab_encode_spm(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    char *spaced = model_alloc_malloc(3 * size + 1);
    struct merge_piece *pieces = NULL;
    size_t n = 0, n_spaced = 0;
    for (size_t i = 0; spaced != NULL && i < size; i++) {
        if (text[i] == ' ') {
            memcpy(spaced + n_spaced, SPACE, 3);
            n_spaced += 3;
        } else {
            spaced[n_spaced++] = text[i];
        }
    }
    if (spaced != NULL) {
        pieces = merge_text(spaced, n_spaced, cost_of, v, &n);
    }
    bool ok = pieces != NULL || model_fail(error, "out of memory for the tokens of %zu bytes", size);
    for (size_t i = 0; ok && i < n; i++) {
        ok = pieces[i].size == 0 || piece_push(v, spaced + pieces[i].at, pieces[i].size, out, error);
    }
    model_alloc_free(spaced);
    model_alloc_free(pieces);
    return ok;
}

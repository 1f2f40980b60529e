// SPDX-License-Identifier: MIT
// guided.h: for fuzz targets of grammars. It has a vocabulary and checks of properties that every grammar must have. The
// vocabulary has a token for each of the 256 bytes, 64 tokens of two bytes, and an end token.
#pragma once

#include "fuzz/fuzz.h"
#include "gguf.h"
#include "model/grammar.h"

#include <string.h>

#define GUIDED_PAIRS 64
#define GUIDED_TOKENS (256 + GUIDED_PAIRS + 1)
#define GUIDED_END (GUIDED_TOKENS - 1)

static const char guided_letters[] = "ab{\"x]\n1";

static inline struct vocab *guided_vocab(void) {
    static struct gguf_context *keys; // not freed: the vocabulary refers to its texts
    static char texts[GUIDED_TOKENS][8];
    const char *tokens[GUIDED_TOKENS], *merge = "a b";
    int32_t types[GUIDED_TOKENS];
    struct model_error error = {""};
    for (int i = 0; i < GUIDED_TOKENS; i++) {
        size_t n = 0;
        if (i < 256) {
            n = utf8_put(byte_to_char((uint8_t) i), texts[i]);
        } else if (i != GUIDED_END) {
            n = utf8_put(byte_to_char((uint8_t) guided_letters[(i - 256) / 8]), texts[i]);
            n += utf8_put(byte_to_char((uint8_t) guided_letters[(i - 256) % 8]), texts[i] + n);
        } else {
            n = (size_t) sprintf(texts[i], "</s>");
        }
        texts[i][n] = '\0';
        tokens[i] = texts[i];
        types[i] = i == GUIDED_END ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    keys = gguf_init_empty();
    gguf_set_val_str(keys, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(keys, "tokenizer.ggml.pre", "gpt-2");
    gguf_set_arr_str(keys, "tokenizer.ggml.tokens", tokens, GUIDED_TOKENS);
    gguf_set_arr_data(keys, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, GUIDED_TOKENS);
    gguf_set_arr_str(keys, "tokenizer.ggml.merges", &merge, 1);
    gguf_set_val_u32(keys, "tokenizer.ggml.eos_token_id", GUIDED_END);
    struct vocab *v = vocab_new(keys, GUIDED_TOKENS, &error);
    expect(v != NULL, error.text);
    return v;
}

// Sets allowed[t] for each token t that the grammar allows next. Returns false if the grammar has reached a limit; then there must
// be an error message.
static inline bool guided_mask(struct guide *guide, bool allowed[GUIDED_TOKENS]) {
    struct model_error error = {""};
    float logits[GUIDED_TOKENS] = {0};
    const int64_t n = guide_mask(guide, logits, GUIDED_TOKENS, &error);
    int64_t n_allowed = 0;
    for (int i = 0; i < GUIDED_TOKENS; i++) {
        allowed[i] = logits[i] == 0;
        n_allowed += allowed[i];
    }
    expect((n < 0) == (error.text[0] != '\0'), "refused without a message, or allowed with one");
    expect(n < 0 || n == n_allowed, "the number of allowed tokens is wrong");
    return n >= 0;
}

// Accepts an allowed byte and updates `allowed`. Then checks all pairs (tokens of two bytes) that begin with this byte. A pair
// must have been allowed before if and only if its second byte is allowed now.
static inline bool guided_take(struct guide *guide, uint8_t byte, bool allowed[GUIDED_TOKENS]) {
    struct model_error error = {""};
    bool before[GUIDED_TOKENS];
    memcpy(before, allowed, sizeof before);
    if (!guide_accept(guide, byte, &error) || !guided_mask(guide, allowed)) {
        return false;
    }
    for (int i = 0; i < GUIDED_PAIRS; i++) {
        if ((uint8_t) guided_letters[i / 8] == byte) {
            expect(before[256 + i] == allowed[(uint8_t) guided_letters[i % 8]], "a pair and its bytes are not allowed alike");
        }
    }
    return true;
}

// Makes a grammar, with lower limits than usual, so that a fuzzer reaches them. NULL: the text was refused.
static inline struct grammar *guided_grammar(const char *text, size_t size) {
    struct model_error error = {""};
    struct grammar *g = grammar_new(text, size, NULL, NULL, &error);
    expect((g != NULL) == (error.text[0] == '\0'), "refused without a message, or accepted with one");
    if (g != NULL) {
        // One character of the text, such as '.', may become several elements, because it becomes ranges of UTF-8 bytes.
        expect(g->n_elems <= 64 * size + 64 && g->n_rules <= 2 * size + 8, "more elements than the text can have");
        g->max_stack_size = 1 << 20;
        g->max_steps = 20000;
    }
    return g;
}

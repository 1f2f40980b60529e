// SPDX-License-Identifier: MIT
// vocab_sample.h: a vocabulary for tests of tokenizers, learned from a few sentences by byte-pair encoding, and random texts.
#pragma once

#include "check.h"
#include "gguf.h"
#include "model/vocab.h"

#define SAMPLE_LEARNED 300
#define SAMPLE_MERGES (SAMPLE_LEARNED + 24 * 24)
#define SAMPLE_MAX_TOKENS (256 + SAMPLE_MERGES + 8)

static const char sample_text[] =
    "It's a harbour. They're here, we've seen 'em; I'll go, he'd go, I'm going! Don't. "
    "Sail at 12:30, berth 4711, 3.14159 km, 1000000 tons.  Two  spaces,   three.\n\n\tTabs\tand\r\nlines.\n"
    "Ein Schiff f\xC3\xA4hrt \xC3\xBC"
    "ber das Meer; o\xC3\xB9 est le caf\xC3\xA9? "
    "\xD0\x9A\xD0\xBE\xD1\x80\xD0\xB0\xD0\xB1\xD0\xBB\xD1\x8C \xE8\x88\xB9\xE8\x88\xB6 \xE6\xB8\xAF "
    "\xF0\x9F\x9A\xA2\xF0\x9F\x9A\xA2 "
    "int main(void) { return a[i] == b[j] ? x++ : -1; } // === <tag> $5 + 7 ~ 12 ^ 2 | y\n"
    "(123,123,1234,1234,23,23,456,456,7890,7890,789,) !?!? !?!? ,,.. ,,..    four    five\n\n\n\nsix\n\n\n\n'S'S 'RE'RE ==== ===="
    "\t\t\t\t \r\n\r\n\r\n \xC2\xBD\xC2\xBD\xC2\xBD \xE3\x80\x80\xE3\x80\x80\xE3\x80\x80 e\xCC\x81"
    "e\xCC\x81"
    "the ship the ship the shipping shape, ships and shores and more ships and more shores in the harbour in the harbour";

struct sample_vocab {
    char *tokens[SAMPLE_MAX_TOKENS];
    int32_t types[SAMPLE_MAX_TOKENS];
    float scores[SAMPLE_MAX_TOKENS];
    char *merges[SAMPLE_MERGES];
    size_t n_tokens, n_merges;
};

static inline char *sample_copy(const char *text, size_t size) {
    char *copy = malloc(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

static inline void sample_token(struct sample_vocab *v, const char *text, size_t size, int32_t type) {
    v->types[v->n_tokens] = type;
    v->scores[v->n_tokens] = -(float) v->n_tokens;
    v->tokens[v->n_tokens++] = sample_copy(text, size);
}

// Repeatedly merges the most frequent pair of adjacent pieces within a word. Words start at single spaces and newlines.
static inline void sample_learn(struct sample_vocab *v) {
    char *pieces[sizeof sample_text];
    bool starts[sizeof sample_text];
    size_t n = 0;
    for (size_t i = 0; sample_text[i] != '\0'; i++) {
        char c[4];
        const size_t size = utf8_put(byte_to_char((uint8_t) sample_text[i]), c);
        starts[n] = (sample_text[i] == ' ' || sample_text[i] == '\n') && i > 0 && sample_text[i - 1] != sample_text[i];
        pieces[n++] = sample_copy(c, size);
    }
    while (v->n_merges < SAMPLE_LEARNED) {
        size_t best = 0, n_best = 1;
        for (size_t i = 0; i + 1 < n; i++) {
            size_t count = 0;
            for (size_t j = i; !starts[i + 1] && j + 1 < n; j++) {
                count += !starts[j + 1] && strcmp(pieces[i], pieces[j]) == 0 && strcmp(pieces[i + 1], pieces[j + 1]) == 0;
            }
            if (count > n_best) {
                best = i;
                n_best = count;
            }
        }
        if (n_best < 2) {
            break;
        }
        char merge[512], whole[512];
        snprintf(merge, sizeof merge, "%s %s", pieces[best], pieces[best + 1]);
        snprintf(whole, sizeof whole, "%s%s", pieces[best], pieces[best + 1]);
        char *left = sample_copy(pieces[best], strlen(pieces[best])),
             *right = sample_copy(pieces[best + 1], strlen(pieces[best + 1]));
        v->merges[v->n_merges++] = sample_copy(merge, strlen(merge));
        sample_token(v, whole, strlen(whole), TOKEN_NORMAL);
        size_t to = 0;
        for (size_t i = 0; i < n; to++) {
            pieces[to] = pieces[i];
            starts[to] = starts[i];
            if (i + 1 < n && !starts[i + 1] && strcmp(pieces[i], left) == 0 && strcmp(pieces[i + 1], right) == 0) {
                free(pieces[i]);
                free(pieces[i + 1]);
                pieces[to] = sample_copy(whole, strlen(whole));
                i += 2;
            } else {
                i++;
            }
        }
        n = to;
        free(left);
        free(right);
    }
    for (size_t i = 0; i < n; i++) {
        free(pieces[i]);
    }
}

// Adds a merge for each pair of 24 characters of different kinds. If the tokenizer fails to split between them, they become one
// token, which a test detects.
static inline void sample_pairs(struct sample_vocab *v) {
    static const char some[] = "sStlLrReEx17 \n\t\r.!'=$+-_";
    _Static_assert(sizeof some == 24 + 1, "24 characters");
    for (size_t i = 0; i < 24 * 24; i++) {
        char merge[16], whole[16];
        size_t n = utf8_put(byte_to_char((uint8_t) some[i / 24]), merge);
        memcpy(whole, merge, n);
        merge[n] = ' ';
        const size_t n_next = utf8_put(byte_to_char((uint8_t) some[i % 24]), merge + n + 1);
        memcpy(whole + n, merge + n + 1, n_next);
        whole[n + n_next] = '\0';
        bool is_known = false; // learned already
        for (size_t k = 0; k < v->n_tokens; k++) {
            is_known = is_known || strcmp(v->tokens[k], whole) == 0;
        }
        if (!is_known) {
            v->merges[v->n_merges++] = sample_copy(merge, n + 1 + n_next);
            sample_token(v, whole, n + n_next, TOKEN_NORMAL);
        }
    }
}

static inline void sample_vocab_init(struct sample_vocab *v) {
    *v = (struct sample_vocab){0};
    for (int b = 0; b < 256; b++) {
        char c[4];
        sample_token(v, c, utf8_put(byte_to_char((uint8_t) b), c), TOKEN_NORMAL);
    }
    sample_learn(v);
    sample_pairs(v);
    sample_token(v, "<|begin|>", 9, TOKEN_CONTROL);
    sample_token(v, "<|end|>", 7, TOKEN_CONTROL);
    sample_token(v, "<tool>", 6, TOKEN_USER);
}

static inline void sample_vocab_fini(struct sample_vocab *v) {
    for (size_t i = 0; i < v->n_tokens; i++) {
        free(v->tokens[i]);
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        free(v->merges[i]);
    }
}

// Returns the keys of a GPT-2 tokenizer with the pre-tokenizer `pre`.
static inline struct gguf_context *sample_vocab_keys(const struct sample_vocab *v, const char *pre) {
    struct gguf_context *g = gguf_init_empty();
    gguf_set_val_str(g, "general.architecture", "llama");
    gguf_set_val_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(g, "tokenizer.ggml.pre", pre);
    gguf_set_arr_str(g, "tokenizer.ggml.tokens", (const char **) (uintptr_t) v->tokens, v->n_tokens);
    gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v->types, v->n_tokens);
    gguf_set_arr_str(g, "tokenizer.ggml.merges", (const char **) (uintptr_t) v->merges, v->n_merges);
    gguf_set_val_u32(g, "tokenizer.ggml.bos_token_id", (uint32_t) v->n_tokens - 3);
    gguf_set_val_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t) v->n_tokens - 2);
    gguf_set_val_bool(g, "tokenizer.ggml.add_bos_token", true);
    return g;
}

// Returns the size. with_wrong: the text may contain invalid UTF-8.
static inline size_t sample_random_text(struct check_rng *r, char *out, size_t cap, bool with_wrong) {
    static const char *const parts[] = {" ", " ", "  ", "\n", "\r\n", "\t", "the", "ship", "harbour", "'s", "'S", "'ll", "'RE",
        "'", "it's", "1", "23", "456", "7890", ".", ",", "!?", "==", "$", "+", "\xC3\xA4", "\xC3\x9F", "caf\xC3\xA9",
        "\xD0\xBA\xD0\xBE", "\xE8\x88\xB9", "\xE6\xB8\xAF\xE5\x8F\xA3", "\xF0\x9F\x9A\xA2", "\xC2\xA0", "\xE3\x80\x80",
        "\xC2\xBD", "\xE0\xA5\xA7", "e\xCC\x81", "A", "Z", "HeLLo", "iPhone", "\xC3\x84rger\xC3\x84", "\xC3\x84\xC3\x9C", "ABC",
        "/", "//\n", "_", "-", "\xE2\x80\x94", "\xE2\x96\x81", "x", "more shores", "\xCB\x88", "\xE2\x80\x99s", "<tool>", "\x7F",
        "\x01", "=\n\n", "$\r\n"};
    const size_t n_parts = check_rng_below(r, 24);
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const char *part = parts[check_rng_below(r, sizeof parts / sizeof *parts)];
        const size_t size = strlen(part);
        if (n + size + 1 > cap) {
            break;
        }
        memcpy(out + n, part, size);
        n += size;
        if (with_wrong && check_rng_below(r, 6) == 0 && n + 1 < cap) {
            out[n++] = (char) (0x80 + check_rng_below(r, 128));
        }
    }
    return n;
}

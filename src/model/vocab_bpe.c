// SPDX-License-Identifier: MIT
// vocab_bpe.c: GPT-2's BPE: a text is cut into words, the bytes of a word are written in an alphabet of visible characters, and
// pieces are merged in the order of the file's merges.

#include "model/vocab.h"

// ---- the alphabet ----

static bool is_visible(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// Bytes that are no visible character of Latin-1 get the characters from U+0100 on, in their order.
uint32_t byte_to_char(uint8_t byte) {
    if (is_visible(byte)) {
        return byte;
    }
    uint32_t n = 0;
    for (uint32_t b = 0; b < byte; b++) {
        n += !is_visible(b);
    }
    return 0x100 + n;
}

int byte_of_char(uint32_t c) {
    if (c < 0x100) {
        return is_visible(c) ? (int) c : -1;
    }
    uint32_t n = c - 0x100;
    for (uint32_t b = 0; b < 0x100; b++) {
        if (!is_visible(b) && n-- == 0) {
            return (int) b;
        }
    }
    return -1;
}

// ---- words ----

// A merge is written "left right".
static bool cost_of(const void *user, const char *left, size_t n_left, size_t n_right, double *cost) {
    const struct vocab *v = user;
    const struct text_part parts[] = {{left, n_left}, {" ", 1}, {left + n_left, n_right}};
    const int32_t rank =
        n_left + n_right + 1 > v->max_merge ? -1 : text_table_find(&v->merge_table, v->merges, v->merge_sizes, parts, 3);
    *cost = rank;
    return rank >= 0;
}

// A piece that is no token, which merges of a broken file can make, falls apart into its characters.
static bool piece_push(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    int32_t token = vocab_find(v, text, size);
    if (token >= 0) {
        return token_push(out, token, error);
    }
    uint32_t c;
    for (size_t at = 0, step; at < size; at += step) {
        step = utf8_next(text + at, size - at, &c);
        token = vocab_find(v, text + at, step);
        token = token >= 0 ? token : v->unknown;
        if (token >= 0 && !token_push(out, token, error)) {
            return false;
        }
    }
    return true;
}

static bool word_push(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    if (v->is_word_first && vocab_find(v, text, size) >= 0) {
        return piece_push(v, text, size, out, error);
    }
    size_t n;
    struct merge_piece *pieces = merge_text(text, size, cost_of, v, &n);
    bool ok = pieces != NULL || model_fail(error, "out of memory for a word of %zu bytes", size);
    for (size_t i = 0; ok && i < n; i++) {
        ok = pieces[i].size == 0 || piece_push(v, text + pieces[i].at, pieces[i].size, out, error);
    }
    model_alloc_free(pieces);
    return ok;
}

// The text once as characters, to be cut, and once in the alphabet, to be merged.
struct written {
    uint32_t *chars; // [n]
    size_t *ends;    // [n] of each character, in `text`
    bool *is_cut;    // [n + 1]
    char *text;
    size_t n;
};

static bool write_text(struct written *w, const char *text, size_t size) {
    w->chars = model_alloc_calloc(size + 1, sizeof *w->chars);
    w->ends = model_alloc_malloc((size + 1) * sizeof *w->ends);
    w->is_cut = model_alloc_calloc(size + 1, sizeof *w->is_cut);
    w->text = model_alloc_malloc(2 * size + 4);
    if (w->chars == NULL || w->ends == NULL || w->is_cut == NULL || w->text == NULL) {
        return false;
    }
    size_t n_text = 0;
    for (size_t at = 0, step; at < size; at += step, w->n++) {
        step = utf8_next(text + at, size - at, &w->chars[w->n]);
        for (size_t i = 0; i < step; i++) {
            char out[4];
            const size_t n = utf8_put(byte_to_char((uint8_t) text[at + i]), out);
            for (size_t k = 0; k < n; k++) {
                w->text[n_text++] = out[k];
            }
        }
        w->ends[w->n] = n_text;
    }
    return true;
}

bool vocab_encode_bpe(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    struct written w = {0};
    bool ok = size < SIZE_MAX / 16 && write_text(&w, text, size);
    if (!ok) {
        model_fail(error, "out of memory for the words of %zu bytes", size);
    } else {
        split_words(v->split, w.chars, w.n, w.is_cut);
        w.is_cut[w.n] = true;
        size_t start = 0;
        for (size_t i = 1; ok && i <= w.n; i++) {
            if (w.is_cut[i]) {
                ok = word_push(v, w.text + start, w.ends[i - 1] - start, out, error);
                start = w.ends[i - 1];
            }
        }
    }
    model_alloc_free(w.chars);
    model_alloc_free(w.ends);
    model_alloc_free(w.is_cut);
    model_alloc_free(w.text);
    return ok;
}

// SPDX-License-Identifier: MIT
// vocab.c: what both kinds of tokenizers share: the table of texts, special tokens, pieces. vocab_read.c reads them from a file.

#include "model/vocab.h"

#include <stdio.h>
#include <string.h>

// ---- texts by their bytes ----

static bool is_text(const char *text, uint32_t size, const struct text_part *parts, int n_parts) {
    size_t at = 0;
    for (int i = 0; i < n_parts; i++) {
        if (parts[i].size > size - at || memcmp(text + at, parts[i].text, parts[i].size) != 0) {
            return false;
        }
        at += parts[i].size;
    }
    return at == size;
}

static size_t slot_find(
    const struct text_table *table, const char *const *texts, const uint32_t *sizes, const struct text_part *parts, int n_parts) {
    struct berth_siphash hash = berth_siphash_begin(&table->key);
    for (int i = 0; i < n_parts; i++) {
        berth_siphash_add(&hash, parts[i].text, parts[i].size);
    }
    size_t slot = (size_t) berth_siphash_end(&hash) & (table->n_slots - 1);
    while (table->slots[slot] >= 0 && !is_text(texts[table->slots[slot]], sizes[table->slots[slot]], parts, n_parts)) {
        slot = (slot + 1) & (table->n_slots - 1);
    }
    return slot;
}

int32_t text_table_find(
    const struct text_table *table, const char *const *texts, const uint32_t *sizes, const struct text_part *parts, int n_parts) {
    return table->n_slots == 0 ? -1 : table->slots[slot_find(table, texts, sizes, parts, n_parts)];
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t size) {
    const struct text_part part = {text, size};
    return size > v->max_size ? -1 : text_table_find(&v->table, v->texts, v->sizes, &part, 1);
}

bool text_table_fill(struct text_table *table, const char *const *texts, const uint32_t *sizes, int32_t n, bool last_wins) {
    table->n_slots = 16;
    while (table->n_slots < 2 * (size_t) n) {
        table->n_slots *= 2;
    }
    table->slots = model_alloc_malloc(table->n_slots * sizeof *table->slots);
    table->key = berth_siphash_key_new(table->slots);
    if (table->slots == NULL) {
        return false;
    }
    memset(table->slots, -1, table->n_slots * sizeof *table->slots);
    for (int32_t i = 0; i < n; i++) {
        const struct text_part part = {texts[i], sizes[i]};
        const size_t slot = slot_find(table, texts, sizes, &part, 1);
        if (table->slots[slot] < 0 || last_wins) {
            table->slots[slot] = i;
        }
    }
    return true;
}

// ---- text to tokens ----

bool token_push(struct token_list *list, int32_t token, struct model_error *error) {
    if (list->n == list->cap) {
        const size_t cap = list->cap > 0 ? 2 * list->cap : 64;
        int32_t *ids = model_alloc_realloc(list->ids, cap * sizeof *ids);
        if (ids == NULL) {
            return model_fail(error, "out of memory for %zu tokens", cap);
        }
        list->ids = ids;
        list->cap = cap;
    }
    list->ids[list->n++] = token;
    return true;
}

void token_list_fini(struct token_list *list) {
    model_alloc_free(list->ids);
    *list = (struct token_list){0};
}

// A stretch of text without special tokens: it begins the text or follows a special token.
static bool plain_encode(
    const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    if (size == 0) {
        return true;
    }
    if (v->kind == VOCAB_BPE) {
        return vocab_encode_bpe(v, text, size, out, error);
    }
    if (!v->add_space) {
        return vocab_encode_spm(v, text, size, out, error);
    }
    char *spaced = model_alloc_malloc(size + 1);
    if (spaced == NULL) {
        return model_fail(error, "out of memory for a text of %zu bytes", size);
    }
    spaced[0] = ' ';
    memcpy(spaced + 1, text, size);
    const bool ok = vocab_encode_spm(v, spaced, size + 1, out, error);
    model_alloc_free(spaced);
    return ok;
}

static bool text_encode(const struct vocab *v, const char *text, size_t size, bool add_special, bool parse_special,
    struct token_list *out, struct model_error *error) {
    if (add_special && v->add_bos && v->bos >= 0 && !token_push(out, v->bos, error)) {
        return false;
    }
    int32_t *specials = specials_find(v, text, size, parse_special);
    bool ok = specials != NULL || model_fail(error, "out of memory for the special tokens of %zu bytes", size);
    size_t start = 0;
    for (size_t at = 0; ok && at < size; at++) {
        if (specials[at] >= 0) {
            ok = plain_encode(v, text + start, at - start, out, error) && token_push(out, specials[at], error);
            start = at + v->sizes[specials[at]];
        }
    }
    model_alloc_free(specials);
    return ok && plain_encode(v, text + start, size - start, out, error) &&
           (!add_special || !v->add_eos || v->eos < 0 || token_push(out, v->eos, error));
}

// ---- tokens to text ----

static size_t byte_put(char *out, size_t cap, size_t n, char c) {
    if (n < cap) {
        out[n] = c;
    }
    return n + 1;
}

// U+2581 is a space.
static size_t piece_spm(const char *text, size_t size, char *out, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (size - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
            n = byte_put(out, cap, n, ' ');
            i += 2;
        } else {
            n = byte_put(out, cap, n, text[i]);
        }
    }
    return n;
}

static size_t piece_bpe(const char *text, size_t size, char *out, size_t cap) {
    size_t n = 0;
    uint32_t c;
    for (size_t at = 0, step; at < size; at += step) {
        step = utf8_next(text + at, size - at, &c);
        const int byte = byte_of_char(c);
        for (size_t i = 0; byte < 0 && i < step; i++) { // not of the alphabet: as it is
            n = byte_put(out, cap, n, text[at + i]);
        }
        n = byte < 0 ? n : byte_put(out, cap, n, (char) byte);
    }
    return n;
}

static size_t token_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    if (token < 0 || token >= v->n_tokens || v->types[token] == TOKEN_CONTROL || v->types[token] == TOKEN_UNKNOWN) {
        return 0;
    }
    const char *text = v->texts[token];
    const size_t size = v->sizes[token];
    unsigned byte;
    if (v->types[token] == TOKEN_BYTE && sscanf(text, "<0x%2X>", &byte) == 1) {
        return byte_put(out, cap, 0, (char) byte);
    }
    if (v->types[token] == TOKEN_USER) {
        size_t n = 0;
        for (size_t i = 0; i < size; i++) {
            n = byte_put(out, cap, n, text[i]);
        }
        return n;
    }
    return v->kind == VOCAB_SPM ? piece_spm(text, size, out, cap) : piece_bpe(text, size, out, cap);
}

static bool is_named(const struct vocab *v, int32_t token, const char *name) {
    return v->sizes[token] == strlen(name) && memcmp(v->texts[token], name, v->sizes[token]) == 0;
}

static bool has_name(const struct vocab *v, const char *name) {
    return vocab_find(v, name, strlen(name)) >= 0;
}

// Where a text is of several messages, "<|end|>" ends one of them, and others end the text.
static bool has_messages(const struct vocab *v) {
    return (has_name(v, "<|return|>") || has_name(v, "<|flush|>")) && (has_name(v, "<|call|>") || has_name(v, "<|calls|>"));
}

static bool token_is_end(const struct vocab *v, int32_t token) {
    static const char *const ends[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
        "<turn|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>", "<end_of_utterance>",
        "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|return|>", "<|call|>",
        "<|calls|>", "<|flush|>"};
    if (token < 0 || token >= v->n_tokens) {
        return true;
    }
    if (is_named(v, token, "<|end|>") && has_messages(v)) {
        return false;
    }
    if (token == v->eos || token == v->eot || token == v->eom) {
        return true;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (is_named(v, token, ends[i])) {
            return true;
        }
    }
    return false;
}

// ---- any vocabulary ----

const struct vocab_ops vocab_ops_file = {.encode = text_encode, .piece = token_piece, .is_end = token_is_end};

bool vocab_encode(const struct vocab *v, const char *text, size_t size, bool add_special, bool parse_special,
    struct token_list *out, struct model_error *error) {
    if (size > INT32_MAX / 16) {
        return model_fail(error, "a text of %zu bytes is too long", size);
    }
    return v->ops->encode(v, text, size, add_special, parse_special, out, error);
}

size_t vocab_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    return v->ops->piece(v, token, out, cap);
}

bool vocab_is_end(const struct vocab *v, int32_t token) {
    return v->ops->is_end(v, token);
}

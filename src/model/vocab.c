// SPDX-License-Identifier: MIT
// vocab.c: the vocabulary of a file. vocab_read.c reads it; tokenize.c encodes texts with it.

#include "model/vocab.h"

#include <stdio.h>
#include <string.h>

// ---- hash table of texts ----

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

static size_t slot_find(const struct text_table *table, const struct text_part *parts, int n_parts) {
    struct berth_siphash hash = berth_siphash_begin(&table->key);
    for (int i = 0; i < n_parts; i++) {
        berth_siphash_add(&hash, parts[i].text, parts[i].size);
    }
    size_t slot = (size_t) berth_siphash_end(&hash) & (table->n_slots - 1);
    for (int32_t i; (i = table->slots[slot]) >= 0 && !is_text(table->texts[i], table->sizes[i], parts, n_parts);) {
        slot = (slot + 1) & (table->n_slots - 1);
    }
    return slot;
}

int32_t text_table_find(const struct text_table *table, const struct text_part *parts, int n_parts) {
    return table->n_slots == 0 ? -1 : table->slots[slot_find(table, parts, n_parts)];
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t size) {
    const struct text_part part = {text, size};
    return size > v->max_size ? -1 : text_table_find(&v->tokens, &part, 1);
}

bool text_table_fill(struct text_table *table, bool last_wins) {
    table->n_slots = 16;
    while (table->n_slots < 2 * (size_t) table->n) {
        table->n_slots *= 2;
    }
    table->slots = berth_malloc(table->n_slots * sizeof *table->slots);
    table->key = berth_siphash_key_new(table->slots);
    if (table->slots == NULL) {
        return false;
    }
    memset(table->slots, -1, table->n_slots * sizeof *table->slots);
    for (int32_t i = 0; i < table->n; i++) {
        const struct text_part part = {table->texts[i], table->sizes[i]};
        const size_t slot = slot_find(table, &part, 1);
        if (table->slots[slot] < 0 || last_wins) {
            table->slots[slot] = i;
        }
    }
    return true;
}

// ---- lists of tokens ----

bool token_push(struct token_list *list, int32_t token, struct model_error *error) {
    if (!berth_grow((void **) &list->ids, &list->cap, list->n + 1, sizeof *list->ids)) {
        return model_fail(error, "out of memory for %zu tokens", list->n + 1);
    }
    list->ids[list->n++] = token;
    return true;
}

void token_list_fini(struct token_list *list) {
    berth_free(list->ids);
    *list = (struct token_list){0};
}

// ---- the alphabet of GPT-2: one printable character per byte ----

static bool is_visible(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// Bytes that are not printable in Latin-1 map to the characters from U+0100 on, in order.
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

// ---- tokens to text ----

static size_t byte_put(char *out, size_t cap, size_t n, char c) {
    if (n < cap) {
        out[n] = c;
    }
    return n + 1;
}

// Replaces U+2581 by a space.
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
        for (size_t i = 0; byte < 0 && i < step; i++) { // not in the alphabet: copied unchanged
            n = byte_put(out, cap, n, text[at + i]);
        }
        if (byte >= 0) {
            n = byte_put(out, cap, n, (char) byte);
        }
    }
    return n;
}

size_t token_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    if (token < 0 || token >= v->n_tokens || v->types[token] == TOKEN_CONTROL || v->types[token] == TOKEN_UNKNOWN) {
        return 0;
    }
    const char *text = v->tokens.texts[token];
    const size_t size = v->tokens.sizes[token];
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
    return v->tokens.sizes[token] == strlen(name) && memcmp(v->tokens.texts[token], name, v->tokens.sizes[token]) == 0;
}

static bool has_name(const struct vocab *v, const char *name) {
    return vocab_find(v, name, strlen(name)) >= 0;
}

// A format with several messages per text: "<|end|>" ends a message, and other tokens end the text.
static bool has_messages(const struct vocab *v) {
    return (has_name(v, "<|return|>") || has_name(v, "<|flush|>")) && (has_name(v, "<|call|>") || has_name(v, "<|calls|>"));
}

bool token_is_end(const struct vocab *v, int32_t token) {
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

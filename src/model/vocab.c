// SPDX-License-Identifier: MIT
// vocab.c: reads a tokenizer from a file's keys, and holds what both kinds share: the table of texts, special tokens, pieces.

#include "model/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- texts by their bytes ----

static uint64_t hash_part(uint64_t hash, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char) text[i]) * 0x100000001b3u;
    }
    return hash;
}

static size_t slot_of(const struct text_table *table, uint64_t hash) {
    hash ^= hash >> 32;
    return (size_t) (hash * 0x9e3779b97f4a7c15u >> 20) & (table->n_slots - 1);
}

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
    uint64_t hash = table->seed;
    for (int i = 0; i < n_parts; i++) {
        hash = hash_part(hash, parts[i].text, parts[i].size);
    }
    size_t slot = slot_of(table, hash);
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

// Of equal texts the last one counts if last_wins, else the first.
static bool table_fill(struct text_table *table, const char *const *texts, const uint32_t *sizes, int32_t n, bool last_wins) {
    table->n_slots = 16;
    while (table->n_slots < 2 * (size_t) n) {
        table->n_slots *= 2;
    }
    table->slots = malloc(table->n_slots * sizeof *table->slots);
    table->seed  = ((uint64_t) ggml_time_us() ^ (uint64_t) (uintptr_t) table->slots) * 0x9e3779b97f4a7c15u;
    if (table->slots == NULL) {
        return false;
    }
    memset(table->slots, -1, table->n_slots * sizeof *table->slots);
    for (int32_t i = 0; i < n; i++) {
        const struct text_part part = {texts[i], sizes[i]};
        const size_t slot           = slot_find(table, texts, sizes, &part, 1);
        if (table->slots[slot] < 0 || last_wins) {
            table->slots[slot] = i;
        }
    }
    return true;
}

// ---- reading ----

// A list of texts; *n is 0 if the key is absent.
static bool texts_read(const struct gguf_context *meta, const char *key, const char ***texts, uint32_t **sizes, int32_t *n,
    size_t *longest, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    *n               = 0;
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(meta, id) != GGUF_TYPE_STRING) {
        return model_fail(error, "key '%s' is no list of texts", key);
    }
    const size_t n_texts = gguf_get_arr_n(meta, id);
    if (n_texts > INT32_MAX / 4) {
        return model_fail(error, "key '%s' has %zu texts, too many", key, n_texts);
    }
    *texts = malloc((n_texts + 1) * sizeof **texts);
    *sizes = malloc((n_texts + 1) * sizeof **sizes);
    if (*texts == NULL || *sizes == NULL) {
        return model_fail(error, "out of memory for %zu texts of '%s'", n_texts, key);
    }
    for (size_t i = 0; i < n_texts; i++) {
        (*texts)[i]       = gguf_get_arr_str(meta, id, i);
        const size_t size = strlen((*texts)[i]);
        if (size > INT32_MAX / 4) {
            return model_fail(error, "text %zu of key '%s' has %zu bytes, too many", i, key, size);
        }
        (*sizes)[i] = (uint32_t) size;
        *longest    = size > *longest ? size : *longest;
    }
    *n = (int32_t) n_texts;
    return true;
}

// A list of numbers that goes with the tokens; NULL if the key is absent.
static bool numbers_read(const struct gguf_context *meta, const char *key, enum gguf_type type, int32_t n, const void **out,
    struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    *out             = NULL;
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(meta, id) != type) {
        return model_fail(error, "key '%s' is no list of %s", key, gguf_type_name(type));
    }
    if (gguf_get_arr_n(meta, id) != (size_t) n) {
        return model_fail(error, "key '%s' has %zu values for %d tokens", key, gguf_get_arr_n(meta, id), n);
    }
    *out = gguf_get_arr_data(meta, id);
    return true;
}

static bool tokens_read(struct vocab *v, const struct gguf_context *meta, int64_t n_vocab, struct model_error *error) {
    const void *scores, *types;
    if (!texts_read(meta, "tokenizer.ggml.tokens", &v->texts, &v->sizes, &v->n_tokens, &v->max_size, error)) {
        return false;
    }
    if (v->n_tokens == 0) {
        return model_fail(error, "there is no tokenizer: key 'tokenizer.ggml.tokens' is missing or empty");
    }
    if (v->n_tokens != n_vocab) {
        return model_fail(error, "there are %d tokens, but the model has %" PRId64, v->n_tokens, n_vocab);
    }
    if (!numbers_read(meta, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, v->n_tokens, &scores, error) ||
        !numbers_read(meta, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v->n_tokens, &types, error)) {
        return false;
    }
    v->scores = malloc((size_t) v->n_tokens * sizeof *v->scores);
    v->types  = malloc((size_t) v->n_tokens * sizeof *v->types);
    if (v->scores == NULL || v->types == NULL) {
        return model_fail(error, "out of memory for %d tokens", v->n_tokens);
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const float score  = scores != NULL ? ((const float *) scores)[i] : 0;
        const int32_t type = types != NULL ? ((const int32_t *) types)[i] : TOKEN_NORMAL;
        if (type < 0 || type > TOKEN_BYTE) {
            return model_fail(error, "token %d is of type %d, which is none", i, type);
        }
        v->scores[i] = isnan(score) ? -INFINITY : score;
        v->types[i]  = (uint8_t) type;
    }
    return table_fill(&v->table, v->texts, v->sizes, v->n_tokens, true) ||
           model_fail(error, "out of memory for the table of %d tokens", v->n_tokens);
}

static bool merges_read(struct vocab *v, const struct gguf_context *meta, struct model_error *error) {
    const char *pre;
    if (!keys_text(meta, "tokenizer.ggml.pre", &pre, error) ||
        !texts_read(meta, "tokenizer.ggml.merges", &v->merges, &v->merge_sizes, &v->n_merges, &v->max_merge, error)) {
        return false;
    }
    if (v->n_merges == 0) {
        return model_fail(error, "key 'tokenizer.ggml.merges' is missing or empty");
    }
    pre      = pre != NULL ? pre : "default";
    v->split = split_find(pre, &v->is_word_first);
    if (v->split == NULL) {
        return model_fail(error, "words as '%.64s' cuts them are not supported; default, gpt-2, llama-bpe and qwen2 are", pre);
    }
    return table_fill(&v->merge_table, v->merges, v->merge_sizes, v->n_merges, false) ||
           model_fail(error, "out of memory for the table of %d merges", v->n_merges);
}

static bool id_read(
    const struct vocab *v, const struct gguf_context *meta, const char *name, int32_t *out, struct model_error *error) {
    char key[96];
    int64_t id = -1;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    // Files write -1 as u32 for "none".
    const int64_t at = gguf_find_key(meta, key);
    if (at >= 0 && gguf_get_kv_type(meta, at) == GGUF_TYPE_UINT32 && gguf_get_val_u32(meta, at) == UINT32_MAX) {
        *out = -1;
        return true;
    }
    if (!keys_int(meta, key, -1, v->n_tokens - 1, &id, error)) {
        return false;
    }
    *out = at >= 0 ? (int32_t) id : *out;
    return true;
}

static bool specials_read(struct vocab *v, const struct gguf_context *meta, struct model_error *error) {
    v->bos = v->eos = v->eot = v->eom = v->unknown = -1;
    v->add_bos = v->add_space = v->kind == VOCAB_SPM;
    if (v->split != NULL) {
        bool is_word_first;
        v->add_bos = v->split == split_find("llama3", &is_word_first);
    }
    if (v->kind == VOCAB_SPM) {
        v->unknown = 0;
        v->bos     = v->n_tokens > 1 ? 1 : -1;
        v->eos     = v->n_tokens > 2 ? 2 : -1;
    }
    if (!id_read(v, meta, "bos", &v->bos, error) || !id_read(v, meta, "eos", &v->eos, error) ||
        !id_read(v, meta, "eot", &v->eot, error) || !id_read(v, meta, "eom", &v->eom, error) ||
        !id_read(v, meta, "unknown", &v->unknown, error) ||
        !keys_bool(meta, "tokenizer.ggml.add_bos_token", &v->add_bos, error) ||
        !keys_bool(meta, "tokenizer.ggml.add_eos_token", &v->add_eos, error) ||
        !keys_bool(meta, "tokenizer.ggml.add_space_prefix", &v->add_space, error)) {
        return false;
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const bool is_special = v->types[i] == TOKEN_CONTROL || v->types[i] == TOKEN_USER || v->types[i] == TOKEN_UNKNOWN;
        if (is_special && v->sizes[i] > 0 && v->sizes[i] < VOCAB_MAX_SPECIAL) {
            v->is_special[v->sizes[i]]                          = true;
            v->is_special_first[(unsigned char) v->texts[i][0]] = true;
        }
    }
    return true;
}

// "<0x0A>" is byte 10.
static void bytes_find(struct vocab *v) {
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned) b);
        const int32_t id = vocab_find(v, text, 6);
        v->byte_token[b] = id >= 0 && v->types[id] == TOKEN_BYTE ? id : -1;
    }
}

struct vocab *vocab_new(const struct gguf_context *meta, int64_t n_vocab, struct model_error *error) {
    struct vocab *v = calloc(1, sizeof *v);
    const char *name;
    bool ok = v != NULL || model_fail(error, "out of memory");
    ok      = ok && keys_text(meta, "tokenizer.ggml.model", &name, error);
    if (ok && (name == NULL || (strcmp(name, "llama") != 0 && strcmp(name, "gpt2") != 0))) {
        ok = name == NULL || strcmp(name, "no_vocab") == 0
                 ? model_fail(error, "there is no tokenizer in the file")
                 : model_fail(error, "tokenizer '%.64s' is not supported; llama and gpt2 are", name);
    }
    if (ok) {
        v->kind = strcmp(name, "llama") == 0 ? VOCAB_SPM : VOCAB_BPE;
        ok      = tokens_read(v, meta, n_vocab, error) && (v->kind == VOCAB_SPM || merges_read(v, meta, error)) &&
             specials_read(v, meta, error);
    }
    if (!ok) {
        vocab_free(v);
        return NULL;
    }
    bytes_find(v);
    return v;
}

void vocab_free(struct vocab *v) {
    if (v == NULL) {
        return;
    }
    free(v->texts);
    free(v->sizes);
    free(v->scores);
    free(v->types);
    free(v->table.slots);
    free(v->merges);
    free(v->merge_sizes);
    free(v->merge_table.slots);
    free(v);
}

// ---- text to tokens ----

bool token_push(struct token_list *list, int32_t token, struct model_error *error) {
    if (list->n == list->cap) {
        const size_t cap = list->cap > 0 ? 2 * list->cap : 64;
        int32_t *ids     = realloc(list->ids, cap * sizeof *ids);
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
    free(list->ids);
    *list = (struct token_list){0};
}

// The longest special token that is spelled out at text; -1: none.
static int32_t special_at(const struct vocab *v, const char *text, size_t size, bool with_control) {
    if (!v->is_special_first[(unsigned char) text[0]]) {
        return -1;
    }
    for (size_t n = size < VOCAB_MAX_SPECIAL ? size : VOCAB_MAX_SPECIAL - 1; n > 0; n--) {
        const int32_t id = v->is_special[n] ? vocab_find(v, text, n) : -1;
        if (id >= 0 &&
            (v->types[id] == TOKEN_USER || (with_control && (v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN)))) {
            return id;
        }
    }
    return -1;
}

// A stretch of text without special tokens. is_first: it begins the text or follows a special token.
static bool plain_encode(
    const struct vocab *v, const char *text, size_t size, bool is_first, struct token_list *out, struct model_error *error) {
    if (size == 0) {
        return true;
    }
    if (v->kind == VOCAB_BPE) {
        return vocab_encode_bpe(v, text, size, out, error);
    }
    if (!is_first || !v->add_space) {
        return vocab_encode_spm(v, text, size, out, error);
    }
    char *spaced = malloc(size + 1);
    if (spaced == NULL) {
        return model_fail(error, "out of memory for a text of %zu bytes", size);
    }
    spaced[0] = ' ';
    memcpy(spaced + 1, text, size);
    const bool ok = vocab_encode_spm(v, spaced, size + 1, out, error);
    free(spaced);
    return ok;
}

bool vocab_encode(const struct vocab *v, const char *text, size_t size, bool add_special, bool parse_special,
    struct token_list *out, struct model_error *error) {
    if (size > INT32_MAX / 16) {
        return model_fail(error, "a text of %zu bytes is too long", size);
    }
    if (add_special && v->add_bos && v->bos >= 0 && !token_push(out, v->bos, error)) {
        return false;
    }
    size_t start  = 0;
    bool is_first = true;
    for (size_t at = 0; at < size;) {
        const int32_t id = special_at(v, text + at, size - at, parse_special);
        if (id < 0) {
            at++;
            continue;
        }
        if (!plain_encode(v, text + start, at - start, is_first, out, error) || !token_push(out, id, error)) {
            return false;
        }
        at += v->sizes[id];
        start    = at;
        is_first = true;
    }
    return plain_encode(v, text + start, size - start, is_first, out, error) &&
           (!add_special || !v->add_eos || v->eos < 0 || token_push(out, v->eos, error));
}

// ---- tokens to text ----

static size_t put(char *out, size_t cap, size_t n, char c) {
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
            n = put(out, cap, n, ' ');
            i += 2;
        } else {
            n = put(out, cap, n, text[i]);
        }
    }
    return n;
}

static size_t piece_bpe(const char *text, size_t size, char *out, size_t cap) {
    size_t n = 0;
    uint32_t c;
    for (size_t at = 0, step; at < size; at += step) {
        step           = utf8_next(text + at, size - at, &c);
        const int byte = byte_of_char(c);
        for (size_t i = 0; byte < 0 && i < step; i++) { // not of the alphabet: as it is
            n = put(out, cap, n, text[at + i]);
        }
        n = byte < 0 ? n : put(out, cap, n, (char) byte);
    }
    return n;
}

size_t vocab_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    if (token < 0 || token >= v->n_tokens || v->types[token] == TOKEN_CONTROL) {
        return 0;
    }
    const char *text  = v->texts[token];
    const size_t size = v->sizes[token];
    unsigned byte;
    if (v->types[token] == TOKEN_BYTE && sscanf(text, "<0x%2X>", &byte) == 1) {
        return put(out, cap, 0, (char) byte);
    }
    if (v->types[token] == TOKEN_USER) {
        size_t n = 0;
        for (size_t i = 0; i < size; i++) {
            n = put(out, cap, n, text[i]);
        }
        return n;
    }
    return v->kind == VOCAB_SPM ? piece_spm(text, size, out, cap) : piece_bpe(text, size, out, cap);
}

bool vocab_is_end(const struct vocab *v, int32_t token) {
    static const char *const ends[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"};
    if (token < 0 || token >= v->n_tokens) {
        return true;
    }
    if (token == v->eos || token == v->eot || token == v->eom) {
        return true;
    }
    for (size_t i = 0; v->types[token] == TOKEN_CONTROL && i < sizeof ends / sizeof *ends; i++) {
        if (v->sizes[token] == strlen(ends[i]) && memcmp(v->texts[token], ends[i], v->sizes[token]) == 0) {
            return true;
        }
    }
    return false;
}

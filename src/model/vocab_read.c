// SPDX-License-Identifier: MIT
// vocab_read.c: reads a tokenizer from the keys of a file. It checks that lists have the same length and that ids are tokens.

#include "base/min.h"
#include "model/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// If the key is absent, the table stays empty.
static bool texts_read(const struct gguf_context *meta, const char *key, struct text_table *table, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(meta, id) != GGUF_TYPE_STRING) {
        return model_fail(error, "key '%s' is not an array of strings", key);
    }
    const size_t n_texts = gguf_get_arr_n(meta, id);
    if (n_texts > INT32_MAX / 4) {
        return model_fail(error, "key '%s' has too many strings: %zu", key, n_texts);
    }
    table->texts = berth_malloc((n_texts + 1) * sizeof *table->texts);
    table->sizes = berth_malloc((n_texts + 1) * sizeof *table->sizes);
    if (table->texts == NULL || table->sizes == NULL) {
        return model_fail(error, "out of memory for %zu strings of key '%s'", n_texts, key);
    }
    for (size_t i = 0; i < n_texts; i++) {
        table->texts[i] = gguf_get_arr_str(meta, id, i);
        const size_t size = strlen(table->texts[i]);
        if (size > INT32_MAX / 4) {
            return model_fail(error, "string %zu of key '%s' is too long: %zu bytes", i, key, size);
        }
        table->sizes[i] = (uint32_t) size;
        table->longest = max_size(size, table->longest);
    }
    table->n = (int32_t) n_texts;
    return true;
}

// One number per token. *out NULL: the key is absent.
static bool numbers_read(const struct gguf_context *meta, const char *key, enum gguf_type type, int32_t n, const void **out,
    struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    *out = NULL;
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(meta, id) != type) {
        return model_fail(error, "key '%s' is not an array of %s", key, gguf_type_name(type));
    }
    if (gguf_get_arr_n(meta, id) != (size_t) n) {
        return model_fail(error, "key '%s' has %zu values for %d tokens", key, gguf_get_arr_n(meta, id), n);
    }
    *out = gguf_get_arr_data(meta, id);
    return true;
}

static bool tokens_read(struct vocab *v, const struct gguf_context *meta, int64_t n_vocab, struct model_error *error) {
    const void *scores, *types;
    if (!texts_read(meta, "tokenizer.ggml.tokens", &v->tokens, error)) {
        return false;
    }
    v->n_tokens = v->tokens.n;
    v->max_size = v->tokens.longest;
    if (v->n_tokens == 0) {
        return model_fail(error, "the file has no tokenizer: key 'tokenizer.ggml.tokens' is missing or empty");
    }
    if (v->n_tokens != n_vocab) {
        return model_fail(error, "the tokenizer has %d tokens, but the model has embeddings for %" PRId64, v->n_tokens, n_vocab);
    }
    if (!numbers_read(meta, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, v->n_tokens, &scores, error) ||
        !numbers_read(meta, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v->n_tokens, &types, error)) {
        return false;
    }
    v->scores = berth_malloc((size_t) v->n_tokens * sizeof *v->scores);
    v->types = berth_malloc((size_t) v->n_tokens * sizeof *v->types);
    if (v->scores == NULL || v->types == NULL) {
        return model_fail(error, "out of memory for %d tokens", v->n_tokens);
    }
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const float score = scores != NULL ? ((const float *) scores)[i] : 0;
        const int32_t type = types != NULL ? ((const int32_t *) types)[i] : TOKEN_NORMAL;
        if (type < 0 || type > TOKEN_BYTE) {
            return model_fail(error, "token %d has the unknown type %d", i, type);
        }
        v->scores[i] = isnan(score) ? -INFINITY : score;
        v->types[i] = (uint8_t) type;
    }
    return text_table_fill(&v->tokens, true) || model_fail(error, "out of memory for the table of %d tokens", v->n_tokens);
}

static bool merges_read(struct vocab *v, const struct gguf_context *meta, struct model_error *error) {
    const char *pre;
    if (!keys_text(meta, "tokenizer.ggml.pre", &pre, error) || !texts_read(meta, "tokenizer.ggml.merges", &v->merges, error)) {
        return false;
    }
    if (v->merges.n == 0) {
        return model_fail(error, "key 'tokenizer.ggml.merges' is missing or empty");
    }
    if (pre == NULL) {
        pre = "default";
    }
    v->split = split_find(pre, &v->is_word_first, &v->add_bos);
    if (v->split == NULL) {
        return model_fail(error,
            "pre-tokenizer '%.64s' is not supported; supported: default, gpt-2, llama-bpe, qwen2, smollm, tekken and some others",
            pre);
    }
    return text_table_fill(&v->merges, false) || model_fail(error, "out of memory for the table of %d merges", v->merges.n);
}

static bool id_read(
    const struct vocab *v, const struct gguf_context *meta, const char *name, int32_t *out, struct model_error *error) {
    char key[96];
    int64_t id = -1;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    // Some files store -1 as u32 for "none".
    const int64_t at = gguf_find_key(meta, key);
    if (at >= 0 && gguf_get_kv_type(meta, at) == GGUF_TYPE_UINT32 && gguf_get_val_u32(meta, at) == UINT32_MAX) {
        *out = -1;
        return true;
    }
    if (!keys_int(meta, key, -1, v->n_tokens - 1, &id, error)) {
        return false;
    }
    if (at >= 0) {
        *out = (int32_t) id;
    }
    return true;
}

static bool specials_read(struct vocab *v, const struct gguf_context *meta, struct model_error *error) {
    v->bos = v->eos = v->eot = v->eom = v->unknown = -1;
    if (v->kind == VOCAB_SPM) {
        v->add_bos = v->add_space = true;
        v->unknown = 0;
        v->bos = v->n_tokens > 1 ? 1 : -1;
        v->eos = v->n_tokens > 2 ? 2 : -1;
    }
    if (!id_read(v, meta, "bos", &v->bos, error) || !id_read(v, meta, "eos", &v->eos, error) ||
        !id_read(v, meta, "eot", &v->eot, error) || !id_read(v, meta, "eom", &v->eom, error) ||
        !id_read(v, meta, "unknown", &v->unknown, error) ||
        !keys_bool(meta, "tokenizer.ggml.add_bos_token", &v->add_bos, error) ||
        !keys_bool(meta, "tokenizer.ggml.add_eos_token", &v->add_eos, error) ||
        !keys_bool(meta, "tokenizer.ggml.add_space_prefix", &v->add_space, error)) {
        return false;
    }
    return specials_init(v) || model_fail(error, "out of memory for the special tokens");
}

// The token "<0x0A>" stands for byte 10.
static void bytes_find(struct vocab *v) {
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned) b);
        const int32_t id = vocab_find(v, text, 6);
        v->byte_token[b] = id >= 0 && v->types[id] == TOKEN_BYTE ? id : -1;
    }
}

struct vocab *vocab_new(const struct gguf_context *meta, int64_t n_vocab, struct model_error *error) {
    struct vocab *v = berth_calloc(1, sizeof *v);
    const char *name;
    if (v == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    v->ops = &vocab_ops_file;
    if (!keys_text(meta, "tokenizer.ggml.model", &name, error)) {
        goto fail;
    }
    if (name == NULL || strcmp(name, "no_vocab") == 0) {
        model_fail(error, "the file has no tokenizer: key 'tokenizer.ggml.model' is missing or 'no_vocab'");
        goto fail;
    }
    if (strcmp(name, "llama") != 0 && strcmp(name, "gpt2") != 0) {
        model_fail(error, "tokenizer '%.64s' is not supported; supported: llama, gpt2", name);
        goto fail;
    }
    v->kind = strcmp(name, "llama") == 0 ? VOCAB_SPM : VOCAB_BPE;
    if (!tokens_read(v, meta, n_vocab, error) || (v->kind == VOCAB_BPE && !merges_read(v, meta, error)) ||
        !specials_read(v, meta, error)) {
        goto fail;
    }
    bytes_find(v);
    return v;
fail:
    vocab_free(v);
    return NULL;
}

static void texts_free(struct text_table *table) {
    berth_free(table->texts);
    berth_free(table->sizes);
    berth_free(table->slots);
}

void vocab_free(struct vocab *v) {
    if (v == NULL) {
        return;
    }
    texts_free(&v->tokens);
    texts_free(&v->merges);
    berth_free(v->scores);
    berth_free(v->types);
    specials_free(v->specials);
    berth_free(v);
}

// SPDX-License-Identifier: MIT
// fingerprint.c: computes a hash that identifies a model. The hash covers all keys except those that cannot change a computed
// value: names, the tokenizer, the division into files. So it also covers keys that later architectures will add. Of each weight,
// the hash covers the name, the type, the shape and samples of the bytes, because covering all bytes would require reading the
// whole file.

#include "base/siphash.h"
#include "model/model.h"

#include <string.h>

#define N_SAMPLES 16   // samples per weight
#define SAMPLE_SIZE 64 // bytes per sample

static struct berth_siphash hash_begin(void) {
    static const struct berth_siphash_key key = {{0x6265727468206d6fu, 0x64656c206d61726bu}}; // constant, so that runs agree
    return berth_siphash_begin(&key);
}

static void text_add(struct berth_siphash *hash, const char *text) {
    berth_siphash_add(hash, text, strlen(text) + 1);
}

static bool can_change_value(const char *key) {
    static const char *const ignored_prefixes[] = {"general.", "tokenizer.", "split.", "quantize."};
    if (strcmp(key, "general.architecture") == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof ignored_prefixes / sizeof *ignored_prefixes; i++) {
        if (strncmp(key, ignored_prefixes[i], strlen(ignored_prefixes[i])) == 0) {
            return false;
        }
    }
    return true;
}

static uint64_t key_hash(const struct gguf_context *meta, int64_t id) {
    struct berth_siphash hash = hash_begin();
    enum gguf_type type = gguf_get_kv_type(meta, id);
    const bool is_array = type == GGUF_TYPE_ARRAY;
    const size_t n = is_array ? gguf_get_arr_n(meta, id) : 1;
    if (is_array) {
        type = gguf_get_arr_type(meta, id);
    }
    const int32_t types[] = {is_array, (int32_t) type};
    text_add(&hash, gguf_get_key(meta, id));
    berth_siphash_add(&hash, types, sizeof types);
    if (type == GGUF_TYPE_STRING) {
        for (size_t i = 0; i < n; i++) {
            text_add(&hash, is_array ? gguf_get_arr_str(meta, id, i) : gguf_get_val_str(meta, id));
        }
    } else if (n > 0 && gguf_type_size(type) > 0) {
        berth_siphash_add(&hash, is_array ? gguf_get_arr_data(meta, id) : gguf_get_val_data(meta, id), n * gguf_type_size(type));
    }
    return berth_siphash_end(&hash);
}

static uint64_t weight_hash(const struct ggml_tensor *t) {
    struct berth_siphash hash = hash_begin();
    const size_t size = ggml_nbytes(t);
    const int32_t type = (int32_t) t->type;
    text_add(&hash, t->name);
    berth_siphash_add(&hash, &type, sizeof type);
    berth_siphash_add(&hash, t->ne, sizeof t->ne);
    if (size <= N_SAMPLES * SAMPLE_SIZE) {
        berth_siphash_add(&hash, t->data, size);
    } else {
        for (size_t i = 0; i < N_SAMPLES; i++) {
            berth_siphash_add(&hash, (const char *) t->data + (size - SAMPLE_SIZE) * i / (N_SAMPLES - 1), SAMPLE_SIZE);
        }
    }
    return berth_siphash_end(&hash);
}

uint64_t model_fingerprint(const struct model *m, bool with_weights) {
    const struct gguf_context *meta = berth_gguf_map_meta(m->file);
    uint64_t sum = 0; // a sum, because the order of keys and weights does not matter
    for (int64_t i = 0; i < gguf_get_n_kv(meta); i++) {
        sum += can_change_value(gguf_get_key(meta, i)) ? key_hash(meta, i) : 0;
    }
    for (size_t i = 0; with_weights && i < m->n_weights; i++) {
        sum += weight_hash(m->weights[i].file);
    }
    return sum;
}

// SPDX-License-Identifier: MIT
// rewrite.c: changes keys of model files, splits and joins model files. The first of several files has the keys of the model. Each
// file states its number and the number of files, as in llama.cpp's gguf-split.

#include "quantize/quantize.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- keys ----

// False: not an integer, or out of range.
static bool integer_set(struct gguf_context *g, const char *key, enum gguf_type type, const char *text) {
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    const bool is_int = *text != '\0' && *end == '\0' && errno == 0;
    errno = 0;
    const unsigned long long u = strtoull(text, &end, 10);
    const bool is_u64 = *text != '\0' && *text != '-' && *end == '\0' && errno == 0;
    switch (type) {
        case GGUF_TYPE_UINT8: return is_int && x >= 0 && x <= UINT8_MAX && (gguf_set_val_u8(g, key, (uint8_t) x), true);
        case GGUF_TYPE_INT8: return is_int && x >= INT8_MIN && x <= INT8_MAX && (gguf_set_val_i8(g, key, (int8_t) x), true);
        case GGUF_TYPE_UINT16: return is_int && x >= 0 && x <= UINT16_MAX && (gguf_set_val_u16(g, key, (uint16_t) x), true);
        case GGUF_TYPE_INT16: return is_int && x >= INT16_MIN && x <= INT16_MAX && (gguf_set_val_i16(g, key, (int16_t) x), true);
        case GGUF_TYPE_UINT32: return is_int && x >= 0 && x <= UINT32_MAX && (gguf_set_val_u32(g, key, (uint32_t) x), true);
        case GGUF_TYPE_INT32: return is_int && x >= INT32_MIN && x <= INT32_MAX && (gguf_set_val_i32(g, key, (int32_t) x), true);
        case GGUF_TYPE_UINT64: return is_u64 && (gguf_set_val_u64(g, key, u), true);
        case GGUF_TYPE_INT64: return is_int && (gguf_set_val_i64(g, key, x), true);
        default: return false;
    }
}

static bool real_set(struct gguf_context *g, const char *key, enum gguf_type type, const char *text) {
    char *end;
    const double x = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !isfinite(x)) {
        return false;
    }
    if (type == GGUF_TYPE_FLOAT32) {
        gguf_set_val_f32(g, key, (float) x);
    } else {
        gguf_set_val_f64(g, key, x);
    }
    return true;
}

static bool value_set(struct gguf_context *g, const char *key, enum gguf_type type, const char *text) {
    const bool is_true = strcmp(text, "true") == 0;
    switch (type) {
        case GGUF_TYPE_ARRAY: return false;
        case GGUF_TYPE_STRING: gguf_set_val_str(g, key, text); return true;
        case GGUF_TYPE_BOOL: return (is_true || strcmp(text, "false") == 0) && (gguf_set_val_bool(g, key, is_true), true);
        case GGUF_TYPE_FLOAT32:
        case GGUF_TYPE_FLOAT64: return real_set(g, key, type, text);
        default: return integer_set(g, key, type, text);
    }
}

bool rewrite_key_set(struct gguf_context *g, const char *word, struct model_error *error) {
    static const enum gguf_type tries[] = {
        GGUF_TYPE_BOOL, GGUF_TYPE_UINT32, GGUF_TYPE_INT32, GGUF_TYPE_FLOAT32, GGUF_TYPE_STRING};
    const char *equals = strchr(word, '=');
    char key[256];
    if (equals == NULL || equals == word || equals - word >= (int) sizeof key) {
        return model_fail(error, "'%s' is not of the form KEY=VALUE", word);
    }
    snprintf(key, sizeof key, "%.*s", (int) (equals - word), word);
    if (strcmp(key, GGUF_KEY_GENERAL_ALIGNMENT) == 0) {
        return model_fail(error, "key '%s' cannot be changed: it determines the positions of the tensors", key);
    }
    const int64_t id = gguf_find_key(g, key);
    if (id >= 0) {
        const enum gguf_type type = gguf_get_kv_type(g, id);
        return value_set(g, key, type, equals + 1) ||
               model_fail(error, "'%s' does not fit: key '%s' has type %s", word, key,
                   type == GGUF_TYPE_ARRAY ? "array, which cannot be set" : gguf_type_name(type));
    }
    for (size_t i = 0; i < sizeof tries / sizeof *tries && !value_set(g, key, tries[i], equals + 1); i++) {
    }
    return true;
}

// ---- several files ----

bool rewrite_part_path(char path[4096], const char *out, int64_t no, int64_t n, struct model_error *error) {
    return snprintf(path, 4096, "%s-%05" PRId64 "-of-%05" PRId64 ".gguf", out, no + 1, n) < 4096 ||
           model_fail(error, "the file name '%.64s...' is too long", out);
}

// Returns the index after the last tensor of the file that begins with tensor `first`.
static int64_t part_end(const struct rewrite_split *s, int64_t first) {
    uint64_t size = 0;
    int64_t i = first;
    for (; i < s->n_tensors && i - first < s->max_tensors; i++) {
        size += ggml_nbytes(s->tensors[i]);
        if (size > s->max_size && i > first) {
            break;
        }
    }
    return i;
}

bool rewrite_split_init(struct rewrite_split *s, struct model_error *error) {
    struct ggml_context *ctx = berth_gguf_map_tensors(s->map);
    const int64_t n = gguf_get_n_tensors(berth_gguf_map_meta(s->map));
    s->tensors = berth_calloc((size_t) n + 1, sizeof *s->tensors);
    if (s->tensors == NULL) {
        return model_fail(error, "out of memory for %" PRId64 " tensors", n);
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && s->n_tensors < n; t = ggml_get_next_tensor(ctx, t)) {
        s->tensors[s->n_tensors++] = t;
    }
    for (int64_t i = 0; i < n || s->n_parts == 0; s->n_parts++) {
        i = part_end(s, i);
    }
    s->part = -1;
    return s->n_parts <= UINT16_MAX ||
           model_fail(error, "the split would create %" PRId64 " files, but at most %d are possible", s->n_parts, UINT16_MAX);
}

void rewrite_split_fini(struct rewrite_split *s) {
    berth_free(s->tensors);
    s->tensors = NULL;
}

struct gguf_context *rewrite_split_next(struct rewrite_split *s, struct model_error *error) {
    s->part++;
    s->first = s->end;
    s->end = part_end(s, s->first);
    struct gguf_context *g = model_header_new(s->part == 0 ? berth_gguf_map_meta(s->map) : NULL);
    gguf_set_val_u16(g, "split.no", (uint16_t) s->part);
    gguf_set_val_u16(g, "split.count", (uint16_t) s->n_parts);
    gguf_set_val_i32(g, "split.tensors.count", (int32_t) s->n_tensors);
    for (int64_t i = s->first; i < s->end; i++) {
        gguf_add_tensor(g, s->tensors[i]);
    }
    return model_header_check(g, error);
}

const void *rewrite_split_bytes(int64_t i, void *split, struct model_error *error) {
    const struct rewrite_split *s = split;
    (void) error;
    return s->tensors[s->first + i]->data;
}

// ---- joining ----

struct gguf_context *rewrite_join_header(const struct model *m, const char *path, struct model_error *error) {
    const struct gguf_context *keys = berth_gguf_map_meta(m->file);
    int64_t n = 0;
    for (int64_t i = 0; i < m->n_files; i++) {
        n += gguf_get_n_tensors(berth_gguf_map_meta(m->files[i]));
    }
    int64_t n_stated = n;
    if (gguf_find_key(keys, "split.count") < 0) {
        model_fail(error, "%s: not part of a split model: key 'split.count' is missing", path);
        return NULL;
    }
    if (!keys_int(keys, "split.tensors.count", 0, INT32_MAX, &n_stated, error) || n_stated != n) {
        model_fail(error, "%s: the files have %" PRId64 " tensors, but the keys state %" PRId64, path, n, n_stated);
        return NULL;
    }
    struct gguf_context *g = model_header_new(keys);
    gguf_remove_key(g, "split.no");
    gguf_remove_key(g, "split.count");
    gguf_remove_key(g, "split.tensors.count");
    for (int64_t i = 0; i < m->n_files; i++) {
        struct ggml_context *ctx = berth_gguf_map_tensors(m->files[i]);
        for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
            gguf_add_tensor(g, t);
        }
    }
    return model_header_check(g, error);
}

const void *rewrite_join_bytes(int64_t i, void *model, struct model_error *error) {
    const struct model *m = model;
    int64_t file = 0;
    (void) error;
    for (int64_t n; i >= (n = gguf_get_n_tensors(berth_gguf_map_meta(m->files[file]))); file++) {
        i -= n;
    }
    return berth_gguf_map_data(m->files[file], i);
}

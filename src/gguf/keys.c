// SPDX-License-Identifier: MIT
// keys.c: reads the values of keys by id. A wrong type is an error and returns 0 or NULL. A single value can be read as an array
// of one element, and an array of one element as a single value, because programs rely on both.

#include "gguf/context.h"

#include <string.h>

const char *gguf_get_key(const struct gguf_context *ctx, int64_t key_id) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, key_id, __func__);
    return kv == NULL ? NULL : kv->key;
}

enum gguf_type gguf_get_kv_type(const struct gguf_context *ctx, int64_t key_id) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, key_id, __func__);
    if (kv == NULL) {
        return GGUF_TYPE_COUNT;
    }
    return kv->flags & GGUF_FLAG_ARRAY ? GGUF_TYPE_ARRAY : (enum gguf_type) kv->type;
}

enum gguf_type gguf_get_arr_type(const struct gguf_context *ctx, int64_t key_id) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, key_id, __func__);
    if (kv == NULL) {
        return GGUF_TYPE_COUNT;
    }
    if (!(kv->flags & GGUF_FLAG_ARRAY)) {
        berth_fail(GGML_STATUS_FAILED, "gguf_get_arr_type: '%s' is %s, not an array", kv->key, gguf_type_name(kv->type));
        return GGUF_TYPE_COUNT;
    }
    return (enum gguf_type) kv->type;
}

static size_t kv_n(const struct gguf_kv *kv) {
    return kv->flags & GGUF_FLAG_ARRAY ? ((const struct gguf_list *) berth_gguf_kv_value(kv))->n : 1;
}

// Not for strings.
static const void *kv_numbers(const struct gguf_kv *kv) {
    const void *value = berth_gguf_kv_value(kv);
    return kv->flags & GGUF_FLAG_ARRAY ? ((const struct gguf_list *) value)->data : value;
}

// The key must have exactly one number of this type. After an error, *out is unchanged.
static void get_number(const struct gguf_context *ctx, int64_t id, enum gguf_type type, void *out, const char *caller) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, id, caller);
    if (kv == NULL) {
        return;
    }
    if (kv->type != type || kv_n(kv) != 1) {
        berth_fail(GGML_STATUS_FAILED, "%s: '%s' has %zu values of type %s, not one %s", caller, kv->key, kv_n(kv),
            gguf_type_name(kv->type), gguf_type_name(type));
        return;
    }
    memcpy(out, kv_numbers(kv), gguf_type_size(type));
}

#define GET_NUMBER(suffix, ctype, gtype) \
    ctype gguf_get_val_##suffix(const struct gguf_context *ctx, int64_t key_id) { \
        ctype value = 0; \
        get_number(ctx, key_id, gtype, &value, __func__); \
        return value; \
    }

GGUF_NUMBERS(GET_NUMBER)

static const char *get_text(const struct gguf_context *ctx, int64_t id, size_t i, bool must_be_single, const char *caller) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, id, caller);
    if (kv == NULL) {
        return NULL;
    }
    const size_t n = kv_n(kv);
    if (kv->type != GGUF_TYPE_STRING || i >= n || (must_be_single && n != 1)) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "%s: '%s' has %zu values of type %s; cannot return string %zu", caller,
            kv->key, n, gguf_type_name(kv->type), i);
    }
    const struct gguf_list *list = berth_gguf_kv_value(kv);
    return (const char *) list->data + (i == 0 ? 0 : list->ends[i - 1]);
}

const char *gguf_get_val_str(const struct gguf_context *ctx, int64_t key_id) {
    return get_text(ctx, key_id, 0, true, __func__);
}

const char *gguf_get_arr_str(const struct gguf_context *ctx, int64_t key_id, size_t i) {
    return get_text(ctx, key_id, i, false, __func__);
}

size_t gguf_get_arr_n(const struct gguf_context *ctx, int64_t key_id) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, key_id, __func__);
    return kv == NULL ? 0 : kv_n(kv);
}

static const void *get_data(const struct gguf_context *ctx, int64_t id, bool must_be_single, const char *caller) {
    const struct gguf_kv *kv = berth_gguf_kv_at(ctx, id, caller);
    if (kv == NULL) {
        return NULL;
    }
    if (kv->type == GGUF_TYPE_STRING || (must_be_single && kv_n(kv) != 1)) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "%s: '%s' has %zu values of type %s, not %s", caller, kv->key, kv_n(kv),
            gguf_type_name(kv->type), must_be_single ? "one number" : "an array of numbers");
    }
    return kv_numbers(kv);
}

const void *gguf_get_val_data(const struct gguf_context *ctx, int64_t key_id) {
    return get_data(ctx, key_id, true, __func__);
}

const void *gguf_get_arr_data(const struct gguf_context *ctx, int64_t key_id) {
    return get_data(ctx, key_id, false, __func__);
}

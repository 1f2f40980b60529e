// SPDX-License-Identifier: MIT
// keys.c: the error that a failed allocation leaves, and keys of a file with their kind and range checked: files come from
// anywhere.

#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

bool model_fail(struct model_error *error, const char *fmt, ...) {
    if (error != NULL && error->text[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(error->text, sizeof error->text, fmt, args);
        va_end(args);
    }
    return false;
}

// Any integer type as i64; false for other types and for what does not fit.
static bool as_int(const struct gguf_context *meta, int64_t id, int64_t *out) {
    switch (gguf_get_kv_type(meta, id)) {
        case GGUF_TYPE_UINT8: *out = gguf_get_val_u8(meta, id); return true;
        case GGUF_TYPE_INT8: *out = gguf_get_val_i8(meta, id); return true;
        case GGUF_TYPE_UINT16: *out = gguf_get_val_u16(meta, id); return true;
        case GGUF_TYPE_INT16: *out = gguf_get_val_i16(meta, id); return true;
        case GGUF_TYPE_UINT32: *out = gguf_get_val_u32(meta, id); return true;
        case GGUF_TYPE_INT32: *out = gguf_get_val_i32(meta, id); return true;
        case GGUF_TYPE_INT64: *out = gguf_get_val_i64(meta, id); return true;
        case GGUF_TYPE_UINT64: {
            const uint64_t value = gguf_get_val_u64(meta, id);
            *out = (int64_t) value;
            return value <= INT64_MAX;
        }
        default: return false;
    }
}

// Some keys may have a value for each layer; here they must be the same.
static bool as_equal_ints(const struct gguf_context *meta, int64_t id, int64_t *out) {
    const size_t n = gguf_get_arr_n(meta, id);
    const void *data = NULL;
    const bool is_u32 = gguf_get_arr_type(meta, id) == GGUF_TYPE_UINT32;
    if (n > 0 && (is_u32 || gguf_get_arr_type(meta, id) == GGUF_TYPE_INT32)) {
        data = gguf_get_arr_data(meta, id);
    }
    if (data == NULL) {
        return false;
    }
    *out = is_u32 ? (int64_t) ((const uint32_t *) data)[0] : ((const int32_t *) data)[0];
    for (size_t i = 1; i < n; i++) {
        if (((const uint32_t *) data)[i] != ((const uint32_t *) data)[0]) {
            return false;
        }
    }
    return true;
}

bool keys_int(
    const struct gguf_context *meta, const char *key, int64_t min, int64_t max, int64_t *out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    int64_t value;
    if (id < 0) {
        return true;
    }
    const bool is_list = gguf_get_kv_type(meta, id) == GGUF_TYPE_ARRAY;
    if (is_list ? !as_equal_ints(meta, id, &value) : !as_int(meta, id, &value)) {
        return model_fail(error, "key '%s' is %s, a whole number is wanted", key,
            is_list ? "a list that is no list of equal whole numbers" : gguf_type_name(gguf_get_kv_type(meta, id)));
    }
    if (value < min || value > max) {
        return model_fail(
            error, "key '%s' is %" PRId64 ", from %" PRId64 " to %" PRId64 " is possible here", key, value, min, max);
    }
    *out = value;
    return true;
}

bool keys_real(const struct gguf_context *meta, const char *key, float *out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    if (id < 0) {
        return true;
    }
    const enum gguf_type type = gguf_get_kv_type(meta, id);
    if (type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64) {
        return model_fail(error, "key '%s' is %s, a real number is wanted", key, gguf_type_name(type));
    }
    *out = type == GGUF_TYPE_FLOAT32 ? gguf_get_val_f32(meta, id) : (float) gguf_get_val_f64(meta, id);
    return isfinite(*out) || model_fail(error, "key '%s' is not finite", key);
}

bool keys_bool(const struct gguf_context *meta, const char *key, bool *out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_BOOL) {
        return model_fail(error, "key '%s' is %s, bool is wanted", key, gguf_type_name(gguf_get_kv_type(meta, id)));
    }
    *out = gguf_get_val_bool(meta, id);
    return true;
}

bool keys_text(const struct gguf_context *meta, const char *key, const char **out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    *out = NULL;
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_STRING) {
        return model_fail(error, "key '%s' is %s, a text is wanted", key, gguf_type_name(gguf_get_kv_type(meta, id)));
    }
    *out = gguf_get_val_str(meta, id);
    return true;
}

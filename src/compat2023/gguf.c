// SPDX-License-Identifier: MIT
// gguf.c: the GGUF functions of the 2023 API, where counts and indices are ints and writing returns no status.

#include "compat2023/compat2023.h"
#include "gguf/context.h"

// On overflow, sets an error and returns 0.
static int count_int(const char *func, uint64_t n) {
    if (n > INT32_MAX) {
        berth_fail(GGML_STATUS_FAILED, "%s: %llu does not fit an int", func, (unsigned long long) n);
        return 0;
    }
    return (int) n;
}

static int index_int(int64_t i) {
    return i >= 0 && i <= INT32_MAX ? (int) i : -1;
}

int berth_2023_gguf_get_version(const struct gguf_context *ctx) {
    return count_int("gguf_get_version", gguf_get_version(ctx));
}

// The ggml_context in *gguf_init_params.ctx owns the data.
void *berth_2023_gguf_get_data(const struct gguf_context *ctx) {
    return ctx != NULL ? ctx->data : NULL;
}

int berth_2023_gguf_get_n_kv(const struct gguf_context *ctx) {
    return count_int("gguf_get_n_kv", (uint64_t) gguf_get_n_kv(ctx));
}

int berth_2023_gguf_find_key(const struct gguf_context *ctx, const char *key) {
    return index_int(gguf_find_key(ctx, key));
}

#define GET(type, name) \
    type berth_2023_gguf_##name(const struct gguf_context *ctx, int i) { \
        return gguf_##name(ctx, i); \
    }
GET(const char *, get_key)
GET(enum gguf_type, get_kv_type)
GET(enum gguf_type, get_arr_type)
GET(uint8_t, get_val_u8)
GET(int8_t, get_val_i8)
GET(uint16_t, get_val_u16)
GET(int16_t, get_val_i16)
GET(uint32_t, get_val_u32)
GET(int32_t, get_val_i32)
GET(float, get_val_f32)
GET(uint64_t, get_val_u64)
GET(int64_t, get_val_i64)
GET(double, get_val_f64)
GET(bool, get_val_bool)
GET(const char *, get_val_str)
GET(const void *, get_val_data)
GET(const void *, get_arr_data)
GET(size_t, get_tensor_offset)
GET(enum ggml_type, get_tensor_type)

int berth_2023_gguf_get_arr_n(const struct gguf_context *ctx, int key_id) {
    return count_int("gguf_get_arr_n", gguf_get_arr_n(ctx, key_id));
}

const char *berth_2023_gguf_get_arr_str(const struct gguf_context *ctx, int key_id, int i) {
    return gguf_get_arr_str(ctx, key_id, i >= 0 ? (size_t) i : SIZE_MAX);
}

int berth_2023_gguf_get_n_tensors(const struct gguf_context *ctx) {
    return count_int("gguf_get_n_tensors", (uint64_t) gguf_get_n_tensors(ctx));
}

int berth_2023_gguf_find_tensor(const struct gguf_context *ctx, const char *name) {
    return index_int(gguf_find_tensor(ctx, name));
}

// The caller must not write to the name, although the return type of the 2023 API is not const.
char *berth_2023_gguf_get_tensor_name(const struct gguf_context *ctx, int i) {
    return (char *) (uintptr_t) gguf_get_tensor_name(ctx, i);
}

void berth_2023_gguf_set_arr_data(struct gguf_context *ctx, const char *key, enum gguf_type type, const void *data, int n) {
    if (n < 0) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_arr_data: %d elements, must not be negative", n);
        return;
    }
    gguf_set_arr_data(ctx, key, type, data, (size_t) n);
}

void berth_2023_gguf_set_arr_str(struct gguf_context *ctx, const char *key, const char **data, int n) {
    if (n < 0) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_arr_str: %d strings, must not be negative", n);
        return;
    }
    gguf_set_arr_str(ctx, key, data, (size_t) n);
}

void berth_2023_gguf_set_kv(struct gguf_context *ctx, struct gguf_context *src) {
    gguf_set_kv(ctx, src);
}

void berth_2023_gguf_set_tensor_data(struct gguf_context *ctx, const char *name, const void *data, size_t size) {
    const int64_t i = gguf_find_tensor(ctx, name);
    if (i >= 0 && size < gguf_get_tensor_size(ctx, i)) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_tensor_data: %zu bytes for tensor %s, which needs %zu", size, name,
            gguf_get_tensor_size(ctx, i));
        return;
    }
    gguf_set_tensor_data(ctx, name, data);
}

// If the file cannot be written, the error is in the log and in berth_last_error().
void berth_2023_gguf_write_to_file(const struct gguf_context *ctx, const char *fname, bool only_meta) {
    if (!gguf_write_to_file(ctx, fname, only_meta)) {
        berth_log(GGML_LOG_LEVEL_ERROR, "gguf_write_to_file: %s\n", berth_last_error());
    }
}

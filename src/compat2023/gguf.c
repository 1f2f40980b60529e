// SPDX-License-Identifier: MIT
// gguf.c: GGUF files as of 2023: counts and indices were ints, and writing had no status.

#include "compat2023/compat2023.h"
#include "gguf/context.h"

// A count that an int holds; 0 after an error.
static int count_int(const char *func, uint64_t n) {
    if (n > INT32_MAX) {
        berth_fail(GGML_STATUS_FAILED, "%s: %llu is more than an int holds", func, (unsigned long long) n);
        return 0;
    }
    return (int) n;
}

// An index, or -1.
static int index_int(int64_t i) {
    return i >= 0 && i <= INT32_MAX ? (int) i : -1;
}

int berth_2023_gguf_get_version(const struct gguf_context *ctx) {
    return count_int("gguf_get_version", gguf_get_version(ctx));
}

// What was read with the file: memory of the context that gguf_init_params.ctx returned.
void *berth_2023_gguf_get_data(const struct gguf_context *ctx) {
    return ctx != NULL ? ctx->data : NULL;
}

int berth_2023_gguf_get_n_kv(const struct gguf_context *ctx) {
    return count_int("gguf_get_n_kv", (uint64_t) gguf_get_n_kv(ctx));
}

int berth_2023_gguf_find_key(const struct gguf_context *ctx, const char *key) {
    return index_int(gguf_find_key(ctx, key));
}

const char *berth_2023_gguf_get_key(const struct gguf_context *ctx, int key_id) {
    return gguf_get_key(ctx, key_id);
}

enum gguf_type berth_2023_gguf_get_kv_type(const struct gguf_context *ctx, int key_id) {
    return gguf_get_kv_type(ctx, key_id);
}

enum gguf_type berth_2023_gguf_get_arr_type(const struct gguf_context *ctx, int key_id) {
    return gguf_get_arr_type(ctx, key_id);
}

uint8_t berth_2023_gguf_get_val_u8(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_u8(ctx, key_id);
}

int8_t berth_2023_gguf_get_val_i8(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_i8(ctx, key_id);
}

uint16_t berth_2023_gguf_get_val_u16(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_u16(ctx, key_id);
}

int16_t berth_2023_gguf_get_val_i16(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_i16(ctx, key_id);
}

uint32_t berth_2023_gguf_get_val_u32(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_u32(ctx, key_id);
}

int32_t berth_2023_gguf_get_val_i32(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_i32(ctx, key_id);
}

float berth_2023_gguf_get_val_f32(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_f32(ctx, key_id);
}

uint64_t berth_2023_gguf_get_val_u64(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_u64(ctx, key_id);
}

int64_t berth_2023_gguf_get_val_i64(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_i64(ctx, key_id);
}

double berth_2023_gguf_get_val_f64(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_f64(ctx, key_id);
}

bool berth_2023_gguf_get_val_bool(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_bool(ctx, key_id);
}

const char *berth_2023_gguf_get_val_str(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_str(ctx, key_id);
}

const void *berth_2023_gguf_get_val_data(const struct gguf_context *ctx, int key_id) {
    return gguf_get_val_data(ctx, key_id);
}

const void *berth_2023_gguf_get_arr_data(const struct gguf_context *ctx, int key_id) {
    return gguf_get_arr_data(ctx, key_id);
}

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

size_t berth_2023_gguf_get_tensor_offset(const struct gguf_context *ctx, int i) {
    return gguf_get_tensor_offset(ctx, i);
}

// Not to be written to, though its type allowed it.
char *berth_2023_gguf_get_tensor_name(const struct gguf_context *ctx, int i) {
    return (char *) (uintptr_t) gguf_get_tensor_name(ctx, i);
}

enum ggml_type berth_2023_gguf_get_tensor_type(const struct gguf_context *ctx, int i) {
    return gguf_get_tensor_type(ctx, i);
}

void berth_2023_gguf_set_arr_data(struct gguf_context *ctx, const char *key, enum gguf_type type, const void *data, int n) {
    if (n < 0) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_arr_data: %d elements", n);
        return;
    }
    gguf_set_arr_data(ctx, key, type, data, (size_t) n);
}

void berth_2023_gguf_set_arr_str(struct gguf_context *ctx, const char *key, const char **data, int n) {
    if (n < 0) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_arr_str: %d strings", n);
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
        berth_fail(GGML_STATUS_FAILED, "gguf_set_tensor_data: %zu bytes for tensor %s, which has %zu", size, name,
            gguf_get_tensor_size(ctx, i));
        return;
    }
    gguf_set_tensor_data(ctx, name, data);
}

// A file that could not be written is in the log and in berth_last_error().
void berth_2023_gguf_write_to_file(const struct gguf_context *ctx, const char *fname, bool only_meta) {
    if (!gguf_write_to_file(ctx, fname, only_meta)) {
        berth_log(GGML_LOG_LEVEL_ERROR, "gguf_write_to_file: %s\n", berth_last_error());
    }
}

// SPDX-License-Identifier: MIT
// gguf_sample.h: creates GGUF contexts with all kinds of keys and tensors, and describes a context as text. The same code runs
// with Berth and with the reference.
#pragma once

#include "check.h"
#include "gguf.h"

// All functions of gguf.h without a FILE parameter, and the functions for tensors.
#define GGUF_API(X) \
    X(gguf_init_empty) \
    X(gguf_init_from_file) \
    X(gguf_init_from_buffer) \
    X(gguf_free) \
    X(gguf_get_version) \
    X(gguf_get_alignment) \
    X(gguf_get_data_offset) \
    X(gguf_get_n_kv) \
    X(gguf_find_key) \
    X(gguf_get_key) \
    X(gguf_get_kv_type) \
    X(gguf_get_arr_type) \
    X(gguf_get_val_u8) \
    X(gguf_get_val_i8) \
    X(gguf_get_val_u16) \
    X(gguf_get_val_i16) \
    X(gguf_get_val_u32) \
    X(gguf_get_val_i32) \
    X(gguf_get_val_f32) \
    X(gguf_get_val_u64) \
    X(gguf_get_val_i64) \
    X(gguf_get_val_f64) \
    X(gguf_get_val_bool) \
    X(gguf_get_val_str) \
    X(gguf_get_val_data) \
    X(gguf_get_arr_n) \
    X(gguf_get_arr_data) \
    X(gguf_get_arr_str) \
    X(gguf_get_n_tensors) \
    X(gguf_find_tensor) \
    X(gguf_get_tensor_offset) \
    X(gguf_get_tensor_name) \
    X(gguf_get_tensor_ne) \
    X(gguf_get_tensor_type) \
    X(gguf_get_tensor_size) \
    X(gguf_remove_key) \
    X(gguf_set_val_u8) \
    X(gguf_set_val_i8) \
    X(gguf_set_val_u16) \
    X(gguf_set_val_i16) \
    X(gguf_set_val_u32) \
    X(gguf_set_val_i32) \
    X(gguf_set_val_f32) \
    X(gguf_set_val_u64) \
    X(gguf_set_val_i64) \
    X(gguf_set_val_f64) \
    X(gguf_set_val_bool) \
    X(gguf_set_val_str) \
    X(gguf_set_arr_data) \
    X(gguf_set_arr_str) \
    X(gguf_set_kv) \
    X(gguf_add_tensor) \
    X(gguf_set_tensor_type) \
    X(gguf_set_tensor_data) \
    X(gguf_write_to_file) \
    X(gguf_get_meta_size) \
    X(gguf_get_meta_data) \
    X(ggml_init) \
    X(ggml_free) \
    X(ggml_new_tensor) \
    X(ggml_set_name) \
    X(ggml_nbytes) \
    X(ggml_blck_size) \
    X(ggml_get_first_tensor) \
    X(ggml_get_next_tensor) \
    X(ggml_get_no_alloc) \
    X(ggml_get_mem_size) \
    X(ggml_used_mem) \
    X(ggml_log_set) \
    X(ggml_set_abort_callback)

struct gguf_api {
#define X(name) __typeof__(&(name)) name;
    GGUF_API(X)
#undef X
};

static const struct gguf_api gguf_berth = {
#define X(name) .name = name,
    GGUF_API(X)
#undef X
};

// ---- creating contexts ----

#define GGUF_SAMPLE_KEYS 27

static inline void gguf_sample_keys(const struct gguf_api *api, struct gguf_context *g, struct check_rng *rng) {
    static const int sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t numbers[40];
    char text[64], key[64];
    for (size_t i = 0; i < 40; i++) {
        numbers[i] = check_rng_next(rng);
    }
    api->gguf_set_val_u8(g, "u8", (uint8_t) numbers[0]);
    api->gguf_set_val_i8(g, "i8", (int8_t) numbers[1]);
    api->gguf_set_val_u16(g, "u16", (uint16_t) numbers[2]);
    api->gguf_set_val_i16(g, "i16", (int16_t) numbers[3]);
    api->gguf_set_val_u32(g, "u32", (uint32_t) numbers[4]);
    api->gguf_set_val_i32(g, "i32", (int32_t) numbers[5]);
    api->gguf_set_val_f32(g, "f32", (float) (int32_t) numbers[6] / 1024);
    api->gguf_set_val_u64(g, "u64", numbers[7]);
    api->gguf_set_val_i64(g, "i64", (int64_t) numbers[8]);
    api->gguf_set_val_f64(g, "f64", (double) (int64_t) numbers[9] / 4096);
    api->gguf_set_val_bool(g, "bool", numbers[10] & 1);
    snprintf(text, sizeof text, "text %llx \xE2\x82\xAC", (unsigned long long) numbers[11]);
    api->gguf_set_val_str(g, "str", text);
    api->gguf_set_val_str(g, "general.name", "");
    api->gguf_set_val_u32(g, "general.alignment", 32);
    for (int type = 0; type < GGUF_TYPE_COUNT; type++) {
        if (sizes[type] > 0) {
            const size_t n = numbers[12 + type] % (size_t) (8 * 40 / sizes[type]);
            unsigned char copy[sizeof numbers];
            memcpy(copy, numbers, sizeof copy);
            for (size_t i = 0; type == GGUF_TYPE_BOOL && i < sizeof copy; i++) {
                copy[i] &= 1;
            }
            snprintf(key, sizeof key, "array.%d", type);
            api->gguf_set_arr_data(g, key, (enum gguf_type) type, copy, n);
        }
    }
    const char *strings[] = {"", "a", text, "\xC4\xA0the", "", "longer than eight bytes"};
    api->gguf_set_arr_str(g, "array.strings", strings, numbers[30] % 7);
    api->gguf_set_arr_str(g, "array.none", strings, 0);
}

// The caller frees the returned context.
static inline struct ggml_context *gguf_sample_tensors(
    const struct gguf_api *api, struct gguf_context *g, struct check_rng *rng) {
    struct ggml_context *ctx = api->ggml_init((struct ggml_init_params){.mem_size = 2 << 20});
    assert_non_null(ctx);
    for (int type = 0; type <= GGML_TYPE_Q2_0; type++) {                 // the types of the reference
        const int64_t blck_size = ggml_blck_size((enum ggml_type) type); // the reference has no row for removed types
        if (blck_size > 0) {
            int64_t ne[4] = {blck_size * (int64_t) (1 + check_rng_below(rng, 3)), (int64_t) (1 + check_rng_below(rng, 3)),
                (int64_t) (1 + check_rng_below(rng, 3)), (int64_t) (1 + check_rng_below(rng, 2))};
            const int n_dims = (int) (1 + check_rng_below(rng, 4));
            if (check_rng_below(rng, 6) == 0) {
                // The reference does not write trailing extents that are 0 or 1, so an earlier axis becomes 0.
                ne[n_dims > 2 && ne[2] > 1 ? 1 : 0] = 0;
            }
            char name[64];
            snprintf(name, sizeof name, "blk.%d.weight", type);
            struct ggml_tensor *t = api->ggml_new_tensor(ctx, (enum ggml_type) type, n_dims, ne);
            api->ggml_set_name(t, name);
            if (t->data == NULL) { // the reference requires data even for 0 bytes
                t->data = name;
            }
            for (size_t i = 0; i < api->ggml_nbytes(t); i++) {
                ((unsigned char *) t->data)[i] = (unsigned char) check_rng_next(rng);
            }
            api->gguf_add_tensor(g, t);
        }
    }
    return ctx;
}

// ---- describing contexts ----

static inline void gguf_describe_bytes(FILE *out, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        fprintf(out, "%02x", ((const unsigned char *) data)[i]);
    }
}

static inline void gguf_describe_value(const struct gguf_api *api, const struct gguf_context *g, int64_t i, FILE *out) {
    switch (api->gguf_get_kv_type(g, i)) {
        case GGUF_TYPE_UINT8: fprintf(out, "%u", api->gguf_get_val_u8(g, i)); break;
        case GGUF_TYPE_INT8: fprintf(out, "%d", api->gguf_get_val_i8(g, i)); break;
        case GGUF_TYPE_UINT16: fprintf(out, "%u", api->gguf_get_val_u16(g, i)); break;
        case GGUF_TYPE_INT16: fprintf(out, "%d", api->gguf_get_val_i16(g, i)); break;
        case GGUF_TYPE_UINT32: fprintf(out, "%u", api->gguf_get_val_u32(g, i)); break;
        case GGUF_TYPE_INT32: fprintf(out, "%d", api->gguf_get_val_i32(g, i)); break;
        case GGUF_TYPE_FLOAT32: fprintf(out, "%a", (double) api->gguf_get_val_f32(g, i)); break;
        case GGUF_TYPE_UINT64: fprintf(out, "%llu", (unsigned long long) api->gguf_get_val_u64(g, i)); break;
        case GGUF_TYPE_INT64: fprintf(out, "%lld", (long long) api->gguf_get_val_i64(g, i)); break;
        case GGUF_TYPE_FLOAT64: fprintf(out, "%a", api->gguf_get_val_f64(g, i)); break;
        case GGUF_TYPE_BOOL: fprintf(out, "%d", api->gguf_get_val_bool(g, i)); break;
        case GGUF_TYPE_STRING: fprintf(out, "'%s'", api->gguf_get_val_str(g, i)); break;
        case GGUF_TYPE_ARRAY: {
            static const size_t sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
            const enum gguf_type type = api->gguf_get_arr_type(g, i);
            const size_t n = api->gguf_get_arr_n(g, i);
            fprintf(out, "%d x %zu: ", (int) type, n);
            for (size_t j = 0; type == GGUF_TYPE_STRING && j < n; j++) {
                fprintf(out, "'%s' ", api->gguf_get_arr_str(g, i, j));
            }
            if (type != GGUF_TYPE_STRING && n > 0) {
                gguf_describe_bytes(out, api->gguf_get_arr_data(g, i), n * sizes[type]);
            }
            break;
        }
        case GGUF_TYPE_COUNT: fputs("none", out); break;
    }
}

// The caller frees the text.
static inline char *gguf_describe(const struct gguf_api *api, const struct gguf_context *g, const struct ggml_context *tensors) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fprintf(out, "version %u alignment %zu data at %zu meta %zu\n", api->gguf_get_version(g), api->gguf_get_alignment(g),
        api->gguf_get_data_offset(g), api->gguf_get_meta_size(g));
    for (int64_t i = 0; i < api->gguf_get_n_kv(g); i++) {
        const char *key = api->gguf_get_key(g, i);
        fprintf(out, "%lld %s (%lld): type %d ", (long long) i, key, (long long) api->gguf_find_key(g, key),
            (int) api->gguf_get_kv_type(g, i));
        gguf_describe_value(api, g, i, out);
        fputc('\n', out);
    }
    for (int64_t i = 0; i < api->gguf_get_n_tensors(g); i++) {
        const char *name = api->gguf_get_tensor_name(g, i);
        const int64_t *ne = api->gguf_get_tensor_ne(g, i);
        fprintf(out, "tensor %lld %s (%lld): type %d at %zu size %zu ne %lld %lld %lld %lld\n", (long long) i, name,
            (long long) api->gguf_find_tensor(g, name), (int) api->gguf_get_tensor_type(g, i), api->gguf_get_tensor_offset(g, i),
            api->gguf_get_tensor_size(g, i), (long long) ne[0], (long long) ne[1], (long long) ne[2], (long long) ne[3]);
    }
    if (tensors != NULL) {
        fprintf(out, "context: no_alloc %d\n", api->ggml_get_no_alloc((struct ggml_context *) tensors));
        for (struct ggml_tensor *t = api->ggml_get_first_tensor(tensors); t != NULL; t = api->ggml_get_next_tensor(tensors, t)) {
            fprintf(out, "%s type %d ne %lld %lld %lld %lld nb %zu %zu %zu %zu: ", t->name, (int) t->type, (long long) t->ne[0],
                (long long) t->ne[1], (long long) t->ne[2], (long long) t->ne[3], t->nb[0], t->nb[1], t->nb[2], t->nb[3]);
            if (t->data != NULL) {
                gguf_describe_bytes(out, t->data, api->ggml_nbytes(t));
            }
            fputc('\n', out);
        }
    }
    fclose(out);
    return text;
}

// ---- files ----

// The caller deletes the file.
static inline void gguf_sample_path(char path[64]) {
    snprintf(path, 64, "/tmp/berth-gguf-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static inline unsigned char *gguf_sample_load(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t) ftell(file);
    rewind(file);
    unsigned char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

// The caller frees the bytes.
static inline unsigned char *gguf_sample_file(const struct gguf_api *api, uint64_t seed, bool with_tensors, size_t *size) {
    char path[64];
    gguf_sample_path(path);
    struct check_rng rng = check_rng_new(seed);
    struct gguf_context *g = api->gguf_init_empty();
    struct ggml_context *data = NULL;
    gguf_sample_keys(api, g, &rng);
    if (with_tensors) {
        data = gguf_sample_tensors(api, g, &rng);
    }
    assert_true(api->gguf_write_to_file(g, path, false));
    api->gguf_free(g);
    api->ggml_free(data);
    unsigned char *bytes = gguf_sample_load(path, size);
    unlink(path);
    return bytes;
}

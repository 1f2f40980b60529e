// SPDX-License-Identifier: MIT
// test_gguf_hostile.c: untrusted GGUF files. Every error states its reason and its offset. Files are cut off at every byte. Memory
// is bounded by the size of the header. Every function is called with NULL and with invalid ids, and each allocation fails in turn.

#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include "support/gguf_sample.h"

#include "gguf/context.h"

// ---- building a file byte by byte ----

struct bytes {
    unsigned char *data;
    size_t size, cap;
};

static void put(struct bytes *b, const void *data, size_t size) {
    while (b->size + size > b->cap) {
        b->cap = b->cap == 0 ? 256 : 2 * b->cap;
        b->data = realloc(b->data, b->cap);
        assert_non_null(b->data);
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_u32(struct bytes *b, uint32_t x) {
    put(b, &x, sizeof x);
}

static void put_u64(struct bytes *b, uint64_t x) {
    put(b, &x, sizeof x);
}

static void put_text(struct bytes *b, const char *text) {
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

static void put_head(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv) {
    put(b, GGUF_MAGIC, 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static void put_kv_u32(struct bytes *b, const char *key, uint32_t value) {
    put_text(b, key);
    put_u32(b, GGUF_TYPE_UINT32);
    put_u32(b, value);
}

static void put_tensor(struct bytes *b, const char *name, uint32_t n_dims, int64_t ne, uint32_t type, uint64_t offset) {
    put_text(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        put_u64(b, (uint64_t) ne);
    }
    put_u32(b, type);
    put_u64(b, offset);
}

static void put_padding(struct bytes *b) {
    while (b->size % 32 != 0) {
        put(b, "", 1);
    }
}

// Reads a copy of exactly these bytes, so that a sanitizer detects reads after the end.
static struct gguf_context *read_exactly(const struct bytes *b, size_t size, struct gguf_init_params params) {
    unsigned char *copy = malloc(size == 0 ? 1 : size);
    assert_non_null(copy);
    memcpy(copy, b->data, size);
    struct gguf_context *g = gguf_init_from_buffer(copy, size, params);
    free(copy);
    return g;
}

// Asserts that reading the bytes fails with an error that contains `text` and names the offset; -1: any offset. Then empties b.
static void refused(struct bytes *b, const char *text, int64_t offset) {
    berth_clear_error();
    put_padding(b);
    struct ggml_context *tensors = NULL;
    assert_null(read_exactly(b, b->size, (struct gguf_init_params){.no_alloc = true, .ctx = &tensors}));
    assert_null(tensors);
    if (strstr(berth_last_error(), text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, berth_last_error());
    }
    const char *at = strstr(berth_last_error(), "at offset ");
    assert_non_null(at);
    if (offset >= 0 && atoll(at + 10) != offset) {
        fail_msg("not offset %lld: '%s'", (long long) offset, berth_last_error());
    }
    b->size = 0;
}

static void refused_keys(void **state) {
    (void) state;
    check_quiet();
    struct bytes b = {0};
    put(&b, "GGML", 4);
    refused(&b, "begins with 47 47 4d 4c", 0);
    for (uint32_t version = 0; version < 6; version++) {
        if (version != 2 && version != 3) {
            put_head(&b, version, 0, 0);
            refused(&b, version == 1 ? "no longer supported" : version == 0 ? "version 0" : "newer", 4);
        }
    }
    put_head(&b, 0x03000000, 0, 0);
    refused(&b, "big-endian", 4);
    put_head(&b, 3, UINT64_MAX, 0);
    refused(&b, "-1 tensors", 8);
    put_head(&b, 3, 0, (uint64_t) 1 << 63);
    refused(&b, "keys", 8);
    put_head(&b, 3, 1000, 0);
    refused(&b, "1000 elements of at least 24 bytes do not fit into the remaining 8 bytes", 24);
    put_head(&b, 3, 0, 1000);
    refused(&b, "1000 elements of at least 14 bytes do not fit into the remaining 8 bytes", 24);

    put_head(&b, 3, 0, 1); // keys
    put_u64(&b, (uint64_t) 1 << 62);
    put_u64(&b, 0);
    refused(&b, "key: 4611686018427387904 elements of at least 1 bytes do not fit into the remaining 32 bytes", 32);
    put_head(&b, 3, 0, 1);
    put_u64(&b, 0);
    put_u64(&b, 0);
    refused(&b, "a key is empty", 24);
    put_head(&b, 3, 0, 1);
    put_u64(&b, 3);
    put(&b, "a\0b\0\0\0\0\0\0\0\0", 11);
    refused(&b, "contains a NUL", 24);
    put_head(&b, 3, 0, 2);
    put_kv_u32(&b, "twice", 1);
    put_kv_u32(&b, "twice", 1);
    refused(&b, "'twice' occurs twice", 45);
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put_u32(&b, 13);
    refused(&b, "a value of type 13", 33);
    put_head(&b, 3, 0, 1);
    put_text(&b, "k");
    put_u32(&b, GGUF_TYPE_ARRAY);
    put_u32(&b, GGUF_TYPE_ARRAY);
    refused(&b, "an array of arrays", 37);
    const uint64_t huge[] = {1000, (uint64_t) 1 << 32, (uint64_t) 1 << 60, (uint64_t) 1 << 61, (uint64_t) 1 << 63, UINT64_MAX};
    for (size_t i = 0; i < 6; i++) {
        for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
            if (type != GGUF_TYPE_ARRAY) {
                put_head(&b, 3, 0, 1);
                put_text(&b, "k");
                put_u32(&b, GGUF_TYPE_ARRAY);
                put_u32(&b, type);
                put_u64(&b, huge[i]);
                put_u32(&b, 1);
                refused(&b, "", -1);
            }
        }
    }

    const uint32_t alignments[] = {0, 3, 33, UINT32_MAX}; // alignment
    for (size_t i = 0; i < 4; i++) {
        put_head(&b, 3, 0, 1);
        put_kv_u32(&b, GGUF_KEY_GENERAL_ALIGNMENT, alignments[i]);
        refused(&b, "must be a power of two", -1);
    }
    put_head(&b, 3, 0, 1);
    put_text(&b, GGUF_KEY_GENERAL_ALIGNMENT);
    put_u32(&b, GGUF_TYPE_UINT64);
    put_u64(&b, 32);
    refused(&b, "must be a power of two", -1);

    free(b.data);
}

static void refused_tensors(void **state) {
    (void) state;
    check_quiet();
    struct bytes b = {0};
    char name[128] = {0};
    memset(name, 'n', 64);
    put_head(&b, 3, 1, 0);
    put_tensor(&b, name, 1, 32, GGML_TYPE_F32, 0);
    refused(&b, "has 64 bytes, the limit is 63", 24);
    put_head(&b, 3, 1, 0);
    put_tensor(&b, "t", 5, 1, GGML_TYPE_F32, 0);
    refused(&b, "5 dimensions", 33);
    const struct {
        int64_t ne;
        uint32_t n_dims, type;
        const char *text;
    } shapes[] = {
        {-1, 1, GGML_TYPE_F32, "-1 x 1 x 1 x 1"},
        {INT64_MAX, 1, GGML_TYPE_F32, "more than 2^63"},
        {(int64_t) 1 << 32, 2, GGML_TYPE_I8, "more than 2^63"},
        {(int64_t) 1 << 16, 4, GGML_TYPE_I8, "more than 2^63"},
        {-1, 4, GGML_TYPE_F32, "an extent is negative"},
        {33, 1, GGML_TYPE_Q4_0, "multiple of the block size"},
        {32, 1, 4, "unknown type 4"}, // a removed type
        {32, 1, GGML_TYPE_COUNT, "unknown type"},
        {32, 1, UINT32_MAX, "unknown type"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        put_head(&b, 3, 1, 0);
        put_tensor(&b, "t", shapes[i].n_dims, shapes[i].ne, shapes[i].type, 0);
        refused(&b, shapes[i].text, -1);
    }
    put_head(&b, 3, 1, 0); // the tensor is empty, but the product of its other extents must fit, too
    put_text(&b, "t");
    put_u32(&b, 3);
    put_u64(&b, (uint64_t) 1 << 40);
    put_u64(&b, (uint64_t) 1 << 40);
    put_u64(&b, 0);
    put_u32(&b, GGML_TYPE_I8);
    put_u64(&b, 0);
    refused(&b, "more than 2^63", -1);
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "t", 1, 8, GGML_TYPE_F32, 0);
    put_tensor(&b, "t", 1, 8, GGML_TYPE_F32, 32);
    refused(&b, "tensor 't' occurs twice", 57);
    const uint64_t offsets[] = {0, 32, 65, 96, UINT64_MAX - 31};
    const char *const why[] = {
        "it overlaps another", "it overlaps another", "not aligned", "a hole before it", "a hole before it"};
    for (size_t i = 0; i < 5; i++) {
        put_head(&b, 3, 2, 0);
        put_tensor(&b, "t", 1, 9, GGML_TYPE_F32, 0);
        put_tensor(&b, "u", 1, 8, GGML_TYPE_F32, offsets[i]);
        refused(&b, why[i], 82);
    }
    put_head(&b, 3, 2, 0); // each size is below 2^63, their sum is not
    put_tensor(&b, "t", 1, INT64_MAX - 63, GGML_TYPE_I8, 0);
    put_tensor(&b, "u", 1, INT64_MAX - 63, GGML_TYPE_I8, (uint64_t) INT64_MAX - 63);
    refused(&b, "", -1);
    free(b.data);
}

static void cut_off_at_every_byte(void **state) {
    (void) state;
    check_quiet();
    size_t size;
    unsigned char *bytes = gguf_sample_file(&gguf_berth, 7, true, &size);
    struct bytes b = {bytes, size, size};
    for (size_t n = 0; n <= size; n++) {
        for (int no_alloc = 0; no_alloc < 2; no_alloc++) {
            struct ggml_context *tensors = NULL;
            berth_clear_error();
            struct gguf_context *g = read_exactly(&b, n, (struct gguf_init_params){no_alloc, &tensors});
            if (g == NULL) {
                assert_null(tensors);
                assert_non_null(strstr(berth_last_error(), "at offset "));
                assert_true(n < size);
            } else {
                assert_true(no_alloc || n == size);
            }
            gguf_free(g);
            ggml_free(tensors);
        }
    }
    free(bytes);
}

// Keys without tensors. The end of the data need not be aligned.
static void keys_cut_off_at_every_byte(void **state) {
    (void) state;
    check_quiet();
    struct bytes b = {0};
    put_head(&b, GGUF_VERSION, 0, 2);
    put_kv_u32(&b, "a", 7);
    put_text(&b, "b");
    put_u32(&b, GGUF_TYPE_UINT8);
    put(&b, "\x05", 1);
    for (size_t n = 0; n <= b.size; n++) {
        struct ggml_context *tensors = NULL;
        struct gguf_context *g = read_exactly(&b, n, (struct gguf_init_params){false, &tensors});
        assert_int_equal(g != NULL, n == b.size);
        assert_int_equal(tensors != NULL, n == b.size);
        assert_true(g == NULL || gguf_get_val_u8(g, gguf_find_key(g, "b")) == 5);
        gguf_free(g);
        ggml_free(tensors);
    }
    free(b.data);
}

// ---- memory ----

static size_t heap_size(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void stays_small(struct bytes *b, const char *what) {
    put_padding(b);
    const size_t before = heap_size();
    struct gguf_context *g = gguf_init_from_buffer(b->data, b->size, (struct gguf_init_params){0});
    const size_t heap = heap_size() - before; // 0 with a sanitizer, which has its own allocator
    if (g == NULL) {
        fail_msg("%s: %s", what, berth_last_error());
    }
    const size_t limit = 2 * b->size + 65536;
    print_message("%-28s header %9zu, context %9zu (%.2f), heap %9zu\n", what, b->size, berth_gguf_memory(g),
        (double) berth_gguf_memory(g) / (double) b->size, heap);
    assert_true(berth_gguf_memory(g) <= limit);
    assert_true(heap <= limit);
    gguf_free(g);
    b->size = 0;
}

// Returns the i-th of many distinct names of n bytes without NUL.
static const char *short_name(char name[16], unsigned i, int n) {
    for (int k = 0; k < n; k++, i /= 250) {
        name[k] = (char) (1 + i % 250);
    }
    name[n] = '\0';
    return name;
}

static void memory_is_bounded_by_the_header(void **state) {
    (void) state;
    struct bytes b = {0};
    char name[16];
    for (int n = 2; n <= 4; n++) {
        const unsigned n_keys = n == 2 ? 60000 : 150000;
        put_head(&b, 3, 0, n_keys);
        for (unsigned i = 0; i < n_keys; i++) {
            put_text(&b, short_name(name, i, n));
            put_u32(&b, GGUF_TYPE_UINT8);
            put(&b, "x", 1);
        }
        stays_small(&b, "bytes with short keys");
        put_head(&b, 3, 0, n_keys);
        for (unsigned i = 0; i < n_keys; i++) {
            put_text(&b, short_name(name, i, n));
            put_u32(&b, GGUF_TYPE_STRING);
            put_u64(&b, 0);
        }
        stays_small(&b, "empty strings");
        put_head(&b, 3, 0, n_keys);
        for (unsigned i = 0; i < n_keys; i++) {
            put_text(&b, short_name(name, i, n));
            put_u32(&b, GGUF_TYPE_ARRAY);
            put_u32(&b, i % 2 == 0 ? GGUF_TYPE_STRING : GGUF_TYPE_UINT64);
            put_u64(&b, i % 3 == 0);
            put(&b, "\0\0\0\0\0\0\0\0", i % 3 == 0 ? 8 : 0);
        }
        stays_small(&b, "short arrays");
        for (uint32_t n_dims = 0; n_dims <= 2; n_dims++) {
            put_head(&b, 3, n_keys, 0);
            for (unsigned i = 0; i < n_keys; i++) {
                put_tensor(&b, short_name(name, i, n), n_dims, 4, GGML_TYPE_F64, i * (n_dims < 2 ? (uint64_t) 32 : 128));
            }
            stays_small(&b, "tensors with short names");
        }
    }
    put_head(&b, 3, 0, 1);
    put_text(&b, "tokens");
    put_u32(&b, GGUF_TYPE_ARRAY);
    put_u32(&b, GGUF_TYPE_STRING);
    put_u64(&b, 300000);
    for (unsigned i = 0; i < 300000; i++) {
        put_text(&b, short_name(name, i, (int) (i % 4)));
    }
    stays_small(&b, "an array of strings");
    put_head(&b, 3, 0, 300);
    // Strings of 900 to 1199 bytes. Short ones share a chunk of the arena, long ones get their own chunk (LARGE_SIZE in arena.c).
    for (unsigned i = 0; i < 300; i++) {
        put_text(&b, short_name(name, i, 4));
        put_u32(&b, GGUF_TYPE_STRING);
        put_u64(&b, 900 + i);
        for (unsigned k = 0; k < 900 + i; k++) {
            put(&b, "x", 1);
        }
    }
    stays_small(&b, "strings of a thousand");
    free(b.data);
}

// ---- invalid calls ----

static void every_call_accepts_invalid_arguments(void **state) {
    (void) state;
    check_quiet();
    const struct gguf_init_params params = {0};
    assert_null(gguf_init_from_file(NULL, params));
    assert_null(gguf_init_from_file("/nonexistent", params));
    assert_null(gguf_init_from_file("/tmp", params));
    assert_null(gguf_init_from_file_ptr(NULL, params));
    assert_null(gguf_init_from_buffer(NULL, 8, params));
    assert_null(gguf_init_from_callback(NULL, NULL, 0, 0, params));
    gguf_free(NULL);
    assert_null(gguf_type_name((enum gguf_type) 99));
    struct gguf_context *g = gguf_init_empty();
    gguf_set_val_u32(g, "number", 1);
    gguf_set_val_str(g, "text", "1");
    gguf_set_arr_data(g, "array", GGUF_TYPE_UINT8, "123", 3);
    const struct gguf_context *const contexts[] = {NULL, g};
    const int64_t ids[] = {-1, 3, INT64_MAX, INT64_MIN};
    for (size_t c = 0; c < 2; c++) {
        const struct gguf_context *x = contexts[c];
        for (size_t i = 0; i < 4; i++) {
            berth_clear_error();
            assert_null(gguf_get_key(x, ids[i]));
            assert_true(berth_last_error()[0] != '\0');
            assert_int_equal(gguf_get_kv_type(x, ids[i]), GGUF_TYPE_COUNT);
            assert_int_equal(gguf_get_arr_type(x, ids[i]), GGUF_TYPE_COUNT);
            assert_int_equal(gguf_get_val_u8(x, ids[i]) + gguf_get_val_i8(x, ids[i]), 0);
            assert_int_equal(gguf_get_val_u16(x, ids[i]) + gguf_get_val_i16(x, ids[i]), 0);
            assert_int_equal(gguf_get_val_u32(x, ids[i]) + (uint32_t) gguf_get_val_i32(x, ids[i]), 0);
            assert_int_equal(gguf_get_val_u64(x, ids[i]) + (uint64_t) gguf_get_val_i64(x, ids[i]), 0);
            assert_true(gguf_get_val_f32(x, ids[i]) == 0 && gguf_get_val_f64(x, ids[i]) == 0 && !gguf_get_val_bool(x, ids[i]));
            assert_null(gguf_get_val_str(x, ids[i]));
            assert_null(gguf_get_val_data(x, ids[i]));
            assert_null(gguf_get_arr_data(x, ids[i]));
            assert_null(gguf_get_arr_str(x, ids[i], 0));
            assert_int_equal(gguf_get_arr_n(x, ids[i]), 0);
            assert_null(gguf_get_tensor_name(x, ids[i]));
            assert_null(gguf_get_tensor_ne(x, ids[i]));
            assert_int_equal(gguf_get_tensor_offset(x, ids[i]) + gguf_get_tensor_size(x, ids[i]), 0);
            assert_int_equal(gguf_get_tensor_type(x, ids[i]), GGML_TYPE_COUNT);
        }
        assert_int_equal(gguf_find_key(x, NULL), -1);
        assert_int_equal(gguf_find_tensor(x, NULL), -1);
        assert_int_equal(gguf_find_tensor(x, "none"), -1);
        assert_false(gguf_write_to_file_ptr(x, NULL, false));
        assert_false(gguf_write_to_file(x, NULL, false));
        assert_false(gguf_write_to_file(x, "/nonexistent/file", true));
        assert_false(gguf_write_to_file(x, "/dev/full", false));
        gguf_get_meta_data(x, NULL);
    }
    char byte;
    gguf_get_meta_data(NULL, &byte);
    assert_int_equal(gguf_get_meta_size(NULL), 0);
    assert_int_equal(gguf_get_version(NULL), 0);
    assert_int_equal(gguf_get_alignment(NULL) + gguf_get_data_offset(NULL), 0);
    assert_int_equal(gguf_get_n_kv(NULL) + gguf_get_n_tensors(NULL), 0);

    berth_clear_error(); // read as a wrong type
    assert_int_equal(gguf_get_val_i32(g, 0), 0);
    assert_non_null(strstr(berth_last_error(), "'number' has 1 values of type u32, not one i32"));
    assert_null(gguf_get_val_str(g, 0));
    assert_null(gguf_get_val_data(g, 1));
    assert_null(gguf_get_arr_data(g, 1));
    assert_null(gguf_get_val_data(g, 2));
    assert_int_equal(gguf_get_val_u8(g, 2), 0);
    assert_null(gguf_get_arr_str(g, 1, 1));

    struct gguf_context *const targets[] = {NULL, g};
    for (size_t c = 0; c < 2; c++) {
        struct gguf_context *x = targets[c];
        gguf_set_val_u8(x, NULL, 1);
        gguf_set_val_u8(x, "", 1);
        gguf_set_val_str(x, "s", NULL);
        gguf_set_val_str(x, NULL, "s");
        gguf_set_arr_data(x, "s", GGUF_TYPE_STRING, "s", 1);
        assert_non_null(strstr(berth_last_error(), "the type is not a number"));
        gguf_set_arr_data(x, "s", GGUF_TYPE_ARRAY, "s", 1);
        gguf_set_arr_data(x, "s", (enum gguf_type) - 1, "s", 1);
        gguf_set_arr_data(x, "s", GGUF_TYPE_UINT8, NULL, 1);
        assert_non_null(strstr(berth_last_error(), "the data is NULL"));
        gguf_set_arr_data(x, "s", GGUF_TYPE_UINT64, "s", SIZE_MAX / 2);
        gguf_set_arr_str(x, "s", NULL, 1);
        gguf_set_arr_str(x, "s", (const char *[]){"a", NULL}, 2);
        gguf_set_kv(x, NULL);
        gguf_set_kv(NULL, x);
        gguf_add_tensor(x, NULL);
        gguf_set_tensor_type(x, "none", GGML_TYPE_F32);
        gguf_set_tensor_type(x, NULL, GGML_TYPE_F32);
        gguf_set_tensor_data(x, "none", NULL);
        gguf_set_tensor_data(x, NULL, NULL);
        assert_int_equal(gguf_remove_key(x, NULL), -1);
        assert_int_equal(gguf_remove_key(x, "none"), -1);
        assert_int_equal(gguf_get_n_kv(x), x == NULL ? 0 : 3);
    }
    gguf_set_kv(g, g);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 12});
    gguf_add_tensor(g, ggml_transpose(ctx, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 2, 3))); // not contiguous
    gguf_add_tensor(g, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, -1));                        // poison
    assert_int_equal(gguf_get_n_tensors(g), 0);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 5);
    ggml_set_name(t, "t");
    gguf_add_tensor(g, t);
    gguf_add_tensor(g, t);
    gguf_set_tensor_type(g, "t", GGML_TYPE_Q4_0);
    gguf_set_tensor_type(g, "t", (enum ggml_type) 4);
    assert_int_equal(gguf_get_n_tensors(g), 1);
    assert_int_equal(gguf_get_tensor_type(g, 0), GGML_TYPE_F32);
    ggml_free(ctx);
    gguf_free(g);
}

// ---- names that fall into one slot of the hash table ----

// Writes a name of n_pairs pairs of words. Bit i of which selects one of two variants of pair i. Both variants leave the same state
// in a hash that multiplies by odd numbers and folds by 32 bits: the second word cancels the effect of the first word's top bit.
static void put_colliding(char *name, int n_pairs, uint32_t which) {
    for (int i = 0; i < n_pairs; i++, name += 16) {
        memcpy(name, "aaaaaaaaaaaaaaaa", 16);
        if ((which >> i & 1) != 0) {
            name[7] ^= (char) 0x80;
            name[15] ^= (char) 0x80;
            name[11] ^= (char) 0x80;
        }
    }
    *name = '\0';
}

static void colliding_names(void **state) {
    (void) state;
    enum { PAIRS = 15 };
    struct bytes b = {0};
    char name[16 * PAIRS + 1];
    put_head(&b, 3, 0, (uint64_t) 1 << PAIRS);
    for (uint32_t i = 0; i < (uint32_t) 1 << PAIRS; i++) {
        put_colliding(name, PAIRS, i);
        put_kv_u32(&b, name, i);
    }
    const clock_t start = clock();
    struct gguf_context *g = gguf_init_from_buffer(b.data, b.size, (struct gguf_init_params){.no_alloc = true});
    const double seconds = (double) (clock() - start) / CLOCKS_PER_SEC;
    assert_non_null(g);
    put_colliding(name, PAIRS, 12345);
    assert_int_equal(gguf_get_val_u32(g, gguf_find_key(g, name)), 12345);
    print_message("%zu bytes of names made to collide: %.3f s\n", b.size, seconds);
    assert_true(seconds < 3);
    gguf_free(g);
    free(b.data);
}

// ---- files that other programs change ----

// A copy stays complete when the file changes. Its bytes equal those of the mapping.
static void read_instead_of_mapped(void **state) {
    (void) state;
    check_quiet();
    size_t size;
    char path[64];
    gguf_sample_path(path);
    unsigned char *bytes = gguf_sample_file(&gguf_berth, 12, true, &size);
    FILE *file = fopen(path, "wb");
    assert_true(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    const struct berth_gguf_map_params read = {.read = true, .prefetch = true};
    struct berth_gguf_map *map = berth_gguf_map_open(path, NULL), *copy = berth_gguf_map_open(path, &read);
    assert_true(map != NULL && copy != NULL);
    assert_true(berth_gguf_map_size(map) > 0 && berth_gguf_map_size(map) == berth_gguf_map_size(copy));
    assert_memory_equal(berth_gguf_map_base(map), berth_gguf_map_base(copy), berth_gguf_map_size(map));
    berth_gguf_map_close(map);
    assert_int_equal(truncate(path, 0), 0);
    const unsigned char *data = bytes + gguf_get_data_offset(berth_gguf_map_meta(copy));
    assert_memory_equal(berth_gguf_map_base(copy), data, berth_gguf_map_size(copy));
    berth_gguf_map_close(copy);
    assert_null(berth_gguf_map_open(path, &read));
    assert_non_null(strstr(berth_last_error(), "cannot be read: it is empty"));
    unlink(path);
    free(bytes);
}

// ---- failing allocations ----

// Reads, changes, copies and writes. Returns true if there was no error.
static bool scenario(const unsigned char *bytes, size_t size, const char *path) {
    struct ggml_context *tensors = NULL;
    struct gguf_context *g = gguf_init_from_buffer(bytes, size, (struct gguf_init_params){.ctx = &tensors});
    struct gguf_context *h = gguf_init_empty();
    bool ok = g != NULL && h != NULL;
    if (ok) {
        gguf_set_kv(h, g);
        gguf_set_val_str(h, "str", "another");
        gguf_set_val_u32(h, GGUF_KEY_GENERAL_ALIGNMENT, 64);
        gguf_remove_key(h, "u8");
        for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
            gguf_add_tensor(h, t);
            if (gguf_find_tensor(g, t->name) >= 0) {
                gguf_set_tensor_data(g, t->name, t->data);
            }
        }
        assert_true(gguf_get_alignment(h) == 64 || gguf_find_key(h, GGUF_KEY_GENERAL_ALIGNMENT) < 0 ||
                    gguf_get_val_u32(h, gguf_find_key(h, GGUF_KEY_GENERAL_ALIGNMENT)) == gguf_get_alignment(h));
        ok = gguf_write_to_file(h, path, false) && ok;
    }
    gguf_free(g);
    gguf_free(h);
    ggml_free(tensors);
    struct berth_gguf_map *map = berth_gguf_map_open(path, NULL);
    ok = map != NULL && ok;
    berth_gguf_map_close(map);
    return ok && berth_last_error()[0] == '\0';
}

static void every_allocation_fails_once(void **state) {
    (void) state;
    check_quiet();
    size_t size;
    char path[64];
    gguf_sample_path(path);
    unsigned char *bytes = gguf_sample_file(&gguf_berth, 11, true, &size);
    int64_t n = 0;
    for (bool sound = false; !sound;) {
        n++;
        berth_clear_error();
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        sound = scenario(bytes, size, path);
        assert_int_equal(berth_alloc_alive(), 0);
        assert_true(n < 10000);
    }
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
    print_message("%lld allocations, each failed once\n", (long long) n - 1);
    assert_true(n > 20);
    unlink(path);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_keys),
        cmocka_unit_test(refused_tensors),
        cmocka_unit_test(cut_off_at_every_byte),
        cmocka_unit_test(keys_cut_off_at_every_byte),
        cmocka_unit_test(memory_is_bounded_by_the_header),
        cmocka_unit_test(every_call_accepts_invalid_arguments),
        cmocka_unit_test(colliding_names),
        cmocka_unit_test(read_instead_of_mapped),
        cmocka_unit_test(every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

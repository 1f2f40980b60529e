// SPDX-License-Identifier: MIT
// test_gguf.c: GGUF files that are written can be read from every kind of source; changes, alignment, look-up by name, mapped
// files.

#include <unistd.h>

#include "support/gguf_sample.h"

#include "ggml-backend.h"

static void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

struct memory {
    const unsigned char *bytes;
    size_t size;
    size_t max_len; // largest len of a call
};

static size_t memory_read(void *user_data, void *out, uint64_t offset, size_t len) {
    struct memory *m = user_data;
    m->max_len = len > m->max_len ? len : m->max_len;
    if (offset >= m->size) {
        return 0;
    }
    const size_t n = len < m->size - offset ? len : m->size - (size_t) offset;
    memcpy(out, m->bytes + offset, n);
    return n;
}

enum source { FROM_BUFFER, FROM_NAME, FROM_FILE, FROM_MIDDLE, FROM_PIPE, FROM_CALLBACK, FROM_ENDLESS, N_SOURCES };

static struct gguf_context *read_from(
    enum source source, const unsigned char *bytes, size_t size, struct gguf_init_params params) {
    struct memory m = {bytes, size, 0};
    struct gguf_context *g = NULL;
    FILE *file = NULL;
    static const char prefix[] = "something else";
    char path[64];
    gguf_sample_path(path);
    switch (source) {
        case FROM_BUFFER: g = gguf_init_from_buffer(bytes, size, params); break;
        case FROM_CALLBACK:
            g = gguf_init_from_callback(memory_read, &m, 24, size, params);
            assert_true(m.max_len <= 24);
            break;
        case FROM_ENDLESS: g = gguf_init_from_callback(memory_read, &m, 0, UINT64_MAX, params); break;
        case FROM_NAME:
            write_bytes(path, bytes, size);
            g = gguf_init_from_file(path, params);
            break;
        case FROM_FILE:
        case FROM_MIDDLE:
            file = fopen(path, "w+b");
            assert_non_null(file);
            fwrite(prefix, 1, source == FROM_MIDDLE ? sizeof prefix : 0, file);
            fwrite(bytes, 1, size, file);
            fseek(file, source == FROM_MIDDLE ? (long) sizeof prefix : 0, SEEK_SET);
            g = gguf_init_from_file_ptr(file, params);
            break;
        case FROM_PIPE: {
            int ends[2];
            assert_int_equal(pipe(ends), 0);
            assert_int_equal(write(ends[1], bytes, size), (ssize_t) size); // the bytes fit into the pipe's buffer
            close(ends[1]);
            file = fdopen(ends[0], "rb");
            assert_non_null(file);
            g = gguf_init_from_file_ptr(file, params);
            break;
        }
        default: break;
    }
    if (file != NULL) {
        fclose(file);
    }
    unlink(path);
    return g;
}

static void count_lines(enum ggml_log_level level, const char *text, void *n) {
    (void) level;
    (void) text;
    ++*(int *) n;
}

// Empty tensors are added, written and read like others, without a log line.
static void empty_tensors(void **state) {
    (void) state;
    static const int64_t shapes[][4] = {{0, 1, 1, 1}, {8, 0, 1, 1}, {8, 2, 0, 1}, {8, 1, 1, 0}, {0, 0, 0, 0}, {8, 1, 1, 1}};
    const int n_shapes = sizeof shapes / sizeof shapes[0];
    int n_lines = 0;
    char path[64];
    gguf_sample_path(path);
    ggml_log_set(count_lines, &n_lines);
    for (int no_alloc = 0; no_alloc < 2; no_alloc++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = no_alloc});
        struct gguf_context *g = gguf_init_empty();
        float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        for (int i = 0; i < n_shapes; i++) {
            struct ggml_tensor *t = ggml_new_tensor(ctx, i % 2 == 0 ? GGML_TYPE_F32 : GGML_TYPE_F16, 4, shapes[i]);
            ggml_format_name(t, "t%d", i);
            t->data = i == n_shapes - 1 ? numbers : t->data; // the others have no data or zero bytes
            gguf_add_tensor(g, t);
        }
        gguf_set_tensor_type(g, "t1", GGML_TYPE_BF16);
        assert_int_equal(gguf_get_n_tensors(g), n_shapes);
        assert_true(gguf_write_to_file(g, path, false));
        gguf_free(g);
        ggml_free(ctx);
        ctx = NULL;
        g = gguf_init_from_file(path, (struct gguf_init_params){no_alloc, &ctx});
        assert_true(g != NULL && ctx != NULL);
        for (int i = 0; i < n_shapes; i++) {
            char name[8];
            snprintf(name, sizeof name, "t%d", i);
            const struct ggml_tensor *t = ggml_get_tensor(ctx, name);
            assert_non_null(t);
            assert_memory_equal(t->ne, shapes[i], sizeof t->ne);
            assert_memory_equal(gguf_get_tensor_ne(g, i), shapes[i], sizeof t->ne);
            assert_int_equal(gguf_get_tensor_size(g, i), i == n_shapes - 1 ? 16 : 0);
            assert_int_equal(gguf_get_tensor_offset(g, i), 0);
        }
        assert_true(no_alloc || memcmp(ggml_get_tensor(ctx, "t5")->data, numbers, 16) == 0);
        gguf_free(g);
        ggml_free(ctx);
    }
    unlink(path);
    ggml_log_set(NULL, NULL);
    assert_int_equal(n_lines, 0);
}

// A GGUF file that starts within another file: padding counts from the start of the GGUF file, data_offset from the start of the
// other file.
static void data_of_a_file_within_another(void **state) {
    (void) state;
    size_t size;
    unsigned char *bytes = gguf_sample_file(&gguf_berth, 3, true, &size);
    struct gguf_context *g = gguf_init_from_buffer(bytes, size, (struct gguf_init_params){0});
    const size_t alone = gguf_get_data_offset(g);
    gguf_free(g);
    for (long begin = 0; begin < 40; begin += 13) {
        struct ggml_context *ctx = NULL;
        FILE *file = tmpfile();
        assert_non_null(file);
        assert_int_equal(fseek(file, begin, SEEK_SET), 0);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        assert_int_equal(fseek(file, begin, SEEK_SET), 0);
        g = gguf_init_from_file_ptr(file, (struct gguf_init_params){false, &ctx});
        assert_non_null(g);
        assert_int_equal(gguf_get_data_offset(g), alone + (size_t) begin);
        assert_memory_equal(ggml_get_first_tensor(ctx)->data, bytes + alone, size - alone);
        gguf_free(g);
        ggml_free(ctx);
        fclose(file);
    }
    free(bytes);
}

static void every_source_gives_the_same(void **state) {
    (void) state;
    check_quiet();
    const uint64_t seed = check_seed(1);
    for (uint64_t i = 0; i < 8; i++) {
        size_t size;
        unsigned char *bytes = gguf_sample_file(&gguf_berth, seed + i, i % 4 != 0, &size);
        for (int no_alloc = 0; no_alloc < 2; no_alloc++) {
            char *first = NULL;
            for (int source = 0; source < N_SOURCES; source++) {
                struct ggml_context *tensors = NULL;
                const struct gguf_init_params params = {no_alloc, &tensors};
                struct gguf_context *g = read_from(source, bytes, size, params);
                if (source == FROM_PIPE && !no_alloc && i % 4 != 0) { // a pipe cannot seek to the data
                    assert_null(g);
                    assert_null(tensors);
                    assert_non_null(strstr(berth_last_error(), "seekable"));
                    continue;
                }
                assert_non_null(g);
                char *text = gguf_describe(&gguf_berth, g, tensors);
                if (first != NULL) {
                    // The first line contains data_offset, which differs for FROM_MIDDLE (data_of_a_file_within_another).
                    const bool is_moved = source == FROM_MIDDLE;
                    assert_string_equal(is_moved ? strchr(text, '\n') : text, is_moved ? strchr(first, '\n') : first);
                    free(text);
                } else {
                    first = text;
                }
                gguf_free(g);
                ggml_free(tensors);
            }
            free(first);
        }
        free(bytes);
    }
}

static void what_is_read_is_written_again(void **state) {
    (void) state;
    size_t size;
    unsigned char *bytes = gguf_sample_file(&gguf_berth, 3, true, &size);
    struct ggml_context *tensors = NULL;
    struct gguf_context *g = gguf_init_from_buffer(bytes, size, (struct gguf_init_params){.ctx = &tensors});
    assert_non_null(g);
    assert_int_equal(gguf_get_n_kv(g), GGUF_SAMPLE_KEYS);
    char path[64];
    gguf_sample_path(path);

    check_quiet();
    assert_false(gguf_write_to_file(g, path, false)); // the tensors have no data yet
    assert_non_null(strstr(berth_last_error(), "has no data"));
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        if (gguf_find_tensor(g, t->name) >= 0) {
            gguf_set_tensor_data(g, t->name, t->data);
        }
    }
    assert_true(gguf_write_to_file(g, path, false));
    size_t reread_size;
    unsigned char *reread = gguf_sample_load(path, &reread_size);
    assert_int_equal(reread_size, size);
    assert_memory_equal(reread, bytes, size);
    free(reread);

    assert_true(gguf_write_to_file(g, path, true)); // only the header
    reread = gguf_sample_load(path, &reread_size);
    assert_int_equal(reread_size, gguf_get_data_offset(g));
    assert_int_equal(reread_size, gguf_get_meta_size(g));
    assert_memory_equal(reread, bytes, reread_size);
    gguf_get_meta_data(g, reread);
    assert_memory_equal(reread, bytes, reread_size);
    free(reread);

    gguf_free(g);
    ggml_free(tensors);
    unlink(path);
    free(bytes);
}

static void strings_keep_their_nuls(void **state) {
    (void) state;
    // The key "k" has a string of the bytes 'a', NUL, 'b'. The key "l" has an array of two strings: an empty string, and a string
    // of one NUL.
    static const unsigned char bytes[] = "GGUF\3\0\0\0"
                                         "\0\0\0\0\0\0\0\0"
                                         "\2\0\0\0\0\0\0\0"
                                         "\1\0\0\0\0\0\0\0k"
                                         "\10\0\0\0"
                                         "\3\0\0\0\0\0\0\0a\0b"
                                         "\1\0\0\0\0\0\0\0l"
                                         "\11\0\0\0\10\0\0\0"
                                         "\2\0\0\0\0\0\0\0"
                                         "\0\0\0\0\0\0\0\0"
                                         "\1\0\0\0\0\0\0\0";
    struct gguf_context *g = gguf_init_from_buffer(bytes, sizeof bytes, (struct gguf_init_params){0});
    assert_non_null(g);
    assert_string_equal(gguf_get_val_str(g, 0), "a");
    assert_string_equal(gguf_get_arr_str(g, 1, 1), "");
    struct gguf_context *copy = gguf_init_empty();
    gguf_set_kv(copy, g);
    unsigned char meta[2][256];
    assert_int_equal(gguf_get_meta_size(g), gguf_get_meta_size(copy));
    gguf_get_meta_data(g, meta[0]);
    gguf_get_meta_data(copy, meta[1]);
    assert_memory_equal(meta[0], bytes, sizeof bytes); // the terminating NUL of `bytes` is the last byte of the file
    assert_memory_equal(meta[0], meta[1], gguf_get_meta_size(g));
    gguf_free(g);
    gguf_free(copy);
}

static void alignment_follows_its_key(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    struct gguf_context *g = gguf_init_empty();
    char path[64], name[8];
    gguf_sample_path(path);
    for (int i = 0; i < 5; i++) {
        struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, 10 * i);
        snprintf(name, sizeof name, "t%d", i);
        ggml_set_name(t, name);
        if (i > 0) {
            memset(t->data, i, ggml_nbytes(t));
        }
        gguf_add_tensor(g, t);
    }
    const uint32_t alignments[] = {256, 1, 8, 4096, 32};
    for (size_t k = 0; k < 5; k++) {
        gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, alignments[k]);
        assert_int_equal(gguf_get_alignment(g), alignments[k]);
        for (int64_t i = 0; i < 5; i++) {
            assert_int_equal(gguf_get_tensor_offset(g, i) % alignments[k], 0);
        }
        assert_true(gguf_write_to_file(g, path, false));
        struct ggml_context *tensors = NULL;
        struct gguf_context *h = gguf_init_from_file(path, (struct gguf_init_params){.ctx = &tensors});
        assert_non_null(h);
        assert_int_equal(gguf_get_alignment(h), alignments[k]);
        for (int i = 1; i < 5; i++) {
            snprintf(name, sizeof name, "t%d", i);
            const char *data = ggml_get_tensor(tensors, name)->data;
            assert_int_equal(data[0], i);
            assert_int_equal(data[10 * i - 1], i);
        }
        gguf_free(h);
        ggml_free(tensors);
    }
    gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, 64);
    gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, 48); // not a power of two
    gguf_set_val_i32(g, GGUF_KEY_GENERAL_ALIGNMENT, 32);
    assert_int_equal(gguf_get_alignment(g), 64);
    assert_int_equal(gguf_remove_key(g, GGUF_KEY_GENERAL_ALIGNMENT), 0);
    assert_int_equal(gguf_get_alignment(g), GGUF_DEFAULT_ALIGNMENT);
    assert_int_equal(gguf_get_tensor_offset(g, 4), 96);
    gguf_free(g);
    ggml_free(ctx);
    unlink(path);
}

// A program may add a tensor of which it has only set the name: extents and strides are 0.
static void a_tensor_without_extents_is_added(void **state) {
    (void) state;
    struct ggml_tensor t = {.name = "bare"}, few = {.name = "few", .ne = {0, 3, 1, 1}};
    struct gguf_context *g = gguf_init_empty();
    gguf_add_tensor(g, &t);
    gguf_add_tensor(g, &few);
    assert_int_equal(gguf_get_n_tensors(g), 2);
    assert_int_equal(gguf_find_tensor(g, "bare"), 0);
    assert_int_equal(gguf_get_tensor_size(g, 0), 0);
    unsigned char *meta = malloc(gguf_get_meta_size(g));
    assert_non_null(meta);
    gguf_get_meta_data(g, meta);
    struct gguf_context *h = gguf_init_from_buffer(meta, gguf_get_meta_size(g), (struct gguf_init_params){.no_alloc = true});
    assert_non_null(h);
    assert_int_equal(gguf_find_tensor(h, "few"), 1);
    gguf_free(g);
    gguf_free(h);
    free(meta);
}

static void many_names_are_found_fast(void **state) {
    (void) state;
    const int n = 100000;
    struct gguf_context *g = gguf_init_empty();
    char key[32];
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "key.%d", i);
        gguf_set_val_i32(g, key, i);
    }
    unsigned char *meta = malloc(gguf_get_meta_size(g));
    assert_non_null(meta);
    gguf_get_meta_data(g, meta);
    struct gguf_context *h = gguf_init_from_buffer(meta, gguf_get_meta_size(g), (struct gguf_init_params){0});
    assert_non_null(h);
    for (int i = 0; i < n; i++) { // a linear search would take minutes
        snprintf(key, sizeof key, "key.%d", i);
        assert_int_equal(gguf_find_key(h, key), i);
        assert_int_equal(gguf_get_val_i32(h, i), i);
    }
    assert_int_equal(gguf_find_key(h, "key.100000"), -1);
    gguf_free(g);
    gguf_free(h);
    free(meta);
}

static void data_on_a_device_is_fetched(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 300, 1000); // more than the size of the copy buffer
    ggml_set_name(t, "t");
    ggml_backend_buffer_t buffer =
        ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(ggml_backend_dev_get(0)), ggml_nbytes(t));
    assert_non_null(buffer);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    float *numbers = malloc(ggml_nbytes(t));
    assert_non_null(numbers);
    for (int i = 0; i < 300000; i++) {
        numbers[i] = (float) i;
    }
    ggml_backend_tensor_set(t, numbers, 0, ggml_nbytes(t));
    struct gguf_context *g = gguf_init_empty();
    gguf_add_tensor(g, t);
    char path[64];
    gguf_sample_path(path);
    assert_true(gguf_write_to_file(g, path, false));
    struct berth_gguf_map *map = berth_gguf_map_open(path, NULL);
    assert_non_null(map);
    assert_memory_equal(berth_gguf_map_data(map, 0), numbers, ggml_nbytes(t));
    const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE),
                    inside = ((uintptr_t) berth_gguf_map_data(map, 0) / page + 3) * page;
    berth_gguf_map_drop(map, berth_gguf_map_data(map, 0), ggml_nbytes(t));
    berth_gguf_map_drop(map, numbers, 1 << 20); // not bytes of the map
    berth_gguf_map_drop(NULL, numbers, 1);
    FILE *maps = fopen("/proc/self/pagemap", "rb");
    assert_non_null(maps);
    uint64_t entry = UINT64_MAX;
    assert_int_equal(fseek(maps, (long) (inside / page * sizeof entry), SEEK_SET), 0);
    assert_int_equal(fread(&entry, sizeof entry, 1, maps), 1);
    fclose(maps);
    assert_true(entry >> 63 == 0);                                             // the page is not resident
    assert_memory_equal(berth_gguf_map_data(map, 0), numbers, ggml_nbytes(t)); // the page is read from the file again
    berth_gguf_map_close(map);
    gguf_free(g);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    free(numbers);
    unlink(path);
}

struct steps {
    size_t n, last, all, stop_at;
};

static bool step(size_t done, size_t all, void *user_data) {
    struct steps *s = user_data;
    assert_true(done >= s->last && done <= all);
    s->last = done;
    s->all = all;
    return ++s->n != s->stop_at;
}

static void maps(void **state) {
    (void) state;
    check_quiet();
    size_t size;
    unsigned char *bytes = gguf_sample_file(&gguf_berth, 9, true, &size);
    char path[64];
    gguf_sample_path(path);
    write_bytes(path, bytes, size);

    struct steps s = {0};
    struct berth_gguf_map_params params = {.progress = step, .user_data = &s, .prefetch = true};
    struct berth_gguf_map *map = berth_gguf_map_open(path, &params);
    assert_non_null(map);
    assert_true(s.n >= 2 && s.last == s.all && s.all == berth_gguf_map_size(map));
    const struct gguf_context *g = berth_gguf_map_meta(map);
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const struct ggml_tensor *t = ggml_get_tensor(berth_gguf_map_tensors(map), gguf_get_tensor_name(g, i));
        assert_ptr_equal(t->data, berth_gguf_map_data(map, i));
        assert_memory_equal(t->data, bytes + gguf_get_data_offset(g) + gguf_get_tensor_offset(g, i), gguf_get_tensor_size(g, i));
    }
    assert_ptr_equal(berth_gguf_map_base(map), berth_gguf_map_data(map, 0));
    assert_null(berth_gguf_map_data(map, gguf_get_n_tensors(g)));
    const size_t used = gguf_get_data_offset(g) + berth_gguf_map_size(map);
    berth_gguf_map_close(map);

    for (size_t stop_at = 1; stop_at <= 2; stop_at++) {
        s = (struct steps){.stop_at = stop_at};
        assert_null(berth_gguf_map_open(path, &params));
        assert_non_null(strstr(berth_last_error(), "stopped"));
    }
    assert_int_equal(truncate(path, (off_t) used), 0); // the padding after the last tensor may be missing
    map = berth_gguf_map_open(path, NULL);
    assert_non_null(map);
    berth_gguf_map_close(map);
    assert_int_equal(truncate(path, (off_t) used - 1), 0);
    assert_null(berth_gguf_map_open(path, NULL));
    assert_non_null(strstr(berth_last_error(), "ends at offset"));
    assert_int_equal(truncate(path, 0), 0);
    assert_null(berth_gguf_map_open(path, NULL));
    assert_null(berth_gguf_map_open("/nonexistent/file", NULL));
    assert_null(berth_gguf_map_open("/dev/zero", NULL));
    assert_null(berth_gguf_map_open("/tmp", NULL));
    assert_null(berth_gguf_map_open(NULL, NULL));
    unlink(path);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(data_of_a_file_within_another),
        cmocka_unit_test(every_source_gives_the_same),
        cmocka_unit_test(what_is_read_is_written_again),
        cmocka_unit_test(strings_keep_their_nuls),
        cmocka_unit_test(alignment_follows_its_key),
        cmocka_unit_test(a_tensor_without_extents_is_added),
        cmocka_unit_test(many_names_are_found_fast),
        cmocka_unit_test(data_on_a_device_is_fetched),
        cmocka_unit_test(maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// test_gguf_edge.c: GGUF files larger than one read step, from sources of every kind, with each allocation failing. Also sizes near
// 2^63, data that cannot be read, and mappings that the caller stops.

#include "support/check.h"

#include "berth-gguf.h"
#include "ggml-backend-impl.h"
#include "gguf.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define N_NUMBERS 40000 // 160 kB: more than one read step of a source of unknown size
#define N_STRINGS 3000

// ---- one file from every kind of source ----

struct file {
    unsigned char *bytes;
    size_t size;
};

// Creates a file with numbers, booleans, a long string, many strings, and two tensors, of which one has a single element.
static struct file file_make(bool with_tensors) {
    static uint32_t numbers[N_NUMBERS];
    static char text[100001];
    static char words[N_STRINGS][24];
    const char *list[N_STRINGS];
    struct gguf_context *g = gguf_init_empty();
    for (int i = 0; i < N_NUMBERS; i++) {
        numbers[i] = (uint32_t) i * 2654435761u;
    }
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < N_STRINGS; i++) {
        snprintf(words[i], sizeof words[i], "word %d of the list", i);
        list[i] = words[i];
    }
    static bool flags[N_NUMBERS];
    flags[7] = true;
    gguf_set_arr_str(g, "first", list, N_STRINGS); // the first key: when it is read, the arena has no chunk yet
    gguf_set_arr_data(g, "numbers", GGUF_TYPE_UINT32, numbers, N_NUMBERS);
    gguf_set_arr_data(g, "flags", GGUF_TYPE_BOOL, flags, N_NUMBERS);
    gguf_set_arr_data(g, "none", GGUF_TYPE_UINT64, NULL, 0);
    gguf_set_arr_str(g, "no words", NULL, 0);
    gguf_set_val_str(g, "text", text);
    gguf_set_val_bool(g, "yes", true);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    struct ggml_tensor *one = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1), "one"),
                       *many = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 3);
    ggml_set_name(many, "many");
    memset(one->data, 1, ggml_nbytes(one));
    memset(many->data, 2, ggml_nbytes(many));
    if (with_tensors) {
        gguf_add_tensor(g, one);
        gguf_add_tensor(g, many);
    }
    char *bytes = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&bytes, &size);
    assert_true(gguf_write_to_file_ptr(g, f, false));
    fclose(f);
    gguf_free(g);
    ggml_free(ctx);
    return (struct file){(unsigned char *) bytes, size};
}

static size_t read_at(void *user, void *out, uint64_t at, size_t size) {
    const struct file *f = user;
    const size_t n = at < f->size ? f->size - (size_t) at : 0;
    memcpy(out, f->bytes + (n > 0 ? at : 0), n < size ? n : size);
    return n < size ? n : size;
}

static void *feed(void *user) {
    const struct file *f = ((void **) user)[0];
    FILE *to = ((void **) user)[1];
    fwrite(f->bytes, 1, f->size, to);
    fclose(to);
    return NULL;
}

enum source { FROM_BUFFER, FROM_CALLBACK, FROM_SIZED_CALLBACK, FROM_PIPE, N_SOURCES };

static struct gguf_context *open_from(enum source source, struct file *f, struct gguf_init_params params) {
    switch (source) {
        case FROM_BUFFER: return gguf_init_from_buffer(f->bytes, f->size, params);
        case FROM_CALLBACK: return gguf_init_from_callback(read_at, f, 1000, UINT64_MAX, params);
        case FROM_SIZED_CALLBACK: return gguf_init_from_callback(read_at, f, 0, f->size, params);
        default: break;
    }
    int ends[2];
    if (pipe(ends) != 0) {
        return NULL;
    }
    pthread_t thread;
    FILE *from = fdopen(ends[0], "r");
    void *job[] = {f, fdopen(ends[1], "w")};
    assert_int_equal(pthread_create(&thread, NULL, feed, job), 0);
    struct gguf_context *g = gguf_init_from_file_ptr(from, params);
    char rest[4096];
    while (fread(rest, 1, sizeof rest, from) > 0) { // drains the pipe so that the writer ends
    }
    pthread_join(thread, NULL);
    fclose(from);
    return g;
}

static void assert_same(const struct gguf_context *g) {
    assert_int_equal(gguf_get_n_kv(g), 7);
    const int64_t numbers = gguf_find_key(g, "numbers"), first = gguf_find_key(g, "first");
    assert_int_equal(gguf_get_arr_n(g, numbers), N_NUMBERS);
    assert_int_equal(((const uint32_t *) gguf_get_arr_data(g, numbers))[999], 999 * 2654435761u);
    assert_true(((const bool *) gguf_get_arr_data(g, gguf_find_key(g, "flags")))[7]);
    assert_string_equal(gguf_get_arr_str(g, first, N_STRINGS - 1), "word 2999 of the list");
    assert_null(gguf_get_arr_str(g, first, N_STRINGS));
    assert_int_equal(strlen(gguf_get_val_str(g, gguf_find_key(g, "text"))), 100000);
    assert_true(gguf_get_val_bool(g, gguf_find_key(g, "yes")));
    assert_int_equal(gguf_get_arr_type(g, gguf_find_key(g, "text")), GGUF_TYPE_COUNT);
    assert_int_equal(gguf_get_arr_type(g, numbers), GGUF_TYPE_UINT32);
}

static void every_source(void **state) {
    (void) state;
    check_quiet();
    struct file all = file_make(true), keys = file_make(false);
    for (int source = 0; source < N_SOURCES; source++) {
        struct ggml_context *tensors = NULL;
        const bool is_pipe = source == FROM_PIPE;
        struct gguf_init_params params = {.ctx = is_pipe ? NULL : &tensors};
        struct gguf_context *g = open_from((enum source) source, is_pipe ? &keys : &all, params);
        assert_non_null(g);
        assert_same(g);
        if (!is_pipe) {
            assert_int_equal(((const unsigned char *) ggml_get_tensor(tensors, "many")->data)[95], 2);
        }
        gguf_free(g);
        ggml_free(tensors);
    }
    struct ggml_context *tensors = NULL;
    assert_null(open_from(FROM_PIPE, &all, (struct gguf_init_params){.ctx = &tensors})); // reading data requires a seekable file
    assert_non_null(strstr(berth_last_error(), "seekable"));
    free(all.bytes);
    free(keys.bytes);
}

static void every_allocation_fails(void **state) {
    (void) state;
    check_quiet();
    struct file all = file_make(true), keys = file_make(false);
    for (int source = 0; source < N_SOURCES; source++) {
        int64_t n = 0;
        for (bool is_sound = false; !is_sound; n++) {
            assert_true(n < 1000);
            berth_clear_error();
            struct ggml_context *tensors = NULL;
            berth_alloc_watch(true);
            berth_alloc_fail_at(n + 1);
            struct gguf_context *g = open_from((enum source) source, source == FROM_PIPE ? &keys : &all,
                (struct gguf_init_params){.ctx = source == FROM_PIPE ? NULL : &tensors});
            is_sound = g != NULL && berth_last_error()[0] == '\0';
            if (g == NULL) {
                assert_non_null(strstr(berth_last_error(), "out of memory"));
                assert_null(tensors);
            } else {
                assert_same(g);
            }
            gguf_free(g);
            ggml_free(tensors);
            assert_int_equal(berth_alloc_alive(), 0);
            berth_alloc_fail_at(0);
            berth_alloc_watch(false);
        }
        assert_true(n > 8);
    }
    free(all.bytes);
    free(keys.bytes);
}

// Callbacks that return 0 bytes and that return more bytes than requested.
static size_t returns_nothing(void *user, void *out, uint64_t at, size_t size) {
    (void) user, (void) out, (void) at, (void) size;
    return 0;
}

static size_t returns_too_much(void *user, void *out, uint64_t at, size_t size) {
    (void) user, (void) out, (void) at;
    return size + 1;
}

static void broken_sources(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *tensors = NULL;
    const struct gguf_init_params params = {.ctx = &tensors};
    assert_null(gguf_init_from_callback(returns_nothing, NULL, 0, UINT64_MAX, params));
    assert_null(gguf_init_from_callback(returns_too_much, NULL, 0, UINT64_MAX, params));
    struct file all = file_make(true);
    all.size -= 64;
    assert_null(gguf_init_from_callback(read_at, &all, 0, UINT64_MAX, params));
    assert_non_null(strstr(berth_last_error(), "ends in the data"));
    assert_null(gguf_init_from_callback(read_at, &all, 0, all.size + 64, params)); // max_expected_size is larger than the data
    assert_non_null(strstr(berth_last_error(), "ends in the data"));
    char path[] = "/tmp/berth-odd-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w+");
    fwrite(all.bytes, 1, all.size, f);
    fseek(f, 10, SEEK_END); // after the end of the file
    assert_null(gguf_init_from_file_ptr(f, params));
    fclose(f);
    f = fdopen(open(path, O_WRONLY), "w"); // opened for writing only
    assert_null(gguf_init_from_file_ptr(f, params));
    assert_non_null(strstr(berth_last_error(), "cannot be read"));
    fclose(f);
    unlink(path);
    free(all.bytes);
}

// ---- sizes near 2^63 ----

static struct ggml_tensor *huge(struct ggml_context *ctx, const char *name, int64_t n) {
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, n);
    assert_false(berth_is_poison(t));
    return ggml_set_name(t, name);
}

// A pipe cannot seek to the tensors, and need not if there are none.
static void keys_from_a_pipe(void **state) {
    (void) state;
    check_quiet();
    static const unsigned char bytes[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
        0, // no tensors, one key
        1, 0, 0, 0, 0, 0, 0, 0, 'k', 0, 0, 0, 0, 7};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, sizeof bytes), sizeof bytes);
    close(ends[1]);
    FILE *from = fdopen(ends[0], "rb");
    struct ggml_context *tensors = NULL;
    struct gguf_context *g = gguf_init_from_file_ptr(from, (struct gguf_init_params){false, &tensors});
    assert_non_null(g);
    assert_non_null(tensors);
    assert_int_equal(gguf_get_val_u8(g, gguf_find_key(g, "k")), 7);
    gguf_free(g);
    ggml_free(tensors);
    fclose(from);
}

static void sizes_at_the_edge(void **state) {
    (void) state;
    check_quiet();
    struct gguf_context *g = gguf_init_empty();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const int64_t half = (int64_t) 1 << 62;
    gguf_add_tensor(g, huge(ctx, "a", half));
    gguf_add_tensor(g, huge(ctx, "b", half)); // the sum is 2^63, one more than allowed
    assert_non_null(strstr(berth_last_error(), "exceed 2^63"));
    gguf_add_tensor(g, huge(ctx, "c", half - 64));
    assert_int_equal(gguf_get_n_tensors(g), 2);
    gguf_add_tensor(g, huge(ctx, "d", 1));
    assert_int_equal(gguf_get_n_tensors(g), 3);
    berth_clear_error();
    gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, 1u << 31); // the padding alone exceeds 2^63
    assert_non_null(strstr(berth_last_error(), "more than 2^63 bytes"));
    assert_int_equal(gguf_get_alignment(g), GGUF_DEFAULT_ALIGNMENT);
    assert_int_equal(gguf_find_key(g, GGUF_KEY_GENERAL_ALIGNMENT), -1);
    gguf_set_tensor_type(g, "d", GGML_TYPE_F32); // four bytes and one byte have the same padded size
    assert_int_equal(gguf_get_tensor_type(g, 2), GGML_TYPE_F32);
    berth_clear_error();
    gguf_set_tensor_type(g, "a", GGML_TYPE_F16);
    assert_non_null(strstr(berth_last_error(), "cannot be of type"));
    gguf_set_tensor_type(g, "c", GGML_TYPE_F16);
    assert_int_equal(gguf_get_tensor_type(g, 1), GGML_TYPE_I8);
    struct ggml_tensor *t = huge(ctx, "e", 4);
    t->ne[0] = -4;
    gguf_add_tensor(g, t);
    assert_non_null(strstr(berth_last_error(), "not valid in a file"));
    t->ne[0] = t->ne[1] = (int64_t) 1 << 31; // 2^62 elements, but 2^64 bytes
    t->type = GGML_TYPE_F32;
    gguf_add_tensor(g, t);
    assert_non_null(strstr(berth_last_error(), "not valid in a file"));
    t->ne[0] = 0; // an empty tensor
    t->ne[2] = (int64_t) 1 << 32;
    gguf_add_tensor(g, t);
    assert_non_null(strstr(berth_last_error(), "not valid in a file"));
    gguf_set_arr_data(g, GGUF_KEY_GENERAL_ALIGNMENT, GGUF_TYPE_UINT32, (const uint32_t[]){32}, 1);
    assert_non_null(strstr(berth_last_error(), "must be one u32"));
    gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, 0);
    assert_non_null(strstr(berth_last_error(), "must be a power of two"));
    gguf_set_val_i32(g, GGUF_KEY_GENERAL_ALIGNMENT, 32);
    assert_non_null(strstr(berth_last_error(), "must be one u32"));
    gguf_free(g);
    // With the default alignment, these sizes exceed 2^63. So removing the alignment key is refused.
    g = gguf_init_empty();
    gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, 1);
    gguf_add_tensor(g, huge(ctx, "f", half));
    gguf_add_tensor(g, huge(ctx, "g", half - 1));
    assert_int_equal(gguf_get_n_tensors(g), 2);
    assert_int_equal(gguf_remove_key(g, GGUF_KEY_GENERAL_ALIGNMENT), -1);
    assert_int_equal(gguf_get_alignment(g), 1);
    gguf_free(g);
    ggml_free(ctx);
}

// ---- data on a device ----

static void *far_base(struct ggml_backend_buffer *b) {
    (void) b;
    return (void *) 4096; // never accessed
}

static void far_get(struct ggml_backend_buffer *b, const struct ggml_tensor *t, void *data, size_t offset, size_t size) {
    (void) b, (void) t, (void) offset;
    memset(data, 7, size);
}

// A view of a tensor on a device has an address but no buffer.
static void data_of_a_view_on_a_device(void **state) {
    (void) state;
    check_quiet();
    struct ggml_backend_buffer far = {.iface = {.get_base = far_base, .get_tensor = far_get}, .size = 1 << 16};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_tensor *all = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, 64);
    all->buffer = &far, all->data = far_base(&far);
    struct ggml_tensor *part = ggml_set_name(ggml_view_1d(ctx, all, 16, 8), "part");
    assert_null(part->buffer);
    struct gguf_context *g = gguf_init_empty();
    gguf_add_tensor(g, part);
    char *bytes = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&bytes, &size);
    assert_true(gguf_write_to_file_ptr(g, f, false));
    fclose(f);
    const char sevens[16] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
    assert_memory_equal(bytes + gguf_get_meta_size(g), sevens, sizeof sevens);
    free(bytes);
    f = fopen("/dev/null", "w");
    berth_alloc_fail_at(1);
    assert_false(gguf_write_to_file_ptr(g, f, false));
    berth_alloc_fail_at(0);
    assert_non_null(strstr(berth_last_error(), "out of memory"));
    far.iface.get_tensor = NULL;
    assert_false(gguf_write_to_file_ptr(g, f, false));
    assert_non_null(strstr(berth_last_error(), "cannot be read"));
    fclose(f);
    gguf_free(g);
    ggml_free(ctx);
}

// ---- maps ----

static bool until(size_t done, size_t all, void *user) {
    (void) all;
    return done < *(size_t *) user;
}

static void maps_stopped(void **state) {
    (void) state;
    check_quiet();
    char path[] = "/tmp/berth-map-XXXXXX";
    const int fd = mkstemp(path);
    const int64_t n = 20 << 20;
    struct gguf_context *g = gguf_init_empty();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    gguf_add_tensor(g, huge(ctx, "data", n));
    assert_true(fd >= 0 && gguf_write_to_file(g, path, true));
    assert_int_equal(truncate(path, (off_t) (gguf_get_meta_size(g) + (size_t) n)), 0); // a sparse file
    for (size_t limit = 0; limit <= (size_t) n; limit += (size_t) 5 << 20) {
        struct berth_gguf_map_params params = {.prefetch = true, .progress = until, .user_data = &limit};
        assert_null(berth_gguf_map_open(path, &params));
        assert_non_null(strstr(berth_last_error(), "stopped by the caller"));
    }
    size_t all = SIZE_MAX;
    struct berth_gguf_map_params params = {.prefetch = true, .progress = until, .user_data = &all};
    struct berth_gguf_map *map = berth_gguf_map_open(path, &params);
    assert_int_equal(berth_gguf_map_size(map), n);
    berth_gguf_map_close(map);
    params.read = true;
    for (int i = 1; i < 4; i++) {
        berth_alloc_fail_at(i);
        map = berth_gguf_map_open(path, &params);
        berth_alloc_fail_at(0);
        assert_null(map);
    }
    assert_null(berth_gguf_map_meta(NULL));
    assert_null(berth_gguf_map_tensors(NULL));
    assert_null(berth_gguf_map_data(NULL, 0));
    assert_null(berth_gguf_map_base(NULL));
    assert_int_equal(berth_gguf_map_size(NULL), 0);
    gguf_free(g);
    ggml_free(ctx);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source),
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(broken_sources),
        cmocka_unit_test(keys_from_a_pipe),
        cmocka_unit_test(sizes_at_the_edge),
        cmocka_unit_test(data_of_a_view_on_a_device),
        cmocka_unit_test(maps_stopped),
    };
    return cmocka_run_group_tests_name("gguf_odd", tests, NULL, NULL);
}

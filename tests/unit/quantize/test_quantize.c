// SPDX-License-Identifier: MIT
// test_quantize.c: tests importance matrices (quantize/imatrix.c): both formats are read, invalid files are refused, matrices are
// collected and written. Tests rows that several threads quantise (quantize/rows.c): the bytes and errors are those of one thread.
// Tests files that are split, joined, given other keys (quantize/rewrite.c) and quantised (quantize/file.c). Each allocation fails
// once.

#include "support/model_sample.h"

#include "quantize/quantize.h"

#include <string.h>

#define MODEL "tests/data/tales-3m-q8_0.gguf"

static void path_new(char path[32]) {
    snprintf(path, 32, "/tmp/berth-quantize-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

// ---- importance matrices ----

static const char weight_name[] = "blk.0.ffn_up.weight";

// Writes sums of two matrices of four columns. The second matrix was never used.
static void sums_write(const char *path, int64_t n_counts) {
    static const float sums[8] = {2, 4, 6, 8, 1, 1, 1, 1}, counts[2] = {2, 0};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    struct gguf_context *g = gguf_init_empty();
    struct ggml_tensor *s = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 2);
    struct ggml_tensor *c = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, n_counts);
    memcpy(s->data, sums, sizeof sums);
    memcpy(c->data, counts, (size_t) n_counts * sizeof(float));
    ggml_format_name(s, "%s.in_sum2", weight_name);
    ggml_format_name(c, "%s.counts", weight_name);
    gguf_add_tensor(g, s);
    gguf_add_tensor(g, c);
    assert_true(gguf_write_to_file(g, path, false));
    gguf_free(g);
    ggml_free(ctx);
}

static void dat_write(const char *path, int32_t n_values) {
    static const float values[8] = {2, 4, 6, 8, -1, NAN, 1, 1};
    const int32_t head[] = {1, (int32_t) strlen(weight_name)}, numbers[] = {2, n_values};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(head, 4, 2, file);
    fwrite(weight_name, 1, strlen(weight_name), file);
    fwrite(numbers, 4, 2, file);
    fwrite(values, 4, 8, file);
    fclose(file);
}

static void check_values(const char *path, const float *want) {
    struct ggml_tensor weight = {.ne = {4, 3, 2, 1}};
    struct model_error error = {""};
    struct imatrix *m = imatrix_open(path, &error);
    bool is_wrong; // the file has the matrix, but its shape is not that of the weight
    if (m == NULL) {
        fail_msg("%s", error.text);
    }
    snprintf(weight.name, sizeof weight.name, "%s", weight_name);
    const float *values = imatrix_find(m, &weight, &is_wrong);
    assert_false(is_wrong);
    assert_non_null(values);
    assert_memory_equal(values, want, 8 * sizeof *want);
    weight.ne[2] = 1;
    assert_null(imatrix_find(m, &weight, &is_wrong));
    assert_true(is_wrong);
    snprintf(weight.name, sizeof weight.name, "other");
    assert_null(imatrix_find(m, &weight, &is_wrong));
    assert_false(is_wrong);
    imatrix_free(m);
}

static void check_refused(const char *path, const char *why) {
    struct model_error error = {""};
    assert_null(imatrix_open(path, &error));
    if (strstr(error.text, why) == NULL) {
        fail_msg("'%s', expected '%s'", error.text, why);
    }
}

static void test_imatrix_read(void **state) {
    (void) state;
    berth_alloc_watch(true);
    char path[32];
    bool is_wrong;
    path_new(path);
    sums_write(path, 2);
    check_values(path, (const float[]){1, 2, 3, 4, 1, 1, 1, 1}); // columns of a matrix that was never used get 1
    dat_write(path, 8);
    check_values(path, (const float[]){1, 2, 3, 4, 1, 1, 0.5f, 0.5f});
    sums_write(path, 1);
    check_refused(path, "has no matching '...counts'");
    dat_write(path, 9);
    check_refused(path, "the file ends within the values of a tensor");
    check_refused("/nowhere", "/nowhere: ");
    check_refused(MODEL, "the file contains no importance matrix");
    assert_null(imatrix_find(NULL, &(struct ggml_tensor){.name = "x"}, &is_wrong));
    imatrix_free(NULL);
    unlink(path);
    assert_int_equal(berth_alloc_alive(), 0);
}

static bool collect_stop(void *user) {
    (void) user;
    return true;
}

// Collects an importance matrix over one batch of a small model, writes and reads it. Every matrix that the test looks for must
// have values.
static bool collect_run(const char *model_path, const char *out, struct model_error *error) {
    const struct model_options options = {.path = model_path, .device = "CPU", .n_threads = 1, .n_ctx = 8, .n_batch = 8};
    const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct imatrix_collector c = {0};
    struct workbench m;
    int64_t n_tensors = 0;
    if (!workbench_open(&m, &options, error)) {
        return false;
    }
    bool ok = workbench_session_open(&m, &options, error) && imatrix_collector_init(&c, m.model, error);
    if (ok) {
        ggml_backend_sched_set_eval_callback(m.session->sched, imatrix_collector_eval, &c);
        ok = session_decode(m.session, tokens, 8, error) && (!c.has_failed || model_fail(error, "out of memory"));
    }
    FILE *file = ok ? fopen(out, "wb") : NULL;
    if (file != NULL) {
        const struct imatrix_source source = {.text = "text.txt", .n_chunks = 1, .n_ctx = 8};
        ok = imatrix_collector_write(&c, &source, file, &n_tensors, error);
        fclose(file);
    }
    struct imatrix *im = ok ? imatrix_open(out, error) : NULL;
    if (im != NULL) {
        const struct ggml_tensor *w = m.model->weights[0].file;
        for (size_t i = 0; i < m.model->n_weights; i++) {
            bool is_wrong;
            w = m.model->weights[i].file;
            const bool is_matrix = strstr(w->name, "attn_q.weight") != NULL || strstr(w->name, "ffn_down.weight") != NULL;
            const float *values = imatrix_find(im, w, &is_wrong);
            assert_false(is_wrong);
            assert_true(!is_matrix || values != NULL);
        }
        assert_true(n_tensors >= 7 * m.model->params.n_layer);
        imatrix_free(im);
    }
    if (ok) {
        c.is_stopped = collect_stop; // a graph that is stopped early is not a failure
        session_reset(m.session);
        ok = session_decode(m.session, tokens, 8, error);
    }
    imatrix_collector_fini(&c);
    workbench_close(&m);
    return ok && im != NULL;
}

static void test_imatrix_collect(void **state) {
    (void) state;
    const struct sample_model sample = sample_model_default();
    char model_path[32], out[32];
    path_new(out);
    snprintf(model_path, sizeof model_path, "/tmp/berth-quantize-XXXXXX");
    sample_model_write(&sample, model_path);
    struct model_error error = {""};
    berth_alloc_watch(true);
    if (!collect_run(model_path, out, &error)) {
        fail_msg("%s", error.text);
    }
    const int64_t n = berth_alloc_made();
    for (int64_t at = 1; at <= n; at++) {
        error.text[0] = '\0';
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        const bool ok = collect_run(model_path, out, &error);
        berth_alloc_fail_at(0);
        assert_int_equal(ok, error.text[0] == '\0');
        assert_int_equal(berth_alloc_alive(), 0);
    }
    print_message("%lld allocations, each failed once\n", (long long) n);
    unlink(model_path);
    unlink(out);
}

// ---- rows ----

static void test_rows(void **state) {
    (void) state;
    static const enum ggml_type types[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_IQ4_XS, GGML_TYPE_F16};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 8 << 20});
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 512, 301, 2); // the rows do not divide evenly into bands
    struct check_rng r = check_rng_new(7);
    float *weights = calloc(1024, sizeof *weights);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *) t->data)[i] = (float) check_rng_below(&r, 2001) / 1000 - 1;
    }
    for (int i = 0; i < 1024; i++) {
        weights[i] = (float) (1 + check_rng_below(&r, 100));
    }
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const size_t size = ggml_row_size(types[k], 512) * 602;
        struct quantize_rows rows = {.tensor = t, .type = types[k], .weights = weights, .n_threads = 1};
        char *serial = malloc(size), *threaded = malloc(size);
        double squares[2] = {0, 0};
        assert_true(quantize_rows_run(&rows, serial, &squares[0]));
        rows.n_threads = 5;
        assert_true(quantize_rows_run(&rows, threaded, &squares[1]));
        assert_memory_equal(serial, threaded, size);
        assert_true(squares[0] == squares[1] && squares[0] > 0);
        for (int at = 1; at <= 4; at++) { // a failed allocation in a thread is a failure
            berth_alloc_watch(true);
            berth_alloc_fail_at(at);
            assert_false(quantize_rows_run(&rows, threaded, &squares[1]));
            berth_alloc_fail_at(0);
            assert_int_equal(berth_alloc_alive(), 0);
        }
        free(serial);
        free(threaded);
    }
    assert_true(quantize_can_make(GGML_TYPE_Q4_K, false));
    assert_false(quantize_can_make(GGML_TYPE_IQ2_XXS, false));
    assert_true(quantize_can_make(GGML_TYPE_IQ2_XXS, true));
    free(weights);
    ggml_free(ctx);
}

// ---- files ----

// A model file that is quantised, and the counts of that run.
struct all {
    const struct berth_gguf_map *map;
    const char *out;
    struct quantize_totals totals;
    int64_t n_reports;
};

static void count_reports(const char *what, uint64_t done, uint64_t all, const char *text, void *user) {
    struct all *a = user;
    assert_true(*what != '\0' && *text != '\0' && done <= all);
    a->n_reports++;
}

static bool model_quantize(struct all *a, const char *type, struct model_error *error) {
    static struct recipe recipe;
    recipe = (struct recipe){0};
    assert_true(recipe_parse(type, false, &recipe) && recipe_check(&recipe, false, error));
    recipe_set_model(&recipe, berth_gguf_map_meta(a->map), false);
    const struct quantize_job job = {
        .map = a->map, .recipe = &recipe, .n_threads = 2, .watch = {.progress = count_reports, .user = a}};
    struct gguf_context *header = quantize_header(&job, &a->totals, error);
    FILE *file = header != NULL ? fopen(a->out, "wb") : NULL;
    const bool ok = file != NULL && quantize_write(&job, header, file, &a->totals, error);
    if (file != NULL) {
        fclose(file);
    }
    gguf_free(header);
    return ok;
}

static void test_file(void **state) {
    (void) state;
    char path[32];
    path_new(path);
    struct berth_gguf_map *map = berth_gguf_map_open(MODEL, NULL);
    struct all a = {.map = map, .out = path};
    struct model_error error = {""};
    assert_non_null(map);
    berth_alloc_watch(true);
    if (!model_quantize(&a, "q4_0", &error)) {
        fail_msg("%s", error.text);
    }
    const int64_t n = berth_alloc_made();
    assert_true(a.totals.after < a.totals.before && a.totals.n_converted > 20 && a.totals.squares > 0);
    assert_true(a.n_reports > a.totals.n_converted);
    struct gguf_context *g = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(g);
    const int64_t id = gguf_find_tensor(g, "blk.0.ffn_up.weight");
    assert_true(id >= 0 && gguf_get_tensor_type(g, id) == GGML_TYPE_Q4_0);
    assert_int_equal(gguf_get_val_u32(g, gguf_find_key(g, "general.file_type")), 2);
    gguf_free(g);
    for (int64_t at = 1; at <= n; at += 1 + n / 60) {
        error.text[0] = '\0';
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        assert_false(model_quantize(&a, "q4_0", &error));
        berth_alloc_fail_at(0);
        assert_true(error.text[0] != '\0');
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_gguf_map_close(map);
    static struct recipe recipe;
    assert_true(recipe_parse("iq2_xxs", false, &recipe));
    error.text[0] = '\0';
    assert_false(recipe_check(&recipe, false, &error));
    assert_non_null(strstr(error.text, "requires an importance matrix"));
    unlink(path);
}

// Writes a complete file with header g and the data that `bytes` provides. Frees g.
static bool header_write(const char *path, struct gguf_context *g, model_bytes_t bytes, void *user) {
    struct model_error error = {""};
    FILE *file = fopen(path, "wb");
    const bool ok = file != NULL && model_write(file, g, bytes, user, &error);
    assert_int_equal(fclose(file), 0);
    gguf_free(g);
    return ok;
}

static void test_split_and_join(void **state) {
    (void) state;
    berth_alloc_watch(true);
    char out[32], parts[32][4096];
    struct model_error error = {""};
    path_new(out);
    struct berth_gguf_map *map = berth_gguf_map_open(MODEL, NULL);
    struct rewrite_split s = {.map = map, .max_size = 1 << 20, .max_tensors = INT64_MAX};
    assert_true(rewrite_split_init(&s, &error));
    assert_true(s.n_parts > 2 && s.n_parts < 32);
    for (int64_t no = 0; no < s.n_parts; no++) {
        assert_true(rewrite_part_path(parts[no], out, no, s.n_parts, &error));
        struct gguf_context *g = rewrite_split_next(&s, &error);
        assert_non_null(g);
        assert_true(header_write(parts[no], g, rewrite_split_bytes, &s));
    }
    assert_int_equal(s.end, s.n_tensors);

    struct model m = {0};
    assert_true(model_files_open(&m, parts[0], false, &error));
    struct gguf_context *g = rewrite_join_header(&m, parts[0], &error);
    assert_non_null(g);
    assert_true(header_write(out, g, rewrite_join_bytes, &m));
    m.n_files--;
    assert_null(rewrite_join_header(&m, parts[0], &error)); // tensors are missing
    assert_non_null(strstr(error.text, "tensors, but the keys state"));
    m.n_files++;
    model_files_close(&m);
    FILE *a = fopen(MODEL, "rb"), *b = fopen(out, "rb");
    for (int x; (x = fgetc(a)) != EOF;) {
        assert_int_equal(x, fgetc(b));
    }
    assert_int_equal(fgetc(b), EOF);
    fclose(a);
    fclose(b);

    m = (struct model){0};
    error.text[0] = '\0';
    assert_true(model_files_open(&m, MODEL, false, &error));
    assert_null(rewrite_join_header(&m, MODEL, &error));
    assert_non_null(strstr(error.text, "key 'split.count' is missing"));
    model_files_close(&m);
    m = (struct model){0};
    error.text[0] = '\0';
    assert_false(model_files_open(&m, parts[1], false, &error));
    model_files_close(&m);
    for (int64_t no = 0; no < s.n_parts; no++) {
        unlink(parts[no]);
    }
    rewrite_split_fini(&s);
    berth_alloc_fail_at(1);
    assert_false(rewrite_split_init(&s, &error));
    berth_alloc_fail_at(0);
    rewrite_split_fini(&s);
    berth_gguf_map_close(map);
    unlink(out);
    assert_int_equal(berth_alloc_alive(), 0);
}

static void difference_count(const char *kind, const char *name, const char *how, void *user) {
    int *n = user;
    assert_true(*kind != '\0' && *name != '\0' && *how != '\0');
    n[kind[0] == 't']++;
}

static void test_compare(void **state) {
    (void) state;
    char path[32];
    int n[2] = {0, 0}; // keys, tensors
    path_new(path);
    struct berth_gguf_map *a = berth_gguf_map_open(MODEL, NULL);
    struct all all = {.map = a, .out = path};
    struct model_error error = {""};
    assert_true(model_quantize(&all, "q4_0", &error));
    struct berth_gguf_map *b = berth_gguf_map_open(path, NULL);
    files_compare(a, a, difference_count, n);
    assert_true(n[0] == 0 && n[1] == 0);
    files_compare(a, b, difference_count, n);
    assert_int_equal(n[0], 1); // general.file_type
    assert_int_equal(n[1], all.totals.n_converted);
    berth_gguf_map_close(a);
    berth_gguf_map_close(b);
    unlink(path);
}

static void test_keys(void **state) {
    (void) state;
    static const struct {
        const char *word;
        enum gguf_type type;
    } rows[] = {{"a=true", GGUF_TYPE_BOOL}, {"b=3", GGUF_TYPE_UINT32}, {"c=-3", GGUF_TYPE_INT32}, {"d=1.5", GGUF_TYPE_FLOAT32},
        {"e=x=y", GGUF_TYPE_STRING}, {"f=", GGUF_TYPE_STRING}};
    static const char *const wrong[] = {"a", "=1", "a=1", "b=-1", "b=4294967296", "c=x", "d=nan", "general.alignment=64", "g=1"};
    struct gguf_context *g = gguf_init_empty();
    struct model_error error = {""};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(rewrite_key_set(g, rows[i].word, &error));
        assert_int_equal(gguf_get_kv_type(g, gguf_find_key(g, (char[]){rows[i].word[0], '\0'})), rows[i].type);
    }
    assert_string_equal(gguf_get_val_str(g, gguf_find_key(g, "e")), "x=y");
    gguf_set_arr_data(g, "g", GGUF_TYPE_UINT8, "123", 3);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        error.text[0] = '\0';
        assert_false(rewrite_key_set(g, wrong[i], &error));
        assert_true(error.text[0] != '\0');
    }
    assert_true(rewrite_key_set(g, "b=4294967295", &error));
    assert_int_equal(gguf_get_val_u32(g, gguf_find_key(g, "b")), UINT32_MAX);
    gguf_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_imatrix_read),
        cmocka_unit_test(test_imatrix_collect),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_split_and_join),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: MIT
// prop_model.c: model files with random changes in their headers. Every use of them must end with a result or an error message.

#include "support/model_sample.h"
#include "support/vocab_sample.h"

#include <fcntl.h>

#define N_CASES check_cases(3000)
#define N_ARCH_CASES check_cases(100)

// Copies the tokenizer's keys into the keys of a model.
static void vocab_put(struct gguf_context *g, void *keys) {
    const struct gguf_context *from = keys;
    for (int64_t i = 0; i < gguf_get_n_kv(from); i++) {
        const char *key = gguf_get_key(from, i);
        if (strncmp(key, "tokenizer.", 10) != 0) {
            continue;
        }
        switch (gguf_get_kv_type(from, i)) {
            case GGUF_TYPE_STRING: gguf_set_val_str(g, key, gguf_get_val_str(from, i)); break;
            case GGUF_TYPE_UINT32: gguf_set_val_u32(g, key, gguf_get_val_u32(from, i)); break;
            case GGUF_TYPE_BOOL: gguf_set_val_bool(g, key, gguf_get_val_bool(from, i)); break;
            default: {
                const size_t n = gguf_get_arr_n(from, i);
                if (gguf_get_arr_type(from, i) == GGUF_TYPE_STRING) {
                    const char **texts = malloc(n * sizeof *texts);
                    for (size_t k = 0; k < n; k++) {
                        texts[k] = gguf_get_arr_str(from, i, k);
                    }
                    gguf_set_arr_str(g, key, texts, n);
                    free(texts);
                } else {
                    gguf_set_arr_data(g, key, gguf_get_arr_type(from, i), gguf_get_arr_data(from, i), n);
                }
            }
        }
    }
}

static bool tokenize(const struct model *model, struct check_rng *r) {
    struct model_error error = {""};
    struct vocab *v = vocab_new(berth_gguf_map_meta(model->file), model->params.n_vocab, &error);
    if (v == NULL) {
        assert_true(error.text[0] != '\0');
        return false;
    }
    char text[600], piece[64];
    struct token_list list = {0};
    const size_t n = sample_random_text(r, text, sizeof text, true);
    assert_true(vocab_encode(v, text, n, ENCODE_ADD | ENCODE_PARSE, &list, &error));
    for (size_t i = 0; i < list.n; i++) {
        assert_in_range(list.ids[i], 0, model->params.n_vocab - 1);
        vocab_piece(v, list.ids[i], piece, sizeof piece);
        vocab_is_end(v, list.ids[i]);
    }
    token_list_fini(&list);
    vocab_free(v);
    return true;
}

// Whether the model can be planned, or loaded and computed. The results do not matter.
static bool model_try(struct model *model, const struct model_devices *devices, bool plan_only) {
    static const int32_t tokens[] = {1, 0, 2, 3, 2, 1, 0, 0, 3, 1, 2};
    struct model_error error = {""};
    const struct session_params params = {
        .n_ctx = 33, .n_batch = 9, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .plan_only = plan_only};
    struct session *s =
        model_place(model, devices, plan_only, NULL, NULL, &error) ? session_new(model, devices, &params, &error) : NULL;
    bool ok = s != NULL && session_reserve(s, &error);
    ok = ok && (plan_only || session_decode(s, tokens, sizeof tokens / sizeof *tokens, &error));
    assert_true(ok || error.text[0] != '\0');
    session_free(s);
    return ok;
}

static bool file_try(const char *path, const struct model_devices *devices) {
    struct model_error error = {""};
    struct model *model = model_open(path, &error);
    const bool ok = model != NULL && model_try(model, devices, false);
    model_free(model);
    return ok;
}

// Changes the first n_first bytes of the header; 0: the complete header. Returns the number of models that could be used.
static int file_mutate(const char *path, int n_cases, size_t n_first, uint64_t seed, bool has_vocab) {
    struct model_error error = {""};
    struct model_devices devices;
    assert_true(model_devices_open(&devices, "CPU", 1, &error));
    struct model *whole = model_open(path, &error);
    assert_non_null(whole);
    const size_t n_header = gguf_get_data_offset(berth_gguf_map_meta(whole->file));
    const size_t n_range = n_first > 0 && n_first < n_header ? n_first : n_header;
    model_free(whole);

    const int fd = open(path, O_RDWR);
    unsigned char *header = malloc(n_header);
    struct check_rng r = check_rng_new(seed);
    int n_opened = 0, n_tokenized = 0, n_planned = 0, n_used = 0;
    assert_int_equal(pread(fd, header, n_header, 0), n_header);
    for (int i = 0; i < n_cases; i++) {
        size_t at[4];
        const size_t n = check_rng_below(&r, 4); // 0: no change
        for (size_t k = 0; k < n; k++) {
            at[k] = check_rng_below(&r, n_range);
            const uint8_t was = header[at[k]],
                          other[] = {(uint8_t) check_rng_next(&r), (uint8_t) (was + 1), (uint8_t) (was - 1), 0};
            assert_int_equal(pwrite(fd, &other[check_rng_below(&r, 4)], 1, (off_t) at[k]), 1);
        }
        error.text[0] = '\0';
        struct model *model = model_open(path, &error);
        assert_true(model != NULL || error.text[0] != '\0');
        if (model != NULL) {
            const bool can_plan = model_try(model, &devices, true);
            n_opened++;
            n_planned += can_plan;
            n_tokenized += has_vocab && tokenize(model, &r);
            n_used += can_plan && file_try(path, &devices);
            model_free(model);
        }
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(pwrite(fd, &header[at[k]], 1, (off_t) at[k]), 1);
        }
    }
    printf("%d of %d opened, %d tokenized, %d planned, %d used\n", n_opened, n_cases, n_tokenized, n_planned, n_used);
    assert_true(n_opened < n_cases && (!has_vocab || n_tokenized > 0) && n_planned > 0);
    close(fd);
    free(header);
    model_devices_close(&devices);
    return n_used;
}

static void mutate(const struct sample_model *m, uint64_t seed, bool has_vocab) {
    char path[] = "/tmp/berth-model-XXXXXX";
    sample_model_write(m, path);
    assert_true(file_mutate(path, N_CASES, 0, seed, has_vocab) > N_CASES / 8);
    unlink(path);
}

static void test_mutants(void **state) {
    (void) state;
    struct sample_vocab v;
    sample_vocab_init(&v);
    struct sample_model m = sample_model_default();
    m.n_vocab = (int) v.n_tokens;
    m.n_layer = 1;
    m.last = vocab_put;
    m.last_arg = sample_vocab_keys(&v, "qwen2");
    mutate(&m, check_seed(11), true);
    gguf_free(m.last_arg);
    sample_vocab_fini(&v);
}

// Without a tokenizer, most of the header decides the graph.
static void test_small_mutants(void **state) {
    (void) state;
    struct sample_model m = sample_model_default();
    m.n_layer = 1;
    m.n_vocab = 8;
    m.has_freqs = true;
    mutate(&m, check_seed(12), false);
    m.n_expert = 3;
    m.has_freqs = false;
    m.has_output = false;
    mutate(&m, check_seed(13), false);
}

// Changes the keys of every architecture, which decide its graph.
static void test_archs(void **state) {
    (void) state;
    static const char *const archs[] = {
        "gemma2", "gemma3", "phi3", "command-r", "granite", "glm4", "gpt2", "olmoe", "gpt-oss", "deepseek2", "glm4moe", "mamba2"};
    for (size_t i = 0; getenv("BERTH_MAKE_MODEL") != NULL && i < sizeof archs / sizeof *archs; i++) {
        char path[] = "/tmp/berth-model-XXXXXX", command[512];
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        snprintf(command, sizeof command, "%s %s deep f32 %s 1 N=2", getenv("BERTH_MAKE_MODEL"), archs[i], path);
        assert_int_equal(system(command), 0);
        assert_true(file_mutate(path, N_ARCH_CASES, 1400, check_seed(20 + i), false) > 0);
        unlink(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutants), cmocka_unit_test(test_small_mutants), cmocka_unit_test(test_archs)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

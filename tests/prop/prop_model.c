// SPDX-License-Identifier: MIT
// Models with bytes changed by chance: opening, tokenizing, placing and planning them ends with a result or an error, never
// otherwise.

#include "support/model_sample.h"
#include "support/vocab_sample.h"

#include <fcntl.h>

#define N_CASES 4000

// The keys of a tokenizer into a model's.
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
    struct vocab *v          = vocab_new(berth_gguf_map_meta(model->file), model->params.n_vocab, &error);
    if (v == NULL) {
        assert_true(error.text[0] != '\0');
        return false;
    }
    char text[600], piece[64];
    struct token_list list = {0};
    const size_t n         = sample_random_text(r, text, sizeof text, true);
    assert_true(vocab_encode(v, text, n, true, true, &list, &error));
    for (size_t i = 0; i < list.n; i++) {
        assert_in_range(list.ids[i], 0, model->params.n_vocab - 1);
        vocab_piece(v, list.ids[i], piece, sizeof piece);
        vocab_is_end(v, list.ids[i]);
    }
    token_list_fini(&list);
    vocab_free(v);
    return true;
}

static bool plan(struct model *model, const struct model_devices *devices) {
    struct model_error error           = {""};
    const struct session_params params = {
        .n_ctx = 33, .n_batch = 9, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .plan_only = true};
    struct session *s =
        model_place(model, devices, true, NULL, NULL, &error) ? session_new(model, devices, &params, &error) : NULL;
    const bool ok = s != NULL && session_reserve(s, &error);
    assert_true(ok || error.text[0] != '\0');
    session_free(s);
    return ok;
}

static void test_mutants(void **state) {
    (void) state;
    char path[]              = "/tmp/berth-model-XXXXXX";
    struct model_error error = {""};
    struct model_devices devices;
    struct sample_vocab v;
    sample_vocab_init(&v);
    struct sample_model m = sample_model_default();
    m.n_vocab             = (int) v.n_tokens;
    m.n_layer             = 1;
    m.last                = vocab_put;
    m.last_arg            = sample_vocab_keys(&v, "qwen2");
    sample_model_write(&m, path);
    assert_true(model_devices_open(&devices, "CPU", 1, &error));
    struct model *whole = model_open(path, &error);
    assert_non_null(whole);
    const size_t n_header = gguf_get_data_offset(berth_gguf_map_meta(whole->file));
    model_free(whole);

    const int fd          = open(path, O_RDWR);
    unsigned char *header = malloc(n_header);
    struct check_rng r    = check_rng_new(check_seed(11));
    int n_opened = 0, n_tokenized = 0, n_planned = 0;
    assert_int_equal(pread(fd, header, n_header, 0), n_header);
    for (int i = 0; i < N_CASES; i++) {
        size_t at[4];
        const size_t n = check_rng_below(&r, 4); // 0: as it is
        for (size_t k = 0; k < n; k++) {
            at[k]                 = check_rng_below(&r, n_header);
            const uint8_t was     = header[at[k]],
                          other[] = {(uint8_t) check_rng_next(&r), (uint8_t) (was + 1), (uint8_t) (was - 1), 0};
            assert_int_equal(pwrite(fd, &other[check_rng_below(&r, 4)], 1, (off_t) at[k]), 1);
        }
        error.text[0]       = '\0';
        struct model *model = model_open(path, &error);
        assert_true(model != NULL || error.text[0] != '\0');
        if (model != NULL) {
            n_opened++;
            n_tokenized += tokenize(model, &r);
            n_planned += plan(model, &devices);
            model_free(model);
        }
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(pwrite(fd, &header[at[k]], 1, (off_t) at[k]), 1);
        }
    }
    printf("%d of %d opened, %d tokenized, %d planned\n", n_opened, N_CASES, n_tokenized, n_planned);
    assert_true(n_opened > N_CASES / 4 && n_opened < N_CASES && n_tokenized > 0 && n_planned > 0);
    close(fd);
    unlink(path);
    free(header);
    model_devices_close(&devices);
    gguf_free(m.last_arg);
    sample_vocab_fini(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutants)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

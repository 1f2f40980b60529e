// SPDX-License-Identifier: MIT
// test_model_lora.c: tests adapters: an adapter gives the same result whether it is merged into the weights or kept separate;
// invalid files are refused with a reason; after a failing allocation no memory is leaked.

#include "support/lora_sample.h"

#define N_TOKENS 20

static struct model_devices devices;

// Computes the logits of a fixed text by a model, with an adapter unless lora is NULL.
static bool logits_compute(const char *path, const char *lora, float scale, float *logits, struct model_error *error) {
    const struct session_params params = {.n_ctx = 32, .n_batch = 32, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32};
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = i * 7 % 40;
    }
    struct model *m = model_open(path, error);
    struct session *s = NULL;
    const bool ok = m != NULL && model_place(m, &devices, false, NULL, NULL, error) &&
                    (lora == NULL || model_lora_add(m, &devices, lora, scale, error)) &&
                    (s = session_new(m, &devices, &params, error)) != NULL && session_decode(s, tokens, N_TOKENS, error);
    if (ok) {
        memcpy(logits, s->logits, 40 * sizeof *logits);
    }
    session_free(s);
    model_free(m);
    return ok;
}

static double distance(const float *a, const float *b) {
    double error = 0, size = 0;
    for (int i = 0; i < 40; i++) {
        error += ((double) a[i] - (double) b[i]) * ((double) a[i] - (double) b[i]);
        size += (double) a[i] * (double) a[i];
    }
    return error / size;
}

static bool merge(const char *path, const char *lora, float scale, const char *out, struct model_error *error) {
    struct model *m = model_open(path, error);
    struct model_lora *l = m != NULL ? lora_open(m, lora, scale, error) : NULL;
    FILE *file = l != NULL ? fopen(out, "wb") : NULL;
    const bool ok = file != NULL && lora_merge(m, l, file, error);
    const bool is_closed = file == NULL || fclose(file) == 0;
    lora_free(l);
    model_free(m);
    return ok && is_closed;
}

struct files {
    char model[32], lora[32], merged[32];
};

static struct files files_make(const struct sample_lora *lora) {
    struct files f = {"/tmp/berth-model-XXXXXX", "/tmp/berth-lora-XXXXXX", "/tmp/berth-merged-XXXXXX"};
    struct sample_model m = sample_model_default();
    sample_model_write(&m, f.model);
    sample_lora_write(lora, &m, f.lora);
    const int fd = mkstemp(f.merged);
    assert_true(fd >= 0);
    close(fd);
    return f;
}

static void files_remove(const struct files *f) {
    unlink(f->model);
    unlink(f->lora);
    unlink(f->merged);
}

static void test_merge(void **state) {
    (void) state;
    const struct sample_lora lora = {.rank = 4, .alpha = 8, .type = GGML_TYPE_F32};
    const struct files f = files_make(&lora);
    struct model_error error = {""};
    float plain[40], adapted[40], twice[40], merged[40];
    assert_true(logits_compute(f.model, NULL, 1, plain, &error) && logits_compute(f.model, f.lora, 1, adapted, &error));
    assert_true(logits_compute(f.model, f.lora, 2, twice, &error) && merge(f.model, f.lora, 1, f.merged, &error));
    assert_true(logits_compute(f.merged, NULL, 1, merged, &error));
    assert_true(distance(plain, adapted) > 1e-2);
    assert_true(distance(adapted, twice) > 1e-2);
    assert_true(distance(adapted, merged) < 1e-10);
    // Subtracting the adapter from the merged model gives the original model.
    assert_true(logits_compute(f.merged, f.lora, -1, merged, &error));
    assert_true(distance(plain, merged) < 1e-10);
    files_remove(&f);
}

static void test_refused(void **state) {
    (void) state;
    static const struct {
        struct sample_lora lora;
        const char *why;
    } rows[] = {
        {{.type_key = "model"}, "not an adapter"},
        {{.kind_key = "control_vector"}, "but must be lora"},
        {{.arch = "qwen2"}, "the adapter is for architecture 'qwen2'"},
        {{.leave_out = "blk.1.ffn_up.weight.lora_b"}, "'blk.1.ffn_up.weight.lora_a' exists, but"},
        {{.stray = "blk.7.ffn_up.weight.lora_a"}, "'blk.7.ffn_up.weight.lora_a' does not match any weight"},
        {{.more = 1}, "do not match 'blk.0.attn_q.weight' [32, 32]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sample_lora lora = rows[i].lora;
        lora.rank = 4;
        lora.type = GGML_TYPE_F32;
        struct model_error error = {""};
        float logits[40];
        const struct files f = files_make(&lora);
        assert_false(logits_compute(f.model, f.lora, 1, logits, &error));
        if (strstr(error.text, rows[i].why) == NULL) {
            print_error("%s\n", error.text);
            fail();
        }
        files_remove(&f);
    }
}

static void test_no_memory(void **state) {
    (void) state;
    const struct sample_lora lora = {.rank = 4, .alpha = 8, .type = GGML_TYPE_F16};
    const struct files f = files_make(&lora);
    float want[40], got[40];
    struct model_error error = {""};
    int64_t n_made = 1, n_failed = 0;
    for (int64_t at = 0; at <= n_made; at++) { // 0: no failure, allocations are counted
        error.text[0] = '\0';
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        const bool ok =
            logits_compute(f.model, f.lora, 1, at == 0 ? want : got, &error) && merge(f.model, f.lora, 1, f.merged, &error);
        if (at == 0) {
            assert_true(ok);
            n_made = berth_alloc_made();
        }
        berth_alloc_fail_at(0);
        assert_true(ok || error.text[0] != '\0');
        assert_true(!ok || at == 0 || memcmp(want, got, sizeof got) == 0);
        n_failed += !ok;
        assert_int_equal(berth_alloc_alive(), 0);
    }
    print_message("%lld of %lld failed allocations caused an error\n", (long long) n_failed, (long long) n_made);
    assert_true(n_failed > n_made / 2);
    berth_alloc_watch(false);
    files_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge), cmocka_unit_test(test_refused), cmocka_unit_test(test_no_memory)};
    struct model_error error = {""};
    check_quiet();
    if (!model_devices_open(&devices, "CPU", 1, &error)) {
        print_error("%s\n", error.text);
        return 1;
    }
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    model_devices_close(&devices);
    return result;
}

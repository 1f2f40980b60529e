// SPDX-License-Identifier: MIT
// Mixes of `berth gguf quantize` beside the reference's own quantiser: the same made model, the same mix, the same type for every
// tensor.

#include "support/llama_oracle.h"

#include "gguf.h"

#include <unistd.h>

struct quantize_params {
    int32_t n_threads, ftype, others[14];
};

static struct quantize_params (*default_params)(void);
static uint32_t (*quantize)(const char *in, const char *out, const struct quantize_params *params);

static void path_new(char *path) {
    snprintf(path, 32, "/tmp/berth-mix-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void types_compare(const char *mix, const char *theirs, const char *ours) {
    const struct gguf_init_params params = {.no_alloc = true};
    struct gguf_context *a = gguf_init_from_file(theirs, params), *b = gguf_init_from_file(ours, params);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(gguf_get_n_tensors(a), gguf_get_n_tensors(b));
    int n_wrong = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(a); i++) {
        const char *name = gguf_get_tensor_name(a, i);
        const int64_t j  = gguf_find_tensor(b, name);
        assert_true(j >= 0);
        if (gguf_get_tensor_type(a, i) != gguf_get_tensor_type(b, j)) {
            print_error("%s: %s is %s there, %s here\n", mix, name, ggml_type_name(gguf_get_tensor_type(a, i)),
                ggml_type_name(gguf_get_tensor_type(b, j)));
            n_wrong++;
        }
    }
    assert_int_equal(
        gguf_get_val_u32(a, gguf_find_key(a, "general.file_type")), gguf_get_val_u32(b, gguf_find_key(b, "general.file_type")));
    gguf_free(a);
    gguf_free(b);
    assert_int_equal(n_wrong, 0);
}

static void compare(const char *arch, const char *words, const char *mix, int file_type) {
    char model[32], theirs[32], ours[32], command[1024];
    struct quantize_params params = default_params();
    params.n_threads              = 2;
    params.ftype                  = file_type;
    path_new(model);
    path_new(theirs);
    path_new(ours);
    snprintf(command, sizeof command, "%s %s tiny f16 %s 1 %s", getenv("BERTH_MAKE_MODEL"), arch, model, words);
    assert_int_equal(system(command), 0);
    assert_int_equal(quantize(model, theirs, &params), 0);
    snprintf(command, sizeof command, "%s gguf quantize %s %s %s > /dev/null", getenv("BERTH_PROGRAM"), model, ours, mix);
    assert_int_equal(system(command), 0);
    printf("%s %s %s\n", arch, words, mix);
    types_compare(mix, theirs, ours);
    unlink(model);
    unlink(theirs);
    unlink(ours);
}

static void test_mixes(void **state) {
    (void) state;
    static const struct {
        const char *arch, *words, *mix;
        int file_type;
    } rows[] = {{"llama", "N=17", "q3_k_m", 12}, {"llama", "N=9", "q4_k_s", 14}, {"llama", "N=9", "Q4_K_M", 15},
        {"llama", "N=3", "q3_k_s", 11}, {"llama", "N=3", "q3_k_l", 13}, {"llama", "N=3", "q5_k_s", 16},
        {"gemma2", "N=9", "q5_k_m", 17}, {"phi3", "N=3", "q3_k_m", 12}, {"phi3", "N=5", "q4_k_s", 14},
        {"phi3", "N=3", "q3_k_l", 13}, {"gpt2", "N=3", "q4_k_m", 15}, {"qwen3moe", "N=2", "q4_k_m", 15},
        {"qwen3moe", "N=2", "q3_k_l", 13}, {"qwen3moe", "N=2", "q3_k_s", 11}, {"qwen3moe", "N=2 X=4", "q3_k_m", 12},
        {"deepseek2", "N=2", "q4_k_m", 15}, {"deepseek2", "N=2", "q3_k_m", 12}, {"mamba2", "N=2", "q5_k_m", 17}};
    if (getenv("BERTH_MAKE_MODEL") == NULL || getenv("BERTH_PROGRAM") == NULL) {
        printf("skipped: BERTH_MAKE_MODEL and BERTH_PROGRAM name no programs\n");
        skip();
    }
    need_reference();
    void *llama                = oracle_load("libllama." ORACLE_BUILD ".so");
    *(void **) &default_params = dlsym(llama, "llama_model_quantize_default_params");
    *(void **) &quantize       = dlsym(llama, "llama_model_quantize");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        compare(rows[i].arch, rows[i].words, rows[i].mix, rows[i].file_type);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixes)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

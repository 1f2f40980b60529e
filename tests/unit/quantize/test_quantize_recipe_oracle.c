// SPDX-License-Identifier: MIT
// test_quantize_recipe_oracle.c: compares the mixes of `berth gguf quantize` with the reference's quantiser: for the same generated
// model and mix, every tensor must have the same type. For some models it compares the written files; for many more models it
// compares Berth's recipe with the types that the reference logs in a dry run.

#include "quantize/quantize.h"
#include "support/llama_oracle.h"

#include "gguf.h"

#include <unistd.h>

struct importance {
    const char *name;
    const float *data;
    size_t n;
};
struct quantize_params {
    int32_t n_threads, ftype, types[2];
    bool others[5], is_dry;
    const struct importance *importance; // ends with a NULL name; NULL: none
    int32_t more[8];
};

static struct quantize_params (*default_params)(void);
static uint32_t (*quantize)(const char *in, const char *out, const struct quantize_params *params);

static void path_new(char *path) {
    snprintf(path, 32, "/tmp/berth-mix-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void types_compare(const char *mix, const char *reference_path, const char *berth_path) {
    const struct gguf_init_params params = {.no_alloc = true};
    struct gguf_context *a = gguf_init_from_file(reference_path, params), *b = gguf_init_from_file(berth_path, params);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(gguf_get_n_tensors(a), gguf_get_n_tensors(b));
    int n_wrong = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(a); i++) {
        const char *name = gguf_get_tensor_name(a, i);
        const int64_t j = gguf_find_tensor(b, name);
        assert_true(j >= 0);
        if (gguf_get_tensor_type(a, i) != gguf_get_tensor_type(b, j)) {
            print_error("%s: %s is %s in the reference, %s in Berth\n", mix, name, ggml_type_name(gguf_get_tensor_type(a, i)),
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
    char model[32], reference_path[32], berth_path[32], command[1024];
    struct quantize_params params = default_params();
    params.n_threads = 2;
    params.ftype = file_type;
    path_new(model);
    path_new(reference_path);
    path_new(berth_path);
    snprintf(command, sizeof command, "%s %s tiny f16 %s 1 %s", getenv("BERTH_MAKE_MODEL"), arch, model, words);
    assert_int_equal(system(command), 0);
    assert_int_equal(quantize(model, reference_path, &params), 0);
    snprintf(command, sizeof command, "%s gguf quantize %s %s %s > /dev/null", getenv("BERTH_PROGRAM"), model, berth_path, mix);
    assert_int_equal(system(command), 0);
    printf("%s %s %s\n", arch, words, mix);
    types_compare(mix, reference_path, berth_path);
    unlink(model);
    unlink(reference_path);
    unlink(berth_path);
}

static void reference_open(void) {
    if (getenv("BERTH_MAKE_MODEL") == NULL || getenv("BERTH_PROGRAM") == NULL) {
        printf("skipped: set BERTH_MAKE_MODEL and BERTH_PROGRAM to make_model and berth\n");
        skip();
    }
    need_reference();
    void *llama = oracle_load("libllama." ORACLE_BUILD ".so");
    *(void **) &default_params = dlsym(llama, "llama_model_quantize_default_params");
    *(void **) &quantize = dlsym(llama, "llama_model_quantize");
}

// ---- dry runs: the reference logs the types that it would use ----

static char reference_log[1 << 20]; // log of the reference
static size_t n_reference_log;

static void reference_log_keep(int level, const char *text, void *user) {
    (void) level;
    (void) user;
    n_reference_log += (size_t) snprintf(reference_log + n_reference_log,
        n_reference_log < sizeof reference_log ? sizeof reference_log - n_reference_log : 0, "%s", text);
    n_reference_log = n_reference_log < sizeof reference_log ? n_reference_log : sizeof reference_log - 1;
}

// Returns the type in the log line of a tensor, such as "[  4/ 21] NAME - [256, 128, 1, 1], type = f16, size = 0.06 MiB -> 0.01 MiB
// (q2_K)". "": the tensor keeps its type. NULL: there is no line.
static const char *reference_log_type(const char *name, char *type, size_t cap) {
    char start[96];
    snprintf(start, sizeof start, "] %s ", name);
    const char *at = strstr(reference_log, start);
    if (at == NULL) {
        return NULL;
    }
    const size_t n = strcspn(at, "\n");
    const char *arrow = strstr(at, "->"), *open = arrow != NULL && arrow < at + n ? strchr(arrow, '(') : NULL;
    snprintf(type, cap, "%.*s", open != NULL ? (int) strcspn(open + 1, ")") : 0, open != NULL ? open + 1 : "");
    return type;
}

// A generated model, and an importance matrix of ones for it.
struct header {
    struct gguf_context *gguf;
    struct ggml_context *tensors;
    struct importance *importance;
    char path[32];
    char words[64];
};

static float ones[1 << 14];

// words: the architecture, the size and further arguments of make_model.
static struct header header_open(const char *words) {
    struct header h = {0};
    char command[512], arch[32], size[8], more[32] = "";
    assert_in_range(sscanf(words, "%31s %7s %31[^\n]", arch, size, more), 2, 3);
    snprintf(h.words, sizeof h.words, "%s", words);
    path_new(h.path);
    snprintf(command, sizeof command, "%s %s %s f16 %s 1 %s", getenv("BERTH_MAKE_MODEL"), arch, size, h.path, more);
    assert_int_equal(system(command), 0);
    h.gguf = gguf_init_from_file(h.path, (struct gguf_init_params){.no_alloc = true, .ctx = &h.tensors});
    h.importance = calloc((size_t) gguf_get_n_tensors(h.gguf) + 1, sizeof *h.importance);
    assert_true(h.gguf != NULL && h.importance != NULL);
    size_t i = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(h.tensors); t != NULL; t = ggml_get_next_tensor(h.tensors, t)) {
        h.importance[i++] = (struct importance){t->name, ones, (size_t) (t->ne[0] * t->ne[2])};
        assert_true(h.importance[i - 1].n <= sizeof ones / sizeof *ones);
    }
    return h;
}

static void header_close(struct header *h) {
    unlink(h->path);
    gguf_free(h->gguf);
    ggml_free(h->tensors);
    free(h->importance);
}

static int mix_compare(const struct header *h, const char *mix, int file_type, bool has_importance) {
    static struct recipe types;
    struct quantize_params params = default_params();
    params.n_threads = 1;
    params.ftype = file_type;
    params.is_dry = true;
    params.importance = has_importance ? h->importance : NULL;
    types = (struct recipe){0};
    assert_true(recipe_parse(mix, false, &types));
    recipe_set_model(&types, h->gguf, has_importance);
    n_reference_log = 0;
    assert_int_equal(quantize(h->path, "/dev/null", &params), 0);
    int n_wrong = 0, n_seen = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(h->tensors); t != NULL; t = ggml_get_next_tensor(h->tensors, t)) {
        char type[32];
        const char *there = reference_log_type(t->name, type, sizeof type), *here = ggml_type_name(recipe_type(&types, t));
        assert_non_null(there);
        n_seen += *there != '\0';
        if (strcmp(*there != '\0' ? there : ggml_type_name(t->type), here) != 0) {
            print_error("%s: %s%s: %s is %s in the reference, %s in Berth\n", h->words, mix,
                has_importance ? " with importance" : "", t->name, *there != '\0' ? there : "unchanged", here);
            n_wrong++;
        }
    }
    assert_true(n_seen > 2);
    assert_int_equal(recipe_file_type(&types), file_type);
    return n_wrong;
}

// Tests every mix with models that have: shared and separate value heads, 8 and other numbers of experts, one matrix for queries,
// keys and values, shared experts after a dense layer, rows that are not a multiple of the block size, a tied output, states, and
// the sizes that count as 70B.
static void test_all(void **state) {
    (void) state;
    static const struct {
        const char *mix;
        int file_type;
    } mixes[] = {{"IQ1_S", 24}, {"IQ1_M", 31}, {"IQ2_XXS", 19}, {"IQ2_XS", 20}, {"IQ2_S", 28}, {"IQ2_M", 29}, {"IQ3_XXS", 23},
        {"IQ3_XS", 22}, {"IQ3_S", 26}, {"IQ3_M", 27}, {"IQ4_NL", 25}, {"IQ4_XS", 30}, {"Q2_K", 10}, {"Q2_K_S", 21},
        {"Q3_K_S", 11}, {"Q3_K_M", 12}, {"Q3_K_L", 13}, {"Q4_K_S", 14}, {"Q4_K_M", 15}, {"Q5_K_S", 16}, {"Q5_K_M", 17}};
    static const char *const models[] = {"llama tiny N=33", "llama tiny N=16 B=1", "llama deep N=17", "llama small N=2",
        "llama tiny N=80 B=1", "llama tiny N=80 B=2", "llama tiny N=80 B=4", "qwen3 tiny N=80 B=1", "qwen3moe tiny N=17 X=8",
        "qwen3moe tiny N=16 X=16", "qwen3moe tiny N=8 X=4", "olmoe tiny N=16", "gpt-oss tiny N=16", "phi3 tiny N=17",
        "gpt2 tiny N=8", "gptneox tiny N=8", "gemma2 tiny N=17", "gemma3 deep N=9", "command-r tiny N=8", "glm4 tiny N=8",
        "glm4moe tiny N=17", "deepseek2 tiny N=33", "granite tiny N=8", "smollm3 tiny N=8", "mamba tiny N=4", "mamba2 tiny N=4",
        "rwkv7 tiny N=8", "bert tiny N=9"};
    int n_wrong = 0, n = 0;
    reference_open();
    reference.llama_log_set(reference_log_keep, NULL);
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        struct header h = header_open(models[k]);
        for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
            n_wrong += mix_compare(&h, mixes[i].mix, mixes[i].file_type, true);
            n_wrong += mix_compare(&h, mixes[i].mix, mixes[i].file_type, false);
            n += 2;
        }
        header_close(&h);
    }
    reference.llama_log_set(log_keep, NULL);
    printf("%d mixes of %zu models\n", n, sizeof models / sizeof *models);
    assert_int_equal(n_wrong, 0);
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
        {"llama", "N=9 B=1", "q4_k_m", 15}, {"deepseek2", "N=2", "q4_k_m", 15}, {"deepseek2", "N=2", "q3_k_m", 12},
        {"mamba2", "N=2", "q5_k_m", 17}};
    reference_open();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        compare(rows[i].arch, rows[i].words, rows[i].mix, rows[i].file_type);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixes), cmocka_unit_test(test_all)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

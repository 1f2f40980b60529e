// SPDX-License-Identifier: MIT
// test_model_oracle.c: compares models with the reference's libllama: the same file and tokens give logits that differ only by the
// rounding of kernels. It covers every kind of layer and of RoPE.

#include "support/llama_oracle.h"

#include "support/lora_sample.h"

#define N_TOKENS 70

// Path of the adapter that both sides use; NULL: none.
static const char *adapter;
static float adapter_scale = 1;

static void reference_run(const char *path, int32_t *tokens, int n_vocab, enum ggml_type cache, float *logits) {
    void *model = reference.llama_model_load_from_file(path, reference.llama_model_default_params());
    struct reference_context_params params = reference.llama_context_default_params();
    params.n_ctx = 256;
    params.n_threads = params.n_threads_batch = 1; // more threads would wait for each other if the machine is busy
    params.type_k = params.type_v = (int32_t) cache;
    params.n_batch = params.n_ubatch = 128;
    void *ctx = model != NULL ? reference.llama_init_from_model(model, params) : NULL;
    if (ctx != NULL && adapter != NULL) {
        void *lora = reference.llama_adapter_lora_init(model, adapter);
        assert_non_null(lora);
        assert_int_equal(reference.llama_set_adapters_lora(ctx, &lora, 1, &adapter_scale), 0);
    }
    if (ctx == NULL || reference.llama_decode(ctx, reference.llama_batch_get_one(tokens, N_TOKENS)) != 0) {
        print_error("the reference: %s\n", reference_text);
        fail();
    }
    memcpy(logits, reference.llama_get_logits_ith(ctx, -1), (size_t) n_vocab * sizeof *logits);
    reference.llama_free(ctx);
    reference.llama_model_free(model);
}

static void berth_run(const char *path, const int32_t *tokens, int n_vocab, enum ggml_type cache, float *logits) {
    struct model_error error = {""};
    struct model_devices d;
    const struct session_params params = {.n_ctx = 256, .n_batch = 128, .cache_k = cache, .cache_v = cache};
    assert_true(model_devices_open(&d, "CPU", 2, &error));
    struct model *model = model_open(path, &error);
    const bool ok = model != NULL && model_place(model, &d, false, NULL, NULL, &error) &&
                    (adapter == NULL || model_lora_add(model, &d, adapter, adapter_scale, &error));
    struct session *s = ok ? session_new(model, &d, &params, &error) : NULL;
    if (s == NULL || !session_reserve(s, &error) || !session_decode(s, tokens, N_TOKENS, &error)) {
        print_error("%s\n", error.text);
        fail();
    }
    memcpy(logits, s->logits, (size_t) n_vocab * sizeof *logits);
    session_free(s);
    model_free(model);
    model_devices_close(&d);
}

static double error_of(const struct sample_model *m, enum ggml_type cache) {
    char path[] = "/tmp/berth-model-XXXXXX";
    int32_t tokens[N_TOKENS];
    float a[64], b[64];
    struct check_rng r = check_rng_new(3);
    double error = 0, size = 0;
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (int32_t) check_rng_below(&r, (uint64_t) m->n_vocab);
    }
    sample_model_write(m, path);
    reference_run(path, tokens, m->n_vocab, cache, a);
    berth_run(path, tokens, m->n_vocab, cache, b);
    unlink(path);
    for (int i = 0; i < m->n_vocab; i++) {
        error += ((double) a[i] - (double) b[i]) * ((double) a[i] - (double) b[i]);
        size += (double) a[i] * (double) a[i];
    }
    assert_true(size > 1e-3);
    return error / size;
}

static void compare(const struct sample_model *m, const char *what) {
    const double nmse = error_of(m, GGML_TYPE_F16);
    printf("%-24s normalised error %.3g\n", what, nmse);
    assert_true(nmse < 1e-5);
}

struct rope_keys {
    const char *arch, *type;
    float factor;
    uint32_t n_orig;
    uint32_t window;
    const char *f32_key; // an additional f32 key; NULL: none
    float value;
};

static void keys_put(struct gguf_context *g, void *x) {
    const struct rope_keys *rope = x;
    char key[96];
    gguf_set_val_str(g, "tokenizer.ggml.model", "no_vocab");
    snprintf(key, sizeof key, "%s.vocab_size", rope->arch);
    gguf_set_val_u32(g, key, 40);
    if (rope->f32_key != NULL) {
        snprintf(key, sizeof key, "%s.%s", rope->arch, rope->f32_key);
        gguf_set_val_f32(g, key, rope->value);
    }
    if (rope->window > 0) {
        snprintf(key, sizeof key, "%s.attention.sliding_window", rope->arch);
        gguf_set_val_u32(g, key, rope->window);
    }
    if (rope->type != NULL) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", rope->arch);
        gguf_set_val_str(g, key, rope->type);
        snprintf(key, sizeof key, "%s.rope.scaling.factor", rope->arch);
        gguf_set_val_f32(g, key, rope->factor);
        snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", rope->arch);
        gguf_set_val_u32(g, key, rope->n_orig);
    }
}

static void test_layers(void **state) {
    (void) state;
    need_reference();
    struct sample_model m = sample_model_default();
    struct rope_keys plain = {.arch = "llama"}, qwen2 = {.arch = "qwen2"}, qwen3 = {.arch = "qwen3"};
    m.last = keys_put;
    m.last_arg = &plain;
    compare(&m, "llama");
    m.has_output = false;
    compare(&m, "llama, tied");
    m.has_freqs = true;
    compare(&m, "llama, frequency factors");
    m.has_freqs = false;
    m.n_expert = 4;
    compare(&m, "llama, experts");
    m.n_expert = 0;
    m.has_bias = true;
    m.arch = "qwen2";
    m.last_arg = &qwen2;
    compare(&m, "qwen2");
    m.has_bias = false;
    m.has_qk_norm = true;
    m.arch = "qwen3";
    m.last_arg = &qwen3;
    compare(&m, "qwen3");
    m.head_size = m.head_size_v = 12;
    compare(&m, "qwen3, wider heads");
}

static void test_rope(void **state) {
    (void) state;
    need_reference();
    struct sample_model m = sample_model_default();
    struct rope_keys keys = {.arch = "llama", .type = "linear", .factor = 3, .n_orig = 64};
    m.last = keys_put;
    m.last_arg = &keys;
    compare(&m, "rope: linear");
    keys.type = "yarn";
    compare(&m, "rope: yarn");
    keys.arch = m.arch = "qwen2";
    m.has_bias = true;
    compare(&m, "rope: yarn, neox");
    keys.type = "none";
    compare(&m, "rope: none");
    m = sample_model_default();
    m.last = keys_put;
    m.last_arg = &keys;
    m.has_long_freqs = true;
    keys = (struct rope_keys){.arch = "llama", .type = "longrope", .factor = 3, .n_orig = 64};
    compare(&m, "rope: longrope, long");
    keys.n_orig = 512;
    compare(&m, "rope: longrope, short");
    keys.f32_key = "rope.scaling.attn_factor";
    keys.value = 1.5f;
    compare(&m, "rope: longrope, attn");
    keys.type = "yarn";
    m.has_long_freqs = false;
    keys.n_orig = 64;
    compare(&m, "rope: yarn, attn");
    // An additional key has an effect in Berth exactly if it has one in the reference.
    static const struct {
        const char *key;
        float value;
    } rows[] = {{"rope.scaling.yarn_beta_fast", 8}, {"rope.scaling.yarn_beta_slow", 3}, {"rope.scaling.yarn_ext_factor", 0.5f},
        {"rope.scaling.yarn_attn_factor", 1.5f}, {"rope.scaling.yarn_log_multiplier", 0.5f}, {"rope.freq_base", 500},
        {"attention.layer_norm_rms_epsilon", 0.1f}, {"attention.scale", 0.2f}, {"logit_scale", 3}, {"embedding_scale", 3},
        {"residual_scale", 3}, {"attention.clamp_kqv", 0.1f}, {"attn_logit_softcapping", 0.5f}, {"final_logit_softcapping", 0.5f},
        {"attention.max_alibi_bias", 0.5f}, {"expert_weights_scale", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        keys.f32_key = rows[i].key;
        keys.value = rows[i].value;
        keys.n_orig = i < 2 ? 100000 : 64; // so that different betas would have an effect
        m.n_expert = strncmp(rows[i].key, "expert", 6) == 0 ? 4 : 0;
        compare(&m, rows[i].key);
    }
}

// Compares caches of several types. The kernels of the reference and of Berth round caches with fewer bits in different ways, so
// the tolerance is larger than in the other tests.
static void test_cache_types(void **state) {
    (void) state;
    need_reference();
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q5_1, GGML_TYPE_Q4_0};
    struct sample_model m = sample_model_default();
    struct rope_keys keys = {.arch = "llama"};
    m.n_embd = 128; // heads of 32 elements
    m.last = keys_put;
    m.last_arg = &keys;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const double nmse = error_of(&m, types[i]);
        printf("cache: %-17s normalised error %.3g\n", ggml_type_name(types[i]), nmse);
        assert_true(nmse < 1e-4);
    }
}

// Like Berth, the reference ignores the window that a file of llama, qwen2 or qwen3 specifies.
static void test_window(void **state) {
    (void) state;
    need_reference();
    struct sample_model m = sample_model_default();
    struct rope_keys keys = {.arch = "llama", .window = N_TOKENS / 4};
    m.last = keys_put;
    m.last_arg = &keys;
    compare(&m, "window: llama");
    m.n_expert = 4;
    compare(&m, "window: llama, experts");
    m.n_expert = 0;
    m.has_bias = true;
    m.arch = keys.arch = "qwen2";
    compare(&m, "window: qwen2");
    m.has_bias = false;
    m.has_qk_norm = true;
    m.arch = keys.arch = "qwen3";
    compare(&m, "window: qwen3");
}

// An adapter has the same effect on both sides.
static void test_adapter(void **state) {
    (void) state;
    need_reference();
    struct sample_model m = sample_model_default();
    struct rope_keys plain = {.arch = "llama"};
    struct sample_lora lora = {.rank = 4, .alpha = 8, .type = GGML_TYPE_F32};
    char path[] = "/tmp/berth-lora-XXXXXX";
    m.last = keys_put;
    m.last_arg = &plain;
    sample_lora_write(&lora, &m, path);
    adapter = path;
    compare(&m, "adapter");
    adapter_scale = -0.7f;
    compare(&m, "adapter, scaled");
    adapter_scale = 1;
    unlink(path);
    snprintf(path, sizeof path, "/tmp/berth-lora-XXXXXX");
    lora.alpha = 0;
    lora.type = GGML_TYPE_F16;
    sample_lora_write(&lora, &m, path);
    compare(&m, "adapter, f16, no alpha");
    unlink(path);
    adapter = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_rope),
        cmocka_unit_test(test_cache_types), cmocka_unit_test(test_window), cmocka_unit_test(test_adapter)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

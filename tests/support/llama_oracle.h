// SPDX-License-Identifier: MIT
// llama_oracle.h: loads the reference's libllama into the process of a test (oracle.h) and declares the functions that tests use.
#pragma once

#include "support/check.h"
#include "support/oracle.h"

// Structs of libllama's API. Fields that tests do not use are declared as bytes.
struct reference_model_params {
    char bytes[80];
};
struct reference_context_params {
    uint32_t n_ctx, n_batch, n_ubatch;
    char bytes[16];
    int32_t n_threads, n_threads_batch;
    char between[16];
    int32_t flash_attn; // -1: on if supported, 0: off, 1: on
    char between_2[48];
    int32_t type_k, type_v;
    char more[16];
    bool embeddings;
    char last[31];
};
struct reference_batch {
    char bytes[56];
};

static struct {
    void (*llama_log_set)(void (*log)(int level, const char *text, void *user), void *user);
    struct reference_model_params (*llama_model_default_params)(void);
    struct reference_context_params (*llama_context_default_params)(void);
    void *(*llama_model_load_from_file)(const char *path, struct reference_model_params params);
    void *(*llama_init_from_model)(void *model, struct reference_context_params params);
    struct reference_batch (*llama_batch_get_one)(int32_t *tokens, int32_t n);
    int32_t (*llama_decode)(void *ctx, struct reference_batch batch);
    float *(*llama_get_logits_ith)(void *ctx, int32_t i);
    float *(*llama_get_embeddings_ith)(void *ctx, int32_t i);
    void *(*llama_adapter_lora_init)(void *model, const char *path);
    int32_t (*llama_set_adapters_lora)(void *ctx, void **adapters, size_t n, float *scales);
    void (*llama_free)(void *ctx);
    void (*llama_model_free)(void *model);
} reference;

static char reference_text[512];

static void log_keep(int level, const char *text, void *user) {
    (void) user;
    if (level == 4) { // level 4: error
        snprintf(reference_text, sizeof reference_text, "%s", text);
    }
}

static bool reference_load(void) {
    void *ggml = oracle_load("libggml." ORACLE_BUILD ".so");
    void *llama = ggml != NULL ? oracle_load("libllama." ORACLE_BUILD ".so") : NULL;
    if (llama == NULL) {
        return false;
    }
    void (*load_all)(const char *folder);
    *(void **) &load_all = dlsym(ggml, "ggml_backend_load_all_from_path");
#define X(name) *(void **) &reference.name = dlsym(llama, #name)
    X(llama_log_set);
    X(llama_model_default_params);
    X(llama_context_default_params);
    X(llama_model_load_from_file);
    X(llama_init_from_model);
    X(llama_batch_get_one);
    X(llama_decode);
    X(llama_get_logits_ith);
    X(llama_get_embeddings_ith);
    X(llama_adapter_lora_init);
    X(llama_set_adapters_lora);
    X(llama_free);
    X(llama_model_free);
#undef X
    reference.llama_log_set(log_keep, NULL);
    load_all(oracle_dir());
    return true;
}

static void need_reference(void) {
    static bool tried, loaded;
    loaded = tried ? loaded : reference_load();
    tried = true;
    if (!loaded) {
        printf("skipped: %s\n", oracle_why());
        skip();
    }
}

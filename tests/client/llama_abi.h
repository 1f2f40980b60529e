// SPDX-License-Identifier: MIT
// llama_abi.h: the few functions of libllama that the client tests call, taken from a folder with dlopen, so that one program
// runs on any set of libraries, of b10361 and of v0.5.0. Field names are those of llama.h; offsets were found by filling the
// structs that the *_default_params functions return and by watching what a changed field does. A field that no test sets has no
// name. Where the releases differ, a struct has the size of the larger: both read the first bytes of what they are given.
#pragma once

#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct llama_model;
struct llama_context;
struct llama_vocab;
struct llama_memory;
struct llama_adapter;

struct llama_model_params {
    void **devices; // NULL at the end; NULL: all there are
    void *p8;
    int32_t n_gpu_layers;
    int32_t split_mode; // 0 none, 1 layers, 2 rows, 3 tensors
    int32_t load_mode;  // -1 whichever suits (v0.5.0), 0 read, 1 map
    int32_t i28;
    char bytes[48]; // no_alloc is in there: llama_no_alloc
};

struct llama_context_params {
    uint32_t n_ctx; // 0: the model's own
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    uint32_t u16[3];
    int32_t n_threads;
    int32_t n_threads_batch;
    int32_t i36[2];
    int32_t pooling_type; // -1 the model's, 0 none, 1 mean
    int32_t i48;
    int32_t flash_attn; // -1 where supported, 0 off, 1 on
    float f56[8];
    void *p88[2];
    int32_t type_k;
    int32_t type_v;
    void *p112[2];
    bool embeddings;
    bool b129[7];
    void *p136[3];
};

struct llama_model_quantize_params {
    int32_t n_threads; // 0: as many as there are
    int32_t ftype;     // what a file is called after: 7 Q8_0, 15 Q4_K_M, ...
    int32_t i8[14];
};

struct llama_batch {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos;
    int32_t *n_seq_id;
    int32_t **seq_id;
    int8_t *logits;
};

static_assert(sizeof(struct llama_model_params) == 80, "as returned by v0.5.0's llama_model_default_params; b10361: 72");
static_assert(sizeof(struct llama_context_params) == 160, "as returned by llama_context_default_params");
static_assert(offsetof(struct llama_context_params, embeddings) == 128, "as observed");
static_assert(sizeof(struct llama_model_quantize_params) == 64, "as of v0.5.0's llama_model_quantize_default_params; b10361: 56");
static_assert(sizeof(struct llama_batch) == 56, "as returned by llama_batch_init");

#define LLAMA_FUNCTIONS(X) \
    X(llama_log_set, void, (void (*)(int, const char *, void *), void *) ) \
    X(llama_backend_init, void, (void) ) \
    X(llama_backend_free, void, (void) ) \
    X(llama_model_default_params, struct llama_model_params, (void) ) \
    X(llama_context_default_params, struct llama_context_params, (void) ) \
    X(llama_model_load_from_file, struct llama_model *, (const char *, struct llama_model_params)) \
    X(llama_model_quantize_default_params, struct llama_model_quantize_params, (void) ) \
    X(llama_model_quantize, uint32_t, (const char *, const char *, const struct llama_model_quantize_params *) ) \
    X(llama_model_free, void, (struct llama_model *) ) \
    X(llama_init_from_model, struct llama_context *, (struct llama_model *, struct llama_context_params)) \
    X(llama_free, void, (struct llama_context *) ) \
    X(llama_adapter_lora_init, struct llama_adapter *, (struct llama_model *, const char *) ) \
    X(llama_set_adapters_lora, int32_t, (struct llama_context *, struct llama_adapter **, size_t, float *) ) \
    X(llama_batch_init, struct llama_batch, (int32_t, int32_t, int32_t)) \
    X(llama_batch_free, void, (struct llama_batch)) \
    X(llama_decode, int32_t, (struct llama_context *, struct llama_batch)) \
    X(llama_encode, int32_t, (struct llama_context *, struct llama_batch)) \
    X(llama_synchronize, void, (struct llama_context *) ) \
    X(llama_get_logits_ith, float *, (struct llama_context *, int32_t)) \
    X(llama_get_embeddings_ith, float *, (struct llama_context *, int32_t)) \
    X(llama_get_memory, struct llama_memory *, (const struct llama_context *) ) \
    X(llama_memory_clear, void, (struct llama_memory *, bool) ) \
    X(llama_model_get_vocab, const struct llama_vocab *, (const struct llama_model *) ) \
    X(llama_vocab_n_tokens, int32_t, (const struct llama_vocab *) ) \
    X(llama_tokenize, int32_t, (const struct llama_vocab *, const char *, int32_t, int32_t *, int32_t, bool, bool) ) \
    X(llama_token_to_piece, int32_t, (const struct llama_vocab *, int32_t, char *, int32_t, int32_t, bool) ) \
    X(llama_model_has_encoder, bool, (const struct llama_model *) ) \
    X(llama_model_has_decoder, bool, (const struct llama_model *) ) \
    X(llama_model_decoder_start_token, int32_t, (const struct llama_model *) ) \
    X(llama_model_n_embd, int32_t, (const struct llama_model *) ) \
    X(llama_model_n_ctx_train, int32_t, (const struct llama_model *) ) \
    X(llama_model_size, uint64_t, (const struct llama_model *) )

#define LLAMA_DECLARE(name, result, arguments) static result(*name) arguments;
LLAMA_FUNCTIONS(LLAMA_DECLARE)

static inline void *llama_open(const char *folder, const char *file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    return handle;
}

static inline bool llama_symbol(void *handle, const char *name, void *out) {
    void *p = dlsym(handle, name);
    memcpy(out, &p, sizeof p);
    if (p == NULL) {
        fprintf(stderr, "%s is missing\n", name);
    }
    return p != NULL;
}

static char llama_release[32]; // b10361, v0.5.0: of the folder, once it is loaded

// The tensors are made without memory.
static inline void llama_no_alloc(struct llama_model_params *params) {
    ((char *) params)[strcmp(llama_release, "b10361") == 0 ? 68 : 76] = true;
}

// The release in the name of a folder's libllama. False: said why on stderr.
static inline bool llama_find(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && llama_release[0] == '\0' && (e = readdir(d)) != NULL;) {
        char rest[8] = "";
        if (sscanf(e->d_name, "libllama.%31[a-z0-9.]%7s", llama_release, rest) < 1) {
            llama_release[0] = '\0';
            continue;
        }
        const size_t len = strlen(llama_release);
        if (rest[0] == '\0' && len > 3 && strcmp(llama_release + len - 3, ".so") == 0) {
            llama_release[len - 3] = '\0';
        } else {
            llama_release[0] = '\0';
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    if (llama_release[0] == '\0') {
        fprintf(stderr, "%s: there is no libllama.RELEASE.so\n", folder);
    }
    return llama_release[0] != '\0';
}

static void *(*llama_device)(int); // ggml_backend_dev_by_type

// Loads the libraries of a folder and its backends. False: said why on stderr.
static inline bool llama_load(const char *folder) {
    if (!llama_find(folder)) {
        return false;
    }
    char names[2][64];
    snprintf(names[0], sizeof names[0], "libggml.%s.so", llama_release);
    snprintf(names[1], sizeof names[1], "libllama.%s.so", llama_release);
    void *ggml  = llama_open(folder, names[0]);
    void *llama = ggml != NULL ? llama_open(folder, names[1]) : NULL;
    void (*load_all)(const char *);
    bool ok = llama != NULL && llama_symbol(ggml, "ggml_backend_load_all_from_path", &load_all) &&
              llama_symbol(ggml, "ggml_backend_dev_by_type", &llama_device);
#define LLAMA_TAKE(name, result, arguments) ok = ok && llama_symbol(llama, #name, &name);
    LLAMA_FUNCTIONS(LLAMA_TAKE)
    if (ok) {
        load_all(folder);
        llama_backend_init();
    }
    return ok;
}

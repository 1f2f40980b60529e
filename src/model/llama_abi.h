// SPDX-License-Identifier: MIT
// llama_abi.h: the functions of libllama b10361 and v0.5.0 that Berth and its tests call through dlopen. Field names are those of
// llama.cpp's llama.h. The offsets were found by experiment. Unused fields have placeholder names, which contain their offset. If
// the size of a struct differs between the releases, the larger size is declared. Each release reads only the leading bytes that
// it knows.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct llama_model;
struct llama_context;
struct llama_vocab;
struct llama_memory;
struct llama_adapter;

// Weights whose names match the pattern (a regular expression) get memory of this type.
struct llama_tensor_override {
    const char *pattern;
    void *buft;
};

struct llama_model_params {
    void **devices;                                // NULL-terminated; NULL: all devices
    const struct llama_tensor_override *overrides; // NULL: none; ends with a pattern NULL
    int32_t n_gpu_layers;
    int32_t split_mode; // 0 none, 1 layers, 2 rows, 3 tensors
    int32_t load_mode;  // -1: automatic (v0.5.0), 0: read, 1: map
    int32_t i28;
    char bytes[48]; // contains no_alloc, see llama_no_alloc
};

struct llama_context_params {
    uint32_t n_ctx; // 0: the context of the model
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    uint32_t u16[3];
    int32_t n_threads;
    int32_t n_threads_batch;
    int32_t i36[2];
    int32_t pooling_type; // -1: the model's, 0: none, 1: mean
    int32_t i48;
    int32_t flash_attn; // -1: where supported, 0: off, 1: on
    float f56[8];
    void *p88[2];
    int32_t type_k;
    int32_t type_v;
    void *p112[2];
    bool embeddings;
    bool b129[4];
    bool kv_unified; // true: one cache for all sequences, false: a cache per sequence
    bool b134[2];
    void *p136[3];
};

struct llama_model_quantize_params {
    int32_t n_threads; // 0: one per core
    int32_t ftype;     // type of the file: 7 Q8_0, 15 Q4_K_M, ...
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
    X(llama_memory_seq_rm, bool, (struct llama_memory *, int32_t, int32_t, int32_t)) \
    X(llama_memory_seq_cp, void, (struct llama_memory *, int32_t, int32_t, int32_t, int32_t)) \
    X(llama_memory_seq_pos_min, int32_t, (struct llama_memory *, int32_t)) \
    X(llama_set_embeddings, void, (struct llama_context *, bool) ) \
    X(llama_model_is_recurrent, bool, (const struct llama_model *) ) \
    X(llama_model_is_hybrid, bool, (const struct llama_model *) ) \
    X(llama_model_get_vocab, const struct llama_vocab *, (const struct llama_model *) ) \
    X(llama_vocab_n_tokens, int32_t, (const struct llama_vocab *) ) \
    X(llama_vocab_is_eog, bool, (const struct llama_vocab *, int32_t)) \
    X(llama_vocab_bos, int32_t, (const struct llama_vocab *) ) \
    X(llama_vocab_get_add_bos, bool, (const struct llama_vocab *) ) \
    X(llama_set_abort_callback, void, (struct llama_context *, bool (*)(void *), void *) ) \
    X(llama_model_n_layer, int32_t, (const struct llama_model *) ) \
    X(llama_tokenize, int32_t, (const struct llama_vocab *, const char *, int32_t, int32_t *, int32_t, bool, bool) ) \
    X(llama_token_to_piece, int32_t, (const struct llama_vocab *, int32_t, char *, int32_t, int32_t, bool) ) \
    X(llama_model_has_encoder, bool, (const struct llama_model *) ) \
    X(llama_model_has_decoder, bool, (const struct llama_model *) ) \
    X(llama_model_decoder_start_token, int32_t, (const struct llama_model *) ) \
    X(llama_model_n_embd, int32_t, (const struct llama_model *) ) \
    X(llama_model_n_ctx_train, int32_t, (const struct llama_model *) ) \
    X(llama_model_size, uint64_t, (const struct llama_model *) )

// no_alloc: tensors are created without memory. The offset of the field depends on the release.
static inline void llama_no_alloc(struct llama_model_params *params, const char *release) {
    ((char *) params)[strcmp(release, "b10361") == 0 ? 68 : 76] = true;
}

// Weights stay in the layout of the file. The offset is that of v0.5.0, whose defaults have a 1 there.
static inline void llama_no_repack(struct llama_model_params *params) {
    ((char *) params)[74] = false;
}

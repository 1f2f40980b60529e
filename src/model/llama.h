// SPDX-License-Identifier: MIT
// llama.h: models by llama.cpp itself: libllama, found and loaded into this process with Berth under it. What it asks of Berth is
// watched: the scheduler and the graphs that it reserves, the bytes of weights and cache. Everything else of the room then works
// on a session of it as on one of Berth's own. One model at a time is loaded or reserved.
#pragma once

#include "model/llama_abi.h"
#include "model/model.h"

struct vocab;
struct token_list;

// The library; once a process.
struct llama_library {
    const char *release; // of llama.cpp
    char path[4096];
#define LLAMA_FIELD(name, result, arguments) result(*name) arguments;
    LLAMA_FUNCTIONS(LLAMA_FIELD)
#undef LLAMA_FIELD
};

// llama_find.c: NULL with an error that says where it was looked for and how to get it.
const struct llama_library *llama_library_get(struct model_error *error);
// The first error that libllama has logged since the last llama_error_clear, else Berth's last one: libllama logs a reason first,
// then that each caller of the failed function failed.
void llama_error_clear(void);
const char *llama_error(void);
// The bytes of caches that it spoke of since the last call; it says two digits of MiB.
size_t llama_said_cache(void);

// A model that libllama runs.
struct model_llama {
    const struct llama_library *lib;
    struct llama_model *model; // NULL until it is placed
    const struct llama_vocab *vocab;
    char path[4096];
    bool no_mmap, plan_only;
    bool has_encoder, has_decoder;
};

// A session of one.
struct session_llama {
    struct llama_context *ctx;
    struct llama_batch batch;
};

// ---- llama.c: what the functions of model.h do for such a model ----

bool llama_place(struct model *model, const struct model_devices *devices, bool plan_only, struct model_error *error);
void llama_model_close(struct model *model);

struct session *llama_session_new(const struct model *model, const struct model_devices *devices,
    const struct session_params *params, struct model_error *error);
void llama_session_free(struct session *session);
bool llama_session_graph(struct session *session, int64_t n_tokens, struct model_error *error);
bool llama_session_row(const struct session *session, int64_t i, float *out, struct model_error *error);
bool llama_session_decode(struct session *session, const int32_t *tokens, int64_t n, struct model_error *error);
void llama_session_reset(struct session *session);

// ---- llama_vocab.c ----

struct vocab *llama_vocab_new(const struct model *model, struct model_error *error);
bool llama_vocab_encode(const struct vocab *vocab, const char *text, size_t size, bool add_special, bool parse_special,
    struct token_list *out, struct model_error *error);
size_t llama_vocab_piece(const struct vocab *vocab, int32_t token, char *out, size_t cap);
bool llama_vocab_ends(const struct vocab *vocab, int32_t token);

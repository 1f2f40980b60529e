// SPDX-License-Identifier: MIT
// llama.h: runs models with libllama. libllama is loaded into this process, with Berth's libraries as its ggml. Hooks in Berth's
// libraries record the scheduler, the graphs and the bytes of weights and cache that libllama reserves. The hooks are global, so
// only one model may be loaded or reserved at a time.
#pragma once

#include "model/llama_abi.h"
#include "model/model.h"

// Loaded at most once per process.
struct llama_library {
    const char *release; // release of llama.cpp
    char path[4096];
#define LLAMA_FIELD(name, result, arguments) result(*name) arguments;
    LLAMA_FUNCTIONS(LLAMA_FIELD)
#undef LLAMA_FIELD
};

// llama_find.c: NULL: *error states where libllama was searched and how to install it.
const struct llama_library *llama_library_get(struct model_error *error);
// llama_error returns the first error that libllama logged since llama_error_clear, because later log lines only name the callers
// of the failed function. If libllama logged no error, llama_error returns Berth's last error.
void llama_error_clear(void);
const char *llama_error(void);
// Returns the bytes of caches that libllama logged since the last call. The log rounds to 0.01 MiB.
size_t llama_logged_cache_size(void);

// model->engine_data of engine_llama.
struct model_llama {
    const struct llama_library *lib;
    struct llama_model *model;   // NULL until model_place
    struct llama_model *planned; // the model without weights, for sessions with plan_only; NULL until it is needed
    const struct llama_vocab *vocab;
    char path[4096];
    bool no_mmap, plan_only;
    bool has_encoder, has_decoder;
};

// session->engine_data of engine_llama. session->sched and session->graph belong to libllama.
struct session_llama {
    struct llama_context *ctx;
    struct llama_batch batch;
    float *hidden; // [n_batch * n_embd] hidden states of the last batch of embeddings; only in a pool
};

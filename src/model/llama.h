// SPDX-License-Identifier: MIT
// llama.h: models by llama.cpp itself: libllama, found and loaded into this process with Berth under it. What it asks of Berth is
// watched: the scheduler and the graphs that it reserves, the bytes of weights and cache. Everything else of the room then works
// on a session of it as on one of Berth's own. One model at a time is loaded or reserved.
#pragma once

#include "model/llama_abi.h"
#include "model/model.h"

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

// model->engine_data of engine_llama.
struct model_llama {
    const struct llama_library *lib;
    struct llama_model *model; // NULL until it is placed
    const struct llama_vocab *vocab;
    char path[4096];
    bool no_mmap, plan_only;
    bool has_encoder, has_decoder;
};

// session->engine_data: sched and graph of the session are libllama's own.
struct session_llama {
    struct llama_context *ctx;
    struct llama_batch batch;
};

// SPDX-License-Identifier: MIT
// llama_find_windows.c: takes the place of llama_find.c on Windows, where the program does not load libllama.

#include "model/llama.h"

const struct llama_library *llama_library_get(struct model_error *error) {
    model_fail(error, "this program does not use libllama on Windows: run the model with llama.cpp on Berth's libraries");
    return NULL;
}

void llama_error_clear(void) {
}

const char *llama_error(void) {
    return berth_last_error();
}

size_t llama_logged_cache_size(void) {
    return 0;
}

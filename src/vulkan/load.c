// SPDX-License-Identifier: MIT
// load.c: the two functions that a program looks up when it loads the library at run time. Every backend defines the same two
// names, so only the loadable library contains them.

#include "ggml-backend-impl.h"
#include "ggml-vulkan.h"

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
    return ggml_backend_vk_reg();
}

// One build supports every device, so the score is constant.
int ggml_backend_score(void) {
    return 1;
}

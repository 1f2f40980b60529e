// SPDX-License-Identifier: MIT
// load.c: the two functions by which the library is loaded at run time. Only in the library: backends in one program would clash
// over the names.

#include "ggml-backend-impl.h"
#include "ggml-cuda.h"

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
    return ggml_backend_cuda_reg();
}

// One build serves every GPU.
int ggml_backend_score(void) {
    return 1;
}

// SPDX-License-Identifier: MIT
// load.c: the two functions by which the library is loaded at run time. Only in the library: backends in one program would clash
// over the names.

#include "mpi/remote.h"

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
    return &mpi_reg;
}

int ggml_backend_score(void) {
    return 1;
}

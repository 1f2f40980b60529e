// SPDX-License-Identifier: MIT
// load.c: the functions by which ggml loads the library at run time. Only the shared library has them, because several backends
// that are linked into one program would define the same functions.

#include "mpi/remote.h"

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
    return &mpi_reg;
}

int ggml_backend_score(void) {
    return 1;
}

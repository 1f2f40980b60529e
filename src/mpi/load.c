// SPDX-License-Identifier: MIT
// load.c: the two functions by which ggml loads the library at run time. They are only in the shared library: if several backends
// were linked into one program, each of them would define these functions.

#include "mpi/remote.h"

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
GGML_BACKEND_API int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void) {
    return &mpi_reg;
}

int ggml_backend_score(void) {
    return 1;
}

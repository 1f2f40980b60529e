// SPDX-License-Identifier: MIT
// reg.h: the registry entry "MPI".
#pragma once

#include "ggml-backend-impl.h"

extern struct ggml_backend_reg mpi_reg;

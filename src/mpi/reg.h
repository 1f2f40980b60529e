// SPDX-License-Identifier: MIT
// reg.h: the registry entry "MPI".
#pragma once

#include "ggml-backend-impl.h"
#include "mpi/remote.h"

extern struct ggml_backend_reg mpi_reg;

// The devices that workers serve to this rank, and the ranks they are of (one for each rank of the world). False with an error.
bool mpi_devices_list(
    struct mpi_world *w, struct mpi_remote **remotes, struct mpi_device **devices, size_t *n_devices) BERTH_MUST_USE;

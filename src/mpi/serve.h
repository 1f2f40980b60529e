// SPDX-License-Identifier: MIT
// serve.h: what `berth worker` runs.
#pragma once

#include "mpi/world.h"

// Infos of the devices, as the program is to know them; NULL: out of memory.
struct mpi_device_info *mpi_serve_infos(const struct berth_mpi_serve_params *params);
// Serves the world's program until it leaves or is lost. False with an error.
bool mpi_serve_world(struct mpi_world *world, const struct berth_mpi_serve_params *params);
// All of it, in the process's own world.
bool mpi_serve(const struct berth_mpi_serve_params *params);

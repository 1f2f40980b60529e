// SPDX-License-Identifier: MIT
// loop.h: ranks as threads of one process: a transport over queues, for tests that look closely.
#pragma once

#include "mpi/transport.h"

struct mpi_loop;

// NULL: out of memory.
struct mpi_loop *mpi_loop_new(int n_ranks);
// The transport of one rank; alloc and release are set.
bool mpi_loop_open(struct mpi_loop *loop, int rank, struct mpi_transport *t);
void mpi_loop_free(struct mpi_loop *loop); // when all transports are closed

// SPDX-License-Identifier: MIT
// sum.h: what the members of a group do together: sums, broadcasts, barriers. Each member calls the same, in the same order.
#pragma once

#include "mpi/mail.h"

struct mpi_group {
    struct mpi_mail *mail;
    uint32_t number; // the same at all members, another for each group
    int n, me;       // members, and which of them this rank is
    int *ranks;      // [n]
    uint64_t n_done; // calls so far
};

bool mpi_group_sum(struct mpi_group *g, float *data, size_t n) BERTH_MUST_USE;
bool mpi_group_broadcast(struct mpi_group *g, void *data, size_t size, int root) BERTH_MUST_USE;
// In place of a call that this member cannot make: the others' fail, too.
void mpi_group_fail(struct mpi_group *g);
bool mpi_group_barrier(struct mpi_group *g) BERTH_MUST_USE;

// SPDX-License-Identifier: MIT
// gone.c: a rank that is killed as soon as MPI is initialized, before it has sent a message.

#include <mpi.h>

#include <signal.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    raise(SIGKILL);
}

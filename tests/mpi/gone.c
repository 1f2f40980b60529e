// SPDX-License-Identifier: MIT
// gone.c: a rank that is killed as soon as MPI is up, before it has said anything to the others.

#include <mpi.h>

#include <signal.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    raise(SIGKILL);
}

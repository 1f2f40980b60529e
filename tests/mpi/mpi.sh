#!/bin/sh
# mpi.sh BUILD: ranks on this machine: programs among themselves, over shared memory and over TCP.
set -eu
build=$1
ranks() { timeout 60 mpirun --allow-run-as-root --oversubscribe "$@"; }
say() { echo "mpi: $*"; }
world=$build/tests/mpi-world

$world || { say "without mpirun"; exit 1; }
for net in vader,self tcp,self; do
    for n in 1 2 4; do
        ranks --mca btl $net -n $n "$world" || { say "$n ranks over $net"; exit 1; }
    done
done
say "sums, broadcasts and barriers of 1, 2 and 4 ranks"
BERTH_MPI_TIMEOUT=3 ranks --enable-recovery -q -n 3 "$world" die || [ $? = 7 ] || { say "a rank that dies"; exit 1; }
say "a rank that dies is told of"

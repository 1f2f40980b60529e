// SPDX-License-Identifier: MIT
// launcher.h: detects whether an MPI launcher started this process.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

// Recognises Open MPI, MPICH and Slurm.
static inline bool berth_has_mpirun(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && text[0] != '\0') {
            return true;
        }
    }
    return false;
}

// SPDX-License-Identifier: MIT
// standin_load.h: loads the simulated driver (standin.h) for a test, and makes the backend use it.
#pragma once

#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standin_functions {
    struct standin *(*state)(void);
    void (*reset)(void), (*drop)(void); // standin_reset, standin_drop
};

static inline bool standin_symbol(void *lib, const char *name, void *function) {
    void *address = lib != NULL ? dlsym(lib, name) : NULL;
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

// Returns false after a message if the driver cannot be loaded.
static inline bool standin_load(struct standin_functions *f) {
    setenv("BERTH_CUDA_DRIVER", STANDIN, 1);
    void *lib = dlopen(STANDIN, RTLD_NOW);
    if (standin_symbol(lib, "standin_state", &f->state) && standin_symbol(lib, "standin_reset", &f->reset) &&
        standin_symbol(lib, "standin_drop", &f->drop)) {
        return true;
    }
    printf("cannot load the simulated driver: %s\n", dlerror());
    return false;
}

// SPDX-License-Identifier: MIT
// driver.c: loads libcuda.so.1 on first use. The library is never closed, because it runs threads. Tests set BERTH_CUDA_DRIVER to
// the path of another library.

#include "cuda/driver.h"

#include "base/shim/shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// CUDA 11.8: the oldest driver that has all of CUDA_DRIVER_REQUIRED.
#define OLDEST 11080

static struct cuda_driver table;
static bool is_loaded;
static char reason[256];

const char *cuda_error_text(const struct cuda_driver *cu, CUresult error, char *buf, size_t size) {
    const char *name = NULL, *text = NULL;
    if (cu->GetErrorName(error, &name) != CUDA_SUCCESS || name == NULL) {
        name = "unknown error";
    }
    if (cu->GetErrorString(error, &text) != CUDA_SUCCESS || text == NULL) {
        text = "no description";
    }
    snprintf(buf, size, "%s %d (%s)", name, error, text);
    return buf;
}

// Returns false if a required function is missing.
static bool driver_resolve(void *lib) {
    const struct {
        const char *symbol;
        size_t off;
        bool required;
    } all[] = {
#define REQUIRED(name, symbol, params) {#symbol, offsetof(struct cuda_driver, name), true},
#define EXTRA(name, symbol, params) {#symbol, offsetof(struct cuda_driver, name), false},
        CUDA_DRIVER_REQUIRED(REQUIRED) CUDA_DRIVER_EXTRA(EXTRA)
#undef REQUIRED
#undef EXTRA
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *address = dlsym(lib, all[i].symbol);
        if (address == NULL && all[i].required) {
            snprintf(reason, sizeof reason, "the driver lacks %s: CUDA 11.8 or newer is required", all[i].symbol);
            return false;
        }
        memcpy((char *) &table + all[i].off, &address, sizeof address);
    }
    return true;
}

static void driver_load(void) {
    const char *path = secure_getenv("BERTH_CUDA_DRIVER");
    if (path == NULL || path[0] == '\0') {
        path = "libcuda.so.1";
    }
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        const char *text = dlerror();
        snprintf(reason, sizeof reason, "cannot load the driver: %s", text != NULL ? text : path);
        return;
    }
    if (!driver_resolve(lib)) {
        return;
    }
    char text[192];
    const CUresult rc = table.Init(0);
    if (rc != CUDA_SUCCESS) {
        snprintf(reason, sizeof reason, "cuInit: %s", cuda_error_text(&table, rc, text, sizeof text));
        return;
    }
    if (table.DriverGetVersion(&table.version) != CUDA_SUCCESS || table.version < OLDEST) {
        snprintf(reason, sizeof reason, "the driver supports CUDA %d.%d, and 11.8 or newer is required", table.version / 1000,
            table.version % 1000 / 10);
        return;
    }
    is_loaded = true;
}

const struct cuda_driver *cuda_driver(const char **why) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, driver_load);
    if (why != NULL) {
        *why = reason;
    }
    return is_loaded ? &table : NULL;
}

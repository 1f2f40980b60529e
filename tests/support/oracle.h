// SPDX-License-Identifier: MIT
// oracle.h: loads the reference's libraries into the same process as Berth's, for benchmarks and kernel tests. Both define the
// same ggml_* functions, so dlmopen gives the reference a separate namespace. tools/fetch-reference.sh downloads the libraries.
//
//     void *base = oracle_load("libggml-base.so");
//     if (base == NULL) {
//         printf("skipped: %s\n", oracle_why());
//         return 77;
//     }
//
// Sanitizers do not work with a second namespace, so oracle_load fails in such builds. tests/conformance and tests/op run the
// reference in a separate process instead.
#pragma once

#include "support/oracle_cpus.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#    define ORACLE_ARCH "linux-arm64"
#elif defined(__x86_64__)
#    define ORACLE_ARCH "linux-x64"
#else
#    define ORACLE_ARCH "none"
#endif
#define ORACLE_VERSION "3.22.1"
#define ORACLE_BUILD "v0.5.0" // part of the names of libggml and libllama

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define ORACLE_SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#        define ORACLE_SANITIZED 1
#    endif
#endif
#ifndef ORACLE_SANITIZED
#    define ORACLE_SANITIZED 0
#endif

static struct {
    char dir[PATH_MAX];
    char why[PATH_MAX + 128]; // why the last call failed
    Lmid_t space;             // namespace of the libraries, valid if loaded
    bool loaded;
} oracle;

static inline const char *oracle_why(void) {
    return oracle.why;
}

// Accepts the folder of the libraries, or the folder above it. Returns false if the libraries are in neither.
static inline bool oracle_dir_try(const char *folder) {
    static const char *const below[] = {"", "/" ORACLE_ARCH "-" ORACLE_VERSION "/bins/" ORACLE_ARCH};
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
        char path[2 * PATH_MAX];
        snprintf(path, sizeof(path), "%s%s/libggml-base.so", folder, below[i]);
        if (access(path, R_OK) == 0) {
            const int n = snprintf(oracle.dir, sizeof(oracle.dir), "%s%s", folder, below[i]);
            return n > 0 && (size_t) n < sizeof(oracle.dir);
        }
    }
    return false;
}

static inline bool oracle_dir_above(char *path) {
    for (;;) {
        char folder[PATH_MAX + 32];
        snprintf(folder, sizeof(folder), "%s/.cache/reference", path);
        if (oracle_dir_try(folder)) {
            return true;
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) {
            return false;
        }
        *slash = 0;
    }
}

// $BERTH_REFERENCE, otherwise the repository's cache. NULL: there is none.
static inline const char *oracle_dir(void) {
    char path[PATH_MAX];
    const char *given = getenv("BERTH_REFERENCE");
    if (oracle.dir[0] != 0 || (given != NULL && oracle_dir_try(given))) {
        return oracle.dir;
    }
    if (getcwd(path, sizeof(path)) != NULL && oracle_dir_above(path)) {
        return oracle.dir;
    }
    const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n > 0) {
        path[n] = 0;
        if (oracle_dir_above(path)) {
            return oracle.dir;
        }
    }
    snprintf(oracle.why, sizeof(oracle.why), "no reference libraries; run tools/fetch-reference.sh");
    return NULL;
}

// If loading fails, returns NULL; oracle_why() returns the reason.
static inline void *oracle_load(const char *library) {
    if (ORACLE_SANITIZED) {
        snprintf(oracle.why, sizeof(oracle.why), "the reference cannot be loaded into a process with sanitizers");
        return NULL;
    }
    const char *dir = oracle_dir();
    if (dir == NULL) {
        return NULL;
    }
    char path[PATH_MAX + 128];
    snprintf(path, sizeof(path), "%s/%s", dir, library);
    void *handle = dlmopen(oracle.loaded ? oracle.space : LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(oracle.why, sizeof(oracle.why), "%s", dlerror());
        return NULL;
    }
    if (!oracle.loaded) {
        oracle.loaded = dlinfo(handle, RTLD_DI_LMID, &oracle.space) == 0;
    }
    return handle;
}

// Loads the CPU library that the reference's own loader would select on this machine. *name: its file name. NULL: none.
static inline void *oracle_load_cpu(const char **name) {
    for (size_t i = 0; oracle_load("libggml-base.so") != NULL && i < sizeof(oracle_cpus) / sizeof(oracle_cpus[0]); i++) {
        void *lib = oracle_load(oracle_cpus[i]);
        void *found = lib != NULL ? dlsym(lib, "ggml_backend_score") : NULL;
        int (*score)(void) = NULL;
        memcpy(&score, &found, sizeof(found));
        if (score != NULL && score() > 0) {
            *name = oracle_cpus[i];
            return lib;
        }
    }
    return NULL;
}

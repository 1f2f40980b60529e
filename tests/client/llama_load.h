// SPDX-License-Identifier: MIT
// llama_load.h: the functions of libllama (src/model/llama_abi.h), loaded from a folder, so that one program runs with any set of
// libraries.
#pragma once

#include "model/llama_abi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#ifdef _WIN32 // names of the libraries
#    define LIB ""
#    define SO ".dll"
#else
#    define LIB "lib"
#    define SO ".so"
#endif

#define LLAMA_DECLARE(name, result, arguments) static result(*name) arguments;
LLAMA_FUNCTIONS(LLAMA_DECLARE)

// A library that the folder lacks comes from LD_LIBRARY_PATH.
static inline void *llama_open(const char *folder, const char *file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    const bool is_in_folder = access(path, F_OK) == 0;
    void *handle = dlopen(is_in_folder ? path : file, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    return handle;
}

static inline bool llama_symbol(void *handle, const char *name, void *out) {
    void *p = dlsym(handle, name);
    memcpy(out, &p, sizeof p);
    if (p == NULL) {
        fprintf(stderr, "the library has no function %s\n", name);
    }
    return p != NULL;
}

static char llama_release[32]; // release of the loaded folder, such as b10361 or v0.5.0

// Finds the release in the name of the folder's libllama. Returns false after a message on stderr.
static inline bool llama_find(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && llama_release[0] == '\0' && (e = readdir(d)) != NULL;) {
        char rest[8] = "";
        if (sscanf(e->d_name, LIB "llama.%31[a-z0-9.]%7s", llama_release, rest) < 1) {
            llama_release[0] = '\0';
            continue;
        }
        const size_t len = strlen(llama_release);
        if (rest[0] == '\0' && len > strlen(SO) && strcmp(llama_release + len - strlen(SO), SO) == 0) {
            llama_release[len - strlen(SO)] = '\0';
        } else {
            llama_release[0] = '\0';
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    if (llama_release[0] == '\0') {
        fprintf(stderr, "%s: no file " LIB "llama.RELEASE" SO " in this folder\n", folder);
    }
    return llama_release[0] != '\0';
}

static void *(*llama_device)(int);            // ggml_backend_dev_by_type
static void *(*llama_device_buft)(void *dev); // ggml_backend_dev_buffer_type

// Loads the libraries of a folder and its backends. Returns false after a message on stderr.
static inline bool llama_load(const char *folder) {
    if (!llama_find(folder)) {
        return false;
    }
    char names[2][64];
    snprintf(names[0], sizeof names[0], LIB "ggml.%s" SO, llama_release);
    snprintf(names[1], sizeof names[1], LIB "llama.%s" SO, llama_release);
    void *ggml = llama_open(folder, names[0]);
    void *llama = ggml != NULL ? llama_open(folder, names[1]) : NULL;
    void (*load_all)(const char *);
    bool ok = llama != NULL && llama_symbol(ggml, "ggml_backend_load_all_from_path", &load_all) &&
              llama_symbol(ggml, "ggml_backend_dev_by_type", &llama_device) &&
              llama_symbol(ggml, "ggml_backend_dev_buffer_type", &llama_device_buft);
#define LLAMA_TAKE(name, result, arguments) ok = ok && llama_symbol(llama, #name, &name);
    LLAMA_FUNCTIONS(LLAMA_TAKE)
    if (ok) {
        load_all(folder);
        llama_backend_init();
    }
    return ok;
}

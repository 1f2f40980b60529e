// SPDX-License-Identifier: MIT
// folder.h: a folder with clients: libraries that were built for ggml, such as llama.cpp's. Each function that they import must be
// exported by Berth or by a library that Berth does not replace.
#pragma once

#include "base/base.h"

// A sorted set of texts.
struct client_names {
    char **items;
    size_t n, n_cap;
};

enum client_role {
    CLIENT_CALLER, // calls ggml's functions: libllama, an addon, a backend that is not a CPU backend
    CLIENT_CPU,    // a CPU backend: Berth's is used instead
    CLIENT_BASE,   // libggml-base or libggml: Berth's are used instead
};

struct client_library {
    char *name;
    enum client_role role;
    bool is_berth;               // a library of Berth
    bool has_rpath;              // DT_RPATH: its folders take precedence over LD_LIBRARY_PATH
    size_t n_imports;            // number of imported functions of ggml
    struct client_names needs;   // libraries of ggml that it depends on
    struct client_names imports; // imported functions
    struct client_names absent;  // imported functions that no library exports
};

struct client_folder {
    const char *path;
    char why[4096 + 256]; // why the folder could not be read
    struct client_library *libraries;
    size_t n, n_cap;
    struct client_names unreadable;        // "NAME: why"
    char release[32];                      // of llama.cpp, "" if no name contains it
    char place[4096];                      // folder with Berth's libraries under clients' names; "": none
    struct client_names missing_libraries; // names of required libraries for which Berth has no file
    size_t n_callers, n_missing;           // number of callers; number of missing functions over all callers
    bool has_rpath;                        // of a caller
    bool is_berth;                         // the folder contains Berth's libggml-base
};

// Reads the libraries of a folder and checks them. berth_path: folder of Berth's libraries; NULL: the folder of the libggml that this
// program uses. Returns false after a failure; folder->why is the reason. The caller must call client_folder_fini in both cases.
bool client_folder_read(struct client_folder *folder, const char *path, const char *berth_path) BERTH_MUST_USE;
void client_folder_fini(struct client_folder *folder);
// No function or library is missing.
bool client_folder_works(const struct client_folder *folder);

// Returns the release of ggml with which a release of llama.cpp was built, if Berth's tests run its binaries. NULL: not tested.
const char *client_release_ggml(const char *release);

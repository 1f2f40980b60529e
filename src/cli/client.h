// SPDX-License-Identifier: MIT
// client.h: a folder of libraries that call ggml's functions, and what becomes of it on this Berth.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Texts, each once, sorted.
struct client_names {
    char **items;
    size_t n, n_cap;
};

enum client_role {
    CLIENT_CALLER, // calls ggml's functions: libllama, an addon, a backend that is no CPU's
    CLIENT_CPU,    // a CPU backend: Berth's is taken in its place
    CLIENT_BASE,   // libggml-base or libggml: Berth's are taken in their place
};

struct client_library {
    char *name;
    enum client_role role;
    bool is_berth;              // one of Berth's own
    bool has_rpath;             // folders that come before LD_LIBRARY_PATH
    size_t n_imports;           // of ggml's functions
    struct client_names needs;  // libraries of ggml's that it asks for
    struct client_names wants;  // functions
    struct client_names absent; // those of them that there are not
};

struct client_folder {
    const char *path;
    struct client_library *libraries;
    size_t n, n_cap;
    struct client_names unreadable; // "NAME: why"
    char release[32];               // of llama.cpp, "" if no name tells it
    char place[4096];               // Berth's folder of names; "" if there is none
    struct client_names nameless;   // libraries that are asked for and have no name there
    size_t n_callers, n_missing;    // functions that are absent, of all callers
    bool has_rpath;                 // a caller's
    bool is_berth;                  // Berth's base is in the folder
};

// False: out of memory, or the folder cannot be read; after a message.
bool client_folder_read(struct client_folder *folder, const char *path);
void client_folder_fini(struct client_folder *folder);
// Does it run on this Berth?
bool client_folder_works(const struct client_folder *folder);

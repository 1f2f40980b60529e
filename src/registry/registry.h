// SPDX-License-Identifier: MIT
// registry.h: what the files of the registry share.
#pragma once

#include "base/base.h"
#include "ggml-backend-impl.h"

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

// Adds the registry and its devices; handle is the library it came from or NULL. A registry that is there already is left
// alone: then *known is true and the handle stays the caller's. Otherwise a true answer takes the handle over.
bool berth_registry_add(ggml_backend_reg_t reg, void *handle, bool *known) BERTH_MUST_USE; // registry.c
// How much of what no program asks for by name has been loaded. Later stages include earlier ones.
enum berth_registry_stage {
    BERTH_REGISTRY_EMPTY,
    BERTH_REGISTRY_BUILT_IN,
    BERTH_REGISTRY_INSTALLED,
};
// Loads what is missing up to that stage, once. Every query starts with the last stage, every change of the registry with what is
// built in. True: this call loaded.
bool berth_registry_ready(enum berth_registry_stage want); // builtin.c
// The program says itself where its backends are: queries no longer look for installed ones.
void berth_registry_skip_installed(void); // builtin.c
// Loads the backends of the default folders and of GGML_BACKEND_PATH, either all but the CPU's, or the CPU's unless one is
// registered. False: out of memory.
enum berth_scan { BERTH_SCAN_DEVICES = 1, BERTH_SCAN_CPU = 2, BERTH_SCAN_ALL = 3 };
bool berth_installed_load(enum berth_scan which) BERTH_MUST_USE; // scan.c

// One device in place of all GPUs, if the environment asks for it (split.c); one thread at a time. None but berth_split_make
// calls a backend.
bool berth_split_is_asked(void);
// NULL: there is nothing to share out among.
ggml_backend_dev_t berth_split_make(ggml_backend_dev_t *devs, size_t n_devs);
// Its parts that are not to be listed beside it; is this one of them?
const ggml_backend_dev_t *berth_split_hidden(size_t *n);
bool berth_split_has(ggml_backend_dev_t dev);
// The device, if a part of it is of that registry; else NULL.
ggml_backend_dev_t berth_split_of(ggml_backend_reg_t reg);
// There is none any more.
void berth_split_drop(void);

// Opens a library file: NULL with an error that names it.
void *berth_library_open(const char *path); // load.c
// Opens it and registers its backend; say: with a line in the log if it has devices.
enum ggml_status berth_library_load(const char *path, bool say, ggml_backend_reg_t *out) BERTH_MUST_USE; // load.c
// Why the file cannot be a library for this machine, or NULL if nothing speaks against it.
const char *berth_library_flaw(const char *path, char *text, size_t size); // elf.c
// The folder this library was loaded from, with a trailing slash; is_real: where the file lies if that name is a link to it.
// False if it cannot be found out.
bool berth_own_folder(char *out, size_t size, bool is_real); // builtin.c

// ---- libraries that call ggml's functions by name (client.c) ----

// Is this one of the functions that ggml's libraries export?
BERTH_API bool berth_client_imports(const char *symbol);
// The release in the name of a library that is asked for: libggml.b10361.so -> "b10361". False: it names none.
BERTH_API bool berth_client_release_of(const char *library, char *release, size_t size);

// Looks at all loaded libraries that ask for one of ggml's, unless nothing was loaded since the last look: their release is
// told to the base, and an error line names the functions that no library has, since each would end the process at its first
// call.
void berth_client_look(void);

// SPDX-License-Identifier: MIT
// registry.h: functions that the files of the registry share.
#pragma once

#include "base/base.h"
#include "ggml-backend-impl.h"

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

// Adds the registry and its devices. handle: the open library of the registry, or NULL. If the registry is already listed, sets
// *known to true, and the caller still owns the handle. If it is added, the table owns the handle. Returns false if out of memory.
bool berth_registry_add(ggml_backend_reg_t reg, void *handle, bool *known) BERTH_MUST_USE; // registry.c
// Stages of loading backends automatically (builtin.c). Each stage includes the earlier ones.
enum berth_registry_stage {
    BERTH_REGISTRY_EMPTY,
    BERTH_REGISTRY_BUILT_IN,
    BERTH_REGISTRY_INSTALLED,
};
// Loads the stages up to `want` that are not loaded yet. Every query first calls it with the last stage, every change of the
// registry with the built-in stage. Returns true if this call has loaded backends.
bool berth_registry_ready(enum berth_registry_stage want); // builtin.c
// Called if the program loads its backends itself. From then on, queries do not load installed backends.
void berth_registry_skip_installed(void); // builtin.c
// Loads backends from the default folders and from GGML_BACKEND_PATH. BERTH_SCAN_DEVICES: all except CPU backends. BERTH_SCAN_CPU:
// the CPU backend, unless one is registered. Returns false if out of memory.
enum berth_scan { BERTH_SCAN_DEVICES = 1, BERTH_SCAN_CPU = 2, BERTH_SCAN_ALL = 3 };
bool berth_installed_load(enum berth_scan which) BERTH_MUST_USE; // scan.c

// One composite device in place of all GPUs, if BERTH_SPLIT=tensor (split.c). The caller ensures that only one thread at a time
// calls these functions. Only berth_split_make calls functions of a backend.
bool berth_split_is_asked(void);
// Returns the composite device; NULL: there are fewer than two parts, or the composite device cannot be made.
ggml_backend_dev_t berth_split_make(ggml_backend_dev_t *devs, size_t n_devs);
// Returns the parts that the composite device replaces in the list of devices. berth_split_has returns whether dev is one of them.
const ggml_backend_dev_t *berth_split_hidden(size_t *n);
bool berth_split_has(ggml_backend_dev_t dev);
// Returns the composite device if one of its parts belongs to that registry; else NULL.
ggml_backend_dev_t berth_split_of(ggml_backend_reg_t reg);
// Forgets the composite device.
void berth_split_drop(void);

// Opens a library file; on failure returns NULL with an error that names the file.
void *berth_library_open(const char *path); // load.c
// Opens the file and registers its backend. say: log the loaded backend, if it has devices.
enum ggml_status berth_library_load(const char *path, bool say, ggml_backend_reg_t *out) BERTH_MUST_USE; // load.c
// Returns why the file cannot be a library for this machine; NULL: no reason found.
const char *berth_library_flaw(const char *path, char *text, size_t size); // elf.c
// Writes the folder from which libggml was loaded, with a trailing slash. If libggml was loaded through a symbolic link, this is
// the folder of the link, or with is_real the folder of the file. Returns false if the folder is unknown.
bool berth_own_folder(char *out, size_t size, bool is_real); // builtin.c

// ---- libraries that import ggml's functions (client.c) ----

// Returns whether the symbol has a prefix of ggml's exported functions: ggml_, gguf_, quantize_ or dequantize_.
BERTH_API bool berth_client_imports(const char *symbol);
// Extracts the release from the file name of a library: libggml.b10361.so -> "b10361". Returns false if the name has none.
BERTH_API bool berth_client_release_of(const char *library, char *release, size_t size);

// Checks all loaded libraries that depend on a library of ggml (clients). Does nothing if no library was loaded since the last
// check. Reports the release of the clients to the base library (berth_client_release). Logs an error that lists the functions
// that clients import and no library exports, because the first call of such a function would end the process.
void berth_client_check(void);

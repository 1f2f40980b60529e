// SPDX-License-Identifier: MIT
// registry.h: functions that the files of the registry share.
#pragma once

#include "base/base.h"
#include "ggml-backend-impl.h"

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

// Adds a registry to the table of the process. handle: the open library of the registry, or NULL. If the registry is added, the
// table owns the handle. If the registry is already listed, *known is true and the caller still owns the handle. Returns false if
// out of memory.
bool berth_registry_add(ggml_backend_reg_t reg, void *handle, bool *known) BERTH_MUST_USE; // registry.c
// Stages of loading backends automatically (builtin.c). Each stage includes the earlier ones.
enum berth_registry_stage {
    BERTH_REGISTRY_EMPTY,
    BERTH_REGISTRY_BUILT_IN,
    BERTH_REGISTRY_INSTALLED,
};
// Loads the stages up to `want` that are not loaded yet.
// Every query calls this function with the last stage, every change of the registry with the built-in stage.
// Returns true if this call has loaded backends.
bool berth_registry_ready(enum berth_registry_stage want); // builtin.c
// After this call, queries do not load installed backends. It serves programs that load their backends themselves.
void berth_registry_skip_installed(void); // builtin.c
// Loads backends from the default folders and from GGML_BACKEND_PATH. BERTH_SCAN_DEVICES: all backends except CPU backends.
// BERTH_SCAN_CPU: a CPU backend, unless one is registered already. Returns false if out of memory.
enum berth_scan { BERTH_SCAN_DEVICES = 1, BERTH_SCAN_CPU = 2, BERTH_SCAN_ALL = 3 };
bool berth_installed_load(enum berth_scan which) BERTH_MUST_USE; // scan.c

// With BERTH_SPLIT=tensor, one composite device replaces all GPUs in the list of devices (split.c). The devices that it combines
// are its parts. These functions are not thread-safe. Only berth_split_make calls functions of a backend.
bool berth_split_is_asked(void); // BERTH_SPLIT=tensor is set, and this process is not an MPI worker
// Makes the composite device. Returns NULL if there are fewer than two parts, or if the device cannot be made.
ggml_backend_dev_t berth_split_make(ggml_backend_dev_t *devs, size_t n_devs);
// Returns the hidden parts: the parts that are no longer in the list of devices.
const ggml_backend_dev_t *berth_split_hidden(size_t *n);
bool berth_split_has(ggml_backend_dev_t dev); // dev is a hidden part
// Returns the composite device. Returns NULL if none of its parts belongs to this registry.
ggml_backend_dev_t berth_split_of(ggml_backend_reg_t reg);
void berth_split_drop(void); // forgets the composite device

// Opens a library. On failure returns NULL with an error that names the file.
void *berth_library_open(const char *path); // load.c
// Loads a backend from a library and adds it to the table. say: log the loaded backend, if it has devices.
enum ggml_status berth_library_load(const char *path, bool say, ggml_backend_reg_t *out) BERTH_MUST_USE; // load.c
// Returns the reason why the file cannot be loaded; NULL if none is found. `text` is memory for the reason.
const char *berth_library_flaw(const char *path, char *text, size_t size); // elf.c
// Writes the folder of libggml, with a trailing slash. is_real: symbolic links are resolved. Returns false if unknown.
bool berth_own_folder(char *out, size_t size, bool is_real); // builtin.c

// ---- libraries that import ggml's functions (client.c) ----

// Returns true if the symbol begins with a prefix of ggml's exported functions: ggml_, gguf_, quantize_ or dequantize_.
BERTH_API bool berth_client_imports(const char *symbol);
// Writes the release in a library's name, for example "b10361" for libggml.b10361.so. Returns false if the name has no release.
BERTH_API bool berth_client_release_of(const char *library, char *release, size_t size);

// Checks the clients. A client is a loaded library that depends on a library of ggml. The check passes the release of the clients
// to berth_client_release. It logs the functions that clients import and no library exports. If no library was loaded since the
// last check, does nothing.
void berth_client_check(void);

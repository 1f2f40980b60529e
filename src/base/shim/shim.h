// SPDX-License-Identifier: MIT
// shim.h: memory, errors, log and function lookup for the library of a backend.
// A backend's library can be loaded with Berth's libggml-base or with ggml's own. With Berth's, these functions use its allocator
// and its last error. With ggml's, they use libc and ggml's log. A backend's library compiles this folder in, and uses no other
// functions of src/base.
#pragma once

#include "base/base.h"

void *shim_malloc(size_t size) BERTH_MUST_USE; // NULL for size 0 too
void *shim_calloc(size_t n, size_t size) BERTH_MUST_USE;
void shim_free(void *p);
void *shim_aligned_alloc(size_t align, size_t size) BERTH_MUST_USE; // align: a power of two >= 8. Free with shim_aligned_free
void shim_aligned_free(void *p);

void shim_log(enum ggml_log_level level, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Logs the text and returns status. If the base library is Berth's, also sets the last error.
enum ggml_status shim_error(enum ggml_status status, const char *fmt, ...) BERTH_PRINTF(2, 3);

// A function that the registry entry of a backend returns by name (get_proc_address).
typedef void (*shim_proc_t)(void);
struct shim_proc {
    const char *name;
    shim_proc_t proc;
};
// Returns NULL if no function has this name.
void *shim_proc_find(const struct shim_proc *procs, size_t n, const char *name);

// SPDX-License-Identifier: MIT
// shim.h: what the library of a backend stands on: memory, errors, log, and the functions it names to who asks. On Berth's
// libggml-base memory and errors are its allocator and its last error; on another ggml base, which has no berth_ symbols, libc
// and ggml's log take their place. Nothing else of src/base is linked to. This folder is compiled into each such library.
#pragma once

#include "base/base.h"

void *shim_malloc(size_t size) BERTH_MUST_USE; // NULL for size 0 too
void *shim_calloc(size_t n, size_t size) BERTH_MUST_USE;
void shim_free(void *p);
void *shim_aligned_alloc(size_t align, size_t size) BERTH_MUST_USE; // align: a power of two >= 8. Pair with shim_aligned_free
void shim_aligned_free(void *p);

// One line to ggml's log.
void shim_log(enum ggml_log_level level, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Keeps the text as the last error where there is one, logs it, returns status.
enum ggml_status shim_error(enum ggml_status status, const char *fmt, ...) BERTH_PRINTF(2, 3);

// A function that a backend's registry entry tells of by name (get_proc_address).
typedef void (*shim_proc_t)(void);
struct shim_proc {
    const char *name;
    shim_proc_t proc;
};
// The address of the one of n that has the name; NULL: none has.
void *shim_proc_find(const struct shim_proc *procs, size_t n, const char *name);

// SPDX-License-Identifier: MIT
// shim.c: the functions of shim.h. The berth_ symbols are weak: NULL if the base library is not Berth's.
// An allocation and its free use the same library, Berth's or libc.

#include "base/shim/shim.h"
#include "base/aligned.h"

#include <stdlib.h>
#include <string.h>

#ifndef _WIN32 // a DLL has no weak imports, so the library only runs with Berth's ggml-base.dll
#    pragma weak berth_malloc
#    pragma weak berth_calloc
#    pragma weak berth_free
#    pragma weak berth_aligned_alloc
#    pragma weak berth_aligned_free
#    pragma weak berth_set_error
#endif

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

void *shim_malloc(size_t size) {
    if (berth_malloc != NULL) {
        return berth_malloc(size);
    }
    return size > 0 ? malloc(size) : NULL;
}

void *shim_calloc(size_t n, size_t size) {
    if (berth_calloc != NULL) {
        return berth_calloc(n, size);
    }
    return n > 0 && size > 0 ? calloc(n, size) : NULL;
}

void shim_free(void *p) {
    if (berth_free != NULL) {
        berth_free(p);
    } else {
        free(p);
    }
}

void *shim_aligned_alloc(size_t align, size_t size) {
    if (berth_aligned_alloc != NULL) {
        return berth_aligned_alloc(align, size);
    }
    return size > 0 ? aligned_new(align, size) : NULL;
}

void shim_aligned_free(void *p) {
    if (berth_aligned_free != NULL) {
        berth_aligned_free(p);
    } else {
        aligned_delete(p);
    }
}

void shim_log(enum ggml_log_level level, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ggml_log_internal(level, "%s\n", text);
}

enum ggml_status shim_error(enum ggml_status status, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (berth_set_error != NULL) {
        berth_set_error("%s", text);
    }
    shim_log(GGML_LOG_LEVEL_ERROR, "%s", text);
    return status;
}

void *shim_proc_find(const struct shim_proc *procs, size_t n, const char *name) {
    for (size_t i = 0; name != NULL && i < n; i++) {
        if (strcmp(procs[i].name, name) == 0) {
            void *address; // ISO C has no cast from function to object pointers; on POSIX both have the same bits
            memcpy(&address, &procs[i].proc, sizeof address);
            return address;
        }
    }
    return NULL;
}

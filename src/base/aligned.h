// SPDX-License-Identifier: MIT
// aligned.h: aligned memory of the system. On Windows, free cannot free it.
#pragma once

#include <stddef.h>
#include <stdlib.h>

#ifdef _WIN32
#    include <malloc.h>
#endif

// align: a power of two, at least sizeof(void *). Free with aligned_delete.
static inline void *aligned_new(size_t align, size_t size) {
#ifdef _WIN32
    return _aligned_malloc(size, align);
#else
    void *p = NULL;
    return posix_memalign(&p, align, size) == 0 ? p : NULL;
#endif
}

static inline void aligned_delete(void *p) {
#ifdef _WIN32
    _aligned_free(p);
#else
    free(p);
#endif
}

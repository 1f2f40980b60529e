// SPDX-License-Identifier: MIT
// base_shim.c: berth_ symbols are taken weakly, see base_shim.h. Both halves of a pair come from the same library, so memory
// never crosses.

#include "cpu/base_shim.h"

#include "backend/backend.h"

#include <stdlib.h>

#pragma weak berth_malloc
#pragma weak berth_calloc
#pragma weak berth_free
#pragma weak berth_aligned_alloc
#pragma weak berth_aligned_free
#pragma weak berth_set_error
#pragma weak berth_poison_error
#pragma weak berth_backend_has_checked

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

void *cpu_malloc(size_t size) {
    if (berth_malloc != NULL) {
        return berth_malloc(size);
    }
    return size > 0 ? malloc(size) : NULL;
}

void *cpu_calloc(size_t n, size_t size) {
    if (berth_calloc != NULL) {
        return berth_calloc(n, size);
    }
    return n > 0 && size > 0 ? calloc(n, size) : NULL;
}

void cpu_free(void *p) {
    if (berth_free != NULL) {
        berth_free(p);
    } else {
        free(p);
    }
}

void *cpu_aligned_alloc(size_t align, size_t size) {
    if (berth_aligned_alloc != NULL) {
        return berth_aligned_alloc(align, size);
    }
    void *p = NULL;
    return size > 0 && posix_memalign(&p, align, size) == 0 ? p : NULL;
}

void cpu_aligned_free(void *p) {
    if (berth_aligned_free != NULL) {
        berth_aligned_free(p);
    } else {
        free(p);
    }
}

void cpu_log(enum ggml_log_level level, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ggml_log_internal(level, "%s\n", text);
}

enum ggml_status cpu_error(enum ggml_status status, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (berth_set_error != NULL) {
        berth_set_error("%s", text);
    }
    ggml_log_internal(GGML_LOG_LEVEL_ERROR, "%s\n", text);
    return status;
}

bool cpu_base_has_checked(const struct ggml_cgraph *graph) {
    return berth_backend_has_checked != NULL && berth_backend_has_checked(graph);
}

const char *cpu_poison_text(const struct ggml_tensor *t) {
    return berth_poison_error != NULL ? berth_poison_error(t) : "";
}

// SPDX-License-Identifier: MIT
// load.c: loads a backend from a library file. If the file cannot be loaded, an error is reported, and the process continues.

#include "registry/registry.h"

#include <dlfcn.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#endif

// If a CPU backend is linked into the program, a loaded CPU backend would call the functions of the linked one, because the names
// are the same. RTLD_DEEPBIND prevents this. The flag is not used in other cases, because preloaded allocators and sanitizers do
// not support it.
static int open_flags(void) {
    int flags = RTLD_NOW | RTLD_LOCAL;
#if defined(RTLD_DEEPBIND) && !defined(SANITIZED)
    if (dlsym(RTLD_DEFAULT, "ggml_backend_cpu_reg") != NULL) {
        flags |= RTLD_DEEPBIND;
    }
#endif
    return flags;
}

void *berth_library_open(const char *path) {
    char text[160];
    const char *flaw = berth_library_flaw(path, text, sizeof text);
    if (flaw != NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "backend %s cannot be loaded: %s", path, flaw);
    }
    void *handle = dlopen(path, open_flags());
    if (handle == NULL) {
        berth_fail(GGML_STATUS_FAILED, "backend %s cannot be loaded: %s", path, dlerror());
    }
    return handle;
}

// ISO C has no conversion from object to function pointers; POSIX guarantees that the bytes are the same.
static void symbol_get(void *handle, const char *name, void *out) {
    void *p = dlsym(handle, name);
    memcpy(out, &p, sizeof p);
}

// Returns NULL with an error on failure.
static ggml_backend_reg_t reg_of(void *handle, const char *path) {
    ggml_backend_score_t score;
    ggml_backend_init_t init;
    symbol_get(handle, "ggml_backend_score", &score);
    symbol_get(handle, "ggml_backend_init", &init);
    if (init == NULL) {
        return BERTH_FAIL_NULL(
            GGML_STATUS_FAILED, "backend %s cannot be loaded: not a backend: it does not export ggml_backend_init", path);
    }
    if (score != NULL && score() <= 0) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "backend %s cannot be loaded: it does not support this machine", path);
    }
    ggml_backend_reg_t reg = init();
    if (reg == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "backend %s cannot be loaded: its ggml_backend_init failed", path);
    }
    if (reg->api_version != GGML_BACKEND_API_VERSION) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED,
            "backend %s cannot be loaded: it implements API version %d, this Berth requires %d", path, reg->api_version,
            GGML_BACKEND_API_VERSION);
    }
    return reg;
}

enum ggml_status berth_library_load(const char *path, bool say, ggml_backend_reg_t *out) {
    enum ggml_status status = GGML_STATUS_FAILED;
    void *handle = berth_library_open(path);
    ggml_backend_reg_t reg = handle != NULL ? reg_of(handle, path) : NULL;
    bool known = false;
    if (reg != NULL) {
        status = berth_registry_add(reg, handle, &known) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
    }
    if (handle != NULL && (status != GGML_STATUS_SUCCESS || known)) {
        dlclose(handle);
    }
    *out = status == GGML_STATUS_SUCCESS ? reg : NULL;
    // A library without devices, such as MPI's outside mpirun, is not logged.
    if (say && *out != NULL && !known && ggml_backend_reg_dev_count(reg) > 0) {
        ggml_log_internal(GGML_LOG_LEVEL_INFO, "loaded %s backend from %s\n", ggml_backend_reg_name(reg), path);
    }
    return status;
}

ggml_backend_reg_t ggml_backend_load(const char *path) {
    if (path == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_load: the path is NULL");
    }
    berth_registry_ready(BERTH_REGISTRY_BUILT_IN);
    ggml_backend_reg_t reg;
    const enum ggml_status status = berth_library_load(path, true, &reg);
    return status == GGML_STATUS_SUCCESS ? reg : NULL;
}

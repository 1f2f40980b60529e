// SPDX-License-Identifier: MIT
// builtin.c: the backends that are there without being loaded: those linked into the process, and failing that the CPU backend
// that lies beside this library, with the devices of other ranks where mpirun started the process. Their functions are weak
// symbols, so that this library also runs where a package brings its own CPU backends as loadable files and none is linked.

#include "registry/registry.h"

#include "base/launcher.h"
#include "base/lock.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef GGML_SHARED
#    pragma weak ggml_backend_cpu_reg
#endif
#pragma weak ggml_backend_cuda_reg

static struct berth_lock builtin_lock = BERTH_LOCK_INIT;
static atomic_bool is_ready;
static BERTH_LATE_LOCAL bool is_inside; // a backend's set-up may ask the registry

bool berth_own_folder(char *out, size_t size, bool is_real) {
    Dl_info info;
    char real[PATH_MAX];
    const char *path = dladdr((const void *) &is_ready, &info) != 0 ? info.dli_fname : NULL;
    if (path != NULL && is_real) {
        path = realpath(path, real);
    }
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const size_t len  = slash != NULL ? (size_t) (slash - path) + 1 : 0;
    if (len == 0 || len >= size) {
        return false;
    }
    memcpy(out, path, len);
    out[len] = '\0';
    return true;
}

// A device's backend comes before the CPU's: programs take devices in order.
static bool add_linked(ggml_backend_reg_t (*get)(void)) {
    bool known;
    ggml_backend_reg_t reg = get != NULL ? get() : NULL;
    return reg == NULL || berth_registry_add(reg, NULL, &known);
}

// False: out of memory. A file that is missing or broken is not tried again.
static bool add_file(const char *file) {
    char path[4096];
    ggml_backend_reg_t reg;
    for (int is_real = 0; is_real < 2; is_real++) {
        if (berth_own_folder(path, sizeof path - strlen(file), is_real)) {
            strcat(path, file);
            if (access(path, R_OK) == 0) {
                return berth_library_load(path, false, &reg) != GGML_STATUS_ALLOC_FAILED;
            }
        }
    }
    return true;
}

// Programs that find a backend here look no further: what a rank needs has to be there, whether the CPU backend is linked or not.
// A static library's program has no part in a file's registry.
static bool add_ranks(void) {
#ifdef GGML_SHARED
    return !berth_has_mpirun() || add_file("libggml-mpi.so");
#else
    return true;
#endif
}

void berth_registry_ready(void) {
    if (BERTH_LIKELY(atomic_load_explicit(&is_ready, memory_order_acquire)) || is_inside) {
        return;
    }
    berth_log_hold();
    berth_lock_take(&builtin_lock);
    if (!atomic_load(&is_ready)) {
        is_inside = true;
        // Out of memory: what is missing is tried again at the next question.
        ggml_backend_reg_t (*cuda)(void) = ggml_backend_cuda_reg;
        ggml_backend_reg_t (*cpu)(void)  = ggml_backend_cpu_reg;
        const bool ok_cuda = add_linked(cuda), ok_mpi = add_ranks();
        const bool ok_cpu = cpu != NULL ? add_linked(cpu) : add_file("libggml-cpu.so");
        is_inside         = false;
        atomic_store_explicit(&is_ready, ok_cuda && ok_mpi && ok_cpu, memory_order_release);
    }
    berth_lock_drop(&builtin_lock);
    berth_log_let_go();
}

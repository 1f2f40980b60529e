// SPDX-License-Identifier: MIT
// builtin.c: loads backends at the first query, in two stages.
//
// Stage 1, built-in backends: the CUDA and CPU backends that are linked (weak symbols). If no CPU backend is linked,
// libggml-cpu.so is loaded. If mpirun started the process, libggml-mpi.so is also loaded, which has the devices of other ranks.
//
// Stage 2, installed backends: all backends in the default folders (scan.c).
//
// One thread loads, without holding a lock. Other threads wait for at most WAIT_S seconds, because the backend that is being
// loaded may itself wait for one of these threads. A query that does not wait any longer, or that comes from the loading thread,
// sees the backends that are registered so far.

#include "registry/registry.h"

#include "base/launcher.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef _WIN32 // a DLL has no weak imports: the CPU backend is always linked, and there is no CUDA backend
#    define ggml_backend_cuda_reg NULL
#else
#    ifdef GGML_SHARED
#        pragma weak ggml_backend_cpu_reg
#    endif
#    pragma weak ggml_backend_cuda_reg
#endif

#define WAIT_S 10 // seconds

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t load_ended = PTHREAD_COND_INITIALIZER;
static bool is_loading,
    is_stuck; // guarded by load_lock; is_stuck: a thread has waited WAIT_S seconds for the current load, so others do not wait
static atomic_int stage;                // enum berth_registry_stage: the last complete stage
static BERTH_LATE_LOCAL bool is_loader; // this thread loads backends

bool berth_own_folder(char *out, size_t size, bool is_real) {
    Dl_info info;
    char real[PATH_MAX];
    const char *path = dladdr((const void *) &stage, &info) != 0 ? info.dli_fname : NULL;
    if (path != NULL && is_real) {
        path = realpath(path, real);
    }
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const size_t len = slash != NULL ? (size_t) (slash - path) + 1 : 0;
    if (len == 0 || len >= size) {
        return false;
    }
    memcpy(out, path, len);
    out[len] = '\0';
    return true;
}

// Registers a linked backend. get is NULL if the backend is not linked. Returns false if out of memory.
static bool add_linked(ggml_backend_reg_t (*get)(void)) {
    bool known;
    ggml_backend_reg_t reg = get != NULL ? get() : NULL;
    return reg == NULL || berth_registry_add(reg, NULL, &known);
}

// Loads a backend from the folder of libggml. Returns false if out of memory. A missing or broken file is not an error.
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

// Loads the devices of other ranks if mpirun started the process. With the static library, no backends can be loaded, because
// they would use another copy of the registry.
static bool add_ranks(void) {
#ifdef GGML_SHARED
    return !berth_has_mpirun() || add_file("libggml-mpi.so");
#else
    return true;
#endif
}

// ---- one thread loads ----

// If this function returns true, the caller loads up to stage `want` and then calls load_end.
// Returns false if the stage is complete or the wait has timed out.
static bool load_begin(enum berth_registry_stage want) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_S;
    pthread_mutex_lock(&load_lock);
    while (is_loading && !is_stuck && (int) want > atomic_load(&stage)) {
        is_stuck = pthread_cond_timedwait(&load_ended, &load_lock, &end) != 0 && is_loading;
    }
    const bool is_mine = !is_loading && (int) want > atomic_load(&stage);
    if (is_mine) {
        is_loading = true;
    }
    pthread_mutex_unlock(&load_lock);
    return is_mine;
}

static void load_end(int reached) {
    pthread_mutex_lock(&load_lock);
    is_loading = false;
    is_stuck = false;
    if (reached > atomic_load(&stage)) {
        atomic_store_explicit(&stage, reached, memory_order_release);
    }
    pthread_cond_broadcast(&load_ended);
    pthread_mutex_unlock(&load_lock);
}

// Loads the stages after `from` up to `want`. GPU backends come before the CPU backend, because programs prefer the first
// devices. Returns the last complete stage, which is less than `want` if out of memory.
static int stage_load(int from, enum berth_registry_stage want) {
    ggml_backend_reg_t (*cuda)(void) = ggml_backend_cuda_reg;
    ggml_backend_reg_t (*cpu)(void) = ggml_backend_cpu_reg;
    const bool is_first = from < BERTH_REGISTRY_BUILT_IN;
    bool ok = true;
    if (is_first) {
        const bool ok_cuda = add_linked(cuda), ok_mpi = add_ranks();
        ok = ok_cuda && ok_mpi;
    }
    bool ok_all = want < BERTH_REGISTRY_INSTALLED || berth_installed_load(BERTH_SCAN_DEVICES);
    if (is_first) {
        ok &= cpu != NULL ? add_linked(cpu) : add_file("libggml-cpu.so");
    }
    if (want >= BERTH_REGISTRY_INSTALLED) {
        ok_all = berth_installed_load(BERTH_SCAN_CPU) && ok_all;
    }
    if (!ok) {
        return from;
    }
    return ok_all ? (int) want : BERTH_REGISTRY_BUILT_IN;
}

bool berth_registry_ready(enum berth_registry_stage want) {
    if (BERTH_LIKELY((int) want <= atomic_load_explicit(&stage, memory_order_acquire)) || is_loader) {
        return false;
    }
    if (!load_begin(want)) {
        return false;
    }
    is_loader = true;
    berth_log_hold();
    const int reached = stage_load(atomic_load(&stage), want);
    is_loader = false;
    load_end(reached);
    berth_log_let_go();
    return true;
}

void berth_registry_skip_installed(void) {
    pthread_mutex_lock(&load_lock);
    if (!is_loading && atomic_load(&stage) == BERTH_REGISTRY_BUILT_IN) {
        atomic_store_explicit(&stage, BERTH_REGISTRY_INSTALLED, memory_order_release);
    }
    pthread_mutex_unlock(&load_lock);
}

// SPDX-License-Identifier: MIT
// builtin.c: loads the backends that no program names. It does this in two stages.
// Built-in backends are those linked into the process. If none is linked, the CPU backend in this library's folder takes their
// place. If mpirun started the process, the devices of other ranks are built in too. The functions of linked backends are weak
// symbols, so that this library also runs if none is linked and a package has its own CPU backends as loadable files.
// Installed backends are all backends in the default folders (scan.c). The first query loads them, because programs that find any
// backend do not load backends themselves.
//
// One thread loads, without holding a lock; other threads wait for it. A backend may query the registry while it is loaded. Its
// thread sees the backends that are registered so far. Another thread sees the same after WAIT_S seconds, because the backend may
// be waiting for that thread.

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

#ifdef GGML_SHARED
#    pragma weak ggml_backend_cpu_reg
#endif
#pragma weak ggml_backend_cuda_reg

#define WAIT_S 10 // seconds that a thread waits for the thread that loads backends

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t load_ended = PTHREAD_COND_INITIALIZER;
static bool is_loading, is_stuck;       // under the lock; is_stuck: a thread has waited WAIT_S during this load
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

// The caller adds a GPU's backend before the CPU's, because programs use devices in order.
static bool add_linked(ggml_backend_reg_t (*get)(void)) {
    bool known;
    ggml_backend_reg_t reg = get != NULL ? get() : NULL;
    return reg == NULL || berth_registry_add(reg, NULL, &known);
}

// Returns false if out of memory. A missing or broken file is not an error, and is not tried again.
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

// Programs that find a backend do not search for more, so a rank's devices must be registered whether the CPU backend is linked or
// not. A program that is linked with the static library does not share its registry with a loadable file.
static bool add_ranks(void) {
#ifdef GGML_SHARED
    return !berth_has_mpirun() || add_file("libggml-mpi.so");
#else
    return true;
#endif
}

// ---- one thread loads ----

// Returns true if this thread must load up to stage `want` and then call load_end. Returns false if the stage is complete, or if
// waiting for it has timed out.
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

// Returns the last complete stage. After a lack of memory, the next query tries the rest again.
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

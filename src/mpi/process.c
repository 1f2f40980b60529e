// SPDX-License-Identifier: MIT
// process.c: the one world of a process that mpirun started: found by the environment, joined when devices are first asked for,
// left when the process ends. A worker that waits for a program which never joins looks after it by itself.

#include "mpi/world.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_world process_world;
static enum { NOT_TRIED, JOINED, NOT_JOINED } process_state;
static bool is_joining; // a worker waits in MPI_Init; under join_lock
static pthread_mutex_t join_lock = PTHREAD_MUTEX_INITIALIZER;

// Open MPI's launcher, and those of MPICH and of Slurm.
bool mpi_process_has_mpirun(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && text[0] != '\0') {
            return true;
        }
    }
    return false;
}

bool mpi_process_is_worker(void) {
    const char *role = getenv("BERTH_MPI_ROLE");
    return role != NULL && strcmp(role, "worker") == 0;
}

// ---- the link ----

static bool beside(char *path, size_t size, const char *file) {
    Dl_info info;
    const char *slash = NULL;
    if (dladdr((const void *) &process_lock, &info) != 0 && info.dli_fname != NULL) {
        slash = strrchr(info.dli_fname, '/');
    }
    return slash != NULL && snprintf(path, size, "%.*s/%s", (int) (slash - info.dli_fname), info.dli_fname, file) < (int) size;
}

static bool link_open(struct mpi_transport *t) {
    char path[4096], why[256] = "its place cannot be found";
    void *handle = beside(path, sizeof path, MPI_LINK_FILE) ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (handle == NULL) {
        const char *reason = dlerror();
        shim_error(GGML_STATUS_FAILED, "MPI: %s cannot be loaded: %s", MPI_LINK_FILE, reason != NULL ? reason : why);
        return false;
    }
    mpi_link_open_t open;
    void *p = dlsym(handle, MPI_LINK_OPEN);
    memcpy(&open, &p, sizeof open);
    t->alloc   = shim_malloc;
    t->release = shim_free;
    if (open == NULL || !open(t, why, sizeof why)) {
        shim_error(GGML_STATUS_FAILED, "MPI: %s", open == NULL ? MPI_LINK_FILE " has no " MPI_LINK_OPEN : why);
        return false;
    }
    return true;
}

// ---- a worker before it has joined ----

static bool environ_has(int pid, const char *text) {
    char path[64], line[4096];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *file = fopen(path, "r");
    for (size_t n = 0; file != NULL && !found;) {
        const int c = getc(file);
        line[n]     = c > 0 && n < sizeof line - 1 ? (char) c : '\0';
        if (c <= 0) {
            found = strcmp(line, text) == 0;
            n     = 0;
        } else {
            n += n < sizeof line - 1;
        }
        if (c == EOF) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

// The process of rank 0 among what our launcher started here; 0: none.
static int first_rank(int launcher) {
    char path[64];
    int pid = 0, found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", launcher, launcher);
    FILE *file = fopen(path, "r");
    while (file != NULL && found == 0 && fscanf(file, "%d", &pid) == 1) {
        found = environ_has(pid, "OMPI_COMM_WORLD_RANK=0") || environ_has(pid, "PMI_RANK=0") ? pid : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static bool still_joining(void) {
    pthread_mutex_lock(&join_lock);
    const bool yes = is_joining;
    pthread_mutex_unlock(&join_lock);
    return yes;
}

// MPI_Init waits for all ranks. A program that ends before it has called it, or a launcher that does, ends us too.
static void *watch_joining(void *unused) {
    (void) unused;
    const int launcher = (int) getppid();
    bool seen          = false;
    while (still_joining()) {
        const struct timespec pause = {.tv_nsec = 200000000};
        nanosleep(&pause, NULL);
        const bool is_there = first_rank(launcher) != 0;
        seen                = seen || is_there;
        if (still_joining() && ((int) getppid() != launcher || (seen && !is_there))) {
            shim_log(GGML_LOG_LEVEL_WARN, "MPI: the program ended before it asked for devices");
            _exit(1);
        }
    }
    return NULL;
}

static void joining(bool begins) {
    pthread_mutex_lock(&join_lock);
    is_joining = begins;
    pthread_mutex_unlock(&join_lock);
    pthread_t thread;
    if (begins && pthread_create(&thread, NULL, watch_joining, NULL) == 0) {
        pthread_detach(thread);
    }
}

// ---- the end ----

static int exit_status;

// MPI_Finalize waits for ranks that may die meanwhile.
static void *watch_leaving(void *unused) {
    (void) unused;
    const struct timespec pause = {.tv_sec = (time_t) (process_world.mail.timeout / MPI_SECOND) + 1};
    nanosleep(&pause, NULL);
    _exit(exit_status);
}

static void leave(int status, void *unused) {
    (void) unused;
    pthread_t thread;
    exit_status = status;
    // Others may have work to do for long, so only what follows their good-byes is limited: mail.c's timeout limits those.
    if (process_state == JOINED) {
        process_state = NOT_JOINED;
        mpi_world_part(&process_world);
        if (pthread_create(&thread, NULL, watch_leaving, NULL) == 0) {
            pthread_detach(thread);
        }
        mpi_world_fini(&process_world);
    }
}

// ---- joining ----

static bool join(const struct mpi_device_info *devices, size_t n_devices) {
    struct mpi_transport t = {0};
    const bool is_worker   = mpi_process_is_worker();
    if (is_worker) {
        joining(true);
    }
    bool ok = link_open(&t);
    joining(false);
    ok = ok && mpi_world_init(&process_world, &t, is_worker, devices, n_devices);
    if (ok) {
        on_exit(leave, NULL);
    }
    return ok;
}

struct mpi_world *mpi_process_world(const struct mpi_device_info *devices, size_t n_devices) {
    pthread_mutex_lock(&process_lock);
    if (process_state == NOT_TRIED) {
        process_state = mpi_process_has_mpirun() && join(devices, n_devices) ? JOINED : NOT_JOINED;
    }
    struct mpi_world *w = process_state == JOINED ? &process_world : NULL;
    pthread_mutex_unlock(&process_lock);
    return w;
}

// SPDX-License-Identifier: MIT
// process.c: the world (set of ranks) of a process that mpirun started.
// The process joins the world when devices are first queried, and leaves it when the process ends.
//
// MPI_Init waits for all ranks, so a separate thread (the joining thread) calls MPI_Init and exchanges the hello messages.
// Meanwhile the thread that queried devices (the waiting thread) checks the ranks on this machine. If a rank has ended, the
// waiting thread gives up, because an MPI call may then never return (Open MPI 4.1 loops in its progress engine). A worker waits
// for its program as long as the launcher exists.

#include "mpi/world.h"

#include "base/launcher.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_world process_world;
static enum { NOT_TRIED, JOINED, NOT_JOINED } process_state;
// True while this thread joins the world. A log callback may then query devices; this query must not join again.
static BERTH_LATE_LOCAL bool is_joining;

bool mpi_process_is_joining(void) {
    return is_joining;
}

// Returns the number in an environment variable of another process, -1: not set. `name` ends with '='.
static int environ_number(int pid, const char *name) {
    char path[64], line[256];
    int number = -1;
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *file = fopen(path, "r");
    for (int c = 0; file != NULL && number < 0 && (c = getc(file)) != EOF;) {
        line[n] = (char) c;
        if (c == 0) {
            number = strncmp(line, name, strlen(name)) == 0 ? atoi(line + strlen(name)) : -1;
            n = 0;
        } else {
            n += n < sizeof line - 2;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return number;
}

// Returns the rank of a process, -1: the process is not a rank.
static int rank_of(int pid) {
    const int rank = environ_number(pid, "OMPI_COMM_WORLD_RANK=");
    return rank < 0 ? environ_number(pid, "PMI_RANK=") : rank;
}

static bool is_same_program(int pid) {
    char path[64];
    struct stat mine, other;
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    return stat("/proc/self/exe", &mine) == 0 && stat(path, &other) == 0 && mine.st_dev == other.st_dev &&
           mine.st_ino == other.st_ino;
}

// Returns true if this process is a helper: a child of a rank that runs the same program and has inherited the rank's
// environment. A helper is not a rank itself. For example, a Node program starts itself to test whether a library can be loaded.
static bool is_helper(void) {
    const int parent = (int) getppid(), rank = rank_of(parent);
    return rank >= 0 && rank == rank_of((int) getpid()) && is_same_program(parent);
}

static pthread_once_t mpirun_once = PTHREAD_ONCE_INIT;
static bool has_mpirun;

static void look_for_mpirun(void) {
    has_mpirun = berth_has_mpirun() && !is_helper();
}

bool mpi_process_has_mpirun(void) {
    pthread_once(&mpirun_once, look_for_mpirun);
    return has_mpirun;
}

bool mpi_process_is_worker(void) {
    const char *role = getenv("BERTH_MPI_ROLE");
    return role != NULL && strcmp(role, "worker") == 0;
}

// ---- transport library ----

static bool path_in_own_folder(char *path, size_t size, const char *file) {
    Dl_info info;
    const char *slash = NULL;
    if (dladdr((const void *) &process_lock, &info) != 0 && info.dli_fname != NULL) {
        slash = strrchr(info.dli_fname, '/');
    }
    return slash != NULL && snprintf(path, size, "%.*s/%s", (int) (slash - info.dli_fname), info.dli_fname, file) < (int) size;
}

static bool link_open(struct mpi_transport *t, char *why, size_t why_size) {
    char path[4096];
    void *handle = path_in_own_folder(path, sizeof path, MPI_LINK_FILE) ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (handle == NULL) {
        const char *reason = dlerror();
        snprintf(why, why_size, "cannot load %s: %s", MPI_LINK_FILE, reason != NULL ? reason : "its folder is unknown");
        return false;
    }
    mpi_link_open_t open;
    void *p = dlsym(handle, MPI_LINK_OPEN);
    memcpy(&open, &p, sizeof open);
    t->alloc = shim_malloc;
    t->release = shim_free;
    if (open == NULL) {
        snprintf(why, why_size, "%s has no %s", MPI_LINK_FILE, MPI_LINK_OPEN);
        return false;
    }
    return open(t, why, why_size);
}

// Shared by the joining and the waiting thread. The joining thread may continue after the waiting thread has given up.
static struct {
    pthread_mutex_t lock;
    int64_t linked; // time when MPI_Init returned; 0: not yet
    bool is_done, ok;
    bool is_given_up; // the waiting thread has given up: the joining thread must not join the world
    char why[256];
    bool is_worker; // this field and those below are set before the thread starts
    struct mpi_device_info *devices;
    size_t n_devices;
} joining = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool join_all(char *why, size_t why_size) {
    struct mpi_transport t = {0};
    if (!link_open(&t, why, why_size)) {
        return false;
    }
    pthread_mutex_lock(&joining.lock);
    joining.linked = mpi_now();
    const bool is_given_up = joining.is_given_up;
    pthread_mutex_unlock(&joining.lock);
    if (is_given_up) {
        return false;
    }
    if (!mpi_world_init(&process_world, &t, joining.is_worker, joining.devices, joining.n_devices)) {
        snprintf(why, why_size, "cannot join %d ranks", t.size);
        return false;
    }
    return true;
}

static void *join_thread(void *unused) {
    char why[sizeof joining.why] = "";
    (void) unused;
    is_joining = true;
    const bool ok = join_all(why, sizeof why);
    pthread_mutex_lock(&joining.lock);
    joining.is_done = true;
    joining.ok = ok;
    const bool is_given_up = joining.is_given_up;
    memcpy(joining.why, why, sizeof why);
    pthread_mutex_unlock(&joining.lock);
    if (ok && is_given_up) {
        mpi_world_abandon(&process_world);
    }
    return NULL;
}

// ---- processes of ranks on this machine, before they have joined ----

#define SIBLINGS_MAX 1024 // ranks above this number are not checked

#define START_MAX (3 * MPI_SECOND) // time within which a launcher has started all its ranks on this machine

// The processes that the launcher started on this machine. here[i]: rank i exists now. seen[i]: rank i existed earlier.
struct siblings {
    int launcher;
    // n_started: ranks that the launcher started on this machine; 0: unknown. n_here: existing child processes of the launcher.
    int n_started, n_here;
    bool is_all; // all ranks run on this machine
    bool seen[SIBLINGS_MAX], here[SIBLINGS_MAX];
};

static int number_in(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : 0;
}

static void siblings_init(struct siblings *s) {
    s->launcher = (int) getppid();
    s->n_started = number_in("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (s->n_started <= 0) {
        s->n_started = number_in("MPI_LOCALNRANKS");
    }
    s->is_all = s->n_started == number_in("OMPI_COMM_WORLD_SIZE") || s->n_started == number_in("PMI_SIZE");
}

// Returns a rank that existed earlier and is gone, or -1.
static int sibling_gone(struct siblings *s) {
    char path[64];
    int pid, gone = -1;
    memset(s->here, 0, sizeof s->here);
    s->n_here = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", s->launcher, s->launcher);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%d", &pid) == 1) {
        const int rank = rank_of(pid);
        s->n_here++;
        if (rank >= 0 && rank < SIBLINGS_MAX) {
            s->here[rank] = true;
        }
    }
    for (int i = 0; file != NULL && i < SIBLINGS_MAX; i++) {
        if (s->seen[i] && !s->here[i]) {
            gone = i;
        }
        s->seen[i] = s->seen[i] || s->here[i];
    }
    if (file != NULL) {
        fclose(file);
    }
    return gone;
}

// Returns true if a rank ended before the first check: fewer processes exist than the launcher started.
// This is known only if the launcher is our parent process and not a rank itself.
static bool is_sibling_missing(const struct siblings *s) {
    const int me = rank_of((int) getpid());
    return me >= 0 && me < SIBLINGS_MAX && s->here[me] && s->n_here < s->n_started && rank_of(s->launcher) < 0;
}

// Returns the rank that ended before the first check, -1: unknown.
static int sibling_missing_rank(const struct siblings *s) {
    int i = 0;
    while (i < s->n_started && i < SIBLINGS_MAX && s->here[i]) {
        i++;
    }
    return s->is_all && i < s->n_started && i < SIBLINGS_MAX ? i : -1;
}

// Returns the process id of a rank on this machine, 0: unknown.
static int sibling_find(int launcher, int rank) {
    char path[64];
    int pid, found = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", launcher, launcher);
    FILE *file = fopen(path, "r");
    while (file != NULL && found == 0 && fscanf(file, "%d", &pid) == 1) {
        found = rank_of(pid) == rank ? pid : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

// A thread that ends the worker's process some time after rank 0 has ended, because an MPI call in the worker may never return.
// The thread itself calls no MPI function. It works only if rank 0 is on this machine.
static void *first_rank_watch(void *unused) {
    const struct timespec pause = {.tv_nsec = 200000000};
    const int launcher = (int) getppid();
    const int64_t grace = mpi_queue_timeout() + 3 * MPI_SECOND; // the worker normally ends by itself within this time
    int pid = 0;
    int64_t gone = 0;
    (void) unused;
    while (gone == 0 || mpi_now() - gone < grace) {
        nanosleep(&pause, NULL);
        if (pid == 0) {
            pid = sibling_find(launcher, 0);
        }
        if (gone == 0 && pid != 0 && mpi_pid_is_gone(pid)) {
            gone = mpi_now();
        }
    }
    _exit(1);
}

// Waits until the joining thread has joined the world: first for MPI_Init while all ranks on this machine exist, then for the
// hello messages until the timeout. Returns false with the reason in why.
static bool wait_for_join(bool is_worker, int64_t timeout, char *why, size_t why_size) {
    struct siblings *siblings = shim_calloc(1, sizeof *siblings);
    const int64_t began = mpi_now();
    int64_t last_check = 0, linked = 0;
    int gone = -1;
    bool is_done = false, has_timed_out = false, is_orphan = false, is_missing = false;
    if (siblings != NULL) {
        siblings_init(siblings);
    }
    while (!is_done && gone < 0 && !has_timed_out && !is_orphan && !is_missing) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&joining.lock);
        is_done = joining.is_done;
        linked = joining.linked;
        pthread_mutex_unlock(&joining.lock);
        if (!is_done && mpi_now() - last_check > MPI_SECOND / 10) {
            last_check = mpi_now();
            gone = siblings != NULL && linked == 0 ? sibling_gone(siblings) : -1;
            is_missing = siblings != NULL && linked == 0 && last_check - began > START_MAX && is_sibling_missing(siblings);
            if (is_missing && gone < 0) {
                gone = sibling_missing_rank(siblings);
            }
            is_orphan = siblings != NULL && (int) getppid() != siblings->launcher;
            has_timed_out = linked != 0 ? last_check - linked > timeout : !is_worker && last_check - began > timeout;
        }
    }
    shim_free(siblings);
    pthread_mutex_lock(&joining.lock);
    is_done = joining.is_done; // the joining thread may have finished just now
    joining.is_given_up = !is_done;
    const bool ok = is_done && joining.ok;
    pthread_mutex_unlock(&joining.lock);
    if (is_done) {
        snprintf(why, why_size, "%s", joining.why);
    } else if (gone >= 0) {
        snprintf(why, why_size, "rank %d ended before it joined", gone);
    } else if (is_missing) {
        snprintf(why, why_size, "a rank of this machine ended before it joined");
    } else if (is_orphan) {
        snprintf(why, why_size, "the launcher has ended");
    } else if (linked != 0) {
        snprintf(why, why_size, "the first messages between the ranks have taken longer than %.1f s",
            (double) (mpi_now() - linked) / 1e9);
    } else {
        snprintf(why, why_size, "not all ranks have joined within the time limit");
    }
    return ok;
}

// ---- exit ----

static int exit_status;

// MPI_Finalize waits for ranks that may die meanwhile. If it hangs, this thread ends the process.
static void *leave_watch(void *unused) {
    (void) unused;
    const struct timespec pause = {.tv_sec = (time_t) (process_world.queue.timeout / MPI_SECOND) + 1};
    nanosleep(&pause, NULL);
    _exit(exit_status);
}

static void world_leave(int status, void *unused) {
    (void) unused;
    pthread_t thread;
    exit_status = status;
    // leave_watch starts only after all ranks have sent MPI_BYE or are lost, because another rank may still compute for a long
    // time.
    if (process_state == JOINED) {
        process_state = NOT_JOINED;
        mpi_world_leave(&process_world);
        if (pthread_create(&thread, NULL, leave_watch, NULL) == 0) {
            pthread_detach(thread);
        }
        mpi_world_end(&process_world); // it does not free the world: exit handlers that run later may free buffers
    }
}

// ---- join ----

static char failure_text[sizeof joining.why]; // under process_lock: reason why this rank is alone
static atomic_bool has_report;

// Called after all locks are released, because a log callback may query devices.
void mpi_process_report(void) {
    if (is_joining || !atomic_exchange(&has_report, false)) {
        return;
    }
    if (process_state == JOINED) {
        mpi_world_report_left_out(&process_world);
    } else {
        shim_error(GGML_STATUS_FAILED, "MPI: %s", failure_text);
        shim_log(GGML_LOG_LEVEL_WARN, "MPI: this rank continues without the others: %s", failure_text);
    }
}

static bool world_join(const struct mpi_device_info *devices, size_t n_devices) {
    const bool is_worker = mpi_process_is_worker();
    pthread_t thread;
    joining.is_worker = is_worker;
    joining.devices = shim_calloc(n_devices + 1, sizeof *devices); // owned by the joining thread, which may outlive this call
    joining.n_devices = n_devices;
    if (joining.devices == NULL) {
        snprintf(failure_text, sizeof failure_text, "out of memory for a list of %zu devices", n_devices);
        return false;
    }
    if (n_devices > 0) {
        memcpy(joining.devices, devices, n_devices * sizeof *devices);
    }
    if (pthread_create(&thread, NULL, join_thread, NULL) != 0) {
        snprintf(failure_text, sizeof failure_text, "cannot start a thread");
        shim_free(joining.devices);
        return false;
    }
    pthread_detach(thread);
    if (is_worker && rank_of((int) getpid()) > 0 && pthread_create(&thread, NULL, first_rank_watch, NULL) == 0) {
        pthread_detach(thread);
    }
    if (!wait_for_join(is_worker, 3 * mpi_queue_timeout(), failure_text, sizeof failure_text)) {
        if (is_worker) {
            shim_log(GGML_LOG_LEVEL_ERROR, "MPI: %s", failure_text);
            _exit(1); // MPI's own exit handlers would wait forever
        }
        return false;
    }
    shim_free(joining.devices);
    on_exit(world_leave, NULL);
    return true;
}

struct mpi_world *mpi_process_world(const struct mpi_device_info *devices, size_t n_devices) {
    if (is_joining) {
        return NULL;
    }
    pthread_mutex_lock(&process_lock);
    if (process_state == NOT_TRIED && !mpi_process_has_mpirun()) {
        process_state = NOT_JOINED;
    }
    if (process_state == NOT_TRIED) {
        is_joining = true;
        process_state = world_join(devices, n_devices) ? JOINED : NOT_JOINED;
        is_joining = false;
        atomic_store(&has_report, true);
    }
    struct mpi_world *w = process_state == JOINED ? &process_world : NULL;
    pthread_mutex_unlock(&process_lock);
    return w;
}

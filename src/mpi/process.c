// SPDX-License-Identifier: MIT
// process.c: the one world of a process that mpirun started: found by the environment, joined when devices are first asked for,
// left when the process ends.
//
// MPI_Init waits until all ranks have called it, so it has a thread of its own: whoever waits for that looks at the other ranks
// of this machine meanwhile, and gives up when one of them is gone. A worker waits for its program for as long as that lives.
// The same thread says hello to the others: when one of them dies while they connect, MPI may never return (Open MPI 4.1 turns
// around in its own progress), and who waits gives that up as well.

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
static BERTH_LATE_LOCAL bool is_joining; // this thread joins the ranks, and may be in a log callback meanwhile

bool mpi_process_is_joining(void) {
    return is_joining;
}

// Of an environment's variable with this name and '='; -1: it has none.
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

// Of a rank; -1: of none.
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

// A program may start itself again for some work on the side (Node does, to see whether a library can be loaded), and the
// environment goes along: the rank is its parent's.
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

// ---- the link ----

static bool path_beside(char *path, size_t size, const char *file) {
    Dl_info info;
    const char *slash = NULL;
    if (dladdr((const void *) &process_lock, &info) != 0 && info.dli_fname != NULL) {
        slash = strrchr(info.dli_fname, '/');
    }
    return slash != NULL && snprintf(path, size, "%.*s/%s", (int) (slash - info.dli_fname), info.dli_fname, file) < (int) size;
}

static bool link_open(struct mpi_transport *t, char *why, size_t why_size) {
    char path[4096];
    void *handle = path_beside(path, sizeof path, MPI_LINK_FILE) ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (handle == NULL) {
        const char *reason = dlerror();
        snprintf(why, why_size, "%s cannot be loaded: %s", MPI_LINK_FILE, reason != NULL ? reason : "its place cannot be found");
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

// What the thread that joins leaves behind when it is done; it may outlive the wish for it.
static struct {
    pthread_mutex_t lock;
    int64_t linked; // when MPI was up; 0: it is not
    bool is_done, ok;
    bool is_given_up; // nobody waits for it any more: it does not join
    char why[256];
    bool is_worker; // set before it starts, like what follows
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
    const bool is_unwanted = joining.is_given_up;
    pthread_mutex_unlock(&joining.lock);
    if (is_unwanted) {
        return false;
    }
    if (!mpi_world_init(&process_world, &t, joining.is_worker, joining.devices, joining.n_devices)) {
        snprintf(why, why_size, "%d ranks could not be joined", t.size);
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
    const bool is_unwanted = joining.is_given_up;
    memcpy(joining.why, why, sizeof why);
    pthread_mutex_unlock(&joining.lock);
    if (ok && is_unwanted) {
        mpi_world_abandon(&process_world);
    }
    return NULL;
}

// ---- the ranks of this machine, before they are known ----

#define SIBLINGS_MAX 1024 // more are not looked at

#define START_MAX (3 * MPI_SECOND) // within which a launcher has started all it is going to start here

// All that our launcher started here. seen: bit i of rank i: it was there before.
struct siblings {
    int launcher;
    int n_started, n_here; // ranks that it is to start, 0: not known; processes that there are of its own
    bool is_all;           // there are no other ranks than those
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

// The rank that was there and is gone; -1: none.
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

// Has one ended before anybody looked? Only where the list of the launcher's processes is one: it has this one, and the launcher
// is no rank itself, as a script around this one would be.
static bool is_sibling_missing(const struct siblings *s) {
    const int me = rank_of((int) getpid());
    return me >= 0 && me < SIBLINGS_MAX && s->here[me] && s->n_here < s->n_started && rank_of(s->launcher) < 0;
}

// Which, if that can be told; -1: it cannot.
static int missing_of(const struct siblings *s) {
    int i = 0;
    while (i < s->n_started && i < SIBLINGS_MAX && s->here[i]) {
        i++;
    }
    return s->is_all && i < s->n_started && i < SIBLINGS_MAX ? i : -1;
}

// The process of a rank here; 0: it is not known.
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

// MPI itself may never return to a worker when another rank dies while they connect, and then nothing of what follows in this
// process can tell it to end. Where the first rank is of this machine, a thread that touches no MPI looks after it.
static void *watch_first(void *unused) {
    const struct timespec pause = {.tv_nsec = 200000000};
    const int launcher = (int) getppid();
    const int64_t grace = mpi_queue_timeout() + 3 * MPI_SECOND; // in which it ends by itself
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

// Waits for the thread that joins, as long as there is hope: for MPI while all ranks of this machine are there, and then for the
// others' hellos no longer than their silence may take. False with the reason.
static bool wait_for_join(bool is_worker, int64_t timeout, char *why, size_t why_size) {
    struct siblings *siblings = shim_calloc(1, sizeof *siblings);
    const int64_t began = mpi_now();
    int64_t looked = 0, linked = 0;
    int gone = -1;
    bool is_done = false, is_late = false, is_orphan = false, is_missing = false;
    if (siblings != NULL) {
        siblings_init(siblings);
    }
    while (!is_done && gone < 0 && !is_late && !is_orphan && !is_missing) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&joining.lock);
        is_done = joining.is_done;
        linked = joining.linked;
        pthread_mutex_unlock(&joining.lock);
        if (!is_done && mpi_now() - looked > MPI_SECOND / 10) {
            looked = mpi_now();
            gone = siblings != NULL && linked == 0 ? sibling_gone(siblings) : -1;
            is_missing = siblings != NULL && linked == 0 && looked - began > START_MAX && is_sibling_missing(siblings);
            if (is_missing && gone < 0) {
                gone = missing_of(siblings);
            }
            is_orphan = siblings != NULL && (int) getppid() != siblings->launcher;
            is_late = linked != 0 ? looked - linked > timeout : !is_worker && looked - began > timeout;
        }
    }
    shim_free(siblings);
    pthread_mutex_lock(&joining.lock);
    is_done = joining.is_done; // it may have come back just now
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
        snprintf(why, why_size, "the launcher is gone");
    } else if (linked != 0) {
        snprintf(
            why, why_size, "MPI has not come back from the ranks' first words for %.1f s", (double) (mpi_now() - linked) / 1e9);
    } else {
        snprintf(why, why_size, "not all ranks have joined in time");
    }
    return ok;
}

// ---- the end ----

static int exit_status;

// MPI_Finalize waits for ranks that may die meanwhile.
static void *watch_leaving(void *unused) {
    (void) unused;
    const struct timespec pause = {.tv_sec = (time_t) (process_world.queue.timeout / MPI_SECOND) + 1};
    nanosleep(&pause, NULL);
    _exit(exit_status);
}

static void world_leave(int status, void *unused) {
    (void) unused;
    pthread_t thread;
    exit_status = status;
    // Others may have work to do for long, so only what follows their good-byes is limited: queue.c's timeout limits those.
    if (process_state == JOINED) {
        process_state = NOT_JOINED;
        mpi_world_part(&process_world);
        if (pthread_create(&thread, NULL, watch_leaving, NULL) == 0) {
            pthread_detach(thread);
        }
        mpi_world_end(&process_world); // handlers that were set before this one come after it, and may free buffers
    }
}

// ---- joining ----

// What is to be told of it, once no lock is held: a log callback may ask for devices in turn.
static char untold_why[sizeof joining.why]; // under process_lock: this rank is alone, and why
static atomic_bool is_untold;

void mpi_process_report(void) {
    if (is_joining || !atomic_exchange(&is_untold, false)) {
        return;
    }
    if (process_state == JOINED) {
        mpi_world_report_left_out(&process_world);
    } else {
        shim_error(GGML_STATUS_FAILED, "MPI: %s", untold_why);
        shim_log(GGML_LOG_LEVEL_WARN, "MPI: this rank goes on without the others: %s", untold_why); // a program can
    }
}

static bool world_join(const struct mpi_device_info *devices, size_t n_devices) {
    const bool is_worker = mpi_process_is_worker();
    pthread_t thread;
    joining.is_worker = is_worker;
    joining.devices = shim_calloc(n_devices + 1, sizeof *devices); // the thread's, which may be left alone with it
    joining.n_devices = n_devices;
    if (joining.devices == NULL) {
        snprintf(untold_why, sizeof untold_why, "out of memory for a list of %zu devices", n_devices);
        return false;
    }
    if (n_devices > 0) {
        memcpy(joining.devices, devices, n_devices * sizeof *devices);
    }
    if (pthread_create(&thread, NULL, join_thread, NULL) != 0) {
        snprintf(untold_why, sizeof untold_why, "no thread can be started");
        shim_free(joining.devices);
        return false;
    }
    pthread_detach(thread);
    if (is_worker && rank_of((int) getpid()) > 0 && pthread_create(&thread, NULL, watch_first, NULL) == 0) {
        pthread_detach(thread);
    }
    if (!wait_for_join(is_worker, 3 * mpi_queue_timeout(), untold_why, sizeof untold_why)) {
        if (is_worker) {
            shim_log(GGML_LOG_LEVEL_ERROR, "MPI: %s", untold_why);
            _exit(1); // MPI's own end would wait for ever
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
        atomic_store(&is_untold, true);
    }
    struct mpi_world *w = process_state == JOINED ? &process_world : NULL;
    pthread_mutex_unlock(&process_lock);
    return w;
}

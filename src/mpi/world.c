// SPDX-License-Identifier: MIT
// world.c: joins and leaves the world (set of ranks). Every rank sends every other rank a hello message.
// Hello messages are not trusted: all fields are checked. A rank of another version is left out.

#include "mpi/world.h"

#include "base/min.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_EVERY 2000000 // nanoseconds between two calls of mpi_queue_progress
#define DEVICES_MAX 4096       // per rank; a longer list is invalid

// ---- own hello message ----

static void read_line(const char *path, char *out, size_t size) {
    FILE *file = fopen(path, "r");
    out[0] = '\0';
    if (file != NULL && fgets(out, (int) size, file) == NULL) {
        out[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    out[strcspn(out, "\n")] = '\0';
}

static void hello_fill(struct mpi_hello *h, bool is_worker, size_t n_devices) {
    char boot[48], space[40] = "";
    *h = (struct mpi_hello){.magic = MPI_MAGIC,
        .version = MPI_WIRE_VERSION,
        .is_worker = is_worker,
        .n_devices = (uint32_t) n_devices,
        .pid = (int32_t) getpid(),
        .release = BERTH_VERSION};
    gethostname(h->host, sizeof h->host - 1);
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    const ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[max_i64(n, 0)] = '\0';
    if (boot[0] != '\0' && space[0] != '\0') { // otherwise no process ids can be compared
        snprintf(h->pid_namespace, sizeof h->pid_namespace, "%s %s", boot, space);
    }
}

static bool hello_send(struct mpi_world *w, const struct mpi_hello *mine, const struct mpi_device_info *devices) {
    const size_t size = sizeof *mine + mine->n_devices * sizeof *devices;
    char *body = shim_malloc(size);
    bool ok = body != NULL;
    if (!ok) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a list of %u devices", mine->n_devices);
        return false;
    }
    memcpy(body, mine, sizeof *mine);
    if (mine->n_devices > 0) {
        memcpy(body + sizeof *mine, devices, size - sizeof *mine);
    }
    const struct mpi_head head = {.kind = MPI_HELLO};
    for (int i = 0; i < w->queue.transport.size; i++) {
        // A rank that is already lost is reported when it is needed.
        ok = (i == w->queue.transport.rank || mpi_queue_send(&w->queue, i, &head, body, size) != GGML_STATUS_ALLOC_FAILED) && ok;
    }
    shim_free(body);
    return ok;
}

// ---- hello messages of the others ----

static bool is_text(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static bool devices_check(const struct mpi_device_info *d, size_t n) {
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = is_text(d[i].name, sizeof d[i].name) && is_text(d[i].description, sizeof d[i].description) && d[i].alignment > 0 &&
             d[i].alignment <= (uint64_t) 1 << 30 && (d[i].alignment & (d[i].alignment - 1)) == 0;
    }
    return ok;
}

// If the hello message is incomplete or of another version, the rank is lost.
static bool hello_check(struct mpi_world *w, int rank, const struct mpi_hello *h, size_t size) {
    if (size < sizeof *h || h->magic != MPI_MAGIC || !is_text(h->release, sizeof h->release) ||
        !is_text(h->host, sizeof h->host) || !is_text(h->pid_namespace, sizeof h->pid_namespace)) {
        mpi_queue_lose(&w->queue, rank, "its hello message of %zu bytes is invalid", size);
        return false;
    }
    memcpy(w->queue.peers[rank].host, h->host, sizeof h->host);
    if (h->version != MPI_WIRE_VERSION || strcmp(h->release, BERTH_VERSION) != 0) {
        mpi_queue_lose(&w->queue, rank, "it runs Berth %s with protocol version %u, this rank runs Berth %s with version %u",
            h->release, h->version, BERTH_VERSION, MPI_WIRE_VERSION);
        return false;
    }
    if (h->n_devices > DEVICES_MAX || size != sizeof *h + h->n_devices * sizeof(struct mpi_device_info)) {
        mpi_queue_lose(&w->queue, rank, "its hello message lists %u devices in %zu bytes", h->n_devices, size);
        return false;
    }
    return true;
}

// Waits for the hello message of the rank and stores its devices. If the message is invalid, the rank is lost. Returns false if
// out of memory.
static bool hello_take(struct mpi_world *w, int rank, const char *my_pid_namespace) {
    struct mpi_queue_item *item = mpi_queue_hello(&w->queue, rank);
    struct mpi_hello h = {0};
    struct mpi_member *m = &w->members[rank];
    bool ok = true;
    if (item == NULL) {
        return true;
    }
    size_t size;
    const char *body = mpi_body_of(item, &size);
    memcpy(&h, body, min_size(size, sizeof h));
    if (!hello_check(w, rank, &h, size)) {
        goto end;
    }
    if (h.n_devices > 0) {
        m->devices = shim_malloc(h.n_devices * sizeof m->devices[0]);
        ok = m->devices != NULL;
        if (!ok) {
            shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %u devices of rank %d", h.n_devices, rank);
            goto end;
        }
        memcpy(m->devices, body + sizeof h, h.n_devices * sizeof m->devices[0]);
        if (!devices_check(m->devices, h.n_devices)) {
            mpi_queue_lose(&w->queue, rank, "its list of devices is invalid");
            goto end;
        }
    }
    m->is_worker = h.is_worker != 0;
    m->n_devices = h.n_devices;
    pthread_mutex_lock(&w->queue.lock);
    w->queue.peers[rank].has_hello = true;
    w->queue.peers[rank].pid =
        h.pid_namespace[0] != '\0' && strcmp(h.pid_namespace, my_pid_namespace) == 0 && h.pid > 0 && h.pid != getpid() ? h.pid
                                                                                                                       : 0;
    pthread_mutex_unlock(&w->queue.lock);
end:
    mpi_item_free(item);
    return ok;
}

// ---- thread that sends keep-alive messages ----

// Called if a thread is blocked in an MPI call. A worker then ends its process. A program ends only if BERTH_MPI_HELD=end is set;
// otherwise its user has to end the program.
static void blocked_report(const struct mpi_world *w) {
    const double seconds = (double) (3 * w->queue.timeout) / 1e9;
    if (w->ends_if_blocked) {
        shim_log(GGML_LOG_LEVEL_ERROR, "MPI: a call has not returned for %.1f s: this process ends", seconds);
        _exit(1);
    }
    shim_log(GGML_LOG_LEVEL_ERROR,
        "MPI: a call has not returned for %.1f s, and its thread is blocked; set BERTH_MPI_HELD=end to end the process "
        "in this case",
        seconds);
}

static void *progress_run(void *world) {
    struct mpi_world *w = world;
    int64_t alone = 0; // time since which the program is lost; 0: it is not lost
    bool was_blocked = false;
    for (bool stop = false; !stop;) {
        const struct timespec pause = {.tv_nsec = PROGRESS_EVERY};
        nanosleep(&pause, NULL);
        mpi_queue_progress(&w->queue);
        if (w->exit_when_alone && w->program_rank >= 0 && mpi_queue_is_lost(&w->queue, w->program_rank)) {
            if (alone == 0) {
                alone = mpi_now();
            }
            if (mpi_now() - alone > 3 * MPI_SECOND) { // no program needs the results any more
                _exit(1);
            }
        }
        const bool is_blocked = mpi_queue_inside_ns(&w->queue) > 3 * w->queue.timeout;
        if (is_blocked && !was_blocked) {
            blocked_report(w);
        }
        was_blocked = is_blocked;
        pthread_mutex_lock(&w->queue.lock);
        stop = w->stop;
        pthread_mutex_unlock(&w->queue.lock);
    }
    return NULL;
}

// ---- world ----

static void world_drop(struct mpi_world *w, bool in_order) {
    for (int i = 0; w->members != NULL && i < w->queue.transport.size; i++) {
        shim_free(w->members[i].devices);
    }
    shim_free(w->members);
    shim_free(w->programs.ranks);
    mpi_queue_fini(&w->queue, in_order);
}

static void programs_list(struct mpi_world *w) {
    w->programs = (struct mpi_group){.queue = &w->queue, .me = -1, .ranks = w->programs.ranks};
    w->program_rank = -1;
    for (int i = 0; i < w->queue.transport.size; i++) {
        const bool me = i == w->queue.transport.rank;
        if (me ? w->is_worker : w->members[i].is_worker || w->queue.peers[i].is_lost) {
            continue;
        }
        if (me) {
            w->programs.me = w->programs.n;
        }
        if (w->program_rank < 0) {
            w->program_rank = i;
        }
        w->programs.ranks[w->programs.n++] = i;
    }
}

// Lost ranks cause a warning, not an error, because the program can continue with fewer devices.
void mpi_world_report_left_out(struct mpi_world *w) {
    for (int i = 0; i < w->queue.transport.size; i++) {
        pthread_mutex_lock(&w->queue.lock);
        const struct mpi_peer p = w->queue.peers[i];
        pthread_mutex_unlock(&w->queue.lock);
        if (p.is_lost) {
            shim_log(GGML_LOG_LEVEL_WARN, "MPI: rank %d on %s is left out: %s", i, p.host[0] != '\0' ? p.host : "an unknown host",
                p.why);
        }
    }
}

bool mpi_world_init(
    struct mpi_world *w, const struct mpi_transport *t, bool is_worker, const struct mpi_device_info *devices, size_t n_devices) {
    const char *held = getenv("BERTH_MPI_HELD");
    *w = (struct mpi_world){.is_worker = is_worker, .ends_if_blocked = is_worker || (held != NULL && strcmp(held, "end") == 0)};
    if (!mpi_queue_init(&w->queue, t)) {
        return false;
    }
    struct mpi_hello mine;
    hello_fill(&mine, is_worker, n_devices);
    memcpy(w->queue.peers[t->rank].host, mine.host, sizeof mine.host);
    w->members = shim_calloc((size_t) t->size, sizeof w->members[0]);
    w->programs.ranks = shim_calloc((size_t) t->size, sizeof w->programs.ranks[0]);
    if (w->members == NULL || w->programs.ranks == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %d ranks", t->size);
        goto fail;
    }
    if (!hello_send(w, &mine, devices)) {
        goto fail;
    }
    for (int i = 0; i < t->size; i++) {
        if (i != t->rank && !hello_take(w, i, mine.pid_namespace)) {
            goto fail;
        }
    }
    programs_list(w);
    w->queue.counts_steps =
        is_worker; // set before the first keep-alive message, because a worker may hang before its first command
    w->has_progress_thread = pthread_create(&w->progress_thread, NULL, progress_run, w) == 0;
    if (!w->has_progress_thread) {
        shim_error(GGML_STATUS_FAILED, "MPI: cannot start a thread");
        goto fail;
    }
    return true;
fail:
    world_drop(w, false);
    return false;
}

// Waits until all other ranks have left or are lost. Returns true if no rank was lost.
static bool wait_for_all(struct mpi_world *w) {
    bool in_order = true;
    for (int i = 0; i < w->queue.transport.size; i++) {
        for (bool gone = i == w->queue.transport.rank; !gone;) {
            const struct timespec pause = {.tv_nsec = PROGRESS_EVERY};
            gone = mpi_queue_is_lost(&w->queue, i);
            if (!gone) {
                nanosleep(&pause, NULL); // the progress thread receives messages
            }
        }
        if (i != w->queue.transport.rank && !mpi_queue_has_left(&w->queue, i)) {
            in_order = false;
        }
    }
    return in_order;
}

void mpi_world_leave(struct mpi_world *w) {
    w->exit_when_alone = false;
    mpi_queue_bye(&w->queue);
    w->all_departed = wait_for_all(w);
}

void mpi_world_abandon(struct mpi_world *w) {
    mpi_queue_bye(&w->queue);
    pthread_mutex_lock(&w->queue.lock);
    w->stop = true;
    pthread_mutex_unlock(&w->queue.lock);
}

static void progress_stop(struct mpi_world *w) {
    pthread_mutex_lock(&w->queue.lock);
    w->stop = true;
    pthread_mutex_unlock(&w->queue.lock);
    pthread_join(w->progress_thread, NULL);
}

void mpi_world_end(struct mpi_world *w) {
    progress_stop(w);
    mpi_queue_close(&w->queue, w->all_departed);
}

void mpi_world_fini(struct mpi_world *w) {
    progress_stop(w);
    world_drop(w, w->all_departed);
}

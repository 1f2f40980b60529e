// SPDX-License-Identifier: MIT
// message_queue.c: implements message_queue.h. There is one lock. Every waiting thread polls the transport unless another thread
// is polling, so messages also arrive if no other thread of the process runs.

#include "mpi/message_queue.h"

#include "base/min.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_DEFAULT 10                   // seconds
#define STALL_DEFAULT 60                     // seconds in one op
#define UNSENT_MAX ((size_t) 1 << 20)        // a sender waits while more bytes to the rank are not sent yet
#define RECEIVE_AHEAD_MAX ((size_t) 1 << 20) // limit on the bytes that are received before a thread requests them
#define PID_CHECK_EVERY (MPI_SECOND / 20)    // interval between checks whether a process exists
#define SPIN_FOR (MPI_SECOND / 5000)         // a waiting thread spins, then sleeps between polls
#define SLEEP_FIRST 20000                    // nanoseconds; grows up to SLEEP_MAX
#define SLEEP_MAX 500000
#define AWAIT_MAX (MPI_SECOND / 100) // longest single wait for the thread in the transport
// Longest time counted between two calls of transport_check. If more time passes, this process was stopped.
#define CHECK_STEP_MAX (MPI_SECOND / 10)

// Returns the seconds in the environment variable `name`, in nanoseconds. Without a valid number, default_seconds are used.
static int64_t seconds_of(const char *name, int64_t default_seconds) {
    const char *text = getenv(name);
    char *end = NULL;
    const double secs = text != NULL ? strtod(text, &end) : 0;
    return text != NULL && end != text && secs > 0.01 && secs < 1e6 ? (int64_t) (secs * 1e9) : default_seconds * MPI_SECOND;
}

int64_t mpi_queue_timeout(void) {
    return seconds_of("BERTH_MPI_TIMEOUT", TIMEOUT_DEFAULT);
}

bool mpi_queue_init(struct mpi_queue *m, const struct mpi_transport *t) {
    *m = (struct mpi_queue){
        .transport = *t, .timeout = mpi_queue_timeout(), .stall = seconds_of("BERTH_MPI_STALL", STALL_DEFAULT)};
    m->peers = shim_calloc((size_t) t->size, sizeof m->peers[0]);
    if (m->peers == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %d ranks", t->size);
        return false;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); // the clock of mpi_now
    pthread_cond_init(&m->transport_left, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&m->lock, NULL);
    m->end = &m->first;
    m->polled = mpi_now();
    m->drained = m->polled;
    for (int i = 0; i < t->size; i++) {
        m->peers[i].last_heard = m->polled;
    }
    return true;
}

void mpi_item_free(struct mpi_queue_item *item) {
    if (item != NULL) {
        shim_free(item->message.bytes);
        shim_free(item);
    }
}

static void peer_lose(struct mpi_queue *m, int rank, const char *fmt, ...) BERTH_PRINTF(3, 4);

// ---- transport: one thread at a time. These functions are called with the lock held ----

// If a thread is in the transport for longer than the timeout, all ranks are lost.
static void transport_check(struct mpi_queue *m) {
    const int64_t now = mpi_now(), passed = now - m->checked;
    const bool is_same = m->is_in_transport && m->n_entered_checked == m->n_entered;
    m->inside_ns = is_same ? m->inside_ns + min_i64(passed, CHECK_STEP_MAX) : 0;
    m->n_entered_checked = m->n_entered;
    m->checked = now;
    for (int i = 0; m->inside_ns > m->timeout && i < m->transport.size; i++) {
        if (i != m->transport.rank) {
            peer_lose(m, i, "an MPI call has not returned for %.1f s", (double) m->inside_ns / 1e9);
        }
    }
}

// Waits up to AWAIT_MAX. Returns true if no thread is in the transport.
static bool transport_is_free(struct mpi_queue *m) {
    if (m->is_in_transport) {
        const int64_t end = mpi_now() + AWAIT_MAX;
        const struct timespec until = {.tv_sec = (time_t) (end / MPI_SECOND), .tv_nsec = (long) (end % MPI_SECOND)};
        transport_check(m);
        m->n_waiting++;
        for (int rc = 0; m->is_in_transport && rc == 0;) {
            rc = pthread_cond_timedwait(&m->transport_left, &m->lock, &until);
        }
        m->n_waiting--;
        transport_check(m);
    }
    return !m->is_in_transport;
}

// Returns true with the lock released. If another thread is in the transport, or the transport is closed,
// returns false with the lock held.
static bool transport_enter(struct mpi_queue *m) {
    if (!transport_is_free(m) || m->is_closed) {
        return false;
    }
    m->is_in_transport = true;
    m->n_entered++;
    pthread_mutex_unlock(&m->lock);
    return true;
}

static void transport_leave(struct mpi_queue *m) {
    pthread_mutex_lock(&m->lock);
    m->is_in_transport = false;
    if (m->n_waiting > 0) {
        pthread_cond_broadcast(&m->transport_left);
    }
}

// Returns false if the thread in the transport does not return.
static bool transport_wait(struct mpi_queue *m) {
    while (!transport_is_free(m) && m->inside_ns <= m->timeout) {
    }
    return !m->is_in_transport;
}

int64_t mpi_queue_inside_ns(struct mpi_queue *m) {
    pthread_mutex_lock(&m->lock);
    transport_check(m);
    const int64_t time = m->inside_ns;
    pthread_mutex_unlock(&m->lock);
    return time;
}

// ---- close ----

static void items_drop(struct mpi_queue *m) {
    for (struct mpi_queue_item *item = m->first, *next; item != NULL; item = next) {
        next = item->next;
        mpi_item_free(item);
    }
    m->first = NULL;
    m->end = &m->first;
    m->kept_size = 0;
}

void mpi_queue_close(struct mpi_queue *m, bool in_order) {
    pthread_mutex_lock(&m->lock);
    items_drop(m);
    for (int i = 0; i < m->transport.size; i++) {
        if (i != m->transport.rank) {
            peer_lose(m, i, "the ranks have disconnected");
        }
    }
    m->is_closed = true;
    const bool is_out = transport_wait(m);
    pthread_mutex_unlock(&m->lock);
    m->transport.close(&m->transport, in_order && is_out);
}

void mpi_queue_fini(struct mpi_queue *m, bool in_order) {
    mpi_queue_close(m, in_order);
    shim_free(m->peers);
    pthread_cond_destroy(&m->transport_left);
    pthread_mutex_destroy(&m->lock);
}

// ---- state of the ranks, with the lock held ----

static void lose_v(struct mpi_queue *m, int rank, const char *fmt, va_list args) {
    struct mpi_peer *p = &m->peers[rank];
    if (!p->is_lost) {
        vsnprintf(p->why, sizeof p->why, fmt, args);
        p->is_lost = true;
    }
}

static void peer_lose(struct mpi_queue *m, int rank, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    lose_v(m, rank, fmt, args);
    va_end(args);
}

// If the number of steps is unchanged, the rank has done nothing since the last keep-alive message.
static void steps_update(struct mpi_queue *m, struct mpi_peer *p, const struct mpi_head *head) {
    if (head->b != 0 && head->a == p->n_steps && p->steps_changed != 0) {
        p->stuck_since = p->steps_changed;
    } else {
        p->n_steps = head->a;
        p->steps_changed = m->polled;
        p->stuck_since = 0;
    }
}

// A message could not be received: the rank is lost. All later messages of the rank are dropped, because one of them could be
// mistaken for the missing message.
static void message_lose(struct mpi_queue *m, const struct mpi_message *message, const char *why) {
    m->peers[message->from].has_gap = true;
    if (why != NULL) {
        peer_lose(m, message->from, "a message of %zu bytes from it could not be received: %s", message->size, why);
    } else {
        peer_lose(m, message->from, "memory ran out for a message of %zu bytes from it", message->size);
    }
}

// Processes a received message and puts it into the queue. Keep-alive messages, MPI_BYE and broken messages are not queued.
static void message_accept(struct mpi_queue *m, struct mpi_message *message) {
    struct mpi_head head = {0};
    if (message->bytes == NULL && message->from >= 0 && message->from < m->transport.size) {
        message_lose(m, message, m->transport.why);
        return;
    }
    if (message->from < 0 || message->from >= m->transport.size || message->size < sizeof head ||
        message->size > MPI_MESSAGE_MAX) {
        if (message->from >= 0 && message->from < m->transport.size) {
            peer_lose(m, message->from, "it sent %zu bytes, which is not a valid message", message->size);
        }
        shim_free(message->bytes);
        return;
    }
    memcpy(&head, message->bytes, sizeof head);
    struct mpi_peer *p = &m->peers[message->from];
    p->last_heard = m->polled;
    if (head.kind == MPI_BYE) {
        p->has_left = true;
    } else if (head.kind == MPI_ALIVE) {
        steps_update(m, p, &head);
    }
    const bool is_kept = head.kind != MPI_ALIVE && head.kind != MPI_BYE && !m->has_sent_bye && !p->has_gap;
    struct mpi_queue_item *item = is_kept ? shim_malloc(sizeof *item) : NULL;
    if (item == NULL) {
        if (is_kept) {
            message_lose(m, message, NULL);
        }
        shim_free(message->bytes);
        return;
    }
    *item = (struct mpi_queue_item){.message = *message};
    *m->end = item;
    m->end = &item->next;
    m->kept_size += message->size;
    m->traffic.n_received++;
    m->traffic.received_size += message->size;
    m->traffic.received_data_size += head.kind == MPI_PART || head.kind == MPI_TENSOR ? message->size - sizeof head : 0;
}

// Restarts all timeouts. Called if this process has not received for a while, because keep-alive messages may be waiting in the
// transport.
static void timeouts_reset(struct mpi_queue *m) {
    for (int i = 0; i < m->transport.size; i++) {
        m->peers[i].last_heard = m->polled;
        m->peers[i].steps_changed = m->peers[i].stuck_since = 0;
    }
}

// Receives messages until the queue holds RECEIVE_AHEAD_MAX bytes, or this call has received that number of bytes. If
// is_waited_for, the first message is received even if the queue holds more, up to MPI_KEPT_MAX bytes. Returns false if another
// thread is in the transport.
static bool queue_poll(struct mpi_queue *m, bool is_waited_for) {
    if (!transport_is_free(m)) {
        return false;
    }
    m->polled = mpi_now();
    if (m->is_closed) {
        m->drained = m->polled;
        return true;
    }
    if (m->polled - m->drained > min_i64(m->timeout / 2, MPI_SECOND)) {
        timeouts_reset(m);
    }
    size_t limit = is_waited_for ? MPI_KEPT_MAX : RECEIVE_AHEAD_MAX, size = 0;
    while (m->kept_size < limit && size < RECEIVE_AHEAD_MAX) {
        struct mpi_message message;
        if (!transport_enter(m)) { // closed in the meantime
            break;
        }
        const bool found = m->transport.receive(&m->transport, &message);
        transport_leave(m);
        if (!found) {
            m->drained = m->polled;
            break;
        }
        limit = RECEIVE_AHEAD_MAX;
        size += message.size; // also counts dropped messages, to limit the time of this loop
        message_accept(m, &message);
    }
    return true;
}

// A zombie process counts as gone.
bool mpi_pid_is_gone(int pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return kill(pid, 0) != 0 && errno == ESRCH;
    }
    const size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    fclose(file);
    return state != NULL && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

static bool is_lost(struct mpi_queue *m, int rank) {
    struct mpi_peer *p = &m->peers[rank];
    if (m->is_in_transport) {
        transport_check(m);
    }
    if (p->is_lost || rank == m->transport.rank) {
        return p->is_lost;
    }
    if (p->has_left) {
        peer_lose(m, rank, "it has ended");
    } else if (m->polled - p->last_heard > m->timeout) {
        peer_lose(m, rank, "it has sent nothing for %.1f s", (double) (m->polled - p->last_heard) / 1e9);
    } else if (p->stuck_since != 0 && m->polled - p->stuck_since > m->stall) {
        peer_lose(m, rank, "it is alive, but has been in one op for %.1f s", (double) (m->polled - p->stuck_since) / 1e9);
    } else if (p->pid != 0 && m->polled - p->pid_checked > PID_CHECK_EVERY) {
        if (mpi_pid_is_gone(p->pid)) {
            bool has_polled = true; // receives the last messages of the rank first
            do {
                has_polled = queue_poll(m, true);
            } while (has_polled && m->drained != m->polled && m->kept_size < MPI_KEPT_MAX);
            if (has_polled) { // otherwise the rank is lost at the next check
                peer_lose(m, rank, "its process %d has ended", p->pid);
            }
        } else {
            p->pid_checked = m->polled;
        }
    }
    return p->is_lost;
}

static struct mpi_queue_item *unlink_item(struct mpi_queue *m, struct mpi_queue_item **at) {
    struct mpi_queue_item *item = *at;
    *at = item->next;
    if (item->next == NULL) {
        m->end = at;
    }
    m->kept_size -= item->message.size;
    item->next = NULL;
    return item;
}

// Removes and returns the first message of this kind and id from the queue; NULL: none. kind MPI_COMMAND means any command with
// any id.
static struct mpi_queue_item *item_find(struct mpi_queue *m, int from, uint32_t kind, uint32_t id) {
    for (struct mpi_queue_item **at = &m->first; *at != NULL; at = &(*at)->next) {
        const struct mpi_head *head = mpi_head_of(*at);
        if ((*at)->message.from == from &&
            (kind == MPI_COMMAND ? head->kind >= MPI_COMMAND : head->kind == kind && head->id == id)) {
            return unlink_item(m, at);
        }
    }
    return NULL;
}

// ---- wait ----

struct waiting {
    int64_t since, sleep;
    int64_t full_since; // time since which the queue is full; 0: not full
};

static void waiting_poll(struct mpi_queue *m, struct waiting *w) {
    if (m->kept_size < MPI_KEPT_MAX) {
        w->full_since = 0;
    } else if (w->full_since == 0) {
        w->full_since = mpi_now();
    }
    queue_poll(m, true);
}

// Returns true if the rank is lost. The rank is also lost if the queue has been full of unrequested messages for too long.
static bool wait_is_pointless(struct mpi_queue *m, int rank, struct waiting *w) {
    if (!is_lost(m, rank) && w->full_since != 0 && m->polled - w->full_since > m->stall) {
        peer_lose(m, rank, "no message could be received for %.1f s, because %zu bytes of messages are not requested",
            (double) (m->polled - w->full_since) / 1e9, m->kept_size);
    }
    return m->peers[rank].is_lost;
}

static void waiting_sleep(struct waiting *w) {
    const int64_t now = mpi_now();
    if (w->since == 0) {
        w->since = now;
    }
    if (now - w->since < SPIN_FOR) {
        sched_yield();
        return;
    }
    if (w->sleep == 0) {
        w->sleep = SLEEP_FIRST;
    } else {
        w->sleep = w->sleep < SLEEP_MAX ? w->sleep + w->sleep / 8 : SLEEP_MAX;
    }
    const struct timespec pause = {.tv_nsec = (long) w->sleep};
    nanosleep(&pause, NULL);
}

static struct mpi_queue_item *wait_for(struct mpi_queue *m, int from, uint32_t kind, uint32_t id) {
    for (struct waiting w = {0};; waiting_sleep(&w)) {
        atomic_fetch_add_explicit(&m->n_steps, 1, memory_order_relaxed);
        pthread_mutex_lock(&m->lock);
        struct mpi_queue_item *item = item_find(m, from, kind, id);
        bool lost = false;
        if (item == NULL) {
            waiting_poll(m, &w);
            item = item_find(m, from, kind, id);
        }
        if (item == NULL && wait_is_pointless(m, from, &w)) { // wait_is_pointless may have received the message
            item = item_find(m, from, kind, id);
            lost = item == NULL;
        }
        pthread_mutex_unlock(&m->lock);
        if (item != NULL || lost) {
            return item;
        }
    }
}

struct mpi_queue_item *mpi_queue_take(struct mpi_queue *m, int from, uint32_t kind, uint32_t id) {
    struct mpi_queue_item *item = wait_for(m, from, kind, id);
    if (item == NULL) {
        mpi_queue_report_lost(m, from, "an answer");
    }
    return item;
}

struct mpi_queue_item *mpi_queue_command(struct mpi_queue *m, int from) {
    return wait_for(m, from, MPI_COMMAND, 0);
}

struct mpi_queue_item *mpi_queue_hello(struct mpi_queue *m, int from) {
    return wait_for(m, from, MPI_HELLO, 0);
}

// ---- send ----

enum sent { SENT, BUSY, FULL, REFUSED };

// Called inside the transport.
static enum sent transport_send(
    struct mpi_queue *m, int to, size_t unsent_max, const struct mpi_head *head, const void *body, size_t size) {
    m->transport.why = NULL;
    if (m->transport.unsent(&m->transport, to) > unsent_max) {
        return FULL;
    }
    char *bytes = shim_malloc(sizeof *head + size);
    if (bytes == NULL) {
        return REFUSED;
    }
    memcpy(bytes, head, sizeof *head);
    if (size > 0) {
        memcpy(bytes + sizeof *head, body, size);
    }
    if (!m->transport.send(&m->transport, to, bytes, sizeof *head + size)) {
        shim_free(bytes);
        return REFUSED;
    }
    return SENT;
}

// The lock is held on entry and released during the call. BUSY: another thread is in the transport.
// FULL: more than unsent_max bytes to the rank are unsent. REFUSED: the transport failed.
static enum sent try_send(
    struct mpi_queue *m, int to, size_t unsent_max, const struct mpi_head *head, const void *body, size_t size) {
    if (!transport_enter(m)) {
        return BUSY;
    }
    const enum sent sent = transport_send(m, to, unsent_max, head, body, size);
    transport_leave(m);
    if (sent == SENT && head->kind != MPI_ALIVE) {
        m->traffic.n_sent++;
        m->traffic.sent_size += sizeof *head + size;
        m->traffic.sent_data_size += head->kind == MPI_PART || head->kind == MPI_TENSOR ? size : 0;
    }
    return sent;
}

enum ggml_status mpi_queue_send(struct mpi_queue *m, int to, const struct mpi_head *head, const void *body, size_t body_size) {
    if (body_size > MPI_MESSAGE_MAX - sizeof *head) {
        return shim_error(GGML_STATUS_FAILED,
            "MPI: a message of %zu bytes to rank %d is too large; at most %zu bytes can be sent", body_size, to, MPI_MESSAGE_MAX);
    }
    for (struct waiting w = {0};; waiting_sleep(&w)) {
        enum sent sent = BUSY;
        atomic_fetch_add_explicit(&m->n_steps, 1, memory_order_relaxed);
        pthread_mutex_lock(&m->lock);
        bool lost = is_lost(m, to);
        if (!lost) {
            sent = try_send(m, to, UNSENT_MAX, head, body, body_size);
        }
        if (sent == FULL) {
            waiting_poll(m, &w); // the other rank may wait until this rank receives
            lost = wait_is_pointless(m, to, &w);
        } else if (sent == REFUSED && m->transport.why != NULL) {
            peer_lose(m, to, "a message of %zu bytes could not be sent to it: %s", body_size, m->transport.why);
            lost = true;
        }
        pthread_mutex_unlock(&m->lock);
        if (lost) {
            return mpi_queue_report_lost(m, to, "a message");
        }
        if (sent == SENT) {
            return GGML_STATUS_SUCCESS;
        }
        if (sent == REFUSED) {
            return shim_error(
                GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a message of %zu bytes to rank %d", body_size, to);
        }
    }
}

void mpi_queue_progress(struct mpi_queue *m) {
    pthread_mutex_lock(&m->lock);
    const bool has_polled = queue_poll(m, false);
    const struct mpi_head alive = {
        .kind = MPI_ALIVE, .a = atomic_load_explicit(&m->n_steps, memory_order_relaxed), .b = m->counts_steps};
    const int64_t every = min_i64(m->timeout / 10, MPI_SECOND);
    for (int i = 0; has_polled && i < m->transport.size; i++) {
        const bool needs_alive =
            i != m->transport.rank && m->polled - m->peers[i].alive_sent > every && m->peers[i].has_hello && !is_lost(m, i);
        if (needs_alive && !m->has_sent_bye &&
            try_send(m, i, UNSENT_MAX, &alive, NULL, 0) != BUSY) { // if BUSY, the next call sends it
            m->peers[i].alive_sent = m->polled;
        }
    }
    pthread_mutex_unlock(&m->lock);
}

void mpi_queue_bye(struct mpi_queue *m) {
    static const struct mpi_head bye = {.kind = MPI_BYE};
    pthread_mutex_lock(&m->lock);
    m->has_sent_bye = true;
    items_drop(m);
    for (int i = 0; i < m->transport.size; i++) {
        if (i != m->transport.rank && (!is_lost(m, i) || m->peers[i].has_left)) {
            while (try_send(m, i, SIZE_MAX, &bye, NULL, 0) == BUSY && transport_wait(m) && !m->is_closed) {
            }
        }
    }
    pthread_mutex_unlock(&m->lock);
}

// ---- queries ----

bool mpi_queue_is_lost(struct mpi_queue *m, int rank) {
    pthread_mutex_lock(&m->lock);
    const bool lost = is_lost(m, rank);
    pthread_mutex_unlock(&m->lock);
    return lost;
}

bool mpi_queue_has_left(struct mpi_queue *m, int rank) {
    pthread_mutex_lock(&m->lock);
    const bool left = m->peers[rank].has_left;
    pthread_mutex_unlock(&m->lock);
    return left;
}

void mpi_queue_lose(struct mpi_queue *m, int rank, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&m->lock);
    lose_v(m, rank, fmt, args);
    pthread_mutex_unlock(&m->lock);
    va_end(args);
}

enum ggml_status mpi_queue_report_lost(struct mpi_queue *m, int rank, const char *what) {
    struct mpi_peer peer;
    pthread_mutex_lock(&m->lock);
    peer = m->peers[rank];
    pthread_mutex_unlock(&m->lock);
    return shim_error(GGML_STATUS_FAILED, "MPI: rank %d on %s is lost: %s (needed for %s)", rank,
        peer.host[0] != '\0' ? peer.host : "an unknown host", peer.why, what);
}

void mpi_queue_why(struct mpi_queue *m, int rank, char *why, size_t size) {
    pthread_mutex_lock(&m->lock);
    snprintf(why, size, "%s", m->peers[rank].why);
    pthread_mutex_unlock(&m->lock);
}

void mpi_queue_traffic(struct mpi_queue *m, struct berth_mpi_traffic *out) {
    pthread_mutex_lock(&m->lock);
    *out = m->traffic;
    pthread_mutex_unlock(&m->lock);
}

// SPDX-License-Identifier: MIT
// queue.c: see queue.h. One lock; every waiter polls, if no other thread does, so there is no thread that the others depend on.

#include "mpi/message_queue.h"

#include "base/min.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_DEFAULT 10            // seconds
#define STALL_DEFAULT 60              // seconds in one op
#define UNSENT_MAX ((size_t) 1 << 20) // bytes on their way to a rank before a sender waits
#define KEPT_SOON ((size_t) 1 << 20)  // where nobody does
#define LOOK_EVERY (MPI_SECOND / 20)  // at a process
#define SPIN_FOR (MPI_SECOND / 5000)  // before a waiter sleeps between its looks
#define SLEEP_FIRST 20000             // nanoseconds; longer and longer
#define SLEEP_MAX 500000
#define AWAIT_MAX (MPI_SECOND / 100) // for the one who is in the transport, at a time
#define NOTED_MAX (MPI_SECOND / 10)  // of the time between two looks that counts: this process may have been stopped

static int64_t seconds_of(const char *name, int64_t otherwise) {
    const char *text = getenv(name);
    char *end = NULL;
    const double secs = text != NULL ? strtod(text, &end) : 0;
    return text != NULL && end != text && secs > 0.01 && secs < 1e6 ? (int64_t) (secs * 1e9) : otherwise * MPI_SECOND;
}

int64_t mpi_queue_timeout(void) {
    return seconds_of("BERTH_MPI_TIMEOUT", TIMEOUT_DEFAULT);
}

bool mpi_queue_init(struct mpi_queue *m, const struct mpi_transport *t) {
    *m = (struct mpi_queue){.t = *t, .timeout = mpi_queue_timeout(), .stall = seconds_of("BERTH_MPI_STALL", STALL_DEFAULT)};
    m->peers = shim_calloc((size_t) t->size, sizeof m->peers[0]);
    if (m->peers == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %d ranks", t->size);
        return false;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); // mpi_now's
    pthread_cond_init(&m->came_out, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&m->lock, NULL);
    m->end = &m->first;
    m->polled = mpi_now();
    m->emptied = m->polled;
    for (int i = 0; i < t->size; i++) {
        m->peers[i].heard = m->polled;
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

// ---- the transport, for one thread at a time; these are called under the lock ----

// How long the one within has been there, as others have seen it.
static void link_note(struct mpi_queue *m) {
    const int64_t now = mpi_now(), passed = now - m->noted;
    const bool is_same = m->is_inside && m->n_noted == m->n_entered;
    m->inside_for = is_same ? m->inside_for + min_i64(passed, NOTED_MAX) : 0;
    m->n_noted = m->n_entered;
    m->noted = now;
    for (int i = 0; m->inside_for > m->timeout && i < m->t.size; i++) {
        if (i != m->t.rank) {
            peer_lose(m, i, "MPI has not come back from a call for %.1f s", (double) m->inside_for / 1e9);
        }
    }
}

// Whether nobody is within, now or soon: it is a moment, but for one that does not come back.
static bool link_is_free(struct mpi_queue *m) {
    if (m->is_inside) {
        const int64_t end = mpi_now() + AWAIT_MAX;
        const struct timespec until = {.tv_sec = (time_t) (end / MPI_SECOND), .tv_nsec = (long) (end % MPI_SECOND)};
        link_note(m);
        m->n_outside++;
        for (int rc = 0; m->is_inside && rc == 0;) {
            rc = pthread_cond_timedwait(&m->came_out, &m->lock, &until);
        }
        m->n_outside--;
        link_note(m);
    }
    return !m->is_inside;
}

// True: this thread is within, and the lock is free. False: another one is, or it is closed, and nothing is sent or taken in.
static bool link_enter(struct mpi_queue *m) {
    if (!link_is_free(m) || m->is_closed) {
        return false;
    }
    m->is_inside = true;
    m->n_entered++;
    pthread_mutex_unlock(&m->lock);
    return true;
}

static void link_leave(struct mpi_queue *m) {
    pthread_mutex_lock(&m->lock);
    m->is_inside = false;
    if (m->n_outside > 0) {
        pthread_cond_broadcast(&m->came_out);
    }
}

// Until nobody is within. False: the one who is does not come back.
static bool link_wait(struct mpi_queue *m) {
    while (!link_is_free(m) && m->inside_for <= m->timeout) {
    }
    return !m->is_inside;
}

int64_t mpi_queue_inside_for(struct mpi_queue *m) {
    pthread_mutex_lock(&m->lock);
    link_note(m);
    const int64_t time = m->inside_for;
    pthread_mutex_unlock(&m->lock);
    return time;
}

// ---- from the first word to the last ----

static void drop_kept(struct mpi_queue *m) {
    for (struct mpi_queue_item *item = m->first, *next; item != NULL; item = next) {
        next = item->next;
        mpi_item_free(item);
    }
    m->first = NULL;
    m->end = &m->first;
    m->kept_size = 0;
}

void mpi_queue_close(struct mpi_queue *m, bool all) {
    pthread_mutex_lock(&m->lock);
    drop_kept(m);
    for (int i = 0; i < m->t.size; i++) {
        if (i != m->t.rank) {
            peer_lose(m, i, "the ranks have parted");
        }
    }
    m->is_closed = true;
    const bool is_out = link_wait(m);
    pthread_mutex_unlock(&m->lock);
    m->t.close(&m->t, all && is_out);
}

void mpi_queue_fini(struct mpi_queue *m, bool all) {
    mpi_queue_close(m, all);
    shim_free(m->peers);
    pthread_cond_destroy(&m->came_out);
    pthread_mutex_destroy(&m->lock);
}

// ---- under the lock ----

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

// Two signs of life with the same steps: nothing was done between them.
static void note_steps(struct mpi_queue *m, struct mpi_peer *p, const struct mpi_head *head) {
    if (head->b != 0 && head->a == p->n_steps && p->moved != 0) {
        p->stuck = p->moved;
    } else {
        p->n_steps = head->a;
        p->moved = m->polled;
        p->stuck = 0;
    }
}

// What it sends from now on would be taken for what is missing.
static void message_lose(struct mpi_queue *m, const struct mpi_message *message, const char *why) {
    m->peers[message->from].has_gap = true;
    if (why != NULL) {
        peer_lose(m, message->from, "a message of %zu bytes from it could not be received: %s", message->size, why);
    } else {
        peer_lose(m, message->from, "memory ran out for a message of %zu bytes from it", message->size);
    }
}

// Keeps the letter, or does what it says.
static void take_in(struct mpi_queue *m, struct mpi_message *message) {
    struct mpi_head head = {0};
    if (message->bytes == NULL && message->from >= 0 && message->from < m->t.size) {
        message_lose(m, message, m->t.why);
        return;
    }
    if (message->from < 0 || message->from >= m->t.size || message->size < sizeof head || message->size > MPI_MESSAGE_MAX) {
        if (message->from >= 0 && message->from < m->t.size) {
            peer_lose(m, message->from, "it sent %zu bytes, which is no message", message->size);
        }
        shim_free(message->bytes);
        return;
    }
    memcpy(&head, message->bytes, sizeof head);
    struct mpi_peer *p = &m->peers[message->from];
    p->heard = m->polled;
    if (head.kind == MPI_BYE) {
        p->has_left = true;
    } else if (head.kind == MPI_ALIVE) {
        note_steps(m, p, &head);
    }
    const bool is_asked_for = head.kind != MPI_ALIVE && head.kind != MPI_BYE && !m->has_parted && !p->has_gap;
    struct mpi_queue_item *item = is_asked_for ? shim_malloc(sizeof *item) : NULL;
    if (item == NULL) {
        if (is_asked_for) {
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
    m->traffic.data_received += head.kind == MPI_PART || head.kind == MPI_TENSOR ? message->size - sizeof head : 0;
}

// Nobody is to be blamed for what this process has not taken in: it was stopped or busy, or nobody wanted what came, and signs of
// life may be behind that.
static void excuse_all(struct mpi_queue *m) {
    for (int i = 0; i < m->t.size; i++) {
        m->peers[i].heard = m->polled;
        m->peers[i].moved = m->peers[i].stuck = 0;
    }
}

// Takes in what has come, as far as there is room; if somebody waits for it, a message at least. False: another thread is at it.
static bool queue_poll(struct mpi_queue *m, bool is_wanted) {
    if (!link_is_free(m)) {
        return false;
    }
    m->polled = mpi_now();
    if (m->is_closed) {
        m->emptied = m->polled;
        return true;
    }
    if (m->polled - m->emptied > min_i64(m->timeout / 2, MPI_SECOND)) {
        excuse_all(m);
    }
    size_t limit = is_wanted ? MPI_KEPT_MAX : KEPT_SOON, size = 0;
    while (m->kept_size < limit && size < KEPT_SOON) {
        struct mpi_message message;
        if (!link_enter(m)) { // it was closed meanwhile
            break;
        }
        const bool found = m->t.receive(&m->t, &message);
        link_leave(m);
        if (!found) {
            m->emptied = m->polled;
            break;
        }
        limit = KEPT_SOON;
        size += message.size; // what is thrown away takes no room, but time
        take_in(m, &message);
    }
    return true;
}

// A process that has ended but was not waited for by its parent has no memory any more, and so no maps.
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
    if (m->is_inside) {
        link_note(m);
    }
    if (p->is_lost || rank == m->t.rank) {
        return p->is_lost;
    }
    if (p->has_left) {
        peer_lose(m, rank, "it has ended");
    } else if (m->polled - p->heard > m->timeout) {
        peer_lose(m, rank, "nothing was heard of it for %.1f s", (double) (m->polled - p->heard) / 1e9);
    } else if (p->stuck != 0 && m->polled - p->stuck > m->stall) {
        peer_lose(m, rank, "it lives, and has been in one op for %.1f s", (double) (m->polled - p->stuck) / 1e9);
    } else if (p->pid != 0 && m->polled - p->asked > LOOK_EVERY) {
        if (mpi_pid_is_gone(p->pid)) {
            bool is_at_it = true; // its last words
            do {
                is_at_it = queue_poll(m, true);
            } while (is_at_it && m->emptied != m->polled && m->kept_size < MPI_KEPT_MAX);
            if (is_at_it) { // otherwise at the next look
                peer_lose(m, rank, "its process %d is gone", p->pid);
            }
        } else {
            p->asked = m->polled;
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

// kind MPI_COMMAND: any command, whatever its id.
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

// ---- waiting ----

struct waiting {
    int64_t since, sleep;
    int64_t stuffed; // since when nothing more could be taken in; 0: there was room
};

// A look of one that waits.
static void waiting_poll(struct mpi_queue *m, struct waiting *w) {
    if (m->kept_size < MPI_KEPT_MAX) {
        w->stuffed = 0;
    } else if (w->stuffed == 0) {
        w->stuffed = mpi_now();
    }
    queue_poll(m, true);
}

// Whether this one waits for that rank to no end: what nobody asks for keeps all else from being taken in.
static bool is_in_vain(struct mpi_queue *m, int rank, struct waiting *w) {
    if (!is_lost(m, rank) && w->stuffed != 0 && m->polled - w->stuffed > m->stall) {
        peer_lose(m, rank, "nothing could be taken in for %.1f s behind %zu bytes that nobody asked for",
            (double) (m->polled - w->stuffed) / 1e9, m->kept_size);
    }
    return m->peers[rank].is_lost;
}

// Between two looks: others run first, then longer and longer.
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
        if (item == NULL && is_in_vain(m, from, &w)) { // which may have polled
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

// ---- sending ----

enum sent { SENT, BUSY, FULL, REFUSED };

// Within the transport.
static enum sent hand_over(
    struct mpi_queue *m, int to, size_t unsent_max, const struct mpi_head *head, const void *body, size_t size) {
    m->t.why = NULL;
    if (m->t.unsent(&m->t, to) > unsent_max) {
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
    if (!m->t.send(&m->t, to, bytes, sizeof *head + size)) {
        shim_free(bytes);
        return REFUSED;
    }
    return SENT;
}

// Under the lock, which is free meanwhile. BUSY: another thread is in the transport; FULL: more than so much is on its way to
// there; REFUSED: as the transport says.
static enum sent try_send(
    struct mpi_queue *m, int to, size_t unsent_max, const struct mpi_head *head, const void *body, size_t size) {
    if (!link_enter(m)) {
        return BUSY;
    }
    const enum sent sent = hand_over(m, to, unsent_max, head, body, size);
    link_leave(m);
    if (sent == SENT && head->kind != MPI_ALIVE) {
        m->traffic.n_sent++;
        m->traffic.sent_size += sizeof *head + size;
        m->traffic.data_sent += head->kind == MPI_PART || head->kind == MPI_TENSOR ? size : 0;
    }
    return sent;
}

enum ggml_status mpi_queue_send(struct mpi_queue *m, int to, const struct mpi_head *head, const void *body, size_t body_size) {
    if (body_size > MPI_MESSAGE_MAX - sizeof *head) {
        return shim_error(GGML_STATUS_FAILED, "MPI: a message of %zu bytes to rank %d: at most %zu can be sent", body_size, to,
            MPI_MESSAGE_MAX);
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
            waiting_poll(m, &w); // who sends much may be waiting for us
            lost = is_in_vain(m, to, &w);
        } else if (sent == REFUSED && m->t.why != NULL) {
            peer_lose(m, to, "a message of %zu bytes could not be sent to it: %s", body_size, m->t.why);
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
    const bool is_at_it = queue_poll(m, false);
    const struct mpi_head alive = {
        .kind = MPI_ALIVE, .a = atomic_load_explicit(&m->n_steps, memory_order_relaxed), .b = m->counts_steps};
    const int64_t every = min_i64(m->timeout / 10, MPI_SECOND);
    for (int i = 0; is_at_it && i < m->t.size; i++) {
        const bool is_due = i != m->t.rank && m->polled - m->peers[i].told > every && m->peers[i].has_hello && !is_lost(m, i);
        if (is_due && !m->has_parted && try_send(m, i, UNSENT_MAX, &alive, NULL, 0) != BUSY) { // otherwise the next time
            m->peers[i].told = m->polled;
        }
    }
    pthread_mutex_unlock(&m->lock);
}

void mpi_queue_bye(struct mpi_queue *m) {
    static const struct mpi_head bye = {.kind = MPI_BYE};
    pthread_mutex_lock(&m->lock);
    m->has_parted = true;
    drop_kept(m);
    for (int i = 0; i < m->t.size; i++) {
        if (i != m->t.rank && (!is_lost(m, i) || m->peers[i].has_left)) {
            while (try_send(m, i, SIZE_MAX, &bye, NULL, 0) == BUSY && link_wait(m) && !m->is_closed) {
            }
        }
    }
    pthread_mutex_unlock(&m->lock);
}

// ---- who is there ----

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

// SPDX-License-Identifier: MIT
// mail.c: see mail.h. One lock; every waiter polls under it, so there is no thread that the others depend on.

#include "mpi/mail.h"

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

static int64_t seconds_of(const char *name, int64_t otherwise) {
    const char *text  = getenv(name);
    char *end         = NULL;
    const double secs = text != NULL ? strtod(text, &end) : 0;
    return text != NULL && end != text && secs > 0.01 && secs < 1e6 ? (int64_t) (secs * 1e9) : otherwise * MPI_SECOND;
}

int64_t mpi_mail_timeout(void) {
    return seconds_of("BERTH_MPI_TIMEOUT", TIMEOUT_DEFAULT);
}

bool mpi_mail_init(struct mpi_mail *m, const struct mpi_transport *t) {
    *m       = (struct mpi_mail){.t = *t, .timeout = mpi_mail_timeout(), .stall = seconds_of("BERTH_MPI_STALL", STALL_DEFAULT)};
    m->peers = shim_calloc((size_t) t->size, sizeof m->peers[0]);
    if (m->peers == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %d ranks", t->size);
        return false;
    }
    pthread_mutex_init(&m->lock, NULL);
    m->end     = &m->first;
    m->polled  = mpi_now();
    m->emptied = m->polled;
    for (int i = 0; i < t->size; i++) {
        m->peers[i].heard = m->polled;
    }
    return true;
}

void mpi_item_free(struct mpi_mail_item *item) {
    if (item != NULL) {
        shim_free(item->letter.bytes);
        shim_free(item);
    }
}

static void lose(struct mpi_mail *m, int rank, const char *fmt, ...) BERTH_PRINTF(3, 4);

static void drop_kept(struct mpi_mail *m) {
    for (struct mpi_mail_item *item = m->first, *next; item != NULL; item = next) {
        next = item->next;
        mpi_item_free(item);
    }
    m->first     = NULL;
    m->end       = &m->first;
    m->kept_size = 0;
}

void mpi_mail_close(struct mpi_mail *m, bool all) {
    pthread_mutex_lock(&m->lock);
    drop_kept(m);
    for (int i = 0; i < m->t.size; i++) {
        if (i != m->t.rank) {
            lose(m, i, "the ranks have parted");
        }
    }
    m->is_closed = true;
    pthread_mutex_unlock(&m->lock);
    m->t.close(&m->t, all);
}

void mpi_mail_fini(struct mpi_mail *m, bool all) {
    mpi_mail_close(m, all);
    shim_free(m->peers);
    pthread_mutex_destroy(&m->lock);
}

// ---- under the lock ----

static void lose_v(struct mpi_mail *m, int rank, const char *fmt, va_list args) {
    struct mpi_peer *p = &m->peers[rank];
    if (!p->is_lost) {
        vsnprintf(p->why, sizeof p->why, fmt, args);
        p->is_lost = true;
    }
}

static void lose(struct mpi_mail *m, int rank, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    lose_v(m, rank, fmt, args);
    va_end(args);
}

// Two signs of life with the same steps: nothing was done between them.
static void note_steps(struct mpi_mail *m, struct mpi_peer *p, const struct mpi_head *head) {
    if (head->b != 0 && head->a == p->n_steps && p->moved != 0) {
        p->stuck = p->moved;
    } else {
        p->n_steps = head->a;
        p->moved   = m->polled;
        p->stuck   = 0;
    }
}

// What it sends from now on would be taken for what is missing.
static void lose_letter(struct mpi_mail *m, const struct mpi_letter *letter, const char *why) {
    m->peers[letter->from].has_gap = true;
    if (why != NULL) {
        lose(m, letter->from, "a message of %zu bytes from it could not be received: %s", letter->size, why);
    } else {
        lose(m, letter->from, "memory ran out for a message of %zu bytes from it", letter->size);
    }
}

// Keeps the letter, or does what it says.
static void take_in(struct mpi_mail *m, struct mpi_letter *letter) {
    struct mpi_head head = {0};
    if (letter->bytes == NULL && letter->from >= 0 && letter->from < m->t.size) {
        lose_letter(m, letter, m->t.why);
        return;
    }
    if (letter->from < 0 || letter->from >= m->t.size || letter->size < sizeof head || letter->size > MPI_MESSAGE_MAX) {
        if (letter->from >= 0 && letter->from < m->t.size) {
            lose(m, letter->from, "it sent %zu bytes, which is no message", letter->size);
        }
        shim_free(letter->bytes);
        return;
    }
    memcpy(&head, letter->bytes, sizeof head);
    struct mpi_peer *p = &m->peers[letter->from];
    p->heard           = m->polled;
    if (head.kind == MPI_BYE) {
        p->has_left = true;
    } else if (head.kind == MPI_ALIVE) {
        note_steps(m, p, &head);
    }
    const bool is_asked_for    = head.kind != MPI_ALIVE && head.kind != MPI_BYE && !m->has_parted && !p->has_gap;
    struct mpi_mail_item *item = is_asked_for ? shim_malloc(sizeof *item) : NULL;
    if (item == NULL) {
        if (is_asked_for) {
            lose_letter(m, letter, NULL);
        }
        shim_free(letter->bytes);
        return;
    }
    *item   = (struct mpi_mail_item){.letter = *letter};
    *m->end = item;
    m->end  = &item->next;
    m->kept_size += letter->size;
    m->traffic.n_received++;
    m->traffic.received_size += letter->size;
    m->traffic.data_received += head.kind == MPI_PART || head.kind == MPI_TENSOR ? letter->size - sizeof head : 0;
}

// Nobody is to be blamed for what this process has not taken in: it was stopped or busy, or nobody wanted what came, and signs of
// life may be behind that.
static void excuse_all(struct mpi_mail *m) {
    for (int i = 0; i < m->t.size; i++) {
        m->peers[i].heard = m->polled;
        m->peers[i].moved = m->peers[i].stuck = 0;
    }
}

// Takes in what has come, as far as there is room; if somebody waits for it, a message at least.
static void poll(struct mpi_mail *m, bool is_wanted) {
    m->polled = mpi_now();
    if (m->is_closed) {
        m->emptied = m->polled;
        return;
    }
    if (m->polled - m->emptied > (m->timeout / 2 < MPI_SECOND ? m->timeout / 2 : MPI_SECOND)) {
        excuse_all(m);
    }
    size_t limit = is_wanted ? MPI_KEPT_MAX : KEPT_SOON, size = 0;
    while (m->kept_size < limit && size < KEPT_SOON) {
        struct mpi_letter letter;
        if (!m->t.receive(&m->t, &letter)) {
            m->emptied = m->polled;
            return;
        }
        limit = KEPT_SOON;
        size += letter.size; // what is thrown away takes no room, but time
        take_in(m, &letter);
    }
}

// A process that has ended but was not waited for by its parent has no memory any more, and so no maps.
bool mpi_pid_is_gone(int pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return kill(pid, 0) != 0 && errno == ESRCH;
    }
    const size_t n    = fread(text, 1, sizeof text - 1, file);
    text[n]           = '\0';
    const char *state = strrchr(text, ')');
    fclose(file);
    return state != NULL && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

static bool is_lost(struct mpi_mail *m, int rank) {
    struct mpi_peer *p = &m->peers[rank];
    if (p->is_lost || rank == m->t.rank) {
        return p->is_lost;
    }
    if (p->has_left) {
        lose(m, rank, "it has ended");
    } else if (m->polled - p->heard > m->timeout) {
        lose(m, rank, "nothing was heard of it for %.1f s", (double) (m->polled - p->heard) / 1e9);
    } else if (p->stuck != 0 && m->polled - p->stuck > m->stall) {
        lose(m, rank, "it lives, and has been in one op for %.1f s", (double) (m->polled - p->stuck) / 1e9);
    } else if (p->pid != 0 && m->polled - p->asked > LOOK_EVERY) {
        p->asked = m->polled;
        if (mpi_pid_is_gone(p->pid)) {
            do { // its last words
                poll(m, true);
            } while (m->emptied != m->polled && m->kept_size < MPI_KEPT_MAX);
            lose(m, rank, "its process %d is gone", p->pid);
        }
    }
    return p->is_lost;
}

static struct mpi_mail_item *unlink_item(struct mpi_mail *m, struct mpi_mail_item **at) {
    struct mpi_mail_item *item = *at;
    *at                        = item->next;
    if (item->next == NULL) {
        m->end = at;
    }
    m->kept_size -= item->letter.size;
    item->next = NULL;
    return item;
}

// kind MPI_COMMAND: any command, whatever its id.
static struct mpi_mail_item *find(struct mpi_mail *m, int from, uint32_t kind, uint32_t id) {
    for (struct mpi_mail_item **at = &m->first; *at != NULL; at = &(*at)->next) {
        const struct mpi_head *head = mpi_head_of(*at);
        if ((*at)->letter.from == from &&
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
static void look(struct mpi_mail *m, struct waiting *w) {
    w->stuffed = m->kept_size < MPI_KEPT_MAX ? 0 : w->stuffed != 0 ? w->stuffed : mpi_now();
    poll(m, true);
}

// Whether this one waits for that rank to no end: what nobody asks for keeps all else from being taken in.
static bool is_in_vain(struct mpi_mail *m, int rank, struct waiting *w) {
    if (!is_lost(m, rank) && w->stuffed != 0 && m->polled - w->stuffed > m->stall) {
        lose(m, rank, "nothing could be taken in for %.1f s behind %zu bytes that nobody asked for",
            (double) (m->polled - w->stuffed) / 1e9, m->kept_size);
    }
    return m->peers[rank].is_lost;
}

// Between two looks: others run first, then longer and longer.
static void rest(struct waiting *w) {
    const int64_t now = mpi_now();
    w->since          = w->since == 0 ? now : w->since;
    if (now - w->since < SPIN_FOR) {
        sched_yield();
        return;
    }
    w->sleep                    = w->sleep == 0 ? SLEEP_FIRST : w->sleep < SLEEP_MAX ? w->sleep + w->sleep / 8 : SLEEP_MAX;
    const struct timespec pause = {.tv_nsec = (long) w->sleep};
    nanosleep(&pause, NULL);
}

static struct mpi_mail_item *wait_for(struct mpi_mail *m, int from, uint32_t kind, uint32_t id) {
    for (struct waiting w = {0};; rest(&w)) {
        atomic_fetch_add_explicit(&m->n_steps, 1, memory_order_relaxed);
        pthread_mutex_lock(&m->lock);
        struct mpi_mail_item *item = find(m, from, kind, id);
        bool lost                  = false;
        if (item == NULL) {
            look(m, &w);
            item = find(m, from, kind, id);
        }
        if (item == NULL && is_in_vain(m, from, &w)) { // which may have polled
            item = find(m, from, kind, id);
            lost = item == NULL;
        }
        pthread_mutex_unlock(&m->lock);
        if (item != NULL || lost) {
            return item;
        }
    }
}

struct mpi_mail_item *mpi_mail_take(struct mpi_mail *m, int from, uint32_t kind, uint32_t id) {
    struct mpi_mail_item *item = wait_for(m, from, kind, id);
    if (item == NULL) {
        mpi_mail_tell_lost(m, from, "an answer");
    }
    return item;
}

struct mpi_mail_item *mpi_mail_command(struct mpi_mail *m, int from) {
    return wait_for(m, from, MPI_COMMAND, 0);
}

struct mpi_mail_item *mpi_mail_hello(struct mpi_mail *m, int from) {
    return wait_for(m, from, MPI_HELLO, 0);
}

// ---- sending ----

static bool hand_over(struct mpi_mail *m, int to, const struct mpi_head *head, const void *body, size_t body_size) {
    char *bytes = shim_malloc(sizeof *head + body_size);
    m->t.why    = NULL;
    if (bytes == NULL) {
        return false;
    }
    memcpy(bytes, head, sizeof *head);
    if (body_size > 0) {
        memcpy(bytes + sizeof *head, body, body_size);
    }
    if (!m->t.send(&m->t, to, bytes, sizeof *head + body_size)) {
        shim_free(bytes);
        return false;
    }
    if (head->kind != MPI_ALIVE) {
        m->traffic.n_sent++;
        m->traffic.sent_size += sizeof *head + body_size;
        m->traffic.data_sent += head->kind == MPI_PART || head->kind == MPI_TENSOR ? body_size : 0;
    }
    return true;
}

enum ggml_status mpi_mail_send(struct mpi_mail *m, int to, const struct mpi_head *head, const void *body, size_t body_size) {
    if (body_size > MPI_MESSAGE_MAX - sizeof *head) {
        return shim_error(GGML_STATUS_FAILED, "MPI: a message of %zu bytes to rank %d: at most %zu can be sent", body_size, to,
            MPI_MESSAGE_MAX);
    }
    for (struct waiting w = {0};; rest(&w)) {
        bool sent = false;
        atomic_fetch_add_explicit(&m->n_steps, 1, memory_order_relaxed);
        pthread_mutex_lock(&m->lock);
        bool lost = is_lost(m, to), full = !lost && m->t.unsent(&m->t, to) > UNSENT_MAX;
        if (full) {
            look(m, &w); // who sends much may be waiting for us
            lost = is_in_vain(m, to, &w);
        } else if (!lost) {
            sent = hand_over(m, to, head, body, body_size);
            lost = !sent && m->t.why != NULL;
            if (lost) {
                lose(m, to, "a message of %zu bytes could not be sent to it: %s", body_size, m->t.why);
            }
        }
        pthread_mutex_unlock(&m->lock);
        if (lost) {
            return mpi_mail_tell_lost(m, to, "a message");
        }
        if (!full) {
            return sent ? GGML_STATUS_SUCCESS
                        : shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a message of %zu bytes to rank %d",
                              body_size, to);
        }
    }
}

void mpi_mail_tend(struct mpi_mail *m) {
    pthread_mutex_lock(&m->lock);
    poll(m, false);
    const struct mpi_head alive = {
        .kind = MPI_ALIVE, .a = atomic_load_explicit(&m->n_steps, memory_order_relaxed), .b = m->counts_steps};
    const bool tell = !m->has_parted && m->polled - m->told > (m->timeout / 10 < MPI_SECOND ? m->timeout / 10 : MPI_SECOND);
    m->told         = tell ? m->polled : m->told;
    for (int i = 0; tell && i < m->t.size; i++) {
        if (i != m->t.rank && m->peers[i].has_hello && !is_lost(m, i) && m->t.unsent(&m->t, i) <= UNSENT_MAX) {
            (void) !hand_over(m, i, &alive, NULL, 0);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

void mpi_mail_bye(struct mpi_mail *m) {
    static const struct mpi_head bye = {.kind = MPI_BYE};
    pthread_mutex_lock(&m->lock);
    m->has_parted = true;
    drop_kept(m);
    for (int i = 0; i < m->t.size; i++) {
        if (i != m->t.rank && (!is_lost(m, i) || m->peers[i].has_left)) {
            (void) !hand_over(m, i, &bye, NULL, 0);
        }
    }
    pthread_mutex_unlock(&m->lock);
}

// ---- who is there ----

bool mpi_mail_is_lost(struct mpi_mail *m, int rank) {
    pthread_mutex_lock(&m->lock);
    const bool lost = is_lost(m, rank);
    pthread_mutex_unlock(&m->lock);
    return lost;
}

bool mpi_mail_has_left(struct mpi_mail *m, int rank) {
    pthread_mutex_lock(&m->lock);
    const bool left = m->peers[rank].has_left;
    pthread_mutex_unlock(&m->lock);
    return left;
}

void mpi_mail_lose(struct mpi_mail *m, int rank, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&m->lock);
    lose_v(m, rank, fmt, args);
    pthread_mutex_unlock(&m->lock);
    va_end(args);
}

enum ggml_status mpi_mail_tell_lost(struct mpi_mail *m, int rank, const char *what) {
    struct mpi_peer peer;
    pthread_mutex_lock(&m->lock);
    peer = m->peers[rank];
    pthread_mutex_unlock(&m->lock);
    return shim_error(GGML_STATUS_FAILED, "MPI: rank %d on %s is lost: %s (needed for %s)", rank,
        peer.host[0] != '\0' ? peer.host : "an unknown host", peer.why, what);
}

void mpi_mail_why(struct mpi_mail *m, int rank, char *why, size_t size) {
    pthread_mutex_lock(&m->lock);
    snprintf(why, size, "%s", m->peers[rank].why);
    pthread_mutex_unlock(&m->lock);
}

void mpi_mail_traffic(struct mpi_mail *m, struct berth_mpi_traffic *out) {
    pthread_mutex_lock(&m->lock);
    *out = m->traffic;
    pthread_mutex_unlock(&m->lock);
}

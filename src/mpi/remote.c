// SPDX-License-Identifier: MIT
// remote.c: a rank as the program sees it: questions with tickets, failures that wait to be told.

#include "mpi/remote.h"

#include "base/min.h"

#include <string.h>

bool mpi_remote_init(struct mpi_remote *r, struct mpi_mail *mail, int rank) {
    *r = (struct mpi_remote){.mail = mail, .rank = rank};
    return pthread_mutex_init(&r->lock, NULL) == 0;
}

void mpi_remote_fini(struct mpi_remote *r) {
    mpi_known_fini(&r->known);
    mpi_wire_fini(&r->writing);
    shim_free(r->buffers.taken);
    pthread_mutex_destroy(&r->lock);
}

uint32_t mpi_remote_ticket(struct mpi_remote *r) {
    pthread_mutex_lock(&r->lock);
    const uint32_t ticket = ++r->n_tickets;
    pthread_mutex_unlock(&r->lock);
    return ticket;
}

enum ggml_status mpi_remote_send(
    struct mpi_remote *r, uint32_t kind, uint32_t id, const uint64_t abc[3], const void *body, size_t size) {
    const struct mpi_head head = {.kind = kind, .id = id, .a = abc[0], .b = abc[1], .c = abc[2]};
    if (kind != MPI_SYNC && kind != MPI_ASK && kind != MPI_ASK_MEMORY) {
        atomic_fetch_add(&r->n_sent, 1);
    }
    return mpi_mail_send(r->mail, r->rank, &head, body, size);
}

struct mpi_mail_item *mpi_remote_ask(
    struct mpi_remote *r, uint32_t ticket, uint32_t kind, uint32_t id, const uint64_t abc[3], const void *body, size_t size) {
    if (mpi_remote_send(r, kind, id, abc, body, size) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    return mpi_mail_take(r->mail, r->rank, MPI_ANSWER, ticket);
}

void mpi_remote_keep(struct mpi_remote *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&r->lock);
    if (r->failure[0] == '\0') {
        const int n = snprintf(r->failure, sizeof r->failure, "MPI: rank %d on %s: ", r->rank, r->mail->peers[r->rank].host);
        vsnprintf(r->failure + n, sizeof r->failure - (size_t) n, fmt, args);
    }
    pthread_mutex_unlock(&r->lock);
    va_end(args);
}

enum ggml_status mpi_remote_report(struct mpi_remote *r) {
    char text[sizeof r->failure];
    pthread_mutex_lock(&r->lock);
    memcpy(text, r->failure, sizeof text);
    r->failure[0] = '\0';
    pthread_mutex_unlock(&r->lock);
    if (mpi_mail_is_lost(r->mail, r->rank)) {
        return mpi_mail_tell_lost(r->mail, r->rank, "computing");
    }
    return text[0] != '\0' ? shim_error(GGML_STATUS_FAILED, "%s", text) : GGML_STATUS_SUCCESS;
}

void mpi_remote_sync(struct mpi_remote *r) {
    const uint64_t n_sent = atomic_load(&r->n_sent);
    uint64_t n_done = atomic_load(&r->n_done);
    if (n_done >= n_sent && !mpi_mail_is_lost(r->mail, r->rank)) {
        return;
    }
    const uint32_t ticket = mpi_remote_ticket(r);
    struct mpi_mail_item *item = mpi_remote_ask(r, ticket, MPI_SYNC, ticket, (uint64_t[3]){0}, NULL, 0);
    if (item == NULL) {
        char why[192];
        mpi_mail_why(r->mail, r->rank, why, sizeof why);
        mpi_remote_keep(r, "it is lost: %s", why);
    } else if (mpi_head_of(item)->a != 0) {
        size_t size;
        const char *text = mpi_body_of(item, &size);
        mpi_remote_keep(r, "%.*s", (int) min_size(size, 200), text);
    }
    while (n_done < n_sent && !atomic_compare_exchange_weak(&r->n_done, &n_done, n_sent)) { // another thread's may be later
    }
    mpi_item_free(item);
}

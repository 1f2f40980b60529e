// SPDX-License-Identifier: MIT
// stuck_link.c: replaces libberth-mpi.so. There are two ranks, and receiving messages never returns, as in Open MPI when a rank
// dies while the ranks connect. With BERTH_TEST_SILENT receiving returns, but the other rank never sends a message. With
// BERTH_TEST_HELD the other rank joins, and afterwards calls of this process's first thread ("first") or of its other threads
// ("others") never return.

#include "mpi/world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool stuck_send(struct mpi_transport *t, int to, void *bytes, size_t size) {
    (void) to;
    (void) size;
    t->release(bytes);
    return true;
}

static size_t stuck_unsent(struct mpi_transport *t, int to) {
    (void) t;
    (void) to;
    return 0;
}

static bool hello_receive(struct mpi_transport *t, struct mpi_message *out) {
    static const struct mpi_head head = {.kind = MPI_HELLO};
    static const struct mpi_hello hello = {
        .magic = MPI_MAGIC, .version = MPI_WIRE_VERSION, .release = BERTH_VERSION, .host = "elsewhere"};
    *out = (struct mpi_message){.from = 1, .size = sizeof head + sizeof hello, .bytes = t->alloc(sizeof head + sizeof hello)};
    if (out->bytes != NULL) {
        memcpy(out->bytes, &head, sizeof head);
        memcpy((char *) out->bytes + sizeof head, &hello, sizeof hello);
    }
    return true;
}

static bool stuck_receive(struct mpi_transport *t, struct mpi_message *out) {
    static pid_t joiner; // calls of the thread that joins return
    const char *held = getenv("BERTH_TEST_HELD");
    if (held != NULL && joiner == 0) {
        joiner = gettid();
        return hello_receive(t, out);
    }
    if (held != NULL && (joiner == gettid() || (strcmp(held, "first") == 0) != (gettid() == getpid()))) {
        return false;
    }
    while (t != NULL && getenv("BERTH_TEST_SILENT") == NULL) {
        pause();
    }
    return false;
}

static void stuck_close(struct mpi_transport *t, bool all) {
    (void) t;
    (void) all;
}

__attribute__((visibility("default"))) bool berth_mpi_link_open(struct mpi_transport *t, char *why, size_t why_size);

bool berth_mpi_link_open(struct mpi_transport *t, char *why, size_t why_size) {
    (void) why;
    (void) why_size;
    t->rank = 0;
    t->size = 2;
    t->send = stuck_send;
    t->unsent = stuck_unsent;
    t->receive = stuck_receive;
    t->close = stuck_close;
    return true;
}

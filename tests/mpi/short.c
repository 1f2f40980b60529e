// SPDX-License-Identifier: MIT
// short.c LIBRARY: two ranks with the transport alone. The second rank has no memory for some messages of the first, short and long
// ones, and MPI fails to receive two messages and to send one. The second rank is informed of each message that it does not
// receive, in order, without bytes and with the reason. The messages after it are complete. It prints "all came" on success.
// Neither rank finalizes MPI, which still has unreceived messages.

#include "mpi/transport.h"

#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N 8
#define PATIENCE_MS 20000
#define UNRECEIVED 70 // size of the message for which MPI_Imrecv fails
#define UNTESTED 80   // size of the message for which MPI_Test fails
#define UNSENT 90     // size of the message for which MPI_Isend fails

// MPI sends short messages immediately, and long ones when the receiver requests them.
static const size_t sizes[N] = {100, 777, 1 << 20, 50, 3000001, UNRECEIVED, UNTESTED, 60};
static const bool lacks_memory[N] = {false, true, true, false, true, false, false, false}; // the receiver has no memory
static size_t n_refused;
static MPI_Request untested;

// ---- wrappers of MPI functions, some of which fail ----

int MPI_Imrecv(void *bytes, int n, MPI_Datatype type, MPI_Message *message, MPI_Request *request) {
    if (n == UNRECEIVED) {
        return MPI_ERR_INTERN;
    }
    const int error = PMPI_Imrecv(bytes, n, type, message, request);
    untested = n == UNTESTED ? *request : untested;
    return error;
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status) {
    if (untested != NULL && *request == untested) {
        untested = NULL;
        return MPI_ERR_TRUNCATE;
    }
    return PMPI_Test(request, done, status);
}

int MPI_Isend(const void *bytes, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    return n == UNSENT ? MPI_ERR_BUFFER : PMPI_Isend(bytes, n, type, to, tag, comm, request);
}

// Returns true if `why` is MPI's text for the error.
static bool is_why(const char *why, int error) {
    char words[MPI_MAX_ERROR_STRING];
    int n;
    return error == MPI_SUCCESS ? why == NULL
                                : why != NULL && MPI_Error_string(error, words, &n) == MPI_SUCCESS && strcmp(why, words) == 0;
}

static int error_of(size_t size) {
    return size == UNRECEIVED ? MPI_ERR_INTERN : size == UNTESTED ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
}

static void *some_alloc(size_t size) {
    for (int i = 0; i < N; i++) {
        if (lacks_memory[i] && size == sizes[i]) {
            n_refused++;
            return NULL;
        }
    }
    return malloc(size);
}

static int fail(const struct mpi_transport *t, const char *what, int i) {
    fprintf(stderr, "rank %d: message %d: %s\n", t->rank, i, what);
    return 1;
}

static void pause_1ms(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int send_all(struct mpi_transport *t) {
    for (int i = 0; i < N; i++) {
        void *bytes = malloc(sizes[i]);
        if (bytes == NULL || !t->send(t, 1, memset(bytes, i + 1, sizes[i]), sizes[i])) {
            return fail(t, "cannot be sent", i);
        }
    }
    char unsent[UNSENT];
    if (t->send(t, 1, unsent, sizeof unsent) || !is_why(t->why, MPI_ERR_BUFFER)) {
        return fail(t, "was sent, or failed for another reason than MPI_ERR_BUFFER", N);
    }
    struct mpi_message message;
    for (int ms = 0; !t->receive(t, &message); ms++) { // waits until the other rank is done
        if (ms == PATIENCE_MS) {
            return fail(t, "is not answered", N);
        }
        pause_1ms();
    }
    return 0;
}

static int receive_all(struct mpi_transport *t) {
    for (int i = 0; i < N; i++) {
        struct mpi_message message = {0};
        for (int ms = 0; !t->receive(t, &message); ms++) {
            if (ms == PATIENCE_MS) {
                return fail(t, "does not come", i);
            }
            pause_1ms();
        }
        if (message.from != 0 || message.size != sizes[i]) {
            return fail(t, "is of another size", i);
        }
        if (!is_why(t->why, error_of(sizes[i]))) {
            return fail(t, "has the wrong error text", i);
        }
        if ((message.bytes == NULL) != (lacks_memory[i] || error_of(sizes[i]) != MPI_SUCCESS) ||
            (message.bytes != NULL && ((const char *) message.bytes)[sizes[i] - 1] != i + 1)) {
            return fail(t, "has other bytes", i);
        }
        free(message.bytes);
    }
    if (n_refused != 3 || !t->send(t, 0, malloc(1), 1)) {
        return fail(t, "the receiver was not refused memory exactly 3 times, or the reply cannot be sent", N);
    }
    for (int ms = 0; t->unsent(t, 0) > 0 && ms < PATIENCE_MS; ms++) {
        pause_1ms();
    }
    printf("all came\n");
    return 0;
}

int main(int argc, char **argv) {
    char why[256] = "";
    struct mpi_transport t = {.alloc = malloc, .release = free};
    mpi_link_open_t open;
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *symbol = library != NULL ? dlsym(library, MPI_LINK_OPEN) : NULL;
    memcpy(&open, &symbol, sizeof open);
    if (open == NULL || !open(&t, why, sizeof why) || t.size != 2) {
        fprintf(stderr, "cannot open a transport of two ranks: %s\n", why);
        return 1;
    }
    t.alloc = t.rank == 1 ? some_alloc : malloc;
    const int rc = t.rank == 0 ? send_all(&t) : receive_all(&t);
    fflush(stdout);
    t.close(&t, false);
    _exit(rc);
}

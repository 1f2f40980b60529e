// SPDX-License-Identifier: MIT
// transport.h: whole messages between ranks, and nothing about what is in them. MPI is one (link/link.c, a library of its own, so
// that libmpi is loaded only where mpirun started the program); tests have another, between threads.
//
// No call waits. Messages from one rank to another arrive in the order in which they were given. Calls for one rank come one at a
// time: queue.c holds its lock.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct mpi_message {
    int from;
    size_t size;
    void *bytes; // of transport.alloc; NULL: the message is lost, transport.why says why
};

struct mpi_transport {
    int rank, size;
    void *context;
    void *(*alloc)(size_t size); // given by whoever opens it; NULL: out of memory
    void (*release)(void *bytes);
    const char *why; // of what send refused or receive has lost, until the next call; NULL: memory ran out
    // Takes over the bytes, and gives them back to release when they are sent. False, with `why`: then they stay the caller's.
    bool (*send)(struct mpi_transport *t, int to, void *bytes, size_t size);
    // Bytes given for that rank and not sent yet.
    size_t (*unsent)(struct mpi_transport *t, int to);
    // The next message that is here as a whole, whoever it is from; its bytes become the caller's. False: none now.
    bool (*receive)(struct mpi_transport *t, struct mpi_message *out);
    // all: every rank is alive and closes too. Otherwise nothing is waited for.
    void (*close)(struct mpi_transport *t, bool all);
};

// Of libberth-mpi.so: joins the other ranks; alloc and release are set. False, with the reason in `why`.
typedef bool (*mpi_link_open_t)(struct mpi_transport *t, char *why, size_t why_size);
#define MPI_LINK_FILE "libberth-mpi.so"
#define MPI_LINK_OPEN "berth_mpi_link_open"

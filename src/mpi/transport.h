// SPDX-License-Identifier: MIT
// transport.h: the interface that transfers messages between ranks as bytes. No function waits.
// Messages from one rank to another arrive in order. Only one thread of a rank is in the transport at a time.
// There are two transports: MPI (link/link.c), and threads of one process (tests). link.c is a separate library, so that libmpi
// is loaded only under mpirun.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct mpi_message {
    int from;
    size_t size;
    void *bytes; // from transport.alloc; NULL: the message was lost, see transport.why
};

struct mpi_transport {
    int rank, size;
    void *context;
    void *(*alloc)(size_t size); // set by the caller that opens the transport; NULL: out of memory
    void (*release)(void *bytes);
    const char *why; // reason why send or receive failed, until the next call; NULL: out of memory
    // Takes ownership of the bytes. On failure returns false with `why`, and the caller keeps the bytes.
    bool (*send)(struct mpi_transport *t, int to, void *bytes, size_t size);
    // Returns the bytes to that rank that are not sent yet.
    size_t (*unsent)(struct mpi_transport *t, int to);
    // Receives a message, whose bytes the caller then owns. Returns false if there is no complete message.
    bool (*receive)(struct mpi_transport *t, struct mpi_message *out);
    // in_order: all ranks are alive and close too, so this function may wait for them.
    void (*close)(struct mpi_transport *t, bool in_order);
};

// Function of libberth-mpi.so. The caller sets alloc and release. On failure returns false with the reason in `why`.
typedef bool (*mpi_link_open_t)(struct mpi_transport *t, char *why, size_t why_size);
#define MPI_LINK_FILE "libberth-mpi.so"
#define MPI_LINK_OPEN "berth_mpi_link_open"

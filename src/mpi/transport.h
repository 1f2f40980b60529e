// SPDX-License-Identifier: MIT
// transport.h: the interface that transfers messages between ranks as bytes. One transport is MPI (link/link.c, a separate library,
// so that libmpi is loaded only if mpirun started the program). Tests have a transport between threads. No function waits. Messages
// from one rank to another arrive in order. message_queue.c ensures that only one thread of a rank is in the transport at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct mpi_message {
    int from;
    size_t size;
    void *bytes; // allocated by transport.alloc; NULL: the message is lost, transport.why has the reason
};

struct mpi_transport {
    int rank, size;
    void *context;
    void *(*alloc)(size_t size); // set by the caller that opens the transport; NULL: out of memory
    void (*release)(void *bytes);
    const char *why; // reason why send or receive failed, until the next call; NULL: out of memory
    // Takes ownership of the bytes and releases them when they are sent. On failure it returns false with `why`, and the caller
    // keeps the bytes.
    bool (*send)(struct mpi_transport *t, int to, void *bytes, size_t size);
    // Returns the bytes to that rank that are not sent yet.
    size_t (*unsent)(struct mpi_transport *t, int to);
    // Receives the next complete message from any rank; the caller owns its bytes. Returns false if there is none.
    bool (*receive)(struct mpi_transport *t, struct mpi_message *out);
    // in_order: all ranks are alive and close too, so it may wait for them. Otherwise it does not wait.
    void (*close)(struct mpi_transport *t, bool in_order);
};

// Function of libberth-mpi.so: joins the other ranks. alloc and release are set by the caller. Returns false with the reason in
// `why`.
typedef bool (*mpi_link_open_t)(struct mpi_transport *t, char *why, size_t why_size);
#define MPI_LINK_FILE "libberth-mpi.so"
#define MPI_LINK_OPEN "berth_mpi_link_open"

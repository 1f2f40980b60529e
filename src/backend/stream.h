// SPDX-License-Identifier: MIT
// stream.h: weights that are read from a file while a graph runs. Shared by the files of streaming in this folder:
//
//     stream_plan.c   which weights stay in memory
//     stream.c        the thread that reads ahead, and the waits of a graph
//     stream_graph.c  mapped buffers, the memory limit, the weights of a graph; the functions that the CPU backend calls
//
// Terms: a *pass* computes one graph. A *use* is one node's read of one weight. The *window* is the memory for streamed weights
// that are read ahead, in use, or not yet dropped.
#pragma once

#include "backend/backend.h"

#include <pthread.h>
#include <stdatomic.h>

// ---- which weights stay in memory (stream_plan.c) ----

enum stream_place {
    STREAM_RESIDENT, // stays in memory
    STREAM_STREAMED, // read before each use and dropped after it
    STREAM_PAGED,    // larger than half of the memory: left to the system, which reads a page when it is accessed
};

struct stream_weight {
    uintptr_t at;
    size_t size;
    enum stream_place place;
    bool was_resident; // in the plan before
};

struct stream_plan {
    uint64_t window;                    // bytes; at least the largest streamed weight
    uint64_t resident, streamed, paged; // bytes of the weights in each place
};

// Chooses the place of each weight, so that resident + window <= left. left: bytes of memory for all weights.
// Every pass reads the streamed weights once, so it only matters how many bytes stay. The resident weights are spread evenly, so
// that reading continues while they are used.
void stream_plan_make(struct stream_weight *weights, size_t n, uint64_t left, struct stream_plan *plan);

// ---- reading ahead (stream.c) ----

struct stream_use {
    uintptr_t at;
    size_t size;
    const void *source; // for struct stream_io
    bool is_streamed;
};

struct stream_io {
    void (*request)(const struct stream_use *use); // starts to read, and returns at once
    int (*load)(const struct stream_use *use);     // reads what is missing and waits; returns 0 or an errno
    void (*drop)(const struct stream_use *use);
};

struct stream {
    struct stream_io io;
    pthread_mutex_t lock;
    pthread_cond_t work;  // for the reader: it may load or drop
    pthread_cond_t ready; // for the graph: a load or drop is complete
    pthread_t reader;
    bool has_reader, must_stop;
    bool is_busy; // the reader requests, loads or drops without holding the lock

    // Positions count uses over all passes with the same list; use i of the list has the positions i, i + n, ...
    // begin <= dropped <= done <= loaded <= requested <= dropped + n. After the end of a pass, dropped = done = begin.
    struct stream_use *uses; // [n]
    size_t n, n_cap;
    uint64_t begin;               // of the current or next pass
    uint64_t done, dropped;       // done: the graph has finished these uses
    _Atomic uint64_t loaded;      // written with the lock held
    uint64_t requested;           // the system reads the uses from `loaded` to here
    uint64_t wanted;              // the graph waits for the uses before; these are read even if the window is full
    uint64_t window, window_used; // bytes; window_used: of the streamed uses from `dropped` to `requested`
    bool is_running;              // between stream_begin and stream_end
    bool is_repeated;             // the list was the same in the pass before, so the reader continues with the next pass
    int error;                    // errno of the first failed load; `loaded` then stays unchanged until the next pass
};

// Returns false if memory or the system's threads are exhausted.
bool stream_init(struct stream *s, const struct stream_io *io) BERTH_MUST_USE;
void stream_fini(struct stream *s);
// Starts a pass. Returns false if out of memory, or if no reader can be started.
bool stream_begin(struct stream *s, const struct stream_use *uses, size_t n, uint64_t window) BERTH_MUST_USE;
// Waits until the first n uses of the pass are loaded. Returns 0, or the errno of the load. All threads of a pass get the same
// answer for the same n.
int stream_wait(struct stream *s, size_t n) BERTH_MUST_USE;
// The graph has finished the first n uses of the pass. One thread calls this.
void stream_done(struct stream *s, size_t n);
// Ends the pass, and returns after all uses that are done have been dropped. So nothing is dropped between two passes, when the
// addresses may belong to something else.
void stream_end(struct stream *s);
// Stops reading ahead for the next pass.
void stream_forget(struct stream *s);
// In the child of a fork, which has no reader.
void stream_restart_after_fork(struct stream *s);
